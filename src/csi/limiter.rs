//! Lets no more calls of an RPC to the driver at once than its [`Limit`] says. The others wait in their order; no deadline runs
//! meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Code;
use tracing::{info, warn};

use super::error::code_name;
use super::limit::{Began, Bounds, Ending, Limit};
use crate::process::Clock;
use crate::telemetry::{Meter, names};

/// The limiters of the RPCs that work at the driver.
#[derive(Debug, Default)]
pub(super) struct Limiters(Mutex<BTreeMap<&'static str, Arc<Limiter>>>);

/// The calls of one RPC.
#[derive(Debug)]
pub(super) struct Limiter {
    /// The RPC's path.
    method: &'static str,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: Limit,
    waiting: VecDeque<oneshot::Sender<Pass>>,
    /// How the last call ended that the driver refused.
    last_refusal: Option<Code>,
    /// Since when the limit is what it is.
    since: Instant,
}

/// Lets one call be made. Dropping it says that the call was not made, or broke off.
#[derive(Debug)]
pub(super) struct Pass {
    limiter: Arc<Limiter>,
    began: Began,
    at: Instant,
    /// Not once the limiter knows the end.
    is_open: bool,
}

/// The calls of one RPC, for the status page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallActivity {
    /// The RPC's path.
    pub method: &'static str,
    /// How many calls may be in flight at once. `None`: as many as the configuration allows.
    pub limit: Option<u32>,
    /// For how long that has been so.
    pub limited_for: Duration,
    /// How the last call ended that the driver refused, or did not answer in time.
    pub last_refusal: Option<&'static str>,
    /// How many calls are in flight.
    pub in_flight: u32,
    /// How many calls wait.
    pub waiting: usize,
}

impl Limiters {
    /// The limiter of the RPC with this path.
    pub(super) fn of(&self, method: &'static str, bounds: Bounds, clock: Clock) -> Arc<Limiter> {
        let mut limiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(limiters.entry(method).or_insert_with(|| Arc::new(Limiter::new(method, bounds, clock))))
    }

    /// The RPCs that are limited, or whose calls wait.
    pub(super) fn activity(&self) -> Vec<CallActivity> {
        let limiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let activity = limiters.values().map(|limiter| limiter.activity());
        activity.filter(|it| it.limit.is_some() || it.waiting > 0).collect()
    }
}

impl Limiter {
    fn new(method: &'static str, bounds: Bounds, clock: Clock) -> Self {
        let state =
            State { limit: Limit::new(bounds), waiting: VecDeque::new(), last_refusal: None, since: clock.now() };
        Self { method, clock, state: Mutex::new(state) }
    }

    /// Waits until a call may be made.
    pub(super) async fn pass(self: &Arc<Self>, bounds: Bounds) -> Pass {
        loop {
            let turn = {
                let mut state = self.state();
                state.limit.set_bounds(bounds);
                if state.waiting.is_empty() && state.limit.has_room() {
                    return self.admit(&mut state);
                }
                let (sender, turn) = oneshot::channel();
                state.waiting.push_back(sender);
                self.admit_waiting(&mut state);
                turn
            };
            // The sender is kept until it has sent.
            if let Ok(pass) = turn.await {
                return pass;
            }
        }
    }

    fn admit(self: &Arc<Self>, state: &mut State) -> Pass {
        let at = self.clock.now();
        Pass { limiter: Arc::clone(self), began: state.limit.begin(at), at, is_open: true }
    }

    /// Lets calls begin that have waited, as many as there is room for.
    fn admit_waiting(self: &Arc<Self>, state: &mut State) {
        while state.limit.has_room() {
            let Some(waiting) = state.waiting.pop_front() else { return };
            if waiting.is_closed() {
                continue;
            }
            let pass = self.admit(state);
            if let Err(mut refused) = waiting.send(pass) {
                // Its caller has gone away just now. Its own end would wait for the state that is held here.
                refused.is_open = false;
                state.limit.end(refused.began, Ending::Untold, 0.0, refused.at);
            }
        }
    }

    fn end(self: &Arc<Self>, pass: &Pass, ending: Ending, code: Code, share: f64) -> Option<Change> {
        let now = self.clock.now();
        let mut state = self.state();
        let (was, was_limited) = (state.limit.at(), state.limit.is_limited());
        if matches!(ending, Ending::Refused | Ending::TimedOut) {
            state.last_refusal = Some(code);
        }
        state.limit.end(pass.began, ending, share, now);
        self.admit_waiting(&mut state);
        let at = state.limit.at();
        if at == was {
            return None;
        }
        state.since = now;
        Some(Change { was, was_limited, at, is_limited: state.limit.is_limited(), last_refusal: state.last_refusal })
    }

    fn activity(&self) -> CallActivity {
        let state = self.state();
        CallActivity {
            method: self.method,
            limit: state.limit.is_limited().then(|| state.limit.at()),
            limited_for: self.clock.now().saturating_duration_since(state.since),
            last_refusal: state.last_refusal.map(code_name),
            in_flight: state.limit.in_flight(),
            waiting: state.waiting.iter().filter(|waiting| !waiting.is_closed()).count(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A limit has changed.
struct Change {
    was: u32,
    was_limited: bool,
    at: u32,
    is_limited: bool,
    last_refusal: Option<Code>,
}

impl Pass {
    /// The call has ended so, with this deadline. `said` is what the driver itself has sent.
    pub(super) fn end(mut self, code: Code, said: Option<Code>, deadline: Duration, driver: &str, meter: &Meter) {
        self.is_open = false;
        let took = self.limiter.clock.now().saturating_duration_since(self.at);
        let share = took.as_secs_f64() / deadline.as_secs_f64();
        let Some(change) = self.limiter.end(&self, Ending::of(code, said), code, share) else { return };
        let method = self.limiter.method;
        let labels = [("driver_name", driver), ("method_name", method)];
        meter.gauge(&names::RPC_LIMIT, &labels).set(f64::from(change.at));
        match (change.was_limited, change.is_limited) {
            (false, true) => {
                let refusal = change.last_refusal.map(code_name);
                let (was, at) = (change.was, change.at);
                warn!(method, refusal, was, at, "the driver refuses calls: fewer are made at once");
            }
            (true, false) => {
                info!(method, at = change.at, "as many calls are made to the driver at once as are allowed");
            }
            _ => {}
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.is_open {
            self.limiter.end(self, Ending::Untold, Code::Cancelled, 0.0);
        }
    }
}

#[cfg(test)]
#[path = "limiter_tests.rs"]
mod tests;
