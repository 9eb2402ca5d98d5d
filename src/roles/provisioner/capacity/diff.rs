//! What must be written so that one item's object says what the driver said. Pure.
//!
//! A pass over an unchanged world writes nothing. An object whose topology is empty and one that has none are both the
//! object of the empty segment: a server may show either for what was written, and taking them for different makes the
//! Go sidecar delete and create the object of a driver without topology at every poll.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use super::desired::Item;
use crate::cluster::{CsiStorageCapacity, Patch, Word, quantity};
use crate::roles::provisioner::topology::Term;

/// The beginning of every object's name; the server makes the rest.
const NAME_PREFIX: &str = "csisc-";

/// How much room the driver says that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// In all, in bytes.
    pub capacity: i64,
    /// For one volume, if the driver says so. It is never derived.
    pub largest: Option<i64>,
}

/// What all our objects have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Style {
    /// Our namespace.
    pub namespace: String,
    /// The labels that we find them by.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Who they go with.
    pub owner: Option<OwnerReference>,
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Make this object.
    Create(Value),
    /// Change the object.
    Update(Arc<CsiStorageCapacity>, Patch),
    /// Delete the object: it is not wanted, or another one says the same.
    Delete(Arc<CsiStorageCapacity>),
}

/// The item that an object is about.
pub fn item_of(object: &CsiStorageCapacity) -> Item {
    let labels = object.node_topology.clone().unwrap_or_default();
    Item { class: object.storage_class_name.as_str().into(), segment: Arc::new(Term::new(labels)) }
}

/// The writes that make `objects` tell `room` once, or nothing if the item is not wanted.
pub fn plan(item: &Item, room: Option<&Room>, style: &Style, objects: &[Arc<CsiStorageCapacity>]) -> Vec<Write> {
    let mut standing: Vec<&Arc<CsiStorageCapacity>> =
        objects.iter().filter(|object| object.metadata.deletion_timestamp.is_none()).collect();
    // The one that we would have made comes first, then the oldest: whoever looks decides the same.
    standing.sort_by_key(|object| {
        let meta = &object.metadata;
        (object.node_topology_odd, meta.creation_timestamp.clone(), meta.name.clone())
    });
    let kept = standing.first().filter(|object| room.is_some() && !object.node_topology_odd).copied();
    let mut writes: Vec<Write> = match (room, kept) {
        (Some(room), Some(object)) => update(object, room, style).into_iter().collect(),
        (Some(room), None) => vec![Write::Create(body(item, room, style))],
        (None, _) => Vec::new(),
    };
    let extra = standing.into_iter().skip(usize::from(kept.is_some()));
    writes.extend(extra.map(|object| Write::Delete(Arc::clone(object))));
    writes
}

fn body(item: &Item, room: &Room, style: &Style) -> Value {
    let mut metadata = json!({
        "generateName": NAME_PREFIX, "namespace": style.namespace, "labels": style.labels,
    });
    if let Some(owner) = &style.owner {
        metadata["ownerReferences"] = json!([owner]);
    }
    // An empty selector is everywhere; none at all would be nowhere.
    let topology = if item.segment.is_empty() { json!({}) } else { json!({ "matchLabels": item.segment.to_labels() }) };
    let mut body = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "metadata": metadata,
        "storageClassName": &*item.class, "nodeTopology": topology,
        "capacity": quantity::format_bytes(room.capacity),
    });
    if let Some(largest) = room.largest {
        body["maximumVolumeSize"] = json!(quantity::format_bytes(largest));
    }
    body
}

/// What differs, and nothing if nothing does. Sizes are compared as numbers: a server may spell them in its own way.
fn update(object: &Arc<CsiStorageCapacity>, room: &Room, style: &Style) -> Option<Write> {
    let mut changes = Map::new();
    let bytes = |text: &Option<Word>| text.as_deref().and_then(|text| quantity::bytes(text).ok());
    if bytes(&object.capacity) != Some(room.capacity) {
        changes.insert("capacity".into(), json!(quantity::format_bytes(room.capacity)));
    }
    if bytes(&object.maximum_volume_size) != room.largest {
        changes.insert("maximumVolumeSize".into(), json!(room.largest.map(quantity::format_bytes)));
    }
    // The uid makes the server refuse a namesake.
    let mut metadata = json!({ "uid": object.metadata.uid });
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    if let Some(wanted) = other_owners(owners, style.owner.as_ref()) {
        metadata["ownerReferences"] = json!(wanted);
    } else if changes.is_empty() {
        return None;
    }
    changes.insert("metadata".into(), metadata);
    Some(Write::Update(Arc::clone(object), Patch::Merge(Value::Object(changes))))
}

/// The owners that an object should have, unless it has them. The controller is ours to say, and there can be one only:
/// the Go sidecar appends a second, which the API refuses each time. Whoever else was entered stays.
fn other_owners(owners: &[OwnerReference], ours: Option<&OwnerReference>) -> Option<Vec<OwnerReference>> {
    let mut wanted: Vec<OwnerReference> = owners
        .iter()
        .filter(|owner| owner.controller != Some(true) && ours.is_none_or(|ours| ours.uid != owner.uid))
        .cloned()
        .collect();
    let is_so = match ours {
        Some(ours) => owners.iter().any(|owner| is_same(owner, ours)) && wanted.len() + 1 == owners.len(),
        None => wanted.len() == owners.len(),
    };
    wanted.extend(ours.cloned());
    (!is_so).then_some(wanted)
}

