//! What an attach/detach controller and a health monitor read, and that it costs nothing where there is neither.

use kube::Resource as _;
use serde_json::{Value, json};

use super::full_meta;
use crate::cluster::managers::Managers;
use crate::cluster::objects::{
    AttachedVolume, Cached, ClaimHealth, CsiDriver, CsiDriverSpec, CsiNode, Fields, HealthCondition, NodeState, Object,
    PersistentVolume, PersistentVolumeClaim, ToldEvent, VolumeAttachment,
};

fn read<K: Cached>(object: &Value, fields: Fields) -> K {
    let mut object: K = serde_json::from_value(object.clone()).unwrap();
    object.trim("demo", fields);
    object
}

fn managed(manager: &str, fields: &Value) -> Value {
    json!([{ "manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields }])
}

fn node() -> Value {
    let mut node = json!({
        "metadata": full_meta("node-1"),
        "spec": { "podCIDR": "10.0.0.0/24", "taints": [
            { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" },
            { "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" }] },
        "status": {
            "conditions": [
                { "type": "MemoryPressure", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                { "type": "Ready", "status": "Unknown", "lastHeartbeatTime": "2026-01-02T00:00:00Z",
                    "lastTransitionTime": "2026-01-01T00:00:09Z", "reason": "NodeStatusUnknown" }],
            "volumesInUse": ["kubernetes.io/csi/demo^vol^1", "kubernetes.io/csi/other^vol-2", "kubernetes.io/csi/demo.x^v",
                "kubernetes.io/aws-ebs/vol-9"],
            "volumesAttached": [{ "name": "kubernetes.io/aws-ebs/vol-9", "devicePath": "/dev/x" },
                { "name": "kubernetes.io/csi/other^vol-2", "devicePath": "" },
                { "name": "kubernetes.io/csi/demo^vol^1", "devicePath": "" }],
            "images": [{ "names": ["a"], "sizeBytes": 1 }] },
    });
    node["metadata"]["annotations"] =
        json!({ "volumes.kubernetes.io/controller-managed-attach-detach": "", "other": "x" });
    node["metadata"]["managedFields"] =
        managed("kube-controller-manager", &json!({ "f:spec": {}, "f:status": { "f:volumesAttached": {} } }));
    node
}

#[test]
fn a_node_tells_its_volumes_and_whether_they_may_be_taken_from_it() {
    let state: NodeState = read(&node(), Fields::ATTACH);
    assert!(state.is_managed && state.is_out_of_service);
    let ready = state.ready.as_ref().unwrap();
    assert_eq!(
        (ready.status.as_str(), ready.since.unwrap().timestamp().to_string()),
        ("Unknown", "2026-01-01T00:00:09Z".into())
    );
    let csi = ["kubernetes.io/csi/demo^vol^1", "kubernetes.io/csi/other^vol-2", "kubernetes.io/csi/demo.x^v"];
    assert_eq!(*state.volumes_in_use, csi.map(Box::from));
    let attached = |name: &str, path: &str| AttachedVolume { name: name.into(), device_path: path.into() };
    let listed = [attached("kubernetes.io/aws-ebs/vol-9", "/dev/x"), attached(csi[1], ""), attached(csi[0], "")];
    assert_eq!(*state.volumes_attached, listed);
    assert_eq!((&*state.metadata.uid, state.metadata.resource_version.as_deref()), ("u1", Some("7")));
    assert!(state.metadata.creation_timestamp.is_some());
    assert_eq!(state.metadata.managers, Managers::VOLUMES_ATTACHED);
    let meta = &state.metadata;
    assert!(
        meta.labels.is_none()
            && meta.annotations.is_none()
            && meta.owner_references.is_none()
            && meta.finalizers.is_none()
    );
    assert_eq!(
        (<NodeState as Object>::Kind::url_path(&(), None), NodeState::KIND),
        ("/api/v1/nodes".into(), "Node/status")
    );
    assert!(!<NodeState as Object>::Kind::metadata_api(), "a status is not metadata");
}

#[test]
fn a_node_that_is_read_to_be_written_has_the_volumes_of_all_drivers_as_they_were_sent() {
    let state: NodeState = serde_json::from_value(node()).unwrap();
    assert_eq!(serde_json::to_value(&state.volumes_attached).unwrap(), node()["status"]["volumesAttached"]);
}

#[test]
fn where_no_role_attaches_a_node_tells_only_whether_it_is_ready() {
    let state: NodeState = read(&node(), Fields::HEALTH);
    assert_eq!(state.ready.as_ref().map(|ready| ready.status.as_str()), Some("Unknown"));
    let metadata = state.metadata.clone();
    assert!(metadata.creation_timestamp.is_none() && metadata.managers == Managers::default());
    assert_eq!(state, NodeState { metadata, ready: state.ready.clone(), ..NodeState::default() });
}

#[test]
fn a_node_that_says_nothing_is_neither_ready_nor_managed_and_has_no_volumes() {
    let null = json!({ "metadata": { "name": "n" }, "spec": { "taints": null },
        "status": { "conditions": null, "volumesInUse": null, "volumesAttached": null } });
    for bare in [
        json!({ "metadata": { "name": "n" } }),
        json!({ "metadata": { "name": "n" }, "spec": null, "status": null }),
        null,
    ] {
        let state: NodeState = read(&bare, Fields::ATTACH);
        assert_eq!(state, NodeState { metadata: state.metadata.clone(), ..NodeState::default() });
    }
}

#[test]
fn an_attachment_tells_whether_another_controller_has_made_it() {
    let attachment = |attacher: &str, manager: &str, fields: &Value, asked: Fields| -> Managers {
        let mut object =
            json!({ "metadata": { "name": "va" }, "spec": { "attacher": attacher, "nodeName": "n", "source": {} } });
        object["metadata"]["managedFields"] = managed(manager, fields);
        read::<VolumeAttachment>(&object, asked).metadata.managers
    };
    let (made, them) = (json!({ "f:spec": { "f:attacher": {} } }), "kube-controller-manager");
    assert_eq!(attachment("demo", them, &made, Fields::ATTACH), Managers::SPEC);
    assert_eq!(attachment("other", them, &made, Fields::ATTACH), Managers::SPEC);
    for (attacher, manager, fields, asked) in [
        ("demo", them, &made, Fields::NONE),
        ("other", them, &made, Fields::NONE),
        ("demo", "csi-control-plane", &made, Fields::ATTACH),
        ("demo", them, &json!({ "f:metadata": {} }), Fields::ATTACH),
    ] {
        assert_eq!(attachment(attacher, manager, fields, asked), Managers::default(), "{attacher} {manager} {fields}");
    }
}

#[test]
fn volumes_attachments_and_drivers_of_others_are_known_as_far_as_they_are_attached() {
    let volume = json!({ "metadata": full_meta("pv"), "spec": { "accessModes": ["ReadWriteOnce"],
        "csi": { "driver": "other", "volumeHandle": "v^1", "volumeAttributes": { "a": "b" } },
        "claimRef": { "namespace": "shop", "name": "data", "uid": "cu" } } });
    let held: PersistentVolume = read(&volume, Fields::ATTACH);
    assert_eq!(
        (held.spec.foreign_driver.as_deref(), held.spec.foreign_handle.as_deref()),
        (Some("other"), Some("v^1"))
    );
    assert_eq!((held.spec.access_modes.len(), held.spec.csi.is_none()), (1, true));
    assert_eq!(held.spec.claim_ref.unwrap().uid.as_deref(), Some("cu"));
    let in_tree = json!({ "metadata": full_meta("pv"), "spec": { "awsElasticBlockStore": { "volumeID": "vol-1" } } });
    assert!(read::<PersistentVolume>(&in_tree, Fields::ATTACH).spec.migration.is_some());
    assert!(read::<PersistentVolume>(&in_tree, Fields::MIGRATION).spec.migration.is_none());
    let attachment = json!({ "metadata": full_meta("va"), "spec": { "attacher": "other", "nodeName": "n",
        "source": { "inlineVolumeSpec": { "csi": { "driver": "other", "volumeHandle": "v" } } } },
        "status": { "attached": true, "attachmentMetadata": { "a": "b" } } });
    let held: VolumeAttachment = read(&attachment, Fields::ATTACH);
    assert!(held.status.attached && held.spec.node_name == "n" && held.status.attachment_metadata.is_none());
    assert!(held.metadata.creation_timestamp.is_some() && held.spec.source.inline_volume_spec.is_some());
    let driver =
        json!({ "metadata": full_meta("other"), "spec": { "attachRequired": false, "storageCapacity": true } });
    let held: CsiDriver = read(&driver, Fields::ATTACH);
    assert_eq!(held.spec, CsiDriverSpec { attach_required: false, ..CsiDriverSpec::default() });
}

fn claim() -> Value {
    json!({
        "metadata": { "name": "web-data", "namespace": "shop", "uid": "u", "ownerReferences": [
            { "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "cu" },
            { "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "pu", "controller": true }] },
        "spec": { "volumeName": "pv" },
        "status": { "phase": "Bound", "healthStatus": { "lastTransitionTime": "2026-01-01T00:00:00Z",
            "healthConditions": [{ "status": "Degraded", "reason": "Slow", "message": "one disk of two" }] } },
    })
}

#[test]
fn a_claim_tells_which_pod_controls_it() {
    for unbound in [false, true] {
        let mut object = claim();
        if unbound {
            object["spec"] = json!({});
            object["metadata"]["annotations"] = json!({ "volume.kubernetes.io/storage-provisioner": "demo" });
        }
        let claim: PersistentVolumeClaim = read(&object, Fields::ATTACH);
        let owners = claim.metadata.owner_references.as_deref().unwrap();
        let told: Vec<_> = owners.iter().map(|owner| (owner.kind.as_str(), owner.uid.as_str())).collect();
        assert_eq!(told, [("Pod", "pu")]);
        assert_eq!(read::<PersistentVolumeClaim>(&object, Fields::HEALTH).metadata.owner_references, None);
    }
    let mut object = claim();
    object["metadata"]["ownerReferences"][1]["controller"] = json!(null);
    assert_eq!(read::<PersistentVolumeClaim>(&object, Fields::ATTACH).metadata.owner_references, None);
}

#[test]
fn a_claim_with_a_volume_tells_the_health_that_it_was_given() {
    let held =
        |object: &Value, fields| read::<PersistentVolumeClaim>(object, fields).status.health.map(|health| *health);
    let health = held(&claim(), Fields::HEALTH).unwrap();
    assert_eq!(health.last_transition_time.unwrap().timestamp().to_string(), "2026-01-01T00:00:00Z");
    let condition =
        HealthCondition { status: "Degraded".into(), reason: "Slow".into(), message: "one disk of two".into() };
    assert_eq!(*health.conditions, [condition]);
    assert_eq!(
        serde_json::to_value(&health.conditions).unwrap(),
        claim()["status"]["healthStatus"]["healthConditions"]
    );
    assert_eq!(held(&claim(), Fields::RESIZE | Fields::ATTACH), None);
    let mut object = claim();
    object["spec"] = json!({});
    assert_eq!(held(&object, Fields::HEALTH), None, "without a volume there is none that is ill");
    for (status, expected) in [
        (json!({ "healthStatus": null }), None),
        (json!(null), None),
        (json!({ "healthStatus": { "healthConditions": null } }), Some(ClaimHealth::default())),
    ] {
        let mut object = claim();
        object["status"] = status;
        assert_eq!(held(&object, Fields::HEALTH), expected);
    }
}

#[test]
fn our_driver_tells_the_cluster_what_it_needs_and_what_is_unset_is_the_servers_default() {
    let held = |name: &str, spec: &Value| -> CsiDriver {
        read(&json!({ "metadata": full_meta(name), "spec": spec }), Fields::NONE)
    };
    let unset = CsiDriverSpec::default();
    let (both, inline) = (json!(["Persistent", "Ephemeral"]), json!(["Ephemeral", "OfTomorrow"]));
    for (spec, expected) in [
        (json!({}), unset.clone()),
        (json!(null), unset.clone()),
        (json!({ "attachRequired": null, "volumeLifecycleModes": null, "storageCapacity": null }), unset.clone()),
        (json!({ "attachRequired": true, "volumeLifecycleModes": [], "fsGroupPolicy": "File" }), unset.clone()),
        (json!({ "attachRequired": false }), CsiDriverSpec { attach_required: false, ..unset.clone() }),
        (json!({ "podInfoOnMount": true }), CsiDriverSpec { pod_info: true, ..unset.clone() }),
        (json!({ "storageCapacity": true }), CsiDriverSpec { storage_capacity: true, ..unset.clone() }),
        (json!({ "volumeLifecycleModes": both }), CsiDriverSpec { ephemeral: true, ..unset.clone() }),
        (
            json!({ "volumeLifecycleModes": inline }),
            CsiDriverSpec { persistent: false, ephemeral: true, ..unset.clone() },
        ),
        (json!({ "nodeAllocatableUpdatePeriodSeconds": 10 }), CsiDriverSpec { updates_limit: true, ..unset.clone() }),
    ] {
        assert_eq!(held("demo", &spec).spec, expected, "{spec}");
        let foreign = held("other", &spec);
        assert_eq!(foreign.spec, unset, "{spec}");
        assert!(foreign.metadata.annotations.is_none() && foreign.metadata.labels.is_none());
    }
    assert_eq!(<CsiDriver as Object>::Kind::url_path(&(), None), "/apis/storage.k8s.io/v1/csidrivers");
}

#[test]
fn an_event_that_was_told_says_of_what_when_and_by_whom() {
    let event: ToldEvent = serde_json::from_value(json!({
        "metadata": { "name": "web-data.1", "namespace": "shop" }, "type": "Warning", "reason": "VolumeConditionAbnormal",
        "message": "one disk of two", "count": 2, "lastTimestamp": "2026-01-01T00:00:00Z", "eventTime": null,
        "source": { "component": "csi-pv-monitor-controller-demo", "host": "h" },
        "involvedObject": { "kind": "PersistentVolumeClaim", "namespace": "shop", "name": "web-data", "uid": "u" },
    }))
    .unwrap();
    assert_eq!(
        (event.type_.as_str(), event.reason.as_str(), event.message.as_str()),
        ("Warning", "VolumeConditionAbnormal", "one disk of two")
    );
    assert_eq!((event.about.uid.as_str(), event.component.as_str()), ("u", "csi-pv-monitor-controller-demo"));
    assert_eq!(event.last.unwrap().timestamp().to_string(), "2026-01-01T00:00:00Z");
    let bare: ToldEvent =
        serde_json::from_value(json!({ "metadata": { "name": "e" }, "involvedObject": {}, "source": null,
        "type": null, "lastTimestamp": null }))
        .unwrap();
    assert_eq!(bare, ToldEvent { metadata: bare.metadata.clone(), ..ToldEvent::default() });
    assert_eq!(<ToldEvent as Object>::Kind::url_path(&(), Some("shop")), "/api/v1/namespaces/shop/events");
}

#[test]
fn a_node_tells_which_drivers_are_registered_and_the_ids_of_our_own_alone() {
    let entry = |name: &str| json!({ "name": name, "nodeID": "id-1", "topologyKeys": ["zone"] });
    let object = json!({ "metadata": { "name": "n1" }, "spec": { "drivers": [entry("demo"), entry("other")] } });
    let node: CsiNode = read(&object, Fields::ATTACH);
    assert!(node.has("demo") && node.has("other") && !node.has("third"));
    assert_eq!((node.node_id("demo"), node.node_id("other")), (Some("id-1"), Some("")));
    let own: CsiNode = read(&object, Fields::NONE);
    assert!(own.has("demo") && !own.has("other"));
}
