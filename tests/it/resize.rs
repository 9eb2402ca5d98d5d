//! Claims that grow: the calls to the driver, the writes, and what is repeated.

use std::time::Duration;

use csi_control_plane::proto::volume_capability::AccessType;
use csi_control_plane::proto::volume_capability::access_mode::Mode;
use csi_control_plane::sandbox::driver::{Action, Lie};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use serde_json::json;
use tonic::Code;

use crate::logs;
use crate::objects::{merge, short_lease};
use crate::resizing::{ALLOCATED, CAPACITY, GIB, NOT_REQUIRED, STATE, at, conditions, expanding, resizer};
use crate::supplier::{figure, says, slow};
use crate::world::World;

#[tokio::test]
async fn z7_z11_z27_a_device_grows_and_what_its_driver_made_of_it_is_recorded() {
    let (world, daemon) = World::with_resizer(slow()).await;
    let (claim, volume) = world.sizable_device("claim").await;
    world.driver().inject(expanding(Action::Hold).once());
    world.ask_for(&claim, "2Gi").await;
    world.expanded_times(1).await;
    let begun = world.claim_now(&claim).await;
    assert_eq!((at(&begun, STATE), at(&begun, ALLOCATED)), (json!("ControllerResizeInProgress"), json!("2Gi")));
    assert_eq!(conditions(&begun), ["Resizing"]);
    // Another program writes to the claim meanwhile.
    world.patch_claim(&claim, json!({"metadata": {"labels": {"colour": "blue"}}})).await;
    world.driver().release();
    let grown = world.sized(&claim, "2Gi").await;
    assert_eq!((at(&grown, NOT_REQUIRED), at(&grown, ALLOCATED)), (json!("true"), json!("2Gi")));
    assert_eq!(world.recorded_size(&volume).await, "2Gi");
    world.claim_told(&claim, "VolumeResizeSuccessful", "Resize volume succeeded").await;
    assert_eq!(world.sizes_asked(), [2.0]);
    assert_eq!(world.reasons(&claim).await, ["Resizing", "VolumeResizeSuccessful"]);

    // The driver makes the volume larger than requested, and a request below that size needs no call.
    let larger = Action::Lie(Lie::Size(5 * GIB));
    world.driver().inject(expanding(larger).once());
    world.ask_for(&claim, "3Gi").await;
    world.sized(&claim, "5Gi").await;
    assert_eq!(world.recorded_size(&volume).await, "5Gi");
    world.ask_for(&claim, "4Gi").await;
    world.driver().inject(expanding(Action::Hold).once());
    world.ask_for(&claim, "6Gi").await;
    world.expanded_times(3).await;
    assert_eq!(at(&world.claim_now(&claim).await, NOT_REQUIRED), json!(null), "a node may have to act again");
    world.driver().release();
    world.sized(&claim, "6Gi").await;
    assert_eq!(world.sizes_asked(), [2.0, 3.0, 6.0]);
    // The time is counted after the write that the scenario waits for.
    let done = "csi_control_plane_claim_change_duration_seconds_count";
    let counted = |metrics: &str| figure(metrics, done, &["expand"]) == Some(3.0);
    world.metrics_until(&daemon, "three expansions are counted", counted).await;
    world.assert_no_overlap();
}

