//! Helpers for scenarios about claims, in addition to [`crate::world`]: classes, claims, nodes with topology, pods,
//! snapshots; and the checks at the end.
//!
//! Here a cluster has its controllers: the sandbox's actors, or the real ones. So they bind claims, schedule pods and
//! request attachments without the scenario. Namespaced objects are in `default`, under names that no other world has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use csi_control_plane::sandbox::driver::{Node as DriverNode, Pool, Profile, Violation};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::ground::Daemon;
use crate::objects::merge;
use crate::world::{PATIENCE, World, brief, settled, until_some};

/// The label and topology key of the zones of scenarios.
pub(crate) const ZONE: &str = "topology.example.com/zone";
/// Names the node that the scheduler chose for a claim.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A pool of this many gibibytes in a zone.
pub(crate) fn pool(zone: &str, gibibytes: i64) -> Pool {
    Pool::at([(ZONE, zone)], gibibytes << 30)
}

/// How far a claim is.
pub(crate) fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether a claim carries something of ours.
pub(crate) fn has_ours(claim: &PersistentVolumeClaim) -> bool {
    let is_ours = |name: &String| name.contains("csi-control-plane.io");
    claim.finalizers().iter().any(is_ours) || claim.annotations().keys().any(is_ours)
}

impl World {
    /// [`World::with_daemon`] in a cluster with controllers, on a host of this name: [`World::supplied`], [`World::daemon_on`].
    pub(crate) async fn supplied_with_daemon(host: &str, overrides: Value) -> (Self, Daemon) {
        let world = Self::supplied(|_| {}).await;
        let daemon = world.daemon_on(host, overrides).await;
        (world, daemon)
    }

    /// A class of the driver; `change` is merged into it. Returns its name.
    pub(crate) async fn class(&self, short: &str, change: Value) -> String {
        let name = self.name(short);
        let mut class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": self.driver_name()});
        merge(&mut class, change);
        self.create::<StorageClass>(class).await;
        name
    }

    /// A class whose claims wait for their first consumer.
    pub(crate) async fn waiting_class(&self, short: &str, change: Value) -> String {
        let mut class = json!({"volumeBindingMode": "WaitForFirstConsumer"});
        merge(&mut class, change);
        self.class(short, class).await
    }

