//! The checks of groups of snapshots: the same invariants, as far as they concern groups. The back-off of groups (I9) is not among
//! them, and neither are contents that were there before or that are removed by force: the crash suite plays the latter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use csi_control_plane::proto::CreateVolumeGroupSnapshotRequest;
use csi_control_plane::sandbox::driver::{Action, Call, Lie, Method, Outcome, State};
use serde_json::Value;

use super::calls::is_final;
use super::checks::{AGE, Checks, Commit, Content, INTENT, POLICY, annotation, foreign, is_ready};
use super::invariants::Rule;
use crate::world::{DRIVER, MARKER, finalizers, is_deleting, text};

pub(super) const CONTENTS: &str = "volumegroupsnapshotcontents";
pub(super) const GROUPS: &str = "volumegroupsnapshots";
pub(super) const FINALIZER: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";
pub(super) const MARK: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created";
pub(super) const LOST: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
pub(super) const OWNER: &str = "/spec/volumeGroupSnapshotRef/uid";
pub(super) const HANDLE: &str = "/status/volumeGroupSnapshotHandle";
/// The calls about groups.
const CALLS: [Method; 3] =
    [Method::CreateVolumeGroupSnapshot, Method::GetVolumeGroupSnapshot, Method::DeleteVolumeGroupSnapshot];

/// The requests for a group, by its uid.
#[derive(Debug, Default)]
struct Demand {
    request: Option<CreateVolumeGroupSnapshotRequest>,
    /// It may be running, or its answer is not known.
    is_owed: bool,
    /// Others have wiped what the content says of the request.
    is_wiped: bool,
    /// Why no daemon is at fault, whatever becomes of it.
    excuse: Option<&'static str>,
}

/// What is known of groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    contents: BTreeMap<String, Content>,
    demands: BTreeMap<String, Demand>,
    /// The `VolumeGroupSnapshots` by their names.
    wanted: BTreeMap<String, Value>,
    /// The driver's groups: handles and names.
    held: BTreeMap<String, String>,
    /// Handles that the driver has said to be ready, and those that it has said to be deleted.
    ready: BTreeSet<String>,
    deleted: BTreeSet<String>,
    retained: BTreeSet<String>,
    terms: u64,
    broken: Vec<(Rule, String)>,
}

/// The request to the driver, apart from the order of its members.
fn same(one: &CreateVolumeGroupSnapshotRequest, other: &CreateVolumeGroupSnapshotRequest) -> bool {
    let volumes = |it: &CreateVolumeGroupSnapshotRequest| it.source_volume_ids.iter().cloned().collect::<BTreeSet<_>>();
    (&one.name, volumes(one), &one.parameters) == (&other.name, volumes(other), &other.parameters)
}

fn is_protected(object: &Value) -> bool {
    finalizers(object).contains(&FINALIZER)
}

impl Groups {
    fn violate(&mut self, rule: Rule, what: impl std::fmt::Display) {
        self.broken.push((rule, what.to_string()));
    }

    /// What was found so far.
    pub(super) fn broken(&self) -> Vec<(Rule, String)> {
        self.broken.clone()
    }

    /// How many groups were asked for, and of how many nobody can be blamed for what became of them.
    pub(super) fn counts(&self) -> [usize; 2] {
        [self.demands.len(), self.demands.values().filter(|it| it.excuse.is_some()).count()]
    }

    fn is_excused(&self, owner: &str) -> bool {
        self.demands.get(owner).is_some_and(|demand| demand.excuse.is_some())
    }

    fn excuse(&mut self, owner: &str, why: &'static str) {
        self.demands.entry(owner.to_owned()).or_default().excuse = Some(why);
    }

    /// The driver's groups of a `VolumeGroupSnapshot`: their handles.
    fn cut_for(&self, owner: &str) -> Vec<String> {
        self.held.iter().filter(|(_, name)| name.ends_with(owner)).map(|(id, _)| id.clone()).collect()
    }

    fn alive(&self) -> impl Iterator<Item = &Value> {
        self.contents.values().filter(|it| !it.is_gone).map(|it| &it.object)
    }

