//! The checks of each commit. Those of calls are in `calls`, those of the end in `rest`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use csi_control_plane::proto::CreateSnapshotRequest;
use serde_json::Value;

use super::calls::{Live, Streak, Task};
use super::contents::{Contents, OF_SNAPSHOTS};
use super::force::Owed;
use super::groups;
use super::invariants::Rule;
use crate::stage::{Commit, Reign};
use crate::world::{DAEMONS, DRIVER, MARKER, finalizers, is_deleting, text};

pub(super) const CONTENTS: &str = "volumesnapshotcontents";
pub(super) const SNAPSHOTS: &str = "volumesnapshots";
/// The Lease of who takes snapshots.
pub(super) const LEASE: &str = "external-snapshotter-leader-demo-csi-example-com";
pub(super) const FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
pub(super) const MARK: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
pub(super) const LOST: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
pub(super) const INTENT: &str = "csi-control-plane.io/snapshotting";
/// It stays when the request leaves.
const OF_UID: &str = "csi-control-plane.io/content-uid";
/// The snapshots of a group whose status cannot list them.
const UNLISTED: &str = "csi-control-plane.io/unlisted-members";
/// The group that a content is a member of.
pub(super) const MEMBER: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
pub(super) const HANDLE: &str = "/status/snapshotHandle";
pub(super) const GIVEN: &str = "/spec/source/snapshotHandle";
pub(super) const OWNER: &str = "/spec/volumeSnapshotRef/uid";
pub(super) const POLICY: &str = "/spec/deletionPolicy";
const READY: &str = "/status/readyToUse";
/// The part of the status that we write: of a snapshot, and of a group.
const STATUS: [&str; 5] = ["snapshotHandle", "readyToUse", "creationTime", "restoreSize", "error"];
const GROUP_STATUS: [&str; 2] = ["volumeGroupSnapshotHandle", "volumeSnapshotInfoList"];
/// The daemon's writes.
const WRITTEN: [&str; 4] = [CONTENTS, groups::CONTENTS, "events", "leases"];
/// A decision may be so old when its request arrives.
pub(super) const AGE: Duration = Duration::from_secs(6);

/// The requests for a `VolumeSnapshot`, by its uid.
#[derive(Debug, Default)]
pub(super) struct Demand {
    pub(super) request: Option<CreateSnapshotRequest>,
    /// It may be running, or its answer is not known.
    pub(super) is_owed: bool,
    /// The driver has said that there is none.
    pub(super) is_denied: bool,
    /// Others have wiped what the content says of the request.
    pub(super) is_wiped: bool,
    /// Why no daemon is at fault, whatever becomes of it.
    pub(super) excuse: Option<&'static str>,
}

/// The invariants, checked at each commit and each call, which are all that the checks see.
#[derive(Default)]
pub(super) struct Checks {
    /// The driver can look up existing snapshots.
    pub(super) looks_up: bool,
    /// How often the driver says that a snapshot is not ready.
    pub(super) polls: u32,
    pub(super) contents: Contents,
    pub(super) demands: BTreeMap<String, Demand>,
    /// The `VolumeSnapshots` by their names.
    pub(super) snapshots: BTreeMap<String, Value>,
    /// The requests without a final answer.
    pub(super) owed: Owed,
    /// The driver's snapshots: handles and names; and all that it ever had.
    pub(super) held: BTreeMap<String, String>,
    pub(super) known: BTreeMap<String, String>,
    /// Handles that the driver has said to be ready, and those that it has said to be deleted.
    pub(super) ready: BTreeSet<String>,
    pub(super) deleted: BTreeSet<String>,
    /// Handles of snapshots that are of a group, or were.
    pub(super) grouped: BTreeSet<String>,
    pub(super) retained: BTreeSet<String>,
    pub(super) live: BTreeMap<u64, Live>,
    pub(super) streaks: BTreeMap<(String, Task), Streak>,
    /// When a class has last changed.
    pub(super) class_turned: Option<Duration>,
    /// When others have last changed the content of a `VolumeSnapshot`.
    pub(super) turned: BTreeMap<String, Duration>,
    pub(super) reign: Reign,
    pub(super) broken: Vec<(Rule, String)>,
}

pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

pub(super) fn is_protected(object: &Value) -> bool {
    finalizers(object).contains(&FINALIZER)
}

pub(super) fn is_ready(object: &Value) -> bool {
    object.pointer(READY) == Some(&Value::Bool(true))
}

/// Whether a content is a member of a group, which the driver takes and deletes as a whole.
pub(super) fn is_member(object: &Value) -> bool {
    annotation(object, MEMBER).is_some()
}

/// The handle of a content, wherever it is known from.
pub(super) fn handle(object: &Value) -> &str {
    OF_SNAPSHOTS.handle(object)
}

impl Checks {
    pub(super) fn violate(&mut self, rule: Rule, what: impl std::fmt::Display) {
        self.broken.push((rule, what.to_string()));
    }

    /// Whether no daemon is at fault, whatever becomes of this `VolumeSnapshot`'s snapshot.
    pub(super) fn is_excused(&self, owner: &str) -> bool {
        self.demands.get(owner).is_some_and(|demand| demand.excuse.is_some())
    }

    /// Whether a user has removed a content of this `VolumeSnapshot` by force.
    pub(super) fn is_forced(&self, owner: &str) -> bool {
        self.contents.values().any(|it| text(&it.object, OWNER) == owner && it.forced_in.is_some())
    }

    pub(super) fn excuse(&mut self, owner: &str, why: &'static str) {
        self.demands.entry(owner.to_owned()).or_default().excuse = Some(why);
    }