    /// A claim of 1 GiB of a class; `change` is merged into it. Returns its name.
    pub(crate) async fn claim(&self, short: &str, class: &str, change: Value) -> String {
        let name = self.name(short);
        let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}}});
        merge(&mut claim, change);
        let made = self.create_namespaced::<PersistentVolumeClaim>(claim).await;
        self.remember_uid(&name, made.uid().unwrap());
        name
    }

    /// A claim of a new class. Returns the names of both.
    pub(crate) async fn claim_anew(&self, short: &str) -> (String, String) {
        let class = self.class("class", json!({})).await;
        let claim = self.claim(short, &class, json!({})).await;
        (class, claim)
    }

    /// The same of a class whose claims wait for their first consumer.
    pub(crate) async fn waiting_claim_anew(&self, short: &str) -> (String, String) {
        let class = self.waiting_class("class", json!({})).await;
        let claim = self.claim(short, &class, json!({})).await;
        (class, claim)
    }

    /// A node that is ready and has the driver, with these labels, all of them topology keys. Returns its name.
    pub(crate) async fn place(&self, short: &str, labels: &[(&str, &str)]) -> String {
        let name = self.name(short);
        let segments: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let node = DriverNode { segments: segments.clone(), ..DriverNode::default() };
        let id = self.node_id(&name);
        self.driver().change_profile(|profile| drop(profile.nodes.insert(id.clone(), node)));
        let keys: Vec<&String> = segments.keys().collect();
        let drivers = json!([{"name": self.driver_name(), "nodeID": id, "topologyKeys": keys}]);
        self.set_drivers(&name, drivers).await;
        let mut all_labels = json!(segments);
        all_labels["kubernetes.io/hostname"] = name.as_str().into();
        let attach = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
        self.create::<Node>(json!({"metadata": {"name": name, "labels": all_labels, "annotations": attach}})).await;
        let room = json!({"cpu": "4", "memory": "8Gi", "pods": "100"});
        let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
            "lastHeartbeatTime": "2100-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let status = Patch::Merge(json!({"status": {"capacity": room, "allocatable": room, "conditions": ready}}));
        self.all::<Node>().patch_status(&name, &PatchParams::default(), &status).await.unwrap();
        // As the kubelet says when it is up.
        self.merge_patch::<Node>(&name, json!({"spec": {"taints": null}})).await;
        name
    }

    /// A node in a zone.
    pub(crate) async fn node_in(&self, short: &str, zone: &str) -> String {
        self.place(short, &[(ZONE, zone)]).await
    }

    /// A pod that uses these claims, on a certain node or on any that this world has. Returns its name.
    pub(crate) async fn pod(&self, short: &str, claims: &[&str], node: Option<&str>) -> String {
        let name = self.name(short);
        let volumes: Vec<Value> = claims
            .iter()
            .enumerate()
            .map(|(i, claim)| json!({"name": format!("v{i}"), "persistentVolumeClaim": {"claimName": claim}}))
            .collect();
        let selector = node.map_or_else(|| json!({}), |node| json!({"kubernetes.io/hostname": node}));
        let pod = json!({"metadata": {"name": name}, "spec": {"volumes": volumes, "nodeSelector": selector,
            "containers": [{"name": "c", "image": "example.com/none"}]}});
        self.create_namespaced::<Pod>(pod).await;
        name
    }

    /// Deletes a pod as if its kubelet had ended it.
    pub(crate) async fn delete_pod(&self, name: &str) {
        self.namespaced::<Pod>().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    /// Deletes a claim.
    pub(crate) async fn delete_claim(&self, name: &str) {
        self.namespaced::<PersistentVolumeClaim>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Deletes a claim, and waits until it is gone.
    pub(crate) async fn delete_claim_and_wait(&self, name: &str) {
        self.delete_claim(name).await;
        self.claim_gone(name).await;
    }

    /// Creates an object in the namespace `default`.
    pub(crate) async fn create_namespaced<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.namespaced().create(&PostParams::default(), &object).await.unwrap()
    }

    /// Waits until a claim satisfies a condition, and returns it.
    pub(crate) async fn claim_until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&PersistentVolumeClaim) -> bool,
    ) -> PersistentVolumeClaim {
        until_some(self.namespaced(), name, what, |claim: Option<&PersistentVolumeClaim>| claim.is_some_and(&holds))
            .await
            .unwrap()
    }

    /// Waits until a claim is bound, and returns its volume.
    pub(crate) async fn bound(&self, claim: &str) -> PersistentVolume {
        let claim = self.claim_until(claim, "bound", |claim| phase(claim) == "Bound").await;
        let volume = claim.spec.and_then(|spec| spec.volume_name).unwrap();
        self.all::<PersistentVolume>().get(&volume).await.unwrap()
    }

    /// Waits until a node was chosen for a claim, and returns it.
    pub(crate) async fn selected(&self, claim: &str) -> String {
        let claim =
            self.claim_until(claim, "a node is chosen", |it| it.annotations().contains_key(SELECTED_NODE)).await;
        claim.annotations()[SELECTED_NODE].clone()
    }

    /// Waits until a claim is gone.
    pub(crate) async fn claim_gone(&self, name: &str) {
        until_some(self.namespaced(), name, "gone", |claim: Option<&PersistentVolumeClaim>| claim.is_none()).await;
    }

    /// Waits until a pod has a node, and returns it.
    pub(crate) async fn scheduled(&self, pod: &str) -> String {
        let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let pod =
            until_some(self.namespaced(), pod, "scheduled", |pod: Option<&Pod>| pod.and_then(node).is_some()).await;
        pod.as_ref().and_then(node).unwrap()
    }

    /// The volumes of this world's driver.
    pub(crate) async fn volumes(&self) -> Vec<PersistentVolume> {
        let mut volumes = self.all::<PersistentVolume>().list(&ListParams::default()).await.unwrap().items;
        volumes.retain(|volume| handle_of(volume).is_some_and(|(driver, _)| driver == self.driver_name()));
        volumes
    }

    /// The claims of this world.
    pub(crate) async fn claims(&self) -> Vec<PersistentVolumeClaim> {
        let mut claims = self.namespaced::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap().items;
        let ours = self.name("");
        claims.retain(|claim| claim.name_any().starts_with(&ours));
        claims
    }

    /// Asserts that the driver comes to have exactly the volumes that the API has, each once; that nothing of ours is on
    /// claims; and that no call met another of the same caller for the same volume.
    pub(crate) async fn assert_nothing_leaked(&self) {
        settled("nothing that leaked", PATIENCE, async || match self.leak().await {
            None => Ok(()),
            Some(what) => Err(format!("{what}; calls: {:#?}", brief(&self.driver().calls()))),
        })
        .await;
        let own = |violation: &Violation| !matches!(violation, Violation::Overlap { same_connection: false, .. });
        let violations: Vec<_> = self.driver().violations().into_iter().filter(own).collect();
        assert_eq!(violations, []);
    }

    /// Differences between the driver and the API, and objects that were left behind.
    pub(crate) async fn leak(&self) -> Option<String> {
        let (volumes, claims) = (self.volumes().await, self.claims().await);
        let handles: Vec<String> = volumes.iter().filter_map(|it| handle_of(it).map(|(_, handle)| handle)).collect();
        let known: BTreeSet<String> = handles.iter().cloned().collect();
        if known.len() != handles.len() {
            return Some(format!("two volumes have one handle: {handles:?}"));
        }
        let there: BTreeSet<String> = self.driver().state().volumes().keys().cloned().collect();
        if known != there {
            return Some(format!("the API has {known:?}, the driver has {there:?}"));
        }
        claims.iter().find(|it| has_ours(it)).map(|claim| format!("something of ours is on a claim: {claim:#?}"))
    }

    /// Waits until no attachment of the driver is left.
    pub(crate) async fn all_detached(&self) {
        let attachments = self.all::<VolumeAttachment>().list(&ListParams::default()).await.unwrap();
        for attachment in attachments.into_iter().filter(|it| it.spec.attacher == self.driver_name()) {
            self.gone::<VolumeAttachment>(&attachment.name_any()).await;
        }
    }

    /// Gives the cluster the kinds of snapshots and grants.
    pub(crate) async fn install_snapshots(&self) {
        self.ground().install_snapshots().await;
    }

    /// A ready snapshot of a bound claim, as the snapshot controller would leave it. Returns its name.
    pub(crate) async fn snapshot(&self, short: &str, claim: &str) -> String {
        let (name, volume) = (self.name(short), self.bound(claim).await);
        let (driver, source) = handle_of(&volume).unwrap();
        let handle = self.driver().cut_snapshot(&name, &source).unwrap();
        let size = self.driver().state().volumes()[&source].capacity;
        let content = json!({"metadata": {"name": name}, "spec": {"driver": driver, "deletionPolicy": "Delete",
            "sourceVolumeMode": "Filesystem", "source": {"volumeHandle": source},
            "volumeSnapshotRef": {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "namespace": "default", "name": name}}});
        let snapshot = json!({"metadata": {"name": name}, "spec": {"source": {"persistentVolumeClaimName": claim}}});
        let made = self.installed("VolumeSnapshot", snapshot).await;
        let mut bound = content;
        bound["spec"]["volumeSnapshotRef"]["uid"] = made.uid().unwrap().into();
        self.installed("VolumeSnapshotContent", bound).await;
        let ready = json!({"readyToUse": true, "restoreSize": size, "snapshotHandle": handle});
        self.installed_status("VolumeSnapshotContent", &name, ready).await;
        let ready =
            json!({"readyToUse": true, "restoreSize": size.to_string(), "boundVolumeSnapshotContentName": name});
        self.installed_status("VolumeSnapshot", &name, ready).await;
        name
    }

    /// The API of a kind that was installed: `VolumeSnapshot`, `VolumeSnapshotContent`, `VolumeSnapshotClass`, `ReferenceGrant`.
    pub(crate) fn installed_kind(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version) = group_of(kind);
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match kind {
            "VolumeSnapshot" | "VolumeGroupSnapshot" | "ReferenceGrant" => {
                Api::default_namespaced_with(self.client(), &resource)
            }
            _ => Api::all_with(self.client(), &resource),
        }
    }

    /// Creates an object of a kind that was installed.
    pub(crate) async fn installed(&self, kind: &str, mut object: Value) -> DynamicObject {
        let (group, version) = group_of(kind);
        merge(&mut object, json!({"apiVersion": format!("{group}/{version}"), "kind": kind}));
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.installed_kind(kind).create(&PostParams::default(), &object).await.unwrap()
    }

    /// Writes the status of an object of a kind that was installed.
    pub(crate) async fn installed_status(&self, kind: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.installed_kind(kind).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// A volume's driver and handle: its own, or those of its CSI form, if it is a volume of Amazon's plugin.
pub(crate) fn handle_of(volume: &PersistentVolume) -> Option<(String, String)> {
    let spec = volume.spec.as_ref()?;
    let csi = spec.csi.as_ref().map(|csi| (csi.driver.clone(), csi.volume_handle.clone()));
    let in_tree = || spec.aws_elastic_block_store.as_ref().map(|it| ("ebs.csi.aws.com".into(), it.volume_id.clone()));
    csi.or_else(in_tree)
}

/// A profile of a driver with zones, for [`World::supplied`].
pub(crate) fn zoned(pools: impl IntoIterator<Item = Pool>) -> impl FnOnce(&mut Profile) {
    let pools: Vec<Pool> = pools.into_iter().collect();
    move |profile| *profile = profile.clone().in_pools(pools)
}

/// Where a cluster has a kind that was installed.
fn group_of(kind: &str) -> (&'static str, &'static str) {
    match kind {
        "ReferenceGrant" => ("gateway.networking.k8s.io", "v1beta1"),
        kind if kind.starts_with("VolumeGroupSnapshot") => ("groupsnapshot.storage.k8s.io", "v1"),
        _ => ("snapshot.storage.k8s.io", "v1"),
    }
}
