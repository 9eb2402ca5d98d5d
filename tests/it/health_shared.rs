//! The list of volumes that the health monitor shares with the reconciler, and nodes that fail.

use csi_control_plane::csi::ControllerRpc;
use csi_control_plane::roles::health_monitor::names::{ABNORMAL, NODE_FAILED, NODE_RECOVERED, NORMAL};
use csi_control_plane::sandbox::driver::Method;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use serde_json::json;

use crate::monitoring::{DEGRADED, count, monitor};
use crate::supplier::{figure, says};
use crate::world::World;

const LIST: Method = Method::ListVolumes;

/// How many objects of a kind the daemon knows.
fn known(metrics: &str, kind: &str) -> f64 {
    figure(metrics, "csi_control_plane_cache_objects", &[&format!("kind=\"{kind}\"")]).unwrap_or_default()
}

#[tokio::test]
async fn h21_the_reconciler_and_the_health_monitor_make_one_pass_in_an_interval() {
    let world = World::new().await;
    let (claim, volume) = world.monitored("claim").await;
    let mut both = monitor(json!({ "listInterval": "1s" }));
    both["roles"]["reconciler"] = json!({ "interval": "1s" });
    let daemon = world.daemon(both).await;
    world.ails(&volume, &[DEGRADED]);
    world.told_of(&claim, "something is wrong", |events| count(events, ABNORMAL) == 1).await;
    let begun = world.driver().calls_of(LIST).len();
    world.driver_until("five more passes", |driver| driver.calls_of(LIST).len() >= begun + 5).await;
    let calls = world.driver().calls_of(LIST);
    for pair in calls[begun - 1..].windows(2) {
        let pause = pair[1].started.saturating_sub(pair[0].ended.unwrap());
        assert!(pause.as_millis() >= 900, "{pause:?} between two passes");
    }
    world.ails(&volume, &[]);
    world.told_of(&claim, "all is well again", |events| count(events, NORMAL) == 1).await;
    assert!(world.calls(Method::ControllerGetVolume, &volume).is_empty(), "the list has all");
    daemon.stop().await.unwrap();
    assert_eq!(world.driver().violations(), []);
}

#[tokio::test]
async fn h22_a_driver_that_does_not_list_nodes_has_passes_for_health_alone() {
    let world = World::with_rpc(ControllerRpc::ListVolumesPublishedNodes, false).await;
    let (claim, volume) = world.monitored("claim").await;
    world.ails(&volume, &[DEGRADED]);
    let mut both = monitor(json!({}));
    both["roles"]["reconciler"] = json!({ "interval": "200ms" });
    let daemon = world.daemon(both).await;
    world.told_of(&claim, "something is wrong", |events| count(events, ABNORMAL) == 1).await;
    world.ails(&volume, &[]);
    world.told_of(&claim, "all is well again", |events| count(events, NORMAL) == 1).await;
    let status = world.status(&daemon).await;
    let role = status["roles"].as_array().unwrap().iter().find(|role| role["name"] == "reconciler").unwrap();
    let idle = json!({ "name": "idle", "value": "the driver does not list where its volumes are published" });
    assert_eq!(role["facts"], json!([idle]));
}

#[tokio::test]
async fn h23_claims_are_told_that_the_node_of_their_pods_is_gone_and_that_it_is_back() {
    let world = World::new().await;
    let (claim, _) = world.monitored("claim").await;
    let node = world.place("node", &[]).await;
    let daemon = world.daemon(monitor(json!({ "nodeWatch": true, "nodeDownAfter": "5s" }))).await;
    world.metrics_until(&daemon, "nodes are known", |metrics| known(metrics, "Node/status") >= 1.0).await;
    let pod = world.name("pod");
    let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
    let object = json!({ "metadata": { "name": pod }, "spec": { "nodeName": node, "volumes": volumes,
        "containers": [{ "name": "c", "image": "example.com/none" }] } });
    world.create_namespaced::<Pod>(object).await;
    world.metrics_until(&daemon, "pods are known", |metrics| known(metrics, "Pod") >= 1.0).await;
    world.all::<Node>().delete(&node, &DeleteParams::default()).await.unwrap();
    let told = world.told_of(&claim, "its node is gone", |events| count(events, NODE_FAILED) == 1).await;
    let text = format!("Pods: [ {pod} ] consuming PVC: {claim} in namespace: default are now on a failed node: {node}");
    assert!(told.iter().any(|event| says(event, NODE_FAILED, &text)), "{told:#?}");
    world.place("node", &[]).await;
    world.told_of(&claim, "its node is back", |events| count(events, NODE_RECOVERED) == 1).await;
    daemon.stop().await.unwrap();
}
