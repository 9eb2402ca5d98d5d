//! The table of the README: few lines, of all four sidecars together where they were measured together.

use std::fmt::Write as _;

use super::line::Unit::{Megabytes, Milliseconds, PerSecond, Seconds};
use super::line::{Line, Target, Unit, Wanted, looked_up};
use super::{PROVISIONER_TUNED, RESIZER_TUNED, SIDECARS_TUNED, SNAPSHOTTER_TUNED, THEM, THEM_TUNED, US};
use crate::run::Run;

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

/// One sidecar alone.
const ATTACHER_START: Place = ("attacher", "start", THEM);

/// The table, and how many targets were missed. A row that was not measured anywhere says so.
pub(crate) fn front(runs: &[Run], lines: &[Line]) -> String {
    let mut text = "| | sidecars | Go sidecars | csi-control-plane |\n|---|---|---:|---:|\n".to_owned();
    for (what, figure, unit, places) in ROWS {
        let measured = places.iter().find_map(|(beside, scenario, them)| {
            let wanted = Wanted(what.to_owned(), scenario, them, figure, US, figure, unit, Target::None);
            Some((beside, looked_up(runs, wanted)?))
        });
        let _ = match measured {
            Some((beside, line)) => {
                let (theirs, ours) = (unit.told(line.theirs.median), unit.told(line.ours.median));
                writeln!(text, "| {what} | {beside} | {theirs} | {ours} |")
            }
            None => writeln!(text, "| {what} | – | not measured | not measured |"),
        };
    }
    let met: Vec<bool> = lines.iter().filter_map(|line| line.target.is_met(line.ours, line.ratio())).collect();
    let missed = met.iter().filter(|is_met| !**is_met).count();
    let _ = writeln!(text, "\nMedians. Of {} targets, {missed} were missed.", met.len());
    text
}
