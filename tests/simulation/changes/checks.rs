//! The checks of each commit. Those of calls are in `calls`, those of the end in `rest`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::calls::{Demand, Job, Live, Streak, Turn};
use super::invariants::Rule;
use super::objects::{
    ALLOCATED, CAPACITY, CLAIMS, CURRENT, MODIFY, OF_CLASSES, OF_SIZES, RECORDED, REQUESTED, STATE, TARGET, VOLUMES,
    WANTED, claims_of, conditions, is_of_node, size, without_empty,
};
use crate::stage::{Commit, Reign};
use crate::world::{DAEMONS, DRIVER, FINALIZER, MARKER, text};

/// The Lease of the resizer.
pub(super) const LEASE: &str = "external-resizer-demo-csi-example-com";
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
const NOTE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// What the daemons write: of these, attachments are the attacher's.
const WRITTEN: [&str; 5] = [CLAIMS, VOLUMES, "events", "leases", "volumeattachments"];

/// What must hold, checked at each commit and each call. It knows only what [`Checks::committed`], [`Checks::called`] and
/// [`Checks::holds`] tell it.
#[derive(Default)]
pub(super) struct Checks {
    /// Only nodes expand volumes.
    pub(super) is_node_only: bool,
    /// Both calls of a claim may run at once.
    pub(super) pairs: bool,
    /// Claims and volumes by their names.
    pub(super) claims: BTreeMap<String, Value>,
    pub(super) volumes: BTreeMap<String, Value>,
    /// The sizes and the classes of the driver's volumes, by handle.
    pub(super) held: BTreeMap<String, (i64, String)>,
    /// The class of the last modification that the driver has answered with success.
    pub(super) applied: BTreeMap<String, String>,
    pub(super) demands: BTreeMap<(String, Job), Demand>,
    /// The sizes and classes that a leader has recorded in its term.
    pub(super) recorded_size: BTreeMap<String, (u64, i64)>,
    pub(super) recorded_class: BTreeMap<String, (u64, String)>,
    /// Volumes for which the driver has carried out a call after it had said that nothing goes on, or has refused what it had done.
    pub(super) excused: BTreeSet<String>,
    pub(super) live: BTreeMap<u64, Live>,
    pub(super) streaks: BTreeMap<(String, Job), Streak>,
    /// When others have given a job of a volume a reason to run. Each is good for one call before its time.
    pub(super) turned: BTreeMap<(String, Job), Vec<Turn>>,
    /// When a class has last changed.
    pub(super) class_turned: Option<Duration>,
    /// When a connection to the driver was last cut.
    pub(super) driver_cut: Option<Duration>,
    pub(super) reign: Reign,
    /// Until then the answer to a renewal may be lost.
    pub(super) deaf_until: Duration,
    /// How many changes are done.
    pub(super) grown: usize,
    pub(super) modified: usize,
    pub(super) broken: Vec<(Rule, String)>,
}

/// The handle of a volume of our driver.
pub(super) fn handle(volume: &Value) -> &str {
    if text(volume, "/spec/csi/driver") == DRIVER { text(volume, "/spec/csi/volumeHandle") } else { "" }
}

/// Whether claim and volume name each other.
fn are_bound(claim: &Value, volume: &Value) -> bool {
    let uid = text(claim, "/metadata/uid");
    !uid.is_empty()
        && text(volume, "/spec/claimRef/uid") == uid
        && text(volume, "/spec/claimRef/namespace") == text(claim, "/metadata/namespace")
        && text(claim, "/spec/volumeName") == text(volume, "/metadata/name")
}

impl Checks {
    pub(super) fn violate(&mut self, rule: Rule, what: impl std::fmt::Display) {
        self.broken.push((rule, what.to_string()));
    }

    /// The claim of a volume of our driver, and the volume's object.
    pub(super) fn bound(&self, of: &str) -> Option<(Value, Value)> {
        let volume = self.volumes.values().find(|volume| !of.is_empty() && handle(volume) == of)?;
        let claim = self.claims.get(text(volume, "/spec/claimRef/name"))?;
        are_bound(claim, volume).then(|| (claim.clone(), volume.clone()))
    }

    /// Whether the last call of a job may still be carried out, whatever the claim says.
    fn may_run(&self, handle: &str, job: Job) -> bool {
        self.demands.get(&(handle.to_owned(), job)).is_some_and(Demand::is_open)
    }

    fn volume_of(&self, claim: &Value) -> Value {
        self.volumes.get(text(claim, "/spec/volumeName")).cloned().unwrap_or_default()
    }

    /// The driver's present state.
    pub(super) fn holds(&mut self, held: impl Iterator<Item = (String, i64, String)>) {
        self.held = held.map(|(handle, size, class)| (handle, (size, class))).collect();
    }

