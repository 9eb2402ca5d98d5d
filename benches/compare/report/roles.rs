//! The lines of several roles in one process: what each costs, and what one knows of the other.

use super::line::Target::{AtLeast, AtMost, None, Ours};
use super::line::Unit::{Count, Megabytes, Milliseconds, PerSecond};
use super::line::{Line, Target, Unit, Wanted};
use super::spread::Spread;
use super::{
    PROVISIONER_TUNED, RESIZER_TUNED, SIDECARS_TUNED, US, US_APART, US_ATTACHER, US_ATTACHER_RECONCILER,
    US_WITH_RESIZER,
};
use crate::run::Run;

/// Both sidecars, each in a process of its own.
const TOGETHER: &str = "csi-attacher-tuned+csi-provisioner-tuned";
/// What a role more may take: 2 MB.
pub(super) const FURTHER_ROLE: Target = Ours(2e6);
/// The resizer adds the watch of attributes classes. The other kinds are watched anyway.
const FURTHER_WATCH: Target = Ours(1.0);
/// Of five sidecars' roles; those that there are must not use them up.
const STREAMS: Target = Ours(8.0);

/// The lines of a scenario, if it is one of these.
pub(super) fn wanted(scenario: &str) -> Vec<Wanted<'_>> {
    let mut wanted = Vec::new();
    let mut add = |what: String, them, us, figure, unit: Unit, target: Target| {
        wanted.push(Wanted(what, scenario, them, figure, us, figure, unit, target));
    };
    if let Some(count) = scenario.strip_prefix("both-idle-") {
        let of = format!("both roles beside both sidecars, idle with {count} volumes");
        add(format!("RSS, {of}"), TOGETHER, US, "rss_bytes", Megabytes, AtMost(0.25));
        add(format!("watch streams, {of}"), TOGETHER, US, "watches", Count, STREAMS);
        if count == "0" {
            add("binary, beside both sidecars'".to_owned(), TOGETHER, US, "binary_bytes", Megabytes, AtMost(0.25));
        }
    } else if let Some(count) = scenario.strip_prefix("both-first-attach-") {
        let of = format!("of {count} new volumes");
        let mut both = |what: &str, figure, unit, target| {
            let what = what.replace("{}", &of);
            add(format!("{what}, both sidecars tuned"), SIDECARS_TUNED, US, figure, unit, target);
            add(format!("{what}; theirs: ours as two processes"), US_APART, US, figure, unit, None);
        };
        both("first attach {}", "attach.rate", PerSecond, AtLeast(1.35));
        both("API requests per first attach {}", "attach.requests_each", Count, None);
        both("CPU per first attach {}", "attach.cpu_each_ms", Milliseconds, None);
        both("provision {}", "provision.rate", PerSecond, None);
    }
    wanted
}

/// What one role more adds to the memory of a process that is there anyway, beside a further sidecar's. No sidecar does the
/// reconciler's work alone. csi-resizer is measured among as many claims and volumes without attachments, which it does not watch.
pub(super) fn further(runs: &[Run]) -> Vec<Line> {
    let mut lines = Vec::new();
    for count in idle_counts(runs) {
        let scenario = format!("both-idle-{count}");
        let rss = |contender: &str| Spread::figure(runs, &scenario, contender, "rss_bytes");
        let resizer = |figure| Spread::figure(runs, &format!("resize-idle-{count}"), RESIZER_TUNED, figure);
        let (one, two, three) = (rss(US_ATTACHER), rss(US_ATTACHER_RECONCILER), rss(US));
        for (role, theirs, with, without) in [
            ("reconciler beside the attacher", Some(Spread::NONE), two, one),
            ("provisioner beside both", rss(PROVISIONER_TUNED), three, two),
            ("resizer beside the three", resizer("rss_bytes"), rss(US_WITH_RESIZER), three),
        ] {
            let (Some(theirs), Some(with), Some(without)) = (theirs, with, without) else { continue };
            let what = format!("RSS of a further role, the {role}, idle with {count} volumes");
            lines.push(line(what, &scenario, Megabytes, theirs, with.minus(without), FURTHER_ROLE));
        }
        let watches = |contender: &str| Spread::figure(runs, &scenario, contender, "watches");
        if let (Some(theirs), Some(with), Some(without)) = (resizer("watches"), watches(US_WITH_RESIZER), watches(US)) {
            let what =
                format!("watch streams of a further role, the resizer beside the three, idle with {count} volumes");
            lines.push(line(what, &scenario, Count, theirs, with.minus(without), FURTHER_WATCH));
        }
    }
    lines
}

pub(super) fn line(what: String, scenario: &str, unit: Unit, theirs: Spread, ours: Spread, target: Target) -> Line {
    Line { what, scenario: scenario.to_owned(), unit, theirs, ours, target, cut: Option::None, fewer: Option::None }
}

/// Among how many volumes they were idle, each once.
fn idle_counts(runs: &[Run]) -> Vec<&str> {
    let mut counts: Vec<&str> = runs.iter().filter_map(|run| run.scenario.strip_prefix("both-idle-")).collect();
    counts.dedup();
    counts
}
