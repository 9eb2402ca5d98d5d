//! The other Kubernetes controllers that storage needs: small controllers that use the sandbox's API.
//!
//! | actor | stands for | does |
//! |---|---|---|
//! | `binder` | the PV controller | names the provisioner of a claim, binds claims and volumes, sets their phases; an Event says that a claim's class does not exist |
//! | `protection` | PVC, PV and `VolumeAttributesClass` protection | removes the finalizer of deleted claims that no pod uses, of deleted volumes that are not bound, and of deleted attributes classes that no claim and no volume names |
//! | `scheduler`, `room` | kube-scheduler | picks nodes: for the claims of a pod first, then for the pod |
//! | `kubelets` | the kubelets | lets a pod run once its volumes are attached to its node; once a pod with a grown volume has its node, tells its claim that the file system has its size |
//! | `snapshots`, `groups` | the snapshot-controller, in clusters that have one | makes and binds contents, copies their status, marks and deletes them |
//! | `quotas` | the quota controller | tells what the claims of a namespace count against its quotas |
//! | `attachments` | the attach/detach controller | asks for the volumes of scheduled pods to be attached, those for one node to one at a time, and detached after them |
//!
//! Each looks at everything that is there and makes the next change; none remembers what it could look up. They run one after
//! the other in one task, after each change of the store, until none has anything to do: the same changes lead to the same
//! end. They make their changes past HTTP, so that faults of the API and the audit log are the daemon's alone.
//!
//! Left out: static binding by size, all other Events, and all else that a kubelet does (nothing is mounted, a deleted pod goes at
//! once).

mod attachments;
mod binder;
mod groups;
mod kubelets;
mod node_labels;
mod protection;
mod quotas;
mod room;
mod scheduler;
mod seen;
mod snapshot_habits;
mod snapshot_objects;
#[cfg(test)]
mod snapshot_tests;
mod snapshots;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep, sleep_until};

use super::api::pure::resources::{self, Resource};
use super::api::{Api, PatchBody};
use base::process::{Tasks, watch};

pub use snapshot_habits::SnapshotHabits;

/// More rounds than these without rest are a fault of ours.
const MOST_ROUNDS: usize = 200;
/// After so many the actors pause, so that even then they keep no core busy.
const UNREST_PAUSE: Duration = Duration::from_secs(1);

/// The controllers of one cluster.
#[derive(Debug)]
pub struct Actors {
    cluster: Cluster,
    scheduler: scheduler::Scheduler,
    attachments: attachments::Attachments,
    snapshots: Option<snapshots::Snapshots>,
}

impl Actors {
    /// The controllers of this API, which from now on holds claims, volumes and attributes classes that are in use.
    pub fn of(api: Api) -> Self {
        api.protect_storage_in_use();
        Self {
            cluster: Cluster(api),
            scheduler: scheduler::Scheduler::default(),
            attachments: attachments::Attachments::default(),
            snapshots: None,
        }
    }

    /// The same with a snapshot-controller of these habits. Without one, snapshots are made and bound by hand.
    #[must_use]
    pub fn with_snapshots(mut self, habits: watch::Receiver<SnapshotHabits>) -> Self {
        self.snapshots = Some(snapshots::Snapshots::new(habits));
        self
    }

    /// Does all that is to be done now. Whether the actors have found rest.
    pub fn settle(&mut self) -> bool {
        for _ in 0..MOST_ROUNDS {
            let before = self.cluster.0.version();
            binder::pass(&self.cluster);
            self.scheduler.pass(&self.cluster);
            self.attachments.pass(&self.cluster);
            if let Some(snapshots) = &mut self.snapshots {
                snapshots.pass(&self.cluster);
            }
            kubelets::pass(&self.cluster);
            protection::pass(&self.cluster);
            quotas::pass(&self.cluster);
            if self.cluster.0.version() == before {
                return true;
            }
        }
        tracing::error!("the sandbox's controllers find no rest");
        false
    }

    /// Goes on doing so after every change, and when something has rested long enough, in a task of `tasks`.
    pub fn start(mut self, tasks: &Tasks) {
        let mut versions = self.cluster.0.versions();
        tasks.spawn("actors", async move {
            loop {
                if !self.settle() {
                    sleep(UNREST_PAUSE).await;
                }
                let now = Instant::now();
                let of_snapshots = self.snapshots.as_ref().and_then(|it| it.next(now));
                let next = self.scheduler.next(now).into_iter().chain(of_snapshots).min();
                tokio::select! {
                    changed = versions.changed() => if changed.is_err() { return },
                    () = habits_changed(self.snapshots.as_mut()) => {}
                    () = until(next) => {}
                }
            }
        });
    }
}

/// Until the snapshot-controller has other habits; for ever, if there is none.
async fn habits_changed(snapshots: Option<&mut snapshots::Snapshots>) {
    match snapshots {
        Some(snapshots) => snapshots.changed().await,
        None => std::future::pending().await,
    }
}

/// Until a moment; for ever, if there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The API in the few words that the actors need. A change that is refused is tried again after the next change: somebody was
/// faster, or it makes no sense any more.
#[derive(Debug)]
struct Cluster(Api);

/// A kind: its group and plural.
type Kind = (&'static str, &'static str);

