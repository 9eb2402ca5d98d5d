//! `roles.attacher:` in the configuration file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process::{Faults, Section, duration};
use crate::queue::RetrySection;
use crate::roles::kit::{EventsMode, checks};

/// The attacher: its concurrency and its retries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AttacherSection {
    /// Deadline of one RPC of this role to the driver. null: `csi.timeout`.
    #[serde(with = "duration::OrNull")]
    pub timeout: Option<Duration>,
    /// How many attaches run at once.
    #[schemars(range(min = 1, max = 10_000))]
    pub workers: usize,
    /// How many detaches run at once, beside the attaches. null: as many as `workers`.
    #[schemars(range(min = 1, max = 10_000))]
    pub detach_workers: Option<usize>,
    /// The back-off of a failed attach or detach.
    pub retry: RetrySection,
    /// Pause after which the attacher checks every attachment again. 0s: never.
    #[serde(with = "duration::Text")]
    pub resync: Duration,
    /// File system type of a mounted volume whose PersistentVolume names none. Empty: the driver decides.
    pub default_fs_type: String,
    /// Which Events are written.
    pub events: EventsMode,
    /// Whether `status.attachError` has the gRPC code, so that kubelet sees that a node is full.
    pub error_codes: bool,
}

impl AttacherSection {
    /// How many detaches run at once.
    pub fn detach_workers(&self) -> usize {
        self.detach_workers.unwrap_or(self.workers)
    }
}

impl Default for AttacherSection {
    fn default() -> Self {
        Self {
            timeout: None,
            workers: 100,
            detach_workers: None,
            retry: RetrySection::default(),
            resync: Duration::from_secs(600),
            default_fs_type: String::new(),
            events: EventsMode::Changes,
            error_codes: true,
        }
    }
}

impl Section for AttacherSection {
    fn check(&self, faults: &mut Faults) {
        duration::check_deadline("timeout", self.timeout, faults);
        self.retry.backoff().check("retry", faults);
        checks::workers("workers", self.workers, faults);
        checks::own_workers("detachWorkers", self.detach_workers, faults);
        checks::pause("resync", self.resync, faults);
        checks::default_fs_type(&self.default_fs_type, faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::faulty_keys;

    #[test]
    fn zero_workers_are_refused_r33() {
        let section = AttacherSection { workers: 0, detach_workers: Some(0), ..AttacherSection::default() };
        assert_eq!(faulty_keys(&section), ["workers", "detachWorkers"]);
    }

    #[test]
    fn a_back_off_that_shrinks_is_refused() {
        let (one, two) = (Duration::from_secs(1), Duration::from_secs(2));
        for (initial, max, keys) in [
            (one, two, &[][..]),
            (one, one, &[]),
            (two, one, &["retry.max"]),
            (Duration::ZERO, one, &["retry.initial"]),
        ] {
            let section = AttacherSection { retry: RetrySection { initial, max }, ..AttacherSection::default() };
            assert_eq!(faulty_keys(&section), keys, "{initial:?} {max:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let default_fs_type = "ext 4".to_owned();
        let section =
            AttacherSection { resync: Duration::from_millis(1), default_fs_type, ..AttacherSection::default() };
        assert_eq!(faulty_keys(&section), ["resync", "defaultFsType"]);
        let section = AttacherSection { timeout: Some(Duration::ZERO), ..AttacherSection::default() };
        assert_eq!(faulty_keys(&section), ["timeout"]);
        let section = AttacherSection { resync: Duration::ZERO, ..AttacherSection::default() };
        assert_eq!(faulty_keys(&section), Vec::<String>::new());
    }

    #[test]
    fn detaches_have_as_many_workers_as_attaches_unless_told_otherwise() {
        let mut section = AttacherSection { workers: 7, ..AttacherSection::default() };
        assert_eq!(section.detach_workers(), 7);
        section.detach_workers = Some(2);
        assert_eq!(section.detach_workers(), 2);
    }
}
