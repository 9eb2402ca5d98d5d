//! The lines of telling the scheduler how much room there is.

use super::line::Target::{self, None, Worst};
use super::line::Unit::{self, Count, Megabytes, Milliseconds, PerSecond, Seconds};
use super::line::Wanted;
use super::{PROVISIONER, PROVISIONER_TUNED, US};

/// The lines of a scenario, if it is one of these.
pub(super) fn wanted(scenario: &str) -> Vec<Wanted<'_>> {
    let Some(segments) = scenario.strip_prefix("capacity-refresh-") else { return Vec::new() };
    let of = format!("capacity of {segments} segments × 3 classes");
    let mut wanted = Vec::new();
    let mut add = |what: &str, them, figure, unit: Unit, target: Target| {
        wanted.push(Wanted(format!("{of}: {what}"), scenario, them, figure, US, figure, unit, target));
    };
    add("objects, defaults", PROVISIONER, "refresh.rate", PerSecond, None);
    add("objects, tuned", PROVISIONER_TUNED, "refresh.rate", PerSecond, None);
    add("until all are there, tuned", PROVISIONER_TUNED, "refresh.took_s", Seconds, None);
    add("GetCapacity calls per object, tuned", PROVISIONER_TUNED, "refresh.calls_each", Count, None);
    add("API requests per object, tuned", PROVISIONER_TUNED, "refresh.requests_each", Count, None);
    add("CPU per object, tuned", PROVISIONER_TUNED, "refresh.cpu_each_ms", Milliseconds, None);
    add("peak RSS, tuned", PROVISIONER_TUNED, "peak_rss_bytes", Megabytes, None);
    add("all asked again by another process, tuned", PROVISIONER_TUNED, "again.took_s", Seconds, None);
    add("and written, tuned", PROVISIONER_TUNED, "again.writes", Count, Worst(0.0));
    add("CPU of that, start included, tuned", PROVISIONER_TUNED, "again.cpu_s", Seconds, None);
    wanted
}
