//! The checks of each call.

use std::time::Duration;

use csi_control_plane::proto::{ControllerExpandVolumeRequest, ControllerModifyVolumeRequest};
use csi_control_plane::sandbox::driver::{Call, Method, Outcome};
use serde_json::Value;
use tonic::Code;

use super::checks::Checks;
use super::invariants::Rule;
use super::objects::{ALLOCATED, FOREIGN_CLASS, MODIFY, TARGET, says_refused, size};
use crate::world::text;

/// The shortest and the longest back-off, as configured.
const BACKOFF: (f64, f64) = (0.5, 20.0);
/// The longest after a code that is worth another try soon.
const SOFT: f64 = 10.0;
/// The pause after an infeasible request, as configured. It is counted from a time of the claim's status, which has no fractions
/// of a second.
const PAUSE: f64 = 15.0 - 1.0;
/// So much later than a change of an object an attempt may begin that sees it: watches are late.
const LATE: Duration = Duration::from_secs(25);
/// The calls that change a volume.
const CHANGES: [Method; 4] = [
    Method::ControllerExpandVolume,
    Method::ControllerModifyVolume,
    Method::ControllerPublishVolume,
    Method::ControllerUnpublishVolume,
];

/// A job of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Job {
    Expand,
    Modify,
}

impl Job {
    fn of(method: Method) -> Option<Self> {
        match method {
            Method::ControllerExpandVolume => Some(Self::Expand),
            Method::ControllerModifyVolume => Some(Self::Modify),
            _ => None,
        }
    }

    fn is_infeasible(self, code: Code) -> bool {
        match self {
            Self::Expand => matches!(code, Code::InvalidArgument | Code::OutOfRange | Code::NotFound),
            Self::Modify => code == Code::InvalidArgument,
        }
    }
}

/// A call that runs.
#[derive(Debug)]
pub(super) struct Live {
    handle: String,
    method: Method,
    connection: u64,
    deadline: Option<Duration>,
    /// In which term it was sent: what a former leader has sent fails for nobody.
    term: u64,
}

/// The last request of a job, and whether it may still be carried out.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    request: Request,
    began: Duration,
    is_open: bool,
    /// When it has last ended.
    ended: Option<(u64, Duration)>,
}

impl Demand {
    /// Whether it may still be carried out.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Request {
    Expand(ControllerExpandVolumeRequest),
    Modify(ControllerModifyVolumeRequest),
}

impl Request {
    fn of(call: &Call) -> Option<Self> {
        let expand = call.expand.as_ref().map(|it| Self::Expand(ControllerExpandVolumeRequest::clone(it)));
        expand.or_else(|| call.modify.as_ref().map(|it| Self::Modify(ControllerModifyVolumeRequest::clone(it))))
    }

    fn bytes(&self) -> i64 {
        match self {
            Self::Expand(request) => request.capacity_range.as_ref().map_or(0, |range| range.required_bytes),
            Self::Modify(_) => 0,
        }
    }

    fn class(&self) -> &str {
        match self {
            Self::Expand(_) => "",
            Self::Modify(request) => request.mutable_parameters.get("iops").map_or("", String::as_str),
        }
    }
}

/// Calls of one job that have failed in a row.
#[derive(Debug, Default)]
pub(super) struct Streak {
    failures: u32,
    ended: Duration,
    /// The outcome of the last call.
    last: &'static str,
    is_soft: bool,
    /// The request that was refused as infeasible, if the last call was.
    infeasible: Option<Request>,
    /// When the last one began, and when its caller gave up at the latest.
    began: Duration,
    deadline: Option<Duration>,
    connection: u64,
}

/// A reason to run that others have given a job.
#[derive(Debug)]
pub(super) struct Turn {
    at: Duration,
    /// The row of failures has begun anew.
    is_counted: bool,
}

impl Turn {
    pub(super) fn new(at: Duration) -> Self {
        Self { at, is_counted: false }
    }
}

/// Whether by convention nothing goes on after this answer.
fn is_final(code: Code) -> bool {
    !matches!(
        code,
        Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::ResourceExhausted | Code::Aborted
    )
}

/// The caller's result: no code for a success. A call that was given up or cut off is unavailable, whatever the driver
/// answered.
fn answer(call: &Call) -> Option<Code> {
    let is_late = call.deadline.zip(call.ended).is_some_and(|(deadline, ended)| ended > deadline);
    match &call.outcome {
        Outcome::Abandoned | Outcome::Running => Some(Code::Unavailable),
        _ if is_late => Some(Code::DeadlineExceeded),
        Outcome::Refused(refusal) => Some(refusal.code),
        Outcome::Ok => None,
    }
}

