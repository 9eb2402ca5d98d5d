//! A machine is lost with all that runs on it, the daemon that leads included: its volumes stay with it until somebody says that it
//! writes no more, and then move at once. It comes back.

use std::time::Instant;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;

use super::lab::Lab;
use super::upheaval::{a_volume_is_used, every_number_is_there};
use super::workloads::{BUSY, NAMESPACE, claim, pod};

/// What an administrator puts on a node whose machine is off for certain:
/// <https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown>.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

#[tokio::test]
async fn a_lost_node_keeps_its_volumes_until_it_is_out_of_service_and_comes_back() {
    a_lost_node_keeps_its_volumes(&mut Lab::start().await).await;
}

pub(super) async fn a_lost_node_keeps_its_volumes(lab: &mut Lab) {
    let leader = lab.leader("attacher").await.0.spec.unwrap().node_name.unwrap();
    let at = lab.machines.iter().position(|machine| machine.name == leader).unwrap();
    let [lost, other] = [at, 1 - at].map(|node| lab.machines[node].name.clone());
    lab.claim(&claim("busy", "Filesystem", "1Gi")).await;
    lab.start_pod(&pod("busy", "busy", &lost, BUSY)).await;
    let volume = lab.volume_of("busy").await;
    let has_written =
        || lab.exec("busy", "tail -n 1 /data/numbers").is_ok_and(|told| told.trim().parse().is_ok_and(|n: u32| n > 20));
    lab.until("the pod has written", async || has_written().then_some(())).await;

    lab.machines[at].lose();
    let begun = Instant::now();
    is_ready(lab, &lost, false).await;
    println!("the node is not ready {:.0} s after its end", begun.elapsed().as_secs_f64());
    // Another daemon works, and does what it is asked; nobody has said that the lost machine writes no more.
    a_volume_is_used(lab, "beside-the-loss", &other).await;
    assert_eq!(lab.attachments().await.get(&volume), Some(&lost));
    assert_eq!(lab.published(&volume), [lost.as_str()], "at the driver");

    let begun = Instant::now();
    let taint = format!("{OUT_OF_SERVICE}=nodeshutdown:NoExecute");
    lab.kubectl(&["taint", "node", &lost, &taint]).unwrap();
    let pods: Api<Pod> = Api::namespaced(lab.client.clone(), NAMESPACE);
    lab.until("the lost pod is gone", async || pods.get_opt("busy").await.unwrap().is_none().then_some(())).await;
    lab.detached(&volume).await;
    println!("out of service: the pod is gone and its volume is detached after {:.1} s", begun.elapsed().as_secs_f64());
    every_number_is_there(lab, "busy", &other).await;

    lab.machines[at].come_back().await;
    is_ready(lab, &lost, true).await;
    lab.kubectl(&["taint", "node", &lost, &format!("{OUT_OF_SERVICE}-")]).unwrap();
    lab.pods_are_ready().await;
    a_volume_is_used(lab, "after-the-loss", &lost).await;
    lab.discard("busy").await;
    lab.nothing_is_left().await;
}

/// Waits until a node is ready, or is not.
async fn is_ready(lab: &Lab, name: &str, ready: bool) {
    let nodes: Api<Node> = Api::all(lab.client.clone());
    lab.until(&format!("{name} is ready: {ready}"), async || {
        let conditions = nodes.get(name).await.unwrap().status?.conditions?;
        (conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True") == ready).then_some(())
    })
    .await;
}
