//! The data of the checks about claims and their volumes, and the checks of every call about them: P1, P3, P5, P6, P7.

use std::collections::{BTreeMap, BTreeSet};

use csi_control_plane::proto::CreateVolumeRequest;
use csi_control_plane::proto::volume_content_source::Type as Content;
use csi_control_plane::sandbox::driver::{Action, Call, Method, Outcome, State};
use serde_json::Value;
use tonic::Code;

use crate::invariants::Invariant;
use crate::journal;
use crate::keeping;
use crate::model::{CALM, Model};
use crate::storage::{CLONING, FROM_SNAPSHOT, SELECTED, uid_of};
use crate::world::{finalizers, is_deleting, text};

/// Attachments this old are known to every daemon in calm times.
const KNOWN: f64 = 3.0;

/// Everything about claims.
#[derive(Default)]
pub(crate) struct Supply {
    /// By uid.
    pub(crate) claims: BTreeMap<String, Value>,
    /// Every uid that a claim ever had.
    uids: BTreeSet<String>,
    pub(crate) snapshots: BTreeMap<String, Value>,
    pub(crate) pods: BTreeMap<String, Value>,
    pub(crate) nodes: BTreeMap<String, Value>,
    pub(crate) csi_nodes: BTreeMap<String, Value>,
    pub(crate) classes: BTreeMap<String, Value>,
    pub(crate) capacities: BTreeMap<String, Value>,
    pub(crate) lease: Option<Value>,
    /// The volumes that exist, by handle: their names and places.
    pub(crate) alive: BTreeMap<String, Alive>,
    /// The names of all that ever existed, by handle.
    pub(crate) names: BTreeMap<String, String>,
    /// The last request, by name.
    pub(crate) asked: BTreeMap<String, Asked>,
    /// The volumes whose deletion was answered, each with the term.
    deleted: BTreeMap<String, String>,
    /// The handles of volumes that users keep, by their policy or by force.
    pub(crate) kept: BTreeSet<String>,
    /// The content of the volumes that users have kept, by handle.
    pub(crate) contents: BTreeMap<String, String>,
    /// The snapshot objects, by the driver's ids.
    pub(crate) snapshot_of: BTreeMap<String, String>,
}

/// A volume that exists.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Alive {
    pub(crate) name: String,
    pub(crate) place: BTreeMap<String, String>,
}

/// A requested volume.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) request: CreateVolumeRequest,
    /// No final answer yet, or a good one of which no object tells yet.
    pub(crate) owed: bool,
    /// The driver's last word was that there is none, and not its own: it was made to say so.
    pub(crate) denied: bool,
    /// The driver was made to lie about the volume: its answer could not be used.
    pub(crate) belied: bool,
}

/// Whether the driver is done with a request after this refusal (provisioner spec 2.4).
fn is_final(code: Code) -> bool {
    !matches!(code, Code::Ok | Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted)
}

impl Model {
    /// The volume objects that were provisioned.
    pub(crate) fn made(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.volumes.iter().filter(|(_, object)| text(object, "/spec/csi/volumeHandle").starts_with("volume-"))
    }

    /// The object of a volume.
    pub(crate) fn object_of(&self, handle: &str) -> Option<&Value> {
        self.volumes.values().find(|object| text(object, "/spec/csi/volumeHandle") == handle)
    }

    /// What a call about a volume changes: the volume's name, wherever it is known.
    pub(crate) fn subject(&self, call: &Call) -> Option<String> {
        let of_handle = |handle: &String| {
            let name = self.supply.names.get(handle).filter(|name| !name.is_empty());
            name.unwrap_or(handle).clone()
        };
        call.name.clone().or_else(|| call.volume.as_ref().map(of_handle))
    }

    /// Takes over which volumes exist.
    pub(crate) fn see_volumes(&mut self, state: &State) {
        let alive: BTreeMap<String, Alive> = state
            .volumes()
            .iter()
            .filter(|(_, it)| !it.name.is_empty())
            .map(|(id, it)| (id.clone(), Alive { name: it.name.clone(), place: it.segments.clone() }))
            .collect();
        if alive == self.supply.alive {
            return;
        }
        for (id, it) in &alive {
            self.supply.names.insert(id.clone(), it.name.clone());
        }
        self.supply.alive = alive;
        let mut of: BTreeMap<&str, &str> = BTreeMap::new();
        for (id, it) in &self.supply.alive {
            let uid = uid_of(&it.name);
            if let Some(other) = of.insert(uid, id) {
                self.trace.violate(Invariant::P1, format_args!("claim {uid} has two volumes: {other} and {id}"));
            }
            if !self.supply.uids.contains(uid) {
                self.trace.violate(Invariant::P1, format_args!("volume {id} named {} was made for nobody", it.name));
            }
        }
    }

