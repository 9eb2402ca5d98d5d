//! One Lease and its roles.
//!
//! A Lease group waits for the driver, acquires the Lease, and serves the roles while it leads. It releases the Lease
//! when the daemon stops, when the driver came back with other capabilities (because the roles need a new term), and
//! when the driver has been gone for so long that a replica with a working driver should lead instead.
//!
//! Each role has a slot in the Lease group, and the list of active roles says which role a slot serves. When a role's
//! configuration changes, the new role takes the slot after the old one has finished its work in flight: the term, the
//! Lease and the other slots are not affected.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crate::process::watch;
use futures::FutureExt as _;
use futures::future::{join, join_all};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error, info, info_span, warn};

use crate::cluster::WatchHandle;
use crate::csi::{Driver, DriverState};
use crate::diagnostics::Board;
use crate::election::{Elector, Gate, LeaseSettings, Term};
use crate::process::{Clock, ErrorChain, TaskEnd, error_chain};
use crate::roles::{ROLES, Registration, Role, RoleContext, RoleError};
use crate::telemetry::{Meter, names};

use super::role_states::{Phase, RoleStates};

/// How long a leader whose driver is gone keeps the Lease. A driver's restart takes seconds; after that, a replica with
/// a working driver should lead (attacher R29).
const DRIVER_PATIENCE: Duration = Duration::from_secs(30);
/// The pause before a role whose term failed is served again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause. After a role was served for longer than this, the pause is reset to the first.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A role that is enabled, loaded, and served again and again.
pub(super) struct ActiveRole {
    pub(super) name: &'static str,
    pub(super) role: Box<dyn Role>,
    /// When one of these roles is added or removed, this role must be loaded again.
    pub(super) depends_on: BTreeSet<&'static str>,
    /// Its caches, kept until its last work in flight has ended.
    pub(super) _watches: Vec<WatchHandle>,
}

/// The roles that a Lease group serves.
pub(super) type ActiveRoles = Vec<Arc<ActiveRole>>;

/// The inputs of a Lease group.
pub(super) struct LeaseGroup {
    /// The Lease; `None`: leader election is off.
    pub(super) lease: Option<LeaseSettings>,
    pub(super) election: kube::Client,
    pub(super) roles: watch::Receiver<ActiveRoles>,
    pub(super) states: RoleStates,
    pub(super) leases: super::board::Leases,
    /// The context but for the driver, which each Lease group takes as it is.
    pub(super) context: RoleContext,
    pub(super) stop: CancellationToken,
}

impl LeaseGroup {
    /// Runs until `stop`.
    pub(super) async fn run(self) {
        let mut driver = self.context.csi.state();
        while let Some(ready) = self.ready_driver(&mut driver).await {
            let handing_back = self.stop.child_token();
            let context = RoleContext { driver: ready.clone(), ..self.context.clone() };
            let until_changed = async {
                let reason = driver_changed(&mut driver, &ready, self.context.clock).await;
                warn!(reason, "giving up leadership");
                handing_back.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                () = self.lead_in_turn(&context, &handing_back) => {}
                () = until_changed => {}
            }
        }
        self.all_enter(Phase::Stopped);
    }

    fn all_enter(&self, phase: Phase) {
        for active in self.roles.borrow().iter() {
            self.states.enter(active.name, phase, self.context.clock.now());
        }
    }

    async fn ready_driver(&self, driver: &mut watch::Receiver<DriverState>) -> Option<Arc<Driver>> {
        self.all_enter(Phase::WaitingForDriver);
        loop {
            if self.stop.is_cancelled() {
                return None;
            }
            if let DriverState::Ready(driver) = &*driver.borrow_and_update() {
                return Some(driver.clone());
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                changed = driver.changed() => changed.ok()?,
            }
        }
    }

    /// Takes part in the election, and serves the roles in each term, until `stop`.
    async fn lead_in_turn(&self, context: &RoleContext, stop: &CancellationToken) {
        let Some(settings) = &self.lease else {
            let gate = || Gate::permanent(stop, self.context.clock);
            return self.slots(context, gate, stop).await;
        };
        let meter = &self.context.meter;
        let elector = Elector::new(
            self.election.clone(),
            settings.clone(),
            self.context.clock,
            self.context.rng.clone(),
            meter.clone(),
        );
        let elector = match elector {
            Ok(elector) => elector,
            Err(error) => {
                // The configuration was checked, so this says that a check is missing there.
                error!(lease = settings.name, error = %ErrorChain(&error), "the lease's settings are invalid");
                return stop.cancelled().await;
            }
        };
        self.leases.show(settings.name.clone(), elector.view());
        let closed = CancellationToken::new();
        let leadership = elector.leadership();
        let slots = self.slots(context, || Gate::new(leadership.clone()), &closed);
        let span = info_span!("election", lease = settings.name);
        let election = async {
            let result = elector.run(stop.clone()).instrument(span).await;
            closed.cancel();
            result
        };
        let (result, ()) = join(election, slots).await;
        if let Err(error) = result {
            warn!(lease = settings.name, error = %ErrorChain(&error), "could not release the lease; it will expire");
        }
    }

    /// A slot for every role that there could be, until `closed`: most are empty.
    async fn slots(&self, context: &RoleContext, gate: impl Fn() -> Gate, closed: &CancellationToken) {
        join_all(ROLES.iter().map(|role| self.slot(role, context.of_role(role), gate(), closed))).await;
    }

