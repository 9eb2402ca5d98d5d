//! The comparison as Markdown.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::line::{Line, Unit};
use super::spread::Spread;
use super::{
    Document, MANAGER_TUNED, PROVISIONER_TUNED, RESIZER_TUNED, SIDECARS_TUNED, SNAPSHOTTER_TUNED, THEM_TUNED, US,
    US_APART,
};
use crate::run::{Occasion, Run};

/// On which occasions the lines were measured, as Markdown.
pub(crate) fn occasions(document: &Document) -> String {
    let mut text = String::new();
    for (number, (name, occasion)) in document.occasions.iter().enumerate() {
        let _ = writeln!(text, "- {}", occasion_of(document, letter(number), name, occasion));
    }
    text + "\n"
}

/// The comparison as Markdown: every line with the number of its measurements and the letter of its occasion.
pub(crate) fn figures(document: &Document, lines: &[Line]) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Median, and range in brackets, of *n* measurements (theirs / ours where they are not as many), contenders in turn, etcd \
         without fsync.\n"
    );
    let _ = writeln!(text, "| figure | Go sidecar | csi-control-plane | ratio | target | | n |");
    let _ = writeln!(text, "|---|---:|---:|---:|---:|---|---|");
    for line in lines {
        let cut = line.cut.map(|after| format!(", cut after {after:.0} s")).unwrap_or_default();
        let fewer = line.fewer.map(|count| format!(", {count:.0} of them")).unwrap_or_default();
        let met = match line.target.is_met(line.ours, line.ratio()) {
            None => "",
            Some(true) => "met",
            Some(false) => "**missed**",
        };
        let _ = writeln!(
            text,
            "| {} | {}{cut}{fewer} | {} | {} | {} | {met} | {} |",
            line.what,
            told(line.unit, line.theirs),
            told(line.unit, line.ours),
            ratio(line.ratio()),
            line.target.told(line.unit),
            measured(document, line),
        );
    }
    text
}

/// What an occasion is called in a table.
fn letter(number: usize) -> char {
    (b'a'..=b'z').cycle().nth(number).map_or('?', char::from)
}

/// An occasion: when, with which binary, on what machine and how busy, by which command.
fn occasion_of(document: &Document, letter: char, name: &str, occasion: &Occasion) -> String {
    let machine = &occasion.machine;
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    let loads = document.runs.iter().filter(|run| run.occasion == name).filter_map(|run| run.load);
    let load = Spread::of(loads)
        .map(|load| format!("load average before a run {:.1} ({:.1} – {:.1}); ", load.median, load.least, load.most))
        .unwrap_or_default();
    format!(
        "**{letter}**: {name} UTC, ours {} of {}; {load}{} cores of {}, {gib:.0} GiB, Linux {}; {}; `{}`",
        occasion.binary,
        occasion.commit.get(..8).unwrap_or("an unknown commit"),
        machine.cores,
        machine.processor,
        machine.kernel,
        machine.programs.join(", "),
        occasion.command,
    )
}

/// How often a line was measured.
pub(super) fn count(line: &Line) -> String {
    let (theirs, ours) = (line.theirs.count, line.ours.count);
    if theirs == ours || theirs == 0 { ours.to_string() } else { format!("{theirs} / {ours}") }
}

/// How often a line was measured, and on which occasion.
fn measured(document: &Document, line: &Line) -> String {
    let is_of = |name: &str| document.runs.iter().any(|run| run.scenario == line.scenario && run.occasion == name);
    let occasions = document.occasions.keys().enumerate().filter(|(_, name)| is_of(name));
    let letters: String = occasions.map(|(number, _)| letter(number)).collect();
    format!("{} {letters}", count(line))
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
pub(crate) fn requests(runs: &[Run]) -> String {
    let mut text = String::new();
    for (burst, them) in [
        ("burst-", THEM_TUNED),
        ("provision-burst-", PROVISIONER_TUNED),
        ("resize-burst-", RESIZER_TUNED),
        ("snapshot-burst-", SNAPSHOTTER_TUNED),
        ("polled-snapshot-burst-", SNAPSHOTTER_TUNED),
        ("both-first-attach-", SIDECARS_TUNED),
        ("both-first-attach-", US_APART),
        ("capacity-refresh-", PROVISIONER_TUNED),
        ("pods-burst-", MANAGER_TUNED),
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