impl Checks {
    /// A call by `caller` has arrived, was carried out, or has ended.
    pub(super) fn called(&mut self, call: &Call, caller: &str) {
        if !CHANGES.contains(&call.method) {
            return;
        }
        let handle = call.volume.clone().unwrap_or_default();
        match (call.ended, call.applied) {
            (None, None) => self.arrived(call, caller, &handle),
            (None, Some(_)) => self.carried_out(call, &handle),
            // The caller had given it up.
            (Some(ended), Some(applied)) if applied > ended => self.carried_out(call, &handle),
            (Some(_), _) => self.ended(call, &handle),
        }
    }

    fn arrived(&mut self, call: &Call, caller: &str, handle: &str) {
        self.meets(call, handle);
        let (Some(job), Some(request)) = (Job::of(call.method), Request::of(call)) else { return };
        if !self.reign.is_of(caller) {
            self.violate(Rule::Lease, format_args!("{caller} sends {} of {handle}, and does not lead", call.method));
        }
        let Some((claim, _)) = self.bound(handle) else {
            self.violate(Rule::I10, format_args!("{} of {handle}, which is no claim's of ours", call.method));
            return;
        };
        if request.class() == FOREIGN_CLASS {
            self.violate(Rule::I10, format_args!("{handle} is to get the class of another driver"));
        }
        self.in_time(call, handle, job);
        match job {
            Job::Expand => self.size_arrived(handle, &claim, &request),
            Job::Modify => self.class_arrived(handle, &claim, &request),
        }
        self.repeats(call, handle, job, request);
    }

    /// I1: a caller that still waits for one call does not send another, but for the other one of a pair.
    fn meets(&mut self, call: &Call, handle: &str) {
        let waits = |live: &Live| {
            live.connection == call.connection && live.deadline.is_none_or(|deadline| call.started < deadline)
        };
        let is_pair = |live: &Live| {
            self.pairs
                && live.method != call.method
                && [live.method, call.method].iter().all(|it| Job::of(*it).is_some())
        };
        let met = self.live.iter().find(|(_, live)| live.handle == handle && waits(live) && !is_pair(live));
        if let Some((running, live)) = met {
            let what = format!("{} #{} of {handle} came while {} #{running} ran", call.method, call.id, live.method);
            self.violate(Rule::I1, what);
        }
        let live = Live {
            handle: handle.to_owned(),
            method: call.method,
            connection: call.connection,
            deadline: call.deadline,
            term: self.reign.terms,
        };
        self.live.insert(call.id, live);
    }

    /// I2, and no second call for what is recorded (I13).
    fn size_arrived(&mut self, handle: &str, claim: &Value, request: &Request) {
        let wanted = request.bytes();
        if wanted != size(claim, ALLOCATED) {
            let says = text(claim, ALLOCATED);
            self.violate(Rule::I2, format_args!("{handle} is to have {wanted} bytes, and its claim says {says:?}"));
        }
        if says_refused(claim) {
            self.violate(
                Rule::I2,
                format_args!("{handle} is to have {wanted} bytes, and its claim says that it was refused"),
            );
        }
        if self.recorded_size.get(handle).is_some_and(|(term, is)| *term == self.reign.terms && wanted <= *is) {
            self.violate(Rule::I13, format_args!("{handle} is to have {wanted} bytes again, after that was recorded"));
        }
    }

    /// I3, and no second call for what is recorded (I13).
    fn class_arrived(&mut self, handle: &str, claim: &Value, request: &Request) {
        let class = request.class();
        if class != text(claim, TARGET) || text(claim, MODIFY) != "InProgress" {
            let says = &claim["status"]["modifyVolumeStatus"];
            self.violate(Rule::I3, format_args!("{handle} is to get {class}, and its claim says {says}"));
        }
        match self.recorded_class.get(handle) {
            Some((term, is)) if is == class && *term == self.reign.terms => {
                self.violate(Rule::I13, format_args!("{handle} is to get {class} again, after that was recorded"));
            }
            Some((_, is)) if is != class => drop(self.recorded_class.remove(handle)),
            _ => {}
        }
    }

    /// I4, and what is repeated is repeated with the same request (I13).
    fn repeats(&mut self, call: &Call, handle: &str, job: Job, request: Request) {
        let key = (handle.to_owned(), job);
        let before = self.demands.get(&key).cloned();
        if let Some(before) = before.as_ref().filter(|before| before.is_open) {
            // The class of the open modification was taken away: it is not waited for without end.
            let may_give_up = job == Job::Modify && self.class_turned.is_some_and(|at| at + LATE >= before.began);
            if request.bytes() < before.request.bytes() {
                let what = format!("{handle}: {} bytes after {} bytes", request.bytes(), before.request.bytes());
                self.violate(Rule::I4, what);
            }
            if request != before.request && !may_give_up {
                let what = format!("{handle}: {request:?}, where {:?} may be running", before.request);
                self.violate(Rule::I13, what);
            }
        }
        let ended = before.and_then(|before| before.ended);
        self.demands.insert(key, Demand { request, began: call.started, is_open: true, ended });
    }

