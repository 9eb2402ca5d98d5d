//! Writes Kubernetes Events, without ever delaying the work.
//!
//! [`EventRecorder::record`] only notes an Event; one task writes a few Events per second. The Events are core/v1 with
//! a count, as the Go components write them: the same RBAC, the same output in `kubectl describe`. Right before each
//! write the task checks whether we still lead.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::fmt::temporal::DateTimePrinter;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use super::api::Api;
use super::error::{ApiError, ApiErrorKind};
use super::event_book::{
    Entry, EventBook, EventKind, EventPriority, EventTarget, Key, Next, Noted, RECOUNT, RECOUNT_SOON,
};
use super::names::ObjectName;
use super::patch::{MESSAGE_LIMIT, Patch, truncate_message};
use super::rbac::Rule;
use crate::process::{Clock, ErrorChain, Permit, Rng};
use crate::telemetry::{Meter, names as metric};

/// Pause between two writes: at most ten per second.
const PACE: Duration = Duration::from_millis(100);

/// Who says it.
#[derive(Debug, Clone)]
pub struct EventSource {
    /// The component: what `kubectl describe` shows behind `From`.
    pub component: String,
    /// This process.
    pub instance: String,
}

/// Notes Events and writes them. Clones share the notes, the pace and the rate limits, even for another component.
#[derive(Clone)]
pub struct EventRecorder {
    component: Arc<str>,
    /// Pause between two writes of one Event's count.
    recount: Duration,
    inner: Arc<Inner>,
}

struct Inner {
    api: Api,
    instance: String,
    meter: Meter,
    clock: Clock,
    rng: Rng,
    start: Instant,
    book: Mutex<EventBook<Permit>>,
    news: Notify,
}

impl EventRecorder {
    /// A recorder that writes through `api` while [`run`](Self::run) runs.
    pub fn new(api: Api, source: EventSource, meter: Meter, clock: Clock, rng: Rng) -> Self {
        let (book, news) = (Mutex::new(EventBook::new()), Notify::new());
        let EventSource { component, instance } = source;
        let inner = Arc::new(Inner { api, instance, meter, clock, rng, start: clock.now(), book, news });
        Self { component: component.into(), recount: RECOUNT, inner }
    }

    /// The same recorder for another component of this process.
    #[must_use]
    pub fn of_component(&self, component: &str) -> Self {
        Self { component: component.into(), ..self.clone() }
    }

    /// The same recorder for a role that writes an Event for every attempt: their count is written every ten seconds, and not
    /// every five minutes.
    #[must_use]
    pub fn counting_soon(&self) -> Self {
        Self { recount: RECOUNT_SOON, ..self.clone() }
    }

    /// The rights that writing Events needs.
    pub fn rule() -> Rule {
        Rule::cluster("", "events", &["create", "patch"], "write Events about failures and recoveries")
    }

    /// Notes an Event. Never waits.
    pub fn record(&self, target: &EventTarget, kind: EventKind, reason: &str, note: &str, permit: Permit) {
        self.record_with((kind, EventPriority::Usual, self.recount), target, reason, note, permit);
    }

    /// Notes an Event that only a person who watches one object misses. It is written after all others, or dropped if more than a
    /// few dozen wait.
    pub fn record_low(&self, target: &EventTarget, kind: EventKind, reason: &str, note: &str, permit: Permit) {
        self.record_with((kind, EventPriority::Low, self.recount), target, reason, note, permit);
    }

    /// Notes an Event that tells how things are, and not that something has happened: the next process, which sees the same, writes no
    /// second one.
    pub fn record_standing(&self, target: &EventTarget, kind: EventKind, reason: &str, note: &str, permit: Permit) {
        self.record_with((kind, EventPriority::Standing, self.recount), target, reason, note, permit);
    }

    fn record_with(
        &self,
        kind: (EventKind, EventPriority, Duration),
        target: &EventTarget,
        reason: &str,
        note: &str,
        permit: Permit,
    ) {
        let note = truncate_message(note, MESSAGE_LIMIT).into_owned();
        let component = Arc::clone(&self.component);
        let key = Key { component, uid: target.uid.clone(), reason: reason.to_owned(), note };
        let (now, wall) = (self.now(), self.inner.clock.wall());
        match self.book().note(key, target, kind, permit, now, wall) {
            Noted::Owed | Noted::Counted => self.inner.news.notify_one(),
            Noted::Dropped => self.count(reason, "dropped"),
        }
    }

