//! The watch of one object: opened at a version, and reopened when it ends. A Lease is watched from the version that was read, a pod
//! from its present state on.

use std::fmt::Debug;
use std::future;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::WatchParams;
use kube::core::Request;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use crate::cluster::{WatchEvent, watch_events};

/// The least time between two starts of a watch that ended without an error.
const REOPEN: Duration = Duration::from_secs(1);

/// A watch event.
#[derive(Debug)]
pub(super) enum Sighting<K> {
    Object(Box<K>),
    Deleted(Box<K>),
    /// The watch has ended. `true`: it had been open; `false`: it could not be opened.
    Over {
        worked: bool,
        error: Option<kube::Error>,
    },
}

/// Keeps at most one watch open.
#[derive(Default)]
pub(super) struct ObjectWatch<K> {
    open: Option<Open<K>>,
    /// Not before this, since the elector's origin.
    reopen_at: Duration,
}

struct Open<K> {
    events: BoxStream<'static, kube::Result<WatchEvent<K>>>,
    /// The version of the last event, or of the start.
    version: String,
    opened: Duration,
    worked: bool,
}

impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static> ObjectWatch<K> {
    /// Opens the watch from `version` unless one is open. Nothing is awaited: opening happens inside [`next`](Self::next).
    pub(super) fn ensure(&mut self, api: &Api<K>, name: &str, version: &str, now: Duration) {
        if self.open.is_some() || now < self.reopen_at {
            return;
        }
        let (api, name, from) = (api.clone(), name.to_owned(), version.to_owned());
        self.open = Some(Open {
            events: stream::once(events(api, name, from)).try_flatten().boxed(),
            version: version.to_owned(),
            opened: now,
            worked: false,
        });
    }

    /// Closes the watch. Another may be opened from this time on.
    pub(super) fn close_until(&mut self, reopen_at: Duration) {
        (self.open, self.reopen_at) = (None, reopen_at);
    }

    /// The object was read at `version`: if the watch has not delivered this version, it is dead.
    pub(super) fn compare(&mut self, version: Option<&str>) {
        if self.open.as_ref().is_some_and(|open| version.is_some_and(|version| version != open.version)) {
            self.open = None;
        }
    }

    /// Our own write created `version`: the watch will deliver it later.
    pub(super) fn wrote(&mut self, version: Option<&str>) {
        if let (Some(open), Some(version)) = (&mut self.open, version) {
            version.clone_into(&mut open.version);
        }
    }

    /// When the watch may be opened again, if it isn't open.
    pub(super) fn reopen_at(&self) -> Option<Duration> {
        self.open.is_none().then_some(self.reopen_at)
    }

    /// The next watch event; pending while no watch is open. Cancel safe.
    pub(super) async fn next(&mut self, retry: Duration) -> Sighting<K> {
        loop {
            let Some(open) = &mut self.open else { return future::pending().await };
            let error = match open.events.next().await {
                Some(Ok(WatchEvent::Applied(object))) => {
                    open.told(&object);
                    return Sighting::Object(Box::new(object));
                }
                Some(Ok(WatchEvent::Deleted(object))) => {
                    open.told(&object);
                    return Sighting::Deleted(Box::new(object));
                }
                Some(Ok(WatchEvent::Reached(_))) => {
                    open.worked = true;
                    continue;
                }
                Some(Ok(WatchEvent::Ended(status))) => Some(kube::Error::Api(status)),
                Some(Err(error)) => Some(error),
                None => {
                    open.worked = true;
                    None
                }
            };
            let (worked, opened) = (open.worked, open.opened);
            self.close_until(opened.saturating_add(if worked { REOPEN } else { retry }));
            return Sighting::Over { worked, error };
        }
    }
}

impl<K: Resource> Open<K> {
    fn told(&mut self, object: &K) {
        self.worked = true;
        if let Some(version) = object.resource_version() {
            self.version = version;
        }
    }
}

async fn events<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + 'static>(
    api: Api<K>,
    name: String,
    from: String,
) -> kube::Result<BoxStream<'static, kube::Result<WatchEvent<K>>>> {
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let request = Request::new(api.resource_url()).watch(&params, &from).map_err(kube::Error::BuildRequest)?;
    Ok(watch_events(&api.into_client(), request).await?.boxed())
}
