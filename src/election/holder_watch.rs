//! The watch of the pod whose process holds the Lease, while this process may not lead: see [`super::proof`].

use std::time::Duration;

use kube::Api;

use super::identity::ContainerProcess;
use super::lease_client::LeaseError;
use super::object_watch::{ObjectWatch, Sighting};
use super::proof::{self, HolderPod};

/// The pause after a refusal. People must grant the right first.
const WITHOUT_RIGHT: Duration = Duration::from_secs(60);
/// A watch that begins with a pod's state in the API server's cache. That may be old, but a proof in it stays a proof.
const PRESENT: &str = "0";

/// Keeps the watch of one pod open.
pub(super) struct HolderWatch {
    /// The pods of the other candidates; `None`: no holder's is watched.
    pods: Option<Api<HolderPod>>,
    watch: ObjectWatch<HolderPod>,
    /// The process whose pod is watched.
    holder: Option<String>,
}

/// What the watch has shown.
pub(super) enum Report {
    /// The process with this identity has ended.
    Ended(String),
    /// The pod does not show the end of its process.
    Nothing,
    /// The watch has ended, or could not be opened.
    Over { worked: bool, error: Option<LeaseError> },
}

impl HolderWatch {
    /// Watches none yet.
    pub(super) fn new(client: &kube::Client, namespace: Option<&str>) -> Self {
        let pods = namespace.map(|namespace| Api::namespaced(client.clone(), namespace));
        Self { pods, watch: ObjectWatch::default(), holder: None }
    }

    /// Watches the pod of this process, if it names one, and no other. `false`: none is watched.
    pub(super) fn follow(&mut self, holder: Option<&str>, now: Duration) -> bool {
        let found = self.pods.as_ref().zip(holder).and_then(|(api, it)| Some((api, it, ContainerProcess::parse(it)?)));
        let followed = found.map(|(_, holder, _)| holder);
        if self.holder.as_deref() != followed {
            // The next process may be of the same pod, and the watch may have shown its end before the Lease named it.
            if self.holder.is_some() {
                self.watch.close_until(now);
            }
            self.holder = followed.map(str::to_owned);
        }
        if let Some((api, _, process)) = found {
            self.watch.ensure(api, process.pod, PRESENT, now);
        }
        self.holder.is_some()
    }

    /// When the watch may be opened again, if it should be open and isn't.
    pub(super) fn reopen_at(&self) -> Option<Duration> {
        self.watch.reopen_at().filter(|_| self.holder.is_some())
    }

    /// The API refuses: the watch is opened again when people may have changed that.
    pub(super) fn hold_off(&mut self, now: Duration) {
        self.watch.close_until(now + WITHOUT_RIGHT);
    }

    /// The next report; pending while no watch is open. Cancel safe.
    pub(super) async fn next(&mut self, lease: &str, retry: Duration) -> Report {
        match self.watch.next(retry).await {
            // For a pod that is gone, the last report of its node counts.
            Sighting::Object(pod) | Sighting::Deleted(pod) => {
                let ended = self.holder.as_ref().filter(|holder| proof::has_ended(holder, &pod));
                ended.map_or(Report::Nothing, |holder| Report::Ended(holder.clone()))
            }
            Sighting::Over { worked, error } => {
                let error = error.map(|error| LeaseError::new("watch the holder's pod of", lease, error));
                Report::Over { worked, error }
            }
        }
    }
}
