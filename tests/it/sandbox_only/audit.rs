//! The daemon's requests to the API, one by one.

use std::time::Duration;

use csi_control_plane::sandbox::api::faults;
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use serde_json::json;
use tonic::Code;

use super::{api, by_daemon, user, writes, written};
use crate::logs;
use crate::world::wait::asked;
use crate::world::{World, bounded};

/// What the daemon has asked of the API, watches aside, in the order of the answers: what begins like this.
fn requests(world: &World, beginning: &str) -> Vec<String> {
    let user = user(world);
    let asked = api(world).audit().matching(|it| it.user == user && it.verb != "watch");
    let told = asked.iter().map(|it| {
        let slash = if it.subresource.is_empty() { "" } else { "/" };
        format!("{} {}{slash}{}", it.verb, it.resource, it.subresource)
    });
    told.filter(|it| it.starts_with(beginning)).collect()
}

#[tokio::test]
async fn r7_an_attach_is_three_writes_a_second_one_two_and_a_detach_one_all_of_them_patches() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    let mut first = written(&world);
    // The first two are independent and go side by side.
    first[..2].sort();
    let expected = ["patch persistentvolumes 200", "patch volumeattachments 200", "patch volumeattachments/status 200"];
    assert_eq!(first, expected);

    api(&world).audit().clear();
    world.detached(&attachment).await;
    // The object is gone with our finalizer: there is no status left to write.
    assert_eq!(written(&world), ["patch volumeattachments 200"]);

    api(&world).audit().clear();
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
    assert_eq!(written(&world), ["patch volumeattachments 200", "patch volumeattachments/status 200"]);
}

#[tokio::test]
async fn a_volume_that_the_same_daemon_has_made_is_attached_with_two_requests() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.provisioner_with(json!({ "reconciler": null }), json!({})).await;
    world.serving(&daemon).await;
    // One for the cache, one that says since when the daemon leads.
    asked("two lists of volumes", async || (requests(&world, "list persistentvolumes").len() == 2).then_some(())).await;
    let class = world.class("class", json!({})).await;
    let node = world.node("node").await;
    for short in ["first", "second"] {
        let claim = world.claim(short, &class, json!({})).await;
        let volume = world.provisioned(&claim).await;
        let before = requests(&world, "").len();
        world.attached(&world.attach(&volume.name_any(), &node).await).await;
        let mut since = requests(&world, "").split_off(before);
        // The other requests of this time are those of claims, not the attacher's.
        since.retain(|request| request.contains("persistentvolumes") || request.contains("volumeattachments"));
        assert_eq!(since, ["patch volumeattachments", "patch volumeattachments/status"]);
    }
}

#[tokio::test]
async fn a_settled_world_is_not_written_to_by_resyncs_and_listings() {
    let (mut resyncs, _log) = logs::count("resync");
    let (world, _daemon) = World::with_daemon(json!({ "roles": { "attacher": { "resync": "1s" } } })).await;
    let node = world.node("node").await;
    for number in 0..3 {
        let volume = world.volume(&format!("pv-{number}")).await;
        world.attached(&world.attach(&volume, &node).await).await;
    }
    api(&world).audit().clear();
    let seen = *resyncs.borrow();
    bounded("two resyncs", resyncs.wait_for(|count| *count >= seen + 2)).await.unwrap();
    // One more attachment goes through: whatever the resyncs had started came before it.
    let volume = world.volume("last").await;
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
    let others: Vec<_> = writes(&world).into_iter().filter(|it| it.name != attachment && it.name != volume).collect();
    assert_eq!(others, []);
}

#[tokio::test]
async fn an_error_that_stays_the_same_is_written_once() {
    let (world, _daemon) = World::with_daemon(json!({ "roles": { "attacher": { "events": "none" } } })).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let refused = Action::fail(Code::Internal, "always the same");
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, refused));
    let attachment = world.attach(&volume, &node).await;
    world.failed(&attachment, "always the same").await;
    world.driver_until("five attempts", |_| world.publishes(&volume).len() >= 5).await;
    let statuses = written(&world).into_iter().filter(|it| it.contains("/status")).count();
    assert_eq!(statuses, 1);
}

#[tokio::test]
async fn a_detach_error_that_stays_the_same_is_written_once() {
    let (world, _daemon) = World::with_daemon(json!({ "roles": { "attacher": { "events": "none" } } })).await;
    let (_, volume, attachment) = world.attached_anew().await;
    api(&world).audit().clear();
    let refused = Action::fail(Code::Internal, "always the same");
    world.driver().inject(Fault::on(Method::ControllerUnpublishVolume, refused));
    world.detach(&attachment).await;
    world.detach_failed(&attachment, "always the same").await;
    world.driver_until("five attempts", |_| world.unpublishes(&volume).len() >= 5).await;
    let statuses = written(&world).into_iter().filter(|it| it.contains("/status")).count();
    assert_eq!(statuses, 1);
    world.driver().clear_faults();
    world.gone::<VolumeAttachment>(&attachment).await;
}

