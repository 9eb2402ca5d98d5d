//! The provisioning finalizer on a claim when the write that adds or removes it fails.

use csi_control_plane::sandbox::api::faults::{Action, Fault};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{self, Method};
use serde_json::{Value, json};
use tonic::Code;

use super::{api, by_daemon};
use crate::supplier::{create, figure};
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
async fn the_drivers_last_word_is_kept_and_heeded_while_the_mark_cannot_be_taken_off() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.supplier(json!({ "retry": { "infeasible": "300s" } })).await;
    let class = world.class("class", json!({})).await;
    let claims = by_daemon(&world).verb("patch").resource("persistentvolumeclaims").name(world.name("claim"));
    let fault = api(&world).faults().add(Fault::on(claims, Action::Refuse(Rejection::internal("struck"))).nth(2));
    world.driver().inject(create(driver::Action::fail(Code::InvalidArgument, "no such colour")));
    let claim = world.claim("claim", &class, json!({})).await;
    world.claim_told(&claim, "ProvisioningFailed", "no such colour").await;
    assert_eq!(api(&world).faults().hits(fault), 1);
    let wait = |status: &Value| {
        let work = status["work"].as_array().cloned().unwrap_or_default();
        work.iter().find(|item| item["key"].as_str().is_some_and(|it| it.ends_with(&claim)))?["nextTrySeconds"].as_f64()
    };
    // With the jitter of a fifth.
    let waits = |status: &Value| wait(status).is_some_and(|wait| wait > 200.0);
    world.shows(&daemon, "it is not tried again soon", waits).await;
    assert_eq!(world.asked(&claim, 1).await.len(), 1);
    assert!(!world.is_marked(&world.claim_now(&claim).await));
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

#[tokio::test]
async fn a_volume_whose_claim_was_bound_elsewhere_while_it_could_not_be_saved_is_deleted_in_the_end() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    // No answer: for all that the daemon knows the object is stored, so that the volume is for its life cycle alone to delete.
    let creates = by_daemon(&world).verb("create").resource("persistentvolumes");
    let fault = api(&world).faults().add(Fault::on(creates, Action::CutBefore));
    let claim = world.claim("claim", &class, json!({})).await;
    let failed = |least: f64| move |metrics: &str| figure(metrics, FAILED, &[]).is_some_and(|count| count >= least);
    world.metrics_until(&daemon, "an attempt to save it has failed", failed(1.0)).await;
    world.patch_claim(&claim, json!({ "spec": { "volumeName": world.name("another") } })).await;
    let before = figure(&world.metrics(&daemon).await, FAILED, &[]).unwrap();
    world.metrics_until(&daemon, "two more attempts", failed(before + 2.0)).await;
    api(&world).faults().remove(fault);
    world.driver_until("deleted", |driver| driver.state().volumes().is_empty()).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 1);
    world.delete_claim(&claim).await;
    world.assert_all_gone(&[&claim]).await;
}
