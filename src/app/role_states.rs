//! The state of each role, for the status page and `/readyz`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The states of all enabled roles.
#[derive(Debug, Clone, Default)]
pub(super) struct RoleStates(Arc<Mutex<BTreeMap<&'static str, RoleState>>>);

/// One role.
#[derive(Debug, Clone, Default)]
pub(super) struct RoleState {
    /// Where it is in its life.
    pub(super) phase: Phase,
    /// The Lease that it is served under.
    pub(super) lease: Option<String>,
    /// When the phase began.
    pub(super) since: Option<Instant>,
    /// Terms that ended in an error.
    pub(super) restarts: u64,
    /// The last such error, and when it came.
    pub(super) last_error: Option<(String, Instant)>,
}

/// Where a role is in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// The driver is not ready.
    #[default]
    WaitingForDriver,
    /// Another replica leads.
    Standby,
    /// It serves a term.
    Serving,
    /// Its term ended in an error; it is served again after a pause.
    Restarting,
    /// The daemon stops.
    Stopped,
}

impl RoleStates {
    pub(super) fn enter(&self, role: &'static str, phase: Phase, now: Instant) {
        self.change(role, |state| {
            if state.phase != phase || state.since.is_none() {
                state.phase = phase;
                state.since = Some(now);
            }
        });
    }

    pub(super) fn lease(&self, role: &'static str, lease: Option<&str>) {
        self.change(role, |state| state.lease = lease.map(str::to_owned));
    }

    /// The role is no longer served or shown.
    pub(super) fn forget(&self, role: &str) {
        self.0.lock().remove(role);
    }

    pub(super) fn failed(&self, role: &'static str, error: String, now: Instant) {
        self.change(role, |state| {
            state.restarts += 1;
            state.last_error = Some((error, now));
        });
    }

    pub(super) fn all(&self) -> BTreeMap<&'static str, RoleState> {
        self.0.lock().clone()
    }

    fn change(&self, role: &'static str, change: impl FnOnce(&mut RoleState)) {
        change(self.0.lock().entry(role).or_default());
    }
}
