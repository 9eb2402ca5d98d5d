//! Lets no more calls of an RPC to the driver at once than its [`Limit`] says. The other calls wait in their order; their deadlines begin
//! when they are sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
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
    /// Whether the metric has a series: only once the calls were limited.
    is_shown: bool,
}

/// Whose calls are limited, and where the metric of the limit goes.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) driver: Arc<str>,
    pub(super) meter: Meter,
}

/// Lets one call be made. Dropping it says that the call was not made, or broke off.
#[derive(Debug)]
pub(super) struct Pass {
    limiter: Arc<Limiter>,
    shown: Shown,
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
        let mut limiters = self.0.lock();
        Arc::clone(limiters.entry(method).or_insert_with(|| Arc::new(Limiter::new(method, bounds, clock))))
    }

    /// The RPCs that are limited, or whose calls wait.
    pub(super) fn activity(&self) -> Vec<CallActivity> {
        let limiters = self.0.lock();
        let activity = limiters.values().map(|limiter| limiter.activity());
        activity.filter(|it| it.limit.is_some() || it.waiting > 0).collect()
    }
}

impl Limiter {
    fn new(method: &'static str, bounds: Bounds, clock: Clock) -> Self {
        let limit = Limit::new(bounds);
        let state = State { limit, waiting: VecDeque::new(), last_refusal: None, since: clock.now(), is_shown: false };
        Self { method, clock, state: Mutex::new(state) }
    }

    /// Waits until a call may be made.
    pub(super) async fn pass(self: &Arc<Self>, bounds: Bounds, shown: &Shown) -> Pass {
        loop {
            let turn = {
                let mut state = self.state.lock();
                let before = state.standing();
                state.limit.set_bounds(bounds);
                let (sender, turn) = oneshot::channel();
                state.waiting.push_back(sender);
                self.admit_waiting(&mut state, shown);
                self.show(&mut state, before, shown);
                turn
            };
            // The sender is kept until it has sent.
            if let Ok(pass) = turn.await {
                return pass;
            }
        }
    }

    /// Lets calls begin that have waited, as many as there is room for.
    fn admit_waiting(self: &Arc<Self>, state: &mut State, shown: &Shown) {
        while state.limit.has_room() {
            let Some(waiting) = state.waiting.pop_front() else { return };
            if waiting.is_closed() {
                continue;
            }
            let at = self.clock.now();
            let (limiter, shown) = (Arc::clone(self), shown.clone());
            let pass = Pass { limiter, shown, began: state.limit.begin(at), at, is_open: true };
            if let Err(mut refused) = waiting.send(pass) {
                // Its caller has gone away just now. Its own end would wait for the state that is held here.
                refused.is_open = false;
                state.limit.end(refused.began, Ending::Untold, 0.0, refused.at);
            }
        }
    }

    /// A call has ended so, after this share of its deadline.
    fn end(self: &Arc<Self>, pass: &Pass, ending: Ending, code: Code, share: f64) {
        let mut state = self.state.lock();
        let before = state.standing();
        if matches!(ending, Ending::Refused | Ending::TimedOut) {
            state.last_refusal = Some(code);
        }
        state.limit.end(pass.began, ending, share, self.clock.now());
        self.admit_waiting(&mut state, &pass.shown);
        self.show(&mut state, before, &pass.shown);
    }

    /// Shows in the metric and the log what has changed since the limit stood so.
    fn show(&self, state: &mut State, (was, was_limited): (u32, bool), Shown { driver, meter }: &Shown) {
        let (method, (at, is_limited)) = (self.method, state.standing());
        if at == was {
            return;
        }
        state.since = self.clock.now();
        state.is_shown |= is_limited;
        if state.is_shown {
            meter.gauge(&names::RPC_LIMIT, &[("driver_name", driver), ("method_name", method)]).set(f64::from(at));
        }
        let refusal = state.last_refusal.map(code_name);
        match (was_limited, is_limited) {
            (false, true) => {
                warn!(
                    method,
                    refusal, was, at, "the driver refuses calls or misses their deadlines: fewer are made at once"
                );
            }
            (true, false) => info!(method, at, "as many calls are made to the driver at once as are allowed"),
            _ => {}
        }
    }

    fn activity(&self) -> CallActivity {
        let state = self.state.lock();
        CallActivity {
            method: self.method,
            limit: state.limit.is_limited().then(|| state.limit.at()),
            limited_for: self.clock.now().saturating_duration_since(state.since),
            last_refusal: state.last_refusal.map(code_name),
            in_flight: state.limit.in_flight(),
            waiting: state.waiting.iter().filter(|waiting| !waiting.is_closed()).count(),
        }
    }
}

impl State {
    /// How many calls may be in flight at once, and whether those are fewer than the configuration allows.
    fn standing(&self) -> (u32, bool) {
        (self.limit.at(), self.limit.is_limited())
    }
}

impl Pass {
    /// The call has ended so, with this deadline. `said` is what the driver itself has sent.
    pub(super) fn end(mut self, code: Code, said: Option<Code>, deadline: Duration) {
        self.is_open = false;
        let took = self.limiter.clock.now().saturating_duration_since(self.at);
        let share = took.as_secs_f64() / deadline.as_secs_f64();
        self.limiter.end(&self, Ending::of(code, said), code, share);
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