fn is_same(held: &OwnerReference, ours: &OwnerReference) -> bool {
    held.uid == ours.uid && held.controller == ours.controller && held.kind == ours.kind && held.name == ours.name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn item(labels: &[(&str, &str)]) -> Item {
        Item { class: "fast".into(), segment: Arc::new(Term::new(labels.iter().copied())) }
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

    fn style() -> Style {
        Style {
            namespace: "kube-system".into(),
            labels: BTreeMap::from([("managed".into(), "us".into())]),
            owner: Some(owner("set")),
        }
    }

    const ROOM: Room = Room { capacity: 10 << 30, largest: None };

    /// What a server makes of a body.
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

    fn created(item: &Item, room: &Room) -> Arc<CsiStorageCapacity> {
        match plan(item, Some(room), &style(), &[]).as_slice() {
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
    fn r45_a_new_object_says_exactly_what_the_driver_said() {
        let room = Room { capacity: 5_970_004_541, largest: Some(1 << 30) };
        let [Write::Create(body)] = &plan(&item(&[("zone", "z1")]), Some(&room), &style(), &[])[..] else { panic!() };
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
    fn r55_no_room_at_all_is_told_too() {
        let object = created(&item(&[]), &Room { capacity: 0, largest: None });
        assert_eq!(object.capacity.as_deref(), Some("0"));
        assert_eq!(object.maximum_volume_size, None);
    }

    #[test]
    fn a_second_pass_writes_nothing() {
        for labels in [&[("zone", "z1")][..], &[]] {
            let item = item(labels);
            let object = created(&item, &ROOM);
            assert_eq!(item_of(&object), item);
            assert_eq!(plan(&item, Some(&ROOM), &style(), std::slice::from_ref(&object)), []);
            let spelled = changed(&object, |object| object.capacity = Some("10240Mi".into()));
            assert_eq!(plan(&item, Some(&ROOM), &style(), &[spelled]), [], "the same number in other words");
        }
    }

    #[test]
    fn a_driver_without_topology_keeps_its_object_however_the_server_shows_it() {
        let object = created(&item(&[]), &ROOM);
        assert_eq!(object.node_topology, Some(BTreeMap::new()));
        let bare = changed(&object, |object| object.node_topology = None);
        assert_eq!((item_of(&bare), item_of(&object)), (item(&[]), item(&[])));
        assert_eq!(plan(&item(&[]), Some(&ROOM), &style(), &[bare]), []);
    }

    #[test]
    fn r27_only_what_differs_is_written() {
        let item = item(&[("zone", "z1")]);
        let object = created(&item, &ROOM);
        let fuller = Room { capacity: 1 << 30, largest: None };
        assert_eq!(
            patch_of(&plan(&item, Some(&fuller), &style(), std::slice::from_ref(&object))),
            json!({ "metadata": { "uid": "uid-of-csisc-1" }, "capacity": "1Gi" })
        );
        let limited = Room { largest: Some(5), ..ROOM };
        assert_eq!(
            patch_of(&plan(&item, Some(&limited), &style(), std::slice::from_ref(&object))),
            json!({ "metadata": { "uid": "uid-of-csisc-1" }, "maximumVolumeSize": "5" })
        );
        let once_limited = changed(&object, |object| object.maximum_volume_size = Some("5".into()));
        assert_eq!(
            patch_of(&plan(&item, Some(&ROOM), &style(), &[once_limited])),
            json!({ "metadata": { "uid": "uid-of-csisc-1" }, "maximumVolumeSize": null })
        );
    }

    #[test]
    fn s0_another_owner_level_replaces_the_controller_and_spares_whoever_else_owns_it() {
        let item = item(&[("zone", "z1")]);
        let other = OwnerReference { controller: None, ..owner("somebody") };
        let object = changed(&created(&item, &ROOM), |object| {
            object.metadata.owner_references = Some([owner("pod"), other.clone()].into());
        });
        let patch = patch_of(&plan(&item, Some(&ROOM), &style(), std::slice::from_ref(&object)));
        assert_eq!(patch["metadata"]["ownerReferences"], json!([other, owner("set")]));
        assert_eq!(patch.get("capacity"), None);
        let nobody = Style { owner: None, ..style() };
        let patch = patch_of(&plan(&item, Some(&ROOM), &nobody, &[object]));
        assert_eq!(patch["metadata"]["ownerReferences"], json!([other]));
        let orphan = changed(&created(&item, &ROOM), |object| object.metadata.owner_references = None);
        assert_eq!(plan(&item, Some(&ROOM), &nobody, std::slice::from_ref(&orphan)), []);
        let patch = patch_of(&plan(&item, Some(&ROOM), &style(), &[orphan]));
        assert_eq!(patch["metadata"]["ownerReferences"], json!([owner("set")]), "and a missing one is entered");
    }

    #[test]
    fn r41_what_nobody_wants_and_what_is_there_twice_is_deleted() {
        let item = item(&[("zone", "z1")]);
        let older = created(&item, &ROOM);
        let younger = changed(&older, |object| object.metadata.name = Some("csisc-2".into()));
        let both = [younger.clone(), older.clone()];
        assert_eq!(plan(&item, Some(&ROOM), &style(), &both), [Write::Delete(younger.clone())]);
        assert_eq!(plan(&item, None, &style(), &both), [Write::Delete(older.clone()), Write::Delete(younger)]);
        let odd = changed(&older, |object| object.node_topology_odd = true);
        let writes = plan(&item, Some(&ROOM), &style(), std::slice::from_ref(&odd));
        assert!(matches!(&writes[..], [Write::Create(_), Write::Delete(object)] if *object == odd), "{writes:?}");
        let going = changed(&older, |object| {
            object.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        });
        assert_eq!(plan(&item, None, &style(), std::slice::from_ref(&going)), [], "it goes already");
        assert!(matches!(&plan(&item, Some(&ROOM), &style(), &[going])[..], [Write::Create(_)]));
    }
}
