//! The final state of claims after all faults have stopped: nothing is lost (J3), nothing is missing, nothing of ours is
//! left behind (P9); volumes are reachable (P8); and the capacity is published (P10).

use std::collections::{BTreeMap, BTreeSet};

use csi_control_plane::sandbox::driver::{GIB, State};
use serde_json::Value;

use crate::invariants::Invariant;
use crate::model::Model;
use crate::storage::{CLONING, FROM_SNAPSHOT, Storage, ZONE, class_name, uid_of};
use crate::world::{DAEMONS, finalizers, is_deleting, text};

/// The faults at rest.
pub(crate) fn wrong(storage: &Storage, model: &Model, state: &State) -> Vec<(Invariant, String)> {
    let (mut lost, mut kept, mut reached, mut told) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    leaks(model, &mut lost);
    volumes(model, &mut kept);
    claims(storage, model, &mut kept);
    sources(model, &mut kept);
    if !DAEMONS.iter().any(|daemon| model.supplied_by(daemon)) {
        kept.push(format!("nobody provisions: the lease is held by {:?}", model.supplier()));
    }
    reach(model, &mut reached);
    capacities(storage, model, state, &mut told);
    let all = [(Invariant::J3, lost), (Invariant::P9, kept), (Invariant::P8, reached), (Invariant::P10, told)];
    all.into_iter().flat_map(|(invariant, faults)| faults.into_iter().map(move |fault| (invariant, fault))).collect()
}

/// Each volume has its object, and there is nothing left to ask for.
fn leaks(model: &Model, faults: &mut Vec<String>) {
    let supply = &model.supply;
    for (handle, volume) in &supply.alive {
        // The driver was made to say that it does not exist, or people have thrown its object or its entry away.
        let denied = supply.asked.get(&volume.name).is_some_and(|asked| asked.denied);
        let people = supply.kept.contains(handle) || model.journal.is_excused(uid_of(&volume.name));
        let excused = people || is_reported(model, uid_of(&volume.name)) || (denied && !model.is_due(&volume.name));
        if model.object_of(handle).is_none() && !excused {
            faults.push(format!("{handle} ({}) exists, and nothing tells of it", volume.name));
        }
    }
    let entries = model.journal.entries().filter(|uid| !is_reported(model, uid));
    faults.extend(entries.map(|uid| format!("the journal still has an entry of {uid}")));
}

/// Whether the volume of a claim may be left over, and is reported: the claim is gone, the journal has its entry, and the API had forgotten
/// what came of the request.
fn is_reported(model: &Model, uid: &str) -> bool {
    let is_gone = !model.supply.claims.values().any(|it| text(it, "/metadata/uid") == uid);
    is_gone && model.journal.is_unprovable(uid) && model.journal.entries().any(|it| it == uid)
}

fn volumes(model: &Model, faults: &mut Vec<String>) {
    let supply = &model.supply;
    for (name, object) in model.made() {
        let handle = text(object, "/spec/csi/volumeHandle");
        if !supply.alive.contains_key(handle) {
            faults.push(format!("{name} tells of {handle}, which does not exist"));
        }
        let phase = text(object, "/status/phase");
        if phase == "Released" && text(object, "/spec/persistentVolumeReclaimPolicy") == "Delete" {
            faults.push(format!("{name} is released, and not deleted"));
        }
    }
}

/// Each volume object names a place that some node is in.
fn reach(model: &Model, faults: &mut Vec<String>) {
    for (name, object) in model.made() {
        let places = object.pointer("/spec/nodeAffinity/required/nodeSelectorTerms").and_then(Value::as_array);
        let fits = |term: &Value, node: &Value| {
            let all = term["matchExpressions"].as_array().into_iter().flatten();
            all.into_iter().all(|it| text(it, "/key") == ZONE && label(node, ZONE) == text(it, "/values/0"))
        };
        let nodes = &model.supply.nodes;
        let reached = places.is_none_or(|all| all.iter().any(|it| nodes.values().any(|node| fits(it, node))));
        if !reached {
            faults.push(format!("{name} is reached from no node"));
        }
    }
}

fn label<'a>(node: &'a Value, key: &str) -> &'a str {
    node.pointer("/metadata/labels").and_then(|all| all.get(key)).and_then(Value::as_str).unwrap_or_default()
}

