//! One queue's figures, under the names that client-go gives them.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use super::state::{Phase, State};
use crate::telemetry::{Meter, names, show_count};

/// The series of one queue.
pub(super) struct QueueMetrics {
    pub(super) adds: Counter,
    pub(super) retries: Counter,
    pub(super) wait: Histogram,
    pub(super) work: Histogram,
    pub(super) lost_runs: Counter,
    depth: Gauge,
    unfinished: Gauge,
    longest: Gauge,
    oldest: Gauge,
}

/// What a look at every key found.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ages {
    /// Since the oldest key that has not settled was added.
    pub(super) oldest: Duration,
    /// The longest that a key has been waiting for a worker.
    pub(super) longest_wait: Duration,
    unfinished: Duration,
    longest_run: Duration,
}

impl QueueMetrics {
    pub(super) fn new(meter: &Meter, name: &str) -> Self {
        let labels: &[(&'static str, &str)] = &[("name", name)];
        Self {
            adds: meter.counter(&names::QUEUE_ADDS, labels),
            retries: meter.counter(&names::QUEUE_RETRIES, labels),
            wait: meter.histogram(&names::QUEUE_WAIT, labels),
            work: meter.histogram(&names::QUEUE_WORK, labels),
            lost_runs: meter.counter(&names::TASK_FAILURES, &[("task", name)]),
            depth: meter.gauge(&names::QUEUE_DEPTH, labels),
            unfinished: meter.gauge(&names::QUEUE_UNFINISHED, labels),
            longest: meter.gauge(&names::QUEUE_LONGEST, labels),
            oldest: meter.gauge(&names::QUEUE_OLDEST, labels),
        }
    }

    /// Cheap: after every change.
    pub(super) fn show_depth(&self, depth: usize) {
        show_count(&self.depth, depth);
    }

    /// A walk over every key: once a tick, and when the queue has run dry.
    pub(super) fn show_ages<K: Ord + Clone, S: Clone>(&self, state: &State<K, S>, now: Duration) -> Ages {
        let mut ages = Ages::default();
        for (_, item) in state.items() {
            ages.oldest = ages.oldest.max(now.saturating_sub(item.since));
            match &item.phase {
                Phase::Ready { since, .. } => ages.longest_wait = ages.longest_wait.max(now.saturating_sub(*since)),
                Phase::Running(running) => {
                    let age = now.saturating_sub(running.since);
                    ages.unfinished += age;
                    ages.longest_run = ages.longest_run.max(age);
                }
                Phase::Delayed { .. } => {}
            }
        }
        self.oldest.set(ages.oldest.as_secs_f64());
        self.unfinished.set(ages.unfinished.as_secs_f64());
        self.longest.set(ages.longest_run.as_secs_f64());
        ages
    }
}

impl Drop for QueueMetrics {
    /// A queue lives for a term. What it last showed is not true of a replica that no longer leads.
    fn drop(&mut self) {
        for gauge in [&self.depth, &self.unfinished, &self.longest, &self.oldest] {
            gauge.set(0.0);
        }
    }
}
