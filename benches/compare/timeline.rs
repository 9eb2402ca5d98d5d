//! When each object of a workload began, was done, was deleted and was gone, as a watch of our own tells.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_control_plane::process::{Clock, TaskEnds, Tasks};
use futures::TryStreamExt as _;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;

use crate::attacher;
use crate::stage::Stage;
use crate::workload::{Moment, Reading, Workload};

/// The moments of one object.
#[derive(Debug, Default, Clone)]
struct Moments {
    /// The name of what tells that it is done.
    made: String,
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

/// The moments of every object of a workload.
pub(crate) struct Timeline {
    book: Arc<Book>,
    /// How our own watches end, which they never should.
    ends: AsyncMutex<TaskEnds>,
    _tasks: Tasks,
}

/// How long a phase may take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    /// After so long it is cut, and told as far as it came.
    Cut(Duration),
    /// After so long something is wrong, and the bench ends.
    Patience(Duration),
}

#[derive(Default)]
struct Book {
    moments: Mutex<BTreeMap<String, Moments>>,
    counts: watch::Sender<Counts>,
    /// Hears the name of each object that is made.
    made: Option<UnboundedSender<String>>,
}

/// What is read of the list that the watch begins after.
#[derive(serde::Deserialize)]
struct List {
    metadata: kube::core::ListMeta,
}

impl Timeline {
    /// Watches a workload's collections from now on.
    pub(crate) async fn of(stage: &Stage, workload: &dyn Workload) -> Self {
        let (tasks, ends) = Tasks::new("timeline");
        let mut book = Book::default();
        if workload.is_attached_here() {
            let (made, told) = unbounded();
            book.made = Some(made);
            tasks.spawn("attacher", attacher::attach(stage.client.clone(), Arc::clone(&stage.own), told));
        }
        let book = Arc::new(book);
        let reading = workload.facts().reading;
        for collection in workload.facts().watched {
            let list: List = serde_json::from_value(stage.list(collection, "?limit=1").await).unwrap();
            let mut version = list.metadata.resource_version.unwrap();
            let (client, noting) = (stage.client.clone(), Arc::clone(&book));
            tasks.spawn("watch", async move {
                // The server ends a watch in a burst that it cannot keep up with: then it goes on where it was.
                loop {
                    let url = format!("{collection}?watch=true&timeoutSeconds=7200&resourceVersion={version}");
                    let request = http::Request::get(url).body(Vec::new()).unwrap();
                    let mut events = pin!(client.request_events::<Value>(request).await.unwrap());
                    while let Ok(Some(event)) = events.try_next().await {
                        if let Some(seen) = noting.note(&event, reading) {
                            version = seen;
                        }
                    }
                }
            });
        }
        Self { book, ends: AsyncMutex::new(ends), _tasks: tasks }
    }

    /// Waits until no object has come further for so long.
    pub(crate) async fn until_quiet(&self, quiet: Duration) {
        let mut counts = self.book.counts.subscribe();
        while self.watched(tokio::time::timeout(quiet, counts.changed())).await.is_ok() {}
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
        self.watched(tokio::time::timeout(bound, reached)).await.is_ok()
    }

    /// The same within a phase's limit. `false`: it was cut.
    pub(crate) async fn within(&self, limit: Limit, far: impl Fn(Counts) -> bool) -> bool {
        match limit {
            Limit::Cut(bound) => self.until(bound, far).await,
            Limit::Patience(bound) => {
                let is_reached = self.until(bound, far).await;
                assert!(is_reached, "after {bound:?} it is no further than {:?}", self.counts());
                true
            }
        }
    }

    /// Waits for something that our own watches tell of: if one of them ends, nothing is measured any more.
    async fn watched<T>(&self, waited: impl Future<Output = T>) -> T {
        let ended = async { self.ends.lock().await.next().await };
        tokio::select! {
            value = waited => value,
            Some(end) = ended => panic!("the bench's own watch ended: {} {}", end.task, end.fate),
        }
    }

    /// How many objects are how far.
    fn counts(&self) -> Counts {
        *self.book.counts.borrow()
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

    /// The objects that are done, or those that are not: their names, and the names of what was made of them.
    pub(crate) fn names_done(&self, done: bool) -> Vec<(String, String)> {
        let moments = self.book.moments.lock().unwrap();
        moments
            .iter()
            .filter(|(_, one)| one.done.is_some() == done)
            .map(|(name, one)| (name.clone(), one.made.clone()))
            .collect()
    }
}

impl Book {
    /// Notes an event, and gives the version that it is of.
    fn note(&self, event: &WatchEvent<Value>, reading: Reading) -> Option<String> {
        let now = Some(Clock::system().now());
        let (object, is_gone) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(_) => return None,
            WatchEvent::Error(error) => panic!("the bench's own watch was ended: {error}"),
        };
        if let (Some(made), WatchEvent::Added(_)) = (&self.made, event) {
            let _ = made.unbounded_send(object["metadata"]["name"].as_str().unwrap().to_owned());
        }
        let (name, told) = reading(object, is_gone);
        let mut moments = self.moments.lock().unwrap();
        let moment = moments.entry(name).or_default();
        if matches!(event, WatchEvent::Added(_)) && told.contains(&Moment::Begun) && moment.gone.is_some() {
            *moment = Moments::default();
        }
        let before = (moment.done.is_some(), moment.gone.is_some());
        for told in told {
            let field = match told {
                Moment::Begun => &mut moment.begun,
                Moment::Done => &mut moment.done,
                Moment::Deleted => &mut moment.deleted,
                Moment::Gone => &mut moment.gone,
            };
            *field = field.or(now);
            if told == Moment::Done {
                object["metadata"]["name"].as_str().unwrap().clone_into(&mut moment.made);
            }
        }
        let after = (moment.done.is_some(), moment.gone.is_some());
        drop(moments);
        if before != after {
            self.counts.send_modify(|counts| {
                counts.done += usize::from(!before.0 && after.0);
                counts.gone += usize::from(!before.1 && after.1);
            });
        }
        object["metadata"]["resourceVersion"].as_str().map(str::to_owned)
    }
}
