//! A daemon with the attach/detach controller: work that needs each of its rights, and that it needs no driver.

use csi_control_plane::roles::attach_detach::metrics;
use csi_control_plane::roles::attach_detach::volume_id::VolumeId;
use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults::{Action, Fault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::api::pure::resources;
use csi_control_plane::telemetry::names::Metric;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};

use super::diagnostics::describes;
use super::exposition::{Sample, parse};
use super::program::{eventually, role};
use super::rbac::USER;
use super::theatre::{DRIVER, NODE, Theatre, volume_object};

/// The volume that a pod wants, and one that none wants.
const WANTED: &str = "wanted";
/// The volume that could not be attached.
const FAILING: &str = "failing";
/// The volume that is attached when the daemon begins.
const KEPT: &str = "kept";
const LEFT: &str = "left";
/// The node that it is left on. Nothing is written there, so that it has to be read.
const SPARE: &str = "spare";

/// A section with short times.
pub(crate) fn section() -> Value {
    json!({"retry": {"initial": "300ms", "max": "1s"}, "settle": "0s"})
}

/// What the attachment of a volume to its node is called.
fn attachment(volume: &str) -> String {
    VolumeId::new(DRIVER, volume).attachment_name(if volume == LEFT { SPARE } else { NODE })
}

fn is_attached(theatre: &Theatre, volume: &str) {
    let status = PatchBody::Merge(json!({"status": {"attached": true}}));
    theatre.testbed.api.patch_status::<VolumeAttachment>("", &attachment(volume), status).unwrap();
}

/// A node, a pod on it whose claims are bound, one to a volume that an earlier leader has left attached and not reported, and which cannot be
/// kept for a while; and an attachment that nobody wants.
pub(crate) fn begin(theatre: &Theatre) {
    let api = &theatre.testbed.api;
    let managed = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    for name in [NODE, SPARE] {
        theatre.put(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": managed}, "spec": {}}),
        );
        let ready = PatchBody::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        api.patch_status::<Node>("", name, ready).unwrap();
    }
    for name in [WANTED, FAILING, KEPT] {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}});
        let claim = api.create_value(claim).unwrap();
        let mut volume = volume_object(name, json!({}));
        volume["spec"]["claimRef"] = json!({"namespace": "default", "name": name, "uid": claim["metadata"]["uid"]});
        theatre.put(volume);
        let bound = PatchBody::Merge(json!({"status": {"phase": "Bound"}}));
        api.patch_status::<PersistentVolumeClaim>("default", name, bound).unwrap();
    }
    // Of the second one an Event says that it could not be attached.
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": WANTED}},
        {"name": "failing", "persistentVolumeClaim": {"claimName": FAILING}},
        {"name": "kept", "persistentVolumeClaim": {"claimName": KEPT}}]);
    for name in [FAILING, KEPT] {
        theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": attachment(name)},
            "spec": {"attacher": DRIVER, "nodeName": NODE, "source": {"persistentVolumeName": name}}}));
    }
    is_attached(theatre, KEPT);
    let failed = json!({"attached": false, "attachError": {"time": "2026-01-01T00:00:00Z", "message": "no luck"}});
    let failed = PatchBody::Merge(json!({ "status": failed }));
    api.patch_status::<VolumeAttachment>("", &attachment(FAILING), failed).unwrap();
    theatre.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user", "namespace": "default"},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}], "volumes": volumes}}));
    theatre.put(volume_object(LEFT, json!({})));
    theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": attachment(LEFT)},
        "spec": {"attacher": DRIVER, "nodeName": SPARE, "source": {"persistentVolumeName": LEFT}}}));
    is_attached(theatre, LEFT);
    // Then the attachment is read again; for long enough that what cannot be read is seen.
    let patches = Matching::any().verb("patch").user(USER).resource("volumeattachments");
    let conflict = Rejection::conflict(resources::find("storage.k8s.io", "v1", "volumeattachments").unwrap(), KEPT);
    api.faults().add(Fault::on(patches, Action::Refuse(conflict)).times(6));
}

/// Waits until the pod has its volume, and the other one is detached.
pub(crate) async fn done(theatre: &Theatre) {
    wanted(theatre).await;
    theatre.committed("an event", |commit| commit.plural == "events" && commit.user == USER).await;
    let is_gone = || theatre.testbed.api.get::<VolumeAttachment>("", &attachment(LEFT)).is_err();
    eventually("what nobody wants is detached", async || is_gone().then_some(())).await;
}

