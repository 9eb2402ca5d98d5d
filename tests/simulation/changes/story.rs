//! A history of one claim, passed step by step to the checks.

use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::proto::{CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest};
use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::driver::{Call, Method, Outcome, Refusal};
use serde_json::{Value, json};
use tonic::Code;

use super::checks::{Checks, LEASE};
use super::invariants::Rule;
use super::objects::{CLAIMS, VOLUMES, claim, volume};
use crate::stage::{Commit, edit, lease, running};
use crate::world::DAEMONS;

const HANDLE: &str = "handle-0";
pub(super) const GIB: i64 = 1 << 30;

/// A claim of 1Gi whose users ask for 4Gi and for class `a`, and what becomes of it. The first daemon leads.
pub(super) struct Story {
    checks: Checks,
    claim: Value,
    volume: Value,
    /// The driver's state.
    held: (i64, String),
    calls: Vec<Arc<Call>>,
    now: u64,
    /// Who does what follows.
    actor: &'static str,
}

impl Story {
    pub(super) fn new() -> Self {
        let (mut claim, mut volume) = (claim("0"), volume("0", true));
        claim["metadata"]["uid"] = "the-uid".into();
        claim["metadata"]["namespace"] = "default".into();
        claim["spec"]["resources"]["requests"]["storage"] = "4Gi".into();
        claim["spec"]["volumeAttributesClassName"] = "a".into();
        claim["status"] = json!({ "phase": "Bound", "capacity": { "storage": "1Gi" } });
        volume["spec"]["claimRef"] = json!({ "namespace": "default", "name": "claim-0", "uid": "the-uid" });
        let (checks, held) = (Checks::default(), (GIB, String::new()));
        let story = Self { checks, claim, volume, held, calls: Vec::new(), now: 0, actor: "user" };
        let mut story = story.stores(VOLUMES, None).stores(CLAIMS, None).has(GIB, "").leads(DAEMONS[0]);
        story.actor = DAEMONS[0];
        // Long after the users have changed anything.
        story.after(60)
    }

    pub(super) fn by(mut self, actor: &'static str) -> Self {
        self.actor = actor;
        self
    }

    pub(super) fn after(mut self, seconds: u64) -> Self {
        self.now += seconds;
        self
    }

    pub(super) fn at(&self) -> Duration {
        Duration::from_secs(self.now)
    }

    pub(super) fn leads(mut self, daemon: &str) -> Self {
        let lease = lease(daemon);
        let commit = Commit { at: self.at(), actor: "x", plural: "leases", name: LEASE, old: None, new: Some(&lease) };
        self.checks.committed(&commit);
        self
    }

    pub(super) fn stores(mut self, plural: &str, old: Option<&Value>) -> Self {
        let new = if plural == CLAIMS { &self.claim } else { &self.volume };
        let name = new["metadata"]["name"].as_str().unwrap();
        let (at, actor) = (Duration::from_secs(self.now), self.actor);
        self.checks.committed(&Commit { at, actor, plural, name, old, new: Some(new) });
        self
    }

    /// Members of an object become these, by their pointers; null takes one away.
    pub(super) fn writes(mut self, plural: &str, changes: &[(&str, Value)]) -> Self {
        let object = if plural == CLAIMS { &mut self.claim } else { &mut self.volume };
        let old = object.clone();
        edit(object, changes);
        self.stores(plural, Some(&old))
    }

    pub(super) fn state(self, state: &str, allocated: &str) -> Self {
        let changes = [
            ("/status/allocatedResourceStatuses/storage", json!(state)),
            ("/status/allocatedResources/storage", json!(allocated)),
        ];
        self.writes(CLAIMS, &changes)
    }

    pub(super) fn begun(self, allocated: &str) -> Self {
        self.state("ControllerResizeInProgress", allocated)
    }

    /// The condition with the outcome of the last call.
    pub(super) fn tells(self, reason: &str) -> Self {
        self.writes(CLAIMS, &[("/status/conditions", json!([{ "type": "ControllerResizeError", "reason": reason }]))])
    }

    pub(super) fn sized(self, size: &str) -> Self {
        self.writes(VOLUMES, &[("/spec/capacity/storage", json!(size))])
    }

