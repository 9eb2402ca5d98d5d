//! A watch: the current objects, then the events, until its timeout.
//!
//! A watch has no queue: it remembers the last sent version and reads on in the store's history. A slow client costs
//! nothing; if the history is compacted in the meantime, it gets `410 Gone`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use base::process::watch;
use futures::stream;
use http::{Response, StatusCode};
use hyper::body::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::accept::View;
use super::present::{Presenter, answer};
use super::{Order, Surroundings};
use crate::api::Api;
use crate::api::faults::{WatchEnd, WatchPlan};
use crate::api::params::Version;
use crate::api::pure::rejection::Rejection;
use crate::api::pure::selector::{Fields, Labels};
use crate::api::store::{Event, kind, meta};

/// Events that go into one chunk of the answer.
const BATCH: usize = 256;
/// The duration of a watch without a timeout: at random up to twice this, so that not all end together.
const LONGEST: Duration = Duration::from_secs(1800);
/// So long before its end a watch gets a last bookmark.
const FAREWELL: Duration = Duration::from_secs(2);

struct Watch {
    api: Api,
    order: Order,
    presenter: Presenter,
    labels: Labels,
    fields: Fields,
    /// The last version that was sent.
    cursor: u64,
    initial: VecDeque<Arc<Value>>,
    /// Whether the end of the initial objects must still be sent.
    announce: bool,
    next_bookmark: Option<Instant>,
    deadline: Instant,
    /// Faults up to here don't concern this watch.
    position: u64,
    versions: watch::Receiver<u64>,
    faults: watch::Receiver<u64>,
    surroundings: Surroundings,
    ended: bool,
}

/// The next thing to send.
enum Step {
    Send(Vec<u8>),
    /// Nothing, until this moment if events are delayed.
    Wait(Option<Instant>),
}

#[derive(Serialize)]
struct Envelope<'a> {
    r#type: &'static str,
    object: &'a Value,
}

/// Begins a watch.
pub(super) async fn start(
    api: &Api,
    order: &Order,
    presenter: Presenter,
    surroundings: &Surroundings,
) -> Result<Response<Body>, Rejection> {
    let (labels, fields) = order.selectors()?;
    let params = &order.call.params;
    let begins_with_all = match (params.send_initial_events, params.version) {
        (Some(wanted), _) => wanted,
        (None, version) => !matches!(version, Version::At(_)),
    };
    if let Version::At(version) = params.version
        && begins_with_all
        && let Err(rejection) = api.reach(version).await
    {
        // Once a watch is permitted, its errors are sent as events.
        let mut chunk = Vec::new();
        write(&mut chunk, "ERROR", &rejection.to_status());
        return Ok(answer(StatusCode::OK, "application/json", chunk));
    }
    let now = api.0.clock.now();
    let deadline = now + params.timeout.unwrap_or_else(|| api.0.rng.jittered(LONGEST, 1.0));
    let state = api.state();
    let (versions, current) = (state.changes(), state.version());
    let all = || {
        state.matching(order.call.resource, &order.call.namespace, |object| {
            labels.matches(object) && fields.matches(object)
        })
    };
    let (initial, cursor) = match params.version {
        _ if begins_with_all => (all().into(), current),
        Version::At(version) => (VecDeque::new(), version),
        Version::Unset | Version::Any => (VecDeque::new(), current),
    };
    drop(state);
    let mut watch = Watch {
        labels,
        fields,
        cursor,
        initial,
        announce: params.send_initial_events == Some(true) && params.bookmarks,
        next_bookmark: None,
        deadline,
        position: api.faults().position(),
        versions,
        faults: api.faults().changes(),
        surroundings: surroundings.clone(),
        ended: false,
        api: api.clone(),
        order: order.clone(),
        presenter,
    };
    watch.schedule_bookmark();
    let chunks = stream::unfold(watch, |mut watch| async move { watch.next().await.map(|chunk| (chunk, watch)) });
    Ok(answer(StatusCode::OK, "application/json", Body::from_stream(chunks)))
}

