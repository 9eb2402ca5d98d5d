//! Cases in which the Go sidecar leaks volumes: a claim that is changed or deleted before the driver's final answer; a
//! crash; an API that refuses writes. Here the driver must always end up with exactly the volumes in the API.

use std::time::Duration;

use csi_control_plane::cluster::names;
use csi_control_plane::process::Clock;
use csi_control_plane::sandbox::driver::{Action, Driver, Fault, Lie, Method};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;
use tonic::Code;

use crate::cable::Line;
use crate::objects;
use crate::supplier::{create, figure, rights, says, supplier, unanswered};
use crate::supply::{phase, pool, zoned};
use crate::world::World;

const MADE: &str = "controller_persistentvolumeclaim_provision_total";

#[tokio::test]
async fn s0_a_claim_that_loses_its_node_in_background_and_is_deleted_leaves_nothing() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(json!({})).await;
    let node = world.node_in("n1", "z1").await;
    let class = world.waiting_class("class", json!({})).await;
    let claim = world.claim("claim", &class, json!({})).await;
    world.driver().inject(unanswered());
    world.select(&claim, Some(&node)).await;
    let before = world.asked(&claim, 1).await.len();
    world.select(&claim, None).await;
    world.asked(&claim, before + 1).await;
    world.delete_claim(&claim).await;
    world.driver().clear_faults();
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn s0_a_claim_that_somebody_binds_elsewhere_in_background_and_is_deleted_leaves_nothing() {
    let world = World::supplied(|_| {}).await;
    let _daemon = world.supplier(json!({})).await;
    let (_, claim) = world.unanswered_claim(json!({})).await;
    let before = world.asked(&claim, 1).await.len();
    world.patch_claim(&claim, json!({"spec": {"volumeName": world.name("another")}})).await;
    world.asked(&claim, before + 1).await;
    world.delete_claim(&claim).await;
    world.driver().clear_faults();
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn s0_a_clone_whose_source_is_deleted_midway_and_that_is_deleted_then_leaves_nothing() {
    let world = World::supplied(|_| {}).await;
    let _daemon = world.supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    let source = world.claim("source", &class, json!({})).await;
    world.supplied_with(&source).await;
    world.driver().inject(unanswered());
    let clone = world.claim_from("clone", &class, "PersistentVolumeClaim", &source).await;
    world.asked(&clone, 1).await;
    world.delete_claim(&source).await;
    let held = |it: &PersistentVolumeClaim| {
        it.metadata.deletion_timestamp.is_some() && it.finalizers().iter().any(|it| it == names::FINALIZER_CLONING)
    };
    world.claim_until(&source, "deleted, and held by its clone", held).await;
    world.delete_claim(&clone).await;
    world.driver().clear_faults();
    world.assert_all_gone(&[&clone, &source]).await;
}

#[tokio::test]
async fn r56_a_timeout_and_then_the_claims_deletion_leave_nothing_even_if_the_class_goes_too() {
    let world = World::supplied(|_| {}).await;
    let _daemon = world.supplier(json!({})).await;
    let (class, claim) = world.unanswered_claim(json!({})).await;
    world.all::<StorageClass>().delete(&class, &DeleteParams::default()).await.unwrap();
    world.delete_claim(&claim).await;
    world.driver().clear_faults();
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_claim_deleted_by_force_in_background_leaves_nothing_as_long_as_the_daemon_lives() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.supplier(json!({})).await;
    let (_, claim) = world.unanswered_claim(json!({})).await;
    world.delete_claim(&claim).await;
    world.patch_claim(&claim, json!({"metadata": {"finalizers": null}})).await;
    world.claim_gone(&claim).await;
    world.driver().clear_faults();
    world.assert_all_gone(&[&claim]).await;
    let reclaimed = |metrics: &str| figure(metrics, "csi_control_plane_volumes_reclaimed_total", &[]) == Some(1.0);
    world.metrics_until(&daemon, "the volume that was deleted again", reclaimed).await;
}

#[tokio::test]
async fn a_volume_that_nobody_wants_any_more_is_deleted_although_its_handle_is_its_name() {
    let world = World::supplied(|profile| profile.names_are_ids = true).await;
    let _daemon = world.supplier(json!({})).await;
    let (class, claim) = world.unanswered_claim(json!({})).await;
    world.delete_claim(&claim).await;
    world.driver().clear_faults();
    world.claim_gone(&claim).await;
    world.assert_all_gone(&[&claim]).await;
    let next = world.claim("next", &class, json!({})).await;
    world.supplied_with(&next).await;
    world.delete_claim(&next).await;
    world.assert_all_gone(&[&next]).await;
}

#[tokio::test]
async fn r33_a_final_error_after_the_claims_deletion_ends_the_work() {
    let world = World::supplied(|_| {}).await;
    let _daemon = world.supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::fail(Code::DeadlineExceeded, "slow")));
    let claim = world.claim("claim", &class, json!({})).await;
    world.asked(&claim, 1).await;
    let uid = world.claim_uid(&claim).await;
    world.delete_claim(&claim).await;
    world.driver().clear_faults();
    world.driver().inject(create(Action::fail(Code::ResourceExhausted, "full")));
    world.claim_gone(&claim).await;
    let asked = world.driver().creates_of(&format!("pvc-{uid}")).len();
    // Another claim goes the whole way; that one was not asked for again.
    world.driver().clear_faults();
    let next = world.claim("next", &class, json!({})).await;
    world.supplied_with(&next).await;
    assert_eq!(world.driver().creates_of(&format!("pvc-{uid}")).len(), asked);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_driver_that_makes_an_unusable_volume_of_a_new_id_each_time_is_told_of_once() {
    let world = World::supplied(|_| {}).await;
    let _daemon = world.supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::Lie(Lie::Size(5))).times(4));
    let claim = world.claim("claim", &class, json!({})).await;
    world.supplied_with(&claim).await;
    let events = world.claim_told(&claim, "ProvisioningSucceeded", "").await;
    let told: Vec<&Event> = events.iter().filter(|it| says(it, "ProvisioningFailed", "with 5 bytes")).collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 4, "one for each attempt");
}

