//! The resizer's requests to the API, one by one; and the fate of a claim when one of them fails.

use std::time::Duration;

use csi_control_plane::csi::ControllerRpc as Rpc;
use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::api::faults::{Action, Fault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::api::pure::resources;
use csi_control_plane::sandbox::driver::{self, Profile};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tonic::Code;

use super::{api, by_daemon, user, writes};
use crate::logs;
use crate::resizing::{conditions, expanding, modifying, resizer};
use crate::supplier::{figure, slow};
use crate::world::wait::asked;
use crate::world::{World, bounded};

/// The daemon's writes to claims and volumes since the log was cleared.
pub(super) fn written(world: &World) -> Vec<String> {
    let told = |it: &Entry| {
        let slash = if it.subresource.is_empty() { "" } else { "/" };
        format!("{}{slash}{} {}", it.resource, it.subresource, it.code)
    };
    writes(world).iter().filter(|it| it.resource != "events").map(told).collect()
}

/// The daemon's requests about pods.
fn about_pods(world: &World) -> usize {
    let user = user(world);
    api(world).audit().matching(|it| it.user == user && it.resource == "pods").len()
}

#[tokio::test]
async fn a_resize_is_three_writes_a_node_only_one_two_and_a_modification_three() {
    const CLAIM: &str = "persistentvolumeclaims/status 200";
    const VOLUME: &str = "persistentvolumes 200";
    for node_only in [false, true] {
        let change = move |profile: &mut Profile| {
            if node_only {
                *profile = profile.clone().without(Rpc::ExpandVolume);
                profile.node_only_expansion = true;
            }
        };
        let world = World::supplied(change).await;
        let _daemon = world.resizer(json!({})).await;
        let (claim, _) = world.sizable("claim", json!({})).await;
        api(&world).audit().clear();
        world.ask_for(&claim, "2Gi").await;
        world.in_state(&claim, "NodeResizePending").await;
        let expected: &[&str] = if node_only { &[VOLUME, CLAIM] } else { &[CLAIM, VOLUME, CLAIM] };
        assert_eq!(written(&world), expected);
        let class = world.attributes("gold", "100").await;
        api(&world).audit().clear();
        world.ask_for_class(&claim, &class).await;
        world.classed(&claim, &class).await;
        assert_eq!(written(&world), [CLAIM, VOLUME, CLAIM]);
        let bodies = writes(&world).into_iter().filter(|it| it.resource != "events").filter_map(|it| it.body);
        for body in bodies {
            assert!(body["metadata"]["uid"].is_string(), "each write says whom it is about: {body}");
        }
    }
}

#[tokio::test]
async fn z49_both_wishes_at_once_meet_no_conflict_of_our_own() {
    for pairs in ["never", "always"] {
        let world = World::supplied(|profile| profile.abort_while_pending = false).await;
        let _daemon = world.resizer(json!({"pairCalls": pairs, "retry": slow()["retry"].clone()})).await;
        for number in 0..6 {
            let (claim, _) = world.sizable_device(&format!("claim-{number}")).await;
            let class = world.attributes(&format!("gold-{number}"), "100").await;
            api(&world).audit().clear();
            let size = json!({"requests": {"storage": "2Gi"}});
            let both = json!({"spec": {"volumeAttributesClassName": class, "resources": size}});
            world.patch_claim(&claim, both).await;
            world.sized(&claim, "2Gi").await;
            world.classed(&claim, &class).await;
            let written = written(&world);
            assert!(written.iter().all(|it| it.ends_with(" 200")) && written.len() <= 6, "{pairs}: {written:?}");
        }
        assert_eq!((world.sizes_asked().len(), world.modifications().len()), (6, 6));
    }
}

#[tokio::test]
async fn z50_a_pair_that_begins_and_ends_together_is_three_writes_for_both() {
    let world = World::supplied(|profile| profile.abort_while_pending = false).await;
    let _daemon = world.resizer(json!({"pairCalls": "always", "retry": slow()["retry"].clone()})).await;
    let (claim, _) = world.sizable_device("claim").await;
    let class = world.attributes("gold", "100").await;
    for fault in [expanding(driver::Action::Hold).once(), modifying(driver::Action::Hold).once()] {
        world.driver().inject(fault);
    }
    api(&world).audit().clear();
    let both = json!({"spec": {"volumeAttributesClassName": class, "resources": {"requests": {"storage": "2Gi"}}}});
    world.patch_claim(&claim, both).await;
    world.expanded_times(1).await;
    world.modified_times(1).await;
    let begun = world.claim_now(&claim).await;
    assert_eq!(conditions(&begun).len(), 2, "{begun:?}");
    world.driver().release();
    world.sized(&claim, "2Gi").await;
    world.classed(&claim, &class).await;
    let expected = ["persistentvolumeclaims/status 200", "persistentvolumes 200", "persistentvolumeclaims/status 200"];
    assert_eq!(written(&world), expected);
    let told = ["Resizing", "VolumeModify", "VolumeModifySuccessful", "VolumeResizeSuccessful"];
    world.claim_told(&claim, "VolumeModifySuccessful", "").await;
    world.claim_told(&claim, "VolumeResizeSuccessful", "").await;
    assert_eq!(world.reasons(&claim).await, told);
}

#[tokio::test]
async fn z50_a_pair_of_which_one_is_refused_records_what_each_was_answered() {
    let world = World::supplied(|profile| profile.abort_while_pending = false).await;
    let _daemon = world.resizer(json!({"pairCalls": "always", "retry": slow()["retry"].clone()})).await;
    let (claim, volume) = world.sizable_device("claim").await;
    let class = world.attributes("gold", "100").await;
    world.driver().inject(modifying(driver::Action::fail(Code::InvalidArgument, "no")).once());
    let both = json!({"spec": {"volumeAttributesClassName": class, "resources": {"requests": {"storage": "2Gi"}}}});
    world.patch_claim(&claim, both).await;
    world.sized(&claim, "2Gi").await;
    let refused = world.modify_state(&claim, "Infeasible").await;
    assert_eq!(conditions(&refused), ["ModifyingVolume", "ModifyVolumeError"]);
    assert_eq!(world.recorded_size(&volume).await, "2Gi");
    assert_eq!((world.sizes_asked().len(), world.modifications().len()), (1, 1));
}

#[tokio::test]
async fn i14_a_quiet_cluster_is_neither_written_to_nor_asked_about_pods() {
    let (mut resyncs, _log) = logs::count("resync");
    let (world, _daemon) = World::with_resizer(json!({"resync": "1s"})).await;
    let (claim, _) = world.sizable_device("claim").await;
    let class = world.attributes("gold", "100").await;
    world.ask_for(&claim, "2Gi").await;
    world.sized(&claim, "2Gi").await;
    world.ask_for_class(&claim, &class).await;
    world.classed(&claim, &class).await;
    api(&world).audit().clear();
    let (calls, seen) = (world.driver().calls().len(), *resyncs.borrow());
    bounded("two resyncs", resyncs.wait_for(|count| *count >= seen + 2)).await.unwrap();
    assert_eq!((written(&world).len(), world.driver().calls().len(), about_pods(&world)), (0, calls, 0));
}

#[tokio::test]
async fn z22_z23_pods_are_looked_at_only_where_a_driver_has_refused_a_volume_in_use() {
    for check in [true, false] {
        let (world, _daemon) = World::with_resizer(json!({"inUseCheck": check})).await;
        let (claim, _) = world.sizable_device("claim").await;
        let elsewhere = json!({"metadata": {"name": "busy", "namespace": "kube-system"}, "spec": {
            "containers": [{"name": "c", "image": "example.com/none"}]}});
        let elsewhere: Pod = serde_json::from_value(elsewhere).unwrap();
        kube::Api::<Pod>::namespaced(world.client(), "kube-system")
            .create(&kube::api::PostParams::default(), &elsewhere)
            .await
            .unwrap();
        world.pod("pod", &[&claim], None).await;
        world.ask_for(&claim, "2Gi").await;
        world.sized(&claim, "2Gi").await;
        assert_eq!(about_pods(&world), 0, "no claim was refused");
        let refused = driver::Action::fail(Code::FailedPrecondition, "published");
        world.driver().inject(expanding(refused).times(3));
        world.ask_for(&claim, "3Gi").await;
        if check {
            world.claim_told(&claim, "VolumeResizeFailed", "currently in-use").await;
            assert_eq!(world.expansions().len(), 2, "it waits for its pod");
            let user = user(&world);
            let asked = api(&world).audit().matching(|it| it.user == user && it.resource == "pods");
            assert!(asked.iter().all(|it| it.namespace == "default") && !asked.is_empty(), "{asked:#?}");
        } else {
            // It is tried again and again, whoever uses it.
            world.sized(&claim, "3Gi").await;
            assert_eq!((world.expansions().len(), about_pods(&world)), (5, 0));
        }
    }
}

#[tokio::test]
async fn z6_a_mark_that_cannot_be_written_is_no_call_and_no_event() {
    let (world, _daemon) = World::with_resizer(json!({})).await;
    let (claim, _) = world.sizable_device("claim").await;
    let status = by_daemon(&world).verb("patch").resource("persistentvolumeclaims").subresource("status");
    let refused = Fault::on(status, Action::Refuse(Rejection::internal("struck")));
    let fault = api(&world).faults().add(refused);
    world.ask_for(&claim, "2Gi").await;
    asked("three tries", async || (api(&world).faults().hits(fault) >= 3).then_some(())).await;
    assert_eq!((world.expansions().len(), world.reasons(&claim).await), (0, Vec::new()));
    let refused: Vec<_> = writes(&world).into_iter().filter(|it| it.code == 500).map(|it| it.time).collect();
    for (number, pair) in refused.windows(2).enumerate() {
        let gap = Duration::try_from(pair[1].duration_since(pair[0])).unwrap();
        let least = (Duration::from_millis(50) * (1 << number)).min(Duration::from_millis(400));
        assert!(gap >= least, "gap {number} is {gap:?}");
    }
    api(&world).faults().remove(fault);
    world.sized(&claim, "2Gi").await;
    assert_eq!(world.expansions().len(), 1);
}

/// The ways to fail.
fn failures() -> Vec<(&'static str, Action)> {
    let claims = resources::of_kind("v1", "PersistentVolumeClaim").unwrap();
    let refuse = Action::Refuse;
    vec![
        ("409", refuse(Rejection::conflict(claims, "any"))),
        ("429", refuse(Rejection { retry_after: Some(1), ..Rejection::too_many_requests(1) })),
        ("500", refuse(Rejection::internal("struck"))),
        ("500, but done", Action::RefuseAfter(Rejection::internal("struck"))),
        ("no answer in time", Action::DelayBefore(Duration::from_secs(60))),
        ("no answer in time, but done", Action::DelayAfter(Duration::from_secs(60))),
        ("cut", Action::CutBefore),
        ("cut, but done", Action::CutAfter),
    ]
}

/// One request of an expansion and of a modification fails in every way, once.
async fn each_fails_once(what: &str, nth: u64, on: impl Fn(Matching, &str, &str) -> Matching) {
    for (number, (how, action)) in failures().into_iter().enumerate() {
        let world = World::supplied(|_| {}).await;
        let mut config = resizer(json!({}));
        config["kubernetes"] = json!({"requestTimeout": "2s"});
        let _daemon = world.daemon(config).await;
        let (claim, volume) = world.sizable_device(&format!("claim-{number}")).await;
        let class = world.attributes("gold", "100").await;
        let strike = || {
            let matching = on(by_daemon(&world).verb("patch"), &claim, &volume);
            api(&world).faults().add(Fault::on(matching, action.clone()).nth(nth))
        };
        let fault = strike();
        world.ask_for(&claim, "2Gi").await;
        world.sized(&claim, "2Gi").await;
        assert_eq!(api(&world).faults().hits(fault), 1, "{what}: {how} struck nothing");
        assert_eq!(world.recorded_size(&volume).await, "2Gi", "{what}: {how}");
        assert_eq!(world.expansions().len(), 1, "{what}: {how}: what is known is not asked again");
        let fault = strike();
        world.ask_for_class(&claim, &class).await;
        world.classed(&claim, &class).await;
        assert_eq!(api(&world).faults().hits(fault), 1, "{what}: {how} struck nothing");
        assert_eq!(world.modifications().len(), 1, "{what}: {how}: what is known is not asked again");
        let warnings = world.reasons(&claim).await.into_iter().filter(|it| it.ends_with("Failed")).count();
        assert_eq!(warnings, 0, "{what}: {how}: nothing that users could do about it");
        world.assert_no_overlap();
    }
}

#[tokio::test]
async fn z49_z55_a_failure_to_write_the_mark_is_got_over() {
    each_fails_once("begin", 1, |on, claim, _| on.resource("persistentvolumeclaims").subresource("status").name(claim))
        .await;
}

#[tokio::test]
async fn z55_a_failure_to_write_the_volume_is_got_over() {
    each_fails_once("volume", 1, |on, _, volume| on.resource("persistentvolumes").subresource("").name(volume)).await;
}

#[tokio::test]
async fn z29_z55_a_failure_to_write_the_end_is_got_over() {
    each_fails_once("end", 2, |on, claim, _| on.resource("persistentvolumeclaims").subresource("status").name(claim))
        .await;
}

#[tokio::test]
async fn z29_whichever_write_is_the_last_of_a_daemon_its_successor_comes_to_the_same_end() {
    const LONG: Duration = Duration::from_secs(60);
    // The remaining work, and the number of all calls: a call with an unknown outcome is repeated.
    for (last, nth, action, calls) in [
        ("persistentvolumeclaims", 1, Action::DelayAfter(LONG), 1),
        ("persistentvolumes", 1, Action::DelayBefore(LONG), 2),
        ("persistentvolumes", 1, Action::DelayAfter(LONG), 2),
        ("persistentvolumeclaims", 2, Action::DelayAfter(LONG), 1),
    ] {
        let world = World::supplied(|_| {}).await;
        let mut config = resizer(slow());
        crate::objects::merge(&mut config, crate::objects::short_lease());
        let dying = world.daemon(config.clone()).await;
        let (claim, volume) = world.sizable_device("claim").await;
        let is_done = matches!(action, Action::DelayAfter(_));
        let on = by_daemon(&world).verb("patch").resource(last);
        let fault = api(&world).faults().add(Fault::on(on, action).nth(nth));
        world.ask_for(&claim, "2Gi").await;
        asked("the write", async || (api(&world).faults().hits(fault) >= 1).then_some(())).await;
        match (last, nth) {
            ("persistentvolumeclaims", 1) => drop(world.in_state(&claim, "ControllerResizeInProgress").await),
            ("persistentvolumeclaims", _) => drop(world.sized(&claim, "2Gi").await),
            _ if is_done => {
                asked("recorded", async || (world.recorded_size(&volume).await == "2Gi").then_some(())).await;
            }
            _ => {}
        }
        dying.kill();
        let successor = world.daemon_on("successor", config).await;
        world.serving(&successor).await;
        world.sized(&claim, "2Gi").await;
        assert_eq!(world.recorded_size(&volume).await, "2Gi", "{last} {nth}");
        assert_eq!(world.sizes_asked(), vec![2.0; calls], "{last} {nth}: {is_done}");
    }
}

#[tokio::test]
async fn z7_a_conflict_costs_one_read_and_one_write() {
    let (world, _daemon) = World::with_resizer(slow()).await;
    let (claim, _) = world.sizable_device("claim").await;
    // The watch is late, so that the conflict is not foreseen.
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("persistentvolumeclaims"));
    world.driver().inject(expanding(driver::Action::Hold).once());
    let watched = world.claim_now(&claim).await.metadata.uid.unwrap();
    api(&world).faults().remove(held);
    world.ask_for(&claim, "2Gi").await;
    world.expanded_times(1).await;
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("persistentvolumeclaims"));
    world.patch_claim(&claim, json!({"metadata": {"labels": {"colour": "blue"}}})).await;
    api(&world).audit().clear();
    world.driver().release();
    world.sized(&claim, "2Gi").await;
    api(&world).faults().remove(held);
    let user = user(&world);
    let reads = |it: &Entry| it.user == user && it.verb == "get" && it.resource.starts_with("persistentvolume");
    assert!(api(&world).audit().matching(reads).len() <= 2, "the claim and its volume, once");
    let statuses: Vec<u16> = writes(&world).iter().filter(|it| it.subresource == "status").map(|it| it.code).collect();
    assert_eq!(statuses, [409, 200], "{watched}");
    assert_eq!(world.expansions().len(), 1);
}

