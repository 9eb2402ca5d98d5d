//! What the deletions of a term share.

use std::sync::Arc;

use futures::future::join;

use crate::cluster::{Cache, ObjectName, PersistentVolume, VolumeAttachment};
use crate::diagnostics::{Cell, Column, Table};
use crate::roles::kit::{Controllers, Memory, Store};

use super::policy::Rules;
use super::progress;

/// The volumes whose deletion waits for their detach.
pub const DETACHING: Table = Table {
    name: "detachingVolumes",
    title: "Volumes waiting to be detached",
    columns: &[
        Column::text("volume", "volume"),
        Column::text("claim", "claim"),
        Column::count("attachments", "attachments"),
    ],
};

/// What the deletions of a term share.
#[derive(Debug)]
pub struct DeletionContext {
    /// The rules of the term.
    pub rules: Arc<Rules>,
    /// Every `PersistentVolume`.
    pub volumes: Store<PersistentVolume>,
    /// Every `VolumeAttachment`: a volume that is attached must not be deleted.
    pub attachments: Store<VolumeAttachment>,
    /// What the term remembers of volumes.
    pub memory: Memory<progress::Memory>,
}

impl DeletionContext {
    /// Nothing is remembered yet.
    pub fn new(rules: Rules, volumes: &Cache<PersistentVolume>, attachments: &Cache<VolumeAttachment>) -> Self {
        let (volumes, attachments) = (Store::of(volumes), Store::of(attachments));
        Self { rules: Arc::new(rules), volumes, attachments, memory: Memory::default() }
    }

    /// Forgets what is known of volumes that go.
    pub fn follow(&self, controllers: &mut Controllers) {
        controllers.follow(&self.volumes);
    }

    /// Whether volumes and attachments were listed since the term began.
    pub fn is_listed(&self) -> bool {
        self.volumes.is_listed() && self.attachments.is_listed()
    }

    /// Waits until volumes and attachments were listed once in this term. The watches of a new leader may be behind: they may still show
    /// a volume that the last leader deleted, or not yet show an attachment.
    pub async fn list(&self) {
        join(self.volumes.list(), self.attachments.list()).await;
    }

    /// The volumes that wait for their detach, by name, each with its claim and the number of its attachments.
    pub fn detaching(&self) -> Vec<Vec<Cell>> {
        let mut all = self.memory.collect(|it| it.waits.clone());
        all.sort_by(|one, other| one.volume.cmp(&other.volume));
        let claim_of = |volume: &str| self.volumes.get(&ObjectName::cluster(volume))?.claim();
        let claim = |volume: &str| claim_of(volume).map(|claim| claim.to_string());
        all.into_iter()
            .map(|it| vec![it.volume.clone().into(), claim(&it.volume).into(), it.attachments.into()])
            .collect()
    }
}
