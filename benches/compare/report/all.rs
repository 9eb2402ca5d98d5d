//! The lines of one process beside the four sidecars that it replaces.

use super::line::Target::{AtMost, None};
use super::line::Unit::{Count, Megabytes, Milliseconds};
use super::line::{Line, Target, Unit, Wanted};
use super::roles::{FURTHER_ROLE, line};
use super::spread::Spread;
use super::{SIDECARS_TUNED, SNAPSHOTTER_TUNED, US, US_WITHOUT_SNAPSHOTTER};
use crate::run::Run;

/// Four sidecars, each in a process of its own.
const TOGETHER: &str = "csi-attacher-tuned+csi-provisioner-tuned+csi-resizer-tuned+csi-snapshotter-tuned";

/// The lines of a scenario, if it is one of these.
pub(super) fn wanted(scenario: &str) -> Vec<Wanted<'_>> {
    let mut wanted = Vec::new();
    let mut add = |what: String, them, figure, unit: Unit, target: Target| {
        wanted.push(Wanted(what, scenario, them, figure, US, figure, unit, target));
    };
    if let Some(count) = scenario.strip_prefix("all-idle-") {
        let of = format!("all roles beside four sidecars, idle with {count} volumes");
        add(format!("RSS, {of}"), TOGETHER, "rss_bytes", Megabytes, AtMost(0.12));
        add(format!("watch streams, {of}"), TOGETHER, "watches", Count, None);
        add(format!("API requests per minute, {of}"), TOGETHER, "requests_per_minute", Count, None);
    } else if scenario == "all-start" {
        let of = "all roles beside four sidecars";
        add(format!("start to first attach, {of}"), SIDECARS_TUNED, "first_ms", Milliseconds, None);
        add(format!("binary, {of}"), SIDECARS_TUNED, "binary_bytes", Megabytes, None);
    }
    wanted
}

/// What the snapshotter adds to the memory of a process that has the other roles.
pub(super) fn further(runs: &[Run]) -> Vec<Line> {
    let mut scenarios: Vec<&str> = runs.iter().map(|run| run.scenario.as_str()).collect();
    scenarios.retain(|scenario| scenario.starts_with("all-idle-"));
    scenarios.dedup();
    let of = |scenario: &str| {
        let count = scenario.strip_prefix("all-idle-")?;
        let rss = |contender: &str| Spread::figure(runs, scenario, contender, "rss_bytes");
        let added = rss(US)?.minus(rss(US_WITHOUT_SNAPSHOTTER)?);
        let what = format!("RSS of a further role, the snapshotter beside the four, idle with {count} volumes");
        Some(line(what, scenario, Megabytes, rss(SNAPSHOTTER_TUNED)?, added, FURTHER_ROLE))
    };
    scenarios.into_iter().filter_map(of).collect()
}
