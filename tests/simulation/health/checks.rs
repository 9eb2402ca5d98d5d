//! The checks of each commit and each call, and those of the end.

use std::collections::BTreeMap;
use std::time::Duration;

use csi_control_plane::roles::health_monitor::names::{self, ABNORMAL, NORMAL};
use csi_control_plane::sandbox::driver::{Action, Call, Lie, Method, Outcome};
use serde_json::Value;

use super::invariants::Rule;
use super::objects::{CLAIMS, ILLNESSES, VOLUMES, are_bound, conditions, handle};
use crate::stage::{Commit, Reign};
use crate::world::{DAEMONS, DRIVER, LEASE, text, without};

/// So much later than a change of a claim or a volume a daemon may see it: watches are late.
const LATE: Duration = Duration::from_secs(25);
/// Between an answer of the driver and the last write that was made without it: its way, and that of the write.
const GRACE: Duration = Duration::from_secs(1);
/// The calls that list.
const LISTS: [Method; 2] = [Method::ListVolumes, Method::ControllerListVolumeHealth];

/// What must hold. It knows only what [`Checks::committed`], [`Checks::called`] and the play tell it.
#[derive(Default)]
pub(super) struct Checks {
    /// The driver has CSI 1.13; otherwise it is one before that.
    pub(super) has_kinds: bool,
    /// Whether the driver lists on several pages: then it is not known which volumes an answer is about.
    pub(super) is_paged: bool,
    /// The configured `report`.
    pub(super) report: &'static str,
    /// Whether the API server stores the health of claims.
    pub(super) is_kept: bool,
    /// What is wrong with each volume that is not healthy, by its handle.
    pub(super) ill: BTreeMap<String, usize>,
    /// Times in which answers of the driver may be lost.
    pub(super) cuts: Vec<(Duration, Duration)>,
    /// How often what is wrong was written, how often its end.
    pub(super) written: [usize; 2],
    pub(super) events: usize,
    pub(super) broken: Vec<(Rule, String)>,
    claims: BTreeMap<String, Value>,
    volumes: BTreeMap<String, Value>,
    /// The handles of the claims that are or were bound, by their uids, and until when.
    bound: BTreeMap<String, (String, Duration)>,
    /// What the driver has answered, by handle.
    answers: BTreeMap<String, Vec<Answer>>,
    live: BTreeMap<u64, Live>,
    /// Who leads for health, and for the reconciler.
    reigns: [Reign; 2],
    /// The number of changes of the leader.
    term: u64,
    /// The last Event on each claim, by its uid: its time, reason and message.
    told: BTreeMap<String, (String, String, String)>,
}

/// An answer of the driver about one volume.
#[derive(Debug)]
struct Answer {
    daemon: String,
    term: u64,
    applied: Duration,
    ended: Duration,
    /// What is wrong. `None`: nothing.
    ill: Option<usize>,
    has_kinds: bool,
    /// It has certainly arrived.
    is_sure: bool,
}

/// A call that runs.
#[derive(Debug)]
struct Live {
    daemon: String,
    method: Method,
    volume: Option<String>,
    started: Duration,
    deadline: Option<Duration>,
    /// When the driver decided about it, and what was wrong with all volumes then.
    applied: Option<(Duration, BTreeMap<String, usize>)>,
    has_kinds: bool,
}

impl Checks {
    pub(super) fn violate(&mut self, rule: Rule, what: impl std::fmt::Display) {
        self.broken.push((rule, what.to_string()));
    }

    /// From then on until then answers may be lost.
    pub(super) fn cut(&mut self, from: Duration, until: Duration) {
        self.cuts.push((from, until));
    }

    fn is_cut(&self, from: Duration, until: Duration) -> bool {
        self.cuts.iter().any(|(cut, healed)| *cut <= until && *healed >= from)
    }

    pub(super) fn claim(&self, name: &str) -> Option<&Value> {
        self.claims.get(name)
    }

