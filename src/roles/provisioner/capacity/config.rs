//! `roles.provisioner.capacity:` in the configuration file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process::{Faults, Section, duration};
use crate::roles::kit::checks;

/// Whether and how the driver's capacity is published for the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CapacitySection {
    /// Whether `CSIStorageCapacity` objects are kept for the driver. It must have the capability `GET_CAPACITY`.
    pub enabled: bool,
    /// Whether also for classes that bind immediately, for whose volumes the scheduler does not choose a node.
    pub immediate_binding: bool,
    /// How often the daemon gets all capacities from the driver. It reacts to changes in the cluster at once, such as a volume that is
    /// created, deleted or grown: there it asks at most once a second, and after the last change.
    #[serde(with = "duration::Text")]
    pub poll_interval: Duration,
    /// The owner of the objects, with which the garbage collector deletes them: -1 none, 0 our pod, 1 its controller (a
    /// `DaemonSet`, a `ReplicaSet`), 2 the controller (a Deployment, an operator's object) of a controller that is a `ReplicaSet`, a
    /// `StatefulSet` or a `DaemonSet`.
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
        // With a shorter one, the loop would do nothing but ask.
        duration::check_at_least("pollInterval", self.poll_interval, Duration::from_secs(1), faults);
        if !(-1..=2).contains(&self.owner_level) {
            faults.add("ownerLevel", self.owner_level, "-1, 0, 1 or 2");
        }
        checks::workers("workers", self.workers, faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_refused() {
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
