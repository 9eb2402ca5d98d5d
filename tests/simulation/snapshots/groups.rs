//! The checks of groups of snapshots: the same invariants, as far as they concern groups. The back-off of groups (I9) is not among
//! them. The checks of the end are in `groups_rest`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use csi_control_plane::proto::CreateVolumeGroupSnapshotRequest;
use csi_control_plane::sandbox::driver::{Action, Call, Lie, Method, Outcome, State};
use serde_json::Value;

use super::calls::is_final;
use super::checks::{Checks, INTENT, POLICY, annotation, foreign, is_ready};
use super::contents::{Content, Contents, OF_GROUPS, keeper};
use super::force::Owed;
use super::invariants::Rule;
use crate::stage::Commit;
use crate::world::{DRIVER, MARKER, finalizers, is_deleting, text};

pub(super) const CONTENTS: &str = "volumegroupsnapshotcontents";
pub(super) const GROUPS: &str = "volumegroupsnapshots";
pub(super) const FINALIZER: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";
pub(super) const MARK: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created";
pub(super) const LOST: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
pub(super) const OWNER: &str = "/spec/volumeGroupSnapshotRef/uid";
pub(super) const HANDLE: &str = "/status/volumeGroupSnapshotHandle";
pub(super) const GIVEN: &str = "/spec/source/groupSnapshotHandles/volumeGroupSnapshotHandle";
/// The calls about groups.
pub(super) const CALLS: [Method; 3] =
    [Method::CreateVolumeGroupSnapshot, Method::GetVolumeGroupSnapshot, Method::DeleteVolumeGroupSnapshot];

/// The requests for a group, by its uid.
#[derive(Debug, Default)]
pub(super) struct Demand {
    request: Option<CreateVolumeGroupSnapshotRequest>,
    /// It may be running, or its answer is not known.
    is_owed: bool,
    /// The driver has said that there is none.
    is_denied: bool,
    /// Others have wiped what the content says of the request.
    is_wiped: bool,
    /// Why no daemon is at fault, whatever becomes of it.
    excuse: Option<&'static str>,
}

/// What is known of groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) contents: Contents,
    pub(super) demands: BTreeMap<String, Demand>,
    /// The requests without a final answer.
    pub(super) owed: Owed,
    /// The `VolumeGroupSnapshots` by their names.
    pub(super) wanted: BTreeMap<String, Value>,
    /// The driver's groups: handles and names; and all that it ever had.
    pub(super) held: BTreeMap<String, String>,
    known: BTreeMap<String, String>,
    /// The snapshots of each group.
    members: BTreeMap<String, BTreeSet<String>>,
    /// Handles that the driver has said to be ready, and those that it has said to be deleted.
    ready: BTreeSet<String>,
    deleted: BTreeSet<String>,
    pub(super) retained: BTreeSet<String>,
    pub(super) terms: u64,
    broken: Vec<(Rule, String)>,
}

/// The request to the driver, apart from the order of its members.
fn same(one: &CreateVolumeGroupSnapshotRequest, other: &CreateVolumeGroupSnapshotRequest) -> bool {
    let volumes = |it: &CreateVolumeGroupSnapshotRequest| it.source_volume_ids.iter().cloned().collect::<BTreeSet<_>>();
    (&one.name, volumes(one), &one.parameters) == (&other.name, volumes(other), &other.parameters)
}

pub(super) fn is_protected(object: &Value) -> bool {
    finalizers(object).contains(&FINALIZER)
}

impl Groups {
    pub(super) fn violate(&mut self, rule: Rule, what: impl std::fmt::Display) {
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

    pub(super) fn is_excused(&self, owner: &str) -> bool {
        self.demands.get(owner).is_some_and(|demand| demand.excuse.is_some())
    }

    fn excuse(&mut self, owner: &str, why: &'static str) {
        self.demands.entry(owner.to_owned()).or_default().excuse = Some(why);
    }

    /// The driver's groups of a `VolumeGroupSnapshot`: their handles.
    pub(super) fn cut_for(&self, owner: &str) -> Vec<String> {
        self.held
            .iter()
            .filter(|(_, name)| !owner.is_empty() && name.ends_with(owner))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Whether the driver has this group, or had it.
    pub(super) fn has_had(&self, id: &str) -> bool {
        self.known.contains_key(id)
    }

    /// The content that needs a snapshot of this group.
    pub(super) fn keeper<'a>(&self, id: &str, of_singles: &'a Checks) -> Option<&'a Content> {
        let has_it = |it: &&Content| OF_GROUPS.had(it, id);
        let groups: BTreeSet<&str> = self.contents.values().filter(has_it).map(|it| text(&it.object, OWNER)).collect();
        let owns = |content: &Value| of_singles.owners_of(content).any(|owner| groups.contains(owner));
        keeper(&of_singles.contents, id, self.members.get(id)?, owns)
    }

