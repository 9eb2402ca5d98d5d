//! Claims that change their attributes class: the calls to the driver, the writes, and what is repeated.

use std::time::Duration;

use csi_control_plane::sandbox::driver::{Action, Method};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::DeleteParams;
use serde_json::json;
use tonic::Code;

use crate::objects::{merge, short_lease};
use crate::resizing::{CURRENT, MODIFY, STATE, at, conditions, expanding, modifying, resizer};
use crate::supplier::{figure, says, slow};
use crate::world::World;

#[tokio::test]
async fn z35_z37_z46_a_claim_gets_its_first_class_and_another_one() {
    let (world, daemon) = World::with_resizer(slow()).await;
    let (claim, volume) = world.sizable("claim", json!({})).await;
    let (gold, silver) = (world.attributes("gold", "100").await, world.attributes("silver", "50").await);
    for (class, iops) in [(&gold, "100"), (&silver, "50")] {
        world.driver().inject(modifying(Action::Hold).once());
        world.ask_for_class(&claim, class).await;
        let begun = world.modify_state(&claim, "InProgress").await;
        assert_eq!(at(&begun, "/status/modifyVolumeStatus/targetVolumeAttributesClassName"), **class);
        assert_eq!(conditions(&begun), ["ModifyingVolume"]);
        world
            .driver_until("asked", |driver| {
                driver.calls_of(Method::ControllerModifyVolume).iter().any(|call| call.ended.is_none())
            })
            .await;
        world.driver().release();
        world.classed(&claim, class).await;
        let volume = world.all::<PersistentVolume>().get(&volume).await.unwrap();
        assert_eq!(at(&volume, "/spec/volumeAttributesClassName"), **class);
        assert_eq!(world.modifications().last().unwrap()["iops"], iops);
        assert_eq!(world.modifications().last().unwrap().len(), 1, "no names without the switch");
    }
    let short = world.name("claim");
    let text = format!("external resizer modified volume {short} with vac {silver} successfully");
    world.claim_told(&claim, "VolumeModifySuccessful", &text).await;
    let reasons = world.reasons(&claim).await;
    assert_eq!(reasons, ["VolumeModify", "VolumeModify", "VolumeModifySuccessful", "VolumeModifySuccessful"]);
    let done = "csi_control_plane_claim_change_duration_seconds_count";
    let counted = |metrics: &str| figure(metrics, done, &["modify"]) == Some(2.0);
    world.metrics_until(&daemon, "two modifications are counted", counted).await;
}

#[tokio::test]
async fn z38_z39_a_class_that_comes_after_the_wish_is_used_at_once() {
    let (world, daemon) = World::with_resizer(slow()).await;
    let (claim, _) = world.sizable("claim", json!({})).await;
    let name = world.name("late");
    world.ask_for_class(&claim, &name).await;
    world.modify_state(&claim, "Pending").await;
    world.claim_told(&claim, "VolumeModifyFailed", &format!("VAC \"{name}\" does not exist.")).await;
    let waits = |metrics: &str| figure(metrics, "csi_control_plane_claims_waiting", &["classMissing"]) == Some(1.0);
    world.metrics_until(&daemon, "it waits for its class", waits).await;
    world.attributes("late", "100").await;
    world.classed(&claim, &name).await;
    assert_eq!(world.modifications().len(), 1);
    let reasons = world.reasons(&claim).await;
    assert_eq!(reasons.iter().filter(|it| *it == "VolumeModifyFailed").count(), 1, "{reasons:?}");
}

