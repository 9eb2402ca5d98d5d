//! `roles.reconciler:` in the configuration file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{Rest, RoleSection};
use crate::process::{Faults, Section, duration};

/// The reconciler: how often it lists the driver's volumes, in which page size, and whether it looks for orphans.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReconcilerSection {
    /// Pause between the end of one listing and the start of the next.
    #[serde(with = "duration::Text")]
    pub interval: Duration,
    /// How many volumes one page may hold. 0: the driver decides.
    #[schemars(range(min = 0))]
    pub page_size: i32,
    /// Deadline of one page.
    #[serde(with = "duration::Text")]
    pub page_timeout: Duration,
    /// Whether volumes and snapshots are shown that the driver lists and nothing in the cluster has known for an hour. None is deleted.
    pub orphans: bool,
}

impl Default for ReconcilerSection {
    fn default() -> Self {
        Self { interval: Duration::from_secs(60), page_size: 0, page_timeout: Duration::from_secs(60), orphans: false }
    }
}

impl Section for ReconcilerSection {
    fn check(&self, faults: &mut Faults) {
        // Less is a loop that does nothing but list.
        duration::check_at_least("interval", self.interval, Duration::from_millis(100), faults);
        duration::check_some("pageTimeout", self.page_timeout, faults);
        if self.page_size < 0 {
            faults.add("pageSize", self.page_size, "at least 0");
        }
    }
}

/// The role that acts on the lists.
const ATTACHER: &str = "attacher";

/// What is allowed, and probably not intended.
pub(super) fn warnings(section: &Value, rest: Rest<'_>) -> Vec<String> {
    if rest.roles.contains_key(ATTACHER) {
        return Vec::new();
    }
    // The two roles have one Lease.
    let lease = if rest.config.leader_election.enabled {
        "; while it leads, it holds the Lease of csi-attacher, so no csi-attacher with leader election attaches a volume"
    } else {
        ""
    };
    let section: Option<ReconcilerSection> = RoleSection::read(section).ok();
    let (does, advice) = if section.is_some_and(|section| section.orphans) {
        ("shows orphans and repairs no attachment", "enable both roles, unless volumes are attached in another way")
    } else {
        ("lists the driver's volumes and nothing acts on what it finds", "enable both roles or neither")
    };
    vec![format!("roles.reconciler without roles.{ATTACHER}: the daemon {does}{lease}; {advice}")]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Config;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let section =
            ReconcilerSection { interval: Duration::ZERO, page_size: -1, page_timeout: Duration::ZERO, orphans: false };
        let mut faults = Faults::below("roles.reconciler");
        section.check(&mut faults);
        let keys: Vec<_> = faults.into_vec().into_iter().map(|fault| fault.key).collect();
        assert_eq!(keys, ["interval", "pageTimeout", "pageSize"].map(|key| format!("roles.reconciler.{key}")));
    }

    #[test]
    fn a_reconciler_without_an_attacher_is_warned_of_with_the_lease_that_it_holds() {
        let warned = |others: &[&'static str], enabled| {
            let mut config = Config::default();
            config.leader_election.enabled = enabled;
            let roles: BTreeMap<_, _> = others.iter().map(|name| (*name, Value::Null)).collect();
            warnings(&Value::Null, Rest { config: &config, roles: &roles })
        };
        assert_eq!(warned(&["attacher", "reconciler"], true), Vec::<String>::new());
        for others in [&["reconciler"][..], &["provisioner", "reconciler"]] {
            assert!(warned(others, true)[0].contains("holds the Lease of csi-attacher"));
            assert!(!warned(others, false)[0].contains("Lease"));
        }
        let rest = Rest { config: &Config::default(), roles: &BTreeMap::new() };
        let of = |orphans: bool| warnings(&serde_json::json!({ "orphans": orphans }), rest).remove(0);
        assert!(of(true).contains("the daemon shows orphans and repairs no attachment; "), "{}", of(true));
        assert!(of(false).contains("nothing acts on what it finds"), "{}", of(false));
    }
}
