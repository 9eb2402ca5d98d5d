//! `roles.resizer:` in the configuration file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process::{Faults, Section, duration};
use crate::queue::{Backoff, RetrySection};

/// The resizer: how much it does at once, how it tries again, and which of its two jobs it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with each other")]
pub struct ResizerSection {
    /// How many expansions and modifications run at once.
    #[schemars(range(min = 1, max = 10_000))]
    pub workers: usize,
    /// When what failed is tried again.
    pub retry: ResizerRetry,
    /// Every unfinished claim is looked at again after this long, whatever happened. 0s: never.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub resync: Duration,
    /// Whether a volume that the driver expands only while it is not used waits for its pods. Pods are watched only in the
    /// namespaces where a claim waits so.
    pub in_use_check: bool,
    /// Whether a claim may change its `VolumeAttributesClass`.
    pub modify: bool,
    /// Whether the driver is told the names of claim and volume with a modification.
    pub extra_modify_metadata: bool,
    /// Whether the size before an expansion is noted on the PersistentVolume while a node has to finish it.
    pub annotate_pre_resize: bool,
    /// Which Kubernetes Events tell of an attempt.
    pub events: EventsMode,
    /// Whether an expansion and a modification of one volume are sent to the driver together.
    pub pair_calls: PairCalls,
}

/// When what failed is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ResizerRetry {
    /// Delay after the first failure. It doubles with each failure in a row.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub initial: Duration,
    /// The longest delay.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub max: Duration,
    /// The pause after the driver has said that it cannot do what is asked. Another wish ends it.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub infeasible: Duration,
}

/// Which Kubernetes Events tell of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EventsMode {
    /// Each beginning, each different failure and each success once.
    Changes,
    /// Each attempt, as csi-resizer does.
    All,
    /// None.
    None,
}

/// Whether an expansion and a modification of one volume are sent to the driver together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PairCalls {
    /// For the drivers that are known to need it: ebs.csi.aws.com.
    Auto,
    /// For this driver.
    Always,
    /// One after the other.
    Never,
}

impl Default for ResizerRetry {
    fn default() -> Self {
        let RetrySection { initial, max } = RetrySection::default();
        Self { initial, max, infeasible: Duration::from_secs(300) }
    }
}

impl ResizerRetry {
    /// What the queue goes by.
    pub fn backoff(&self) -> Backoff {
        Backoff { initial: self.initial, max: self.max }
    }
}

impl Default for ResizerSection {
    fn default() -> Self {
        Self {
            workers: 100,
            retry: ResizerRetry::default(),
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
        let ResizerRetry { initial, max, infeasible } = self.retry;
        RetrySection { initial, max }.check("retry", faults);
        if infeasible < initial {
            faults.add(
                "retry.infeasible",
                duration::format(infeasible),
                format_args!("at least retry.initial, which is {}", duration::format(initial)),
            );
        }
        if self.workers == 0 {
            faults.add("workers", 0, "at least 1");
        }
        if !self.resync.is_zero() && self.resync < Duration::from_secs(1) {
            faults.add("resync", duration::format(self.resync), "at least 1s, or 0s for never");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faulty_keys(section: &ResizerSection) -> Vec<String> {
        let mut faults = Faults::below("");
        section.check(&mut faults);
        faults.into_vec().into_iter().map(|fault| fault.key).collect()
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let second = Duration::from_secs(1);
        let section = ResizerSection {
            workers: 0,
            resync: Duration::from_millis(1),
            retry: ResizerRetry { initial: second * 2, max: second, infeasible: second },
            ..ResizerSection::default()
        };
        assert_eq!(faulty_keys(&section), ["retry.max", "retry.infeasible", "workers", "resync"]);
        let never = ResizerSection { resync: Duration::ZERO, ..ResizerSection::default() };
        assert_eq!(faulty_keys(&never), Vec::<String>::new());
    }
}
