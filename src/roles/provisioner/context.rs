//! What the rooms of the provisioner share in a term. Each room has a context of its own beside it, and none knows another's.

use std::sync::Arc;

use futures::future::join;

use crate::cluster::{
    BY_HANDLE, BY_SUCCESSOR, Cache, CsiNode, CsiStorageCapacity, IdKind, Node, PersistentVolume, PersistentVolumeClaim,
    StorageClass, VolumeAttachment, VolumeSnapshot, VolumeSnapshotContent,
};
use crate::roles::kit::{Store, TermScope};

use super::capacity::CapacityInvalidation;
use super::claim::{Claim, ClaimKey};
use super::config::ProvisionerSection;
use super::node::deployment::Deployment;
use super::sources::memory::SourceMemory;
use super::sources::protection::SourceKey;
use super::volume::handle_of;

/// The caches that the provisioner reads.
#[derive(Debug, Clone)]
pub struct Caches {
    /// Every claim. Claims of other drivers are kept without their details.
    pub claims: Cache<PersistentVolumeClaim>,
    /// Every `PersistentVolume`.
    pub volumes: Cache<PersistentVolume>,
    /// Every `StorageClass`.
    pub classes: Cache<StorageClass>,
    /// Every `VolumeAttachment`: a volume that is attached must not be deleted.
    pub attachments: Cache<VolumeAttachment>,
    /// Every snapshot, if the cluster has them.
    pub snapshots: Cache<VolumeSnapshot>,
    /// The contents of snapshots, whose changes wake restores. `None`: this daemon does not host the snapshotter, and does not watch
    /// them.
    pub contents: Option<Cache<VolumeSnapshotContent>>,
    /// Where the nodes are. `None`: topology is switched off, or this node's driver reports its own place.
    pub nodes: Option<(Cache<Node>, Cache<CsiNode>)>,
    /// The published `CSIStorageCapacity` objects. `None`: publishing is switched off.
    pub capacities: Option<Cache<CsiStorageCapacity>>,
}

/// The caches during a term, as far as steps read their objects from the API or write to them.
#[derive(Debug)]
pub struct Stores {
    /// Every claim.
    pub claims: Store<PersistentVolumeClaim>,
    /// Every `PersistentVolume`.
    pub volumes: Store<PersistentVolume>,
    /// Every `StorageClass`.
    pub classes: Store<StorageClass>,
    /// Every `VolumeAttachment`.
    pub attachments: Store<VolumeAttachment>,
    /// Every snapshot.
    pub snapshots: Store<VolumeSnapshot>,
    /// Where the nodes are.
    pub nodes: Option<(Store<Node>, Store<CsiNode>)>,
}

impl Stores {
    /// Nothing is known yet.
    pub fn of(caches: &Caches) -> Self {
        Self {
            claims: Store::of(&caches.claims),
            volumes: Store::of(&caches.volumes),
            classes: Store::of(&caches.classes),
            attachments: Store::of(&caches.attachments),
            snapshots: Store::of(&caches.snapshots),
            nodes: caches.nodes.as_ref().map(|(nodes, csi_nodes)| (Store::of(nodes), Store::of(csi_nodes))),
        }
    }

    /// Whether volumes and attachments were listed since the term began.
    pub fn has_listed_volumes(&self) -> bool {
        self.volumes.is_listed() && self.attachments.is_listed()
    }

    /// Waits until volumes and attachments were listed once in this term. The watches of a new leader may be behind: they may still show
    /// a volume that the last leader deleted, or not yet show an attachment.
    pub async fn list_volumes(&self) {
        join(self.volumes.list(), self.attachments.list()).await;
    }
}

/// What the rooms share in a term.
#[derive(Debug)]
pub struct Context {
    /// The term, the fenced clients, the volume locks.
    pub scope: Arc<TermScope>,
    /// The role's configuration.
    pub section: Arc<ProvisionerSection>,
    /// The caches of the cluster's objects.
    pub caches: Caches,
    /// The same as far as steps read them from the API or write to them.
    pub stores: Stores,
    /// Whether one daemon serves the cluster or each node has its own. This decides which claims and volumes are for
    /// this daemon.
    pub deployment: Deployment,
    /// Tells the capacity loop for which classes a volume could not be created, so that it asks the driver again.
    pub capacity: CapacityInvalidation,
    /// The locks of data sources.
    pub sources: SourceMemory,
}

impl Context {
    /// The claim as the cache has it, unless a newer claim has its name.
    pub fn find(&self, key: &ClaimKey) -> Option<Claim> {
        let object = self.caches.claims.get(&key.name)?;
        (*object.metadata.uid == *key.uid).then(|| Claim::parse(object, &self.scope.driver_name))
    }

    /// The class that a claim or a volume names.
    pub fn class(&self, name: Option<&str>) -> Option<Arc<StorageClass>> {
        self.caches.classes.named(name?)
    }

    /// A claim no longer needs the source that it names: perhaps no claim does.
    pub fn sources_may_be_free(&self, claim: &Claim) {
        if let Some(source) = SourceKey::of(&claim.object) {
            self.sources.may_be_free(source);
        }
    }

    /// The cached PersistentVolumes whose handle may be of the volume with this handle of our driver. With node deployment, without
    /// those that certainly belong to another node: there the same handle is another volume.
    pub fn volumes_of(&self, handle: &str) -> Vec<Arc<PersistentVolume>> {
        let driver = &self.scope.driver_name;
        let mut found = self.caches.volumes.find(BY_HANDLE, &IdKind::Volume.key(driver, handle));
        // No index has the handles of in-tree volumes.
        found.extend(self.caches.volumes.find(BY_SUCCESSOR, driver));
        found.retain(|volume| self.names(volume, handle));
        found
    }

    /// The other PersistentVolumes that may have the same volume.
    pub fn same_handle(&self, volume: &PersistentVolume) -> Vec<Arc<PersistentVolume>> {
        let Some(handle) = handle_of(volume, &self.scope.driver_name) else { return Vec::new() };
        let mut found = self.volumes_of(&handle);
        found.retain(|other| other.metadata.uid != volume.metadata.uid);
        found
    }

    /// Whether this PersistentVolume, which may not be from the cache, may have the volume with this handle of our driver.
    pub fn names(&self, volume: &PersistentVolume, handle: &str) -> bool {
        let is_same = |own: &String| IdKind::Volume.may_be_same(&self.scope.driver_name, own, handle);
        handle_of(volume, &self.scope.driver_name).as_ref().is_some_and(is_same) && self.deployment.may_be_here(volume)
    }
}
