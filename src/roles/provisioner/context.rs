//! What all attempts of a term share.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{
    Cache, CsiNode, CsiStorageCapacity, Node, ObjectName, PersistentVolume, PersistentVolumeClaim, StorageClass,
    VolumeAttachment, VolumeSnapshot, VolumeSnapshotContent,
};
use crate::journal::{Journal, JournalError};
use crate::roles::kit::TermScope;

use crate::roles::provisioner::capacity::CapacityInvalidation;
use crate::roles::provisioner::claim::{Claim, ClaimKey};
use crate::roles::provisioner::claims::context::ClaimsContext;
use crate::roles::provisioner::claims::decide::NameStatus;
use crate::roles::provisioner::claims::entry::Entry;
use crate::roles::provisioner::claims::name_status::status_of;
use crate::roles::provisioner::claims::request::whole_uid;
use crate::roles::provisioner::config::ProvisionerSection;
use crate::roles::provisioner::deletion::context::DeletionContext;
use crate::roles::provisioner::node::deployment::Deployment;
use crate::roles::provisioner::sources::memory::SourceMemory;
use crate::roles::provisioner::sources::protection::SourceKey;

/// How long the end of a volume waits for the journal before the attempt fails, and says why.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(30);

/// The caches that the provisioner reads.
#[derive(Debug, Clone)]
pub struct Stores {
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

/// What all attempts of a term share.
#[derive(Debug)]
pub struct Context {
    /// The term, the fenced clients, the volume locks.
    pub scope: TermScope,
    /// The role's configuration.
    pub section: Arc<ProvisionerSection>,
    /// The caches of the cluster's objects.
    pub stores: Stores,
    /// Whether one daemon serves the cluster or each node has its own. This decides which claims and volumes are for
    /// this daemon.
    pub deployment: Deployment,
    /// Tells the capacity loop for which classes a volume could not be created, so that it asks the driver again.
    pub capacity: CapacityInvalidation,
    /// What the claims share.
    pub claims: ClaimsContext,
    /// What the deletions share.
    pub deletion: DeletionContext,
    /// What is known of data sources.
    pub sources: SourceMemory,
}

impl Context {
    /// The claim as the cache has it, unless a newer claim has its name.
    pub fn find(&self, key: &ClaimKey) -> Option<Claim> {
        let object = self.stores.claims.get(&key.name)?;
        (*object.metadata.uid == *key.uid).then(|| Claim::parse(object, &self.scope.driver_name))
    }

    /// The class that a claim names.
    pub fn class_of(&self, claim: &Claim) -> Option<Arc<StorageClass>> {
        self.stores.classes.get(&ObjectName::cluster(claim.class.as_deref()?))
    }

    /// What the cluster has under the name of the claim's volume.
    pub fn place(&self, claim: &Claim, volume: Option<&PersistentVolume>) -> NameStatus {
        let Some(volume) = volume else { return NameStatus::Free };
        status_of(volume, &claim.key, &self.claims.rules.driver)
    }

    /// What happens to a claim, for the status page.
    pub fn subject(&self, key: &ClaimKey) -> Option<String> {
        let state = self.claims.memory.read(&key.uid, |it| it.state.clone())?;
        let class = state.claim.class.as_deref().unwrap_or("no class");
        // Without a request in progress, the last error says more than "not requested".
        let phase = state.phase().label().map(|label| format!(", {label}")).unwrap_or_default();
        Some(format!("{key}: class {class}{phase}"))
    }

    /// A claim no longer needs the source that it names: perhaps no claim does.
    pub fn sources_may_be_free(&self, claim: &Claim) {
        if let Some(source) = SourceKey::of(&claim.object) {
            self.sources.may_be_free(source);
        }
    }

    /// The keys under which the journal may have an entry for this PersistentVolume: the claim's uid, and the uid in
    /// the volume's name, because volume populators and people rebind a PersistentVolume to another claim. Without a
    /// whole uid in the name, each key counts that the name may have been made of.
    fn journal_keys(&self, journal: &Journal<Entry>, volume: &PersistentVolume) -> Vec<String> {
        let claim = volume.spec.claim_ref.as_deref().and_then(|claim| claim.uid.clone());
        let name: &str = &volume.metadata.name;
        let of_name = match whole_uid(name) {
            Some(uid) => vec![uid.to_owned()],
            None => journal.keys(|key| self.claims.asking.names.may_be_of(name, key)),
        };
        claim.into_iter().chain(of_name).filter(|key| !key.is_empty()).collect()
    }

    /// Whether no later leader can find an entry of the journal for this PersistentVolume (J8).
    pub fn is_forgotten(&self, volume: &PersistentVolume) -> bool {
        let Some(journal) = &self.claims.journal.entries else { return true };
        self.journal_keys(journal, volume).iter().all(|key| journal.is_gone(key))
    }

    /// Waits until no later leader can find an entry, at most `JOURNAL_PATIENCE`.
    pub async fn forgotten(&self, volume: &PersistentVolume) -> Result<(), JournalError> {
        let Some(journal) = &self.claims.journal.entries else { return Ok(()) };
        for key in self.journal_keys(journal, volume) {
            journal.gone(&key, JOURNAL_PATIENCE).await?;
        }
        Ok(())
    }

    /// Waits until claims were listed once in this term: a claim that the watch has not shown yet may need a source
    /// that seems to be unused.
    pub async fn relist_claims(&self) {
        self.sources.relisted.wait(|| self.stores.claims.relisted()).await;
    }
}
