//! Cases in which the Go sidecar leaks volumes: a claim that is changed or deleted before the driver's final answer; a
//! crash; an API that refuses writes. Here the driver must always end up with exactly the volumes in the API.

use csi_control_plane::cluster::names;
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
use crate::supply::{pool, zoned};
use crate::world::World;

const MADE: &str = "controller_persistentvolumeclaim_provision_total";

#[tokio::test]
async fn s0_a_claim_that_loses_its_node_in_background_and_is_deleted_leaves_nothing() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(json!({})).await;
    let node = world.node_in("n1", "z1").await;
    let (_, claim) = world.waiting_claim_anew("claim").await;
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
    let (world, _daemon) = World::with_supplier(json!({})).await;
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
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, source) = world.claim_anew("source").await;
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
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, claim) = world.unanswered_claim(json!({})).await;
    world.all::<StorageClass>().delete(&class, &DeleteParams::default()).await.unwrap();
    world.delete_claim(&claim).await;
    world.driver().clear_faults();
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_claim_that_is_deleted_in_background_is_gone_at_once_and_its_volume_after_the_final_answer() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    // The first claim of a term has the caches listed anew: what comes after it meets watches that run.
    let first = world.class("first-class", json!({})).await;
    let first = world.claim("first", &first, json!({})).await;
    world.supplied_with(&first).await;
    world.delete_claim(&first).await;
    world.assert_all_gone(&[&first]).await;
    let (_, claim) = world.unanswered_claim(json!({})).await;
    world.delete_claim_and_wait(&claim).await;
    assert_eq!(world.driver().state().volumes().len(), 1, "the driver has not answered yet");
    assert!(world.is_recorded(&claim).await);
    world.driver().clear_faults();
    world.assert_all_gone(&[&claim]).await;
    world.forgotten(&claim).await;
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
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, claim) = world.asked_claim(create(Action::fail(Code::DeadlineExceeded, "slow"))).await;
    let uid = world.claim_uid(&claim).await;
    world.delete_claim(&claim).await;
    world.driver().clear_faults();
    world.driver().inject(create(Action::fail(Code::ResourceExhausted, "full")));
    world.claim_gone(&claim).await;
    world.forgotten(&claim).await;
    let asked = world.driver().creates_of(&format!("pvc-{uid}")).len();
    // Another claim goes the whole way; the first one was not requested again.
    world.driver().clear_faults();
    let next = world.claim("next", &class, json!({})).await;
    world.supplied_with(&next).await;
    assert_eq!(world.driver().creates_of(&format!("pvc-{uid}")).len(), asked);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_driver_that_makes_an_unusable_volume_of_a_new_id_each_time_is_told_of_once() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
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
async fn an_unusable_volume_that_could_not_be_deleted_is_deleted_by_a_successor_without_another_request() {
    let (world, first) = World::with_supplier_on("first").await;
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
    let handle = world.driver().state().volumes().keys().next().unwrap().clone();
    assert_eq!(world.recorded(&claim).await["discarding"], handle.as_str());
    first.stop().await.unwrap();
    world.delete_claim(&claim).await;
    world.driver().clear_faults();
    // A no of the driver would be no reason to leave the volume where it is.
    world.driver().inject(create(Action::fail(Code::InvalidArgument, "never heard of it")));
    let before = world.driver().creates_of(&name).len();
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.assert_all_gone(&[&claim]).await;
    world.forgotten(&claim).await;
    assert_eq!(world.driver().creates_of(&name).len(), before);
}

#[tokio::test]
async fn no_error_is_final_for_a_successor_where_the_driver_has_created_a_volume_without_an_id() {
    let (world, first) = World::with_supplier_on("first").await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::Lie(Lie::NoVolume)));
    let claim = world.claim("claim", &class, json!({})).await;
    let name = world.volume_name(&claim).await;
    let uid = world.claim_uid(&claim).await;
    let is_known = |entry: Option<&serde_json::Value>| entry.is_some_and(|it| it["noErrorIsFinal"] == true);
    world.journal_until("no error is final", |it| is_known(it.get(&uid))).await;
    first.stop().await.unwrap();
    world.delete_claim(&claim).await;
    world.driver().clear_faults();
    world.driver().inject(create(Action::fail(Code::InvalidArgument, "never heard of it")).once());
    let before = world.driver().creates_of(&name).len();
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.assert_all_gone(&[&claim]).await;
    world.forgotten(&claim).await;
    assert_eq!(world.driver().creates_of(&name).len(), before + 2);
}