    pub(super) fn committed(&mut self, commit: &Commit<'_>) {
        let none = Value::Null;
        let (old, new) = (commit.old.unwrap_or(&none), commit.new.unwrap_or(&none));
        let is_ours = DAEMONS.contains(&commit.actor);
        match commit.plural {
            "leases" if commit.name == names::lease(DRIVER) => {
                let before = self.reigns[0].lease.clone();
                self.reigns[0].changed(commit, false);
                self.term += u64::from(self.reigns[0].lease != before);
            }
            "leases" if commit.name == LEASE.1 => drop(self.reigns[1].changed(commit, false)),
            "leases" => {}
            "events" if is_ours => self.told(commit.actor, new),
            CLAIMS => {
                if is_ours {
                    self.claim_written(commit, old, new);
                }
                keep(&mut self.claims, commit);
            }
            VOLUMES if !is_ours => keep(&mut self.volumes, commit),
            it if is_ours => self.violate(Rule::Own, format_args!("{it} {} is written", commit.name)),
            _ => {}
        }
        if [CLAIMS, VOLUMES].contains(&commit.plural) {
            self.bind(commit.at);
        }
    }

    /// Takes in which claims are bound now.
    fn bind(&mut self, now: Duration) {
        for (_, until) in self.bound.values_mut().filter(|(_, until)| *until == Duration::MAX) {
            *until = now;
        }
        let owned = |(claim, handle): (&Value, &str)| (text(claim, "/metadata/uid").to_owned(), handle.to_owned());
        for (uid, handle) in self.monitored().into_iter().map(owned).collect::<Vec<_>>() {
            self.bound.insert(uid, (handle, Duration::MAX));
        }
    }

    /// The claims that are monitored, with the handles of their volumes.
    fn monitored(&self) -> Vec<(&Value, &str)> {
        let pair = |volume| {
            let claim = self.claims.get(text(volume, "/spec/claimRef/name"))?;
            are_bound(claim, volume).then_some((claim, handle(volume)?))
        };
        self.volumes.values().filter_map(pair).collect()
    }

    /// The handle of a claim that is bound, or was not long ago.
    fn handle_of(&self, uid: &str, now: Duration) -> Option<String> {
        let (handle, until) = self.bound.get(uid)?;
        (until.saturating_add(LATE) >= now).then(|| handle.clone())
    }

    fn claim_written(&mut self, commit: &Commit<'_>, old: &Value, new: &Value) {
        let (name, actor, at) = (commit.name, commit.actor, commit.at);
        if !self.reigns[0].is_of(actor) {
            self.violate(Rule::I5, format_args!("{actor} writes to {name}, and does not lead"));
        }
        if without_health(old) != without_health(new) {
            self.violate(Rule::Own, format_args!("{name} is changed from {old} to {new}"));
        }
        let is_deleted = !text(old, "/metadata/deletionTimestamp").is_empty();
        let Some(handle) = self.handle_of(text(new, "/metadata/uid"), at).filter(|_| !is_deleted) else {
            self.violate(Rule::I3, format_args!("{actor} writes to {name}, which has no volume of ours: {new}"));
            return;
        };
        let (before, after) = (conditions(old), conditions(new));
        let ids = |all: &[(&str, &str, &str)]| {
            all.iter().map(|(status, reason, _)| ((*status).to_owned(), (*reason).to_owned())).collect::<Vec<_>>()
        };
        let time = |claim| text(claim, "/status/healthStatus/lastTransitionTime");
        if before == after || (ids(&before) == ids(&after) && time(old) != time(new)) {
            let (old, new) = (&old["status"], &new["status"]);
            self.violate(Rule::I4, format_args!("{name} is written, and nothing has changed: {old} to {new}"));
        }
        self.written[usize::from(after.is_empty())] += 1;
        if after.is_empty() {
            self.cleared(actor, &handle, at, name);
        } else if !self.has_said(actor, &handle, true, |answer| {
            answer.has_kinds && answer.ill.is_some_and(|ill| after == ILLNESSES[ill].conditions)
        }) {
            self.violate(Rule::I6, format_args!("{name}: {after:?} is not what the driver has said of {handle}"));
        }
    }

    /// Whether the driver has said so to a daemon, in this term or in any.
    fn has_said(&self, daemon: &str, handle: &str, in_term: bool, said: impl Fn(&Answer) -> bool) -> bool {
        let is_of = |it: &&Answer| it.daemon == daemon && (!in_term || it.term == self.term);
        self.answers.get(handle).into_iter().flatten().rev().filter(is_of).any(said)
    }

