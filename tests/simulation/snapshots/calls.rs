//! The checks of each call.

use std::time::Duration;

use csi_control_plane::proto::CreateSnapshotRequest;
use csi_control_plane::sandbox::driver::{Action, Call, Lie, Method, Outcome};
use tonic::Code;

use super::checks::{Checks, GIVEN, HANDLE, OWNER, handle};
use super::contents::{Content, LATE, OF_SNAPSHOTS};
use super::invariants::Rule;
use crate::world::{DRIVER, text};

/// The shortest and the longest back-off, as configured.
const BACKOFF: (f64, f64) = (0.5, 20.0);
/// The longest after a code that is worth another try soon.
const SOFT: f64 = 10.0;

/// The faults that may follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    Cut,
    Delete,
}

/// A call that runs.
#[derive(Debug)]
pub(super) struct Live {
    /// The name or the handle of its snapshot, and its volume.
    about: [Option<String>; 2],
    connection: u64,
    deadline: Option<Duration>,
    /// In which term it was asked for: what a former leader has asked for fails for nobody.
    term: u64,
}

/// Calls for one thing that have failed in a row.
#[derive(Debug, Default)]
pub(super) struct Streak {
    failures: u32,
    ended: Duration,
    /// The outcome of the last call.
    last: &'static str,
    is_soft: bool,
    /// When the last one began.
    began: Duration,
}

/// Whether by convention nothing goes on after this answer to `CreateSnapshot`.
pub(super) fn is_final(code: Code) -> bool {
    !matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::AlreadyExists
    )
}

fn is_infeasible(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::AlreadyExists)
}

/// The request to the driver, apart from the order of the parameters.
fn same(one: &CreateSnapshotRequest, other: &CreateSnapshotRequest) -> bool {
    (&one.name, &one.source_volume_id, &one.parameters) == (&other.name, &other.source_volume_id, &other.parameters)
}

impl Checks {
    /// A call by `caller` has arrived, was done, or has ended. `told`: how often the driver has told of its snapshot by then.
    pub(super) fn called(&mut self, call: &Call, caller: &str, told: u32) {
        let subject = call.snapshot.clone().unwrap_or_default();
        match (call.method, call.ended.is_some(), call.applied.is_some()) {
            (Method::CreateSnapshot | Method::DeleteSnapshot, false, false) => self.arrived(call, caller, &subject),
            (_, true, _) => self.ended(call, &subject, told),
            _ => {}
        }
    }

    /// The `VolumeSnapshot` that a call is for.
    fn owner_of(&self, call: &Call, subject: &str) -> String {
        let is_its = |content: &&Content| {
            let owner = text(&content.object, OWNER);
            match call.method {
                Method::CreateSnapshot => !owner.is_empty() && subject.ends_with(owner),
                _ => handle(&content.object) == subject || content.handle == subject,
            }
        };
        let owner = self.contents.values().find(is_its).map(|content| text(&content.object, OWNER));
        // An unbound one has its handle alone.
        owner.filter(|it| !it.is_empty()).unwrap_or(subject).to_owned()
    }

    fn arrived(&mut self, call: &Call, caller: &str, subject: &str) {
        self.meets(call, subject);
        if !self.reign.is_of(caller) {
            self.violate(Rule::I8, format_args!("{caller} sends {} of {subject}, and does not lead", call.method));
        }
        let owner = self.owner_of(call, subject);
        if let Some(cut) = &call.cut {
            self.in_time(call, &owner, Task::Cut);
            self.cut_arrived(cut, &owner, call.started);
        } else {
            self.in_time(call, &owner, Task::Delete);
            self.delete_arrived(subject, call.started);
        }
    }

