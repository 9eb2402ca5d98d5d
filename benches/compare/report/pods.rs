//! The lines of the attach/detach controller.

use super::line::Target::{self, AtLeast, AtMost, None};
use super::line::Unit::{self, Count, Megabytes, Milliseconds, PerSecond};
use super::line::Wanted;
use super::{BARE, MANAGER, MANAGER_TUNED, US};

/// The lines of a scenario, if it is one of these.
pub(super) fn wanted(scenario: &str) -> Vec<Wanted<'_>> {
    let Some(burst) = scenario.strip_prefix("pods-burst-") else { return Vec::new() };
    let of = format!("{} volumes of pods", burst.split('-').next().unwrap_or(burst));
    let mut wanted = Vec::new();
    let mut add = |what: &str, them, figure, unit: Unit, target: Target| {
        wanted.push(Wanted(format!("{of}: {what}"), scenario, them, figure, US, figure, unit, target));
    };
    add("attach, defaults", MANAGER, "attach.rate", PerSecond, None);
    let tuned = MANAGER_TUNED;
    add("attach, tuned", tuned, "attach.rate", PerSecond, AtLeast(1.0));
    add("detach, tuned", tuned, "detach.rate", PerSecond, AtLeast(1.0));
    add("attach once more, tuned", tuned, "attach-again.rate", PerSecond, AtLeast(1.0));
    add("attach, tuned: p99", tuned, "attach.p99_ms", Milliseconds, None);
    add("API requests per attach, tuned", tuned, "attach.requests_each", Count, AtMost(1.0));
    add("API requests per detach, tuned", tuned, "detach.requests_each", Count, AtMost(1.0));
    add("CPU per attach, tuned", tuned, "attach.cpu_each_ms", Milliseconds, AtMost(0.5));
    add("CPU per detach, tuned", tuned, "detach.cpu_each_ms", Milliseconds, AtMost(0.5));
    add("peak RSS, tuned", tuned, "peak_rss_bytes", Megabytes, None);
    let (what, rate) = (format!("{of}: attach, tuned; in our place a client that only writes"), "attach.rate");
    wanted.push(Wanted(what, scenario, tuned, rate, BARE, rate, PerSecond, None));
    wanted
}
