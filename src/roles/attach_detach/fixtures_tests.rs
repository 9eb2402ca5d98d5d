//! A cluster with nodes, claims and pods for the tests of this role, with an attacher and a kubelet that do as they are told.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};

use crate::diagnostics::{RoleReport, RoleScope};
use crate::roles::attach_detach::REGISTRATION;
use crate::roles::attach_detach::volume_id::VolumeId;
use crate::roles::kit::fixtures::merged;
use crate::roles::kit::served::Served;
use crate::sandbox::api::PatchBody;
use crate::sandbox::driver::Profile;

/// The driver of the claims: another one than that of the daemon.
pub(super) const DRIVER: &str = "other.csi";

/// A cluster with two nodes that are ready.
pub(super) async fn cluster(section: Value) -> Served {
    let section = merged(json!({ "settle": "0s" }), section);
    let world = Served::new(&REGISTRATION, &section, Profile::default()).await;
    for name in ["n1", "n2"] {
        node(&world, name);
    }
    world.write_events();
    world
}

/// The same, and a pod on n1 wants a volume.
pub(super) async fn wanting(section: Value) -> Served {
    let world = cluster(section).await;
    bind(&world, "data", "v", "ReadWriteOnce");
    pod(&world, "web", "n1", "data");
    world
}

/// A term has made its attachment.
pub(super) async fn asking(section: Value) -> Served {
    let world = wanting(section).await;
    world.lead();
    world.until("it is asked for", |world| attachments(world) == at(&["n1"])).await;
    world
}

/// The pod has its volume.
pub(super) async fn settled(section: Value) -> Served {
    let world = wanting(section).await;
    world.lead();
    world.until("it is reported", |world| (attach(world), reported(world, "n1")).1 == ["v"]).await;
    world
}

/// That the pod's volume is attached to these nodes.
pub(super) fn at(nodes: &[&str]) -> Vec<(String, String)> {
    nodes.iter().map(|node| ((*node).to_owned(), "pv-data".to_owned())).collect()
}

pub(super) fn node(world: &Served, name: &str) {
    let managed = json!({ "volumes.kubernetes.io/controller-managed-attach-detach": "true" });
    let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "annotations": managed } });
    world.testbed.api.create_value(object).unwrap();
    says(world, name, &json!({ "conditions": [{ "type": "Ready", "status": "True" }] }));
    let entry = json!({ "name": DRIVER, "nodeID": name, "topologyKeys": null });
    let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": name },
        "spec": { "drivers": [entry] } });
    world.testbed.api.create_value(object).unwrap();
}

/// The kubelet writes the status of its node.
pub(super) fn says(world: &Served, node: &str, status: &Value) {
    let status = PatchBody::Merge(json!({ "status": status }));
    world.testbed.api.patch_status::<core::Node>("", node, status).unwrap();
}

/// The kubelet uses these volumes.
pub(super) fn uses(world: &Served, node: &str, handles: &[&str]) {
    let names: Vec<_> = handles.iter().map(|handle| id(handle).name().to_owned()).collect();
    says(world, node, &json!({ "volumesInUse": names }));
}

pub(super) fn id(handle: &str) -> VolumeId {
    VolumeId::new(DRIVER, handle)
}

/// A claim that is bound to a volume of its own with this handle and mode.
pub(super) fn bind(world: &Served, claim: &str, handle: &str, mode: &str) {
    let (api, size) = (&world.testbed.api, json!({ "storage": "1Gi" }));
    let spec = json!({ "volumeName": format!("pv-{claim}"), "accessModes": [mode], "resources": { "requests": size } });
    let object = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": claim, "namespace": "default" }, "spec": spec });
    let uid = api.create_value(object).unwrap()["metadata"]["uid"].clone();
    let object = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("pv-{claim}") },
        "spec": { "capacity": size, "accessModes": [mode],
            "claimRef": { "namespace": "default", "name": claim, "uid": uid },
            "csi": { "driver": DRIVER, "volumeHandle": handle } } });
    api.create_value(object).unwrap();
    let bound = PatchBody::Merge(json!({ "status": { "phase": "Bound" } }));
    api.patch_status::<core::PersistentVolumeClaim>("default", claim, bound).unwrap();
}