#[tokio::test]
async fn z54_a_leader_that_was_cut_off_past_its_lease_writes_nothing_when_it_is_back() {
    // Two leaders must not meet at the driver: that this one lets them shows that the first has no word any more.
    let world = World::supplied(|profile| profile.abort_while_pending = false).await;
    let mut config = resizer(slow());
    crate::objects::merge(&mut config, crate::objects::short_lease());
    let _frozen = world.daemon(config.clone()).await;
    let (claim, _) = world.sizable_device("claim").await;
    for fault in [expanding(driver::Action::Hold).once(), modifying(driver::Action::Hold).once()] {
        world.driver().inject(fault);
    }
    world.ask_for(&claim, "2Gi").await;
    world.expanded_times(1).await;
    // It cannot renew its Lease any more, nor hear of it.
    let mute = api(&world).faults().add(Fault::on(by_daemon(&world), Action::CutBefore));
    let _successor = world.daemon_on("successor", config).await;
    world.expanded_times(2).await;
    world.sized(&claim, "2Gi").await;
    api(&world).faults().remove(mute);
    api(&world).audit().clear();
    world.driver().release();
    world.driver_until("all calls have ended", |driver| driver.calls().iter().all(|call| call.ended.is_some())).await;
    world.ask_for(&claim, "3Gi").await;
    world.sized(&claim, "3Gi").await;
    assert_eq!(written(&world), Vec::<String>::new(), "by the one that was frozen");
}

