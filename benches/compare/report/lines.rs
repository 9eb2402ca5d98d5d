//! The lines of the comparison: which figure of which scenario, beside whom, and what is aimed at.

use super::line::{Line, Target, Unit, Wanted, looked_up};
use super::{BARE, THEM, THEM_TUNED, US, all, capacity, node, pods, provision, resize, roles, snapshot};
use crate::run::Run;

/// Every line of which both sides were measured.
pub(crate) fn lines(runs: &[Run]) -> Vec<Line> {
    use Target::{AtLeast, AtMost, Worst};
    use Unit::{Count, Megabytes, Milliseconds, PerSecond, Percent, Seconds};
    let mut scenarios: Vec<&str> = Vec::new();
    for run in runs {
        if !scenarios.contains(&run.scenario.as_str()) {
            scenarios.push(&run.scenario);
        }
    }
    let mut wanted: Vec<Wanted<'_>> = Vec::new();
    for scenario in &scenarios {
        wanted.extend(provision::wanted(scenario));
        wanted.extend(resize::wanted(scenario));
        wanted.extend(snapshot::wanted(scenario));
        wanted.extend(all::wanted(scenario));
        wanted.extend(roles::wanted(scenario));
        wanted.extend(capacity::wanted(scenario).into_iter().chain(pods::wanted(scenario)));
        let mut add = |what: String, them, theirs, ours, unit, target| {
            wanted.push(Wanted(what, scenario, them, theirs, US, ours, unit, target));
        };
        if let Some(burst) = scenario.strip_prefix("burst-") {
            let (count, latency) = burst.split_once('-').unwrap_or((burst, "0ms"));
            let of =
                if latency == "0ms" { format!("of {count}") } else { format!("of {count}, driver takes {latency}") };
            // The targets are for a driver that answers at once: a slow one is the same wait for everyone.
            let at_once = |target| if latency == "0ms" { target } else { Target::None };
            for verb in ["attach", "detach"] {
                let rate = if verb == "attach" { "attach.rate" } else { "detach.rate" };
                add(format!("{verb} {of}, defaults"), THEM, rate, rate, PerSecond, at_once(AtLeast(150.0)));
            }
            let tuned = |verb: &str, more: &str| format!("{verb} {of}, tuned{more}");
            add(tuned("attach", ""), THEM_TUNED, "attach.rate", "attach.rate", PerSecond, at_once(AtLeast(1.0)));
            add(tuned("attach", ": p50"), THEM_TUNED, "attach.p50_ms", "attach.p50_ms", Milliseconds, Target::None);
            add(tuned("attach", ": p99"), THEM_TUNED, "attach.p99_ms", "attach.p99_ms", Milliseconds, Target::None);
            let (again, first) = ("attach-again.rate", "attach.rate");
            let what = tuned("attach", ", the finalizer is there; theirs without");
            add(what, THEM_TUNED, first, again, PerSecond, at_once(AtLeast(1.35)));
            add(tuned("attach", ", the finalizer is there"), THEM_TUNED, again, again, PerSecond, Target::None);
            add(tuned("detach", ""), THEM_TUNED, "detach.rate", "detach.rate", PerSecond, at_once(AtLeast(1.6)));
            add(tuned("detach", ": p99"), THEM_TUNED, "detach.p99_ms", "detach.p99_ms", Milliseconds, Target::None);
            let duplicates = "attach.duplicates_percent";
            add(
                format!("duplicate publish calls, burst {of}, tuned"),
                THEM_TUNED,
                duplicates,
                duplicates,
                Percent,
                Worst(0.0),
            );
            let (attach, detach) = ("attach.cpu_each_ms", "detach.cpu_each_ms");
            add(
                format!("CPU per attach, burst {of}, tuned"),
                THEM_TUNED,
                attach,
                attach,
                Milliseconds,
                at_once(AtMost(0.4)),
            );
            add(format!("CPU per detach, burst {of}, tuned"), THEM_TUNED, detach, detach, Milliseconds, Target::None);
            add(
                format!("peak RSS, burst {of}, tuned"),
                THEM_TUNED,
                "peak_rss_bytes",
                "peak_rss_bytes",
                Megabytes,
                Target::None,
            );
            let what = tuned("attach", "; in our place a client that only writes");
            let rate = "attach.rate";
            wanted.push(Wanted(what, scenario, THEM_TUNED, rate, BARE, rate, PerSecond, Target::None));
        } else if let Some(count) = scenario.strip_prefix("idle-") {
            let of = format!("idle with {count} volumes");
            for (them, how) in [(THEM, "defaults"), (THEM_TUNED, "tuned")] {
                add(format!("RSS, {of}, {how}"), them, "rss_bytes", "rss_bytes", Megabytes, AtMost(0.3));
            }
            add(format!("open watches, {of}"), THEM_TUNED, "watches", "watches", Count, Target::None);
        } else if *scenario == "single" {
            let what = "one attach on an idle server: p50".to_owned();
            add(what, THEM_TUNED, "attach.p50_ms", "attach.p50_ms", Milliseconds, AtMost(0.7));
            let what = "one detach on an idle server: p50".to_owned();
            add(what, THEM_TUNED, "detach.p50_ms", "detach.p50_ms", Milliseconds, Target::None);
        } else if *scenario == "start" {
            add("start to first attach".to_owned(), THEM, "first_ms", "first_ms", Milliseconds, AtMost(0.5));
            add("binary".to_owned(), THEM, "binary_bytes", "binary_bytes", Megabytes, AtMost(0.25));
        } else if *scenario == "failover-term" {
            add("fail-over, SIGTERM of the leader".to_owned(), THEM_TUNED, "took_s", "took_s", Seconds, Worst(1.0));
        } else if *scenario == "failover-kill" {
            add("fail-over, SIGKILL of the leader".to_owned(), THEM_TUNED, "took_s", "took_s", Seconds, Worst(16.0));
        } else if *scenario == "cut" {
            let what = |what: &str| format!("connections cut in a burst: {what}");
            add(what("attaches lost"), THEM_TUNED, "attach.lost", "attach.lost", Count, Worst(0.0));
            add(what("detaches lost"), THEM_TUNED, "detach.lost", "detach.lost", Count, Worst(0.0));
            let duplicates = "attach.duplicates";
            add(what("duplicate publish calls"), THEM_TUNED, duplicates, duplicates, Count, Target::None);
            add(what("attaching 500"), THEM_TUNED, "attach.took_s", "attach.took_s", Seconds, Target::None);
        }
    }
    let mut lines: Vec<Line> = wanted.into_iter().filter_map(|wanted| looked_up(runs, wanted)).collect();
    lines.extend(roles::further(runs));
    lines.extend(all::further(runs));
    lines.extend(node::lines(runs));
    lines
}