    /// Whether a user has removed a content of this `VolumeGroupSnapshot` by force.
    pub(super) fn is_forced(&self, owner: &str) -> bool {
        self.contents.values().any(|it| text(&it.object, OWNER) == owner && it.forced_in.is_some())
    }

    pub(super) fn alive(&self) -> impl Iterator<Item = &Value> {
        self.contents.values().filter(|it| !it.is_gone).map(|it| &it.object)
    }

    /// A commit of anybody's; `of_singles` knows who leads.
    pub(super) fn committed(&mut self, commit: &Commit<'_>, of_singles: &Checks) {
        // Another term remembers nothing.
        if std::mem::replace(&mut self.terms, of_singles.reign.terms) != of_singles.reign.terms {
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
        if commit.old.is_none() {
            let id = OF_GROUPS.handle(last);
            let name = self.known.get(id).map_or("", String::as_str);
            let is_late = !id.is_empty() && OF_GROUPS.is_going(&self.contents, id, name);
            self.contents.entry(uid.clone()).or_default().is_late = is_late;
        }
        let content = self.contents.entry(uid).or_default();
        content.committed(commit, last, is_protected(last), OF_GROUPS);
        if !is_ours && commit.new.is_none() {
            content.forced_in = Some(self.terms);
            // Another content has a request of its own.
            if let Some(demand) = self.demands.get_mut(&owner) {
                (demand.request, demand.is_owed) = (None, false);
            }
        }
    }

    /// I7, I8 and I10.
    fn within_bounds(&mut self, commit: &Commit<'_>, old: &Value, new: &Value, of_singles: &Checks) {
        let (name, actor) = (commit.name, commit.actor);
        let (before, after) = (foreign(old), foreign(new));
        if before != after {
            self.violate(Rule::I7, format_args!("{name} is changed where nothing is ours: {before} to {after}"));
        }
        if !of_singles.reign.is_of(actor) || text(new, "/spec/driver") != DRIVER {
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
        let is_owed = self.demands.get(&owner).is_some_and(|demand| demand.is_owed);
        if is_owed && !self.is_forced(&owner) && !self.is_excused(&owner) {
            self.violate(Rule::I2, format_args!("{name} is released while a call for it is unanswered"));
        }
        let content = self.contents.get(uid);
        let known = content.map(|it| it.handle.clone()).filter(|it| !it.is_empty());
        let known = known.or_else(|| Some(text(old, GIVEN).to_owned()).filter(|it| !it.is_empty()));
        if text(old, POLICY) == "Retain" || content.is_some_and(|it| it.has_new_policy(at)) {
            return self.retained.extend(known.into_iter().chain(self.cut_for(&owner)));
        }
        if self.is_excused(&owner) {
            return;
        }
        // Another content has it deleted, if that is its policy.
        let is_kept = |id: &String| OF_GROUPS.is_named_by_another(&self.contents, id, uid, at);
        let undeleted = known.filter(|it| !self.deleted.contains(it) && !is_kept(it));
        let mut left: Vec<String> = self.cut_for(&owner).into_iter().filter(|it| !is_kept(it)).collect();
        if self.is_forced(&owner) {
            // What is left over of one that was removed by force is worked to its end without a content: the end shows it (I14).
            left.clear();
        }
        if !left.is_empty() || undeleted.is_some() {
            let what =
                format!("{name} is released, and the driver still has {left:?}, or has not deleted {undeleted:?}");
            self.violate(Rule::I2, what);
        }
    }

    /// A call by `caller` has arrived, was done, or has ended.
    pub(super) fn called(&mut self, call: &Call, caller: &str, state: &State, of_singles: &Checks) {
        let subject = call.snapshot.clone().unwrap_or_default();
        let is_new = call.ended.is_none() && call.applied.is_none();
        self.holds(state.groups().iter().map(|(id, group)| (id.clone(), group.name.clone())).collect());
        self.known.extend(self.held.clone());
        self.members.extend(self.held.keys().map(|id| (id.clone(), state.members(id))));
        if call.method == Method::DeleteSnapshot && is_new {
            let group = state.snapshots().get(&subject).map_or("", |snapshot| &snapshot.group);
            // Nothing on the content of a snapshot that was there before may say so. The driver does.
            if !group.is_empty() && !of_singles.is_unaware(&subject) {
                self.violate(Rule::I6, format_args!("{subject} is deleted alone, and is {group}'s"));
            }
        }
        if !CALLS.contains(&call.method) {
            return;
        }
        if is_new {
            if !of_singles.reign.is_of(caller) {
                self.violate(Rule::I8, format_args!("{caller} sends {} of {subject}, and does not lead", call.method));
            }
            match (&call.cut_group, call.method) {
                (Some(cut), _) => self.cut_arrived(cut, call.started),
                (None, Method::DeleteVolumeGroupSnapshot) => self.delete_arrived(&subject, call.started, of_singles),
                _ => {}
            }
        }
        if call.ended.is_some() {
            self.ended(call, &subject, state, of_singles.polls);
        }
    }

    /// What the driver has by now. It may have done something, though a final answer said that nothing goes on.
    fn holds(&mut self, held: BTreeMap<String, String>) {
        let before = std::mem::replace(&mut self.held, held);
        let is_denied = |name: &str, (owner, it): (&String, &Demand)| {
            let is_cut = || self.alive().any(|it| text(it, OWNER) == owner && !text(it, HANDLE).is_empty());
            name.ends_with(owner) && it.is_denied && !it.is_owed && !is_cut()
        };
        let new = self.held.iter().filter(|(id, _)| !before.contains_key(*id));
        let denied = new.filter_map(|(_, name)| self.demands.iter().find(|it| is_denied(name, *it)));
        let denied: Vec<String> = denied.map(|(owner, _)| owner.clone()).collect();
        for owner in denied {
            self.excuse(&owner, "the driver made a group after it had denied it");
        }
    }

    /// I1 and I4.
    fn cut_arrived(&mut self, cut: &CreateVolumeGroupSnapshotRequest, at: Duration) {
        if let Err(is_known) = OF_GROUPS.may_ask(&self.contents, &cut.name, at) {
            self.violate(
                Rule::I1,
                format_args!("{} is asked for without a mark (content known: {is_known})", cut.name),
            );
        }
        OF_GROUPS.note_asked(&mut self.contents, &cut.name, self.terms);
        let of_owner = || self.contents.values().filter(|it| OF_GROUPS.is_named_for(it, &cut.name));
        let Some(owner) = of_owner().next().map(|it| text(&it.object, OWNER).to_owned()) else { return };
        let is_cut = of_owner().any(|it| !it.is_gone && !text(&it.object, HANDLE).is_empty());
        // The work on a content that was removed by force is finished beside a new content, each with its own request.
        let is_alone = !self.is_forced(&owner);
        let demand = self.demands.entry(owner).or_default();
        let before = demand.request.replace(cut.clone());
        let may_run = demand.is_owed || is_cut;
        demand.is_owed |= !is_cut;
        if !is_cut {
            self.owed.asked(&cut.name);
        }
        let is_free = demand.is_wiped || demand.excuse.is_some() || !is_alone;
        if let Some(before) = before.filter(|before| may_run && !is_free && !same(before, cut)) {
            self.violate(Rule::I4, format_args!("{cut:?} is asked for, where {before:?} may be running"));
        }
    }

    /// I6.
    fn delete_arrived(&mut self, subject: &str, at: Duration, of_singles: &Checks) {
        if let Some(keeper) = self.keeper(subject, of_singles).filter(|it| it.is_settled(at)) {
            let what = format!("{subject} is deleted, and somebody needs one of its snapshots: {}", keeper.object);
            self.violate(Rule::I6, what);
        }
        let name = self.known.get(subject).map_or("", String::as_str);
        if let Some(fault) = OF_GROUPS.fault(&self.contents, subject, name, at) {
            self.violate(Rule::I6, fault);
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
        if call.method == Method::CreateVolumeGroupSnapshot {
            self.owed.ended(subject, code);
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
                let demand = self.demands.entry(owner).or_default();
                (demand.is_owed, demand.is_denied) = (false, true);
            }
            Some(_) => {}
        }
    }
}