#[tokio::test]
async fn an_attach_during_a_burst_of_claims_waits_for_few_of_their_requests() {
    const CLAIMS: usize = 60;
    let world = World::supplied(|_| {}).await;
    let roles = json!({ "provisioner": { "workers": CLAIMS }, "attacher": {} });
    let daemon = world.daemon(json!({ "kubernetes": { "maxInFlight": 1 }, "roles": roles })).await;
    world.serving(&daemon).await;
    let class = world.class("class", json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("volume").await);
    for verb in ["get", "create", "patch"] {
        let slowly = faults::Action::DelayBefore(Duration::from_millis(10));
        api(&world).faults().add(faults::Fault::on(by_daemon(&world).verb(verb), slowly));
    }
    for number in 0..CLAIMS {
        world.claim(&format!("claim-{number}"), &class, json!({})).await;
    }
    asked("the burst", async || (requests(&world, "create persistentvolumes").len() > 3).then_some(())).await;
    let before = requests(&world, "").len();
    world.attached(&world.attach(&volume, &node).await).await;
    let meanwhile = requests(&world, "").len() - before;
    // Its own are four at most, each beside one of the claims and one of the Events.
    assert!(meanwhile < CLAIMS / 2, "{meanwhile} requests while one volume was attached");
}

/// The daemon's patches of PersistentVolumes that were refused, because another writer was first.
fn lost_races(world: &World) -> usize {
    let is_lost = |it: &&str| ["patch persistentvolumes 409", "patch persistentvolumes 422"].contains(it);
    written(world).iter().map(String::as_str).filter(is_lost).count()
}

/// So many volumes of claims, each attached; then their claims go, and wait for the detach.
async fn released_while_attached(world: &World, count: usize) -> (Vec<PersistentVolume>, Vec<String>) {
    let (class, node) = (world.class("class", json!({})).await, world.node("node").await);
    let (mut volumes, mut attachments) = (Vec::new(), Vec::new());
    for number in 0..count {
        let claim = world.claim(&format!("claim-{number}"), &class, json!({})).await;
        let volume = world.provisioned(&claim).await;
        let attachment = world.attach(&volume.name_any(), &node).await;
        world.attached(&attachment).await;
        world.delete_claim(&claim).await;
        volumes.push(volume);
        attachments.push(attachment);
    }
    (volumes, attachments)
}

#[tokio::test]
async fn attacher_and_provisioner_take_their_finalizers_off_a_volume_without_a_wasted_write() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.provisioner_with(json!({ "reconciler": null }), json!({})).await;
    world.serving(&daemon).await;
    let (volumes, attachments) = released_while_attached(&world, 40).await;
    for attachment in &attachments {
        world.detach(attachment).await;
    }
    for volume in &volumes {
        world.gone::<PersistentVolume>(&volume.name_any()).await;
    }
    assert_eq!(lost_races(&world), 0, "{:#?}", written(&world));
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), volumes.len());
}

/// Beside a Go sidecar no turn is taken: the tests in each patch are what protects its write, and the daemon repeats its own.
#[tokio::test]
async fn volumes_go_beside_another_program_that_takes_its_finalizer_off_at_the_same_time() {
    const FOREIGN: &str = "external-attacher/of-another-program";
    let world = World::supplied(|_| {}).await;
    let daemon = world.provisioner_with(json!({ "reconciler": null }), json!({})).await;
    world.serving(&daemon).await;
    let (volumes, attachments) = released_while_attached(&world, 10).await;
    let mut others = Vec::new();
    for volume in &volumes {
        let name = volume.name_any();
        // Before ours, so that its removal moves ours.
        let add = json!([{ "op": "add", "path": "/metadata/finalizers/0", "value": FOREIGN }]);
        world.json_patch::<PersistentVolume>(&name, add).await;
        let world = &world;
        others.push(async move {
            world.until(&name, "deleted", |it: &PersistentVolume| it.metadata.deletion_timestamp.is_some()).await;
            let remove = json!([{ "op": "test", "path": "/metadata/finalizers/0", "value": FOREIGN },
                { "op": "remove", "path": "/metadata/finalizers/0" }]);
            world.json_patch::<PersistentVolume>(&name, remove).await;
        });
    }
    let detach = async {
        for attachment in &attachments {
            world.detach(attachment).await;
        }
    };
    futures::join!(detach, futures::future::join_all(others));
    for volume in &volumes {
        world.gone::<PersistentVolume>(&volume.name_any()).await;
    }
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), volumes.len());
}