#[tokio::test]
async fn z40_z41_an_infeasible_class_is_asked_for_once_a_pause_and_the_way_back_at_once() {
    let (world, _daemon) = World::with_resizer(slow()).await;
    let (claim, _) = world.sizable("claim", json!({})).await;
    let (good, bad) = (world.attributes("good", "100").await, world.attributes("bad", "1").await);
    world.ask_for_class(&claim, &good).await;
    world.classed(&claim, &good).await;
    world.driver().inject(modifying(Action::fail(Code::InvalidArgument, "too slow")).once());
    world.ask_for_class(&claim, &bad).await;
    let refused = world.modify_state(&claim, "Infeasible").await;
    let of = |kind: &str| refused.status.clone().unwrap().conditions.unwrap().into_iter().find(|it| it.type_ == kind);
    let (modifying, error) = (of("ModifyingVolume").unwrap(), of("ModifyVolumeError").unwrap());
    let text = format!("Modifying volume to \"{bad}\" failed. Waiting for retry.");
    assert_eq!(modifying.message, Some(text));
    assert_eq!((error.reason.as_deref(), error.message.as_deref()), (Some("InvalidArgument"), Some("too slow")));
    let events = world.claim_told(&claim, "VolumeModifyFailed", "too slow").await;
    let text = "rpc error: code = InvalidArgument desc = too slow";
    assert!(events.iter().any(|it| says(it, "VolumeModifyFailed", text)), "{events:#?}");
    world.ask_for_class(&claim, &good).await;
    world.classed(&claim, &good).await;
    let asked: Vec<String> = world.modifications().iter().map(|it| it["iops"].clone()).collect();
    assert_eq!(asked, ["100", "1", "100"], "nothing is assumed about what the refused class has left behind");
}

#[tokio::test]
async fn z43_z44_what_may_still_be_running_is_asked_for_again_also_after_a_restart() {
    for restarts in [false, true] {
        let world = World::supplied(|_| {}).await;
        let mut daemon = Some(world.resizer(json!({})).await);
        let (claim, _) = world.sizable("claim", json!({})).await;
        let (first, second) = (world.attributes("first", "1").await, world.attributes("second", "2").await);
        world.driver().inject(modifying(Action::fail(Code::Aborted, "busy")));
        world.ask_for_class(&claim, &first).await;
        let text = format!("rpc error: code = Aborted desc = busy. Still modifying to VAC {first}");
        world.claim_told(&claim, "VolumeModifyFailed", &text).await;
        if restarts {
            daemon.take().unwrap().stop().await.unwrap();
        }
        world.ask_for_class(&claim, &second).await;
        if restarts {
            daemon = Some(world.daemon_on("successor", resizer(json!({}))).await);
        }
        let before = world.modifications().len();
        world.modified_times(before + 2).await;
        world.driver().clear_faults();
        world.classed(&claim, &second).await;
        let asked: Vec<String> = world.modifications().iter().map(|it| it["iops"].clone()).collect();
        let (last, others) = asked.split_last().unwrap();
        assert!(last == "2" && others.iter().all(|it| it == "1"), "restarts: {restarts}: {asked:?}");
        assert!(!daemon.unwrap().has_ended());
    }
}

/// The next leader asks for the class that the user wants by then, whatever the driver would grant.
#[tokio::test]
async fn z14_a_class_that_was_refused_is_not_asked_for_again_by_the_next_leader() {
    for code in [Code::InvalidArgument, Code::FailedPrecondition, Code::Internal] {
        for is_killed in [false, true] {
            let world = World::supplied(|_| {}).await;
            let mut config = resizer(slow());
            merge(&mut config, short_lease());
            let former = world.daemon(config.clone()).await;
            let (claim, _) = world.sizable("claim", json!({})).await;
            let (bad, good) = (world.attributes("bad", "1").await, world.attributes("good", "2").await);
            world.driver().inject(modifying(Action::fail(code, "no")).once());
            world.ask_for_class(&claim, &bad).await;
            let failed = |it: &PersistentVolumeClaim| conditions(it).contains(&"ModifyVolumeError".to_owned());
            world.claim_until(&claim, "told why", failed).await;
            if is_killed {
                former.kill();
            } else {
                former.stop().await.unwrap();
            }
            world.ask_for_class(&claim, &good).await;
            let _successor = world.daemon_on("successor", config).await;
            world.classed(&claim, &good).await;
            let asked: Vec<String> = world.modifications().iter().map(|it| it["iops"].clone()).collect();
            assert_eq!(asked, ["1", "2"], "{code:?}, killed: {is_killed}");
        }
    }
}

