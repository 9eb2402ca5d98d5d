//! The queue's rules as a synchronous state machine. Pure: the time (since any origin) and the jitter are arguments.
//!
//! ```text
//!            add                    start                  Settled, Forget
//!   absent ───────> Ready (FIFO) ──────────> Running ─────────────────────────> absent
//!                     ▲    ▲                  │ │ ▲      (added meanwhile: Ready)
//!       timer, urgent │    └──────────────────┘ │ └── parked: holds no worker
//!       add, epoch    │     failed, but added   │
//!                  Delayed <────────────────────┘ Retry, RetryAfter, RetryFailedAfter
//! ```
//!
//! `S` is a payload that belongs to a key from its first add until it settles (its tracing span).

use std::collections::BTreeMap;
use std::time::Duration;

use super::backoff::Backoff;
use super::cause::{Activation, Causes, Outcome};
use super::next::Next;

/// Every key that has not settled.
#[derive(Debug)]
pub(super) struct State<K, S> {
    backoff: Backoff,
    lanes: Vec<Lane<K>>,
    items: BTreeMap<K, Item<S>>,
    timers: BTreeMap<(Duration, u64), K>,
    sequence: u64,
    running: usize,
}

#[derive(Debug)]
struct Lane<K> {
    workers: usize,
    busy: usize,
    /// By sequence number: first in, first out, yet a key in the middle can leave.
    ready: BTreeMap<u64, K>,
    /// Parked runs that want a worker again. They come before new runs, because they may hold a lock.
    returning: BTreeMap<u64, K>,
}

#[derive(Debug)]
pub(super) struct Item<S> {
    pub(super) payload: S,
    pub(super) lane: usize,
    pub(super) epoch: u64,
    pub(super) causes: Causes,
    pub(super) failures: u32,
    pub(super) since: Duration,
    pub(super) note: Option<String>,
    pub(super) phase: Phase,
}

#[derive(Debug)]
pub(super) enum Phase {
    Ready { sequence: u64, since: Duration },
    Delayed { at: Duration, sequence: u64 },
    Running(Running),
}

#[derive(Debug)]
pub(super) struct Running {
    run: u64,
    pub(super) since: Duration,
    /// The lane whose worker it holds; the item's may have changed since.
    lane: usize,
    pub(super) slot: Slot,
    forgotten: bool,
    next: Option<Next>,
}

/// Whether a run holds one of its lane's workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Held,
    Parked,
    Returning { sequence: u64 },
}

/// A run to be started.
#[derive(Debug)]
pub(super) struct Start<K, S> {
    pub(super) key: K,
    pub(super) run: u64,
    pub(super) payload: S,
    pub(super) lane: usize,
    pub(super) causes: Causes,
    pub(super) failures: u32,
    pub(super) since: Duration,
    pub(super) waited: Duration,
}

/// What happens to a finished run's key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finish {
    pub(super) worked: Duration,
    pub(super) retried: bool,
}

impl<K: Ord + Clone, S: Clone> State<K, S> {
    pub(super) fn new(workers: impl IntoIterator<Item = usize>, backoff: Backoff) -> Self {
        let mut lanes: Vec<Lane<K>> = workers.into_iter().map(Lane::new).collect();
        if lanes.is_empty() {
            lanes.push(Lane::new(1));
        }
        Self { backoff, lanes, items: BTreeMap::new(), timers: BTreeMap::new(), sequence: 0, running: 0 }
    }

    /// Adds `key`; `payload` is called if the key is new. Returns false for a duplicate without news.
    pub(super) fn add(&mut self, now: Duration, key: K, what: Activation, payload: impl FnOnce() -> S) -> bool {
        let lane = what.lane.min(self.lanes.len() - 1);
        let Some(item) = self.items.get_mut(&key) else {
            self.begin(now, key, Next::new(now, lane, what), payload());
            return true;
        };
        if let Phase::Running(running) = &mut item.phase {
            return Next::add(&mut running.next, item.epoch, now, lane, what);
        }
        let (old_lane, fresh) = (item.lane, item.epoch != what.epoch);
        item.lane = lane;
        if fresh {
            item.payload = payload();
            (item.epoch, item.causes, item.failures) = (what.epoch, what.cause.into(), 0);
            (item.since, item.note) = (now, None);
        } else {
            item.causes = item.causes.union(what.cause.into());
        }
        match item.phase {
            Phase::Ready { sequence, .. } if old_lane != lane => {
                self.lanes[old_lane].ready.remove(&sequence);
                self.make_ready(now, key);
            }
            Phase::Delayed { at, sequence } if fresh || what.cause.is_urgent() => {
                self.timers.remove(&(at, sequence));
                self.make_ready(now, key);
            }
            _ => return fresh,
        }
        true
    }