#[tokio::test]
async fn z1_a_claim_whose_volume_the_watch_shows_late_is_expanded_as_soon_as_it_does() {
    let (world, daemon) = World::with_resizer(slow()).await;
    world.serving(&daemon).await;
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("persistentvolumes"));
    let (claim, _) = world.sizable_device("claim").await;
    world.ask_for(&claim, "2Gi").await;
    let (other, _) = world.sizable_device("other").await;
    assert_eq!((world.expansions().len(), world.reasons(&other).await.len()), (0, 0));
    api(&world).faults().remove(held);
    world.sized(&claim, "2Gi").await;
    assert_eq!(world.expansions().len(), 1);
}

#[tokio::test]
async fn z43_a_class_that_was_begun_and_is_gone_is_given_up_only_when_it_is_gone_for_long() {
    let longest = Duration::from_secs(2);
    let (world, _daemon) = World::with_resizer(json!({"retry": {"initial": "50ms", "max": "2s"}})).await;
    let (claim, _) = world.sizable("claim", json!({})).await;
    let (first, second) = (world.attributes("first", "1").await, world.attributes("second", "2").await);
    world.driver().inject(modifying(driver::Action::fail(Code::Aborted, "busy")));
    world.ask_for_class(&claim, &first).await;
    world.modified_times(1).await;
    world.ask_for_class(&claim, &second).await;
    // The wish is older than the longest wait when its class goes.
    world.modified_times(8).await;
    world.force_class_away(&first).await;
    let gone = world.driver().age();
    world.driver().clear_faults();
    world.claim_told(&claim, "VolumeModifyFailed", &format!("VAC \"{first}\" does not exist.")).await;
    world.classed(&claim, &second).await;
    let calls = world.driver().calls_of(driver::Method::ControllerModifyVolume);
    let (last, others) = calls.split_last().unwrap();
    let asked = |call: &driver::Call| call.modify.as_ref().unwrap().mutable_parameters["iops"].clone();
    assert!(asked(last) == "2" && others.iter().all(|call| asked(call) == "1"), "{calls:#?}");
    let waited = last.started.saturating_sub(gone);
    assert!(waited + Duration::from_millis(200) >= longest, "{waited:?}");
}