/// A pod on a node that uses a claim.
pub(super) fn pod(world: &Served, name: &str, node: &str, claim: &str) {
    let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
    let object = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "nodeName": node, "volumes": volumes, "containers": [{ "name": "c", "image": "i" }] } });
    world.testbed.api.create_value(object).unwrap();
}

pub(super) fn delete_pod(world: &Served, name: &str) {
    assert!(world.testbed.api.delete::<core::Pod>("default", name).is_ok());
}

/// An attachment that somebody has made, with this status.
pub(super) fn attachment(world: &Served, node: &str, handle: &str, claim: &str, attached: bool) {
    let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": id(handle).attachment_name(node) },
        "spec": { "attacher": DRIVER, "nodeName": node, "source": { "persistentVolumeName": format!("pv-{claim}") } } });
    world.testbed.api.create_value(object).unwrap();
    set_attached(world, &id(handle).attachment_name(node), attached);
}

pub(super) fn set_attached(world: &Served, name: &str, attached: bool) {
    let status = PatchBody::Merge(json!({ "status": { "attached": attached } }));
    world.testbed.api.patch_status::<VolumeAttachment>("", name, status).unwrap();
}

/// The node reports these volumes, as an earlier leader has left it.
pub(super) fn report(world: &Served, node: &str, handles: &[&str]) {
    let entry = |handle: &&str| json!({ "name": id(handle).name(), "devicePath": "" });
    says(world, node, &json!({ "volumesAttached": handles.iter().map(entry).collect::<Vec<_>>() }));
}

/// The attacher attaches all that it finds.
pub(super) fn attach(world: &Served) {
    for held in world.testbed.api.list::<VolumeAttachment>("").unwrap() {
        if held.metadata.deletion_timestamp.is_none() && !held.status.is_some_and(|status| status.attached) {
            set_attached(world, &held.metadata.name.unwrap(), true);
        }
    }
}

/// Node and volume of each attachment.
pub(super) fn attachments(world: &Served) -> Vec<(String, String)> {
    let held: Vec<VolumeAttachment> = world.testbed.api.list("").unwrap();
    let of = |it: VolumeAttachment| (it.spec.node_name, it.spec.source.persistent_volume_name.unwrap_or_default());
    let mut held: Vec<_> = held.into_iter().map(of).collect();
    held.sort();
    held
}

/// The handles that the node reports as attached.
pub(super) fn reported(world: &Served, node: &str) -> Vec<String> {
    let node: core::Node = world.testbed.api.get("", node).unwrap();
    let listed = node.status.and_then(|status| status.volumes_attached).unwrap_or_default();
    listed
        .iter()
        .map(|volume| VolumeId::of_name(&volume.name).map_or_else(|| volume.name.clone(), |id| id.handle().to_owned()))
        .collect()
}

/// Reason, object and text of each Event, in the order in which they were written.
pub(super) fn events(world: &Served) -> Vec<(String, String, String)> {
    let mut events: Vec<core::Event> = world.testbed.api.list("default").unwrap();
    events.sort_by_key(|it| it.metadata.resource_version.as_ref().and_then(|version| version.parse::<u64>().ok()));
    let of = |it: core::Event| {
        (it.reason.unwrap_or_default(), it.involved_object.name.unwrap_or_default(), it.message.unwrap_or_default())
    };
    events.into_iter().map(of).collect()
}

/// Why the role fails, as the status page says it.
pub(super) fn failure(world: &Served) -> Option<String> {
    let _shown = world.context.board.role(|| RoleReport::serving(REGISTRATION.name, RoleScope::Cluster));
    world.context.board.report().roles.remove(0).failure
}