#[tokio::test]
async fn r9_r7_a_retry_asks_the_same_although_the_node_is_gone() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(json!({})).await;
    let (node, other) = (world.node_in("n1", "z2").await, world.node_in("n2", "z1").await);
    let (_, claim) = world.waiting_claim_anew("claim").await;
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
    let asked: Vec<_> = world.asked(&claim, 1).await.into_iter().map(|call| call.create.clone().unwrap()).collect();
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
    let (_, claim) = world.waiting_claim_anew("claim").await;
    world.driver().inject(unanswered());
    world.select(&claim, Some(&world.name("n2"))).await;
    let before = world.asked(&claim, 1).await.remove(0).create.clone().unwrap();
    first.stop().await.unwrap();
    let node = world.name("n2");
    world.all::<k8s_openapi::api::core::v1::Node>().delete(&node, &DeleteParams::default()).await.unwrap();
    world.all::<k8s_openapi::api::storage::v1::CSINode>().delete(&node, &DeleteParams::default()).await.unwrap();
    world.driver().clear_faults();
    let count = world.driver().calls_of(Method::CreateVolume).len();
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.supplied_with(&claim).await;
    let after = world.driver().calls_of(Method::CreateVolume).remove(count).create.clone().unwrap();
    assert_eq!(after, before);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_successor_finishes_what_was_begun_although_the_class_is_gone() {
    let (world, first) = World::with_supplier_on("first").await;
    let (class, claim) = world.unanswered_claim(json!({})).await;
    first.stop().await.unwrap();
    world.all::<StorageClass>().delete(&class, &DeleteParams::default()).await.unwrap();
    world.driver().clear_faults();
    let before = world.asked(&claim, 1).await;
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    let volume = world.supplied_with(&claim).await;
    assert_eq!(volume.spec.unwrap().storage_class_name, Some(class));
    let asked = world.asked(&claim, before.len() + 1).await;
    assert_eq!(asked.last().unwrap().create, before[0].create);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r58_a_volume_that_cannot_be_saved_while_the_api_is_away_is_saved_later_and_never_deleted() {
    let world = World::supplied(|_| {}).await;
    let mut config = objects::config_with(supplier(json!({})));
    objects::merge(&mut config, json!({"leaderElection": {"leaseDuration": "60s", "renewDeadline": "50s"}}));
    let (daemon, cable) = world.ground().start_wired(&world.name("daemon"), &config.to_string()).await;
    let (class, claim) = world.asked_claim(create(Action::Hold).once()).await;
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
    let (class, before) = world.claim_anew("before").await;
    world.supplied_with(&before).await;
    world.ground().grant(&host, &rights(&world, &config, Some(("create", "persistentvolumes")))).await;
    let claim = world.claim("claim", &class, json!({})).await;
    world.claim_told(&claim, "ProvisioningFailed", "forbidden").await;
    let unsaved = |metrics: &str| figure(metrics, "csi_control_plane_unsaved_volumes", &[]) == Some(1.0);
    world.metrics_until(&daemon, "a volume that is not saved", unsaved).await;
    assert!(world.is_recorded(&claim).await);
    world.ground().grant(&host, &rights(&world, &config, None)).await;
    world.supplied_with(&claim).await;
    world.claim_told(&claim, "ProvisioningSucceeded", &world.volume_name(&claim).await).await;
    assert_eq!(figure(&world.metrics(&daemon).await, MADE, &[&class]), Some(2.0), "and the one before");
    assert_eq!(world.asked(&claim, 1).await.len(), 1, "made once");
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 0);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn s0_a_crash_with_a_volume_that_is_not_saved_leaves_an_entry_that_leads_to_it() {
    let world = World::supplied(|_| {}).await;
    let mut config = supplier(json!({}));
    objects::merge(&mut config, objects::short_lease());
    let of_first = objects::config_with(config.clone()).to_string();
    let (first, cable) = world.ground().start_wired(&world.name("first"), &of_first).await;
    let (_, claim) = world.asked_claim(create(Action::Hold).once()).await;
    cable.set(Line::Cut);
    world.driver().release();
    world.driver_until("made", |driver| driver.state().volumes().len() == 1).await;
    first.kill();
    assert!(world.is_recorded(&claim).await);
    let _second = world.daemon_on("second", config).await;
    world.supplied_with(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn without_durable_intent_there_is_no_journal_and_the_memory_alone_keeps_track() {
    let (world, _daemon) = World::with_supplier(json!({"durableIntent": false})).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(unanswered());
    let claim = world.claim("claim", &class, json!({})).await;
    world.asked(&claim, 2).await;
    assert_eq!(world.segments().await, []);
    world.delete_claim_and_wait(&claim).await;
    world.driver().clear_faults();
    world.assert_all_gone(&[&claim]).await;

    let next = world.claim("next", &class, json!({})).await;
    let volume = world.supplied_with(&next).await;
    world.delete_claim(&next).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    world.assert_all_gone(&[&next]).await;
    assert_eq!(world.segments().await, []);
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
    assert!(!world.is_recorded(&claim).await);
    world.patch_claim(&claim, json!({"metadata": {"finalizers": null}})).await;
    world.claim_gone(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_claim_that_waits_is_as_old_for_the_next_leader() {
    const OLDEST: &str = "csi_control_plane_claims_oldest_pending_age_seconds";
    let (world, first) = World::with_supplier_on("first").await;
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
async fn calls_that_take_long_hold_up_no_other_claim() {
    const HELD: u32 = 5;
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::Hold).times(HELD));
    let mut held = Vec::new();
    for number in 0..HELD {
        let claim = world.claim(&format!("held-{number}"), &class, json!({})).await;
        world.asked(&claim, 1).await;
        held.push(claim);
    }
    // It is recorded although fewer wait for the write than are in progress.
    let claim = world.claim("claim", &class, json!({})).await;
    world.supplied_with(&claim).await;
    world.driver().release();
    for claim in &held {
        world.supplied_with(claim).await;
    }
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_successor_resumes_what_the_daemon_before_it_had_begun() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let (_, claim) = world.asked_claim(create(Action::DoneButHang).once()).await;
    daemon.kill();
    assert!(world.is_recorded(&claim).await);
    world.delete_claim_and_wait(&claim).await;
    let _daemon = world.supplier(json!({})).await;
    world.assert_all_gone(&[&claim]).await;
    world.forgotten(&claim).await;
}
