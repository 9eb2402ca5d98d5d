//! kube-controller-manager attaches nothing; a release of the role `attachDetach` does. The kubelet mounts what is attached for its pods, and
//! says what it uses; a machine is lost. It is installed as the chart's documentation says.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::images;
use super::lab::{CHART, Lab, Plan};
use super::{lost, mounted};

/// The release, and where it is: no driver is beside it.
const RELEASE: &str = "attach-detach";
const NAMESPACE: &str = "kube-system";

#[tokio::test]
async fn pods_mount_move_and_outlive_a_node_where_the_daemon_is_the_attach_detach_controller() {
    let mut lab = Lab::start_as(|folder| Plan { has_attach_detach: false, ..Plan::usual(folder) }).await;
    install(&lab);
    let [first, second] = [0, 1].map(|node| lab.machines[node].name.clone());
    mounted::data_follows_its_claim(&lab, &first, &second).await;
    mounted::a_device_is_as_large_as_its_claim_and_keeps_its_bytes(&lab, &first, &second).await;
    mounted::an_ephemeral_volume_ends_with_its_pod(&lab, &second).await;
    let order = Order::of(&lab.calls(0));
    assert_eq!(order.too_early, Vec::<String>::new());
    assert!(order.detached > 4, "{} volumes were detached", order.detached);

    lost::a_lost_node_keeps_its_volumes(&mut lab).await;
}

/// Installs the release, and waits until its pods are ready.
fn install(lab: &Lab) {
    let values = json!({
        "mode": "cluster", "image": images::daemon(), "config": {"roles": {"attachDetach": {}}}, "antiAffinity": "required"});
    let file = lab.cluster.folder.join("attach-detach.json");
    std::fs::write(&file, values.to_string()).unwrap();
    let installed = lab.helm_in(NAMESPACE, &["install", RELEASE, CHART, "--values", file.to_str().unwrap()]);
    installed.unwrap_or_else(|told| panic!("{told}"));
    let deployment = format!("deployment/{RELEASE}-csi-control-plane");
    let told = lab.kubectl(&["rollout", "status", &deployment, "--timeout=120s", "--namespace", NAMESPACE]);
    assert!(told.is_ok(), "{told:?}\n{}", lab.state());
}

/// What the driver's record says of the order of mounting and detaching.
#[derive(Default)]
struct Order {
    /// How often a volume was detached.
    detached: usize,
    /// The calls that detached a volume which a node had staged.
    too_early: Vec<String>,
}

impl Order {
    /// Reads a record of volumes that are on one node at a time.
    fn of(record: &str) -> Self {
        let mut order = Self::default();
        let (mut calls, mut staged) = (HashMap::new(), HashSet::new());
        for line in record.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let call = (event["process"].to_string(), event["call"].as_u64());
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            match event["event"].as_str() {
                Some("begin") => {
                    let (method, volume) = (text("method"), text("volume"));
                    match method.as_str() {
                        "NodeStageVolume" => drop(staged.insert(volume.clone())),
                        "ControllerUnpublishVolume" => {
                            order.detached += 1;
                            order.too_early.extend(staged.contains(&volume).then(|| line.to_owned()));
                        }
                        _ => {}
                    }
                    calls.insert(call, (method, volume));
                }
                Some("end") if text("code") == "OK" => {
                    if let Some((_, volume)) = calls.get(&call).filter(|(method, _)| method == "NodeUnstageVolume") {
                        staged.remove(volume);
                    }
                }
                _ => {}
            }
        }
        order
    }
}
