//! A kubelet that has lost the driver: its `CSINode` in an API server, and the played kubelet, which does not write it.

use crate::cluster::{ClusterAccess, CsiNode, ObjectName};
use crate::sandbox::driver::Profile;
use crate::sandbox::testbed::ADMIN_TOKEN;
use crate::sandbox::testbed::harness::RoleHarness;

use super::*;

/// The key, short: only `check` has a least value.
fn looking() -> Value {
    json!({ "csiNodeInterval": "50ms" })
}

fn csi_node(drivers: &Value) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": "node-1" },
        "spec": { "drivers": drivers },
    })
}

fn entry(name: &str) -> Value {
    json!([{ "name": name, "nodeID": "node-1" }])
}

#[tokio::test]
async fn a_driver_that_csinode_has_lost_is_announced_again() {
    let cluster = RoleHarness::with(Profile::with_nodes(["node-1"])).await;
    let (api, name) = (&cluster.context.api, ObjectName::cluster("node-1"));
    let mut node = Node::new();
    node.beside.context.cluster.access =
        ClusterAccess::Endpoint { dial: cluster.testbed.api_dial("daemon"), token: Some(ADMIN_TOKEN.into()) };
    let there = api.create::<CsiNode>(&name, &csi_node(&entry(DRIVER))).await.unwrap();
    let _server = node.beside.start_driver().await;
    let (_serving, kubelet) = (node.registrar_with(&looking()), node.kubelet());
    registered(&kubelet).await;
    let fact =
        async |text: &str| until(text, async || node.beside.fact(NAME, "CSINode").as_deref() == Some(text)).await;
    fact("has the driver").await;
    assert_eq!((node.announcements(), registrations(&kubelet)), (1, 1));

    // It is deleted by hand: the kubelet notices nothing.
    api.delete::<CsiNode>(&name, &there.metadata.uid).await.unwrap();
    until("it is registered again", async || registrations(&kubelet) >= 2).await;
    // Another driver's registration makes a CSINode in which ours is missing.
    let other = api.create::<CsiNode>(&name, &csi_node(&entry("other.csi.example.com"))).await.unwrap();
    fact("does not have the driver").await;
    let before = registrations(&kubelet);
    until("it is registered once more", async || registrations(&kubelet) > before).await;
    api.delete::<CsiNode>(&name, &other.metadata.uid).await.unwrap();
    api.create::<CsiNode>(&name, &csi_node(&entry(DRIVER))).await.unwrap();
    fact("has the driver").await;
    node.shows("registered").await;
    assert!(node.is_ready());
}

#[tokio::test]
async fn what_cannot_be_read_changes_nothing_and_is_shown() {
    for (missing, reason) in [
        (None, "NODE_NAME is not set"),
        (Some("node-1"), "cannot connect to the API server: cannot use the kubeconfig"),
    ] {
        let mut node = Node::new();
        node.beside.context.cluster.node = missing.map(str::to_owned);
        let _server = node.beside.start_driver().await;
        let (serving, kubelet) = (node.registrar_with(&looking()), node.kubelet());
        registered(&kubelet).await;
        let shows = || node.beside.fact(NAME, "CSINode").is_some_and(|fact| fact.starts_with(reason));
        until(reason, async || shows()).await;
        node.shows("registered").await;
        assert_eq!((node.announcements(), node.is_ready()), (1, true));
        assert!(serving.take_over(&node.section(&json!({}))));
        until("nobody looks", async || node.beside.fact(NAME, "CSINode").is_none()).await;
    }
}
