//! What is written of the runs: every figure as JSON, the comparison as a table and as a chart.

mod all;
mod capacity;
mod chart;
pub(crate) mod front;
pub(crate) mod line;
pub(crate) mod lines;
mod node;
mod pods;
mod provision;
pub(crate) mod readme;
mod resize;
mod roles;
mod snapshot;
pub(crate) mod spread;
pub(crate) mod table;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::run::{Occasion, Run};

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
/// The resizer's, at its defaults.
const RESIZER: &str = "csi-resizer";
/// The resizer's, tuned.
pub(crate) const RESIZER_TUNED: &str = "csi-resizer-tuned";
/// The snapshotter's, at its defaults.
const SNAPSHOTTER: &str = "csi-snapshotter";
/// The snapshotter's, tuned.
pub(crate) const SNAPSHOTTER_TUNED: &str = "csi-snapshotter-tuned";
/// kube-controller-manager's attach/detach controller, at its defaults.
pub(crate) const MANAGER: &str = "kube-controller-manager";
/// The same, tuned.
pub(crate) const MANAGER_TUNED: &str = "kube-controller-manager-tuned";
/// The sidecars of a workload side by side, tuned.
pub(crate) const SIDECARS_TUNED: &str = "sidecars-tuned";

/// Ours, with no more durability than csi-provisioner has.
pub(crate) const US_WITHOUT_INTENT: &str = "csi-control-plane-no-intent";
/// Ours with one role.
pub(crate) const US_ATTACHER: &str = "csi-control-plane-attacher";
/// Ours with two.
pub(crate) const US_ATTACHER_RECONCILER: &str = "csi-control-plane-attacher-reconciler";
/// Ours with the resizer beside the three roles of the other sidecars.
pub(crate) const US_WITH_RESIZER: &str = "csi-control-plane-with-resizer";
/// Ours with every role but the snapshotter.
pub(crate) const US_WITHOUT_SNAPSHOTTER: &str = "csi-control-plane-without-snapshotter";
/// Ours as two processes.
pub(crate) const US_APART: &str = "csi-control-plane-apart";
/// Another build of ours, in the same run.
pub(crate) const US_BEFORE: &str = "csi-control-plane-before";

/// The scenario of the sidecar of a node's pod.
pub(crate) const NODE: &str = "node";

/// The bench's own client that only writes, and writes what the daemon does.
pub(crate) const BARE: &str = "bare";
/// The same without what makes it durable.
pub(crate) const BARE_WITHOUT_INTENT: &str = "bare-no-intent";

/// All figures, and of when and what they are.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Document {
    #[serde(default)]
    pub(crate) occasions: BTreeMap<String, Occasion>,
    pub(crate) runs: Vec<Run>,
}

impl Document {
    /// An earlier comparison's; nothing where there is none.
    pub(crate) fn read(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join("results.json"));
        text.map_or_else(|_| Self::default(), |text| serde_json::from_str(&text).unwrap())
    }

    /// Takes the runs of a scenario in, in the place of those that there were, and forgets the occasions that nothing is left of.
    pub(crate) fn put(&mut self, runs: Vec<Run>) {
        self.runs.retain(|run| runs.iter().all(|new| new.scenario != run.scenario));
        self.runs.extend(runs);
        self.occasions.retain(|name, _| self.runs.iter().any(|run| run.occasion == *name));
    }

    /// Writes everything, with the tables of the project's README and of the benches' README, and returns the table.
    pub(crate) fn write(&self, folder: &Path, is_published: bool) -> String {
        std::fs::create_dir_all(folder).unwrap();
        let lines = lines::lines(&self.runs);
        let (occasions, figures) = (table::occasions(self), table::figures(self, &lines));
        let table = format!("{occasions}{figures}{}", table::requests(&self.runs));
        std::fs::write(folder.join("results.json"), serde_json::to_string_pretty(self).unwrap() + "\n").unwrap();
        std::fs::write(folder.join("table.md"), &table).unwrap();
        std::fs::write(folder.join("chart.svg"), chart::chart(&lines)).unwrap();
        if is_published {
            readme::put(readme::FRONT, &front::front(self, &lines));
            let aimed: Vec<line::Line> = lines.into_iter().filter(|line| line.target.is_one()).collect();
            readme::put(readme::BENCHES, &table::figures(self, &aimed));
        }
        table
    }
}