    /// Drops the pending work of `key`. A run in progress continues, but its outcome is ignored.
    pub(super) fn forget(&mut self, key: &K) {
        let Some(item) = self.items.get_mut(key) else { return };
        match &mut item.phase {
            Phase::Running(running) => {
                running.forgotten = true;
                running.next = None;
                (item.failures, item.note) = (0, None);
                return;
            }
            Phase::Ready { sequence, .. } => {
                self.lanes[item.lane].ready.remove(sequence);
            }
            Phase::Delayed { at, sequence } => {
                self.timers.remove(&(*at, *sequence));
            }
        }
        self.items.remove(key);
    }

    /// Takes the next run that a free worker can start.
    pub(super) fn start(&mut self, now: Duration) -> Option<Start<K, S>> {
        self.fire_timers(now);
        for lane in &mut self.lanes {
            if lane.busy >= lane.workers {
                continue;
            }
            let Some((_, key)) = lane.ready.pop_first() else { continue };
            let Some(item) = self.items.get_mut(&key) else { continue };
            let Phase::Ready { since: ready, .. } = item.phase else { continue };
            lane.busy += 1;
            self.running += 1;
            self.sequence += 1;
            let run = self.sequence;
            item.phase = Phase::Running(Running {
                run,
                since: now,
                lane: item.lane,
                slot: Slot::Held,
                forgotten: false,
                next: None,
            });
            return Some(Start {
                key,
                run,
                payload: item.payload.clone(),
                lane: item.lane,
                causes: item.causes,
                failures: item.failures,
                since: item.since,
                waited: now.saturating_sub(ready),
            });
        }
        None
    }

    /// Gives a free worker to a parked run that asked for one.
    pub(super) fn resume(&mut self) -> Option<K> {
        for lane in &mut self.lanes {
            if lane.busy >= lane.workers {
                continue;
            }
            let Some((_, key)) = lane.returning.pop_first() else { continue };
            let Some(Phase::Running(running)) = self.items.get_mut(&key).map(|item| &mut item.phase) else { continue };
            running.slot = Slot::Held;
            lane.busy += 1;
            return Some(key);
        }
        None
    }

    /// Takes a run's worker away; it waits for something else.
    pub(super) fn park(&mut self, key: &K, run: u64) {
        self.move_slot(key, run, Slot::Parked);
    }

