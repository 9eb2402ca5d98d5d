//! Volumes and snapshots that the driver lists and nothing in the cluster knows. An hour passes at once here.

use std::collections::BTreeSet;
use std::time::Duration;

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::time::sleep;
use tonic::Code;

use super::{api, by_daemon};
use crate::ground::Daemon;
use crate::objects;
use crate::supplier::figure;
use crate::world::World;

pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// The reconciler's section: it lists every ten minutes.
pub(super) fn looking() -> Value {
    json!({ "reconciler": { "interval": "10m", "orphans": true } })
}

/// Longer pauses than a test has, so that an hour costs few calls.
pub(super) fn patient() -> Value {
    json!({ "retry": { "initial": "5m", "max": "5m", "infeasible": "5m" } })
}

/// The kinds and handles of the orphans that the daemon shows, by handle.
pub(super) async fn orphans(world: &World, daemon: &Daemon) -> Vec<(String, String)> {
    let status = world.status(daemon).await;
    let table = status["tables"].as_array().unwrap().iter().find(|table| table["name"] == "orphans").unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = table["rows"].as_array().unwrap().iter();
    let mut rows: Vec<_> = rows.map(|row| (text(&row["kind"]), text(&row["handle"]))).collect();
    rows.sort();
    rows
}

pub(super) fn orphan(kind: &str, handle: &str) -> (String, String) {
    (kind.to_owned(), handle.to_owned())
}

/// What the status page says of a kind.
async fn told(world: &World, daemon: &Daemon, kind: &str) -> String {
    let status = world.status(daemon).await;
    let role = status["roles"].as_array().unwrap().iter().find(|role| role["name"] == "reconciler").unwrap();
    let name = format!("orphaned {kind}");
    let fact = role["facts"].as_array().unwrap().iter().find(|fact| fact["name"] == name.as_str()).unwrap();
    fact["value"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_hour_makes_an_orphan_of_a_volume_that_no_persistent_volume_names_and_one_that_does_ends_it() {
    let world = World::new().await;
    world.volume("known").await;
    world.driver().seed(["behind"]);
    let daemon = world.daemon(json!({ "roles": looking() })).await;
    sleep(59 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, []);
    assert_eq!(told(&world, &daemon, "volumes").await, "0 of 2; 1 more are unknown for less than an hour");
    sleep(2 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, [orphan("volume", "behind")]);
    assert_eq!(told(&world, &daemon, "volumes").await, "1 of 2");
    assert_eq!(told(&world, &daemon, "snapshots").await, "not told: the cluster has no VolumeSnapshotContents");
    let count = async |world: &World, name: &str| figure(&world.metrics(&daemon).await, name, &["kind=\"volume\""]);
    assert_eq!(count(&world, "csi_control_plane_orphans").await, Some(1.0));
    assert_eq!(count(&world, "csi_control_plane_orphan_bytes").await, Some(f64::from(1 << 30)));
    world.create::<PersistentVolume>(objects::volume(&world.name("adopted"), world.driver_name(), "Behind/")).await;
    sleep(10 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, []);
    assert_eq!(count(&world, "csi_control_plane_orphans").await, Some(0.0));
    assert!(world.driver().calls_of(Method::DeleteVolume).is_empty());
    assert_eq!(world.driver().violations(), []);
}

#[tokio::test]
async fn a_claim_in_progress_and_an_entry_of_the_journal_are_none() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.provisioner_with(looking(), patient()).await;
    let (_, claim) = world.unanswered_claim(json!({})).await;
    sleep(80 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, []);
    assert_eq!(told(&world, &daemon, "volumes").await, "0 of 1", "the claim's uid is in the volume's name");
    // A driver that does not tell the name, and a claim that nobody wants any more: the journal alone knows of the volume.
    let id = world.driver().state().volumes().keys().next().unwrap().clone();
    world.driver().change_state(|state| state.seed(&id).context.clear());
    world.delete_claim(&claim).await;
    world.driver().seed(["behind"]);
    sleep(80 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, []);
    let undecided = "0 of 2; 2 may be of a request in the journal, and do not count yet";
    assert_eq!(told(&world, &daemon, "volumes").await, undecided);
    // The outcome is known, and the claim's volume is deleted again.
    world.driver().clear_faults();
    sleep(90 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, [orphan("volume", "behind")]);
}

#[tokio::test]
async fn what_was_listed_before_a_request_that_stays_open_is_shown_and_what_comes_after_it_is_not() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.provisioner_with(looking(), patient()).await;
    world.driver().seed(["before"]);
    sleep(11 * MINUTE).await;
    // The driver tells no name of the claim's volume.
    let (_, _claim) = world.unanswered_claim(json!({})).await;
    let id = world.driver().state().volumes().keys().find(|id| **id != "before").unwrap().clone();
    world.driver().change_state(|state| state.seed(&id).context.clear());
    world.driver().seed(["after"]);
    sleep(80 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, [orphan("volume", "before")]);
    let undecided = "1 of 3; 2 may be of a request in the journal, and do not count yet";
    assert_eq!(told(&world, &daemon, "volumes").await, undecided);
}