    pub(super) fn done(self, size: &str) -> Self {
        let changes = [
            ("/status/capacity/storage", json!(size)),
            ("/status/allocatedResourceStatuses", Value::Null),
            ("/status/conditions", Value::Null),
        ];
        self.writes(CLAIMS, &changes)
    }

    pub(super) fn modifying(self, class: &str) -> Self {
        let status = json!({ "status": "InProgress", "targetVolumeAttributesClassName": class });
        self.writes(CLAIMS, &[("/status/modifyVolumeStatus", status)])
    }

    pub(super) fn classed(self, class: &str) -> Self {
        self.writes(VOLUMES, &[("/spec/volumeAttributesClassName", json!(class))])
    }

    pub(super) fn modified(self, class: &str) -> Self {
        let changes =
            [("/status/currentVolumeAttributesClassName", json!(class)), ("/status/modifyVolumeStatus", Value::Null)];
        self.writes(CLAIMS, &changes)
    }

    pub(super) fn sends(mut self, method: Method, change: impl FnOnce(&mut Call)) -> Self {
        let mut call = call(self.calls.len() as u64 + 1, self.at(), method);
        change(&mut call);
        self.checks.called(&call, self.actor);
        self.calls.push(Arc::new(call));
        self
    }

    pub(super) fn expands(self, gib: i64) -> Self {
        self.sends(Method::ControllerExpandVolume, |call| {
            let range = CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 };
            let request = ControllerExpandVolumeRequest { capacity_range: Some(range), ..Default::default() };
            call.expand = Some(Box::new(request));
        })
    }

    pub(super) fn modifies(self, class: &str) -> Self {
        self.sends(Method::ControllerModifyVolume, |call| {
            let mutable_parameters = [("iops".to_owned(), class.to_owned())].into();
            let request = ControllerModifyVolumeRequest { mutable_parameters, ..Default::default() };
            call.modify = Some(Box::new(request));
        })
    }

    /// The driver's present state.
    pub(super) fn has(mut self, size: i64, class: &str) -> Self {
        self.held = (size, class.to_owned());
        self.checks.holds([(HANDLE.to_owned(), size, class.to_owned())].into_iter());
        self
    }

    pub(super) fn ends(mut self, outcome: Outcome) -> Self {
        let mut call = Call::clone(self.calls.last().unwrap());
        (call.ended, call.outcome) = (Some(self.at()), outcome);
        self.checks.called(&call, self.actor);
        self
    }

    pub(super) fn refused(self, code: Code) -> Self {
        self.ends(Outcome::Refused(Refusal::new(code, "no")))
    }

    /// The volume has 4Gi.
    pub(super) fn grown(self) -> Self {
        let class = self.held.1.clone();
        self.begun("4Gi").expands(4).has(4 * GIB, &class).ends(Outcome::Ok).sized("4Gi").done("4Gi")
    }

    /// It has class `a`.
    pub(super) fn changed(self) -> Self {
        let size = self.held.0;
        self.modifying("a").modifies("a").has(size, "a").ends(Outcome::Ok).classed("a").modified("a")
    }

    /// Nothing is to be done any more, and these were sent.
    pub(super) fn rests(mut self, requests: &[Entry]) -> Self {
        self.checks.disturbed(requests, &[]);
        let faults = [self.checks.unrest(), self.checks.differences()].concat();
        self.checks.broken.extend(faults);
        self
    }

    /// These were sent in all.
    pub(super) fn asks(mut self, requests: &[Entry]) -> Self {
        self.checks.asked(requests);
        self
    }

    pub(super) fn paired(mut self) -> Self {
        self.checks.pairs = true;
        self
    }

    pub(super) fn node_only(mut self) -> Self {
        self.checks.is_node_only = true;
        self
    }

    /// What was found out, each once.
    pub(super) fn broken(self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = self.checks.broken.into_iter().map(|(rule, _)| rule).collect();
        rules.dedup();
        rules
    }
}

fn call(id: u64, started: Duration, method: Method) -> Call {
    Call { volume: Some(HANDLE.to_owned()), ..running(id, started, method) }
}