    pub(super) fn committed(&mut self, commit: &Commit<'_>) {
        let is_ours = DAEMONS.contains(&commit.actor);
        if is_ours {
            self.written(commit);
        }
        let none = Value::Null;
        let (old, new) = (commit.old.unwrap_or(&none), commit.new.unwrap_or(&none));
        match commit.plural {
            "leases" if commit.name == LEASE => self.lease_changed(commit),
            "volumeattributesclasses" => self.class_turned = Some(commit.at),
            "pods" => self.pod_changed(commit, old, new),
            CLAIMS => {
                if is_ours {
                    self.claim_written(commit, old, new);
                } else {
                    self.claim_changed(commit, old, new);
                }
                keep(&mut self.claims, commit);
            }
            VOLUMES => {
                if is_ours {
                    self.volume_written(commit, old, new);
                }
                keep(&mut self.volumes, commit);
            }
            _ => {}
        }
    }

    /// Another term begins its queues afresh, and remembers nothing.
    fn lease_changed(&mut self, commit: &Commit<'_>) {
        if self.reign.changed(commit, commit.at <= self.deaf_until) {
            self.streaks.clear();
        }
    }

    /// A daemon has written something.
    fn written(&mut self, commit: &Commit<'_>) {
        let (plural, name) = (commit.plural, commit.name);
        if commit.new.is_some_and(|new| new.to_string().contains(MARKER)) {
            self.violate(Rule::I12, format_args!("{plural} {name} has a secret's value"));
        }
        if !WRITTEN.contains(&plural) {
            self.violate(Rule::I9, format_args!("{plural} {name} is written"));
        }
    }

    /// Pods come and go: a volume in use may be free now.
    fn pod_changed(&mut self, commit: &Commit<'_>, old: &Value, new: &Value) {
        for claim in claims_of(old).into_iter().chain(claims_of(new)) {
            let claim = self.claims.get(&claim).cloned().unwrap_or_default();
            let handle = handle(&self.volume_of(&claim)).to_owned();
            self.turned.entry((handle, Job::Expand)).or_default().push(Turn::new(commit.at));
        }
    }

    /// Others have changed a claim.
    fn claim_changed(&mut self, commit: &Commit<'_>, old: &Value, new: &Value) {
        let handle = handle(&self.volume_of(new)).to_owned();
        let differs = |pointer: &&str| old.pointer(pointer) != new.pointer(pointer);
        if differs(&STATE) && text(new, STATE) == "NodeResizeInfeasible" {
            // The driver verifies the size, whatever its answer is.
            self.recorded_size.remove(&handle);
        }
        for (job, reasons) in [
            (Job::Expand, [REQUESTED, CAPACITY, ALLOCATED, STATE, "/status/phase", "/spec/volumeName"]),
            (Job::Modify, [WANTED, CURRENT, MODIFY, TARGET, "/status/phase", "/spec/volumeName"]),
        ] {
            if reasons.iter().any(differs) {
                self.turned.entry((handle.clone(), job)).or_default().push(Turn::new(commit.at));
            }
        }
    }

    /// I10, and who writes.
    fn within_bounds(&mut self, commit: &Commit<'_>, claim: &Value, volume: &Value) {
        let (name, actor) = (commit.name, commit.actor);
        if !self.reign.is_of(actor) {
            let what = format!("{actor} writes to {name}, and {:?} leads", self.reign.lease);
            self.violate(Rule::Lease, what);
        }
        if handle(volume).is_empty() || !are_bound(claim, volume) {
            self.violate(Rule::I10, format_args!("{name} is written, and its volume is not ours or not the claim's"));
        }
    }

    fn unchanged(&mut self, name: &str, before: &Value, after: &Value) {
        if before != after {
            self.violate(Rule::I9, format_args!("{name} is changed where nothing is ours: {before} to {after}"));
        }
    }

    fn claim_written(&mut self, commit: &Commit<'_>, old: &Value, new: &Value) {
        let (name, volume) = (commit.name, self.volume_of(new));
        self.within_bounds(commit, new, &volume);
        self.unchanged(name, &foreign_to_claim(old), &foreign_to_claim(new));
        self.sizes_written(name, &volume, old, new);
        let class = text(new, CURRENT);
        if class != text(old, CURRENT) {
            let told = self.applied.get(handle(&volume)).cloned();
            if told.as_deref() != Some(class) || text(&volume, WANTED) != class {
                self.violate(Rule::I7, format_args!("{name} says {class}, the driver's last success was {told:?}"));
            }
            self.modified += 1;
            // A way back to it from another class is another modification.
            self.recorded_class.remove(handle(&volume));
            self.cleared(name, new, &OF_CLASSES);
        }
    }

