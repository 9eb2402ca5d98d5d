//! The table of the README: few lines, of all four sidecars together where they were measured together. Each says how often it was
//! measured and when, and tests/rules/ages.rs how old its binary may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::line::Unit::{Megabytes, Milliseconds, PerSecond, Seconds};
use super::line::{Line, Target, Unit, Wanted, looked_up};
use super::table::count;
use super::{Document, PROVISIONER_TUNED, RESIZER_TUNED, SIDECARS_TUNED, SNAPSHOTTER_TUNED, THEM, THEM_TUNED, US};

/// Every sidecar in a process of its own, tuned.
const FOUR: &str = "csi-attacher-tuned+csi-provisioner-tuned+csi-resizer-tuned+csi-snapshotter-tuned";
/// The two of them that were measured together first.
const TWO: &str = "csi-attacher-tuned+csi-provisioner-tuned";

/// Where a figure is: which sidecars, as a reader calls them, the scenario, and their contenders.
type Place = (&'static str, &'static str, &'static str);

/// A row: what it says, its figure, its unit, and where that is, the most complete comparison first.
type Row = (&'static str, &'static str, Unit, &'static [Place]);

const ROWS: [Row; 9] = [
    (
        "binaries, static, as in the images",
        "binary_bytes",
        Megabytes,
        &[("all four", "all-start", SIDECARS_TUNED), ("attacher, provisioner", "both-idle-0", TWO), ATTACHER_START],
    ),
    (
        "memory, idle, 1000 volumes",
        "rss_bytes",
        Megabytes,
        &[("all four", "all-idle-1000", FOUR), ("attacher, provisioner", "both-idle-1000", TWO)],
    ),
    (
        "start of the process to the first attach",
        "first_ms",
        Milliseconds,
        &[("all four", "all-start", SIDECARS_TUNED), ATTACHER_START],
    ),
    ("500 attaches at once, defaults", "attach.rate", PerSecond, &[("attacher", "burst-500-0ms", THEM)]),
    ("500 attaches at once, theirs tuned", "attach.rate", PerSecond, &[("attacher", "burst-500-0ms", THEM_TUNED)]),
    (
        "500 claims at once, theirs tuned",
        "provision.rate",
        PerSecond,
        &[("provisioner", "provision-burst-500-0ms", PROVISIONER_TUNED)],
    ),
    (
        "500 expansions at once, theirs tuned",
        "expand.rate",
        PerSecond,
        &[("resizer", "resize-burst-500-0ms", RESIZER_TUNED)],
    ),
    (
        "500 snapshots at once, theirs tuned",
        "snapshot.rate",
        PerSecond,
        &[("snapshotter", "snapshot-burst-500-0ms", SNAPSHOTTER_TUNED)],
    ),
    ("SIGTERM of the leader to the next attach", "took_s", Seconds, &[("attacher", "failover-term", THEM_TUNED)]),
];

/// The rows whose binary is too old, until they are measured again: each is marked in the table. tests/rules/ages.rs fails unless these,
/// and no others, are.
pub(crate) const TOO_OLD: &[&str] = &[
    "500 attaches at once, defaults",
    "500 attaches at once, theirs tuned",
    "500 claims at once, theirs tuned",
    "500 expansions at once, theirs tuned",
    "SIGTERM of the leader to the next attach",
];

/// One sidecar alone.
const ATTACHER_START: Place = ("attacher", "start", THEM);

/// A row of the table that was measured: its name, what it is beside, its line, and the oldest of its occasions.
pub(crate) struct Measured<'a> {
    pub(crate) what: &'static str,
    beside: &'static str,
    line: Line,
    pub(crate) occasion: &'a str,
}

/// Each row, in order; `Err`: nobody has measured the row of this name.
pub(crate) fn rows(document: &Document) -> Vec<Result<Measured<'_>, &'static str>> {
    let row = |(what, figure, unit, places): Row| {
        let of = |&(beside, scenario, them): &Place| {
            let wanted = Wanted(what.to_owned(), scenario, them, figure, US, figure, unit, Target::None);
            let line = looked_up(&document.runs, wanted)?;
            let is_its = |contender: &str| contender == US || them.split('+').any(|one| one == contender);
            let runs = document.runs.iter().filter(|run| run.scenario == scenario && is_its(&run.contender));
            Some(Measured { what, beside, line, occasion: runs.map(|run| run.occasion.as_str()).min()? })
        };
        places.iter().find_map(of).ok_or(what)
    };
    ROWS.into_iter().map(row).collect()
}

/// The table, how many targets were missed, and the versions of what it is beside. A row that was not measured anywhere says so.
pub(crate) fn front(document: &Document, lines: &[Line]) -> String {
    let mut text =
        "| | sidecars | Go sidecars | csi-control-plane | n | day |\n|---|---|---:|---:|---:|---|\n".to_owned();
    // Each program with its versions.
    let (mut programs, mut is_old) = (BTreeMap::<&str, BTreeSet<&str>>::new(), false);
    for row in rows(document) {
        let _ = match row {
            Ok(Measured { what, beside, line, occasion }) => {
                let (theirs, ours) = (line.unit.told(line.theirs.median), line.unit.told(line.ours.median));
                let day = occasion.split(' ').next().unwrap_or_default();
                let mark = if TOO_OLD.contains(&what) { "†" } else { "" };
                is_old |= !mark.is_empty();
                let found = document.occasions.get(occasion).into_iter().flat_map(|it| &it.machine.programs);
                for (program, version) in found.filter_map(|it| it.split_once(' ')) {
                    programs.entry(program).or_default().insert(version);
                }
                writeln!(text, "| {what} | {beside} | {theirs} | {ours} | {} | {day}{mark} |", count(&line))
            }
            Err(what) => writeln!(text, "| {what} | – | not measured | not measured | – | – |"),
        };
    }
    let met: Vec<bool> = lines.iter().filter_map(|line| line.target.is_met(line.ours, line.ratio())).collect();
    let missed = met.iter().filter(|is_met| !**is_met).count();
    let versions = |set: BTreeSet<&str>| set.into_iter().collect::<Vec<_>>().join("/");
    let programs: Vec<_> = programs.into_iter().map(|(it, set)| format!("{it} {}", versions(set))).collect();
    let programs = programs.join(", ");
    let _ = writeln!(
        text,
        "\nMedians of *n* runs with the binary of that day{}, beside {programs}. Of {} targets, {missed} were missed.",
        if is_old { " (†: to be measured again)" } else { "" },
        met.len()
    );
    text
}
