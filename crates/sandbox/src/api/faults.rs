//! Scripted faults of the API.
//!
//! A [`Fault`] selects requests and has an action. The first refusal wins; delays add up. A fault after the work was
//! done ([`Action::DelayAfter`], [`Action::CutAfter`], [`Action::RefuseAfter`]) is the hard case for a client: the
//! write happened, but the answer is an error or missing. Running watches are held, delayed or dropped as a whole, by
//! the same [`Matching`].

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use base::process::watch;

use super::call::Call;
use super::pure::rejection::Rejection;

/// Which requests are meant. An unset part matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matching {
    verb: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    name: Option<String>,
    user: Option<String>,
    body: Option<String>,
}

impl Matching {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Only this verb: `patch`, `watch`, ...
    #[must_use]
    pub fn verb(mut self, verb: impl Into<String>) -> Self {
        self.verb = Some(verb.into());
        self
    }

    /// Only the kind of this plural.
    #[must_use]
    pub fn resource(mut self, plural: impl Into<String>) -> Self {
        self.resource = Some(plural.into());
        self
    }

    /// Only this subresource; `""` means the object itself.
    #[must_use]
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    /// Only the object of this name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only requests of this user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Only requests with this text in their body.
    #[must_use]
    pub fn body(mut self, text: impl Into<String>) -> Self {
        self.body = Some(text.into());
        self
    }

    /// Whether a running watch is meant.
    fn matches_watch(&self, call: &Call, user: &str) -> bool {
        self.matches(call, user, "")
    }

    fn matches(&self, call: &Call, user: &str, body: &str) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        is(&self.verb, call.verb)
            && is(&self.resource, call.resource.plural)
            && is(&self.subresource, &call.subresource)
            && is(&self.name, &call.name)
            && is(&self.user, user)
            && self.body.as_deref().is_none_or(|text| body.contains(text))
    }
}

/// The effect on a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// It is refused and nothing is done: 409, 429 with its Retry-After, 500, ...
    Refuse(Rejection),
    /// It is done, and then answered as if it were not.
    RefuseAfter(Rejection),
    /// It waits before it is done. It is done even if the client no longer waits.
    DelayBefore(Duration),
    /// It is done at once, the answer waits.
    DelayAfter(Duration),
    /// The connection is cut and nothing is done.
    CutBefore,
    /// It is done, and the connection is cut before the answer.
    CutAfter,
    /// It waits until the fault is removed, and is done then, even if the client no longer waits.
    Hold,
    /// The history is compacted just before it is done.
    Compact,
    /// It is answered as if it were done, and nothing is. No server does that: it makes the client one that forgot a write.
    Pretend,
    /// It is done, and the object is merged with this in the name of the same user. No server does that: it makes the client one
    /// that wrote more than it meant.
    Smear(Value),
    /// Each object is shown merged with this, in a list, in a watch and alone. No server does that: it makes the client one that
    /// misreads what is there.
    Show(Value),
}

/// A scripted fault. Made by [`Fault::on`]; hits every matching request until it is told how many.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    on: Matching,
    action: Action,
    skip: u64,
    times: Option<u64>,
}

impl Fault {
    /// Does `action` to every matching request.
    pub fn on(on: Matching, action: Action) -> Self {
        Self { on, action, skip: 0, times: None }
    }

    /// Only the `n`th matching request, counted from 1.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        self.times = Some(1);
        self
    }

    /// Only the `n`th matching request, counted from 1, and all later ones.
    #[must_use]
    pub fn from_nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        self.times = None;
        self
    }

    /// Only so many matching requests.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }
}

/// Names a fault or a watch fault that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultId(u64);

/// How a dropped watch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEnd {
    /// As after `timeoutSeconds`: the response ends properly.
    Clean,
    /// The connection breaks in the middle.
    Cut,
}

