//! What is written of the runs: every figure as JSON, the comparison as a table and as a chart.

mod capacity;
mod chart;
mod lines;
mod machine;
mod provision;
mod readme;
mod roles;
mod spread;
mod table;

use serde::{Deserialize, Serialize};

use crate::Run;
use crate::arguments::Arguments;

/// Who compares.
pub(crate) const US: &str = "csi-control-plane";
/// With whom, at its defaults.
const THEM: &str = "csi-attacher";
/// With whom, tuned.
pub(crate) const THEM_TUNED: &str = "csi-attacher-tuned";

/// The provisioner's, at its defaults.
const PROVISIONER: &str = "csi-provisioner";
/// The provisioner's, tuned.
pub(crate) const PROVISIONER_TUNED: &str = "csi-provisioner-tuned";
/// Both sidecars side by side, tuned.
pub(crate) const SIDECARS_TUNED: &str = "sidecars-tuned";

/// Ours, with no more durability than csi-provisioner has.
pub(crate) const US_WITHOUT_INTENT: &str = "csi-control-plane-no-intent";
/// Ours with one role.
pub(crate) const US_ATTACHER: &str = "csi-control-plane-attacher";
/// Ours with two.
pub(crate) const US_ATTACHER_RECONCILER: &str = "csi-control-plane-attacher-reconciler";
/// Ours as two processes.
pub(crate) const US_APART: &str = "csi-control-plane-apart";

/// The file of all figures.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Document {
    machine: machine::Machine,
    command: String,
    runs: Vec<Run>,
}

/// The runs of an earlier comparison.
pub(crate) fn read_runs(arguments: &Arguments) -> Vec<Run> {
    read(arguments).runs
}

fn read(arguments: &Arguments) -> Document {
    let path = arguments.results.join("results.json");
    std::fs::read_to_string(path).map_or_else(|_| Document::default(), |text| serde_json::from_str(&text).unwrap())
}

/// Writes everything, and returns the table.
pub(crate) fn write(arguments: &Arguments, runs: &[Run]) -> String {
    let folder = &arguments.results;
    std::fs::create_dir_all(folder).unwrap();
    let document = if arguments.only_report {
        read(arguments)
    } else {
        let (machine, command) = (machine::Machine::this(), arguments.command.clone());
        Document { machine, command, runs: runs.to_vec() }
    };
    let lines = lines::lines(&document.runs);
    let figures = table::figures(&document.machine, &document.command, &lines, &document.runs);
    let table = format!("{figures}{}", table::requests(&document.runs));
    std::fs::write(folder.join("results.json"), serde_json::to_string_pretty(&document).unwrap() + "\n").unwrap();
    std::fs::write(folder.join("table.md"), &table).unwrap();
    std::fs::write(folder.join("chart.svg"), chart::chart(&lines)).unwrap();
    // A try elsewhere is nothing to tell the world.
    if *folder == Arguments::published() {
        readme::put(&figures);
    }
    table
}
