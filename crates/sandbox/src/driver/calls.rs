//! The record of calls with times and outcomes, and of overlapping calls for one volume. Pure: the time is an argument.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::faults::Action;
use super::method::Method;
use super::refusal::{Refusal, code_name};
use base::proto::{
    ControllerExpandVolumeRequest, ControllerModifyVolumeRequest, ControllerPublishVolumeRequest,
    CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, GetCapacityRequest,
    ListSnapshotsRequest,
};

/// The number of calls that are remembered. A sandbox that runs for days must not grow; no test makes as many.
const MEMORY: usize = 200_000;

/// One call, as it arrived and as it ended. Times count from the driver's creation.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its number, from 1.
    pub id: u64,
    /// The RPC.
    pub method: Method,
    /// The volume that it is about, by its ID.
    pub volume: Option<String>,
    /// The name of the volume that it is to make.
    pub name: Option<String>,
    /// The node that it is about.
    pub node: Option<String>,
    /// The snapshot that it is about, by its ID; by its name where it was to be cut.
    pub snapshot: Option<String>,
    /// Whether it brought secrets. Their values are not kept.
    pub secrets: bool,
    /// The W3C trace context that it brought.
    pub traceparent: Option<String>,
    /// The number of the connection that it came through.
    pub connection: u64,
    /// The whole request of a publish, its secrets taken out.
    pub publish: Option<Box<ControllerPublishVolumeRequest>>,
    /// The whole request of a creation, its secrets taken out.
    pub create: Option<Box<CreateVolumeRequest>>,
    /// The whole request of an expansion, its secrets taken out.
    pub expand: Option<Box<ControllerExpandVolumeRequest>>,
    /// The whole request of a modification, its secrets taken out.
    pub modify: Option<Box<ControllerModifyVolumeRequest>>,
    /// The whole request of a question for capacity.
    pub capacity: Option<Box<GetCapacityRequest>>,
    /// The whole request of a snapshot, its secrets taken out.
    pub cut: Option<Box<CreateSnapshotRequest>>,
    /// The whole request of a group of snapshots, its secrets taken out.
    pub cut_group: Option<Box<CreateVolumeGroupSnapshotRequest>>,
    /// The snapshots that it names as a group's.
    pub members: Vec<String>,
    /// The whole request of a question for snapshots, its secrets taken out.
    pub list: Option<Box<ListSnapshotsRequest>>,
    /// The fault that it hit, scripted or random.
    pub fault: Option<Action>,
    /// When it arrived.
    pub started: Duration,
    /// When its caller stops waiting, by the deadline that it sent.
    pub deadline: Option<Duration>,
    /// When the backend did what it asks for. A caller that got an error may still have been served.
    pub applied: Option<Duration>,
    /// When it was answered or given up.
    pub ended: Option<Duration>,
    /// Its outcome.
    pub outcome: Outcome,
}

impl Call {
    /// A call that runs, and is about nothing yet.
    pub fn running(id: u64, method: Method, started: Duration) -> Self {
        Self {
            id,
            method,
            volume: None,
            name: None,
            node: None,
            snapshot: None,
            secrets: false,
            traceparent: None,
            connection: 0,
            publish: None,
            create: None,
            expand: None,
            modify: None,
            capacity: None,
            cut: None,
            cut_group: None,
            members: Vec::new(),
            list: None,
            fault: None,
            started,
            deadline: None,
            applied: None,
            ended: None,
            outcome: Outcome::Running,
        }
    }
}

/// The outcome of a call, as the driver sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is still running.
    Running,
    /// It was answered without an error.
    Ok,
    /// It was answered with an error.
    Refused(Refusal),
    /// The caller gave up, or the connection or the driver went away.
    Abandoned,
}

impl Outcome {
    /// `Running`, `Abandoned`, or the name of the gRPC code.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Ok => "OK",
            Self::Refused(refusal) => code_name(refusal.code),
            Self::Abandoned => "Abandoned",
        }
    }
}

/// The caller's violation of the specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A call changed a volume or a snapshot while its caller still waited for another call that changes or reads the same.
    Overlap {
        /// The volume or snapshot, or the name of a volume to be.
        subject: String,
        /// The call that ran.
        running: (u64, Method),
        /// The call that came.
        came: (u64, Method),
        /// Whether both came through one connection: one caller, that is.
        same_connection: bool,
    },
    /// A handler of the driver itself panicked.
    Panic(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { subject, running, came, .. } => {
                write!(f, "{subject}: {} #{} came while {} #{} was running", came.1, came.0, running.1, running.0)
            }
            Self::Panic(message) => write!(f, "the driver panicked: {message}"),
        }
    }
}

