//! Creates a role's work queues, and shows them on the status board.

use std::sync::Arc;

use tracing::Span;

use crate::diagnostics::{Age, Board, DoneReport, QueueReport, Registered, WorkReport};
use crate::queue::{Backoff, Key, LaneSettings, QueueSettings, WorkQueue};
use crate::roles::role::RoleContext;

/// What a change of an object means for its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Reconcile it now.
    Now,
    /// The object is gone or no longer ours: forget its failures, unless the driver owes an answer for it.
    Forget,
    /// Nothing to do.
    No,
}

/// Creates a queue. `lanes`: name and workers of each lane; `span`: the span of a key from its first add until it
/// settles.
pub fn make<K: Key>(
    cx: &RoleContext,
    name: &str,
    lanes: &[(&str, usize)],
    backoff: Backoff,
    span: impl Fn(&K) -> Span + Send + Sync + 'static,
) -> WorkQueue<K> {
    let lane = |&(name, workers): &(&str, usize)| LaneSettings { name: name.to_owned(), workers };
    let lanes = lanes.iter().map(lane).collect();
    let settings = QueueSettings { name: name.to_owned(), lanes, backoff, span: Some(Arc::new(span)) };
    WorkQueue::new(settings, &cx.meter, cx.clock, cx.rng.clone())
}

/// Shows `queue`, and what was done last, until the returned values are dropped. `title` describes the keys, `subject` the object of a key.
pub fn show<K: Key>(
    board: &Board,
    role: &'static str,
    queue: &WorkQueue<K>,
    title: &'static str,
    subject: impl Fn(&K) -> Option<String> + Send + Sync + 'static,
) -> [Registered; 2] {
    let summary = {
        let queue = queue.clone();
        move || {
            let items = queue.snapshot();
            let running = items.iter().filter(|item| item.running_for.is_some()).count();
            let delayed = items.iter().filter(|item| item.next_run_in.is_some()).count();
            QueueReport {
                name: queue.name().to_owned(),
                title: title.to_owned(),
                depth: items.len() - running - delayed,
                running,
                delayed,
                failing: items.iter().filter(|item| item.attempts > 0 || item.note.is_some()).count(),
                found: items.len(),
                oldest_age: items.iter().map(|item| item.age).max().map(Age),
            }
        }
    };
    let work = {
        let queue = queue.clone();
        move || {
            let report = |item: crate::queue::WorkItem<K>| WorkReport {
                role: role.to_owned(),
                queue: queue.name().to_owned(),
                subject: subject(&item.key),
                key: item.key.to_string(),
                lane: item.lane,
                age: Age(item.age),
                attempts: item.attempts,
                next_try: item.next_run_in.map(Age),
                running: item.running_for.is_some(),
                last_error: item.note,
            };
            queue.snapshot().into_iter().map(report).collect()
        }
    };
    let done = {
        let queue = queue.clone();
        move || {
            let report = |item: crate::queue::DoneItem| DoneReport {
                role: role.to_owned(),
                queue: queue.name().to_owned(),
                key: item.key,
                subject: item.subject,
                what: item.what.to_owned(),
                at: item.at,
                took: Age(item.took),
                attempts: item.attempts,
            };
            queue.done().into_iter().map(report).collect()
        }
    };
    [board.queue(summary, work), board.done(done)]
}