/// The faults in force. Clones are the same script.
#[derive(Debug, Clone, Default)]
pub struct FaultScript(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    script: Mutex<Script>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Script {
    last: u64,
    faults: Vec<Scheduled>,
    watches: Vec<(FaultId, Matching, WatchFault)>,
}

#[derive(Debug)]
struct Scheduled {
    id: FaultId,
    fault: Fault,
    seen: u64,
    hits: u64,
}

#[derive(Debug, Clone, Copy)]
enum WatchFault {
    Hold,
    Delay(Duration),
    Drop(WatchEnd),
}

/// The combined effect of all faults that match a request.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own, and any of them may meet")]
pub(crate) struct Plan {
    pub(crate) compact: bool,
    pub(crate) pretend: bool,
    pub(crate) smear: Option<Value>,
    pub(crate) show: Option<Value>,
    pub(crate) held_by: Vec<FaultId>,
    pub(crate) before: Duration,
    pub(crate) refuse: Option<Rejection>,
    pub(crate) cut_before: bool,
    pub(crate) after: Duration,
    pub(crate) refuse_after: Option<Rejection>,
    pub(crate) cut_after: bool,
}

/// The combined effect of all faults that match a running watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchPlan {
    Flow,
    Hold,
    Delay(Duration),
    Drop(WatchEnd),
}

impl FaultScript {
    /// Adds a fault.
    pub fn add(&self, fault: Fault) -> FaultId {
        let mut script = self.script();
        let id = script.next();
        script.faults.push(Scheduled { id, fault, seen: 0, hits: 0 });
        id
    }

    /// The number of requests that the fault has hit; 0 for an unknown fault.
    pub fn hits(&self, id: FaultId) -> u64 {
        self.script().faults.iter().find(|it| it.id == id).map_or(0, |it| it.hits)
    }

    /// Holds back the events of matching watches, present and future, until [`FaultScript::remove`].
    pub fn hold_watches(&self, on: Matching) -> FaultId {
        self.add_watch(on, WatchFault::Hold)
    }

    /// Delivers the events of matching watches this much late.
    pub fn delay_watches(&self, on: Matching, delay: Duration) -> FaultId {
        self.add_watch(on, WatchFault::Delay(delay))
    }

    /// Ends the matching watches that run now.
    pub fn drop_watches(&self, on: Matching, end: WatchEnd) {
        self.add_watch(on, WatchFault::Drop(end));
    }

    /// Takes a fault back.
    pub fn remove(&self, id: FaultId) {
        let mut script = self.script();
        script.faults.retain(|it| it.id != id);
        script.watches.retain(|(it, ..)| *it != id);
        drop(script);
        self.0.changed.send_modify(|count| *count += 1);
    }

    /// Takes every fault back.
    pub fn clear(&self) {
        let mut script = self.script();
        script.faults.clear();
        // Drops stay: they end only what ran before them, and a watch may not have looked yet.
        script.watches.retain(|(.., fault)| matches!(fault, WatchFault::Drop(_)));
        drop(script);
        self.0.changed.send_modify(|count| *count += 1);
    }

    fn add_watch(&self, on: Matching, fault: WatchFault) -> FaultId {
        let mut script = self.script();
        let id = script.next();
        script.watches.push((id, on, fault));
        drop(script);
        self.0.changed.send_modify(|count| *count += 1);
        id
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.script.lock()
    }

    /// Waits until none of these faults is in force any more.
    pub(crate) async fn removed(&self, ids: &[FaultId]) {
        let mut changes = self.changes();
        while self.script().faults.iter().any(|it| ids.contains(&it.id)) && changes.changed().await.is_ok() {}
    }

    /// Tells when faults are removed, and when the faults of watches change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// A place in the order of faults: what a watch that starts now must not be dropped by.
    pub(crate) fn position(&self) -> u64 {
        self.script().last
    }

