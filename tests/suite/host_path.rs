//! csi-driver-host-path, the driver that Kubernetes itself is tested with, installed as `deploy/csi-driver-host-path` says. Its project
//! publishes no module: whoever has built it names its program in `CSI_DRIVER_HOST_PATH`.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::setting::{self, FASTER_PARAMETER};
use crate::node::images;
use crate::node::lab::{Lab, Plan};

/// The driver's name.
pub(super) const NAME: &str = "hostpath.csi.k8s.io";
/// Where it keeps its volumes.
const DATA: &str = "/var/lib/csi-hostpath-data";
/// What it runs.
const TOOLS: [&str; 10] = ["mount", "umount", "losetup", "findmnt", "fallocate", "blkid", "cp", "dd", "tar", "gzip"];

/// What it keeps.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    volumes: Option<Vec<Value>>,
    snapshots: Option<Vec<Value>>,
    group_snapshots: Option<Vec<Value>>,
}

/// The capabilities that the suite is told of. All volumes are on one node.
pub(super) const CAPABILITIES: [&str; 16] = [
    "persistence",
    "block",
    "fsGroup",
    "exec",
    "snapshotDataSource",
    "groupSnapshot",
    "pvcDataSource",
    "multipods",
    "controllerExpansion",
    "nodeExpansion",
    "offlineExpansion",
    "onlineExpansion",
    "topology",
    "readWriteOncePod",
    "singleNodeVolume",
    // Its volumes are folders, which have the size of the node's file system.
    "FSResizeFromSourceNotSupported",
];
/// The key of its topology.
pub(super) const TOPOLOGY: &str = "topology.hostpath.csi/node";

/// The cluster: one node, as the driver wants it. `program` is the driver's.
pub(super) fn plan(folder: &Path, program: &Path) -> Plan {
    let values = given_values();
    let image = |index: usize| values["driver"]["containers"][index]["image"].as_str().unwrap();
    let mut images = images::make(folder);
    images.push(images::make_with_tools(folder, program, &TOOLS, image(0)));
    images.push(images::make_with_busybox(folder, Some("csi-node-driver-registrar"), &[image(1)]));
    Plan {
        has_snapshots: true,
        has_attach_detach: true,
        nodes: 1,
        images,
        name: NAME,
        // As its own project has it.
        driver: json!({
            "volumeLifecycleModes": ["Persistent", "Ephemeral"], "podInfoOnMount": true, "fsGroupPolicy": "File"}),
        profile: None,
        values: None,
    }
}

/// The values of the chart, with the daemon or with the Go sidecars.
pub(super) fn values(has_sidecars: bool) -> Value {
    let mut values = given_values();
    let containers = values["driver"]["containers"].as_array_mut().unwrap();
    // For the specs that change a volume's class.
    let arguments = containers[0]["args"].as_array_mut().unwrap();
    arguments.push("--enable-controller-modify-volume=true".into());
    arguments.push(format!("--accepted-mutable-parameter-names={FASTER_PARAMETER}").into());
    if has_sidecars {
        containers.extend(setting::sidecars());
        values["config"]["roles"] = json!({"liveness": {}});
    }
    values["image"] = images::daemon();
    values
}

/// Those of the example, which its users apply.
fn given_values() -> Value {
    serde_yaml::from_str(include_str!("../../deploy/csi-driver-host-path/values.yaml")).unwrap()
}

/// No volume and no snapshot at the driver, no mount and no device on the node.
pub(super) async fn nothing_is_left(lab: &Lab) {
    let data = lab.machines[0].path(DATA);
    lab.until("nothing is left at the driver", async || {
        let state = std::fs::read_to_string(data.join("state.json")).unwrap();
        let state: State = serde_json::from_str(&state).unwrap();
        let kept = [state.volumes, state.snapshots, state.group_snapshots];
        kept.iter().flatten().all(Vec::is_empty).then_some(())
    })
    .await;
    lab.no_mount_is_left(&data).await;
}
