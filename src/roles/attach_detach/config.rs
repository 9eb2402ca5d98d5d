//! `roles.attachDetach:` in the configuration file (attach-detach spec 14).

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{Rest, RoleSection};
use crate::process::{Faults, Section, duration};
use crate::queue::RetrySection;
use crate::roles::kit::checks;

/// The attach/detach controller: which nodes it manages, and when it may take a volume from a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key")]
pub struct AttachDetachSection {
    /// How many volumes are worked on at once.
    #[schemars(range(min = 1, max = 10_000))]
    pub workers: usize,
    /// The pauses between failed requests.
    pub retry: RequestRetry,
    /// Time in which everything is looked at once again, in case a change was missed.
    #[serde(with = "duration::Text")]
    pub resync: Duration,
    /// How long a volume stays on a node that is not ready and may still use it.
    #[serde(with = "duration::Text")]
    pub max_wait_for_unmount: Duration,
    /// Whether it is detached by force after that time. false: only the taint `node.kubernetes.io/out-of-service` lets it.
    pub force_detach_on_timeout: bool,
    /// What keeps an exclusive volume from a second node.
    pub multi_attach: MultiAttach,
    /// Whether nodes are managed whose kubelet does not say that a controller attaches its volumes.
    pub manage_all_nodes: bool,
    /// Whether attached volumes are written into the status of their node. false: no kubelet reads it.
    pub write_node_status: bool,
    /// How long an attachment of an unknown volume stays.
    #[serde(with = "duration::Text")]
    pub orphan_grace: Duration,
    /// How long a `CSIDriver` object counts after it is gone: charts delete it and make it anew.
    #[serde(with = "duration::Text")]
    pub driver_grace: Duration,
    /// How long nothing is detached after a leader has begun.
    #[serde(with = "duration::Text")]
    pub settle: Duration,
    /// What follows if the attach/detach controller of kube-controller-manager is active.
    pub exclusive_check: ExclusiveCheck,
    /// Whether pods are told by Events what they wait for.
    pub events: bool,
}

/// The back-off of requests that failed: from 500 ms to 2 minutes. It is shorter than that of the other roles, because it waits for the
/// API server and not for a driver.
pub type RequestRetry = RetrySection<500, 120_000>;

/// What keeps an exclusive volume from a second node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MultiAttach {
    /// Any attachment to another node, also one that has failed or is being deleted.
    Strict,
    /// An attachment to another node that is attached, as with kube-controller-manager.
    Confirmed,
}

/// What follows if the attach/detach controller of kube-controller-manager is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExclusiveCheck {
    /// Nothing is written any more until that controller is gone.
    Refuse,
    /// A warning.
    Warn,
    /// Nothing: it is not looked for.
    Off,
}

impl Default for AttachDetachSection {
    fn default() -> Self {
        Self {
            workers: 10,
            retry: RequestRetry::default(),
            resync: Duration::from_secs(60),
            max_wait_for_unmount: Duration::from_secs(360),
            force_detach_on_timeout: true,
            multi_attach: MultiAttach::Strict,
            manage_all_nodes: false,
            write_node_status: true,
            orphan_grace: Duration::from_secs(120),
            driver_grace: Duration::from_secs(120),
            settle: Duration::from_secs(10),
            exclusive_check: ExclusiveCheck::Refuse,
            events: true,
        }
    }
}

impl Section for AttachDetachSection {
    fn check(&self, faults: &mut Faults) {
        self.retry.backoff().check("retry", faults);
        checks::workers("workers", self.workers, faults);
        duration::check_at_least("resync", self.resync, Duration::from_secs(1), faults);
        if self.force_detach_on_timeout && self.max_wait_for_unmount < Duration::from_secs(60) {
            let expected =
                "at least 1m, because a volume that is still mounted loses data (forceDetachOnTimeout: true)";
            faults.add("maxWaitForUnmount", duration::format(self.max_wait_for_unmount), expected);
        }
    }
}

/// What is allowed, and may let two controllers work.
pub(super) fn warnings(section: &Value, _: Rest<'_>) -> Vec<String> {
    let section: Option<AttachDetachSection> = RoleSection::read(section).ok();
    let effect = match section.map(|section| section.exclusive_check) {
        Some(ExclusiveCheck::Off) => "is off: nobody notices",
        Some(ExclusiveCheck::Warn) => "is warn: it is only said",
        Some(ExclusiveCheck::Refuse) | None => return Vec::new(),
    };
    vec![format!(
        "roles.attachDetach.exclusiveCheck {effect} if the attach/detach controller of kube-controller-manager works, too, and each \
         detaches what the other has attached"
    )]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::config::Config;
    use crate::testing::faulty_keys;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let section = AttachDetachSection {
            workers: 0,
            resync: Duration::from_millis(999),
            max_wait_for_unmount: Duration::from_secs(59),
            ..AttachDetachSection::default()
        };
        assert_eq!(faulty_keys(&section), ["workers", "resync", "maxWaitForUnmount"]);
        let patient = AttachDetachSection {
            max_wait_for_unmount: Duration::ZERO,
            force_detach_on_timeout: false,
            ..AttachDetachSection::default()
        };
        assert_eq!(faulty_keys(&patient), Vec::<String>::new(), "the timer forces nothing");
        assert_eq!(faulty_keys(&AttachDetachSection::default()), Vec::<String>::new());
    }

    #[test]
    fn a_check_that_does_not_stop_the_role_is_warned_of() {
        let (config, roles) = (Config::default(), BTreeMap::new());
        let of = |check: &str| warnings(&json!({ "exclusiveCheck": check }), Rest { config: &config, roles: &roles });
        assert!(of("off")[0].starts_with("roles.attachDetach.exclusiveCheck is off: nobody notices if"));
        assert!(of("warn")[0].contains("is warn: it is only said if"));
        assert_eq!(of("refuse"), Vec::<String>::new());
    }
}
