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
use std::sync::Arc;
use std::time::Duration;

use crate::process::watch;
use futures::future::{join, join_all};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error, info, info_span, warn};

use crate::cluster::WatchHandle;
use crate::csi::{Driver, DriverState};
use crate::diagnostics::Board;
use crate::election::{Elector, Gate, LeaseSettings, Term};
use crate::process::{Clock, ErrorChain, TaskEnd};
use crate::roles::{Expectation, ROLES, Role, RoleContext};
use crate::telemetry::{Meter, names};

use super::driver_object::DriverObject;
use super::role_states::{Phase, RoleStates};
use super::serving::{Serving, Span};

/// How long a leader whose driver is gone keeps the Lease. A driver's restart takes seconds; after that, a replica with
/// a working driver should lead (attacher R29).
const DRIVER_PATIENCE: Duration = Duration::from_secs(30);

/// A role that is enabled, loaded, and served again and again.
pub(super) struct ActiveRole {
    pub(super) name: &'static str,
    pub(super) role: Box<dyn Role>,
    /// When one of these roles is added or removed, this role must be loaded again.
    pub(super) depends_on: BTreeSet<&'static str>,
    /// What it expects of the driver's `CSIDriver` object.
    pub(super) expectation: Option<Expectation>,
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
    pub(super) driver_object: DriverObject,
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
            Ok(elector) => elector.with_outage(self.context.api.outage()),
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

    /// A slot for every role of the cluster that there could be, until `closed`: most are empty.
    async fn slots(&self, context: &RoleContext, gate: impl Fn() -> Gate, closed: &CancellationToken) {
        let roles = ROLES.iter().filter_map(|role| Some((role.name, role.cluster()?)));
        join_all(roles.map(|(name, role)| self.slot(name, context.of_role(role), gate(), closed))).await;
    }

    /// Serves the role in the slot, term after term, until the gate closes.
    async fn slot(&self, name: &'static str, context: RoleContext, mut gate: Gate, closed: &CancellationToken) {
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
        let context = RoleContext { api: context.api.share(active.name), ..RoleContext::clone(context) };
        let Self { states, context: RoleContext { board, meter, clock, .. }, .. } = self;
        let serving = Serving { states, board, meter, clock: *clock };
        let serve = || active.role.serve(&context, term.clone()).instrument(info_span!("role", role = active.name));
        let told = async {
            match &active.expectation {
                Some(expectation) => self.driver_object.tell(active.name, expectation, &context, term).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = serving.until_over(active.name, term, serve) => {}
            () = told => {}
        }
    }
}

/// A role of the cluster is served for a term.
impl Span for Term {
    fn number(&self) -> u64 {
        self.id()
    }

    fn is_over(&self) -> bool {
        Self::is_over(self)
    }

    fn over(&self) -> impl Future<Output = ()> + Send {
        Self::over(self)
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
