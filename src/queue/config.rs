//! `retry:` in the section of every role that has a work queue.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backoff::Backoff;
use crate::process::{Faults, duration};

/// The back-off of work that failed: doubled from `initial` after each failure in a row, up to `max`. A role whose delays begin or end
/// elsewhere names its defaults, in milliseconds: they count for each key that is not given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetrySection<const INITIAL: u64 = 1_000, const MAX: u64 = 300_000> {
    /// Delay after the first failure.
    #[serde(with = "duration::Text", default = "milliseconds::<INITIAL>")]
    pub initial: Duration,
    /// The longest delay.
    #[serde(with = "duration::Text", default = "milliseconds::<MAX>")]
    pub max: Duration,
}

/// The default of a key: serde cannot take that of a whole section that has parameters.
fn milliseconds<const COUNT: u64>() -> Duration {
    Duration::from_millis(COUNT)
}

impl<const INITIAL: u64, const MAX: u64> Default for RetrySection<INITIAL, MAX> {
    fn default() -> Self {
        Self { initial: milliseconds::<INITIAL>(), max: milliseconds::<MAX>() }
    }
}

impl<const INITIAL: u64, const MAX: u64> RetrySection<INITIAL, MAX> {
    /// The queue's back-off.
    pub fn backoff(&self) -> Backoff {
        Backoff { initial: self.initial, max: self.max }
    }
}

impl Backoff {
    /// Reports invalid delays; `key` is the key of their block in the role's section.
    pub fn check(&self, key: &str, faults: &mut Faults) {
        // A shorter delay is no back-off: failing work would be retried without pause.
        let initial = format!("{key}.initial");
        duration::check_at_least(&initial, self.initial, Duration::from_millis(1), faults);
        duration::check_not_below(&format!("{key}.max"), self.max, (&initial, self.initial), faults);
    }
}

/// The same for a role whose driver may reject a request for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DriverRetrySection {
    /// Delay after the first failure.
    #[serde(with = "duration::Text")]
    pub initial: Duration,
    /// The longest delay.
    #[serde(with = "duration::Text")]
    pub max: Duration,
    /// Delay after the driver rejected a request as invalid. A change of the claim ends the delay.
    #[serde(with = "duration::Text")]
    pub infeasible: Duration,
}

impl Default for DriverRetrySection {
    fn default() -> Self {
        let RetrySection { initial, max } = <RetrySection>::default();
        Self { initial, max, infeasible: Duration::from_secs(300) }
    }
}

impl DriverRetrySection {
    /// The queue's back-off.
    pub fn backoff(&self) -> Backoff {
        Backoff { initial: self.initial, max: self.max }
    }

    /// Reports invalid delays; `key` is the key of this block in the role's section.
    pub fn check(&self, key: &str, faults: &mut Faults) {
        self.backoff().check(key, faults);
        let initial = (&*format!("{key}.initial"), self.initial);
        duration::check_not_below(&format!("{key}.infeasible"), self.infeasible, initial, faults);
    }
}
