//! The lines of the snapshotter.

use super::line::Target::{AtLeast, AtMost, None, Worst};
use super::line::Unit::{Count, Megabytes, Milliseconds, PerSecond, Seconds};
use super::line::{Target, Unit, Wanted};
use super::{BARE, SNAPSHOTTER, SNAPSHOTTER_TUNED, US};

/// The lines of a scenario, if it is one of these.
pub(super) fn wanted(scenario: &str) -> Vec<Wanted<'_>> {
    let polled = scenario.strip_prefix("polled-snapshot-");
    let Some(kind) = polled.or_else(|| scenario.strip_prefix("snapshot-")) else { return Vec::new() };
    let mut wanted = Vec::new();
    let mut add = |what: String, them, figure, unit: Unit, target: Target| {
        wanted.push(Wanted(what, scenario, them, figure, US, figure, unit, target));
    };
    if let Some(burst) = kind.strip_prefix("burst-") {
        let count = burst.split('-').next().unwrap_or(burst);
        let polls = if polled.is_some() { ", ready after three polls" } else { "" };
        let of = format!("of {count}{polls}");
        // A snapshot that has to be polled for waits for the poll, whoever polls.
        let rate = if polled.is_some() { None } else { AtLeast(1.0) };
        add(format!("snapshot {of}, defaults"), SNAPSHOTTER, "snapshot.rate", PerSecond, rate);
        let mut tuned = |what: &str, figure, unit, target| {
            let what = what.replacen("{}", &of, 1);
            add(format!("{what}, tuned"), SNAPSHOTTER_TUNED, figure, unit, target);
        };
        tuned("snapshot {}", "snapshot.rate", PerSecond, rate);
        tuned("snapshot {}: p99", "snapshot.p99_ms", Milliseconds, None);
        tuned("delete {}", "delete.rate", PerSecond, None);
        tuned("API requests per snapshot, burst {}", "snapshot.requests_each", Count, AtMost(0.5));
        tuned("API requests per deletion, burst {}", "delete.requests_each", Count, None);
        tuned("CreateSnapshot calls per snapshot, burst {}", "snapshot.calls_each", Count, None);
        tuned("DeleteSnapshot calls per deletion, burst {}", "delete.calls_each", Count, Worst(1.0));
        tuned("CPU per snapshot, burst {}", "snapshot.cpu_each_ms", Milliseconds, None);
        tuned("CPU per deletion, burst {}", "delete.cpu_each_ms", Milliseconds, None);
        tuned("conflicts of a burst of snapshots {}", "snapshot.conflicts", Count, None);
        tuned("Warnings of a burst of snapshots {}", "snapshot.warnings", Count, Worst(0.0));
        tuned("peak RSS, snapshot and delete {}", "peak_rss_bytes", Megabytes, None);
        if polled.is_none() {
            let (what, rate) =
                (format!("snapshot {of}, tuned; in our place a client that only writes"), "snapshot.rate");
            wanted.push(Wanted(what, scenario, SNAPSHOTTER_TUNED, rate, BARE, rate, PerSecond, None));
        }
    } else if kind == "single" {
        add("one snapshot on an idle server: p50".to_owned(), SNAPSHOTTER_TUNED, "snapshot.p50_ms", Milliseconds, None);
        add("one deletion on an idle server: p50".to_owned(), SNAPSHOTTER_TUNED, "delete.p50_ms", Milliseconds, None);
    } else if kind == "start" {
        add("start to first snapshot".to_owned(), SNAPSHOTTER, "first_ms", Milliseconds, None);
    } else if let Some(signal) = kind.strip_prefix("failover-") {
        let what = format!("fail-over of the snapshotter, SIG{} of the leader", signal.to_uppercase());
        add(what, SNAPSHOTTER_TUNED, "took_s", Seconds, None);
    } else if kind == "cut" {
        let mut lost = |what: &str, figure| {
            let what = format!("connections cut in a burst: {what} lost");
            add(what, SNAPSHOTTER_TUNED, figure, Count, Worst(0.0));
        };
        lost("snapshots", "snapshot.lost");
        lost("deletions of snapshots", "delete.lost");
    }
    wanted
}
