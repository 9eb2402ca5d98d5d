//! What is packed of other drivers' objects, and that no reader of a cache notices.

use serde_json::{Value, json};

use crate::cluster::cache::Cache;
use crate::cluster::fanout::{Fanout, News};
use crate::cluster::names::ObjectName;
use crate::cluster::objects::{
    BY_VOLUME, Cached, Fields, PersistentVolume, PersistentVolumeClaim, VolumeAttachment, VolumeSnapshotContent,
};
use crate::process::Clock;
use crate::telemetry::Meter;

const UID: &str = "22222222-0000-4000-8000-0123456789ab";
const OTHER: &str = "other.csi.example.com";

/// `base` with what `patch` says laid over it.
fn merged(mut base: Value, patch: Value) -> Value {
    match (&mut base, patch) {
        (Value::Object(held), Value::Object(patch)) => {
            for (key, value) in patch {
                let below = held.remove(&key).unwrap_or(Value::Null);
                held.insert(key, merged(below, value));
            }
            base
        }
        (_, patch) => patch,
    }
}

fn trimmed<K: Cached>(object: Value, fields: Fields) -> K {
    let mut object: K = serde_json::from_value(object).unwrap();
    object.trim("demo", fields);
    object
}

/// Whether an object is packed. If it is, it comes out as it went in.
fn is_packed<K: Cached>(object: Value, fields: Fields) -> bool {
    let object: K = trimmed(object, fields);
    let Some(packed) = object.packed("demo") else { return false };
    assert_eq!(K::opened(&packed).as_ref(), Some(&object));
    true
}

fn meta(name: &str, extra: Value) -> Value {
    merged(
        json!({ "name": name, "uid": UID, "resourceVersion": "4711", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "a": "b" }, "managedFields": [{ "manager": "kubectl", "operation": "Update" }] }),
        extra,
    )
}

fn volume(driver: &str, extra: Value) -> Value {
    let metadata = meta(
        "pvc-1",
        json!({ "finalizers": ["kubernetes.io/pv-protection", "external-attacher/other"],
        "annotations": { "pv.kubernetes.io/provisioned-by": driver, "x": "y" } }),
    );
    let spec = json!({ "csi": { "driver": driver, "volumeHandle": "v" }, "persistentVolumeReclaimPolicy": "Delete",
        "claimRef": { "namespace": "shop", "name": "data", "uid": "c1" } });
    merged(json!({ "metadata": metadata, "spec": spec, "status": { "phase": "Bound" } }), extra)
}

fn claim(provisioner: &str, extra: Value) -> Value {
    let metadata = meta(
        "data",
        json!({ "namespace": "shop", "finalizers": ["kubernetes.io/pvc-protection"],
        "annotations": { "volume.kubernetes.io/storage-provisioner": provisioner,
            "volume.kubernetes.io/selected-node": "node-1" } }),
    );
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Filesystem",
        "volumeName": format!("pvc-{UID}"), "volumeAttributesClassName": "gold",
        "resources": { "requests": { "storage": "5Gi" } } });
    let status = json!({ "phase": "Bound", "capacity": { "storage": "5Gi" } });
    merged(json!({ "metadata": metadata, "spec": spec, "status": status }), extra)
}

fn attachment(attacher: &str, extra: Value) -> Value {
    let spec = json!({ "attacher": attacher, "nodeName": "node-1", "source": { "persistentVolumeName": "pvc-1" } });
    let metadata =
        meta("csi-1", json!({ "finalizers": ["f"], "annotations": { "csi.alpha.kubernetes.io/node-id": "i" } }));
    merged(json!({ "metadata": metadata, "spec": spec, "status": { "attached": true } }), extra)
}

fn content(driver: &str, extra: Value) -> Value {
    let spec = json!({ "driver": driver, "deletionPolicy": "Delete", "source": { "volumeHandle": "v" },
        "volumeSnapshotRef": { "namespace": "shop", "name": "s", "uid": "u" } });
    merged(json!({ "metadata": meta("snapcontent-1", json!({ "finalizers": ["f"] })), "spec": spec }), extra)
}