/// The memory of all calls.
#[derive(Debug, Default)]
pub(super) struct Log {
    calls: VecDeque<Arc<Call>>,
    last: u64,
    live: BTreeMap<u64, Live>,
    counters: BTreeMap<(Method, &'static str), u64>,
    violations: Vec<Violation>,
}

/// A running call that changes something.
#[derive(Debug)]
struct Live {
    subjects: Vec<String>,
    reads: Option<String>,
    method: Method,
    connection: u64,
    deadline: Option<Duration>,
}

impl Log {
    /// Notes a call's arrival; `subjects` is what it changes, if anything, and `reads` what must stay meanwhile. Returns its
    /// number.
    pub(super) fn begin(&mut self, mut call: Call, subjects: &[String], reads: Option<String>) -> u64 {
        self.last += 1;
        call.id = self.last;
        if !subjects.is_empty() {
            // The caller of an expired call waits no more, even where the cancellation is lost in a cut network.
            let waits = |live: &Live| live.deadline.is_none_or(|deadline| call.started < deadline);
            let shared = |live: &Live| -> Option<String> {
                let read_there = subjects.iter().find(|subject| live.reads.as_ref() == Some(subject));
                let is_ours = |changed: &&String| subjects.contains(changed) || reads.as_ref() == Some(changed);
                read_there.or_else(|| live.subjects.iter().find(is_ours)).cloned()
            };
            for (id, live) in self.live.iter().filter(|(_, live)| waits(live)) {
                let Some(subject) = shared(live) else { continue };
                self.violations.push(Violation::Overlap {
                    subject,
                    running: (*id, live.method),
                    came: (call.id, call.method),
                    same_connection: live.connection == call.connection,
                });
            }
            let live = Live {
                subjects: subjects.to_vec(),
                reads,
                method: call.method,
                connection: call.connection,
                deadline: call.deadline,
            };
            self.live.insert(call.id, live);
        }
        if self.calls.len() == MEMORY {
            self.calls.pop_front();
        }
        self.calls.push_back(Arc::new(call));
        self.last
    }

    /// Notes that the backend did what a call asks for.
    pub(super) fn applied(&mut self, id: u64, now: Duration) {
        if let Some(call) = self.find(id) {
            call.applied = Some(now);
        }
    }

    /// Notes a call's end, once. Says whether this was it.
    pub(super) fn end(&mut self, id: u64, outcome: Outcome, now: Duration) -> bool {
        self.live.remove(&id);
        let Some(call) = self.find(id).filter(|call| call.ended.is_none()) else { return false };
        let key = (call.method, outcome.label());
        (call.ended, call.outcome) = (Some(now), outcome);
        *self.counters.entry(key).or_default() += 1;
        true
    }

    pub(super) fn violate(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    pub(super) fn calls(&self) -> impl Iterator<Item = &Arc<Call>> {
        self.calls.iter()
    }

    pub(super) fn counters(&self) -> &BTreeMap<(Method, &'static str), u64> {
        &self.counters
    }

    pub(super) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// One call, if it is still remembered.
    pub(super) fn call(&self, id: u64) -> Option<&Call> {
        let first = self.calls.front()?.id;
        self.calls.get(usize::try_from(id.checked_sub(first)?).ok()?).map(|call| &**call)
    }

    fn find(&mut self, id: u64) -> Option<&mut Call> {
        let first = self.calls.front()?.id;
        self.calls.get_mut(usize::try_from(id.checked_sub(first)?).ok()?).map(Arc::make_mut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(started: u64, deadline: Option<u64>) -> Call {
        Call {
            volume: Some("v".to_owned()),
            connection: 1,
            deadline: deadline.map(Duration::from_secs),
            ..Call::running(0, Method::ControllerPublishVolume, Duration::from_secs(started))
        }
    }

    #[test]
    fn methods_know_their_path() {
        assert_eq!(Method::Probe.path(), "/csi.v1.Identity/Probe");
        assert_eq!(Method::ListVolumes.path(), "/csi.v1.Controller/ListVolumes");
    }

    #[test]
    fn two_running_calls_for_one_volume_are_a_violation() {
        let mut log = Log::default();
        let first = log.begin(call(0, None), &["v".to_owned()], None);
        log.begin(call(1, None), &["w".to_owned()], None);
        log.begin(call(1, None), &[], None);
        assert_eq!(log.violations(), []);
        log.begin(call(2, None), &["v".to_owned()], None);
        assert_eq!(log.violations().len(), 1);
        assert!(log.violations()[0].to_string().contains(&format!("#{first} was running")));
    }

    #[test]
    fn what_a_call_reads_is_changed_by_no_other() {
        let reads = || Some("snapshot/s".to_owned());
        for restore_is_first in [true, false] {
            let mut log = Log::default();
            let mut begin = |is_restore: bool| {
                if is_restore {
                    log.begin(call(0, None), &["name/a".to_owned()], reads());
                } else {
                    log.begin(call(0, None), &["snapshot/s".to_owned()], None);
                }
            };
            begin(restore_is_first);
            begin(!restore_is_first);
            assert_eq!(log.violations().len(), 1);
            assert!(log.violations()[0].to_string().starts_with("snapshot/s: "), "{}", log.violations()[0]);
        }
        // Two may read the same.
        let mut log = Log::default();
        log.begin(call(0, None), &["name/a".to_owned()], reads());
        log.begin(call(0, None), &["name/b".to_owned()], reads());
        assert_eq!(log.violations(), []);
    }

    #[test]
    fn ended_and_expired_calls_overlap_with_nothing() {
        let mut log = Log::default();
        let first = log.begin(call(0, None), &["v".to_owned()], None);
        log.end(first, Outcome::Abandoned, Duration::from_secs(1));
        log.begin(call(1, Some(5)), &["v".to_owned()], None);
        log.begin(call(5, None), &["v".to_owned()], None);
        assert_eq!(log.violations(), []);
        assert_eq!(log.counters()[&(Method::ControllerPublishVolume, "Abandoned")], 1);
    }
}