    /// I1: a daemon calls a volume healthy.
    fn cleared(&mut self, daemon: &str, handle: &str, now: Duration, what: &str) {
        let answers = self.answers.get(handle).map(Vec::as_slice).unwrap_or_default();
        let of_term = || answers.iter().filter(|it| it.daemon == daemon && it.term == self.term);
        let good = of_term().filter(|it| it.ill.is_none()).map(|it| it.applied).max();
        let is_known = |it: &&Answer| it.ill.is_some() && it.is_sure && it.ended + GRACE <= now;
        let bad = of_term().filter(is_known).map(|it| it.applied).max();
        if good.is_none() || bad > good {
            let what = format!("{daemon}, {what}: {handle} is healthy as of {good:?}, and was not as of {bad:?}");
            self.violate(Rule::I1, what);
        }
    }

    /// A daemon has written an Event, or counted it.
    fn told(&mut self, daemon: &str, event: &Value) {
        let (uid, reason, message) =
            (text(event, "/involvedObject/uid"), text(event, "/reason"), text(event, "/message"));
        if ![ABNORMAL, NORMAL].contains(&reason) {
            return;
        }
        self.events += 1;
        let last = text(event, "/lastTimestamp").to_owned();
        if self.told.get(uid).is_none_or(|(time, _, _)| *time <= last) {
            self.told.insert(uid.to_owned(), (last, reason.to_owned(), message.to_owned()));
        }
        let Some((handle, _)) = self.bound.get(uid).cloned() else {
            self.violate(Rule::I3, format_args!("{daemon}: an Event on {uid}, which has no volume of ours: {event}"));
            return;
        };
        let says = |answer: &Answer| match answer.ill {
            None => reason == NORMAL,
            Some(ill) => reason == ABNORMAL && ILLNESSES[ill].texts[usize::from(!answer.has_kinds)] == message,
        };
        if !self.has_said(daemon, &handle, false, says) {
            let rule = if reason == NORMAL { Rule::I1 } else { Rule::I6 };
            self.violate(
                rule,
                format_args!("{daemon}: {reason} {message:?} is not what the driver has said of {handle}"),
            );
        }
    }

    /// A call by `daemon` has arrived, was carried out, or has ended.
    pub(super) fn called(&mut self, call: &Call, daemon: &str) {
        let is_health = LISTS.contains(&call.method)
            || [Method::ControllerGetVolume, Method::ControllerGetVolumeHealth].contains(&call.method);
        if !is_health {
            return;
        }
        if matches!(
            call.fault,
            Some(Action::Crash { .. } | Action::DoneButCrash { .. } | Action::AnswerThenCrash { .. })
        ) {
            self.cut(call.started, call.started + Duration::from_secs(8));
        }
        match (call.ended, call.applied) {
            (None, None) => self.arrived(call, daemon),
            (None, Some(at)) => {
                let ill = self.ill.clone();
                if let Some(live) = self.live.get_mut(&call.id) {
                    live.applied = Some((at, ill));
                }
            }
            (Some(ended), _) => self.ended(call, ended),
        }
    }

    fn arrived(&mut self, call: &Call, daemon: &str) {
        let (method, now) = (call.method, call.started);
        let leads = self.reigns[0].is_of(daemon) || (method == Method::ListVolumes && self.reigns[1].is_of(daemon));
        if !leads {
            self.violate(Rule::I5, format_args!("{daemon} sends {method} of {:?}, and does not lead", call.volume));
        }
        if let Some(volume) = &call.volume
            && !self.bound.iter().any(|(uid, (handle, _))| handle == volume && self.handle_of(uid, now).is_some())
        {
            self.violate(Rule::I3, format_args!("{daemon} sends {method} of {volume}, which is no claim's of ours"));
        }
        let running = self.live.iter().find(|(_, live)| {
            (live.daemon.as_str(), live.method, &live.volume) == (daemon, method, &call.volume)
                && live.deadline.is_none_or(|deadline| now < deadline)
                && !self.is_cut(live.started, now)
        });
        if let Some((id, live)) = running {
            let what =
                format!("{daemon} sends {method} of {:?} while #{id} runs since {:?}", call.volume, live.started);
            self.violate(Rule::I2, what);
        }
        let live = Live {
            daemon: daemon.to_owned(),
            method,
            volume: call.volume.clone(),
            started: call.started,
            deadline: call.deadline,
            applied: None,
            has_kinds: matches!(method, Method::ControllerListVolumeHealth | Method::ControllerGetVolumeHealth),
        };
        self.live.insert(call.id, live);
    }

