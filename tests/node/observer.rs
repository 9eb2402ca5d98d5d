//! Looks on while something is done to a cluster: who holds the Leases, whether each node keeps its driver and each pod its volume, and
//! how long it takes to attach a volume and to detach it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;
use tokio::task::JoinHandle;

use super::lab::{NAME, NAMESPACE};

/// Between two looks. A look takes some milliseconds.
const LOOK: Duration = Duration::from_millis(50);

/// What was seen.
pub(crate) struct Seen {
    pub(crate) takeovers: Vec<Takeover>,
    /// What no pod may notice.
    pub(crate) wrong: Vec<String>,
    /// The longest time without the driver on the node.
    pub(crate) unregistered: Duration,
    /// The volume was attached, or detached.
    pub(crate) attempts: Vec<Attempt>,
}

/// A Lease got another holder.
pub(crate) struct Takeover {
    pub(crate) lease: String,
    /// The holders.
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) at: Instant,
    /// Since the one before has renewed it, or released it.
    pub(crate) after: Duration,
}

/// From a request until it is done.
pub(crate) struct Attempt {
    begun: Instant,
    ended: Instant,
}

impl Attempt {
    pub(crate) fn took(&self) -> Duration {
        self.ended - self.begun
    }
}

impl Seen {
    /// When attempts go on after a takeover: the time until the first one is done, if it had been asked for.
    pub(crate) fn resumed_after(&self, takeover: &Takeover) -> Duration {
        let first = self.attempts.iter().find(|attempt| attempt.ended > takeover.at);
        let first = first.expect("an attempt that ends after the Lease was taken");
        first.ended - first.begun.max(takeover.at)
    }

    /// The longest attempt, and one of the usual length.
    pub(crate) fn longest_and_median(&self) -> (Duration, Duration) {
        let mut all: Vec<Duration> = self.attempts.iter().map(Attempt::took).collect();
        all.sort_unstable();
        (*all.last().expect("an attempt"), all[all.len() / 2])
    }
}

/// What those who look on and who waits for them have in common.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    takeovers: AtomicUsize,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }
}

/// Who looks on.
pub(crate) struct Observer {
    shared: Arc<Shared>,
    watched: JoinHandle<Seen>,
    attempts: JoinHandle<Vec<Attempt>>,
}

impl Observer {
    /// Begins. These attachments are pods' and stay; the volume of this name is attached to the node and detached, again and again.
    pub(crate) fn start(client: &Client, node: &str, kept: Vec<VolumeAttachment>, volume: String) -> Self {
        let shared = Arc::<Shared>::default();
        let watched = tokio::spawn(watch(client.clone(), node.to_owned(), kept, shared.clone()));
        let attempts = tokio::spawn(attach_and_detach(client.clone(), node.to_owned(), volume, shared.clone()));
        Self { shared, watched, attempts }
    }

    /// How many Leases have got another holder so far.
    pub(crate) fn takeovers(&self) -> usize {
        self.shared.takeovers.load(Ordering::Relaxed)
    }

    /// Ends with what was seen.
    pub(crate) async fn end(self) -> Seen {
        self.shared.is_over.store(true, Ordering::Relaxed);
        Seen { attempts: self.attempts.await.unwrap(), ..self.watched.await.unwrap() }
    }
}

async fn watch(client: Client, node: String, kept: Vec<VolumeAttachment>, shared: Arc<Shared>) -> Seen {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let attachments: Api<VolumeAttachment> = Api::all(client.clone());
    let nodes: Api<CSINode> = Api::all(client);
    let mut seen =
        Seen { takeovers: Vec::new(), wrong: Vec::new(), unregistered: Duration::ZERO, attempts: Vec::new() };
    // The last holder of each Lease, and when the Lease last changed.
    let mut known: BTreeMap<String, (String, Lease, Instant)> = BTreeMap::new();
    let mut registered = Instant::now();
    while shared.goes_on() {
        for lease in leases.list(&ListParams::default()).await.unwrap() {
            let (name, now) = (lease.metadata.name.clone().unwrap(), Instant::now());
            let holder = lease.spec.as_ref().and_then(|it| it.holder_identity.clone()).unwrap_or_default();
            let entry = known.entry(name.clone()).or_insert_with(|| (holder.clone(), lease.clone(), now));
            let has_changed = entry.1 != lease;
            if !holder.is_empty() && holder != entry.0 {
                let from = std::mem::replace(&mut entry.0, holder.clone());
                seen.takeovers.push(Takeover { lease: name, from, to: holder, at: now, after: now - entry.2 });
                shared.takeovers.fetch_add(1, Ordering::Relaxed);
            }
            if has_changed {
                (entry.1, entry.2) = (lease, now);
            }
        }
        for before in &kept {
            let name = before.metadata.name.as_deref().unwrap();
            let now = attachments.get_opt(name).await.unwrap();
            let stays = now.as_ref().is_some_and(|now| {
                now.metadata.uid == before.metadata.uid
                    && now.metadata.deletion_timestamp.is_none()
                    && is_attached(Some(now))
            });
            if !stays {
                seen.wrong.push(format!("an attachment under a pod: {now:?}"));
            }
        }
        let drivers = nodes.get(&node).await.unwrap().spec.drivers;
        if drivers.iter().any(|it| it.name == NAME && it.node_id == node) {
            registered = Instant::now();
        }
        seen.unregistered = seen.unregistered.max(registered.elapsed());
        tokio::time::sleep(LOOK).await;
    }
    seen
}

async fn attach_and_detach(client: Client, node: String, volume: String, shared: Arc<Shared>) -> Vec<Attempt> {
    let attachments: Api<VolumeAttachment> = Api::all(client);
    let mut attempts = Vec::new();
    for number in 1.. {
        // The last one begins when all is over: something is always done after whatever happens.
        let is_last = !shared.goes_on();
        let name = format!("observed-{number}");
        let attachment = json!({
            "metadata": {"name": name},
            "spec": {"attacher": NAME, "nodeName": node, "source": {"persistentVolumeName": volume}}});
        let attachment = serde_json::from_value(attachment).unwrap();
        let begun = Instant::now();
        attachments.create(&PostParams::default(), &attachment).await.unwrap();
        await_condition(attachments.clone(), &name, is_attached).await.unwrap();
        attempts.push(Attempt { begun, ended: Instant::now() });
        let begun = Instant::now();
        attachments.delete(&name, &DeleteParams::default()).await.unwrap();
        await_condition(attachments.clone(), &name, is_gone).await.unwrap();
        attempts.push(Attempt { begun, ended: Instant::now() });
        if is_last {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    attempts
}

fn is_attached(attachment: Option<&VolumeAttachment>) -> bool {
    attachment.and_then(|it| it.status.as_ref()).is_some_and(|status| status.attached)
}

fn is_gone(attachment: Option<&VolumeAttachment>) -> bool {
    attachment.is_none()
}
