//! The roles that work without the cluster: each is a task from the daemon's start to its end.
//!
//! They wait neither for the driver nor for a Lease, and nothing that happens to the roles of the cluster ends them. A change of the
//! configuration reaches only the roles whose sections changed. A role that can takes over its new section while it is served. Any
//! other role ends, and its successor begins after that, because both may need the same port or file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt as _;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info_span};

use crate::process::{TaskEnd, TaskEnds, TaskFate, Tasks};
use crate::roles::{LocalContext, LocalRole};

use super::lease_group::count_task_failure;
use super::role_states::{Phase, RoleStates};
use super::serving::{Serving, Span};

/// The scope of their tasks.
const SCOPE: &str = "local";

/// A local role that is enabled, loaded, and not served yet.
pub(super) struct LoadedLocal {
    pub(super) name: &'static str,
    pub(super) section: Value,
    pub(super) role: Arc<dyn LocalRole>,
}

/// A local role in progress.
struct Running {
    role: Arc<dyn LocalRole>,
    stop: CancellationToken,
}

/// The local roles in progress.
pub(super) struct LocalRoles {
    context: LocalContext,
    states: RoleStates,
    stop: CancellationToken,
    running: BTreeMap<&'static str, Running>,
    /// Each begins when the role of its name has ended.
    next: BTreeMap<&'static str, LoadedLocal>,
    tasks: Tasks,
    ends: TaskEnds,
}

impl LocalRoles {
    /// None yet. All end with `stop`.
    pub(super) fn new(context: LocalContext, states: RoleStates, stop: &CancellationToken) -> Self {
        let (tasks, ends) = Tasks::new(SCOPE);
        context.board.tasks(tasks.view()).forever();
        let (running, next) = (BTreeMap::new(), BTreeMap::new());
        Self { context, states, stop: stop.child_token(), running, next, tasks, ends }
    }

    /// Ends the roles in `without`, and begins these or puts them in the place of their predecessors. Returns the roles that have
    /// taken over their sections without an end.
    pub(super) fn change(
        &mut self,
        without: impl IntoIterator<Item = &'static str>,
        with: Vec<LoadedLocal>,
    ) -> BTreeSet<&'static str> {
        for name in without {
            self.next.remove(name);
            if let Some(running) = self.running.get(name) {
                running.stop.cancel();
            }
        }
        let mut served_on = BTreeSet::new();
        for loaded in with {
            match self.running.get(loaded.name) {
                Some(Running { role, stop }) if !stop.is_cancelled() && role.take_over(&loaded.section) => {
                    served_on.insert(loaded.name);
                }
                Some(running) => {
                    running.stop.cancel();
                    self.next.insert(loaded.name, loaded);
                }
                None => self.begin(loaded),
            }
        }
        served_on
    }

    fn begin(&mut self, LoadedLocal { name, role, .. }: LoadedLocal) {
        let stop = self.stop.child_token();
        let (context, states, ends) = (self.context.clone(), self.states.clone(), stop.clone());
        self.running.insert(name, Running { role: Arc::clone(&role), stop });
        self.tasks.spawn(name, async move {
            let serving =
                Serving { states: &states, board: &context.board, meter: &context.meter, clock: context.clock };
            let serve = || role.serve(&context, ends.clone()).instrument(info_span!("role", role = name));
            serving.until_over(name, &ends, serve).await;
            states.enter(name, Phase::Stopped, context.clock.now());
        });
    }

    /// Waits for a role to end that should. `Err`: it ended unexpectedly. May be dropped and called again.
    pub(super) async fn ended(&mut self) -> Result<(), TaskEnd> {
        let Some(end) = self.ends.next().await else { return std::future::pending().await };
        let name = self.running.keys().copied().find(|name| end.task == format!("{SCOPE}.{name}"));
        let wanted = name.and_then(|name| self.running.remove(name)).is_some_and(|running| running.stop.is_cancelled());
        if !wanted || end.fate != TaskFate::Returned {
            count_task_failure(&end, &self.context.board, &self.context.meter);
            return Err(end);
        }
        let next = name.and_then(|name| self.next.remove(name)).filter(|_| !self.stop.is_cancelled());
        match (next, name) {
            (Some(next), _) => self.begin(next),
            // Removed by the configuration: not shown any more.
            (None, Some(name)) if !self.stop.is_cancelled() => self.states.forget(name),
            (None, _) => {}
        }
        Ok(())
    }

    /// Ends all of them.
    pub(super) async fn end(&mut self) {
        self.stop.cancel();
        while !self.running.is_empty() {
            // Counted and shown; the daemon ends in any case.
            let _ = self.ended().await;
        }
    }
}

/// A local role is served until its token is cancelled.
impl Span for CancellationToken {
    fn number(&self) -> u64 {
        0
    }

    fn is_over(&self) -> bool {
        self.is_cancelled()
    }

    fn over(&self) -> impl Future<Output = ()> + Send {
        self.cancelled().map(|()| ())
    }
}