    /// The uids of what owns the `VolumeSnapshot` of a content.
    pub(super) fn owners_of<'a>(&'a self, content: &Value) -> impl Iterator<Item = &'a str> {
        let (uid, name) = (text(content, OWNER), text(content, "/spec/volumeSnapshotRef/name"));
        let snapshot = self.snapshots.get(name).filter(|it| !uid.is_empty() && text(it, "/metadata/uid") == uid);
        let owners = snapshot.and_then(|it| it["metadata"]["ownerReferences"].as_array());
        owners.into_iter().flatten().map(|owner| text(owner, "/uid"))
    }

    /// Whether a `VolumeSnapshot` is left that the object with this uid owns.
    pub(super) fn has_owned(&self, owner: &str) -> bool {
        let mut owners =
            self.snapshots.values().filter_map(|it| it["metadata"]["ownerReferences"].as_array()).flatten();
        owners.any(|it| text(it, "/uid") == owner)
    }

    /// Whether a content has this snapshot, which was there before, and does not say of which group it is.
    pub(super) fn is_unaware(&self, id: &str) -> bool {
        let says_not = |it: &Value| OF_SNAPSHOTS.is_given(it) && text(it, groups::HANDLE).is_empty();
        self.contents.values().any(|it| OF_SNAPSHOTS.had(it, id) && says_not(&it.object))
    }

    /// The driver's snapshots of a `VolumeSnapshot`: their handles.
    pub(super) fn cut_for(&self, owner: &str) -> Vec<String> {
        let is_of = |name: &str| !owner.is_empty() && name.ends_with(owner);
        self.held.iter().filter(|(_, name)| is_of(name)).map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn committed(&mut self, commit: &Commit<'_>) {
        let is_ours = DAEMONS.contains(&commit.actor);
        if is_ours {
            self.written(commit);
        }
        match commit.plural {
            "leases" if commit.name == LEASE => self.lease_changed(commit),
            // A class that is there again is a reason to try at once.
            "volumesnapshotclasses" => self.class_turned = Some(commit.at),
            SNAPSHOTS => match commit.new {
                Some(new) => drop(self.snapshots.insert(commit.name.to_owned(), new.clone())),
                None => drop(self.snapshots.remove(commit.name)),
            },
            CONTENTS => self.content_committed(commit, is_ours),
            _ => {}
        }
    }

    /// Another term begins its queues afresh, and remembers nothing.
    fn lease_changed(&mut self, commit: &Commit<'_>) {
        if self.reign.changed(commit, false) {
            self.streaks.clear();
            for demand in self.demands.values_mut().filter(|it| it.is_wiped) {
                demand.excuse = Some("wiped, and the daemon that remembered it ended");
            }
        }
    }

    /// A daemon has written something.
    fn written(&mut self, commit: &Commit<'_>) {
        let (plural, name) = (commit.plural, commit.name);
        if commit.new.is_some_and(|new| new.to_string().contains(MARKER)) {
            self.violate(Rule::I10, format_args!("{plural} {name} holds a secret's value"));
        }
        if !WRITTEN.contains(&plural) {
            self.violate(Rule::I7, format_args!("{plural} {name} is none of ours"));
        }
    }

    fn content_committed(&mut self, commit: &Commit<'_>, is_ours: bool) {
        let (none, name) = (Value::Null, commit.name);
        let old = commit.old.unwrap_or(&none);
        let last = commit.new.unwrap_or(old);
        let uid = text(last, "/metadata/uid").to_owned();
        let owner = text(last, OWNER).to_owned();
        if is_ours {
            self.within_bounds(commit, old, last);
            if is_protected(old) && !commit.new.is_some_and(is_protected) {
                self.released(name, &uid, old, commit.at);
            }
            self.status_committed(name, old, last);
        } else {
            self.by_others(commit, &uid, &owner, old);
        }
        if commit.old.is_none() {
            let (id, name) = (handle(last), self.known.get(handle(last)).map_or("", String::as_str));
            let is_late = !id.is_empty() && OF_SNAPSHOTS.is_going(&self.contents, id, name);
            self.contents.entry(uid.clone()).or_default().is_late = is_late;
        }
        let content = self.contents.entry(uid).or_default();
        content.committed(commit, last, is_protected(last), OF_SNAPSHOTS);
        if let Some(demand) = self.demands.get_mut(&owner)
            && annotation(last, INTENT).is_some()
        {
            demand.is_wiped = false;
        }
    }

    /// I7, and who writes (I8).
    fn within_bounds(&mut self, commit: &Commit<'_>, old: &Value, new: &Value) {
        let (name, actor) = (commit.name, commit.actor);
        let (before, after) = (foreign(old), foreign(new));
        if before != after {
            self.violate(Rule::I7, format_args!("{name} is changed where nothing is ours: {before} to {after}"));
        }
        if !self.reign.is_of(actor) {
            let what = format!("{actor} writes to {name}, and {:?} leads", self.reign.lease);
            self.violate(Rule::I8, what);
        }
        if text(new, "/spec/driver") != DRIVER {
            self.violate(Rule::I8, format_args!("{name} is another driver's, and is written"));
        }
    }

    /// I2: the finalizer has left.
    fn released(&mut self, name: &str, uid: &str, old: &Value, at: Duration) {
        if is_member(old) {
            return;
        }
        let owner = text(old, OWNER).to_owned();
        let is_owed = self.demands.get(&owner).is_some_and(|demand| demand.is_owed);
        if is_owed && !self.is_forced(&owner) && !self.is_excused(&owner) {
            self.violate(Rule::I2, format_args!("{name} is released while a call for it is unanswered"));
        }
        let content = self.contents.get(uid);
        let known = content.map(|it| it.handle.clone()).filter(|it| !it.is_empty());
        let known = known.or_else(|| Some(text(old, GIVEN).to_owned()).filter(|it| !it.is_empty()));
        if text(old, POLICY) == "Retain" || content.is_some_and(|it| it.has_new_policy(at)) {
            self.retained.extend(known.into_iter().chain(self.cut_for(&owner)));
            return;
        }
        if self.is_excused(&owner) || known.as_ref().is_some_and(|id| self.grouped.contains(id)) {
            return;
        }
        // Another content has it deleted, if that is its policy.
        let is_kept = |id: &String| OF_SNAPSHOTS.is_named_by_another(&self.contents, id, uid, at);
        let undeleted = known.filter(|it| !self.deleted.contains(it) && !is_kept(it));
        let left: Vec<String> = self.cut_for(&owner).into_iter().filter(|it| !is_kept(it)).collect();
        if let Some(handle) = undeleted {
            self.violate(Rule::I2, format_args!("{name} is released, and the driver has not deleted {handle}"));
        }
        // The snapshot of one that was removed by force is worked to its end without a content: the end shows it (I14).
        if !left.is_empty() && !self.is_forced(&owner) {
            self.violate(Rule::I2, format_args!("{name} is released, and the driver still has {left:?}"));
        }
    }

    /// I4 and I5.
    fn status_committed(&mut self, name: &str, old: &Value, new: &Value) {
        let (was, is) = (text(old, HANDLE), text(new, HANDLE));
        if !was.is_empty() && was != is && !(is.is_empty() && is_deleting(new)) {
            self.violate(Rule::I4, format_args!("{name} had {was}, and is given {is:?}"));
        }
        let is_believed = !self.looks_up && (!text(new, GIVEN).is_empty() || is_member(new));
        if is_ready(new) && !is_ready(old) && !self.ready.contains(is) && !is_believed {
            self.violate(
                Rule::I5,
                format_args!("{name} is said to be ready, and the driver has not said so of {is:?}"),
            );
        }
    }

    /// Another program has changed a content.
    fn by_others(&mut self, commit: &Commit<'_>, uid: &str, owner: &str, old: &Value) {
        let is_unread = |it: &Value| foreign_to_us(it);
        let is_turned = commit.new.is_none_or(|new| is_unread(new) != is_unread(old));
        if is_turned {
            self.turned.insert(owner.to_owned(), commit.at);
        }
        let is_unready = !text(old, HANDLE).is_empty() && !is_ready(old);
        let has_intent = |it: &Value| annotation(it, INTENT).is_some();
        if let Some(demand) = self.demands.get_mut(owner)
            && has_intent(old)
            && !commit.new.is_some_and(has_intent)
            && (demand.is_owed || is_unready || annotation(old, MARK).is_some())
        {
            demand.is_wiped = true;
            if is_unready && !demand.is_owed {
                demand.excuse = Some("wiped when it was cut and not ready: no daemon remembers that request");
            }
        }
        if commit.new.is_none() {
            self.contents.entry(uid.to_owned()).or_default().forced_in = Some(self.reign.terms);
            // Another content has a request of its own.
            if let Some(demand) = self.demands.get_mut(owner) {
                (demand.request, demand.is_owed) = (None, false);
            }
        }
    }
}

