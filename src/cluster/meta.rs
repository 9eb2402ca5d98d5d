//! An object's metadata as it is held: what some role reads of it, in as little memory as that takes. Pure.
//!
//! k8s-openapi's `ObjectMeta` has room for all that there may be, and a map of one annotation in it costs half a kilobyte.
//! Here the texts have no spare capacity, annotations are packed ([`PackedMap`]), and an object's name is the one that its
//! cache and its indexes use. What nobody reads is skipped on the wire. Of the managed fields, which are half of what a server
//! sends of a small object, a few bits are held ([`Managers`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{Deserialize, Deserializer};
use smol_str::SmolStr;

use super::managers::Managers;
use super::moment::Moment;
use super::names;
use super::packed_map::PackedMap;

/// Finalizers that many objects carry and that are too long to be kept inside a `SmolStr`: each is held once, as a static text.
const WELL_KNOWN: [&str; 4] = [
    "kubernetes.io/pv-protection",
    "kubernetes.io/pvc-protection",
    names::FINALIZER_PROVISIONER,
    names::FINALIZER_CLONING,
];

/// Who an object is, which version of it this is, and what others have written on it.
///
/// A finalizer list or an annotation map that is there stays there, if empty: a patch must know whether it exists.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Its name within its kind and namespace. Every stored object has one.
    #[serde(default, deserialize_with = "shared")]
    pub name: Arc<str>,
    /// Its namespace, if the kind has them.
    #[serde(default, deserialize_with = "shared_if_any")]
    pub namespace: Option<Arc<str>>,
    /// Tells it from others that had its name. Every stored object has one: an API server gives it.
    #[serde(default)]
    pub uid: Box<str>,
    /// Which version of it this is.
    pub resource_version: Option<SmolStr>,
    /// When it was made.
    pub creation_timestamp: Option<Moment>,
    /// Since when it is to be deleted.
    pub deletion_timestamp: Option<Moment>,
    /// What keeps it from being deleted.
    #[serde(default, deserialize_with = "finalizers")]
    pub finalizers: Option<Box<[SmolStr]>>,
    /// What is noted on it.
    pub annotations: Option<PackedMap>,
    /// What it is found by.
    pub labels: Option<BTreeMap<String, String>>,
    /// What it goes with.
    pub owner_references: Option<Box<[OwnerReference]>>,
    /// What of it `kube-controller-manager` manages.
    #[serde(default, rename = "managedFields")]
    pub managers: Managers,
}

/// A text that others will hold, too.
fn shared<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    Box::<str>::deserialize(from).map(Arc::from)
}

/// The same, if there is one.
fn shared_if_any<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<str>>, D::Error> {
    Option::<Box<str>>::deserialize(from).map(|text| text.map(Arc::from))
}

/// Most are Kubernetes' own, or a provisioner's.
fn finalizers<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<[SmolStr]>>, D::Error> {
    let names = Option::<Box<[SmolStr]>>::deserialize(from)?;
    Ok(names.map(|names| names.into_iter().map(well_known).collect()))
}

/// The same text, without memory of its own if it is well known.
fn well_known(text: SmolStr) -> SmolStr {
    WELL_KNOWN.into_iter().find(|known| text == *known).map_or(text, SmolStr::new_static)
}

impl Meta {
    /// The text of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key)
    }

    /// Its finalizers, in their order.
    pub fn finalizers(&self) -> &[SmolStr] {
        self.finalizers.as_deref().unwrap_or_default()
    }

    /// Its version as a number, which only grows from one write of its kind to the next: documented since Kubernetes 1.35, true
    /// for ever.
    pub fn version(&self) -> Option<u128> {
        self.resource_version.as_deref()?.parse().ok()
    }

    /// Whether it has this finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers().iter().any(|held| held == finalizer)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_held_is_read_as_k8s_openapi_does() {
        let full = json!({
            "annotations": { "a": "1" }, "creationTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
            "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["f"], "generateName": "n-", "generation": 3,
            "labels": { "l": "2" }, "name": "n", "namespace": "s", "resourceVersion": "7", "uid": "u",
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "o", "uid": "ou" }],
            "managedFields": [{ "manager": "m", "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": {} } }],
        });
        let expected: ObjectMeta = serde_json::from_value(full.clone()).unwrap();
        let read: Meta = serde_json::from_value(full).unwrap();
        assert_eq!((&*read.name, read.namespace.as_deref()), ("n", Some("s")));
        assert_eq!((&*read.uid, read.resource_version.as_deref()), ("u", Some("7")));
        let time = |moment: Option<Moment>| moment.map(|moment| Time(moment.timestamp()));
        assert_eq!(time(read.creation_timestamp), expected.creation_timestamp);
        assert_eq!(time(read.deletion_timestamp), expected.deletion_timestamp);
        assert_eq!(read.labels, expected.labels);
        assert_eq!(read.owner_references.as_deref(), expected.owner_references.as_deref());
        assert_eq!(read.annotation("a"), Some("1"));
        assert!(read.has_finalizer("f") && !read.has_finalizer("g"));
    }

    #[test]
    fn absent_null_and_empty_members_stay_apart() {
        let meta: Meta = serde_json::from_value(json!({ "name": "n", "finalizers": [], "annotations": null })).unwrap();
        assert_eq!((meta.finalizers, meta.annotations), (Some(Box::default()), None));
        assert!(serde_json::from_value::<Meta>(json!({ "finalizers": "f" })).is_err());
    }
}