#[tokio::test]
async fn z47_without_the_right_to_read_classes_or_any_volumes_still_grow() {
    let forbidden = Rejection::forbidden("storage.k8s.io", "volumeattributesclasses", "", "no");
    for (what, refusal) in [("no right", forbidden), ("no such kind", Rejection::path_not_found())] {
        let world = World::supplied(|_| {}).await;
        let classes = by_daemon(&world).verb("list").resource("volumeattributesclasses");
        api(&world).faults().add(Fault::on(classes, Action::Refuse(refusal)));
        let daemon = world.resizer(json!({})).await;
        let (claim, _) = world.sizable_device("claim").await;
        let class = world.attributes("gold", "100").await;
        world.ask_for_class(&claim, &class).await;
        world.ask_for(&claim, "2Gi").await;
        world.sized(&claim, "2Gi").await;
        let waits = |metrics: &str| figure(metrics, "csi_control_plane_claims_waiting", &["classMissing"]) == Some(1.0);
        world.metrics_until(&daemon, "it waits for classes", waits).await;
        assert_eq!(world.modifications().len(), 0, "{what}");
    }
}

#[tokio::test]
async fn z19_classes_that_are_listed_late_do_not_end_the_back_off_of_an_expansion() {
    let world = World::supplied(|_| {}).await;
    let classes = by_daemon(&world).verb("list").resource("volumeattributesclasses");
    let held = api(&world).faults().add(Fault::on(classes, Action::Hold));
    let _daemon = world.resizer(slow()).await;
    let (claim, _) = world.sizable_device("claim").await;
    let class = world.attributes("gold", "100").await;
    world.driver().inject(expanding(driver::Action::fail(Code::Internal, "broken")));
    world.ask_for_class(&claim, &class).await;
    world.ask_for(&claim, "2Gi").await;
    world.claim_told(&claim, "VolumeResizeFailed", "broken").await;
    assert_eq!(world.modifications().len(), 0);
    api(&world).faults().remove(held);
    world.classed(&claim, &class).await;
    assert_eq!(world.sizes_asked(), [2.0], "it waits for no class");
}

#[tokio::test]
async fn z19_a_modification_that_fails_as_a_term_begins_waits_for_its_back_off() {
    let world = World::supplied(|_| {}).await;
    let (claim, _) = world.sizable_device("claim").await;
    let class = world.attributes("gold", "100").await;
    world.ask_for_class(&claim, &class).await;
    world.driver().inject(modifying(driver::Action::fail(Code::Internal, "broken")).once());
    let _daemon = world.resizer(slow()).await;
    world.claim_told(&claim, "VolumeModifyFailed", "broken").await;
    let (other, _) = world.sizable_device("other").await;
    world.ask_for_class(&other, &class).await;
    world.classed(&other, &class).await;
    assert_eq!(world.modifications().len(), 2, "one for each claim");
}
