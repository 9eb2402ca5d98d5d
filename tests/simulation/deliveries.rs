//! The checks of every change of claims and of their volumes: P2, P7, P8.

use csi_control_plane::sandbox::api::Committed;
use serde_json::{Map, Value};

use crate::invariants::Invariant;
use crate::model::Model;
use crate::storage::{CLONING, FROM_SNAPSHOT, RECLAIM, SELECTED, uid_of};
use crate::supply::annotation;
use crate::world::{DAEMONS, FINALIZER, finalizers, text};

/// The kinds that only the provisioner writes.
const KINDS: [&str; 3] = ["persistentvolumeclaims", "volumesnapshots", "csistoragecapacities"];

/// Something was committed. The model is as it was before.
pub(crate) fn on_commit(model: &mut Model, change: &Committed<'_>, name: &str) {
    let plural = change.resource.plural;
    let by_daemon = DAEMONS.contains(&change.actor);
    if by_daemon && KINDS.contains(&plural) {
        leads(model, change, name);
    }
    match (plural, change.old, change.new) {
        ("persistentvolumeclaims" | "volumesnapshots", Some(old), Some(new)) if by_daemon => {
            only_ours(model, change, old, new, name);
        }
        ("persistentvolumeclaims" | "volumesnapshots", ..) if by_daemon && change.new.is_some() => {
            model.trace.violate(Invariant::P7, format_args!("{} creates {plural} {name}", change.actor));
        }
        ("persistentvolumes", None, Some(new)) if by_daemon => stored(model, change, new, name),
        ("persistentvolumes", Some(old), None) => removed(model, old, name),
        _ => {}
    }
}

fn leads(model: &Model, change: &Committed<'_>, name: &str) {
    let (actor, plural) = (change.actor, change.resource.plural);
    if !model.supplied_by(actor) && !model.is_confused() {
        let holder = model.supplier();
        model
            .trace
            .violate(Invariant::P7, format_args!("{actor} writes {plural} {name} while {holder:?} holds the lease"));
    }
}

/// The roles that may change a volume: the attacher its finalizer, the provisioner the rest.
pub(crate) fn is_suppliers(old: Option<&Value>, new: Option<&Value>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return true };
    let held = |object: &Value| finalizers(object).contains(&FINALIZER);
    held(old) == held(new)
}

/// P7: of a claim or a snapshot, our finalizers, and the node that was chosen, which we may only remove.
fn only_ours(model: &Model, change: &Committed<'_>, old: &Value, new: &Value, name: &str) {
    let ours = [CLONING, FROM_SNAPSHOT];
    let blank = |object: &Value| {
        let mut object = object.clone();
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for member in ["resourceVersion", "managedFields", "generation"] {
                meta.remove(member);
            }
            let list = meta.remove("finalizers").unwrap_or_default();
            let list = list.as_array().into_iter().flatten();
            let kept: Vec<Value> = list.filter(|it| !ours.iter().any(|one| **it == **one)).cloned().collect();
            meta.insert("finalizers".to_owned(), kept.into());
            let all = meta.remove("annotations").unwrap_or_default();
            let all = all.as_object().into_iter().flatten().filter(|(key, _)| *key != SELECTED);
            let kept: Map<String, Value> = all.map(|(key, value)| (key.clone(), value.clone())).collect();
            meta.insert("annotations".to_owned(), kept.into());
        }
        for source in ["/spec/dataSource", "/spec/dataSourceRef"] {
            // The API shows a group that is not there as null, or not at all.
            if let Some(source) = object.pointer_mut(source).and_then(Value::as_object_mut) {
                source.retain(|_, member| !member.is_null());
            }
        }
        object
    };
    let chose = annotation(new, SELECTED).is_some_and(|node| annotation(old, SELECTED) != Some(node));
    if blank(old) != blank(new) || chose {
        let (actor, plural) = (change.actor, change.resource.plural);
        model.trace.violate(
            Invariant::P7,
            format_args!("{actor} changed what is not its own in {plural} {name}: {old} -> {new}"),
        );
    }
}

/// P2, P8: a volume object is stored for a volume that exists, as it was asked for, and tells where it is.
fn stored(model: &mut Model, change: &Committed<'_>, new: &Value, name: &str) {
    let handle = text(new, "/spec/csi/volumeHandle");
    let violate_of = |invariant: Invariant, what: String| {
        model.trace.violate(invariant, format_args!("{} stores {name} for {handle}: {what}", change.actor));
    };
    if model.supply.kept.contains(handle) {
        violate_of(Invariant::J10, "which a user has kept".to_owned());
    }
    let violate = |what: String| violate_of(Invariant::P2, what);
    let Some(volume) = model.supply.alive.get(handle) else {
        if !model.is_confused() {
            violate("there is no such volume".to_owned());
        }
        return;
    };
    if volume.name != name {
        violate(format!("that volume is {}", volume.name));
    }
    if model.object_of(handle).is_some() {
        violate("which has an object already".to_owned());
    }
    let owner = text(new, "/spec/claimRef/uid");
    if !owner.is_empty() && owner != uid_of(name) {
        violate(format!("it is for claim {owner}"));
    }
    for finalizer in [FINALIZER, RECLAIM] {
        if !finalizers(new).contains(&finalizer) {
            violate(format!("it lacks {finalizer}"));
        }
    }
    let misplaced = |what: String| violate_of(Invariant::P8, what);
    let wanted = model.supply.asked.get(name).and_then(|it| it.request.accessibility_requirements.as_ref());
    let terms = new.pointer("/spec/nodeAffinity/required/nodeSelectorTerms").and_then(Value::as_array);
    let of_term = |term: &Value| -> std::collections::BTreeMap<String, String> {
        let all = term["matchExpressions"].as_array().into_iter().flatten();
        all.map(|it| (text(it, "/key").to_owned(), text(it, "/values/0").to_owned())).collect()
    };
    let places: Vec<_> = terms.into_iter().flatten().map(of_term).collect();
    if places.is_empty() != volume.place.is_empty() || places.iter().any(|place| *place != volume.place) {
        misplaced(format!("it tells of {places:?}, and the volume is at {:?}", volume.place));
    }
    if let Some(wanted) = wanted {
        let allowed = |place: &std::collections::BTreeMap<String, String>| {
            wanted
                .requisite
                .iter()
                .any(|topology| topology.segments.iter().all(|(key, value)| place.get(key) == Some(value)))
        };
        if !places.iter().all(allowed) {
            misplaced(format!("{places:?} was not asked for"));
        }
    }
    if let Some(asked) = model.supply.asked.get_mut(name) {
        asked.owed = false;
    }
}

/// P2: an object goes only after its volume, unless the volume is to be kept.
fn removed(model: &mut Model, old: &Value, name: &str) {
    let handle = text(old, "/spec/csi/volumeHandle").to_owned();
    if !model.supply.alive.contains_key(&handle) || model.supply.kept.contains(&handle) {
        return;
    }
    if text(old, "/spec/persistentVolumeReclaimPolicy") == "Delete" {
        model.trace.violate(Invariant::P2, format_args!("{name} is gone, and its volume {handle} is not"));
    } else {
        model.supply.kept.insert(handle);
    }
}