    /// The effect on this request. Counts the request.
    pub(crate) fn plan(&self, call: &Call, user: &str, body: &str) -> Plan {
        let mut plan = Plan::default();
        for scheduled in self.script().faults.iter_mut().filter(|it| it.fault.on.matches(call, user, body)) {
            scheduled.seen += 1;
            let fault = &scheduled.fault;
            if scheduled.seen <= fault.skip || fault.times.is_some_and(|times| scheduled.seen > fault.skip + times) {
                continue;
            }
            scheduled.hits += 1;
            match &fault.action {
                Action::Refuse(rejection) => drop(plan.refuse.get_or_insert_with(|| rejection.clone())),
                Action::RefuseAfter(rejection) => drop(plan.refuse_after.get_or_insert_with(|| rejection.clone())),
                Action::DelayBefore(delay) => plan.before += *delay,
                Action::DelayAfter(delay) => plan.after += *delay,
                Action::CutBefore => plan.cut_before = true,
                Action::CutAfter => plan.cut_after = true,
                Action::Compact => plan.compact = true,
                Action::Pretend => plan.pretend = true,
                Action::Smear(with) => plan.smear = Some(with.clone()),
                Action::Show(with) => plan.show = Some(with.clone()),
                Action::Hold => plan.held_by.push(scheduled.id),
            }
        }
        plan
    }

    /// The present effect on a watch that started at `position`.
    pub(crate) fn watch_plan(&self, call: &Call, user: &str, position: u64) -> WatchPlan {
        let script = self.script();
        let mut plan = WatchPlan::Flow;
        for (id, on, fault) in &script.watches {
            if !on.matches_watch(call, user) {
                continue;
            }
            match (fault, plan) {
                (WatchFault::Drop(end), _) if id.0 > position => return WatchPlan::Drop(*end),
                (WatchFault::Hold, _) => plan = WatchPlan::Hold,
                (WatchFault::Delay(delay), WatchPlan::Flow) => plan = WatchPlan::Delay(*delay),
                (WatchFault::Drop(_) | WatchFault::Delay(_), _) => {}
            }
        }
        plan
    }
}

impl Script {
    fn next(&mut self) -> FaultId {
        self.last += 1;
        FaultId(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(verb: &'static str) -> Call {
        Call::for_test(verb, "volumeattachments", "va-1")
    }

    #[test]
    fn a_fault_hits_the_requests_that_it_names_and_no_other() {
        let script = FaultScript::default();
        let second = script
            .add(Fault::on(Matching::any().verb("patch"), Action::Refuse(Rejection::too_many_requests(1))).nth(2));
        let refused: Vec<bool> = (0..4).map(|_| script.plan(&call("patch"), "u", "").refuse.is_some()).collect();
        assert_eq!(refused, [false, true, false, false]);
        assert!(script.plan(&call("get"), "u", "").refuse.is_none());
        assert_eq!(script.hits(second), 1);
    }

    #[test]
    fn a_fault_can_look_for_a_text_in_the_body() {
        let script = FaultScript::default();
        script.add(Fault::on(Matching::any().body(":null"), Action::Pretend));
        let pretended = |body: &str| script.plan(&call("patch"), "u", body).pretend;
        assert!(pretended(r#"{"data":{"a":null}}"#) && !pretended(r#"{"data":{"a":"b"}}"#));
    }

    #[test]
    fn delays_add_up_and_the_first_refusal_wins() {
        let script = FaultScript::default();
        for code in [409, 500] {
            script.add(Fault::on(Matching::any(), Action::DelayBefore(Duration::from_secs(1))));
            let rejection = Rejection { code, ..Rejection::unauthorized() };
            script.add(Fault::on(Matching::any().user("u"), Action::Refuse(rejection)));
        }
        let plan = script.plan(&call("get"), "u", "");
        assert_eq!((plan.before, plan.refuse.unwrap().code), (Duration::from_secs(2), 409));
        assert!(script.plan(&call("get"), "other", "").refuse.is_none());
    }

    #[test]
    fn dropping_watches_spares_those_that_start_later() {
        let script = FaultScript::default();
        let before = script.position();
        script.drop_watches(Matching::any(), WatchEnd::Cut);
        assert_eq!(script.watch_plan(&call("watch"), "u", before), WatchPlan::Drop(WatchEnd::Cut));
        assert_eq!(script.watch_plan(&call("watch"), "u", script.position()), WatchPlan::Flow);
        let hold = script.hold_watches(Matching::any());
        assert_eq!(script.watch_plan(&call("watch"), "u", script.position()), WatchPlan::Hold);
        script.remove(hold);
        assert_eq!(script.watch_plan(&call("watch"), "u", script.position()), WatchPlan::Flow);
    }
}