    /// A commit of anybody's; `of_singles` knows who leads.
    pub(super) fn committed(&mut self, commit: &Commit<'_>, of_singles: &Checks) {
        // Another term remembers nothing.
        if std::mem::replace(&mut self.terms, of_singles.terms) != of_singles.terms {
            for demand in self.demands.values_mut().filter(|it| it.is_wiped) {
                demand.excuse = Some("wiped, and the daemon that remembered it ended");
            }
        }
        match (commit.plural, commit.new) {
            (GROUPS, Some(new)) => drop(self.wanted.insert(commit.name.to_owned(), new.clone())),
            (GROUPS, None) => drop(self.wanted.remove(commit.name)),
            (CONTENTS, _) => self.content_committed(commit, of_singles),
            _ => {}
        }
    }

    fn content_committed(&mut self, commit: &Commit<'_>, of_singles: &Checks) {
        let (none, name) = (Value::Null, commit.name);
        let old = commit.old.unwrap_or(&none);
        let last = commit.new.unwrap_or(old);
        let (uid, owner) = (text(last, "/metadata/uid").to_owned(), text(last, OWNER).to_owned());
        let is_ours = crate::world::DAEMONS.contains(&commit.actor);
        if is_ours {
            self.within_bounds(commit, old, last, of_singles);
            if is_protected(old) && !commit.new.is_some_and(is_protected) {
                self.released(name, &uid, old, commit.at);
            }
            let (was, is) = (text(old, HANDLE), text(last, HANDLE));
            if !was.is_empty() && was != is && !(is.is_empty() && is_deleting(last)) {
                self.violate(Rule::I4, format_args!("{name} had {was}, and is given {is:?}"));
            }
            if is_ready(last) && !is_ready(old) && !self.ready.contains(is) {
                self.violate(Rule::I5, format_args!("{name} is said to be ready, and the driver has not said so"));
            }
        }
        let has_intent = |it: &Value| annotation(it, INTENT).is_some();
        if let Some(demand) = self.demands.get_mut(&owner) {
            let is_wiped = !is_ours && has_intent(old) && !has_intent(last);
            demand.is_wiped |= is_wiped && (demand.is_owed || annotation(old, MARK).is_some());
            demand.is_wiped &= !has_intent(last);
        }
        let content = self.contents.entry(uid).or_default();
        content.committed(commit, last, is_protected(last), [MARK, HANDLE]);
    }

    /// I7, I8 and I10.
    fn within_bounds(&mut self, commit: &Commit<'_>, old: &Value, new: &Value, of_singles: &Checks) {
        let (name, actor) = (commit.name, commit.actor);
        let (before, after) = (foreign(old), foreign(new));
        if before != after {
            self.violate(Rule::I7, format_args!("{name} is changed where nothing is ours: {before} to {after}"));
        }
        if !of_singles.is_led_by(actor) || text(new, "/spec/driver") != DRIVER {
            self.violate(
                Rule::I8,
                format_args!("{actor} writes to {name}, and does not lead, or it is another driver's"),
            );
        }
        if new.to_string().contains(MARKER) {
            self.violate(Rule::I10, format_args!("{name} holds a secret's value"));
        }
    }

    /// I2: the finalizer has left.
    fn released(&mut self, name: &str, uid: &str, old: &Value, at: Duration) {
        let owner = text(old, OWNER).to_owned();
        let content = self.contents.get(uid);
        let handle = content.map(|it| it.handle.clone()).unwrap_or_default();
        let is_new_policy = content.and_then(|it| it.policy_at).is_some_and(|since| at < since + AGE);
        if text(old, POLICY) == "Retain" || is_new_policy {
            let left = self.cut_for(&owner);
            return self.retained.extend(left);
        }
        if self.is_excused(&owner) {
            return;
        }
        if self.demands.get(&owner).is_some_and(|demand| demand.is_owed) {
            self.violate(Rule::I2, format_args!("{name} is released while a call for it is unanswered"));
        }
        let left = self.cut_for(&owner);
        if !left.is_empty() || !(handle.is_empty() || self.deleted.contains(&handle)) {
            self.violate(Rule::I2, format_args!("{name} is released, and the driver still has {left:?} of {handle:?}"));
        }
    }

