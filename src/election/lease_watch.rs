//! The watch of one Lease: opened from the version that was read, reopened as long as it works.

use std::future;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use kube::core::Status;

use super::lease_client::{LeaseClient, LeaseError};

/// A watch that ended well is reopened no sooner than this after it was opened.
const REOPEN: Duration = Duration::from_secs(1);

/// What the watch told.
#[derive(Debug)]
pub(super) enum Sighting {
    Lease(Box<Lease>),
    Deleted(Box<Lease>),
    /// It is over; it had worked (`true`) or could not even be opened.
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
    /// The version of the last event, or that it was opened from.
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

    /// The Lease was read at `version`: a watch that hasn't told of it has fallen silent.
    pub(super) fn compare(&mut self, version: Option<&str>) {
        if self.open.as_ref().is_some_and(|open| version.is_some_and(|version| version != open.version)) {
            self.open = None;
        }
    }

    /// Our own write made `version`: the watch will tell of it, but owes nothing yet.
    pub(super) fn wrote(&mut self, version: Option<&str>) {
        if let (Some(open), Some(version)) = (&mut self.open, version) {
            version.clone_into(&mut open.version);
        }
    }

    /// When the watch may be opened again, if it isn't open.
    pub(super) fn reopen_at(&self) -> Option<Duration> {
        self.open.is_none().then_some(self.reopen_at)
    }

    /// The next thing that the watch tells; never anything while none is open. Cancel safe.
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
