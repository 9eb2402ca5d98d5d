//! What the status page says of a state that would otherwise last in silence.

use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault};
use csi_control_plane::sandbox::driver::{Action, Fault as DriverFault, Method, Profile};
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};
use tonic::Code;

use super::{api, by_daemon};
use crate::logs;
use crate::objects::merge;
use crate::resizing::expanding;
use crate::snapshotting::{CONTENT, cutting};
use crate::supplier::{create, supplier};
use crate::world::{PATIENCE, World, settled};

#[tokio::test]
async fn a_daemon_whose_leases_have_no_namespace_is_a_ready_standby_and_says_so() {
    let world = World::new().await;
    let namespace = world.name("elsewhere");
    let daemon = world.daemon(json!({ "leaderElection": { "namespace": namespace } })).await;
    let missing = format!("the cluster has no namespace \"{namespace}\"");
    let says_so = |status: &Value| {
        let roles = status["roles"].as_array().unwrap();
        let says = |role: &Value| role["lastError"].as_str().is_some_and(|error| error.contains(&missing));
        let told: Vec<&Value> = roles.iter().filter(|role| role["name"] == "attacher" && says(role)).collect();
        !told.is_empty() && told.iter().all(|role| role["state"] == "standby")
    };
    world.shows(&daemon, "the missing namespace", says_so).await;
    assert_eq!(crate::http::get(&daemon.diagnostics_dial().unwrap(), "/readyz").await, "ok");
    let series = "csi_control_plane_api_requests_total{verb=\"create\",resource=\"leases\",outcome=\"not_found\"}";
    assert!(world.metrics(&daemon).await.contains(series));

    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    world.create::<Namespace>(object).await;
    world.serving(&daemon).await;
    world.shows(&daemon, "no error", |status| status["roles"][0]["lastError"].is_null()).await;
}

#[tokio::test]
async fn a_claim_in_a_resize_state_of_an_older_api_grows_and_the_state_is_told() {
    let world = World::supplied(|_| {}).await;
    let (claim, _) = world.sizable_device("claim").await;
    world.ask_for(&claim, "2Gi").await;
    // The API of today refuses to store it.
    let older = json!({ "status": { "allocatedResourceStatuses": { "storage": "ControllerResizeFailed" } } });
    let lists = by_daemon(&world).verb("list").resource("persistentvolumeclaims");
    api(&world).faults().add(Fault::on(lists, ApiAction::Show(older)));
    let (told, _log) = logs::count("the API has a value that is not known");
    let _daemon = world.resizer(json!({})).await;
    world.sized(&claim, "2Gi").await;
    assert_eq!((world.sizes_asked(), *told.borrow()), (vec![2.0], 1));
}

impl World {
    /// With `events: all`, four attempts of a role are in the count of its Event within ten seconds.
    async fn attempts_are_told(&self, uid: &str, reason: &str) {
        let begun = Instant::now();
        settled("the count of the attempts", PATIENCE, async || {
            let events = Api::<Event>::all(self.client()).list(&ListParams::default()).await.unwrap().items;
            let on = |event: &&Event| event.involved_object.uid.as_deref() == Some(uid);
            let of_reason = events.iter().filter(on).filter(|it| it.reason.as_deref() == Some(reason));
            let counts: Vec<_> =
                of_reason.filter_map(|it| it.series.as_ref().and_then(|series| series.count).or(it.count)).collect();
            if counts.iter().any(|count| *count >= 4) { Ok(()) } else { Err(format!("{counts:?}")) }
        })
        .await;
        // The attempts themselves take a second.
        assert!(begun.elapsed() < Duration::from_secs(15), "{reason}: after {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn whoever_asks_for_all_events_sees_each_roles_attempts_within_ten_seconds() {
    let retry = json!({ "initial": "100ms", "max": "200ms" });
    let all = json!({ "events": "all", "retry": retry });
    let broken = || Action::fail(Code::Internal, "the shelf is stuck");
    let world = World::snapshotting(|_: &mut Profile| {}).await;
    let mut config = supplier(all.clone());
    merge(&mut config, json!({ "roles": { "attacher": all, "resizer": all, "snapshotter": all } }));
    let _daemon = world.daemon(config).await;
    let (grows, _) = world.sizable_device("grows").await;
    let source = world.source("source").await;
    let class = world.class("class", json!({})).await;
    let snapshot_class = world.snapshot_class("snapshots", json!({})).await;
    let (node, attaches) = (world.node("node").await, world.volume("attaches").await);
    let publishing = DriverFault::on(Method::ControllerPublishVolume, broken());
    for fault in [create(broken()), expanding(broken()), cutting(broken()), publishing] {
        world.driver().inject(fault);
    }
    let attachment = world.attach(&attaches, &node).await;
    let attachment = world.all::<VolumeAttachment>().get(&attachment).await.unwrap();
    world.attempts_are_told(&attachment.uid().unwrap(), "VolumeAttachFailed").await;
    let made = world.claim("made", &class, json!({})).await;
    world.attempts_are_told(&world.claim_uid(&made).await, "ProvisioningFailed").await;
    world.ask_for(&grows, "2Gi").await;
    world.attempts_are_told(&world.claim_uid(&grows).await, "VolumeResizeFailed").await;
    let cut = world.cut("cut", &source, &snapshot_class).await;
    let content = world.look_until(CONTENT, &cut.content, "there", |it| !it.is_null()).await;
    world.attempts_are_told(content["metadata"]["uid"].as_str().unwrap(), "SnapshotCreationFailed").await;
}