    /// The driver has carried out a call, perhaps long after its caller has gone on with another.
    fn carried_out(&mut self, call: &Call, handle: &str) {
        let Some(job) = Job::of(call.method) else { return };
        let demand = self.demands.get(&(handle.to_owned(), job));
        let is_overtaken =
            demand.and_then(|demand| demand.ended).is_some_and(|(id, at)| id > call.id && at >= call.started);
        if is_overtaken {
            self.excused.insert(handle.to_owned());
        }
    }

    /// I11: failures in a row are ever further apart.
    fn in_time(&mut self, call: &Call, handle: &str, job: Job) {
        let key = (handle.to_owned(), job);
        let Some(streak) = self.streaks.get(&key) else { return };
        let gap = call.started.saturating_sub(streak.ended).as_secs_f64();
        let doubled = BACKOFF.0 * 2_f64.powi(i32::try_from(streak.failures).unwrap_or(30).min(30) - 1);
        // With its connection, or on a cut one, an answer is lost: its caller goes on as after any failure, at the latest from its
        // deadline.
        let is_cut = self.driver_cut.is_some_and(|at| at + LATE >= streak.began);
        let is_over = streak.deadline.is_some_and(|at| call.started >= at);
        let may_be_lost = call.connection != streak.connection || (is_cut && is_over);
        // Another size or class is not the one that the driver has refused.
        let pauses = streak.infeasible.is_some() && streak.infeasible == Request::of(call);
        let least = match (pauses, streak.failures) {
            (true, _) if may_be_lost => 0.0,
            (true, _) => PAUSE,
            (false, 0) => 0.0,
            (false, _) => doubled.min(if streak.is_soft { SOFT } else { BACKOFF.1 }),
        };
        let is_early = gap + 0.002 < least;
        // Something else than time may have ended the wait, perhaps before the call began. What a burst of changes brings is counted: a
        // change begins the row of failures anew, and is good for one call before its time, however late and in whatever order the
        // changes arrive.
        let turns = self.turned.entry(key.clone()).or_default();
        turns.retain(|turn| turn.at + LATE >= streak.began);
        let of_class = self.class_turned.filter(|_| job == Job::Modify).is_some_and(|at| at + LATE >= streak.began);
        let is_turned = if is_early { !turns.is_empty() } else { turns.iter().any(|turn| !turn.is_counted) };
        if is_early && is_turned && !of_class {
            turns.remove(0);
        }
        for turn in turns {
            turn.is_counted = true;
        }
        if is_turned || of_class {
            self.streaks.remove(&key);
        } else if is_early {
            let (failures, label) = (streak.failures, streak.last);
            let what = format!("{gap:.3}s after {failures} failures in a row ({label}), wanted at least {least:.3}s");
            self.violate(Rule::I11, format_args!("{:?} {handle} ({job:?}): again {what}", call.started));
        }
    }

    fn ended(&mut self, call: &Call, handle: &str) {
        let term = self.live.remove(&call.id).map(|live| live.term);
        let Some(job) = Job::of(call.method) else { return };
        let (key, code) = ((handle.to_owned(), job), answer(call));
        let ended = call.ended.unwrap_or_default();
        if let Some(demand) = self.demands.get_mut(&key) {
            demand.is_open = demand.is_open && code.is_some_and(|code| !is_final(code));
            demand.ended = Some((call.id, ended));
        }
        if let Some(request) = Request::of(call).filter(|_| job == Job::Modify && call.outcome == Outcome::Ok) {
            self.applied.insert(handle.to_owned(), request.class().to_owned());
        }
        let Some(code) = code else {
            self.streaks.remove(&key);
            return;
        };
        let infeasible = Request::of(call).filter(|_| job.is_infeasible(code));
        let class = Request::of(call).filter(|_| job == Job::Modify && is_final(code));
        if class.is_some_and(|it| self.held.get(handle).is_some_and(|(_, held)| held == it.class())) {
            // A former leader's call was carried out, and now the driver refuses the same.
            self.excused.insert(handle.to_owned());
        }
        if term != Some(self.reign.terms) {
            return;
        }
        let streak = self.streaks.entry(key).or_default();
        streak.failures += u32::from(infeasible.is_none());
        streak.infeasible = infeasible;
        // Its caller may have given up before.
        streak.ended = call.deadline.map_or(ended, |deadline| ended.min(deadline));
        streak.last = call.outcome.label();
        streak.is_soft |= matches!(code, Code::Aborted | Code::Unavailable);
        (streak.began, streak.deadline, streak.connection) = (call.started, call.deadline, call.connection);
    }
}
