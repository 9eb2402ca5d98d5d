//! `roles.reconciler:` in the configuration file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Rest;
use crate::process::{Faults, Section, duration};

/// The reconciler: how often it lists the driver's volumes, and in which page size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReconcilerSection {
    /// Pause between the end of one listing and the start of the next.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub interval: Duration,
    /// How many volumes one page may hold. 0: the driver decides.
    #[schemars(range(min = 0))]
    pub page_size: i32,
    /// Deadline of one page.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub page_timeout: Duration,
}

impl Default for ReconcilerSection {
    fn default() -> Self {
        Self { interval: Duration::from_secs(60), page_size: 0, page_timeout: Duration::from_secs(60) }
    }
}

impl Section for ReconcilerSection {
    fn check(&self, faults: &mut Faults) {
        // Less is a loop that does nothing but list.
        if self.interval < Duration::from_millis(100) {
            faults.add("interval", duration::format(self.interval), "at least 100ms");
        }
        if self.page_timeout.is_zero() {
            faults.add("pageTimeout", duration::format(self.page_timeout), "longer than 0s");
        }
        if self.page_size < 0 {
            faults.add("pageSize", self.page_size, "at least 0");
        }
    }
}

/// The role that acts on the lists.
const ATTACHER: &str = "attacher";

/// What is allowed, and probably not intended.
pub(super) fn warnings(_: &Value, rest: Rest<'_>) -> Vec<String> {
    if rest.roles.contains_key(ATTACHER) {
        return Vec::new();
    }
    // The two roles have one Lease.
    let lease = if rest.config.leader_election.enabled {
        "; while it leads, it holds the Lease of csi-attacher, so no csi-attacher with leader election attaches a volume"
    } else {
        ""
    };
    vec![format!(
        "roles.reconciler without roles.{ATTACHER}: the daemon lists the driver's volumes and nothing acts on what it finds{lease}; \
         enable both roles or neither"
    )]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Config;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let section = ReconcilerSection { interval: Duration::ZERO, page_size: -1, page_timeout: Duration::ZERO };
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
    }
}