/// The part of a content, of a snapshot or of a group, that we must not change.
pub(super) fn foreign(object: &Value) -> Value {
    let mut object = object.clone();
    let take = |object: &mut Value, parents: &str, member: &str| {
        let Some(map) = object.pointer_mut(parents).and_then(Value::as_object_mut) else { return };
        map.remove(member);
    };
    for member in ["resourceVersion", "generation", "managedFields"] {
        take(&mut object, "/metadata", member);
    }
    for key in [MARK, groups::MARK, INTENT, OF_UID, UNLISTED] {
        take(&mut object, "/metadata/annotations", key);
    }
    if let Some(finalizers) = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
        finalizers.retain(|it| it != FINALIZER && it != groups::FINALIZER);
    }
    let of_group = if object["spec"].get("volumeGroupSnapshotRef").is_some() { &GROUP_STATUS[..] } else { &[] };
    // The look-up of a snapshot that was there before tells of which group it is.
    let of_given = if OF_SNAPSHOTS.is_given(&object) { &GROUP_STATUS[..1] } else { &[] };
    for member in STATUS.iter().chain(of_group).chain(of_given) {
        take(&mut object, "/status", member);
    }
    without_empty(&mut object);
    object
}

/// The part of a content that others change: any change may be a reason to try at once.
fn foreign_to_us(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    object
}

/// A map or list that is empty is one that is not there.
fn without_empty(value: &mut Value) {
    if let Value::Object(members) = value {
        members.values_mut().for_each(without_empty);
        members.retain(|_, member| {
            !member.as_object().is_some_and(serde_json::Map::is_empty) && !member.as_array().is_some_and(Vec::is_empty)
        });
    }
}
