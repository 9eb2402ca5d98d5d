//! The resources of all handlers of a term, for every role.

use std::sync::Arc;

use crate::cluster::{Api, EventKind, EventRecorder, EventTarget};
use crate::csi::{Capabilities, Client, VolumeLocks};
use crate::election::{Fenced, Term};
use crate::process::{Clock, Rng};
use crate::roles::role::RoleContext;
use crate::telemetry::Meter;

/// The resources of all handlers of a term. The clients are fenced: they work only during the term.
#[derive(Debug)]
pub struct TermScope {
    /// The role's name.
    pub role: &'static str,
    /// The driver's name.
    pub driver_name: String,
    /// The driver's capabilities.
    pub capabilities: Capabilities,
    /// The right to write, which ends with the term.
    pub term: Term,
    /// The API client, usable only during the term.
    pub api: Fenced<Api>,
    /// The driver, usable only during the term.
    pub driver: Fenced<Client>,
    /// One mutating call per volume at a time, across all roles.
    pub volume_locks: VolumeLocks,
    /// Kubernetes Events.
    pub events: EventRecorder,
    /// Metrics.
    pub meter: Meter,
    /// Clock.
    pub clock: Clock,
    /// Random numbers.
    pub rng: Rng,
}

impl TermScope {
    /// The resources of the role `name` during `term`.
    pub fn new(name: &'static str, role: &RoleContext, term: &Term) -> Self {
        Self {
            role: name,
            driver_name: role.driver.name.clone(),
            capabilities: role.driver.capabilities.clone(),
            term: term.clone(),
            api: term.fence(role.api.clone()),
            driver: term.fence(role.driver.client.clone()),
            volume_locks: role.driver.operations.clone(),
            events: role.events.clone(),
            meter: role.meter.clone(),
            clock: role.clock,
            rng: role.rng.clone(),
        }
    }

    /// Records an Event, which is sent only while the term lasts.
    pub fn event(&self, target: &EventTarget, kind: EventKind, reason: &str, note: &str) {
        self.events.record(target, kind, reason, note, self.term.permit());
    }

    /// Records an Event of low priority: it is dropped if more than a few dozen wait, or if this daemon begins to stop. The release
    /// of the Lease does not wait for it.
    pub fn event_low(&self, target: &EventTarget, kind: EventKind, reason: &str, note: &str) {
        let term = self.term.clone();
        self.events.record_low(target, kind, reason, note, Arc::new(move || !term.is_over()));
    }
}
