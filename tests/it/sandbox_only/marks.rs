//! Our mark on a claim when the write that puts it there, or takes it off, goes wrong.

use csi_control_plane::sandbox::api::faults::{Action, Fault};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use serde_json::json;

use super::{api, by_daemon};
use crate::supplier::figure;
use crate::world::World;

const MADE: &str = "controller_persistentvolumeclaim_provision_total";
const FAILED: &str = "controller_persistentvolumeclaim_provision_failed_total";

#[tokio::test]
async fn a_claim_whose_mark_stays_for_a_while_was_provisioned_all_the_same() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    let claims = || by_daemon(&world).verb("patch").resource("persistentvolumeclaims").name(world.name("claim"));
    // The first puts the mark there.
    let struck = Action::Refuse(Rejection::internal("struck"));
    let faults = [2, 3].map(|nth| api(&world).faults().add(Fault::on(claims(), struck.clone()).nth(nth)));
    let claim = world.claim("claim", &class, json!({})).await;
    world.supplied_with(&claim).await;
    assert!(faults.into_iter().all(|fault| api(&world).faults().hits(fault) == 1));
    let metrics = world.metrics(&daemon).await;
    assert_eq!(figure(&metrics, MADE, &[&class]), Some(1.0), "{metrics}");
    assert_eq!(figure(&metrics, FAILED, &[&class]), None, "{metrics}");
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_mark_that_may_be_anybodys_is_resumed_and_the_driver_is_asked_once() {
    let world = World::supplied(|_| {}).await;
    let _daemon = world.supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    let claims = by_daemon(&world).verb("patch").resource("persistentvolumeclaims");
    let lost = Action::RefuseAfter(Rejection::internal("struck"));
    let fault = api(&world).faults().add(Fault::on(claims, lost).nth(1));
    let claim = world.claim("claim", &class, json!({})).await;
    world.supplied_with(&claim).await;
    assert_eq!(api(&world).faults().hits(fault), 1);
    assert_eq!(world.asked(&claim, 1).await.len(), 1);
    world.assert_nothing_leaked().await;
}