    /// Whether a claim still wants the volume of this name.
    pub(crate) fn is_wanted(&self, volume: &str) -> bool {
        self.supply.claims.get(uid_of(volume)).is_some_and(|claim| {
            let bound = text(claim, "/spec/volumeName");
            !is_deleting(claim) && (bound.is_empty() || bound == volume)
        })
    }

    /// Whether the volume of this name is asked for again, whatever the driver has said of it: its claim wants it, and waits for no
    /// consumer.
    pub(crate) fn is_due(&self, volume: &str) -> bool {
        let waits = |claim: &Value| {
            let class = self.supply.classes.get(text(claim, "/spec/storageClassName"));
            class.is_some_and(|class| text(class, "/volumeBindingMode") == "WaitForFirstConsumer")
                && annotation(claim, SELECTED).is_none()
        };
        self.is_wanted(volume) && !self.supply.claims.get(uid_of(volume)).is_some_and(waits)
    }
}

/// A call about the making and deleting of volumes arrived.
pub(crate) fn arrived(model: &mut Model, call: &Call, caller: &str) {
    if !model.supplied_by(caller) && !model.is_confused() {
        let (holder, method) = (model.supplier(), call.method);
        model.trace.violate(Invariant::P7, format_args!("{caller} calls {method} while {holder:?} holds the lease"));
    }
    match call.method {
        Method::CreateVolume => create_arrived(model, call),
        Method::DeleteVolume => delete_arrived(model, call, caller),
        _ => {}
    }
}

fn create_arrived(model: &mut Model, call: &Call) {
    let (Some(name), Some(request)) = (&call.name, &call.create) else { return };
    let id = call.id;
    keeping::asked(model, id, name);
    journal::asked(model, id, name);
    if let Some(fault) = unprotected(model, request).filter(|_| !model.is_confused()) {
        model.trace.violate(Invariant::P6, format_args!("#{id} asks for {name}: {fault}"));
    }
    let before = model.supply.asked.get(name).filter(|asked| asked.owed && asked.request != **request);
    if let Some(before) = before.filter(|_| !model.is_confused() && !model.journal.is_restored(uid_of(name))) {
        let (was, is) = (shown(&before.request), shown(request));
        model.trace.violate(Invariant::P5, format_args!("#{id} asks for {name} in another way: {was} -> {is}"));
    }
    let belied = model.supply.asked.get(name).is_some_and(|asked| asked.belied);
    let asked = Asked { request: (**request).clone(), owed: true, denied: false, belied };
    model.supply.asked.insert(name.clone(), asked);
}

/// A request in words that are the same each time.
fn shown(request: &CreateVolumeRequest) -> String {
    let parameters: BTreeMap<_, _> = request.parameters.iter().collect();
    let places = |all: &[csi_control_plane::proto::Topology]| -> Vec<BTreeMap<String, String>> {
        all.iter().map(|place| place.segments.clone().into_iter().collect()).collect()
    };
    let topology = request.accessibility_requirements.as_ref().map(|it| (places(&it.requisite), places(&it.preferred)));
    let (size, source) = (&request.capacity_range, &request.volume_content_source);
    format!("{size:?} {parameters:?} {source:?} {topology:?}")
}

/// Why what a volume is to be made from may go before it is made.
fn unprotected(model: &Model, request: &CreateVolumeRequest) -> Option<String> {
    match request.volume_content_source.as_ref()?.r#type.as_ref()? {
        Content::Volume(source) => {
            if model.supply.kept.contains(&source.volume_id) {
                // Without the PersistentVolume, which a user has removed by force, its claim is not known.
                return None;
            }
            let object = model.object_of(&source.volume_id);
            let claim = object.and_then(|it| model.supply.claims.get(text(it, "/spec/claimRef/uid")));
            let safe = claim.is_some_and(|claim| finalizers(claim).contains(&CLONING));
            (!safe).then(|| format!("the claim of {} is not protected", source.volume_id))
        }
        Content::Snapshot(source) => {
            let name = model.supply.snapshot_of.get(&source.snapshot_id);
            let object = name.and_then(|name| model.supply.snapshots.get(name));
            let safe = object.is_some_and(|it| finalizers(it).contains(&FROM_SNAPSHOT));
            (!safe).then(|| format!("the snapshot {} is not protected", source.snapshot_id))
        }
    }
}