    /// I3: a caller that still waits for one call does not send another. What another daemon has asked for before it died is no
    /// longer its own.
    fn meets(&mut self, call: &Call, subject: &str) {
        let about = [Some(subject.to_owned()), call.cut.as_ref().map(|cut| cut.source_volume_id.clone())];
        let shares =
            |live: &Live| about.iter().flatten().any(|it| live.about.iter().flatten().any(|other| other == it));
        let met = self.live.iter().find(|(_, live)| {
            live.connection == call.connection
                && live.deadline.is_none_or(|deadline| call.started < deadline)
                && shares(live)
        });
        if let Some((running, _)) = met {
            let what = format!("{} #{} of {subject} came while #{running} ran", call.method, call.id);
            self.violate(Rule::I3, what);
        }
        let live = Live { about, connection: call.connection, deadline: call.deadline, term: self.reign.terms };
        self.live.insert(call.id, live);
    }

    /// I1 and I4.
    fn cut_arrived(&mut self, cut: &CreateSnapshotRequest, owner: &str, at: Duration) {
        let is_its =
            |content: &&Content| text(&content.object, OWNER) == owner && text(&content.object, GIVEN).is_empty();
        let has_handle = |it: &&Content| !it.is_gone && !text(&it.object, HANDLE).is_empty();
        if let Err(is_known) = OF_SNAPSHOTS.may_ask(&self.contents, &cut.name, at) {
            self.violate(
                Rule::I1,
                format_args!("{} is asked for without a mark (content known: {is_known})", cut.name),
            );
        }
        OF_SNAPSHOTS.note_asked(&mut self.contents, &cut.name, self.reign.terms);
        if self.contents.values().any(|it| is_its(&it) && text(&it.object, "/spec/driver") != DRIVER) {
            self.violate(Rule::I8, format_args!("{} is asked for, and is another driver's", cut.name));
        }
        let is_cut = self.contents.values().any(|it| is_its(&it) && has_handle(&it));
        // The work on a content that was removed by force is finished beside a new content of its name, each with its own
        // request.
        let is_alone = !self.is_forced(owner);
        let demand = self.demands.entry(owner.to_owned()).or_default();
        let before = demand.request.replace(cut.clone());
        let may_run = demand.is_owed || is_cut;
        demand.is_owed |= !is_cut;
        if !is_cut {
            self.owed.asked(&cut.name);
        }
        if let Some(before) = before
            && may_run
            && is_alone
            && !demand.is_wiped
            && demand.excuse.is_none()
            && !same(&before, cut)
        {
            self.violate(Rule::I4, format_args!("{cut:?} is asked for, where {before:?} may be running"));
        }
    }

    /// I6.
    fn delete_arrived(&mut self, subject: &str, at: Duration) {
        let name = self.known.get(subject).map_or("", String::as_str);
        if let Some(fault) = OF_SNAPSHOTS.fault(&self.contents, subject, name, at) {
            self.violate(Rule::I6, fault);
        }
    }

    /// I9: failures in a row are ever further apart.
    fn in_time(&mut self, call: &Call, owner: &str, task: Task) {
        let key = (owner.to_owned(), task);
        let Some(streak) = self.streaks.get(&key) else { return };
        // Something else than time has ended the wait, perhaps before the call began: it begins afresh.
        let turns = [self.turned.get(owner).copied(), self.class_turned];
        if turns.into_iter().flatten().any(|at| at + LATE >= streak.began) {
            self.streaks.remove(&key);
            return;
        }
        if streak.failures == 0 {
            return;
        }
        let doubled = BACKOFF.0 * 2_f64.powi(i32::try_from(streak.failures).unwrap_or(30).min(30) - 1);
        let least = doubled.min(if streak.is_soft { SOFT } else { BACKOFF.1 });
        let gap = call.started.saturating_sub(streak.ended).as_secs_f64();
        if gap + 0.002 < least {
            let (failures, label) = (streak.failures, streak.last);
            let what = format!("{gap:.3}s after {failures} failures in a row ({label}), wanted at least {least:.3}s");
            self.violate(Rule::I9, format_args!("{:?} {owner} ({task:?}): again {what}", call.started));
        }
    }