    /// A call by `caller` has arrived, was done, or has ended.
    pub(super) fn called(&mut self, call: &Call, caller: &str, state: &State, of_singles: &Checks) {
        let subject = call.snapshot.clone().unwrap_or_default();
        let is_new = call.ended.is_none() && call.applied.is_none();
        self.held = state.groups().iter().map(|(id, group)| (id.clone(), group.name.clone())).collect();
        if call.method == Method::DeleteSnapshot && is_new {
            let group = state.snapshots().get(&subject).map_or("", |snapshot| &snapshot.group);
            if !group.is_empty() {
                self.violate(Rule::I6, format_args!("{subject} is deleted alone, and is {group}'s"));
            }
        }
        if !CALLS.contains(&call.method) {
            return;
        }
        if is_new {
            if !of_singles.is_led_by(caller) {
                self.violate(Rule::I8, format_args!("{caller} sends {} of {subject}, and does not lead", call.method));
            }
            match (&call.cut_group, call.method) {
                (Some(cut), _) => self.cut_arrived(cut),
                (None, Method::DeleteVolumeGroupSnapshot) => self.delete_arrived(call, &subject),
                _ => {}
            }
        }
        if call.ended.is_some() {
            self.ended(call, &subject, state, of_singles.polls);
        }
    }

    /// I1 and I4.
    fn cut_arrived(&mut self, cut: &CreateVolumeGroupSnapshotRequest) {
        let is_its = |it: &&Content| !it.is_gone && cut.name.ends_with(text(&it.object, OWNER));
        let Some(content) = self.contents.values().find(is_its) else {
            return self.violate(Rule::I1, format_args!("{} is asked for, and no content is there", cut.name));
        };
        let owner = text(&content.object, OWNER).to_owned();
        let is_cut = !text(&content.object, HANDLE).is_empty();
        if !content.is_begun && !is_cut {
            self.violate(Rule::I1, format_args!("{} is asked for without a mark", cut.name));
        }
        let demand = self.demands.entry(owner).or_default();
        let before = demand.request.replace(cut.clone());
        let may_run = demand.is_owed || is_cut;
        demand.is_owed |= !is_cut;
        let is_free = demand.is_wiped || demand.excuse.is_some();
        if let Some(before) = before.filter(|before| may_run && !is_free && !same(before, cut)) {
            self.violate(Rule::I4, format_args!("{cut:?} is asked for, where {before:?} may be running"));
        }
    }

    /// I6.
    fn delete_arrived(&mut self, call: &Call, subject: &str) {
        let Some(content) = self.contents.values().find(|it| !it.is_gone && it.handle == subject) else {
            return self.violate(Rule::I6, format_args!("{subject} is deleted, and no content has it"));
        };
        let object = &content.object;
        let is_new_policy = content.policy_at.is_some_and(|since| call.started < since + AGE);
        let wrong = [
            (!is_deleting(object), "is not being deleted"),
            (annotation(object, MARK).is_some(), "is marked"),
            (annotation(object, LOST).is_none(), "is still wanted by its group"),
            (text(object, POLICY) != "Delete" && !is_new_policy, "says that it is kept"),
        ];
        let wrong: Vec<&str> = wrong.into_iter().filter(|(is_wrong, _)| *is_wrong).map(|(_, why)| why).collect();
        if !wrong.is_empty() {
            let what = format!("{subject} is deleted, and its content {wrong:?}: {object}");
            self.violate(Rule::I6, what);
        }
    }

