//! The environment of a scenario: a cluster, a driver, daemons.
//!
//! ```text
//!   scenario ──> World ──┬── client()   every change of the cluster and every look at it, as an administrator
//!                        ├── driver()   the demo driver: its faults, its truth, the calls that it got
//!                        ├── daemon()   a daemon as `run` starts it; status() and metrics() of it
//!                        └── sandbox()  faults of the API, its audit log: only under `sandbox_only`
//!                 crate::ground: where all of this comes from, a sandbox or a real control plane
//! ```
//!
//! Many worlds may share one cluster: names begin with the world's own id, the driver's name contains it, and no scenario
//! looks at anything else. Waits are on watches, never on time: [`PATIENCE`] only bounds them.

#[path = "leases.rs"]
pub(crate) mod leases;
#[path = "wait.rs"]
pub(crate) mod wait;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_control_plane::csi::ControllerRpc;
use csi_control_plane::process::Rng;
use csi_control_plane::roles::csi_attacher;
use csi_control_plane::sandbox::driver::{Call, Driver, Method, Node, Profile};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, Secret};
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use k8s_openapi::{ByteString, ClusterResourceScope};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::ground::{Daemon, Ground, cluster, sandbox};
use crate::objects;

pub(crate) use wait::{PATIENCE, bounded, settled, until_some};

/// A cluster, a driver, and the daemons between them.
pub(crate) struct World {
    ground: Ground,
    id: String,
    driver_name: String,
    /// The uids of the claims, by name: one that is gone is still spoken of.
    uids: Mutex<BTreeMap<String, String>>,
}

/// A kind of the cluster's scope.
pub(crate) trait ClusterKind:
    Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static
{
}

impl<K> ClusterKind for K where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static
{
}

impl World {
    /// A world with a driver that can do everything.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A world with a driver whose profile was changed like this.
    pub(crate) async fn with(change: impl FnOnce(&mut Profile)) -> Self {
        Self::on(Ground::set, change).await
    }

    /// A world with a driver that has this capability, or lacks it and has all others.
    pub(crate) async fn with_rpc(rpc: ControllerRpc, has_it: bool) -> Self {
        Self::with(|profile| {
            if !has_it {
                profile.controller.remove(&(rpc as i32));
            }
        })
        .await
    }

    /// A world that shares its cluster with no other, to be rough with.
    pub(crate) async fn alone() -> Self {
        Self::on(Ground::alone, |_| {}).await
    }

    /// A world whose cluster has its controllers, for scenarios about claims: see [`crate::supply`].
    pub(crate) async fn supplied(change: impl FnOnce(&mut Profile)) -> Self {
        Self::on(Ground::with_controllers, change).await
    }

    /// The same, and it shares its cluster with no other.
    pub(crate) async fn supplied_alone() -> Self {
        Self::on(Ground::alone_with_controllers, |_| {}).await
    }

    /// A world on a ground that is set like this.
    pub(crate) async fn on<F>(set: impl FnOnce(Profile) -> F, change: impl FnOnce(&mut Profile)) -> Self
    where
        F: Future<Output = Ground>,
    {
        let id = format!("w{}", Rng::system().suffix());
        let mut profile = Profile { name: format!("{id}.csi.example.com"), ..Profile::default() };
        change(&mut profile);
        let driver_name = profile.name.clone();
        Self { ground: set(profile).await, id, driver_name, uids: Mutex::default() }
    }

    /// The ground that it is on.
    pub(crate) fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The sandbox's powers over the API. Not for scenarios that are to run on a real one.
    pub(crate) fn sandbox(&self) -> &sandbox::Ground {
        self.ground.sandbox()
    }

    /// The powers over a real control plane. Not for scenarios that are to run in the sandbox.
    #[allow(dead_code, reason = "they are for `tests/cluster`")]
    pub(crate) fn real(&self) -> &cluster::Ground {
        self.ground.real()
    }

    /// An administrator's client.
    pub(crate) fn client(&self) -> kube::Client {
        self.ground.client()
    }

    /// The driver's backend: faults, truth, and what was called.
    pub(crate) fn driver(&self) -> &Driver {
        self.ground.driver()
    }

    /// The driver's name, which no other world has.
    pub(crate) fn driver_name(&self) -> &str {
        &self.driver_name
    }