fn claims(storage: &Storage, model: &Model, faults: &mut Vec<String>) {
    let supply = &model.supply;
    for claim in supply.claims.values() {
        let name = text(claim, "/metadata/name");
        let pod = supply.pods.get(&name.replace("data-", "pod-"));
        let class = (0..storage.classes.len()).find(|it| class_name(*it) == text(claim, "/spec/storageClassName"));
        let waits = class.is_some_and(|class| storage.classes[class].waits);
        let is_bound = text(claim, "/status/phase") == "Bound";
        let wanted = !waits || pod.is_some();
        if is_deleting(claim) {
            faults.push(format!("{name} is still being deleted: {:?}", finalizers(claim)));
        } else if wanted && !is_bound {
            faults.push(format!("{name} is not bound: {}", text(claim, "/spec/volumeName")));
        }
        let annotations = claim.pointer("/metadata/annotations").and_then(Value::as_object);
        let names = annotations.into_iter().flatten().map(|(key, _)| key.as_str()).chain(finalizers(claim));
        for name_of_ours in names.filter(|it| it.contains("csi-control-plane.io")) {
            faults.push(format!("{name} has {name_of_ours}"));
        }
    }
    for (name, pod) in &supply.pods {
        let claim = name.replace("pod-", "data-");
        let there = supply.claims.values().any(|it| text(it, "/metadata/name") == claim);
        if there && text(pod, "/spec/nodeName").is_empty() {
            faults.push(format!("{name} has no node"));
        }
    }
}

/// A source has no finalizer once it is not needed.
fn sources(model: &Model, faults: &mut Vec<String>) {
    let supply = &model.supply;
    let users = |kind: &str, name: &str| {
        supply.claims.values().any(|claim| {
            let of = (text(claim, "/spec/dataSource/kind"), text(claim, "/spec/dataSource/name"));
            of == (kind, name) && text(claim, "/spec/volumeName").is_empty()
        })
    };
    let claims = supply.claims.values().map(|it| ("PersistentVolumeClaim", CLONING, it));
    let snapshots = supply.snapshots.values().map(|it| ("VolumeSnapshot", FROM_SNAPSHOT, it));
    for (kind, finalizer, object) in claims.chain(snapshots) {
        let name = text(object, "/metadata/name");
        if finalizers(object).contains(&finalizer) && !users(kind, name) {
            faults.push(format!("{kind} {name} is still protected, and nobody needs it"));
        }
    }
}

/// Each class times each place has one object, which says how much room there is.
fn capacities(storage: &Storage, model: &Model, state: &State, faults: &mut Vec<String>) {
    let places: BTreeSet<String> = model
        .supply
        .nodes
        .iter()
        .filter(|(name, _)| {
            let csi = model.supply.csi_nodes.get(*name);
            csi.and_then(|it| it.pointer("/spec/drivers")).and_then(Value::as_array).is_some_and(|all| !all.is_empty())
        })
        .map(|(_, node)| if storage.zones > 0 { label(node, ZONE).to_owned() } else { String::new() })
        .collect();
    let mut wanted: BTreeMap<(String, String), i64> = BTreeMap::new();
    let used: i64 = state.volumes().values().map(|it| it.capacity).sum();
    for class in (0..storage.classes.len()).filter(|class| storage.counts(*class)) {
        for place in &places {
            wanted.insert((class_name(class), place.clone()), 10 * 1024 * GIB - used);
        }
    }
    for (name, object) in &model.supply.capacities {
        let place = object.pointer("/nodeTopology/matchLabels").and_then(|all| all.get(ZONE)).and_then(Value::as_str);
        let key = (text(object, "/storageClassName").to_owned(), place.unwrap_or_default().to_owned());
        let said = csi_control_plane::cluster::quantity::bytes(text(object, "/capacity")).unwrap_or_default();
        match wanted.remove(&key) {
            Some(room) if room == said => {}
            Some(room) => faults.push(format!("capacity {name} of {key:?} says {said}, and it is {room}")),
            None => faults.push(format!("capacity {name} of {key:?} is not wanted, or there twice")),
        }
    }
    faults.extend(wanted.keys().map(|key| format!("nothing tells the capacity of {key:?}")));
}

/// The objects that must be gone once everything was deleted.
pub(crate) fn left(model: &Model) -> Vec<(Invariant, String)> {
    let supply = &model.supply;
    let claims = supply.claims.values().map(|it| format!("{} is still there", text(it, "/metadata/name")));
    let volumes = supply.alive.iter().filter(|(handle, it)| {
        let denied = supply.asked.get(&it.name).is_some_and(|asked| asked.denied);
        let uid = uid_of(&it.name);
        !supply.kept.contains(*handle) && !denied && !model.journal.is_excused(uid) && !is_reported(model, uid)
    });
    let volumes = volumes.map(|(handle, it)| format!("{handle} of {} is still there", uid_of(&it.name)));
    let claims = claims.map(|fault| (Invariant::P9, fault));
    claims.chain(volumes.map(|fault| (Invariant::J3, fault))).collect()
}