    fn ended(&mut self, call: &Call, ended: Duration) {
        let Some(live) = self.live.remove(&call.id) else { return };
        let Some((applied, ill)) = live.applied.filter(|_| call.outcome == Outcome::Ok) else { return };
        let is_list = LISTS.contains(&live.method);
        let is_late = call.deadline.is_some_and(|deadline| ended + GRACE > deadline);
        let is_part = is_list && self.is_paged;
        let is_sure = !(is_late || is_part || self.is_cut(live.started, ended + GRACE));
        for handle in super::objects::HANDLES {
            let is_about = live.volume.as_deref().is_none_or(|volume| volume == handle);
            let ill = ill.get(handle).copied();
            // A list of what is not healthy calls nothing healthy.
            let is_said = ill.is_some() || live.method != Method::ControllerListVolumeHealth;
            if is_about && is_said && is_answered(call.fault.as_ref(), is_list, handle) {
                let (daemon, term, has_kinds) = (live.daemon.clone(), self.term, live.has_kinds);
                let answer = Answer { daemon, term, applied, ended, ill, has_kinds, is_sure };
                self.answers.entry(handle.to_owned()).or_default().push(answer);
            }
        }
    }

    /// The claims that do not say how their volumes are: in their status, or also by the last Event.
    pub(super) fn unrest(&self, of_events: bool) -> Vec<(Rule, String)> {
        let tells_events = match self.report {
            "auto" => !(self.has_kinds && self.is_kept),
            report => report != "status",
        };
        let mut faults = Vec::new();
        for (claim, handle) in self.monitored() {
            let (name, ill) = (text(claim, "/metadata/name"), self.ill.get(handle).map(|ill| &ILLNESSES[*ill]));
            let wanted = ill.map_or(&[][..], |ill| ill.conditions);
            // What the status cannot say is not in it, and clears nothing.
            let is_written = ill.is_none() || (self.has_kinds && self.is_kept && !wanted.is_empty());
            if self.report != "events" && is_written && conditions(claim) != wanted {
                faults.push((Rule::End, format!("{name} never said {wanted:?} of {handle}: {}", claim["status"])));
            }
            let told = self.told.get(text(claim, "/metadata/uid")).map(|(_, reason, message)| (&**reason, &**message));
            let text = ill.map(|ill| ill.texts[usize::from(!self.has_kinds)]).filter(|text| !text.is_empty());
            let is_told = match (ill, text) {
                (None, _) => told.is_none_or(|(reason, _)| reason == NORMAL),
                (Some(_), Some(text)) if tells_events => told == Some((ABNORMAL, text)),
                _ => true,
            };
            if of_events && !is_told {
                faults.push((Rule::End, format!("no Event on {name} said last {text:?} of {handle}, but {told:?}")));
            }
        }
        faults
    }
}

/// Whether an answer to a call with this fault says anything of a volume.
fn is_answered(fault: Option<&Action>, is_list: bool, handle: &str) -> bool {
    match fault {
        Some(Action::Lie(Lie::OmitVolumes(omitted))) => !(is_list && omitted.contains(handle)),
        Some(Action::Lie(Lie::EntryWithoutStatus | Lie::TokenLoop | Lie::NoVolume | Lie::HealthOf(_))) => false,
        _ => true,
    }
}

fn keep(all: &mut BTreeMap<String, Value>, commit: &Commit<'_>) {
    match commit.new {
        Some(new) => drop(all.insert(commit.name.to_owned(), new.clone())),
        None => drop(all.remove(commit.name)),
    }
}

/// The part of a claim that the health monitor must not change.
fn without_health(claim: &Value) -> Value {
    without(claim, [("/status", "healthStatus"), ("/metadata", "resourceVersion"), ("/metadata", "managedFields")])
}
