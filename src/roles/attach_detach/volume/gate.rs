//! Whether a volume that no pod on a node wants may be detached from it: the table of attach-detach spec 7. Pure.

use std::time::Duration;

/// A node as far as its volumes may be taken from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// There is no Node object.
    Missing {
        /// When it was last seen, its kubelet did not use the volume.
        was_free: bool,
    },
    /// There is one.
    There {
        /// Its kubelet uses the volume, as far as it says, or has not said yet.
        in_use: bool,
        /// It has the taint `node.kubernetes.io/out-of-service`.
        out_of_service: bool,
        /// It is ready.
        is_ready: bool,
    },
}

/// Why a volume is taken from a node whose kubelet may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// A person says that the node is out of service.
    OutOfService,
    /// The node has not been ready, and nobody has wanted the volume, for too long.
    Timeout,
}

impl Force {
    /// The label of the metric.
    pub fn label(self) -> &'static str {
        match self {
            Self::OutOfService => "out-of-service",
            Self::Timeout => "timeout",
        }
    }
}

/// Whether the volume may be detached now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It may; by force, if it may still be in use.
    Open(Option<Force>),
    /// It may not. The time after which it may, if nothing changes; `None`: only a change of the node lets it.
    Shut(Option<Duration>),
}

/// When a volume in use may be detached by force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForceRules {
    /// `maxWaitForUnmount`.
    pub max_wait: Duration,
    /// `forceDetachOnTimeout`.
    pub on_timeout: bool,
}

/// The gate of a volume that nobody has wanted on the node for `unwanted`.
pub fn gate(node: Standing, unwanted: Duration, rules: ForceRules) -> Gate {
    match node {
        Standing::Missing { was_free: true } | Standing::There { in_use: false, .. } => Gate::Open(None),
        Standing::There { out_of_service: true, .. } => Gate::Open(Some(Force::OutOfService)),
        // A healthy node is never forced, whatever the timer says.
        Standing::There { is_ready: true, .. } => Gate::Shut(None),
        Standing::Missing { .. } | Standing::There { .. } if !rules.on_timeout => Gate::Shut(None),
        Standing::Missing { .. } | Standing::There { .. } if unwanted > rules.max_wait => {
            Gate::Open(Some(Force::Timeout))
        }
        Standing::Missing { .. } | Standing::There { .. } => {
            Gate::Shut(Some(rules.max_wait.saturating_sub(unwanted) + Duration::from_millis(1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: Duration = Duration::from_secs(360);
    const SHORT: Duration = Duration::from_secs(60);
    const LONG: Duration = Duration::from_secs(361);
    const RULES: ForceRules = ForceRules { max_wait: MAX, on_timeout: true };
    const NEVER: ForceRules = ForceRules { max_wait: MAX, on_timeout: false };

    fn there(in_use: bool, out_of_service: bool, is_ready: bool) -> Standing {
        Standing::There { in_use, out_of_service, is_ready }
    }

    #[test]
    fn d15_and_each_case_of_the_table_of_gates() {
        let left = Some(Duration::from_millis(300_001));
        let missing = |was_free| Standing::Missing { was_free };
        for (row, node, unwanted, rules, expected) in [
            ("7.1", there(false, false, true), SHORT, RULES, Gate::Open(None)),
            ("7.1, D15", there(false, false, false), SHORT, NEVER, Gate::Open(None)),
            ("7.1, with the taint", there(false, true, false), SHORT, RULES, Gate::Open(None)),
            ("7.2, D7", there(true, true, false), Duration::ZERO, RULES, Gate::Open(Some(Force::OutOfService))),
            ("7.2, ready", there(true, true, true), Duration::ZERO, NEVER, Gate::Open(Some(Force::OutOfService))),
            ("7.3, D5", there(true, false, true), LONG, RULES, Gate::Shut(None)),
            ("7.4", there(true, false, false), SHORT, RULES, Gate::Shut(left)),
            ("7.4, to the moment", there(true, false, false), MAX, RULES, Gate::Shut(Some(Duration::from_millis(1)))),
            ("7.5, D6", there(true, false, false), LONG, NEVER, Gate::Shut(None)),
            ("7.5, short", there(true, false, false), SHORT, NEVER, Gate::Shut(None)),
            ("7.6, D5", there(true, false, false), LONG, RULES, Gate::Open(Some(Force::Timeout))),
            ("7.7, D33", missing(false), SHORT, RULES, Gate::Shut(left)),
            ("7.7, D33 after", missing(false), LONG, RULES, Gate::Open(Some(Force::Timeout))),
            ("7.7, never", missing(false), LONG, NEVER, Gate::Shut(None)),
            ("7.8, D33", missing(true), Duration::ZERO, NEVER, Gate::Open(None)),
        ] {
            assert_eq!(gate(node, unwanted, rules), expected, "{row}");
        }
    }

    proptest! {
        #[test]
        fn i3_force_needs_the_taint_or_a_long_wait_on_a_node_that_is_not_ready(
            (in_use, out_of_service, is_ready, is_missing) in any::<(bool, bool, bool, bool)>(),
            seconds in 0_u64..800, on_timeout in any::<bool>(),
        ) {
            let node = if is_missing {
                Standing::Missing { was_free: !in_use }
            } else {
                there(in_use, out_of_service, is_ready)
            };
            let unwanted = Duration::from_secs(seconds);
            let opened = gate(node, unwanted, ForceRules { max_wait: MAX, on_timeout });
            prop_assert_eq!(opened == Gate::Open(None), !in_use, "I2");
            match opened {
                Gate::Open(Some(Force::OutOfService)) => prop_assert!(out_of_service && !is_missing),
                Gate::Open(Some(Force::Timeout)) => {
                    prop_assert!(unwanted > MAX && on_timeout && (is_missing || !is_ready));
                }
                _ => {}
            }
        }
    }
}