impl Watch {
    /// The next chunk of the answer.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        while !self.ended {
            // First note what is known, then look: what changes in between wakes the wait below.
            self.versions.borrow_and_update();
            self.faults.borrow_and_update();
            let (call, user) = (&self.order.call, &self.order.identity.user);
            let plan = self.api.faults().watch_plan(call, user, self.position);
            let step = match plan {
                WatchPlan::Drop(end) => {
                    self.ended = true;
                    let cut = io::Error::new(io::ErrorKind::ConnectionReset, "the watch is cut");
                    return (end == WatchEnd::Cut).then_some(Err(cut));
                }
                WatchPlan::Hold => Step::Wait(None),
                WatchPlan::Flow => self.step(Duration::ZERO),
                WatchPlan::Delay(delay) => self.step(delay),
            };
            let wake = match step {
                Step::Send(bytes) => return Some(Ok(bytes.into())),
                Step::Wait(wake) => wake,
            };
            let bookmark = self.next_bookmark.filter(|_| plan != WatchPlan::Hold);
            tokio::select! {
                biased;
                () = self.surroundings.stopping.cancelled() => self.ended = true,
                () = sleep_until(self.deadline) => self.ended = true,
                _ = self.faults.changed() => {}
                _ = self.versions.changed() => {}
                () = until(wake) => {}
                () = until(bookmark) => {
                    self.schedule_bookmark();
                    let mut chunk = Vec::new();
                    self.bookmark(&mut chunk, false);
                    return Some(Ok(chunk.into()));
                }
            }
        }
        None
    }

    fn schedule_bookmark(&mut self) {
        if !self.order.call.params.bookmarks {
            return;
        }
        let now = self.api.0.clock.now();
        let regular = now + self.api.0.bookmark_period;
        let farewell = self.deadline.checked_sub(FAREWELL).filter(|farewell| *farewell > now);
        self.next_bookmark = Some(farewell.map_or(regular, |farewell| regular.min(farewell)));
    }

    /// The events to send now, with each event sent `delay` after it happened.
    fn step(&mut self, delay: Duration) -> Step {
        let mut chunk = Vec::new();
        if !self.initial.is_empty() {
            let count = self.initial.len().min(BATCH);
            let batch: Vec<Arc<Value>> = self.initial.drain(..count).collect();
            for object in batch {
                self.tell(&mut chunk, "ADDED", &object);
            }
            return Step::Send(chunk);
        }
        if self.announce {
            self.announce = false;
            self.bookmark(&mut chunk, true);
            return Step::Send(chunk);
        }
        let (now, mut wake, mut told) = (self.api.0.clock.now(), None, Vec::new());
        let state = self.api.state();
        let Some(events) = state.history().after(self.cursor) else {
            let status = Rejection::too_old(self.cursor, state.history().oldest()).to_status();
            drop(state);
            self.ended = true;
            write(&mut chunk, "ERROR", &status);
            return Step::Send(chunk);
        };
        let mut cursor = self.cursor;
        for event in events {
            if event.at + delay > now {
                wake = Some(event.at + delay);
                break;
            }
            if told.len() == BATCH {
                break;
            }
            cursor = event.version;
            told.extend(self.judge(event));
        }
        drop(state);
        self.cursor = cursor;
        if told.is_empty() {
            return Step::Wait(wake);
        }
        for (what, object) in told {
            self.tell(&mut chunk, what, &object);
        }
        Step::Send(chunk)
    }

    /// The event for a client that sees only the matching objects.
    fn judge(&self, event: &Event) -> Option<(&'static str, Arc<Value>)> {
        let call = &self.order.call;
        if event.kind != kind(call.resource) || !(call.namespace.is_empty() || event.key.namespace == call.namespace) {
            return None;
        }
        let matches = |object: &Value| self.labels.matches(object) && self.fields.matches(object);
        let before = event.old.as_deref().is_some_and(matches);
        match (before, !event.deleted && matches(&event.object)) {
            (false, false) => None,
            (false, true) => Some(("ADDED", Arc::clone(&event.object))),
            (true, true) => Some(("MODIFIED", Arc::clone(&event.object))),
            (true, false) if event.deleted => Some(("DELETED", Arc::clone(&event.object))),
            (true, false) => {
                // The object left the selection: send its last matching form, with the version at which it left.
                let mut last = event.old.as_deref().cloned().unwrap_or_default();
                meta::set(&mut last, "resourceVersion", Some(event.version.to_string().into()));
                Some(("DELETED", Arc::new(last)))
            }
        }
    }

    fn tell(&mut self, chunk: &mut Vec<u8>, what: &'static str, object: &Value) {
        match (self.presenter.view, &self.presenter.with) {
            (View::Full, None) => write(chunk, what, object),
            (View::Full | View::Metadata, _) => write(chunk, what, &self.presenter.one(object)),
            (View::Table, _) => {
                write(chunk, what, &self.presenter.one(object));
                self.presenter.headers = false;
            }
        }
    }

    fn bookmark(&self, chunk: &mut Vec<u8>, initial_end: bool) {
        let resource = self.order.call.resource;
        let (kind, version) = match self.presenter.view {
            View::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            View::Full | View::Table => (resource.kind, resource.api_version()),
        };
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        write(chunk, "BOOKMARK", &json!({"kind": kind, "apiVersion": version, "metadata": metadata}));
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// One event, on one line.
fn write(chunk: &mut Vec<u8>, r#type: &'static str, object: &Value) {
    // A Value always serialises into memory.
    let _ = serde_json::to_writer(&mut *chunk, &Envelope { r#type, object });
    chunk.push(b'\n');
}
