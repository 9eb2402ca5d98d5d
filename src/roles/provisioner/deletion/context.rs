//! What the deletions of a term share.

use std::sync::Arc;

use crate::diagnostics::{Cell, Table, table};
use crate::roles::kit::Memory;
use crate::roles::provisioner::claims::context::RequestJournal;
use crate::roles::provisioner::context::Context;

use super::policy::Rules;
use super::progress;

/// The volumes whose deletion waits for their detach.
pub const DETACHING: Table = table! {
    "detachingVolumes", "Volumes waiting to be detached":
        text("volume", "volume"), text("claim", "claim"), count("attachments", "attachments")
};

/// What the deletions of a term share.
#[derive(Debug)]
pub struct DeletionContext {
    /// What they share with the other rooms.
    pub shared: Arc<Context>,
    /// The rules of the term.
    pub rules: Arc<Rules>,
    /// The requests that have no final answer yet: a volume is kept while one of them may be about it.
    pub journal: RequestJournal,
    /// What the term remembers of volumes.
    pub memory: Memory<progress::Memory>,
}

impl DeletionContext {
    /// The volumes that wait for their detach, by name, each with its claim and the number of its attachments.
    pub fn detaching(&self) -> Vec<Vec<Cell>> {
        let mut all = self.memory.collect(|it| it.waits.clone());
        all.sort_by(|one, other| one.volume.cmp(&other.volume));
        let claim_of = |volume: &str| self.shared.stores.volumes.named(volume)?.claim();
        let claim = |volume: &str| claim_of(volume).map(|claim| claim.to_string());
        all.into_iter()
            .map(|it| vec![it.volume.clone().into(), claim(&it.volume).into(), it.attachments.into()])
            .collect()
    }
}