/// The driver is asked again for what it has refused, has changed its mind, and the leader dies before the answer.
#[tokio::test]
async fn z14_z44_a_refused_class_that_is_being_asked_for_again_is_no_longer_one_that_was_refused() {
    for code in [Code::InvalidArgument, Code::Internal] {
        let world = World::supplied(|_| {}).await;
        let mut config = resizer(json!({}));
        merge(&mut config, short_lease());
        let dying = world.daemon(config.clone()).await;
        let (claim, _) = world.sizable("claim", json!({})).await;
        let (first, second) = (world.attributes("first", "1").await, world.attributes("second", "2").await);
        world.driver().inject(modifying(Action::fail(code, "not now")).once());
        world.driver().inject(modifying(Action::DoneButHang).once());
        world.ask_for_class(&claim, &first).await;
        world.modified_times(2).await;
        let runs = world.claim_now(&claim).await;
        assert_eq!(at(&runs, "/status/modifyVolumeStatus/status"), "InProgress", "{code:?}");
        dying.kill();
        world.ask_for_class(&claim, &second).await;
        let _successor = world.daemon_on("successor", config).await;
        world.classed(&claim, &second).await;
        let asked: Vec<String> = world.modifications().iter().map(|it| it["iops"].clone()).collect();
        assert_eq!(asked, ["1", "1", "1", "2"], "{code:?}");
    }
}

#[tokio::test]
async fn z42_a_first_class_that_was_refused_can_be_taken_back() {
    let (world, _daemon) = World::with_resizer(slow()).await;
    let (claim, _) = world.sizable("claim", json!({})).await;
    let class = world.attributes("bad", "1").await;
    world.driver().inject(modifying(Action::fail(Code::InvalidArgument, "no")).once());
    world.ask_for_class(&claim, &class).await;
    world.modify_state(&claim, "Infeasible").await;
    world.patch_claim(&claim, json!({"spec": {"volumeAttributesClassName": null}})).await;
    world.claim_told(&claim, "VolumeModifyCanceled", "Cancelled modify.").await;
    let left = |it: &PersistentVolumeClaim| !conditions(it).contains(&"ModifyingVolume".to_owned());
    let cancelled = world.claim_until(&claim, "cancelled", left).await;
    assert_eq!((at(&cancelled, CURRENT), world.modifications().len()), (json!(null), 1));
}

#[tokio::test]
async fn z45_z46_the_secret_of_the_volume_and_the_names_of_the_claim_go_with_the_call() {
    let (world, _daemon) = World::with_resizer(json!({"extraModifyMetadata": true})).await;
    let (claim, volume) = world.sizable("claim", json!({})).await;
    let secret = world.name("secret");
    let key = |suffix: &str| format!("volume.kubernetes.io/controller-modify-secret-{suffix}");
    let annotations = json!({key("name"): secret, key("namespace"): "default"});
    world.merge_patch::<PersistentVolume>(&volume, json!({"metadata": {"annotations": annotations}})).await;
    let class = world.attributes("gold", "100").await;
    // The demo driver knows which keys it takes.
    world.driver().change_profile(|profile| {
        for key in ["pvc/name", "pvc/namespace", "pv/name"] {
            profile.mutable_parameters.insert(format!("csi.storage.k8s.io/{key}"));
        }
    });
    world.ask_for_class(&claim, &class).await;
    world.claim_told(&claim, "VolumeModifyFailed", &format!("error getting secret {secret}")).await;
    assert_eq!(at(&world.claim_now(&claim).await, MODIFY), json!(null), "nothing has begun");
    world.secret(&secret, &[("password", b"hunter2")]).await;
    world.classed(&claim, &class).await;
    assert!(world.driver().calls_of(Method::ControllerModifyVolume)[0].secrets);
    let asked = world.modifications().remove(0);
    assert_eq!(asked["csi.storage.k8s.io/pvc/name"], claim);
    assert_eq!(asked["csi.storage.k8s.io/pvc/namespace"], "default");
    assert_eq!(asked["csi.storage.k8s.io/pv/name"], volume);
    let class = world.all::<VolumeAttributesClass>().get(&class).await.unwrap();
    assert_eq!(class.parameters.unwrap().len(), 1, "the class itself is unchanged");
}

