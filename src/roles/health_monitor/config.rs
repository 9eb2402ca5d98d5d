//! `roles.healthMonitor:` in the configuration file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process::{Faults, Section, duration};
use crate::queue::Backoff;
use crate::roles::kit::checks;

/// The health monitor: how often it asks the driver how its volumes are, and where it reports that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HealthMonitorSection {
    /// Deadline of one question of this role to the driver. null: `csi.timeout`.
    #[serde(with = "duration::OrNull")]
    pub timeout: Option<Duration>,
    /// Time in which each volume is asked for once, where the driver does not list how its volumes are.
    #[serde(with = "duration::Text")]
    pub interval: Duration,
    /// Pause between the end of one list and the start of the next. A list that `roles.reconciler` makes counts, too.
    #[serde(with = "duration::Text")]
    pub list_interval: Duration,
    /// How many volumes one page of a list may hold. 0: the driver decides. For `ListVolumes`, that of `roles.reconciler` counts if this
    /// daemon leads for both.
    #[schemars(range(min = 0))]
    pub page_size: i32,
    /// Deadline of one page of a list. For `ListVolumes`, that of `roles.reconciler` counts if this daemon leads for both.
    #[serde(with = "duration::Text")]
    pub page_timeout: Duration,
    /// How many volumes are asked for at once.
    #[schemars(range(min = 1, max = 10_000))]
    pub workers: usize,
    /// Where it is reported that a volume is not healthy.
    pub report: Report,
    /// Whether Events on claims report that a node has failed whose pods use them. Then all nodes and pods are watched.
    pub node_watch: bool,
    /// How long a node is not ready until it counts as failed. One that is deleted has failed.
    #[serde(with = "duration::Text")]
    pub node_down_after: Duration,
}

/// Where it is reported that a volume is not healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Report {
    /// In the status of the claim if the API server stores that and the driver reports the kind of the fault; otherwise as Events.
    Auto,
    /// In the status of the claim alone.
    Status,
    /// As Events alone.
    Events,
    /// In the status of the claim, and as Events.
    Both,
}

/// Failed questions for one volume are repeated at most so many times more slowly than others (spec C3).
const SLOWEST: u32 = 8;

impl HealthMonitorSection {
    /// The pauses between failed questions for one volume.
    pub fn backoff(&self) -> Backoff {
        Backoff { initial: self.interval, max: self.interval.saturating_mul(SLOWEST) }
    }
}

impl Default for HealthMonitorSection {
    fn default() -> Self {
        Self {
            timeout: None,
            interval: Duration::from_secs(60),
            list_interval: Duration::from_secs(300),
            page_size: 0,
            page_timeout: Duration::from_secs(60),
            workers: 10,
            report: Report::Auto,
            node_watch: false,
            node_down_after: Duration::from_secs(300),
        }
    }
}

impl Section for HealthMonitorSection {
    fn check(&self, faults: &mut Faults) {
        duration::check_deadline("timeout", self.timeout, faults);
        // Less is a loop that does nothing but ask.
        for (key, interval) in [("interval", self.interval), ("listInterval", self.list_interval)] {
            duration::check_at_least(key, interval, Duration::from_millis(100), faults);
        }
        if self.page_size < 0 {
            faults.add("pageSize", self.page_size, "at least 0");
        }
        duration::check_some("pageTimeout", self.page_timeout, faults);
        duration::check_some("nodeDownAfter", self.node_down_after, faults);
        checks::workers("workers", self.workers, faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::faulty_keys;

    #[test]
    fn h9_what_makes_no_sense_is_refused() {
        let section = HealthMonitorSection {
            timeout: Some(Duration::ZERO),
            interval: Duration::ZERO,
            list_interval: Duration::ZERO,
            page_size: -1,
            page_timeout: Duration::ZERO,
            workers: 0,
            report: Report::Both,
            node_down_after: Duration::ZERO,
            ..HealthMonitorSection::default()
        };
        assert_eq!(
            faulty_keys(&section),
            ["timeout", "interval", "listInterval", "pageSize", "pageTimeout", "nodeDownAfter", "workers"]
        );
        assert_eq!(faulty_keys(&HealthMonitorSection::default()), Vec::<String>::new());
    }
}