#[tokio::test]
async fn the_journal_of_a_node_is_read_too() {
    let world = World::new().await;
    world.driver().seed(["behind"]);
    let segment = format!("{}-n1-journal-0", world.segment(0).trim_end_matches("-journal-0"));
    let entry = json!({ "at": "2026-01-01T00:00:00Z", "request": { "volumeName": "pvc-1" } });
    let made = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": segment,
            "labels": { "csi-control-plane.io/journal": world.driver_name() },
            "annotations": { "csi-control-plane.io/journal-version": "1", "csi-control-plane.io/node": "n1" },
        },
        "data": { "1": entry.to_string() },
    });
    world.config_maps().create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await.unwrap();
    let daemon = world.daemon(json!({ "roles": looking() })).await;
    sleep(71 * MINUTE).await;
    let undecided = "0 of 1; 1 may be of a request in the journal, and do not count yet";
    assert_eq!(told(&world, &daemon, "volumes").await, undecided);
    world.delete_segment(&segment).await;
    sleep(81 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, [orphan("volume", "behind")]);
}

#[tokio::test]
async fn a_pass_that_fails_changes_nothing_and_a_volume_that_is_left_out_begins_anew() {
    let world = World::new().await;
    world.driver().seed(["failing", "omitted"]);
    let daemon = world.daemon(json!({ "roles": looking() })).await;
    sleep(15 * MINUTE).await;
    world.driver().inject(Fault::on(Method::ListVolumes, Action::fail(Code::Unavailable, "no luck")));
    sleep(20 * MINUTE).await;
    assert_eq!(told(&world, &daemon, "volumes").await, "0 of 2; 2 more are unknown for less than an hour");
    world.driver().clear_faults();
    let omitted = BTreeSet::from(["omitted".to_owned()]);
    world.driver().inject(Fault::on(Method::ListVolumes, Action::Lie(Lie::OmitVolumes(omitted))));
    sleep(10 * MINUTE).await;
    world.driver().clear_faults();
    sleep(16 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, [orphan("volume", "failing")]);
    world.driver().inject(Fault::on(Method::ListVolumes, Action::Lie(Lie::TokenLoop)));
    sleep(60 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, [orphan("volume", "failing")], "what was found stays");
    world.driver().clear_faults();
    sleep(10 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, ["failing", "omitted"].map(|handle| orphan("volume", handle)));
}

