//! `roles.provisioner.capacity:` in the configuration file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process::{Faults, Section, duration};

/// Whether and how the scheduler is told how much room there is for new volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CapacitySection {
    /// Whether `CSIStorageCapacity` objects are kept for the driver. It must have the capability `GET_CAPACITY`.
    pub enabled: bool,
    /// Whether also for classes that bind immediately, which no scheduler looks at.
    pub immediate_binding: bool,
    /// How often everything is asked again, beside what changes wake.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub poll_interval: Duration,
    /// Who owns the objects, so that they go when it goes: -1 nobody, 0 our pod, 1 its controller (a `DaemonSet`, a
    /// `ReplicaSet`), 2 that one's controller (a Deployment; an operator's object), where 1 is a `ReplicaSet`, a `StatefulSet`
    /// or a `DaemonSet`.
    #[schemars(range(min = -1, max = 2))]
    pub owner_level: i8,
    /// How many `GetCapacity` calls run at once.
    #[schemars(range(min = 1, max = 10_000))]
    pub workers: usize,
}

impl Default for CapacitySection {
    fn default() -> Self {
        Self {
            enabled: false,
            immediate_binding: false,
            poll_interval: Duration::from_secs(60),
            owner_level: 1,
            workers: 10,
        }
    }
}

impl Section for CapacitySection {
    fn check(&self, faults: &mut Faults) {
        // Less is a loop that does nothing but ask.
        if self.poll_interval < Duration::from_secs(1) {
            faults.add("pollInterval", duration::format(self.poll_interval), "at least 1s");
        }
        if !(-1..=2).contains(&self.owner_level) {
            faults.add("ownerLevel", self.owner_level, "-1, 0, 1 or 2");
        }
        if self.workers == 0 {
            faults.add("workers", 0, "at least 1");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let keys = |section: &CapacitySection| {
            let mut faults = Faults::below("capacity");
            section.check(&mut faults);
            faults.into_vec().into_iter().map(|fault| fault.key).collect::<Vec<_>>()
        };
        assert_eq!(keys(&CapacitySection::default()), Vec::<String>::new());
        let odd = CapacitySection {
            poll_interval: Duration::from_millis(999),
            owner_level: 3,
            workers: 0,
            ..CapacitySection::default()
        };
        assert_eq!(keys(&odd), ["capacity.pollInterval", "capacity.ownerLevel", "capacity.workers"]);
        let lone = CapacitySection { owner_level: -1, ..CapacitySection::default() };
        assert_eq!(keys(&lone), Vec::<String>::new());
    }
}