#[tokio::test]
async fn a_final_error_makes_no_volume_disappear_that_was_found_unfit() {
    let world = World::supplied(|_| {}).await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::Lie(Lie::Size(5))));
    world.driver().inject(Fault::on(Method::DeleteVolume, Action::fail(Code::Unavailable, "not now")));
    let claim = world.claim("claim", &class, json!({})).await;
    let name = world.volume_name(&claim).await;
    let refuses = |driver: &Driver| !driver.calls_of(Method::DeleteVolume).is_empty();
    world.driver_until("asked to delete what is too small", refuses).await;
    let why = "which cannot be used (the driver created volume";
    let told = world.claim_told(&claim, "ProvisioningFailed", why).await;
    assert!(told.iter().any(|it| says(it, "ProvisioningFailed", "could not be deleted: ")), "{told:#?}");
    first.stop().await.unwrap();
    world.delete_claim(&claim).await;
    world.driver().clear_faults();
    // Its successor does not know the volume's id, and is told for good that there is none.
    world.driver().inject(create(Action::fail(Code::InvalidArgument, "never heard of it")).once());
    let before = world.driver().creates_of(&name).len();
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.claim_gone(&claim).await;
    assert_eq!(world.driver().creates_of(&name).len(), before + 2);
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn r9_r7_a_retry_asks_the_same_although_the_node_is_gone() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(json!({})).await;
    let (node, other) = (world.node_in("n1", "z2").await, world.node_in("n2", "z1").await);
    let class = world.waiting_class("class", json!({})).await;
    let claim = world.claim("claim", &class, json!({})).await;
    world.driver().inject(unanswered());
    world.select(&claim, Some(&node)).await;
    let before = world.asked(&claim, 1).await.len();
    for node in [&node, &other] {
        world.all::<k8s_openapi::api::core::v1::Node>().delete(node, &DeleteParams::default()).await.unwrap();
        world.all::<k8s_openapi::api::storage::v1::CSINode>().delete(node, &DeleteParams::default()).await.unwrap();
    }
    world.asked(&claim, before + 2).await;
    world.driver().clear_faults();
    world.supplied_with(&claim).await;
    let asked: Vec<_> = world.asked(&claim, 1).await.into_iter().map(|call| call.create.unwrap()).collect();
    assert!(asked.iter().all(|it| *it == asked[0]), "{asked:#?}");
    assert_eq!(asked[0].accessibility_requirements.as_ref().unwrap().preferred[0].segments[crate::supply::ZONE], "z2");
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r9_s0_a_successor_asks_again_for_the_same_place_although_the_node_is_gone() {
    let world = World::supplied(zoned([pool("z1", 10), pool("z2", 10), pool("z3", 10)])).await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    for (node, zone) in [("n1", "z1"), ("n2", "z2"), ("n3", "z3")] {
        world.node_in(node, zone).await;
    }
    let class = world.waiting_class("class", json!({})).await;
    let claim = world.claim("claim", &class, json!({})).await;
    world.driver().inject(unanswered());
    world.select(&claim, Some(&world.name("n2"))).await;
    let before = world.asked(&claim, 1).await.remove(0).create.unwrap();
    first.stop().await.unwrap();
    let node = world.name("n2");
    world.all::<k8s_openapi::api::core::v1::Node>().delete(&node, &DeleteParams::default()).await.unwrap();
    world.all::<k8s_openapi::api::storage::v1::CSINode>().delete(&node, &DeleteParams::default()).await.unwrap();
    world.driver().clear_faults();
    let count = world.driver().calls_of(Method::CreateVolume).len();
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.supplied_with(&claim).await;
    let after = world.driver().calls_of(Method::CreateVolume).remove(count).create.unwrap();
    assert_eq!(after, before);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_class_that_is_gone_keeps_what_was_begun_and_its_return_ends_it() {
    let world = World::supplied(|_| {}).await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    let (class, claim) = world.unanswered_claim(json!({})).await;
    first.stop().await.unwrap();
    world.all::<StorageClass>().delete(&class, &DeleteParams::default()).await.unwrap();
    world.driver().clear_faults();
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.claim_told(&claim, "ProvisioningFailed", &class).await;
    assert!(world.is_marked(&world.claim_now(&claim).await));
    world.class("class", json!({})).await;
    world.supplied_with(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r58_a_volume_that_cannot_be_saved_while_the_api_is_away_is_saved_later_and_never_deleted() {
    let world = World::supplied(|_| {}).await;
    let mut config = objects::config_with(supplier(json!({})));
    objects::merge(&mut config, json!({"leaderElection": {"leaseDuration": "60s", "renewDeadline": "50s"}}));
    let (daemon, cable) = world.ground().start_wired(&world.name("daemon"), &config.to_string()).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::Hold).once());
    let claim = world.claim("claim", &class, json!({})).await;
    world.asked(&claim, 1).await;
    cable.set(Line::Cut);
    world.driver().release();
    let unsaved = |metrics: &str| figure(metrics, "csi_control_plane_unsaved_volumes", &[]) == Some(1.0);
    world.metrics_until(&daemon, "a volume that is not saved", unsaved).await;
    assert_eq!(world.volumes().await.len(), 0);
    cable.set(Line::Up);
    world.supplied_with(&claim).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 0);
    world.assert_nothing_leaked().await;
    let saved = |metrics: &str| figure(metrics, "csi_control_plane_unsaved_volumes", &[]) == Some(0.0);
    world.metrics_until(&daemon, "nothing is unsaved", saved).await;
    world.claim_told(&claim, "ProvisioningSucceeded", &world.volume_name(&claim).await).await;
    assert_eq!(figure(&world.metrics(&daemon).await, MADE, &[&class]), Some(1.0));
}

