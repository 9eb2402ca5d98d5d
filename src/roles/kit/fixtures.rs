//! Test objects for several roles.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{Cached, Change, Fields, Origin, PersistentVolume, PersistentVolumeClaim, names};
pub(crate) use crate::testing::Warnings;

/// `base` with what `patch` says laid over it; null takes away.
pub(crate) fn merged(mut base: Value, patch: Value) -> Value {
    match (&mut base, patch) {
        (Value::Object(held), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    held.remove(&key);
                } else {
                    let below = held.remove(&key).unwrap_or(Value::Null);
                    held.insert(key, merged(below, value));
                }
            }
            base
        }
        (_, patch) => patch,
    }
}

/// What a watch tells when an object is made, changed or deleted.
pub(crate) fn change<K: DeserializeOwned>(old: Option<&Value>, new: Option<&Value>) -> Change<K> {
    let parse = |value: &Value| Arc::new(serde_json::from_value(value.clone()).unwrap());
    Change { old: old.map(parse), new: new.map(parse), origin: Origin::Watch }
}

/// The objects among these that a cache of `driver` packs.
fn packed<K: Cached>(driver: &str, objects: impl Iterator<Item = Value>) -> Vec<K> {
    // Without those of an attach/detach controller, which has work with the objects of all drivers.
    let every = Fields::RESIZE | Fields::HEALTH | Fields::MIGRATION | Fields::SELECTED_NODE;
    let read = |object: Value| {
        let mut object: K = serde_json::from_value(object).unwrap();
        object.trim(driver, every);
        object.packed(driver).and_then(|packed| K::opened(&packed))
    };
    let packed: Vec<K> = objects.filter_map(read).collect();
    assert!(packed.len() > 1, "some are");
    packed
}

/// `bases` with each of these laid over each.
fn each_with(bases: &[Value], changes: &[Value]) -> Vec<Value> {
    bases.iter().flat_map(|base| changes.iter().map(|change| merged(base.clone(), change.clone()))).collect()
}

/// What a walk over the volumes leaves out, of volumes in every state that a role tells apart.
pub(crate) fn packed_volumes(driver: &str, finalizer: &str) -> Vec<PersistentVolume> {
    let annotated = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
    let source = |driver: &str| json!({ "spec": { "csi": { "driver": driver, "volumeHandle": "v" } } });
    let phase =
        |phase: &str| json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" }, "status": { "phase": phase } });
    let made_by = |driver: &str| annotated(names::ANNOTATION_PROVISIONED_BY, driver);
    let moved_to = |driver: &str| annotated(names::ANNOTATION_MIGRATED_TO, driver);
    let none = || json!({});
    let base = json!({ "metadata": { "name": "pv", "uid": "u", "resourceVersion": "1", "finalizers": [finalizer] } });
    let in_tree = json!({ "spec": { "awsElasticBlockStore": { "volumeID": "v" } } });
    let objects = each_with(&[base], &[source(driver), source("other"), in_tree]);
    let objects = each_with(
        &objects,
        &[none(), made_by(driver), made_by("other"), made_by("another"), made_by("kubernetes.io/aws-ebs")],
    );
    let objects = each_with(&objects, &[none(), moved_to(driver), moved_to("other")]);
    let objects =
        each_with(&objects, &[none(), json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })]);
    packed(driver, each_with(&objects, &[phase("Bound"), phase("Released")]).into_iter())
}

/// The same of claims.
pub(crate) fn packed_claims(driver: &str) -> Vec<PersistentVolumeClaim> {
    let annotated = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
    let protected = |finalizer: &str| json!({ "metadata": { "finalizers": [finalizer] } });
    let base = json!({ "metadata": { "name": "c", "namespace": "n", "uid": "u", "resourceVersion": "1" }, "spec": {} });
    let none = || json!({});
    let by = |driver: &str| annotated(names::ANNOTATION_STORAGE_PROVISIONER, driver);
    let objects = each_with(&[base], &[none(), by(driver), by("other"), by("kubernetes.io/aws-ebs")]);
    let objects = each_with(&objects, &[none(), annotated(names::ANNOTATION_MIGRATED_TO, driver)]);
    let objects = each_with(&objects, &[none(), json!({ "spec": { "volumeName": "pv" } })]);
    let finalizers = [none(), protected("kubernetes.io/pvc-protection"), protected(names::FINALIZER_CLONING)];
    let objects = each_with(&objects, &finalizers);
    let bound = json!({ "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } });
    packed(driver, each_with(&objects, &[none(), bound]).into_iter())
}