#[tokio::test]
async fn a_snapshot_is_known_by_a_content_that_names_it_or_takes_one_of_its_volume() {
    let world = World::snapshotting(|_| {}).await;
    let (lost, given) = (world.cut_behind("lost"), world.cut_behind("given"));
    world.driver().seed(["other"]);
    let begun = world.driver().cut_snapshot("begun", "other").unwrap();
    world.content_by_hand("given", json!({ "snapshotHandle": given }), json!({})).await;
    let taking = world.content_by_hand("taking", json!({ "volumeHandle": "other" }), json!({})).await;
    let daemon = world.daemon(json!({ "roles": looking() })).await;
    sleep(61 * MINUTE).await;
    let volumes = ["behind", "other"].map(|handle| orphan("volume", handle));
    let expected = [&[orphan("snapshot", &lost)][..], &volumes].concat();
    assert_eq!(orphans(&world, &daemon).await, expected);
    world.content_by_hand("found", json!({ "snapshotHandle": lost }), json!({})).await;
    world.delete_installed(crate::snapshotting::CONTENT, &taking).await;
    sleep(81 * MINUTE).await;
    let expected = [&[orphan("snapshot", &begun)][..], &volumes].concat();
    assert_eq!(orphans(&world, &daemon).await, expected);
    world.driver().inject(Fault::on(Method::ListSnapshots, Action::fail(Code::Unavailable, "no luck")));
    sleep(10 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, expected);
    let says = told(&world, &daemon, "snapshots").await;
    assert!(says.starts_with("1 of 3; the last listing failed: page 1 of ListSnapshots failed: "), "{says}");
    assert!(world.driver().calls_of(Method::DeleteSnapshot).is_empty());
}

#[tokio::test]
async fn what_may_not_be_read_or_is_not_listed_is_said_and_makes_no_orphan() {
    let world = World::with(|profile| {
        profile.controller.remove(&(Rpc::ListSnapshots as i32));
        profile.controller.remove(&(Rpc::ListVolumesPublishedNodes as i32));
    })
    .await;
    world.driver().seed(["behind"]);
    let forbidden = Rejection::forbidden("", "configmaps", "", "no");
    let journal = by_daemon(&world).verb("get").resource("configmaps");
    api(&world).faults().add(ApiFault::on(journal, ApiAction::Refuse(forbidden)));
    let daemon = world.daemon(json!({ "roles": looking() })).await;
    sleep(71 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, []);
    assert_eq!(told(&world, &daemon, "snapshots").await, "not told: the driver does not list its snapshots");
    let says = told(&world, &daemon, "volumes").await;
    assert!(says.starts_with("not told: the journal of the requests for volumes cannot be read: "), "{says}");
    api(&world).faults().clear();
    sleep(71 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, [orphan("volume", "behind")], "also where no drift can be found");
    let claims = Rejection::forbidden("", "persistentvolumeclaims", "", "no");
    let list = Matching::any().user(world.name("other")).resource("persistentvolumeclaims");
    api(&world).faults().add(ApiFault::on(list, ApiAction::Refuse(claims)));
    let other = world.daemon_on("other", json!({ "roles": looking(), "leaderElection": { "enabled": false } })).await;
    sleep(71 * MINUTE).await;
    assert_eq!(orphans(&world, &other).await, []);
    let says = told(&world, &other, "volumes").await;
    assert!(says.starts_with("not told: PersistentVolumeClaims cannot be read: "), "{says}");
}

#[tokio::test]
async fn nothing_is_looked_for_unless_it_is_asked_for() {
    let world = World::new().await;
    world.driver().seed(["behind"]);
    let daemon = world.daemon(json!({ "roles": { "reconciler": { "interval": "10m" } } })).await;
    sleep(71 * MINUTE).await;
    let status = world.status(&daemon).await.to_string();
    assert!(!status.contains("orphan"), "{status}");
    assert!(!world.metrics(&daemon).await.contains("csi_control_plane_orphan"));
    assert!(world.driver().calls_of(Method::ListSnapshots).is_empty());
    let kinds = ["persistentvolumeclaims", "volumesnapshotcontents", "configmaps"];
    let asked = api(&world).audit().matching(|it| it.user == super::user(&world) && kinds.contains(&it.resource));
    assert!(asked.is_empty(), "{asked:#?}");
}
