//! `roles.resizer:` in the configuration file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process::{Faults, Section, duration};
use crate::queue::DriverRetrySection;
use crate::roles::kit::{EventsMode, checks};

/// The resizer: its concurrency, its retries, and which of its two jobs it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with each other")]
pub struct ResizerSection {
    /// Deadline of one RPC of this role to the driver. null: `csi.timeout`.
    #[serde(with = "duration::OrNull")]
    pub timeout: Option<Duration>,
    /// Deadline of `ControllerExpandVolume`. null: `timeout`.
    #[serde(with = "duration::OrNull")]
    pub resize_timeout: Option<Duration>,
    /// Deadline of `ControllerModifyVolume`. null: `timeout`.
    #[serde(with = "duration::OrNull")]
    pub modify_timeout: Option<Duration>,
    /// How many expansions and modifications run at once.
    #[schemars(range(min = 1, max = 10_000))]
    pub workers: usize,
    /// The back-off of a failed expansion or modification.
    pub retry: DriverRetrySection,
    /// Pause after which the resizer checks every unfinished claim again. 0s: never.
    #[serde(with = "duration::Text")]
    pub resync: Duration,
    /// Whether the resizer waits for the pods of a volume that the driver does not expand while it is in use. It watches pods
    /// only in the namespaces of claims that wait for pods.
    pub in_use_check: bool,
    /// Whether the resizer modifies volumes whose claims change their `VolumeAttributesClass`.
    pub modify: bool,
    /// Whether a modification sends the names of the claim and the volume to the driver.
    pub extra_modify_metadata: bool,
    /// Whether the resizer writes the size before an expansion on the PersistentVolume until the node has finished.
    pub annotate_pre_resize: bool,
    /// Which Events are written.
    pub events: EventsMode,
    /// Whether the resizer calls the driver for an expansion and a modification of one volume at the same time.
    pub pair_calls: PairCalls,
}

/// Whether the driver is called for an expansion and a modification of one volume at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PairCalls {
    /// Only for the drivers that are known to need it: ebs.csi.aws.com.
    Auto,
    /// At the same time.
    Always,
    /// One after the other.
    Never,
}

impl Default for ResizerSection {
    fn default() -> Self {
        Self {
            timeout: None,
            resize_timeout: None,
            modify_timeout: None,
            workers: 100,
            retry: DriverRetrySection::default(),
            resync: Duration::from_secs(600),
            in_use_check: true,
            modify: true,
            extra_modify_metadata: false,
            annotate_pre_resize: true,
            events: EventsMode::Changes,
            pair_calls: PairCalls::Auto,
        }
    }
}

impl Section for ResizerSection {
    fn check(&self, faults: &mut Faults) {
        duration::check_deadline("timeout", self.timeout, faults);
        duration::check_deadline("resizeTimeout", self.resize_timeout, faults);
        duration::check_deadline("modifyTimeout", self.modify_timeout, faults);
        self.retry.check("retry", faults);
        checks::workers("workers", self.workers, faults);
        checks::pause("resync", self.resync, faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::faulty_keys;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let second = Duration::from_secs(1);
        let section = ResizerSection {
            timeout: Some(Duration::ZERO),
            resize_timeout: Some(Duration::ZERO),
            modify_timeout: Some(Duration::ZERO),
            workers: 0,
            resync: Duration::from_millis(1),
            retry: DriverRetrySection { initial: second * 2, max: second, infeasible: second },
            ..ResizerSection::default()
        };
        assert_eq!(
            faulty_keys(&section),
            ["timeout", "resizeTimeout", "modifyTimeout", "retry.max", "retry.infeasible", "workers", "resync",]
        );
        let never = ResizerSection { resync: Duration::ZERO, ..ResizerSection::default() };
        assert_eq!(faulty_keys(&never), Vec::<String>::new());
    }
}
