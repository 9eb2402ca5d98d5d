//! When each object of a workload began, was done, was deleted and was gone, as a watch of our own tells.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_control_plane::process::{Clock, Tasks};
use futures::TryStreamExt as _;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

/// The moments of one object.
#[derive(Debug, Default, Clone, Copy)]
struct Moments {
    begun: Option<Instant>,
    done: Option<Instant>,
    deleted: Option<Instant>,
    gone: Option<Instant>,
}

/// How many objects are how far.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) done: usize,
    pub(crate) gone: usize,
}

/// The moments of every object of a collection.
pub(crate) struct Timeline {
    book: Arc<Book>,
    _tasks: Tasks,
}

#[derive(Default)]
struct Book {
    moments: Mutex<BTreeMap<String, Moments>>,
    counts: watch::Sender<Counts>,
}

/// What is read of the list that the watch begins after.
#[derive(serde::Deserialize)]
struct List {
    metadata: kube::core::ListMeta,
}

impl Timeline {
    /// Watches a collection from now on.
    pub(crate) async fn of(client: &kube::Client, collection: &str, is_done: fn(&Value) -> bool) -> Self {
        let get = |query: &str| http::Request::get(format!("{collection}?{query}")).body(Vec::new()).unwrap();
        let list: List = client.request(get("limit=1")).await.unwrap();
        let mut version = list.metadata.resource_version.unwrap();
        let book: Arc<Book> = Arc::default();
        let (tasks, _) = Tasks::new("timeline");
        let (client, collection, noting) = (client.clone(), collection.to_owned(), Arc::clone(&book));
        tasks.spawn("watch", async move {
            // The server ends a watch in a burst that it cannot keep up with: then it goes on where it was.
            loop {
                let url = format!("{collection}?watch=true&timeoutSeconds=7200&resourceVersion={version}");
                let request = http::Request::get(url).body(Vec::new()).unwrap();
                let mut events = pin!(client.request_events::<Value>(request).await.unwrap());
                while let Ok(Some(event)) = events.try_next().await {
                    if let Some(seen) = noting.note(&event, is_done) {
                        version = seen;
                    }
                }
            }
        });
        Self { book, _tasks: tasks }
    }

    /// Forgets every moment.
    pub(crate) fn clear(&self) {
        self.book.moments.lock().unwrap().clear();
        self.book.counts.send_replace(Counts::default());
    }

    /// Waits until so many objects are that far. `false`: not within `bound`.
    pub(crate) async fn until(&self, bound: Duration, far: impl Fn(Counts) -> bool) -> bool {
        let mut counts = self.book.counts.subscribe();
        let reached = counts.wait_for(|counts| far(*counts));
        tokio::time::timeout(bound, reached).await.is_ok()
    }

    /// From creation to done, of each object that is.
    pub(crate) fn forth(&self) -> Vec<(Instant, Instant)> {
        self.spans(|moments| Some((moments.begun?, moments.done?)))
    }

    /// From deletion to gone, of each object that is.
    pub(crate) fn back(&self) -> Vec<(Instant, Instant)> {
        self.spans(|moments| Some((moments.deleted.or(moments.gone)?, moments.gone?)))
    }

    fn spans(&self, span: impl Fn(&Moments) -> Option<(Instant, Instant)>) -> Vec<(Instant, Instant)> {
        self.book.moments.lock().unwrap().values().filter_map(span).collect()
    }

    /// The names of the objects that are done, or of those that are not.
    pub(crate) fn names_done(&self, done: bool) -> Vec<String> {
        let moments = self.book.moments.lock().unwrap();
        moments.iter().filter(|(_, one)| one.done.is_some() == done).map(|(name, _)| name.clone()).collect()
    }
}

impl Book {
    /// Notes an event, and gives the version that it is of.
    fn note(&self, event: &WatchEvent<Value>, is_done: fn(&Value) -> bool) -> Option<String> {
        let now = Some(Clock::system().now());
        let (object, is_gone) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(_) => return None,
            WatchEvent::Error(error) => panic!("the bench's own watch was ended: {error}"),
        };
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut moments = self.moments.lock().unwrap();
        let moment = moments.entry(name).or_default();
        if matches!(event, WatchEvent::Added(_)) {
            *moment = Moments { begun: now, ..Moments::default() };
        }
        let (was_done, was_gone) = (moment.done.is_some(), moment.gone.is_some());
        let is_deleted = !object["metadata"]["deletionTimestamp"].is_null();
        if is_done(object) && !is_deleted && !is_gone {
            moment.done = moment.done.or(now);
        }
        if is_deleted || is_gone {
            moment.deleted = moment.deleted.or(now);
        }
        if is_gone {
            moment.gone = moment.gone.or(now);
        }
        let (newly_done, newly_gone) = (!was_done && moment.done.is_some(), !was_gone && is_gone);
        drop(moments);
        if newly_done || newly_gone {
            self.counts.send_modify(|counts| {
                counts.done += usize::from(newly_done);
                counts.gone += usize::from(newly_gone);
            });
        }
        object["metadata"]["resourceVersion"].as_str().map(str::to_owned)
    }
}