    /// The finalizer that protects attachments and volumes.
    pub(crate) fn finalizer(&self) -> String {
        csi_attacher::finalizer(&self.driver_name)
    }

    /// Remembers the uid of a claim that was created.
    pub(crate) fn remember_uid(&self, claim: &str, uid: String) {
        self.uids.lock().unwrap().insert(claim.to_owned(), uid);
    }
    /// The uid of the claim of this name that was created last.
    pub(crate) fn remembered_uid(&self, claim: &str) -> Option<String> {
        self.uids.lock().unwrap().get(claim).cloned()
    }

    /// A cluster-wide name that no other world has.
    pub(crate) fn name(&self, short: &str) -> String {
        format!("{}-{short}", self.id)
    }

    /// Ends the driver's process and starts it again after `down`.
    pub(crate) async fn restart_driver(&self, down: Duration) {
        bounded("the driver's restart", self.ground.restart_driver(down)).await;
    }

    /// A daemon with both roles and short times; `overrides` is merged into its configuration. A role set to null is off.
    pub(crate) async fn daemon(&self, overrides: Value) -> Daemon {
        self.daemon_on("daemon", overrides).await
    }

    /// The same on a host of this name, for scenarios with several.
    pub(crate) async fn daemon_on(&self, host: &str, overrides: Value) -> Daemon {
        self.ground.start(&self.name(host), &objects::config_with(overrides).to_string()).await
    }

    /// A new world and a daemon in it: [`World::new`], [`World::daemon`].
    pub(crate) async fn with_daemon(overrides: Value) -> (Self, Daemon) {
        let world = Self::new().await;
        let daemon = world.daemon(overrides).await;
        (world, daemon)
    }

    /// A new world, a daemon in it, and what [`World::attached_anew`] has attached.
    pub(crate) async fn with_attachment() -> (Self, Daemon, (String, String, String)) {
        let (world, daemon) = Self::with_daemon(json!({})).await;
        let attached = world.attached_anew().await;
        (world, daemon, attached)
    }

    /// The daemon's `/status.json`.
    pub(crate) async fn status(&self, daemon: &Daemon) -> Value {
        serde_json::from_str(&crate::http::get(&daemon.diagnostics_dial().unwrap(), "/status.json").await).unwrap()
    }

    /// The daemon's `/metrics`.
    pub(crate) async fn metrics(&self, daemon: &Daemon) -> String {
        crate::http::get(&daemon.diagnostics_dial().unwrap(), "/metrics").await
    }