    fn ended(&mut self, call: &Call, subject: &str, told: u32) {
        let term = self.live.remove(&call.id).map(|live| live.term);
        let owner = self.owner_of(call, subject);
        let is_ok = call.outcome == Outcome::Ok;
        let is_lie = call.fault == Some(Action::Lie(Lie::NotReady));
        let task = match call.method {
            Method::CreateSnapshot => Task::Cut,
            Method::DeleteSnapshot => Task::Delete,
            Method::GetSnapshot | Method::ListSnapshots => {
                if is_ok {
                    // A look that did not find the snapshot by its request has found it by its ID.
                    self.streaks.remove(&(owner, Task::Cut));
                }
                if is_ok && !is_lie && told > self.polls {
                    let asked = call.list.as_ref().map(|list| list.snapshot_id.clone()).filter(|it| !it.is_empty());
                    self.ready.insert(asked.unwrap_or_else(|| subject.to_owned()));
                }
                return;
            }
            _ => return,
        };
        let code = match &call.outcome {
            Outcome::Ok => None,
            Outcome::Refused(refusal) => Some(refusal.code),
            // Given up, or cut off: unavailable to the caller, whatever the driver meant to say.
            Outcome::Abandoned | Outcome::Running => Some(Code::Unavailable),
        };
        if task == Task::Cut {
            self.owed.ended(subject, code);
            self.cut_ended(&owner, code, told, is_lie);
        } else if is_ok {
            self.deleted.insert(subject.to_owned());
        }
        let Some(code) = code else {
            self.streaks.remove(&(owner, task));
            return;
        };
        if term != Some(self.reign.terms) {
            return;
        }
        let ended = call.ended.unwrap_or_default();
        let streak = self.streaks.entry((owner, task)).or_default();
        streak.failures += u32::from(!is_infeasible(code));
        // Its caller may have given up before.
        streak.ended = call.deadline.map_or(ended, |deadline| ended.min(deadline));
        streak.last = call.outcome.label();
        streak.is_soft |= matches!(code, Code::Aborted | Code::Unavailable);
        streak.began = call.started;
    }

    fn cut_ended(&mut self, owner: &str, code: Option<Code>, told: u32, is_lie: bool) {
        let handles = self.cut_for(owner);
        match code {
            None => {
                if !is_lie && told > self.polls {
                    self.ready.extend(handles);
                }
                self.demands.entry(owner.to_owned()).or_default().is_owed = false;
            }
            Some(code) if is_final(code) => {
                let is_cut = self
                    .contents
                    .values()
                    .any(|it| text(&it.object, OWNER) == owner && !it.is_gone && !it.handle.is_empty());
                // By convention there is no snapshot then. A driver that has one all the same is not believed by nobody.
                if !handles.is_empty() && !is_cut {
                    self.excuse(owner, "the driver denied a snapshot that it has");
                }
                let demand = self.demands.entry(owner.to_owned()).or_default();
                (demand.is_owed, demand.is_denied) = (false, true);
            }
            Some(_) => {}
        }
    }

    /// The driver has done something, though a final answer said that nothing goes on.
    pub(super) fn holds(&mut self, held: impl Iterator<Item = (String, String)>) {
        let held: std::collections::BTreeMap<String, String> = held.collect();
        let new: Vec<String> =
            held.iter().filter(|(id, _)| !self.held.contains_key(*id)).map(|(_, it)| it.clone()).collect();
        self.known.extend(held.clone());
        self.held = held;
        for name in new {
            let denied = self.demands.iter().find(|(owner, it)| name.ends_with(*owner) && it.is_denied && !it.is_owed);
            let owner = denied.map(|(owner, _)| owner.clone());
            let is_cut = |owner: &str| {
                self.contents
                    .values()
                    .any(|it| text(&it.object, OWNER) == owner && !it.is_gone && !it.handle.is_empty())
            };
            if let Some(owner) = owner.filter(|owner| !is_cut(owner)) {
                self.excuse(&owner, "the driver made a snapshot after it had denied it");
            }
        }
    }
}
