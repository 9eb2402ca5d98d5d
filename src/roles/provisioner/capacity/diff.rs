//! The writes that make the object of one slot show the driver's answer. Pure.
//!
//! If nothing has changed, there is nothing to write. An object with an empty topology and one without a topology both belong to
//! the empty segment, because an API server may return either for the same write. The Go sidecar takes them for different ones: it
//! deletes and creates the object of a driver without topology at every poll.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use super::desired::Slot;
use crate::cluster::{CsiStorageCapacity, Patch, SmolStr, quantity};
use crate::roles::provisioner::topology::Segment;

/// The prefix of every object's name. The API server adds the rest.
const NAME_PREFIX: &str = "csisc-";

/// The driver's answer to `GetCapacity`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// The available capacity.
    pub available: i64,
    /// The size of the largest volume that is possible, if the driver says so. It is never derived from `available`.
    pub maximum_volume_size: Option<i64>,
}

/// What all objects of this provisioner have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectTemplate {
    /// The provisioner's namespace.
    pub namespace: String,
    /// The labels that the provisioner finds its objects by.
    pub labels: std::collections::BTreeMap<String, String>,
    /// The garbage collector deletes the objects together with this owner.
    pub owner: Option<OwnerReference>,
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Create this object.
    Create(Value),
    /// Patch the object.
    Update(Arc<CsiStorageCapacity>, Patch),
    /// Delete the object: the slot is not wanted, or has another object.
    Delete(Arc<CsiStorageCapacity>),
}

/// The slot that an object belongs to.
pub fn slot_of(object: &CsiStorageCapacity) -> Slot {
    let labels = object.node_topology.clone().unwrap_or_default();
    Slot { class: object.storage_class_name.as_str().into(), segment: Arc::new(Segment::new(labels)) }
}

/// The writes that leave one of the slot's `objects`, with this `capacity`; or none of them, if the slot is not wanted and so has no
/// capacity.
pub fn plan(
    slot: &Slot,
    capacity: Option<&Capacity>,
    template: &ObjectTemplate,
    objects: &[Arc<CsiStorageCapacity>],
) -> Vec<Write> {
    let mut standing: Vec<&Arc<CsiStorageCapacity>> =
        objects.iter().filter(|object| object.metadata.deletion_timestamp.is_none()).collect();
    // Objects with a topology that this daemon would write come first, then the oldest, so that each replica keeps the same one.
    standing.sort_by_key(|object| {
        let meta = &object.metadata;
        (object.node_topology_odd, meta.creation_timestamp, meta.name.clone())
    });
    let kept = standing.first().filter(|object| capacity.is_some() && !object.node_topology_odd).copied();
    let mut writes: Vec<Write> = match (capacity, kept) {
        (Some(capacity), Some(object)) => update(object, capacity, template).into_iter().collect(),
        (Some(capacity), None) => vec![Write::Create(body(slot, capacity, template))],
        (None, _) => Vec::new(),
    };
    writes.extend(standing.into_iter().skip(usize::from(kept.is_some())).cloned().map(Write::Delete));
    writes
}

fn body(slot: &Slot, capacity: &Capacity, template: &ObjectTemplate) -> Value {
    let mut metadata = json!({
        "generateName": NAME_PREFIX, "namespace": template.namespace, "labels": template.labels,
    });
    if let Some(owner) = &template.owner {
        metadata["ownerReferences"] = json!([owner]);
    }
    // An empty selector selects all nodes. Without a selector, the object would be about no node.
    let topology = if slot.segment.is_empty() { json!({}) } else { json!({ "matchLabels": slot.segment.to_labels() }) };
    let mut body = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "metadata": metadata,
        "storageClassName": &*slot.class, "nodeTopology": topology,
        "capacity": quantity::format_bytes(capacity.available),
    });
    if let Some(maximum) = capacity.maximum_volume_size {
        body["maximumVolumeSize"] = json!(quantity::format_bytes(maximum));
    }
    body
}

/// The patch of the fields that differ, if any do. Sizes are compared as numbers, because an API server may write the same quantity
/// in another way.
fn update(object: &Arc<CsiStorageCapacity>, capacity: &Capacity, template: &ObjectTemplate) -> Option<Write> {
    let mut changes = Map::new();
    let bytes = |text: &Option<SmolStr>| text.as_deref().and_then(|text| quantity::bytes(text).ok());
    if bytes(&object.capacity) != Some(capacity.available) {
        changes.insert("capacity".into(), json!(quantity::format_bytes(capacity.available)));
    }
    if bytes(&object.maximum_volume_size) != capacity.maximum_volume_size {
        changes.insert("maximumVolumeSize".into(), json!(capacity.maximum_volume_size.map(quantity::format_bytes)));
    }
    // With the uid, the API server refuses to patch another object of the same name.
    let mut metadata = json!({ "uid": object.metadata.uid });
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    if let Some(wanted) = other_owners(owners, template.owner.as_ref()) {
        metadata["ownerReferences"] = json!(wanted);
    } else if changes.is_empty() {
        return None;
    }
    changes.insert("metadata".into(), metadata);
    Some(Write::Update(Arc::clone(object), Patch::Merge(Value::Object(changes))))
}

