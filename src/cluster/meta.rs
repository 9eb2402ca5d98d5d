//! An object's metadata as it is read from the wire: without its managed fields.
//!
//! They are half of what a server sends of a small object, nobody here reads them, and every field that they list would
//! become a tree of maps before it is dropped.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

/// Everything but the managed fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta {
    annotations: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    generate_name: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    name: Option<String>,
    namespace: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    resource_version: Option<String>,
    uid: Option<String>,
}

/// Reads the metadata of an object.
pub(super) fn lean<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let wire = WireMeta::deserialize(from)?;
    Ok(ObjectMeta {
        annotations: wire.annotations,
        creation_timestamp: wire.creation_timestamp,
        deletion_grace_period_seconds: wire.deletion_grace_period_seconds,
        deletion_timestamp: wire.deletion_timestamp,
        finalizers: wire.finalizers,
        generate_name: wire.generate_name,
        generation: wire.generation,
        labels: wire.labels,
        managed_fields: None,
        name: wire.name,
        namespace: wire.namespace,
        owner_references: wire.owner_references,
        resource_version: wire.resource_version,
        self_link: None,
        uid: wire.uid,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_but_the_managed_fields_is_read_as_k8s_openapi_does() {
        let full = json!({
            "annotations": { "a": "1" }, "creationTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
            "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["f"], "generateName": "n-", "generation": 3,
            "labels": { "l": "2" }, "name": "n", "namespace": "s", "resourceVersion": "7", "uid": "u",
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "o", "uid": "ou" }],
            "managedFields": [{ "manager": "m", "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": {} } }],
        });
        let mut expected: ObjectMeta = serde_json::from_value(full.clone()).unwrap();
        assert!(expected.managed_fields.take().is_some());
        assert_eq!(lean(full).unwrap(), expected);
    }

    #[test]
    fn absent_null_and_empty_members_stay_apart() {
        let meta = lean(json!({ "name": "n", "finalizers": [], "annotations": null })).unwrap();
        assert_eq!((meta.finalizers, meta.annotations), (Some(Vec::new()), None));
        assert!(lean(json!({ "finalizers": "f" })).is_err());
    }
}
