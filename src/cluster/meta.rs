//! An object's metadata in the cache: only the fields that some role reads, in little memory. Pure.
//!
//! k8s-openapi's `ObjectMeta` has all fields, and a map with one annotation in it costs half a kilobyte. Here the texts
//! have no spare capacity, annotations are packed ([`PackedMap`]), and an object shares its name with its cache and its
//! indexes. Unused fields are skipped while parsing. Of the managed fields, which are half of the size of a small
//! object, a few bits are held ([`Managers`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{Deserialize, Deserializer};
use smol_str::SmolStr;

use super::managers::Managers;
use super::moment::Moment;
use super::names;
use super::packed_map::PackedMap;
use super::packing::{Malformed, Pack, Reader, Writer};

/// Finalizers of many objects that are too long to be stored inline in a `SmolStr`: each is a static text.
const WELL_KNOWN: [&str; 6] = [
    "kubernetes.io/pv-protection",
    "kubernetes.io/pvc-protection",
    names::FINALIZER_PROVISIONER,
    names::FINALIZER_CLONING,
    names::FINALIZER_BOUND_CONTENT,
    names::FINALIZER_BOUND_GROUP_CONTENT,
];

/// An object's identity, its version, and its metadata.
///
/// An empty finalizer list or annotation map is kept, because a patch must know whether it exists.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Its name within its kind and namespace. Every stored object has one.
    #[serde(default, deserialize_with = "shared")]
    pub name: Arc<str>,
    /// Its namespace, if the kind has them.
    #[serde(default, deserialize_with = "shared_if_any")]
    pub namespace: Option<Arc<str>>,
    /// Distinguishes it from other objects with the same name. Every stored object has one: an API server gives it.
    #[serde(default)]
    pub uid: Box<str>,
    /// Which version of it this is.
    pub resource_version: Option<SmolStr>,
    /// When it was made.
    pub creation_timestamp: Option<Moment>,
    /// When its deletion was requested.
    pub deletion_timestamp: Option<Moment>,
    /// Its finalizers.
    #[serde(default, deserialize_with = "finalizers")]
    pub finalizers: Option<Box<[SmolStr]>>,
    /// Its annotations.
    pub annotations: Option<PackedMap>,
    /// Its labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// Its owners.
    pub owner_references: Option<Box<[OwnerReference]>>,
    /// What of it `kube-controller-manager` manages.
    #[serde(default, rename = "managedFields")]
    pub managers: Managers,
}

/// A text that is shared with others.
fn shared<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    Box::<str>::deserialize(from).map(Arc::from)
}

/// The same, if there is one.
fn shared_if_any<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<str>>, D::Error> {
    Option::<Box<str>>::deserialize(from).map(|text| text.map(Arc::from))
}

/// Most finalizers are well known.
fn finalizers<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<[SmolStr]>>, D::Error> {
    let names = Option::<Box<[SmolStr]>>::deserialize(from)?;
    Ok(names.map(|names| names.into_iter().map(well_known).collect()))
}

/// The same text, without its own allocation if it is well known.
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

    /// Its resourceVersion as a number, which grows with each write of its kind: documented since Kubernetes 1.35, but
    /// always true.
    pub fn version(&self) -> Option<u128> {
        self.resource_version.as_deref()?.parse().ok()
    }

    /// Whether it has this finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers().iter().any(|held| held == finalizer)
    }
}

/// Of what an idle object of another driver has: no deletion, labels, owners or managers.
impl Pack for Meta {
    fn pack(&self, to: &mut Writer) {
        to.optional(self.namespace.as_deref());
        to.text(&self.name);
        to.text(&self.uid);
        to.optional(self.resource_version.as_deref());
        to.optional(self.creation_timestamp.map(|moment| moment.seconds().to_string()).as_deref());
        to.optionals(self.finalizers.as_deref().map(|names| names.iter().map(SmolStr::as_str)));
        to.optionals(self.annotations.as_ref().map(|held| held.keys().collect::<Vec<_>>().into_iter()));
        for (_, value) in self.annotations.iter().flat_map(PackedMap::iter) {
            to.text(value);
        }
    }

    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (namespace, name, uid) = (from.optional()?.map(Arc::from), from.text()?.into(), from.text()?.into());
        let resource_version = from.optional()?.map(SmolStr::from);
        let seconds = from.optional()?.map(|seconds| seconds.parse()).transpose().map_err(|_| Malformed)?;
        let finalizers = from.optionals()?.map(|names| names.into_iter().map(|name| well_known(name.into())).collect());
        let mut annotations = None;
        if let Some(keys) = from.optionals()? {
            let entries = keys.into_iter().map(|key| Ok((key, from.text()?)));
            annotations = Some(PackedMap::from_iter(entries.collect::<Result<Vec<_>, Malformed>>()?));
        }
        Ok(Self {
            name,
            namespace,
            uid,
            resource_version,
            creation_timestamp: seconds.map(Moment::of_seconds),
            finalizers,
            annotations,
            ..Self::default()
        })
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