/// The owners that an object should have, unless it has them. Only one owner can be the controller, and it is the template's: the
/// Go sidecar appends a second controller, which the API server always refuses. Owners that are no controllers stay.
fn other_owners(owners: &[OwnerReference], ours: Option<&OwnerReference>) -> Option<Vec<OwnerReference>> {
    let mut wanted: Vec<OwnerReference> = owners
        .iter()
        .filter(|owner| owner.controller != Some(true) && ours.is_none_or(|ours| ours.uid != owner.uid))
        .cloned()
        .collect();
    let is_complete = match ours {
        Some(ours) => owners.iter().any(|owner| is_same(owner, ours)) && wanted.len() + 1 == owners.len(),
        None => wanted.len() == owners.len(),
    };
    wanted.extend(ours.cloned());
    (!is_complete).then_some(wanted)
}

fn is_same(held: &OwnerReference, ours: &OwnerReference) -> bool {
    held.uid == ours.uid && held.controller == ours.controller && held.kind == ours.kind && held.name == ours.name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn slot(labels: &[(&str, &str)]) -> Slot {
        Slot { class: "fast".into(), segment: Arc::new(Segment::new(labels.iter().copied())) }
    }

    fn owner(name: &str) -> OwnerReference {
        OwnerReference {
            api_version: "apps/v1".into(),
            kind: "DaemonSet".into(),
            name: name.into(),
            uid: format!("uid-of-{name}"),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }

    fn template() -> ObjectTemplate {
        ObjectTemplate {
            namespace: "kube-system".into(),
            labels: BTreeMap::from([("managed".into(), "us".into())]),
            owner: Some(owner("set")),
        }
    }

    const TEN_GIB: Capacity = Capacity { available: 10 << 30, maximum_volume_size: None };

    /// The object that a server creates from a body.
    fn made(name: &str, body: &Value) -> Arc<CsiStorageCapacity> {
        let mut body = body.clone();
        body["metadata"]["name"] = json!(name);
        body["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        Arc::new(serde_json::from_value(body).unwrap())
    }

    fn changed(
        object: &Arc<CsiStorageCapacity>,
        change: impl FnOnce(&mut CsiStorageCapacity),
    ) -> Arc<CsiStorageCapacity> {
        let mut object = object.as_ref().clone();
        change(&mut object);
        Arc::new(object)
    }

    fn created(slot: &Slot, capacity: &Capacity) -> Arc<CsiStorageCapacity> {
        match plan(slot, Some(capacity), &template(), &[]).as_slice() {
            [Write::Create(body)] => made("csisc-1", body),
            other => panic!("{other:?}"),
        }
    }

    fn patch_of(writes: &[Write]) -> Value {
        match writes {
            [Write::Update(_, patch)] => json!(patch),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn r45_a_new_object_shows_exactly_the_drivers_answer() {
        let capacity = Capacity { available: 5_970_004_541, maximum_volume_size: Some(1 << 30) };
        let [Write::Create(body)] = &plan(&slot(&[("zone", "z1")]), Some(&capacity), &template(), &[])[..] else {
            panic!()
        };
        assert_eq!(
            *body,
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
                "metadata": {
                    "generateName": "csisc-", "namespace": "kube-system", "labels": { "managed": "us" },
                    "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "set",
                        "uid": "uid-of-set", "controller": true }],
                },
                "storageClassName": "fast", "nodeTopology": { "matchLabels": { "zone": "z1" } },
                "capacity": "5970004541", "maximumVolumeSize": "1Gi",
            })
        );
    }

    #[test]
    fn r55_no_capacity_at_all_is_published_too() {
        let object = created(&slot(&[]), &Capacity { available: 0, maximum_volume_size: None });
        assert_eq!(object.capacity.as_deref(), Some("0"));
        assert_eq!(object.maximum_volume_size, None);
    }

    #[test]
    fn a_second_pass_writes_nothing() {
        for labels in [&[("zone", "z1")][..], &[]] {
            let slot = slot(labels);
            let object = created(&slot, &TEN_GIB);
            assert_eq!(slot_of(&object), slot);
            assert_eq!(plan(&slot, Some(&TEN_GIB), &template(), std::slice::from_ref(&object)), []);
            let spelled = changed(&object, |object| object.capacity = Some("10240Mi".into()));
            assert_eq!(plan(&slot, Some(&TEN_GIB), &template(), &[spelled]), [], "the same quantity in other digits");
        }
    }

    #[test]
    fn a_driver_without_topology_keeps_its_object_whether_the_server_returns_an_empty_topology_or_none() {
        let object = created(&slot(&[]), &TEN_GIB);
        assert_eq!(object.node_topology, Some(BTreeMap::new()));
        let bare = changed(&object, |object| object.node_topology = None);
        assert_eq!((slot_of(&bare), slot_of(&object)), (slot(&[]), slot(&[])));
        assert_eq!(plan(&slot(&[]), Some(&TEN_GIB), &template(), &[bare]), []);
    }

    #[test]
    fn r27_only_what_differs_is_written() {
        let slot = slot(&[("zone", "z1")]);
        let object = created(&slot, &TEN_GIB);
        let fuller = Capacity { available: 1 << 30, maximum_volume_size: None };
        assert_eq!(
            patch_of(&plan(&slot, Some(&fuller), &template(), std::slice::from_ref(&object))),
            json!({ "metadata": { "uid": "uid-of-csisc-1" }, "capacity": "1Gi" })
        );
        let limited = Capacity { maximum_volume_size: Some(5), ..TEN_GIB };
        assert_eq!(
            patch_of(&plan(&slot, Some(&limited), &template(), std::slice::from_ref(&object))),
            json!({ "metadata": { "uid": "uid-of-csisc-1" }, "maximumVolumeSize": "5" })
        );
        let once_limited = changed(&object, |object| object.maximum_volume_size = Some("5".into()));
        assert_eq!(
            patch_of(&plan(&slot, Some(&TEN_GIB), &template(), &[once_limited])),
            json!({ "metadata": { "uid": "uid-of-csisc-1" }, "maximumVolumeSize": null })
        );
    }

    #[test]
    fn s0_another_owner_level_replaces_the_controller_and_keeps_the_other_owners() {
        let slot = slot(&[("zone", "z1")]);
        let other = OwnerReference { controller: None, ..owner("other") };
        let object = changed(&created(&slot, &TEN_GIB), |object| {
            object.metadata.owner_references = Some([owner("pod"), other.clone()].into());
        });
        let patch = patch_of(&plan(&slot, Some(&TEN_GIB), &template(), std::slice::from_ref(&object)));
        assert_eq!(patch["metadata"]["ownerReferences"], json!([other, owner("set")]));
        assert_eq!(patch.get("capacity"), None);
        let unowned = ObjectTemplate { owner: None, ..template() };
        let patch = patch_of(&plan(&slot, Some(&TEN_GIB), &unowned, &[object]));
        assert_eq!(patch["metadata"]["ownerReferences"], json!([other]));
        let orphan = changed(&created(&slot, &TEN_GIB), |object| object.metadata.owner_references = None);
        assert_eq!(plan(&slot, Some(&TEN_GIB), &unowned, std::slice::from_ref(&orphan)), []);
        let patch = patch_of(&plan(&slot, Some(&TEN_GIB), &template(), &[orphan]));
        assert_eq!(patch["metadata"]["ownerReferences"], json!([owner("set")]), "and a missing one is added");
    }

    #[test]
    fn r41_objects_of_unwanted_slots_and_second_objects_are_deleted() {
        let slot = slot(&[("zone", "z1")]);
        let older = created(&slot, &TEN_GIB);
        let younger = changed(&older, |object| object.metadata.name = "csisc-2".into());
        let both = [younger.clone(), older.clone()];
        assert_eq!(plan(&slot, Some(&TEN_GIB), &template(), &both), [Write::Delete(younger.clone())]);
        assert_eq!(plan(&slot, None, &template(), &both), [Write::Delete(older.clone()), Write::Delete(younger)]);
        let odd = changed(&older, |object| object.node_topology_odd = true);
        let writes = plan(&slot, Some(&TEN_GIB), &template(), std::slice::from_ref(&odd));
        assert!(matches!(&writes[..], [Write::Create(_), Write::Delete(object)] if *object == odd), "{writes:?}");
        let going = changed(&older, |object| {
            object.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        });
        assert_eq!(plan(&slot, None, &template(), std::slice::from_ref(&going)), [], "it is being deleted already");
        assert!(matches!(&plan(&slot, Some(&TEN_GIB), &template(), &[going])[..], [Write::Create(_)]));
    }
}