    /// Writes noted Events, forever.
    pub async fn run(self) {
        loop {
            let next = self.book().next(self.now());
            match next {
                Next::Write(key) => {
                    self.write(&key).await;
                    sleep(PACE).await;
                }
                Next::WaitUntil(due) => tokio::select! {
                    biased;
                    () = self.inner.news.notified() => {}
                    () = sleep_until(self.inner.start + due) => {}
                },
                Next::Nothing => self.inner.news.notified().await,
            }
        }
    }

    async fn write(&self, key: &Key) {
        let Some(entry) = self.book().get(key).cloned() else { return };
        if !(entry.permit)() {
            self.book().forget(key);
            self.count(&key.reason, "dropped");
            return;
        }
        let (outcome, name, result) = if let Some((name, _)) = &entry.written {
            let count = json!({ "count": entry.seen, "lastTimestamp": seconds(entry.last) });
            (self.inner.api.patch_event(name, &Patch::Merge(count)).await, name.clone(), "counted")
        } else {
            let is_standing = entry.priority == EventPriority::Standing;
            let suffix = if is_standing {
                standing(key)
            } else {
                format!("{}{}", self.inner.rng.suffix(), self.inner.rng.suffix())
            };
            // An object's name has at most 253 characters, and no two dots in a row.
            let stem: String = entry.target.name.chars().take(230).collect();
            let stem = stem.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            let name = ObjectName::namespaced(entry.namespace(), format!("{stem}.{suffix}"));
            match self.inner.api.create_event(&name, &self.event(key, &entry, &name)).await {
                // An earlier process has written it.
                Err(error) if is_standing && error.kind() == ApiErrorKind::Conflict => {
                    let again = json!({ "lastTimestamp": seconds(entry.last) });
                    (self.inner.api.patch_event(&name, &Patch::Merge(again)).await, name, "counted")
                }
                outcome => (outcome, name, "written"),
            }
        };
        match outcome {
            Ok(()) => {
                self.book().wrote(key, name, entry.seen, self.now());
                self.count(&key.reason, result);
            }
            Err(error) => self.write_failed(key, &error),
        }
    }

    fn write_failed(&self, key: &Key, error: &ApiError) {
        let is_of_namespace = error.is_of_ending_namespace();
        if error.kind() == ApiErrorKind::Forbidden && !is_of_namespace {
            // A warning, because a user can fix this failure and sees it nowhere else.
            warn!(reason = key.reason, error = %ErrorChain(error), "cannot write an event");
        } else {
            debug!(reason = key.reason, error = %ErrorChain(error), "cannot write an event");
        }
        if error.kind() == ApiErrorKind::NotFound
            && !is_of_namespace
            && self.book().get(key).is_some_and(|entry| entry.written.is_some())
        {
            self.book().vanished(key);
            return;
        }
        let again = error.is_transient() && self.book().failed(key, error.retry_after(), self.now());
        if !again {
            self.book().forget(key);
            self.count(&key.reason, "failed");
        }
    }

    fn event(&self, key: &Key, entry: &Entry<Permit>, name: &ObjectName) -> Value {
        let target = &entry.target;
        let mut involved = json!({
            "apiVersion": target.api_version, "kind": target.kind, "name": target.name, "uid": target.uid,
        });
        if let Some(namespace) = &target.namespace {
            involved["namespace"] = json!(namespace);
        }
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name.name(), "namespace": name.namespace() },
            "involvedObject": involved,
            "type": entry.kind.as_str(),
            "reason": key.reason,
            "message": key.note,
            "source": { "component": &*key.component },
            "reportingComponent": &*key.component,
            "reportingInstance": self.inner.instance,
            "firstTimestamp": seconds(entry.first),
            "lastTimestamp": seconds(entry.last),
            "count": entry.seen,
        })
    }

    fn book(&self) -> MutexGuard<'_, EventBook<Permit>> {
        self.inner.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.inner.clock.now().duration_since(self.inner.start)
    }

    fn count(&self, reason: &str, result: &str) {
        self.inner.meter.counter(&metric::EVENTS, &[("reason", reason), ("result", result)]).increment(1);
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder").field("component", &self.component).finish_non_exhaustive()
    }
}

/// The end of the name of an Event that tells how things are: the same for the same key.
fn standing(Key { component, uid, reason, note }: &Key) -> String {
    let digest = Sha256::digest([&**component, &**uid, &**reason, &**note].join("\n"));
    format!("{:016x}", digest.iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// RFC 3339 to the second, as `metav1.Time` is.
fn seconds(time: jiff::Timestamp) -> String {
    DateTimePrinter::new().precision(Some(0)).timestamp_to_string(&time)
}