    /// The API of a kind of the cluster's scope.
    pub(crate) fn all<K>(&self) -> Api<K>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client())
    }

    /// The API of a kind in the namespace `default`.
    pub(crate) fn namespaced<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::default_namespaced(self.client())
    }

    /// Creates an object of the cluster's scope.
    pub(crate) async fn create<K: ClusterKind + Serialize>(&self, object: Value) -> K {
        let object: K = serde_json::from_value(object).unwrap();
        self.all().create(&PostParams::default(), &object).await.unwrap()
    }

    /// Creates a secret in the namespace `default`.
    pub(crate) async fn secret(&self, name: &str, data: &[(&str, &[u8])]) {
        for (_, value) in data {
            crate::records::remember_secret(value);
        }
        let data: BTreeMap<_, _> =
            data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec()))).collect();
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let secret = Secret { metadata, data: Some(data), ..Secret::default() };
        self.namespaced::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    }

    /// Registers the driver on a node, as a kubelet does, and with the backend. Returns the node's name; its CSI id is
    /// [`World::node_id`].
    pub(crate) async fn node(&self, short: &str) -> String {
        let name = self.name(short);
        self.know_node(&self.node_id(&name));
        self.register(&name, &self.node_id(&name)).await;
        name
    }

    /// The CSI id of a node.
    #[expect(clippy::unused_self, reason = "a world might name them in its own way")]
    pub(crate) fn node_id(&self, node: &str) -> String {
        format!("id-of-{node}")
    }

    /// Makes the backend know a node.
    pub(crate) fn know_node(&self, id: &str) {
        self.driver().change_profile(|profile| {
            profile.nodes.insert(id.to_owned(), Node::default());
        });
    }

    /// Writes the driver's entry into a `CSINode`, creating the node if need be.
    pub(crate) async fn register(&self, node: &str, id: &str) -> CSINode {
        let drivers = json!([{ "name": self.driver_name, "nodeID": id, "topologyKeys": null }]);
        self.set_drivers(node, drivers).await
    }

    /// Replaces the drivers of a `CSINode`, creating it if need be.
    pub(crate) async fn set_drivers(&self, node: &str, drivers: Value) -> CSINode {
        let nodes: Api<CSINode> = self.all();
        let old = nodes.get_opt(node).await.unwrap();
        if old.is_some() {
            // A driver's entry can't be changed, only removed and added.
            let patch = Patch::Merge(json!({ "spec": { "drivers": [] } }));
            nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
            let patch = Patch::Merge(json!({ "spec": { "drivers": drivers } }));
            return nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
        }
        self.create(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": { "name": node }, "spec": { "drivers": drivers } }))
            .await
    }

    /// A volume of the driver, known to its backend. Returns its name; its handle is [`World::handle`].
    pub(crate) async fn volume(&self, short: &str) -> String {
        self.volume_with(short, json!({})).await
    }

    /// The same with `spec` merged into its spec.
    pub(crate) async fn volume_with(&self, short: &str, spec: Value) -> String {
        let name = self.name(short);
        let handle = self.handle(&name);
        self.driver().seed([handle.as_str()]);
        let mut object = objects::volume(&name, &self.driver_name, &handle);
        objects::merge(&mut object, json!({ "spec": spec }));
        self.create::<PersistentVolume>(object).await;
        name
    }

    /// The handle of a volume.
    #[expect(clippy::unused_self, reason = "a world might name them in its own way")]
    pub(crate) fn handle(&self, volume: &str) -> String {
        format!("handle-of-{volume}")
    }

    /// Deletes a volume, and does the part of the volume protection controller, which not every cluster has running.
    pub(crate) async fn delete_volume(&self, name: &str) {
        let volumes: Api<PersistentVolume> = self.all();
        volumes.delete(name, &DeleteParams::default()).await.unwrap();
        let Some(volume) = volumes.get_opt(name).await.unwrap() else { return };
        if let Some(at) = volume.finalizers().iter().position(|it| it == "kubernetes.io/pv-protection") {
            self.drop_finalizer::<PersistentVolume>(name, at).await;
        }
    }

    /// Removes one finalizer from an object, whichever controller's it is.
    pub(crate) async fn drop_finalizer<K: ClusterKind>(&self, name: &str, at: usize) {
        let patch = json!([{ "op": "remove", "path": format!("/metadata/finalizers/{at}") }]);
        self.json_patch::<K>(name, patch).await;
    }

    /// Applies a JSON patch to an object of the cluster's scope.
    pub(crate) async fn json_patch<K: ClusterKind>(&self, name: &str, patch: Value) -> K {
        let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
        self.all::<K>().patch(name, &PatchParams::default(), &patch).await.unwrap()
    }

    /// Applies a merge patch to an object of the cluster's scope.
    pub(crate) async fn merge_patch<K: ClusterKind>(&self, name: &str, patch: Value) -> K {
        self.all::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Asks for a volume to be attached to a node, as the attach/detach controller does. Returns the attachment's name.
    pub(crate) async fn attach(&self, volume: &str, node: &str) -> String {
        let name = objects::attachment_name(&self.handle(volume), &self.driver_name, node);
        self.create::<VolumeAttachment>(objects::attachment(&name, &self.driver_name, volume, node)).await;
        name
    }

    /// Asks for an attachment to go.
    pub(crate) async fn detach(&self, attachment: &str) {
        self.all::<VolumeAttachment>().delete(attachment, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until an attachment is attached, and returns it.
    pub(crate) async fn attached(&self, attachment: &str) -> VolumeAttachment {
        self.until(attachment, "attached without an error", |it: &VolumeAttachment| {
            it.status.as_ref().is_some_and(|status| status.attached && status.attach_error.is_none())
        })
        .await
    }

    /// A new volume, attached to a new node. Returns the names of node, volume and attachment.
    pub(crate) async fn attached_anew(&self) -> (String, String, String) {
        let (node, volume) = (self.node("node").await, self.volume("pv").await);
        let attachment = self.attach(&volume, &node).await;
        self.attached(&attachment).await;
        (node, volume, attachment)
    }

    /// Waits until an attachment tells of an attach error that contains `text`, and returns it.
    pub(crate) async fn failed(&self, attachment: &str, text: &str) -> VolumeAttachment {
        self.until(attachment, text, |it: &VolumeAttachment| {
            let error = it.status.as_ref().and_then(|status| status.attach_error.as_ref());
            error.and_then(|error| error.message.as_deref()).is_some_and(|message| message.contains(text))
        })
        .await
    }

    /// Waits until an attachment tells of a detach error that contains `text`, and returns it.
    pub(crate) async fn detach_failed(&self, attachment: &str, text: &str) -> VolumeAttachment {
        self.until(attachment, text, |it: &VolumeAttachment| {
            let error = it.status.as_ref().and_then(|status| status.detach_error.as_ref());
            error.and_then(|error| error.message.as_deref()).is_some_and(|message| message.contains(text))
        })
        .await
    }

    /// Detaches, and waits until the attachment is gone.
    pub(crate) async fn detached(&self, attachment: &str) {
        self.detach(attachment).await;
        self.gone::<VolumeAttachment>(attachment).await;
    }

    /// Waits until an object of the cluster's scope satisfies a condition, and returns it.
    pub(crate) async fn until<K: ClusterKind>(&self, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K {
        until_some(self.all::<K>(), name, what, |object: Option<&K>| object.is_some_and(&holds)).await.unwrap()
    }

    /// Waits until an object of the cluster's scope is gone.
    pub(crate) async fn gone<K: ClusterKind>(&self, name: &str) {
        until_some(self.all::<K>(), name, "gone", |object: Option<&K>| object.is_none()).await;
    }

    /// Waits until the driver's state or memory satisfies a condition.
    pub(crate) async fn driver_until(&self, what: &str, holds: impl Fn(&Driver) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, self.driver().until(holds)).await;
        assert!(waited.is_ok(), "the driver never came to: {what}; calls: {:#?}", brief(&self.driver().calls()));
    }

    /// The calls of one method for one volume.
    pub(crate) fn calls(&self, method: Method, volume: &str) -> Vec<Arc<Call>> {
        let handle = self.handle(volume);
        self.driver().calls_of(method).into_iter().filter(|call| call.volume.as_ref() == Some(&handle)).collect()
    }

    /// The publish calls for a volume.
    pub(crate) fn publishes(&self, volume: &str) -> Vec<Arc<Call>> {
        self.calls(Method::ControllerPublishVolume, volume)
    }

    /// The unpublish calls for a volume.
    pub(crate) fn unpublishes(&self, volume: &str) -> Vec<Arc<Call>> {
        self.calls(Method::ControllerUnpublishVolume, volume)
    }

    /// Whether the backend has the volume on the node.
    pub(crate) fn is_published(&self, volume: &str, node: &str) -> bool {
        self.driver().published(&self.handle(volume)).contains(&self.node_id(node))
    }

    /// Waits until the Events on the object of this uid satisfy a condition, and returns them.
    pub(crate) async fn events_until(&self, uid: &str, what: &str, holds: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        let api: Api<Event> = self.namespaced();
        let mut seen = Vec::new();
        let wait = async {
            let mut watch = std::pin::pin!(
                kube::runtime::watcher(api.clone(), kube::runtime::watcher::Config::default()).default_backoff()
            );
            while watch.next().await.is_some() {
                let all = api.list(&ListParams::default()).await.unwrap().items;
                seen = all.into_iter().filter(|it| it.involved_object.uid.as_deref() == Some(uid)).collect();
                if holds(&seen) {
                    return;
                }
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        assert!(waited.is_ok(), "never came: {what}; Events on {uid}: {seen:#?}");
        seen
    }
}

/// Calls in one line each.
pub(crate) fn brief(calls: &[Arc<Call>]) -> Vec<String> {
    calls
        .iter()
        .map(|call| {
            let volume = call.volume.as_deref().or(call.name.as_deref()).unwrap_or_default();
            let node = call.node.as_deref().unwrap_or_default();
            format!("{:?} {} {volume} {node} {:?}", call.started, call.method, call.outcome)
        })
        .collect()
}