#[tokio::test]
async fn z48_the_parameters_of_another_driver_never_reach_ours() {
    let (world, _daemon) = World::with_resizer(slow()).await;
    let (claim, _) = world.sizable("claim", json!({})).await;
    let name = world.name("foreign");
    let of = |driver: &str| json!({"metadata": {"name": name}, "driverName": driver, "parameters": {"iops": "1"}});
    world.create::<VolumeAttributesClass>(of("other.example.com")).await;
    let text = format!("VAC \"{name}\" is for driver \"other.example.com\", not \"{}\".", world.driver_name());
    let refused = async || {
        world.ask_for_class(&claim, &name).await;
        let refused = world.modify_state(&claim, "Infeasible").await;
        assert_eq!(at(&refused, "/status/modifyVolumeStatus/targetVolumeAttributesClassName"), *name);
        assert_eq!(conditions(&refused), ["ModifyVolumeError"], "nothing is being modified");
        let told = refused.status.unwrap().conditions.unwrap();
        let error = told.iter().find(|it| it.type_ == "ModifyVolumeError").unwrap();
        assert_eq!(error.reason.as_deref(), Some("ForeignClass"));
        assert_eq!(error.message.as_deref(), Some(&*text));
    };
    refused().await;
    world.claim_told(&claim, "VolumeModifyFailed", &text).await;
    // It recovers when the claim names a good class.
    let own = world.attributes("own", "100").await;
    world.ask_for_class(&claim, &own).await;
    world.classed(&claim, &own).await;
    // A class does not change, and stays as long as a claim names it. Then another one may come under its name.
    refused().await;
    world.all::<VolumeAttributesClass>().delete(&name, &DeleteParams::default()).await.unwrap();
    assert!(world.all::<VolumeAttributesClass>().get(&name).await.is_ok(), "the claim names it");
    world.ask_for_class(&claim, &own).await;
    world.gone::<VolumeAttributesClass>(&name).await;
    world.create::<VolumeAttributesClass>(of(world.driver_name())).await;
    world.ask_for_class(&claim, &name).await;
    world.classed(&claim, &name).await;
    let asked: Vec<String> = world.modifications().iter().map(|it| it["iops"].clone()).collect();
    assert_eq!(asked.first().zip(asked.last()), Some((&"100".to_owned(), &"1".to_owned())), "{asked:?}");
    assert_eq!(asked.iter().filter(|it| *it == "1").count(), 1, "the other driver's were never sent: {asked:?}");
}

#[tokio::test]
async fn z49_z50_both_wishes_at_once_are_served_one_after_the_other_or_together_where_the_driver_needs_that() {
    for (pairs, together) in [("never", false), ("always", true)] {
        // The demo driver refuses two calls for one volume; the one that needs pairs does not.
        let world = World::supplied(|profile| profile.abort_while_pending = false).await;
        let daemon = world.resizer(json!({"pairCalls": pairs, "retry": slow()["retry"].clone()})).await;
        let (claim, _) = world.sizable_device("claim").await;
        let class = world.attributes("gold", "100").await;
        let slowly = Action::Delay(Duration::from_millis(500));
        world.driver().inject(expanding(slowly.clone()));
        world.driver().inject(modifying(slowly));
        let both = json!({"spec": {"volumeAttributesClassName": class, "resources": {"requests": {"storage": "2Gi"}}}});
        world.patch_claim(&claim, both).await;
        world.sized(&claim, "2Gi").await;
        world.classed(&claim, &class).await;
        let start = |method| world.driver().calls_of(method)[0].started;
        let (expanded, modified) = (start(Method::ControllerExpandVolume), start(Method::ControllerModifyVolume));
        assert_eq!(modified.abs_diff(expanded) < Duration::from_millis(400), together, "{expanded:?} {modified:?}");
        assert_eq!((world.sizes_asked().len(), world.modifications().len()), (1, 1));
        let failed = world.metrics(&daemon).await;
        assert_eq!(figure(&failed, "csi_control_plane_claim_change_errors_total", &[]), None, "{failed}");
    }
}

#[tokio::test]
async fn z52_one_job_that_pauses_does_not_hold_up_the_other() {
    let (world, _daemon) = World::with_resizer(slow()).await;
    let (claim, _) = world.sizable_device("claim").await;
    let (bad, good) = (world.attributes("bad", "1").await, world.attributes("good", "100").await);
    world.driver().inject(modifying(Action::fail(Code::InvalidArgument, "no")).once());
    world.ask_for_class(&claim, &bad).await;
    world.modify_state(&claim, "Infeasible").await;
    world.ask_for(&claim, "2Gi").await;
    world.sized(&claim, "2Gi").await;
    world.driver().inject(expanding(Action::fail(Code::OutOfRange, "no")).once());
    world.ask_for(&claim, "9Gi").await;
    world.in_state(&claim, "ControllerResizeInfeasible").await;
    world.ask_for_class(&claim, &good).await;
    world.classed(&claim, &good).await;
    let still = world.claim_now(&claim).await;
    assert_eq!(at(&still, STATE), "ControllerResizeInfeasible");
}