    fn ended(&mut self, call: &Call, subject: &str, state: &State, polls: u32) {
        let code = match &call.outcome {
            Outcome::Ok => None,
            Outcome::Refused(refusal) => Some(refusal.code),
            Outcome::Abandoned | Outcome::Running => Some(tonic::Code::Unavailable),
        };
        if call.method == Method::DeleteVolumeGroupSnapshot {
            if code.is_none() {
                self.deleted.insert(subject.to_owned());
            }
            return;
        }
        let is_it = |(id, name): (&String, &String)| id == subject || name == subject;
        let handles: Vec<String> = self.held.iter().filter(|it| is_it(*it)).map(|(id, _)| id.clone()).collect();
        if code.is_none() && call.fault != Some(Action::Lie(Lie::NotReady)) {
            let told = |id: &String| state.snapshots().get(id).is_some_and(|snapshot| snapshot.told > polls);
            let ready = handles.iter().filter(|id| state.members(id).iter().all(told));
            self.ready.extend(ready.cloned());
        }
        let Some(owner) = self.demands.keys().find(|owner| subject.ends_with(owner.as_str())).cloned() else { return };
        match code {
            None => self.demands.entry(owner).or_default().is_owed = false,
            Some(code) if is_final(code) => {
                let is_cut = self.alive().any(|it| text(it, OWNER) == owner && !text(it, HANDLE).is_empty());
                // By convention there is none then. A driver that has one all the same is not believed by nobody.
                if !handles.is_empty() && !is_cut {
                    self.excuse(&owner, "the driver denied a group that it has");
                }
                self.demands.entry(owner).or_default().is_owed = false;
            }
            Some(_) => {}
        }
    }

    /// Another group is in the way, which the driver denied once.
    fn is_barred(&self, content: &Value) -> bool {
        self.is_excused(text(content, OWNER)) && text(content, "/status/error/message").contains("AlreadyExists")
    }

    /// Unfinished work (I12), and remains on contents (I11).
    pub(super) fn unrest(&self) -> Vec<(Rule, String)> {
        let mut faults = Vec::new();
        for content in self.alive().filter(|it| !self.is_barred(it)) {
            let name = text(content, "/metadata/name");
            if is_deleting(content) && annotation(content, LOST).is_some() && is_protected(content) {
                faults.push((Rule::I12, format!("{name} is still there: {content}")));
            } else if !is_deleting(content) && !is_ready(content) {
                faults.push((Rule::I12, format!("{name} is not ready: {content}")));
            }
            if annotation(content, MARK).is_some() || annotation(content, INTENT).is_some() {
                faults.push((Rule::I11, format!("{name} says that a call is unanswered: {content}")));
            }
        }
        for (name, group) in &self.wanted {
            let content = self.alive().find(|it| text(it, OWNER) == text(group, "/metadata/uid"));
            if content.is_some_and(|it| self.is_barred(it)) {
                continue;
            }
            if is_deleting(group) || !is_ready(group) {
                faults.push((Rule::I12, format!("{name} is not ready, or still there: {group}")));
            }
        }
        faults
    }

    /// Groups that the driver has for no content (I14), twice (I13), or no more (I6).
    pub(super) fn leaks(&self) -> Vec<(Rule, String)> {
        let mut faults = Vec::new();
        let named: BTreeSet<&str> = self.alive().map(|it| text(it, HANDLE)).collect();
        for owner in self.demands.keys().filter(|it| !self.is_excused(it)) {
            let cut = self.cut_for(owner);
            if cut.len() > 1 {
                faults.push((Rule::I13, format!("the driver has {cut:?} for {owner}")));
            }
            for id in cut.iter().filter(|it| !named.contains(it.as_str()) && !self.retained.contains(*it)) {
                faults.push((Rule::I14, format!("the driver has {id} for {owner}, and no content has it")));
            }
        }
        for content in self.alive().filter(|it| !is_deleting(it) && !self.is_excused(text(it, OWNER))) {
            let id = text(content, HANDLE);
            if !id.is_empty() && !self.held.contains_key(id) {
                faults.push((Rule::I6, format!("{id} is gone, and its content lives: {content}")));
            }
        }
        faults
    }

    /// The calls while there was no work.
    pub(super) fn disturbed(&mut self, calls: &[std::sync::Arc<Call>]) {
        if self.alive().any(|it| self.is_barred(it)) {
            return;
        }
        for call in calls.iter().filter(|it| CALLS.contains(&it.method)) {
            self.violate(Rule::Quiet, format_args!("{} of {:?}", call.method, call.snapshot));
        }
    }
}
