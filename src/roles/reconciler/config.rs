//! `roles.reconciler:` in the configuration file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let section = ReconcilerSection { interval: Duration::ZERO, page_size: -1, page_timeout: Duration::ZERO };
        let mut faults = Faults::below("roles.reconciler");
        section.check(&mut faults);
        let keys: Vec<_> = faults.into_vec().into_iter().map(|fault| fault.key).collect();
        assert_eq!(keys, ["interval", "pageTimeout", "pageSize"].map(|key| format!("roles.reconciler.{key}")));
    }
}
