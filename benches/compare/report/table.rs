//! The comparison as Markdown.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::lines::{Line, Unit};
use super::machine::Machine;
use super::spread::Spread;
use super::{PROVISIONER_TUNED, SIDECARS_TUNED, THEM_TUNED, US, US_APART};
use crate::Run;

/// The comparison as Markdown.
pub(super) fn figures(machine: &Machine, command: &str, lines: &[Line], runs: &[Run]) -> String {
    let mut text = String::new();
    let rounds = runs.iter().map(|run| run.round).max().unwrap_or_default();
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    let _ = writeln!(
        text,
        "{} cores of {}, {gib:.0} GiB, Linux {}; {}, etcd without fsync. Median of {rounds} round(s), contenders in turn, \
         range in brackets. Load average at the end: {:.1}. `{command}`\n",
        machine.cores,
        machine.processor,
        machine.kernel,
        machine.programs.join(", "),
        machine.load,
    );
    let _ = writeln!(text, "| figure | Go sidecar | csi-control-plane | ratio | target | |");
    let _ = writeln!(text, "|---|---:|---:|---:|---:|---|");
    for line in lines {
        let cut = line.cut.map(|after| format!(", cut after {after:.0} s")).unwrap_or_default();
        let met = match line.target.is_met(line.ours.median, line.ratio()) {
            None => "",
            Some(true) => "met",
            Some(false) => "**missed**",
        };
        let _ = writeln!(
            text,
            "| {} | {}{cut} | {} | {} | {} | {met} |",
            line.what,
            told(line.unit, line.theirs),
            told(line.unit, line.ours),
            ratio(line.ratio()),
            line.target.told(line.unit),
        );
    }
    text
}

/// Median and range, or the one value.
fn told(unit: Unit, spread: Spread) -> String {
    if spread.median.is_nan() {
        return "–".to_owned();
    }
    let [median, least, most] = [spread.median, spread.least, spread.most].map(|value| unit.told(value));
    if least == most { median } else { format!("{median} ({least} – {most})") }
}

fn ratio(ratio: f64) -> String {
    match ratio {
        undefined if !undefined.is_finite() => "–".to_owned(),
        large if large >= 10.0 => format!("{large:.0}×"),
        small => format!("{small:.2}×"),
    }
}

/// The requests of each operation in the first burst of each sidecar's work.
pub(super) fn requests(runs: &[Run]) -> String {
    let mut text = String::new();
    for (burst, them) in [
        ("burst-", THEM_TUNED),
        ("provision-burst-", PROVISIONER_TUNED),
        ("both-first-attach-", SIDECARS_TUNED),
        ("both-first-attach-", US_APART),
        ("capacity-refresh-", PROVISIONER_TUNED),
    ] {
        if let Some(run) = runs.iter().find(|run| run.scenario.starts_with(burst)) {
            requests_of(&mut text, runs, &run.scenario, them);
        }
    }
    text
}

fn requests_of(text: &mut String, runs: &[Run], scenario: &str, them: &str) {
    let of_scenario = || runs.iter().filter(|run| run.scenario == scenario);
    let names: BTreeSet<&String> =
        of_scenario().flat_map(|run| run.figures.keys()).filter(|name| name.contains(".requests ")).collect();
    let _ = writeln!(text, "\nRequests to the API for each operation, as the API server counted them ({scenario}):\n");
    let _ = writeln!(text, "| operation | request | {them} | {US} |");
    let _ = writeln!(text, "|---|---|---:|---:|");
    for name in names {
        let each = |contender: &str| {
            Spread::figure(runs, scenario, contender, name)
                .map_or_else(|| "0".to_owned(), |spread| told(Unit::Count, spread))
        };
        if let Some((verb, request)) = name.split_once(".requests ") {
            let _ = writeln!(text, "| {verb} | {request} | {} | {} |", each(them), each(US));
        }
    }
}