    /// A parked run asks for a worker.
    pub(super) fn ask(&mut self, key: &K, run: u64) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.move_slot(key, run, Slot::Returning { sequence });
    }

    /// A parked run continues without waiting for a worker (its wait was cancelled): the lane is one over its limit
    /// until the run ends.
    pub(super) fn seize(&mut self, key: &K, run: u64) {
        self.move_slot(key, run, Slot::Held);
    }

    fn move_slot(&mut self, key: &K, run: u64, slot: Slot) {
        let Some(running) = self.items.get_mut(key).and_then(|item| item.running(run)) else { return };
        let lane = &mut self.lanes[running.lane];
        lane.leave(running.slot);
        lane.enter(slot, key);
        running.slot = slot;
    }

    /// A run reads now what it decides from. What was added since it began because something had changed is in what it
    /// reads: that would only run the key again without news, and end the back-off if the run fails. Other causes stay, and
    /// another epoch: if the run fails, the failure is the first one of that epoch.
    pub(super) fn observe(&mut self, key: &K, run: u64) {
        let Some(item) = self.items.get_mut(key) else { return };
        let epoch = item.epoch;
        // A forgotten run reads for nothing: its key is still to be run.
        let Some(running) = item.running(run).filter(|running| !running.forgotten) else { return };
        let Some(next) = running.next.as_mut() else { return };
        if next.is_answered_by_a_read(epoch) {
            let lane = next.lane;
            running.next = None;
            item.lane = lane;
        }
    }

    /// Notes what a run last said, for the status page.
    pub(super) fn note(&mut self, key: &K, run: u64, note: String) {
        if let Some(item) = self.items.get_mut(key)
            && item.running(run).is_some_and(|running| !running.forgotten)
        {
            item.note = Some(note);
        }
    }

    /// Ends a run. `jitter` is in `[0, 1)`; `payload` is called if the key was added during the run and starts as new.
    pub(super) fn finish(
        &mut self,
        now: Duration,
        key: &K,
        run: u64,
        outcome: Outcome,
        jitter: f64,
        payload: impl FnOnce() -> S,
    ) -> Option<Finish> {
        let item = self.items.get_mut(key)?;
        let running = item.running(run)?;
        let (slot, lane, forgotten) = (running.slot, running.lane, running.forgotten);
        let (next, worked) = (running.next.take(), now.saturating_sub(running.since));
        self.lanes[lane].leave(slot);
        self.running -= 1;

        let other = next.filter(|next| next.epoch != item.epoch);
        let over = forgotten
            || matches!(outcome, Outcome::Settled | Outcome::Forget)
            || other.is_some_and(|next| !next.is_read);
        if over {
            self.items.remove(key);
            if let Some(next) = next {
                self.begin(now, key.clone(), next, payload());
            }
            return Some(Finish { worked, retried: false });
        }

        if let Some(next) = other {
            (item.payload, item.epoch, item.failures, item.since) = (payload(), next.epoch, 0, next.since);
        }
        let delay = if let Outcome::RetryAfter(delay) = outcome {
            delay
        } else if outcome == Outcome::Interrupted {
            // The term may resume only later, and the queue may not be stopped yet: without a delay, the run would
            // repeat again and again.
            self.backoff.delay(1, None, jitter)
        } else {
            item.failures = item.failures.saturating_add(1);
            let cap = if let Outcome::Retry { cap } = outcome { cap } else { None };
            let delay = self.backoff.delay(item.failures, cap, jitter);
            match outcome {
                Outcome::RetryNoSooner(asked) => delay.max(asked),
                Outcome::RetryFailedAfter(delay) => delay,
                _ => delay,
            }
        };
        let urgent = next.is_some_and(|next| next.urgent && !next.is_read);
        if let Some(next) = next {
            item.causes = item.causes.union(next.causes);
            item.lane = next.lane;
        }
        if urgent {
            self.make_ready(now, key.clone());
        } else {
            self.sequence += 1;
            let (at, sequence) = (now.saturating_add(delay), self.sequence);
            item.phase = Phase::Delayed { at, sequence };
            self.timers.insert((at, sequence), key.clone());
        }
        Some(Finish { worked, retried: outcome != Outcome::Interrupted })
    }

    fn begin(&mut self, now: Duration, key: K, next: Next, payload: S) {
        let item = Item {
            payload,
            lane: next.lane,
            epoch: next.epoch,
            causes: next.causes,
            failures: 0,
            since: next.since,
            note: None,
            phase: Phase::Ready { sequence: 0, since: now },
        };
        self.items.insert(key.clone(), item);
        self.make_ready(now, key);
    }

    fn make_ready(&mut self, now: Duration, key: K) {
        let Some(item) = self.items.get_mut(&key) else { return };
        self.sequence += 1;
        item.phase = Phase::Ready { sequence: self.sequence, since: now };
        self.lanes[item.lane].ready.insert(self.sequence, key);
    }

    fn fire_timers(&mut self, now: Duration) {
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now
        {
            let key = entry.remove();
            self.make_ready(now, key);
        }
    }

    /// When the next delay ends.
    pub(super) fn next_timer(&self) -> Option<Duration> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Runs in progress, parked ones included.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Keys that wait for a worker.
    pub(super) fn depth(&self) -> usize {
        self.lanes.iter().map(|lane| lane.ready.len()).sum()
    }

    /// Every key that has not settled, in the order of keys.
    pub(super) fn items(&self) -> impl Iterator<Item = (&K, &Item<S>)> {
        self.items.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl<K: Clone> Lane<K> {
    fn new(workers: usize) -> Self {
        Self { workers: workers.max(1), busy: 0, ready: BTreeMap::new(), returning: BTreeMap::new() }
    }

    fn leave(&mut self, slot: Slot) {
        match slot {
            Slot::Held => self.busy -= 1,
            Slot::Parked => {}
            Slot::Returning { sequence } => {
                self.returning.remove(&sequence);
            }
        }
    }

    fn enter(&mut self, slot: Slot, key: &K) {
        match slot {
            Slot::Held => self.busy += 1,
            Slot::Parked => {}
            Slot::Returning { sequence } => {
                self.returning.insert(sequence, key.clone());
            }
        }
    }
}

impl<S> Item<S> {
    /// The run in progress, if it is this one.
    fn running(&mut self, run: u64) -> Option<&mut Running> {
        match &mut self.phase {
            Phase::Running(running) if running.run == run => Some(running),
            _ => None,
        }
    }
}
