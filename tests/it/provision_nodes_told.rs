//! Which daemon writes a claim's Events with one daemon per node: only that of the claim's node. For a claim without a
//! node, the daemon that takes it reports errors that every node would have.

use csi_control_plane::cluster::names;
use k8s_openapi::api::core::v1::Event;
use serde_json::json;

use super::provision_nodes::Local;
use crate::supplier::{figure, says};
use crate::supply::SELECTED_NODE;
use crate::world::World;

impl World {
    /// Waits until what the nodes' daemons have had to tell so far is written: each writes its Events in their order.
    async fn nodes_have_told(&self, locals: &[Local]) {
        for (number, local) in locals.iter().enumerate() {
            let of_node = json!({ "metadata": { "annotations": { SELECTED_NODE: local.node,
                names::ANNOTATION_STORAGE_PROVISIONER: self.driver_name() } } });
            let last = self.claim(&format!("last-{number}"), &self.name("no-class"), of_node).await;
            self.claim_told(&last, "ProvisioningFailed", "failed to provision volume").await;
        }
    }

    /// How many Events on a claim have this reason.
    async fn times_told(&self, claim: &str, reason: &str, text: &str) -> usize {
        let events = self.events_on(&self.claim_uid(claim).await).await;
        events.iter().filter(|event: &&Event| says(event, reason, text)).count()
    }
}

#[tokio::test]
async fn a_claim_whose_class_is_missing_is_told_by_the_daemon_of_its_node_alone() {
    let (world, locals) = Local::each(["n1", "n2"]).await;
    let _daemons = (locals[0].daemon(&world, json!({})).await, locals[1].daemon(&world, json!({})).await);
    // As Kubernetes has left it when there still was a class.
    let ours = json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: world.driver_name() } } });
    let missing = world.name("class");
    let nobodys = world.claim("nobodys", &missing, ours.clone()).await;
    let mut claims = Vec::new();
    for local in &locals {
        let claim = world.claim(&format!("of-{}", claims.len()), &missing, ours.clone()).await;
        world.select(&claim, Some(&local.node)).await;
        let told = "failed to provision volume: StorageClass";
        world.claim_told(&claim, "ProvisioningFailed", told).await;
        claims.push(claim);
    }
    // Each daemon writes its Events in their order, so that it would have told of the claims before its own as well.
    let told = async |claim: &str| {
        let events = world.events_on(&world.claim_uid(claim).await).await;
        events.iter().filter(|event: &&Event| says(event, "ProvisioningFailed", "failed to provision volume")).count()
    };
    assert_eq!((told(&claims[0]).await, told(&nobodys).await), (1, 0));
    world.class("class", json!({})).await;
    world.supplied_with(&nobodys).await;
    for (claim, local) in claims.iter().zip(&locals) {
        world.on_node(claim, local).await;
        assert_eq!(told(claim).await, 1);
    }
}

#[tokio::test]
async fn a_claim_without_a_node_that_nobody_can_ask_for_is_taken_and_told_of_by_one_node() {
    let (world, locals) = Local::each(["n1", "n2"]).await;
    let hasty = json!({ "nodeDeployment": { "baseDelay": "1ms", "maxDelay": "2ms" } });
    let daemons = [locals[0].daemon(&world, hasty.clone()).await, locals[1].daemon(&world, hasty).await];
    let secret = json!({ "parameters": { "csi.storage.k8s.io/provisioner-secret-name": world.name("none"),
        "csi.storage.k8s.io/provisioner-secret-namespace": "default" } });
    let misspelt = json!({ "parameters": { "csi.storage.k8s.io/no-such-parameter": "x" } });
    let mut claims = Vec::new();
    for (short, class, source) in [("clone", json!({}), "source"), ("secret", secret, ""), ("misspelt", misspelt, "")] {
        let class = world.class(&format!("{short}-class"), class).await;
        let claim = match source {
            "" => world.claim(short, &class, json!({})).await,
            source => world.claim_from(short, &class, "PersistentVolumeClaim", &world.name(source)).await,
        };
        let taker = world.selected(&claim).await;
        world.claim_told(&claim, "ProvisioningFailed", "failed to provision volume").await;
        claims.push((claim, class, taker));
    }
    world.nodes_have_told(&locals).await;
    for (claim, class, taker) in &claims {
        assert_eq!(world.times_told(claim, "ProvisioningFailed", "failed to provision volume").await, 1, "{claim}");
        for (local, daemon) in locals.iter().zip(&daemons) {
            let failed = "controller_persistentvolumeclaim_provision_failed_total";
            let failures = figure(&world.metrics(daemon).await, failed, &[class]);
            assert_eq!(failures.is_some_and(|count| count >= 1.0), local.node == *taker, "{claim}: {failures:?}");
        }
    }
    let (clone, class, taker) = &claims[0];
    let of_taker = json!({ "metadata": { "annotations": { SELECTED_NODE: taker } } });
    world.claim("source", class, of_taker).await;
    world.on_node(clone, locals.iter().find(|local| local.node == *taker).unwrap()).await;
}

#[tokio::test]
async fn a_claim_that_a_populator_serves_is_told_so_by_one_node() {
    let (world, locals) = Local::each(["n1", "n2"]).await;
    let hasty = json!({ "nodeDeployment": { "baseDelay": "1ms", "maxDelay": "2ms" } });
    let _daemons = [locals[0].daemon(&world, hasty.clone()).await, locals[1].daemon(&world, hasty).await];
    let (now, later) = (world.class("now", json!({})).await, world.waiting_class("later", json!({})).await);
    let dump = json!({ "spec": { "dataSourceRef": { "apiGroup": "example.com", "kind": "Dump", "name": "monday" } } });
    let mut on_node = dump.clone();
    on_node["metadata"] = json!({ "annotations": { SELECTED_NODE: locals[0].node } });
    let claims = [
        world.claim("waiting", &later, on_node.clone()).await,
        world.claim("immediate", &now, on_node).await,
        world.claim("free", &now, dump).await,
    ];
    for claim in &claims {
        world.claim_told(claim, "Provisioning", "populator").await;
    }
    world.nodes_have_told(&locals).await;
    for claim in &claims {
        assert_eq!(world.times_told(claim, "Provisioning", "populator").await, 1, "{claim}");
    }
    for local in &locals {
        local.assert_left_alone();
    }
}
