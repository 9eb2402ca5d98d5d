//! The watch of one Lease: opened at the version that was read, and reopened when it ends.

use std::future;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use kube::core::Status;

use super::lease_client::{LeaseClient, LeaseError};

/// The least time between two starts of a watch that ended without an error.
const REOPEN: Duration = Duration::from_secs(1);

/// A watch event.
#[derive(Debug)]
pub(super) enum Sighting {
    Lease(Box<Lease>),
    Deleted(Box<Lease>),
    /// The watch has ended. `true`: it had been open; `false`: it could not be opened.
    Over {
        worked: bool,
        error: Option<LeaseError>,
    },
}

/// Keeps at most one watch open.
#[derive(Default)]
pub(super) struct LeaseWatch {
    open: Option<Open>,
    /// Not before this, since the elector's origin.
    reopen_at: Duration,
}

struct Open {
    events: BoxStream<'static, kube::Result<WatchEvent<Lease>>>,
    /// The version of the last event, or of the start.
    version: String,
    opened: Duration,
    worked: bool,
}

impl LeaseWatch {
    /// Opens the watch from `version` unless one is open. Nothing is awaited: opening happens inside [`next`](Self::next).
    pub(super) fn ensure(&mut self, lease: &LeaseClient, version: &str, now: Duration) {
        if self.open.is_some() || now < self.reopen_at {
            return;
        }
        let (api, name, from) = (lease.api.clone(), lease.settings.name.clone(), version.to_owned());
        self.open = Some(Open {
            events: stream::once(events(api, name, from)).try_flatten().boxed(),
            version: version.to_owned(),
            opened: now,
            worked: false,
        });
    }

    /// The Lease was read at `version`: if the watch has not delivered this version, it is dead.
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
    pub(super) async fn next(&mut self, name: &str, retry: Duration) -> Sighting {
        loop {
            let Some(open) = &mut self.open else { return future::pending().await };
            let error = match open.events.next().await {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    open.told(lease.metadata.resource_version.as_deref());
                    return Sighting::Lease(Box::new(lease));
                }
                Some(Ok(WatchEvent::Deleted(lease))) => {
                    open.told(lease.metadata.resource_version.as_deref());
                    return Sighting::Deleted(Box::new(lease));
                }
                Some(Ok(WatchEvent::Bookmark(_))) => {
                    open.worked = true;
                    continue;
                }
                Some(Ok(WatchEvent::Error(status))) => Some(refused(name, status)),
                Some(Err(error)) => Some(LeaseError::new("watch", name, error)),
                None => {
                    open.worked = true;
                    None
                }
            };
            let (worked, opened) = (open.worked, open.opened);
            self.open = None;
            self.reopen_at = opened.saturating_add(if worked { REOPEN } else { retry });
            return Sighting::Over { worked, error };
        }
    }
}

impl Open {
    fn told(&mut self, version: Option<&str>) {
        self.worked = true;
        if let Some(version) = version {
            version.clone_into(&mut self.version);
        }
    }
}

async fn events(
    api: Api<Lease>,
    name: String,
    from: String,
) -> kube::Result<BoxStream<'static, kube::Result<WatchEvent<Lease>>>> {
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    Ok(api.watch(&params, &from).await?.boxed())
}

fn refused(name: &str, status: Box<Status>) -> LeaseError {
    LeaseError::new("watch", name, kube::Error::Api(status))
}