fn delete_arrived(model: &Model, call: &Call, caller: &str) {
    let Some(handle) = &call.volume else { return };
    let (id, name) = (call.id, model.supply.names.get(handle).cloned().unwrap_or_default());
    keeping::delete_arrived(model, id, handle);
    if model.is_confused() {
        return;
    }
    let violate =
        |what: &str| model.trace.violate(Invariant::P3, format_args!("#{id} deletes {handle} ({name}): {what}"));
    let term = format!("{caller} {}", model.supplier());
    if model.is_calm() && model.supply.deleted.get(handle) == Some(&term) {
        violate("which the driver has deleted already");
    }
    let Some(object) = model.object_of(handle) else {
        // An unusable volume is deleted again, whichever claim it was for.
        let belied = model.supply.asked.get(&name).is_some_and(|asked| asked.belied);
        if model.is_wanted(&name) && model.supply.alive.contains_key(handle) && !belied {
            violate("no object tells of it yet, and its claim wants it");
        }
        return;
    };
    let volume = text(object, "/metadata/name");
    if text(object, "/spec/persistentVolumeReclaimPolicy") != "Delete" {
        violate("its object says that it is to be kept");
    }
    if text(object, "/status/phase") != "Released" {
        violate("its object is not released");
    }
    if model.is_wanted(volume) {
        violate("its claim wants it");
    }
    let now = model.now().as_secs_f64();
    for (attachment, object) in &model.attachments {
        let age = model.created_at.get(attachment).map_or(f64::MAX, |at| now - at.as_secs_f64());
        let known = age > KNOWN && (model.is_calm() || age > 2.0 * CALM.as_secs_f64());
        if text(object, "/spec/source/persistentVolumeName") == volume && known {
            violate(&format!("{attachment} names it"));
        }
    }
}

/// A call about the making and deleting of volumes ended.
pub(crate) fn ended(model: &mut Model, call: &Call) {
    match call.method {
        Method::CreateVolume => {
            let Some(asked) = call.name.as_ref().and_then(|name| model.supply.asked.get_mut(name)) else { return };
            match &call.outcome {
                Outcome::Refused(refusal) if is_final(refusal.code) => {
                    // The driver's answer is true: there is no volume. A daemon that believes otherwise is wrong.
                    (asked.owed, asked.denied) = (false, call.fault.as_ref().is_some_and(|it| it.says(refusal)));
                }
                Outcome::Ok => {
                    asked.denied = false;
                    asked.belied |= matches!(call.fault, Some(Action::Lie(_)));
                    // Where names are ids, a volume may be made anew under an id that was deleted.
                    model.supply.deleted.remove(call.name.as_deref().unwrap_or_default());
                }
                _ => {}
            }
        }
        Method::DeleteVolume if call.outcome == Outcome::Ok => {
            let term = format!("{} {}", model.caller(call), model.supplier());
            // After an unusable answer, the next request may differ.
            let name = call.volume.as_ref().and_then(|handle| model.supply.names.get(handle)).cloned();
            if let Some(asked) = name.and_then(|name| model.supply.asked.get_mut(&name)) {
                asked.owed = false;
            }
            model.supply.deleted.insert(call.volume.clone().unwrap_or_default(), term);
        }
        _ => {}
    }
}

impl Supply {
    /// How many claims there ever were, and how many volumes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.uids.len(), self.names.len())
    }

    /// Keeps an object as it is stored now.
    pub(crate) fn keep(&mut self, plural: &str, name: &str, old: Option<&Value>, new: Option<&Value>) {
        let (kept, key) = match plural {
            "persistentvolumeclaims" => {
                let uid = text(new.or(old).unwrap_or(&Value::Null), "/metadata/uid").to_owned();
                self.uids.insert(uid.clone());
                (&mut self.claims, uid)
            }
            "volumesnapshots" => (&mut self.snapshots, name.to_owned()),
            "pods" => (&mut self.pods, name.to_owned()),
            "nodes" => (&mut self.nodes, name.to_owned()),
            "csinodes" => (&mut self.csi_nodes, name.to_owned()),
            "storageclasses" => (&mut self.classes, name.to_owned()),
            "csistoragecapacities" => (&mut self.capacities, name.to_owned()),
            _ => return,
        };
        match new {
            Some(object) => drop(kept.insert(key, object.clone())),
            None => drop(kept.remove(&key)),
        }
    }
}

/// An annotation of an object.
pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}