    /// Serves the role in the slot, term after term, until the gate closes.
    async fn slot(&self, role: &Registration, context: RoleContext, mut gate: Gate, closed: &CancellationToken) {
        let name = role.name;
        let mut roles = self.roles.clone();
        loop {
            let active = tokio::select! {
                biased;
                active = occupant(&mut roles, name) => active,
                () = closed.cancelled() => return,
            };
            self.states.enter(name, Phase::Standby, self.context.clock.now());
            let guard = tokio::select! {
                biased;
                () = replaced(&mut roles, &active) => continue,
                guard = gate.next() => guard,
            };
            let Some(guard) = guard else { return };
            let (part, leave) = guard.term().part();
            let until_replaced = async {
                replaced(&mut roles, &active).await;
                info!(role = name, "the role's configuration changed: waiting for work in flight to end");
                leave.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                () = self.serve(&active, &context, &part) => {}
                () = until_replaced => {}
            }
            // Only now may the Lease be released: the work in flight has ended.
            drop(guard);
        }
    }

    /// Serves one term, again after each error, until it is over.
    async fn serve(&self, active: &ActiveRole, context: &RoleContext, term: &Term) {
        let (role, clock) = (active.name, self.context.clock);
        let context = RoleContext { api: context.api.share(role), ..RoleContext::clone(context) };
        let serving = self.context.meter.gauge(&names::ROLE_SERVING, &[("role", role)]);
        let mut pauses = Pauses::default();
        while !term.is_over() {
            let begun = clock.now();
            self.states.enter(role, Phase::Serving, clock.now());
            serving.set(1.0);
            info!(role, term = term.id(), "serving");
            let span = info_span!("role", role);
            let served = AssertUnwindSafe(active.role.serve(&context, term.clone()).instrument(span));
            let result = served.catch_unwind().await.unwrap_or_else(|panic| Err(RoleError::panicked(panic.as_ref())));
            serving.set(0.0);
            let Err(error) = result else { break };
            if let RoleError::TaskEnded(end) = &error {
                count_task_failure(end, &self.context.board, &self.context.meter);
            }
            let pause = pauses.after(clock.now().saturating_duration_since(begun));
            error!(role, error = %ErrorChain(&error), pause = ?pause, "the term ended in an error; serving again after a pause");
            self.context.meter.counter(&names::ROLE_RESTARTS, &[("role", role)]).increment(1);
            self.states.failed(role, error_chain(&error));
            self.states.enter(role, Phase::Restarting, clock.now());
            tokio::select! {
                biased;
                () = term.over() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        info!(role, term = term.id(), "term served");
    }
}

/// The pauses before a role is served again.
#[derive(Debug)]
struct Pauses {
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: FIRST_PAUSE }
    }
}

impl Pauses {
    /// The pause after a failure of a role that was served for this time.
    fn after(&mut self, served: Duration) -> Duration {
        let pause = if served > LONGEST_PAUSE { FIRST_PAUSE } else { self.next };
        self.next = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

/// Counts and shows a task that ended unexpectedly.
pub(super) fn count_task_failure(end: &TaskEnd, board: &Board, meter: &Meter) {
    meter.counter(&names::TASK_FAILURES, &[("task", &end.task)]).increment(1);
    board.task_failed(end);
}

/// Waits until the slot of that name has a role.
async fn occupant(roles: &mut watch::Receiver<ActiveRoles>, name: &str) -> Arc<ActiveRole> {
    loop {
        let found = roles.borrow_and_update().iter().find(|active| active.name == name).cloned();
        if let Some(active) = found {
            return active;
        }
        if roles.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Waits until the slot has another role, or none.
async fn replaced(roles: &mut watch::Receiver<ActiveRoles>, active: &Arc<ActiveRole>) {
    while roles.borrow_and_update().iter().any(|other| Arc::ptr_eq(other, active)) {
        if roles.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Resolves with the reason when the roles can no longer be served with `current`.
async fn driver_changed(
    states: &mut watch::Receiver<DriverState>,
    current: &Arc<Driver>,
    clock: Clock,
) -> &'static str {
    // A new error does not restart the time since the driver is gone.
    let mut gone_since = None;
    loop {
        let state = states.borrow_and_update().clone();
        match state {
            DriverState::Ready(driver) if driver.generation == current.generation => {
                gone_since = None;
                if states.changed().await.is_err() {
                    return "the connection to the driver is no longer watched";
                }
            }
            DriverState::Ready(_) => return "the driver came back with other capabilities",
            DriverState::Connecting { .. } | DriverState::Lost { .. } | DriverState::Fatal(_) => {
                let since = *gone_since.get_or_insert_with(|| clock.now());
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(since + DRIVER_PATIENCE) => return "the driver has been gone for too long",
                    changed = states.changed() => if changed.is_err() {
                        return "the connection to the driver is no longer watched";
                    },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_that_fails_again_and_again_is_served_ever_later_and_one_that_held_out_at_once() {
        let mut pauses = Pauses::default();
        let seconds: Vec<u64> = (0..8).map(|_| pauses.after(Duration::from_secs(2)).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pauses.after(LONGEST_PAUSE), LONGEST_PAUSE, "just about as long as it was waited for");
        assert_eq!(pauses.after(LONGEST_PAUSE + FIRST_PAUSE), FIRST_PAUSE);
        assert_eq!(pauses.after(FIRST_PAUSE), 2 * FIRST_PAUSE);
    }
}