const CLAIMS: Kind = ("", "persistentvolumeclaims");
const VOLUMES: Kind = ("", "persistentvolumes");
const PODS: Kind = ("", "pods");
const EVENTS: Kind = ("", "events");
const QUOTAS: Kind = ("", "resourcequotas");
const NODES: Kind = ("", "nodes");
const CLASSES: Kind = ("storage.k8s.io", "storageclasses");
const ATTRIBUTES_CLASSES: Kind = ("storage.k8s.io", "volumeattributesclasses");
const DRIVERS: Kind = ("storage.k8s.io", "csidrivers");
const CAPACITIES: Kind = ("storage.k8s.io", "csistoragecapacities");
const ATTACHMENTS: Kind = ("storage.k8s.io", "volumeattachments");
const SNAPSHOTS: Kind = ("snapshot.storage.k8s.io", "volumesnapshots");
const CONTENTS: Kind = ("snapshot.storage.k8s.io", "volumesnapshotcontents");
const GROUPS: Kind = ("groupsnapshot.storage.k8s.io", "volumegroupsnapshots");
const GROUP_CONTENTS: Kind = ("groupsnapshot.storage.k8s.io", "volumegroupsnapshotcontents");
const GROUP_CLASSES: Kind = ("groupsnapshot.storage.k8s.io", "volumegroupsnapshotclasses");
const SNAPSHOT_CLASSES: Kind = ("snapshot.storage.k8s.io", "volumesnapshotclasses");

impl Cluster {
    /// All objects of a kind, by namespace and name.
    fn all(&self, kind: Kind) -> Vec<Arc<Value>> {
        self.resource(kind).and_then(|it| self.0.objects(it, "").ok()).unwrap_or_default()
    }

    /// A kind as the cluster serves it.
    fn resource(&self, (group, plural): Kind) -> Option<&'static Resource> {
        let is_served = |it: &&Resource| it.group == group && it.plural == plural && self.0.serves(it);
        resources::RESOURCES.iter().find(is_served)
    }

    /// One object.
    fn one(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.0.object(self.resource(kind)?, namespace, name)
    }

    /// The present time as `metadata` and a status have it.
    fn now(&self) -> String {
        self.0.timestamp()
    }

    /// Makes a new object.
    fn create(&self, object: Value) -> bool {
        self.0.create_value(object).is_ok()
    }

    /// Writes an Event of a claim, once: Kubernetes would only count the next ones.
    fn warn(&self, claim: &Value, reason: &str, message: &str) {
        let (namespace, name) = place(claim);
        let digest = Sha256::new().chain_update(uid(claim)).chain_update(reason).chain_update(message).finalize();
        let event = digest.iter().take(8).fold(format!("{name}."), |name, byte| format!("{name}{byte:02x}"));
        if self.one(EVENTS, namespace, &event).is_some() {
            return;
        }
        let (now, component) = (self.now(), "persistentvolume-controller");
        let involved = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
            "uid": uid(claim), "resourceVersion": text(claim, "/metadata/resourceVersion")});
        self.create(json!({"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": namespace, "name": event},
            "involvedObject": involved, "type": "Warning", "reason": reason, "message": message, "count": 1,
            "source": {"component": component}, "reportingComponent": component, "firstTimestamp": now,
            "lastTimestamp": now}));
    }

    /// Changes an object, if it still is as it was seen.
    fn change(&self, kind: Kind, seen: &Value, patch: Value) -> bool {
        self.write(kind, seen, patch, false)
    }

    /// Changes an object's status, if the object still is as it was seen.
    fn change_status(&self, kind: Kind, seen: &Value, status: &Value) -> bool {
        self.write(kind, seen, json!({ "status": status }), true)
    }

    fn write(&self, kind: Kind, seen: &Value, mut patch: Value, status: bool) -> bool {
        let Some(resource) = self.resource(kind) else { return false };
        patch["metadata"]["resourceVersion"] = text(seen, "/metadata/resourceVersion").into();
        let (namespace, name) = place(seen);
        self.0.patch_object(resource, namespace, name, PatchBody::Merge(patch), status).is_ok()
    }

    /// Changes an object by JSON Patch, whatever its version.
    fn change_blindly(&self, kind: Kind, seen: &Value, operations: Value) -> bool {
        let Some(resource) = self.resource(kind) else { return false };
        let (namespace, name) = place(seen);
        self.0.patch_object(resource, namespace, name, PatchBody::Json(operations), false).is_ok()
    }

    /// Takes one finalizer off.
    fn let_go(&self, kind: Kind, seen: &Value, finalizer: &str) {
        let rest: Vec<&str> = finalizers(seen).filter(|it| *it != finalizer).collect();
        self.change(kind, seen, json!({ "metadata": { "finalizers": rest } }));
    }

    fn delete(&self, kind: Kind, seen: &Value) {
        let (namespace, name) = place(seen);
        if let Some(resource) = self.resource(kind) {
            // Gone is as good.
            let _ = self.0.delete_object(resource, namespace, name);
        }
    }
}

/// A text of an object; empty where it has none.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// An object's namespace and name.
fn place(object: &Value) -> (&str, &str) {
    (text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    list(object, "/metadata/finalizers").iter().filter_map(Value::as_str)
}

fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// The class of a claim: the old annotation counts first.
fn class_of(claim: &Value) -> &str {
    annotation(claim, "volume.beta.kubernetes.io/storage-class")
        .unwrap_or_else(|| text(claim, "/spec/storageClassName"))
}

/// The names of the claims that a pod uses.
fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    list(pod, "/spec/volumes")
        .iter()
        .map(|volume| text(volume, "/persistentVolumeClaim/claimName"))
        .filter(|it| !it.is_empty())
}

/// Whether a pod has come to its end.
fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}