    /// I4, I5, I6, I8 and I15.
    fn sizes_written(&mut self, name: &str, volume: &Value, old: &Value, new: &Value) {
        let (was, is) = (text(old, STATE), text(new, STATE));
        if size(new, CAPACITY) < size(old, CAPACITY) {
            self.violate(Rule::I5, format_args!("what {name} has sinks"));
        }
        if size(new, CAPACITY) > size(volume, RECORDED) {
            self.violate(Rule::I5, format_args!("{name} has more than its volume"));
        }
        if is == "NodeResizePending" && was != is && size(volume, RECORDED) < size(new, ALLOCATED) {
            self.violate(Rule::I6, format_args!("a node is told to reach what the volume of {name} does not say"));
        }
        let is_less = size(new, ALLOCATED) < size(old, ALLOCATED);
        if was.starts_with("Controller") && is_less && self.may_run(handle(volume), Job::Expand) {
            self.violate(Rule::I4, format_args!("{name} begins less while the last call's outcome is unknown"));
        }
        if is == "NodeResizePending" && was != is {
            self.recorded_size.insert(handle(volume).to_owned(), (self.reign.terms, size(new, ALLOCATED)));
        }
        let is_fresh = size(new, ALLOCATED) != size(old, ALLOCATED);
        if is_of_node(was) && was != is && was != "NodeResizeInfeasible" && !is_fresh {
            self.violate(Rule::I8, format_args!("{name} was {was}, and becomes {is:?}"));
        }
        if !was.is_empty() && is.is_empty() {
            self.grown += 1;
            self.cleared(name, new, &OF_SIZES);
        }
    }

    fn cleared(&mut self, name: &str, claim: &Value, types: &[&str]) {
        let left: Vec<&str> = conditions(claim).into_iter().filter(|type_| types.contains(type_)).collect();
        if !left.is_empty() {
            self.violate(Rule::I15, format_args!("{name} is done, and still has {left:?}"));
        }
    }

    fn volume_written(&mut self, commit: &Commit<'_>, old: &Value, new: &Value) {
        let name = commit.name;
        self.unchanged(name, &foreign_to_volume(old), &foreign_to_volume(new));
        let own = [RECORDED, WANTED, "/metadata/annotations/volume.alpha.kubernetes.io~1pre-resize-capacity"];
        if own.iter().all(|pointer| old.pointer(pointer) == new.pointer(pointer)) {
            // A write of the attacher.
            return;
        }
        let claim = self.claims.get(text(new, "/spec/claimRef/name")).cloned().unwrap_or_default();
        self.within_bounds(commit, &claim, new);
        let handle = handle(new).to_owned();
        let (before, after) = (size(old, RECORDED), size(new, RECORDED));
        if after < before && !self.is_node_only {
            self.violate(Rule::I5, format_args!("the size of {name} sinks"));
        }
        let has = self.held.get(&handle).map_or(0, |(size, _)| *size);
        if after > before && !self.is_node_only && after > has {
            self.violate(Rule::I5, format_args!("{name} says {after} bytes, and the driver's volume has {has}"));
        }
        if after > before {
            self.recorded_size.insert(handle.clone(), (self.reign.terms, after));
        }
        if text(new, WANTED) != text(old, WANTED) {
            self.recorded_class.insert(handle, (self.reign.terms, text(new, WANTED).to_owned()));
        }
    }
}

fn keep(all: &mut BTreeMap<String, Value>, commit: &Commit<'_>) {
    match commit.new {
        Some(new) => drop(all.insert(commit.name.to_owned(), new.clone())),
        None => drop(all.remove(commit.name)),
    }
}

fn take(object: &mut Value, parents: &str, member: &str) {
    let Some(map) = object.pointer_mut(parents).and_then(Value::as_object_mut) else { return };
    map.remove(member);
}

/// An object without what every write changes.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    for member in ["resourceVersion", "generation", "managedFields"] {
        take(&mut object, "/metadata", member);
    }
    object
}

/// The part of a claim that the resizer must not change.
fn foreign_to_claim(claim: &Value) -> Value {
    let mut claim = plain(claim);
    take(&mut claim, "/metadata/annotations", NOT_REQUIRED);
    for map in ["capacity", "allocatedResources", "allocatedResourceStatuses"] {
        take(&mut claim, &format!("/status/{map}"), "storage");
    }
    for member in ["currentVolumeAttributesClassName", "modifyVolumeStatus"] {
        take(&mut claim, "/status", member);
    }
    if let Some(conditions) = claim.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        conditions.retain(|it| !OF_SIZES.iter().chain(&OF_CLASSES).any(|type_| text(it, "/type") == *type_));
    }
    without_empty(&mut claim);
    claim
}

/// The part of a PersistentVolume that neither resizer nor attacher may change.
fn foreign_to_volume(volume: &Value) -> Value {
    let mut volume = plain(volume);
    take(&mut volume, "/metadata/annotations", NOTE);
    take(&mut volume, "/spec/capacity", "storage");
    take(&mut volume, "/spec", "volumeAttributesClassName");
    if let Some(finalizers) = volume.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
        finalizers.retain(|it| it != FINALIZER);
    }
    without_empty(&mut volume);
    volume
}
