//! The lines of the resizer.

use super::line::Target::{AtLeast, AtMost, None, Worst};
use super::line::Unit::{Count, Megabytes, Milliseconds, PerSecond, Seconds};
use super::line::{Target, Unit, Wanted};
use super::{BARE, RESIZER, RESIZER_TUNED, US};

/// The lines of a scenario, if it is one of these.
pub(super) fn wanted(scenario: &str) -> Vec<Wanted<'_>> {
    let Some(kind) = scenario.strip_prefix("resize-") else { return Vec::new() };
    let mut wanted = Vec::new();
    let mut add = |what: String, them, figure, unit: Unit, target: Target| {
        wanted.push(Wanted(what, scenario, them, figure, US, figure, unit, target));
    };
    if let Some(burst) = kind.strip_prefix("burst-") {
        let of = format!("of {}", burst.split('-').next().unwrap_or(burst));
        add(format!("expand {of}, defaults"), RESIZER, "expand.rate", PerSecond, AtLeast(40.0));
        add(format!("modify {of}, defaults"), RESIZER, "modify.rate", PerSecond, None);
        let mut tuned = |what: &str, figure, unit, target| {
            let what = what.replacen("{}", &of, 1);
            add(format!("{what}, tuned"), RESIZER_TUNED, figure, unit, target);
        };
        tuned("expand {}", "expand.rate", PerSecond, AtLeast(1.0));
        tuned("expand {}: p99", "expand.p99_ms", Milliseconds, None);
        tuned("modify {}", "modify.rate", PerSecond, None);
        tuned("modify {}: p99", "modify.p99_ms", Milliseconds, None);
        tuned("ControllerExpandVolume calls per claim, burst {}", "expand.calls_each", Count, Worst(1.0));
        tuned("ControllerModifyVolume calls per claim, burst {}", "modify.calls_each", Count, Worst(1.0));
        tuned("writes per expansion, Events aside, burst {}", "expand.writes_each", Count, Worst(3.0));
        tuned("writes per modification, Events aside, burst {}", "modify.writes_each", Count, Worst(3.0));
        tuned("API requests per expansion, burst {}", "expand.requests_each", Count, None);
        tuned("API requests per modification, burst {}", "modify.requests_each", Count, None);
        tuned("CPU per expansion, burst {}", "expand.cpu_each_ms", Milliseconds, AtMost(0.6));
        tuned("CPU per modification, burst {}", "modify.cpu_each_ms", Milliseconds, None);
        tuned("conflicts of a burst of expansions {}", "expand.conflicts", Count, Worst(0.0));
        tuned("conflicts of a burst of modifications {}", "modify.conflicts", Count, Worst(0.0));
        tuned("Warnings of a burst of expansions {}", "expand.warnings", Count, Worst(0.0));
        tuned("Warnings of a burst of modifications {}", "modify.warnings", Count, Worst(0.0));
        tuned("peak RSS, expand and modify {}", "peak_rss_bytes", Megabytes, None);
        let (what, rate) = (format!("expand {of}, tuned; in our place a client that only writes"), "expand.rate");
        wanted.push(Wanted(what, scenario, RESIZER_TUNED, rate, BARE, rate, PerSecond, None));
    } else if let Some(count) = kind.strip_prefix("idle-") {
        let of = format!("the resizer alone beside csi-resizer, idle with {count} volumes");
        add(format!("RSS, {of}"), RESIZER_TUNED, "rss_bytes", Megabytes, None);
        add(format!("open watches, {of}"), RESIZER_TUNED, "watches", Count, None);
    } else if kind == "single" {
        add("one expansion on an idle server: p50".to_owned(), RESIZER_TUNED, "expand.p50_ms", Milliseconds, None);
        add("one modification on an idle server: p50".to_owned(), RESIZER_TUNED, "modify.p50_ms", Milliseconds, None);
    } else if kind == "start" {
        add("start to first expansion".to_owned(), RESIZER, "first_ms", Milliseconds, None);
    } else if let Some(signal) = kind.strip_prefix("failover-") {
        let what = format!("fail-over of the resizer, SIG{} of the leader", signal.to_uppercase());
        add(what, RESIZER_TUNED, "took_s", Seconds, None);
    } else if kind == "cut" {
        let mut lost = |what: &str, figure| {
            let what = format!("connections cut in a burst: {what} lost");
            add(what, RESIZER_TUNED, figure, Count, Worst(0.0));
        };
        lost("expansions", "expand.lost");
        lost("modifications", "modify.lost");
    }
    wanted
}