#[tokio::test]
async fn r58_a_volume_that_the_daemon_may_not_save_is_told_and_kept_until_it_may() {
    let world = World::supplied(|_| {}).await;
    let (host, config) = (world.name("daemon"), objects::config_with(supplier(json!({}))));
    let daemon = world.daemon(supplier(json!({}))).await;
    let class = world.class("class", json!({})).await;
    let before = world.claim("before", &class, json!({})).await;
    world.supplied_with(&before).await;
    world.ground().grant(&host, &rights(&world, &config, Some(("create", "persistentvolumes")))).await;
    let claim = world.claim("claim", &class, json!({})).await;
    world.claim_told(&claim, "ProvisioningFailed", "forbidden").await;
    let unsaved = |metrics: &str| figure(metrics, "csi_control_plane_unsaved_volumes", &[]) == Some(1.0);
    world.metrics_until(&daemon, "a volume that is not saved", unsaved).await;
    assert!(world.is_marked(&world.claim_now(&claim).await));
    world.ground().grant(&host, &rights(&world, &config, None)).await;
    world.supplied_with(&claim).await;
    world.claim_told(&claim, "ProvisioningSucceeded", &world.volume_name(&claim).await).await;
    assert_eq!(figure(&world.metrics(&daemon).await, MADE, &[&class]), Some(2.0), "and the one before");
    assert_eq!(world.asked(&claim, 1).await.len(), 1, "made once");
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 0);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn s0_a_crash_with_a_volume_that_is_not_saved_leaves_a_claim_that_leads_to_it() {
    let world = World::supplied(|_| {}).await;
    let mut config = supplier(json!({}));
    objects::merge(&mut config, objects::short_lease());
    let of_first = objects::config_with(config.clone()).to_string();
    let (first, cable) = world.ground().start_wired(&world.name("first"), &of_first).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::Hold).once());
    let claim = world.claim("claim", &class, json!({})).await;
    world.asked(&claim, 1).await;
    cable.set(Line::Cut);
    world.driver().release();
    world.driver_until("made", |driver| driver.state().volumes().len() == 1).await;
    first.kill();
    assert!(world.is_marked(&world.claim_now(&claim).await));
    let _second = world.daemon_on("second", config).await;
    world.supplied_with(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn without_durable_intent_nothing_is_written_and_the_memory_alone_keeps_track() {
    let world = World::supplied(|_| {}).await;
    let _daemon = world.supplier(json!({"durableIntent": false})).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(unanswered());
    let claim = world.claim("claim", &class, json!({})).await;
    world.asked(&claim, 2).await;
    let before = world.claim_now(&claim).await;
    assert!(!world.is_marked(&before), "{before:#?}");
    // As with the Go sidecar, the claim goes at once; the volume after the final answer.
    world.delete_claim(&claim).await;
    world.claim_gone(&claim).await;
    world.driver().clear_faults();
    world.assert_all_gone(&[&claim]).await;

    let next = world.claim("next", &class, json!({})).await;
    let volume = world.bound(&next).await;
    let released = |it: &PersistentVolumeClaim| phase(it) == "Bound" && !world.is_marked(it);
    world.claim_until(&next, "bound", released).await;
    world.delete_claim(&next).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    world.assert_all_gone(&[&next]).await;
}

#[tokio::test]
async fn a_claim_that_is_deleted_before_anything_was_begun_is_left_alone() {
    let world = World::supplied(|_| {}).await;
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    let class = world.class("class", json!({})).await;
    let claim = world.claim("claim", &class, held).await;
    world.namespaced::<PersistentVolumeClaim>().delete(&claim, &DeleteParams::default()).await.unwrap();
    let _daemon = world.supplier(json!({})).await;
    let next = world.claim("next", &class, json!({})).await;
    world.supplied_with(&next).await;
    assert_eq!(world.driver().calls_of(Method::CreateVolume).len(), 1);
    assert!(!world.is_marked(&world.claim_now(&claim).await));
    world.patch_claim(&claim, json!({"metadata": {"finalizers": null}})).await;
    world.claim_gone(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_claim_that_waits_is_as_old_for_the_next_leader() {
    const OLDEST: &str = "csi_control_plane_claims_oldest_pending_age_seconds";
    let world = World::supplied(|_| {}).await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    let ours = json!({"metadata": {"annotations": {names::ANNOTATION_STORAGE_PROVISIONER: world.driver_name()}}});
    let claim = world.claim("claim", &world.name("no-such-class"), ours).await;
    world.claim_told(&claim, "ProvisioningFailed", "not found").await;
    let is_old = |metrics: &str| figure(metrics, OLDEST, &[]).is_some_and(|age| age >= 3.0);
    world.metrics_until(&first, "the claim has waited for three seconds", is_old).await;
    first.stop().await.unwrap();
    let second = world.daemon_on("second", supplier(json!({}))).await;
    let shown = |metrics: &str| figure(metrics, OLDEST, &[]).is_some_and(|age| age > 0.0);
    let metrics = world.metrics_until(&second, "the claim waits", shown).await;
    assert!(is_old(&metrics), "{metrics}");
    world.delete_claim(&claim).await;
}

#[tokio::test]
async fn a_call_that_takes_long_does_not_hold_up_the_release_of_others() {
    let world = World::supplied(|_| {}).await;
    let _daemon = world.supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::Hold).once());
    let held = world.claim("held", &class, json!({})).await;
    world.asked(&held, 1).await;
    let begun = Clock::system().now();
    let claim = world.claim("claim", &class, json!({})).await;
    world.supplied_with(&claim).await;
    // Half of what it would give way to claims for which something is to be written.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    world.driver().release();
    world.supplied_with(&held).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_successor_resumes_what_the_daemon_before_it_had_begun() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::DoneButHang).once());
    let claim = world.claim("claim", &class, json!({})).await;
    world.asked(&claim, 1).await;
    daemon.kill();
    world.claim_until(&claim, "still marked", |it| world.is_marked(it)).await;
    world.delete_claim(&claim).await;
    let _daemon = world.supplier(json!({})).await;
    world.assert_all_gone(&[&claim]).await;
}