#[test]
fn other_drivers_objects_are_packed_and_ours_are_not() {
    // Without those of an attach/detach controller, which has work with the objects of all drivers.
    let every = Fields::RESIZE | Fields::HEALTH | Fields::MIGRATION | Fields::SELECTED_NODE;
    for fields in [Fields::NONE, every] {
        for (driver, expected) in [(OTHER, true), ("demo", false)] {
            assert_eq!(is_packed::<PersistentVolume>(volume(driver, json!({})), fields), expected, "{driver}");
            assert_eq!(is_packed::<PersistentVolumeClaim>(claim(driver, json!({})), fields), expected, "{driver}");
            assert_eq!(is_packed::<VolumeAttachment>(attachment(driver, json!({})), fields), expected, "{driver}");
            assert_eq!(is_packed::<VolumeSnapshotContent>(content(driver, json!({})), fields), expected, "{driver}");
        }
    }
}

#[test]
fn what_a_role_may_have_to_change_or_a_walk_must_find_is_held_as_it_is() {
    let annotated = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
    let deleted = || json!({ "metadata": { "deletionTimestamp": "2026-01-02T00:00:00Z" } });
    for (what, extra) in [
        ("a finalizer of ours may be on it", deleted()),
        ("our driver has made it", annotated("pv.kubernetes.io/provisioned-by", "demo")),
        ("a plugin has made it", annotated("pv.kubernetes.io/provisioned-by", "kubernetes.io/aws-ebs")),
        ("a driver has taken it over", annotated("pv.kubernetes.io/migrated-to", "demo")),
    ] {
        assert!(!is_packed::<PersistentVolume>(volume(OTHER, extra), Fields::NONE), "{what}");
    }
    let in_tree = json!({ "metadata": meta("pv", json!({})), "spec": { "awsElasticBlockStore": { "volumeID": "v" } } });
    assert!(!is_packed::<PersistentVolume>(in_tree, Fields::NONE), "a driver may take it over");
    for (what, extra, fields) in [
        ("our driver may be asked for its volume", json!({ "spec": { "volumeName": null } }), Fields::NONE),
        (
            "it is being cloned",
            json!({ "metadata": { "finalizers": ["provisioner.storage.kubernetes.io/cloning-protection"] } }),
            Fields::NONE,
        ),
        ("our driver has taken it over", annotated("pv.kubernetes.io/migrated-to", "demo"), Fields::NONE),
        ("it was bound by hand", json!({ "metadata": { "annotations": null } }), Fields::NONE),
        ("it is going", deleted(), Fields::NONE),
        (
            "a change of its size has failed",
            json!({ "status": { "conditions": [{ "type": "ControllerResizeError", "status": "True" }] } }),
            Fields::RESIZE,
        ),
        (
            "its size is being changed",
            json!({ "status": { "allocatedResourceStatuses": { "storage": "NodeResizePending" } } }),
            Fields::RESIZE,
        ),
        ("its volume is ill", json!({ "status": { "healthStatus": { "healthConditions": [{}] } } }), Fields::HEALTH),
        (
            "a pod controls it",
            json!({ "metadata": { "ownerReferences": [
                { "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "o", "controller": true }] } }),
            Fields::ATTACH,
        ),
    ] {
        assert!(!is_packed::<PersistentVolumeClaim>(claim(OTHER, extra), fields), "{what}");
    }
    assert!(!is_packed::<VolumeAttachment>(attachment(OTHER, deleted()), Fields::NONE));
    assert!(!is_packed::<VolumeSnapshotContent>(content(OTHER, deleted()), Fields::NONE));
}

#[test]
fn a_packed_object_changes_to_one_that_is_held_as_it_is_and_back() {
    let mut fanout = Fanout::<PersistentVolume>::default();
    fanout.serve("demo");
    let version = |version: &str, driver: &str, extra: Value| -> PersistentVolume {
        trimmed(merged(volume(driver, extra), json!({ "metadata": { "resourceVersion": version } })), Fields::NONE)
    };
    let own = |fanout: &Fanout<PersistentVolume>| fanout.own().count();
    let name = ObjectName::cluster("pvc-1");
    let made_by_us = || json!({ "metadata": { "annotations": { "pv.kubernetes.io/provisioned-by": "demo" } } });
    fanout.apply(News::Applied(version("1", OTHER, json!({}))));
    assert_eq!((fanout.len(), own(&fanout)), (1, 0));
    let changes = fanout.apply(News::Applied(version("2", OTHER, made_by_us())));
    let versions = |of: &Option<std::sync::Arc<PersistentVolume>>| of.as_ref().and_then(|it| it.metadata.version());
    assert_eq!((versions(&changes[0].old), versions(&changes[0].new)), (Some(1), Some(2)));
    assert_eq!((fanout.len(), own(&fanout)), (1, 1));
    fanout.apply(News::OwnWrite(version("3", OTHER, json!({}))));
    assert_eq!((fanout.len(), own(&fanout), versions(&fanout.get(&name))), (1, 0, Some(3)));
    // Another object under the name, of our driver.
    let ours = merged(json!({ "metadata": { "uid": "another" } }), json!({}));
    let changes = fanout.apply(News::Applied(version("4", "demo", ours)));
    assert_eq!((changes.len(), fanout.len(), own(&fanout)), (2, 1, 1));
    fanout.clear();
    fanout.apply(News::Applied(version("5", OTHER, json!({}))));
    assert_eq!((fanout.len(), own(&fanout)), (1, 0), "it is still the same driver's");
}

#[test]
fn packed_attachments_leave_the_index_with_their_object() {
    let mut fanout = Fanout::<VolumeAttachment>::default();
    fanout.serve("demo");
    let at = |name: &str, volume: &str, version: &str| -> VolumeAttachment {
        let extra = json!({ "metadata": { "name": name, "uid": format!("{name}-{version}"), "resourceVersion": version },
            "spec": { "source": { "persistentVolumeName": volume } } });
        trimmed(attachment(OTHER, extra), Fields::NONE)
    };
    let found = |fanout: &Fanout<VolumeAttachment>, volume: &str| -> Vec<String> {
        fanout.find(BY_VOLUME, volume).iter().map(|it| it.metadata.name.to_string()).collect()
    };
    fanout.apply(News::Applied(at("a", "one", "1")));
    fanout.apply(News::Applied(at("b", "two", "2")));
    assert_eq!((found(&fanout, "one"), found(&fanout, "two")), (vec!["a".to_owned()], vec!["b".to_owned()]));
    fanout.apply(News::Applied(at("a", "two", "3")));
    assert_eq!((found(&fanout, "one").len(), found(&fanout, "two").len()), (0, 2));
    // The list lacks one of them.
    fanout.apply(News::RestartList);
    fanout.apply(News::Listed(at("b", "two", "2")));
    assert_eq!(fanout.apply(News::ListDone).len(), 1);
    assert_eq!((fanout.len(), found(&fanout, "two")), (1, vec!["b".to_owned()]));
    fanout.apply(News::Deleted(at("b", "two", "2")));
    assert!(fanout.is_empty() && found(&fanout, "two").is_empty());
}

#[test]
fn a_walk_meets_each_object_once_and_a_walk_over_what_may_be_work_no_packed_one() {
    const EACH: usize = 600;
    let cache = Cache::<PersistentVolume>::new();
    cache.set_up("demo", &Meter::new(), Clock::system());
    let mut names = Vec::new();
    for number in 0..EACH {
        for driver in ["demo", OTHER] {
            let name = format!("{driver}-{number}");
            let extra = json!({ "metadata": { "name": name, "uid": name, "resourceVersion": "1" } });
            cache.feed(News::Applied(serde_json::from_value(volume(driver, extra)).unwrap()));
            names.push(name);
        }
    }
    let mut met: Vec<String> = cache.each().map(|it| it.metadata.name.to_string()).collect();
    met.sort();
    names.sort();
    assert_eq!(met, names);
    assert_eq!((cache.len(), cache.own().len(), cache.all().len()), (2 * EACH, EACH, 2 * EACH));
    let replayed = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let _subscription = cache.subscribe({
        let replayed = std::sync::Arc::clone(&replayed);
        move |change| replayed.lock().unwrap().push(change.new.as_ref().unwrap().metadata.name.to_string())
    });
    replayed.lock().unwrap().sort();
    assert_eq!(*replayed.lock().unwrap(), names);
}