/// Waits until the pod's volume is asked for, attaches it, and waits until the node reports it.
async fn wanted(theatre: &Theatre) {
    let api = &theatre.testbed.api;
    let name = attachment(WANTED);
    eventually("it is asked for", async || api.get::<VolumeAttachment>("", &name).ok()).await;
    is_attached(theatre, WANTED);
    eventually("the node reports it", async || {
        let listed = api.get::<Node>("", NODE).unwrap().status?.volumes_attached?;
        listed.iter().any(|volume| volume.name == VolumeId::new(DRIVER, WANTED).name()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_daemon_for_all_drivers_works_without_a_socket_and_waits_for_it_with_another_role() {
    let theatre = Theatre::open().await;
    begin(&theatre);
    let without = |config: &mut Value| {
        config["csi"]["endpoint"] = "/nowhere/csi.sock".into();
        config["roles"] = json!({"attachDetach": section()});
    };
    let mut daemon = theatre.daemon_with("cluster", without);
    daemon.logged("no role needs the driver: no connection to it").await;
    wanted(&theatre).await;
    eventually("it is ready", async || (daemon.get("/readyz").await.code == 200).then_some(())).await;
    let status = daemon.shows("it is healthy", |status| status["overall"] == "healthy").await;
    assert_eq!((&status["driver"]["state"], &status["driver"]["name"]), (&"notNeeded".into(), &Value::Null));
    let own = role(&status, "attachDetach");
    assert_eq!((&own["state"], &own["lease"]), (&"serving".into(), &"kube-system/attach-detach-controller".into()));
    let metrics = daemon.get("/metrics").await.body;
    assert!(metrics.contains("leader_election_master_status{name=\"attach-detach-controller\"} 1"), "{metrics}");
    assert!(!metrics.contains("csi_control_plane_driver_ready"), "{metrics}");
    assert!(daemon.get("/").await.body.contains("<h1>all drivers of the cluster</h1>"));
    theatre.testbed.api.delete::<Pod>("default", "user").unwrap();
    let is_gone = || theatre.testbed.api.get::<VolumeAttachment>("", &attachment(WANTED)).is_err();
    eventually("it is detached", async || is_gone().then_some(())).await;
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());

    let beside = theatre.daemon_with("beside", |config| {
        without(config);
        config["roles"]["attacher"] = json!({});
    });
    let status = beside.shows("it waits", |status| !status["driver"]["lastError"].is_null()).await;
    assert_eq!(status["driver"]["state"], "connecting");
    for name in ["attachDetach", "attacher"] {
        assert_eq!(role(&status, name)["state"], "waitingForDriver");
    }
}

#[tokio::test]
async fn every_metric_of_the_role_appears_as_the_catalogue_describes_it() {
    let theatre = Theatre::open().await;
    let api = &theatre.testbed.api;
    begin(&theatre);
    theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "orphan"},
        "spec": {"attacher": DRIVER, "nodeName": NODE, "source": {"persistentVolumeName": "gone"}}}));
    let daemon = theatre.daemon_with("cluster", |config| {
        config["csi"]["endpoint"] = "/nowhere/csi.sock".into();
        let times =
            json!({"retry": {"initial": "300ms", "max": "1s"}, "settle": "0s", "resync": "1s", "orphanGrace": "0s"});
        config["roles"] = json!({ "attachDetach": times });
    });
    wanted(&theatre).await;
    // The node is lost while it uses the volume: it is detached by force.
    let in_use = json!({"status": {"volumesInUse": [VolumeId::new(DRIVER, WANTED).name()]}});
    api.patch_status::<Node>("", NODE, PatchBody::Merge(in_use)).unwrap();
    api.delete::<Pod>("default", "user").unwrap();
    let taint = json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}});
    eventually("its volume waits", async || {
        let found = parse(&daemon.get("/metrics").await.body);
        let samples = found.get(metrics::TOTAL_VOLUMES.name).map(|family| &family.samples)?;
        samples.iter().any(|it| it.label("state") == Some("desired_state_of_world") && it.value == 0.0).then_some(())
    })
    .await;
    api.patch::<Node>("", NODE, PatchBody::Merge(taint)).unwrap();
    let mut missing = Vec::new();
    let families = eventually("all of them", async || {
        let families = parse(&daemon.get("/metrics").await.body);
        missing =
            metrics::ALL.iter().filter(|it| !families.contains_key(it.name)).map(|it| it.name).collect::<Vec<_>>();
        missing.is_empty().then_some(families)
    })
    .await;
    let value = |metric: &Metric, labels: &[(&str, &str)]| {
        let fits = |it: &&Sample| labels.iter().all(|(label, value)| it.label(label) == Some(value));
        families[metric.name].samples.iter().find(fits).map(|it| it.value)
    };
    for metric in metrics::ALL {
        describes(metric, &families[metric.name]);
    }
    assert_eq!(value(&metrics::FORCED, &[("reason", "out-of-service")]), Some(1.0));
    assert_eq!(value(&metrics::ORPHANS, &[("action", "deleted")]), Some(1.0));
    assert_eq!(value(&metrics::IN_USE, &[("node", NODE)]), Some(1.0));
}