#[tokio::test]
async fn z4_z11_z15_z16_a_node_finishes_before_the_next_size_begins() {
    let (world, daemon) = World::with_resizer(slow()).await;
    let (claim, volume) = world.sizable("claim", json!({})).await;
    // The log line of an expansion that no node had to finish.
    let key = "volume.kubernetes.io/node-expansion-not-required";
    world.patch_claim(&claim, json!({"metadata": {"annotations": {key: "true"}}})).await;
    world.ask_for(&claim, "2Gi").await;
    let pending = world.in_state(&claim, "NodeResizePending").await;
    assert_eq!((at(&pending, CAPACITY), world.recorded_size(&volume).await), (json!("1Gi"), json!("2Gi")));
    assert!(conditions(&pending).contains(&"FileSystemResizePending".to_owned()));
    assert_eq!(at(&pending, NOT_REQUIRED), json!(null));
    world.claim_told(&claim, "FileSystemResizeRequired", "Require file system resize of volume on node").await;
    // All later changes wait, also another request.
    world.patch_claim(&claim, json!({"metadata": {"labels": {"colour": "blue"}}})).await;
    world.ask_for(&claim, "3Gi").await;
    world.write_status(&claim, json!({"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}})).await;
    let waits = |metrics: &str| figure(metrics, "csi_control_plane_claims_waiting", &["\"node\""]) == Some(1.0);
    world.metrics_until(&daemon, "it waits for its node", waits).await;
    assert_eq!(world.sizes_asked(), [2.0]);
    world.kubelet_expands(&claim, &volume).await;
    world.expanded_times(2).await;
    world.in_state(&claim, "NodeResizePending").await;
    world.kubelet_expands(&claim, &volume).await;
    let grown = world.sized(&claim, "3Gi").await;
    assert_eq!(at(&grown, NOT_REQUIRED), json!(null), "the node was required");
    assert_eq!(world.sizes_asked(), [2.0, 3.0]);
    let none = |metrics: &str| figure(metrics, "csi_control_plane_claims_waiting", &["\"node\""]) == Some(0.0);
    world.metrics_until(&daemon, "nothing waits", none).await;
}

#[tokio::test]
async fn z12_z18_an_infeasible_size_is_asked_for_once_a_pause_and_another_one_at_once() {
    let (world, daemon) =
        World::with_resizer(json!({"retry": {"initial": "10ms", "max": "20ms", "infeasible": "2s"}})).await;
    let (claim, _) = world.sizable_device("claim").await;
    world.driver().inject(expanding(Action::fail(Code::OutOfRange, "too large")).times(2));
    world.ask_for(&claim, "9Gi").await;
    let refused = world.in_state(&claim, "ControllerResizeInfeasible").await;
    let error = refused.status.unwrap().conditions.unwrap().into_iter().find(|it| it.type_ == "ControllerResizeError");
    let error = error.unwrap();
    assert_eq!(error.reason.as_deref(), Some("OutOfRange"));
    let expected = "failed to expand pvc with rpc error: code = OutOfRange desc = too large";
    assert_eq!(error.message.as_deref(), Some(expected));
    world.expanded_times(2).await;
    let calls = world.expansions();
    let gap = calls[1].started.saturating_sub(calls[0].ended.unwrap());
    assert!(gap >= Duration::from_secs(1), "the claim says in whole seconds since when: {gap:?}");
    world.in_state(&claim, "ControllerResizeInfeasible").await;
    let waits = |metrics: &str| figure(metrics, "csi_control_plane_claims_waiting", &["infeasible"]) == Some(1.0);
    world.metrics_until(&daemon, "it pauses", waits).await;
    world.ask_for(&claim, "2Gi").await;
    world.sized(&claim, "2Gi").await;
    assert_eq!(world.sizes_asked(), [9.0, 9.0, 2.0]);
    let warnings = world.reasons(&claim).await.into_iter().filter(|it| it == "VolumeResizeFailed").count();
    assert_eq!(warnings, 1, "each text once");
}

#[tokio::test]
async fn z13_what_may_still_be_running_is_asked_for_again_whatever_is_wished_by_now() {
    let (world, _daemon) = World::with_resizer(json!({})).await;
    let (claim, _) = world.sizable_device("claim").await;
    world.driver().inject(expanding(Action::fail(Code::DeadlineExceeded, "slow")));
    world.ask_for(&claim, "9Gi").await;
    world.expanded_times(1).await;
    world.ask_for(&claim, "2Gi").await;
    world.expanded_times(4).await;
    let begun = world.claim_now(&claim).await;
    assert_eq!((at(&begun, STATE), at(&begun, ALLOCATED)), (json!("ControllerResizeInProgress"), json!("9Gi")));
    world.driver().clear_faults();
    world.sized(&claim, "9Gi").await;
    assert!(world.sizes_asked().iter().all(|size| *size > 8.9), "{:?}", world.sizes_asked());
}

/// How the leader ends before the user comes down to less.
const ENDS: [&str; 3] = ["goes on", "stops", "is killed"];

/// The next leader asks for what the user wants by then, and for nothing else, whatever the driver would grant.
#[tokio::test]
async fn z14_a_final_error_lets_a_smaller_wish_through_also_after_a_restart_and_after_a_death() {
    for code in [Code::Internal, Code::FailedPrecondition, Code::OutOfRange] {
        for end in ENDS {
            let world = World::supplied(|_| {}).await;
            // With the check, a volume that no pod uses is asked for again at once after FailedPrecondition.
            let mut config = resizer(slow());
            config["roles"]["resizer"]["inUseCheck"] = json!(false);
            merge(&mut config, short_lease());
            let mut daemon = Some(world.daemon(config.clone()).await);
            let (claim, _) = world.sizable_device("claim").await;
            world.driver().inject(expanding(Action::fail(code, "broken")).once());
            world.ask_for(&claim, "9Gi").await;
            let failed = |it: &PersistentVolumeClaim| conditions(it).contains(&"ControllerResizeError".to_owned());
            world.claim_until(&claim, "told why", failed).await;
            match end {
                "stops" => daemon.take().unwrap().stop().await.unwrap(),
                "is killed" => daemon.take().unwrap().kill(),
                _ => {}
            }
            world.ask_for(&claim, "2Gi").await;
            if daemon.is_none() {
                daemon = Some(world.daemon_on("successor", config).await);
            }
            world.sized(&claim, "2Gi").await;
            assert_eq!(world.sizes_asked(), [9.0, 2.0], "{code:?}, and the leader {end}");
            assert!(!daemon.unwrap().has_ended());
        }
    }
}

/// The driver is asked again for what it has refused, has changed its mind, and the leader dies before the answer.
#[tokio::test]
async fn z13_z14_a_refused_size_that_is_being_asked_for_again_is_no_longer_one_that_was_refused() {
    for code in [Code::Internal, Code::OutOfRange] {
        let world = World::supplied(|_| {}).await;
        let mut config = resizer(json!({}));
        merge(&mut config, short_lease());
        let dying = world.daemon(config.clone()).await;
        let (claim, _) = world.sizable_device("claim").await;
        world.driver().inject(expanding(Action::fail(code, "not now")).once());
        world.driver().inject(expanding(Action::DoneButHang).once());
        world.ask_for(&claim, "9Gi").await;
        world.expanded_times(2).await;
        let runs = world.claim_now(&claim).await;
        assert_eq!(at(&runs, STATE), "ControllerResizeInProgress", "{code:?}: never infeasible while a call runs");
        dying.kill();
        world.ask_for(&claim, "2Gi").await;
        let _successor = world.daemon_on("successor", config).await;
        world.sized(&claim, "9Gi").await;
        assert_eq!(world.sizes_asked(), [9.0, 9.0, 9.0], "{code:?}: the driver has it");
    }
}

#[tokio::test]
async fn z19_z20_z56_the_gaps_between_failures_grow_whatever_the_code_and_a_success_ends_the_story() {
    for code in [Code::Internal, Code::DeadlineExceeded] {
        let world = World::supplied(|_| {}).await;
        let times = json!({"retry": {"initial": "100ms", "max": "60s", "infeasible": "60s"}});
        let _daemon = world.resizer(times).await;
        let (claim, _) = world.sizable_device("claim").await;
        world.driver().inject(expanding(Action::fail(code, "not now")).times(4));
        world.ask_for(&claim, "2Gi").await;
        world.sized(&claim, "2Gi").await;
        let calls = world.expansions();
        assert_eq!(calls.len(), 5);
        for (number, pair) in calls.windows(2).enumerate() {
            let gap = pair[1].started.saturating_sub(pair[0].ended.unwrap());
            let least = Duration::from_millis(100) * 2_u32.pow(u32::try_from(number).unwrap());
            assert!(gap >= least, "{code:?}: gap {number} is {gap:?}");
        }
        world.claim_told(&claim, "VolumeResizeSuccessful", "succeeded").await;
        assert_eq!(world.reasons(&claim).await, ["Resizing", "VolumeResizeFailed", "VolumeResizeSuccessful"]);
        let events = world.claim_told(&claim, "VolumeResizeFailed", "not now").await;
        let (pv, driver) = (world.claim_now(&claim).await.spec.unwrap().volume_name.unwrap(), world.driver_name());
        let text = format!("resize volume \"{pv}\" by resizer \"{driver}\" failed: rpc error: code = ");
        assert!(events.iter().any(|it| says(it, "VolumeResizeFailed", &text)), "{events:#?}");
    }
}

#[tokio::test]
async fn z25_z26_an_answer_without_a_size_counts_and_one_that_is_too_small_does_not() {
    let (world, _daemon) = World::with_resizer(json!({})).await;
    let (claim, volume) = world.sizable_device("claim").await;
    world.driver().inject(expanding(Action::Lie(Lie::Size(0))).once());
    world.ask_for(&claim, "2Gi").await;
    world.sized(&claim, "2Gi").await;
    world.driver().inject(expanding(Action::Lie(Lie::Size(2 * GIB + 1))).times(3));
    world.driver().inject(expanding(Action::Hold).once());
    world.ask_for(&claim, "3Gi").await;
    world.claim_told(&claim, "VolumeResizeFailed", "were requested").await;
    world.expanded_times(5).await;
    assert_eq!(world.recorded_size(&volume).await, "2Gi");
    world.driver().release();
    world.sized(&claim, "3Gi").await;
    let calls = world.expansions();
    assert_eq!(calls.len(), 5);
    let gap = calls[2].started.saturating_sub(calls[1].ended.unwrap());
    assert!(gap >= Duration::from_millis(50), "no hot loop: {gap:?}");
}

#[tokio::test]
async fn z14_z26_a_smaller_request_comes_after_an_answer_that_was_too_small() {
    let (world, _daemon) = World::with_resizer(json!({})).await;
    let (claim, _) = world.sizable_device("claim").await;
    world.driver().inject(expanding(Action::Lie(Lie::Size(GIB + 1))));
    world.ask_for(&claim, "4Gi").await;
    world.claim_told(&claim, "VolumeResizeFailed", "were requested").await;
    world.ask_for(&claim, "2Gi").await;
    world.driver_until("asked for less", |_| world.sizes_asked().last() == Some(&2.0)).await;
    world.driver().clear_faults();
    // What the driver has made of the first request all the same.
    world.sized(&claim, "4Gi").await;
}

#[tokio::test]
async fn z1_z2_z3_z31_z36_what_is_not_ours_or_not_bound_here_is_never_touched() {
    const NOTE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
    let (failures, _log) = logs::count("attempt failed");
    let world = World::supplied(|_| {}).await;
    let class = world.class("class", json!({"allowVolumeExpansion": true})).await;
    let foreign = json!({"storageClassName": class, "csi": {"driver": "another.example.com"}, "volumeMode": "Block"});
    let volume = world.volume_with("foreign-pv", foreign).await;
    let mode = json!({"spec": {"volumeName": volume, "volumeMode": "Block"}});
    let foreign = world.claim("foreign", &class, mode).await;
    world.bound(&foreign).await;
    // Its claim has caught up with what is noted here: this would be taken off one of ours.
    let noted = json!({"metadata": {"annotations": {NOTE: "512Mi"}}});
    let noted = world.merge_patch::<PersistentVolume>(&volume, noted).await;
    world.ask_for(&foreign, "2Gi").await;
    // A claim without a volume.
    let unbound = world.claim("unbound", &world.name("no-such-class"), json!({})).await;
    // A claim that names the volume of another.
    let (owner, taken) = world.sizable_device("owner").await;
    let thief = world.claim("thief", &class, json!({"spec": {"volumeName": taken, "volumeMode": "Block"}})).await;
    let before: Vec<_> =
        [world.claim_now(&foreign).await, world.claim_now(&unbound).await].map(|it| it.metadata).into();
    // The daemon finds all of them when it begins, and the claim that it serves comes after.
    let _daemon = world.resizer(json!({})).await;
    world.ask_for(&owner, "2Gi").await;
    world.sized(&owner, "2Gi").await;
    assert_eq!(world.sizes_asked(), [2.0]);
    for (claim, before) in [&foreign, &unbound].into_iter().zip(before) {
        let now = world.claim_now(claim).await;
        assert_eq!(now.resource_version(), before.resource_version, "{claim}");
        assert_eq!(world.reasons(claim).await, Vec::<String>::new());
    }
    assert_eq!(world.reasons(&thief).await, Vec::<String>::new());
    let still = world.all::<PersistentVolume>().get(&volume).await.unwrap();
    assert_eq!(still.annotations().get(NOTE), noted.annotations().get(NOTE));
    assert_eq!(*failures.borrow(), 0, "no line in the log");
}

#[tokio::test]
async fn z5_many_failing_claims_do_not_disturb_each_other() {
    let (world, _daemon) = World::with_resizer(json!({"workers": 3})).await;
    let mut claims = Vec::new();
    for number in 0..12 {
        claims.push(world.sizable_device(&format!("claim-{number}")).await);
    }
    let stuck: Vec<String> = claims[..11].iter().map(|(_, volume)| world.handle(volume)).collect();
    for handle in &stuck {
        world.driver().inject(expanding(Action::fail(Code::Internal, "broken")).volume(handle));
    }
    for (claim, _) in &claims {
        world.ask_for(claim, "2Gi").await;
    }
    world.sized(&claims[11].0, "2Gi").await;
    world.driver().clear_faults();
    for (claim, _) in &claims {
        world.sized(claim, "2Gi").await;
    }
    world.assert_no_overlap();
}

#[tokio::test]
async fn z8_z9_the_call_says_how_the_volume_is_used_and_brings_its_secret() {
    let world = World::supplied(|profile| profile.node_service = true).await;
    let secret = world.name("secret");
    let spec = json!({"mountOptions": ["noatime"], "csi": {"fsType": "xfs",
        "controllerExpandSecretRef": {"name": secret, "namespace": "default"}}});
    let (claim, _) = world.sizable("claim", spec).await;
    let _daemon = world.resizer(json!({})).await;
    world.ask_for(&claim, "2Gi").await;
    let text = format!("error getting secret {secret} in namespace default: ");
    world.claim_told(&claim, "VolumeResizeFailed", &text).await;
    let marked = world.claim_now(&claim).await;
    assert_eq!((at(&marked, STATE), at(&marked, ALLOCATED)), (json!(null), json!(null)), "nothing has begun");
    world.secret(&secret, &[("password", b"hunter2")]).await;
    world.in_state(&claim, "NodeResizePending").await;
    let call = world.expansions().remove(0);
    assert!(call.secrets);
    let capability = call.expand.clone().unwrap().volume_capability.unwrap();
    assert_eq!(capability.access_mode.unwrap().mode, Mode::SingleNodeMultiWriter as i32);
    let Some(AccessType::Mount(mount)) = capability.access_type else { panic!("not mounted") };
    assert_eq!((mount.fs_type.as_str(), mount.mount_flags), ("xfs", vec!["noatime".to_owned()]));
    let (device, _) = world.sizable_device("device").await;
    world.ask_for(&device, "2Gi").await;
    world.sized(&device, "2Gi").await;
    let call = world.expansions().remove(1);
    let access = call.expand.clone().unwrap().volume_capability.unwrap().access_type;
    assert!(matches!(access, Some(AccessType::Block(_))) && !call.secrets, "{access:?}");
}

#[tokio::test]
async fn z28_what_others_have_written_into_the_status_survives() {
    const THEIRS: &str = "/status/allocatedResourceStatuses/example.com~1x";
    let (world, _daemon) = World::with_resizer(json!({})).await;
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    for (short, mode) in [("mounted", "Filesystem"), ("device", "Block")] {
        let (claim, _) = world.sizable(short, json!({"volumeMode": mode})).await;
        let theirs = json!({"conditions": [condition("Theirs")], "allocatedResources": {"example.com/x": "1"},
            "allocatedResourceStatuses": {"example.com/x": "NodeResizePending"}});
        world.write_status(&claim, theirs).await;
        // It is refused first, so that a refusal is written as well.
        world.driver().inject(expanding(Action::fail(Code::Internal, "no")).once());
        world.driver().inject(expanding(Action::Hold).once());
        let times = world.expansions().len();
        world.ask_for(&claim, "2Gi").await;
        world.expanded_times(times + 2).await;
        world.write_status(&claim, json!({"conditions": [condition("Later")]})).await;
        world.driver().release();
        let told = if mode == "Block" {
            world.sized(&claim, "2Gi").await
        } else {
            world.in_state(&claim, "NodeResizePending").await
        };
        let found = conditions(&told);
        assert!(["Theirs", "Later"].iter().all(|it| found.iter().any(|found| found == it)), "{found:?}");
        assert_eq!(
            (at(&told, "/status/allocatedResources/example.com~1x"), at(&told, THEIRS)),
            (json!("1"), json!("NodeResizePending"))
        );
        let class = world.attributes(&format!("{short}-gold"), "100").await;
        world.ask_for_class(&claim, &class).await;
        let modified = world.classed(&claim, &class).await;
        let found = conditions(&modified);
        assert!(["Theirs", "Later"].iter().all(|it| found.iter().any(|found| found == it)), "{found:?}");
        assert_eq!(at(&modified, THEIRS), "NodeResizePending");
    }
}
