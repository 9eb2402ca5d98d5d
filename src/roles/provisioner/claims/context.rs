//! What the claims of a term share.

use std::sync::Arc;

use crate::journal::Journal;
use crate::roles::kit::Memory;
use crate::roles::provisioner::node::lost::LostNodes;
use crate::roles::provisioner::topology::TopologyWarnings;

use super::entry::Entry;
use super::histories::Histories;
use super::memory::ClaimMemory;
use super::request::ProvisionRules;
use super::view::Rules;

/// What the claims of a term share.
#[derive(Debug)]
pub struct ClaimsContext {
    /// The rules of provisioning.
    pub rules: Arc<Rules>,
    /// The settings that shape a request, beyond the claim and its class.
    pub asking: Arc<ProvisionRules>,
    /// The provisioner's identity, which is written into each volume's attributes.
    pub identity: String,
    /// The finalizer that the attacher in this process would add to a volume at its first attach.
    pub attacher_finalizer: Option<String>,
    /// What is known of the cluster's topology as a whole.
    pub topology: TopologyWarnings,
    /// The API's history of PersistentVolumes, for requests of an earlier term.
    pub histories: Histories,
    /// The requests that have no final answer yet.
    pub journal: RequestJournal,
    /// What the term remembers of claims.
    pub memory: Memory<ClaimMemory>,
}

/// The journal of requests that have no final answer yet.
#[derive(Debug)]
pub struct RequestJournal {
    /// Its entries. `None`: `durableIntent` is false.
    pub entries: Option<Journal<Entry>>,
    /// Where it is.
    pub namespace: Option<String>,
    /// What may be left over on nodes that are gone.
    pub lost_nodes: LostNodes,
}

impl RequestJournal {
    /// Drops the entry of a claim, because no volume can exist that no PersistentVolume names (J2).
    pub fn remove(&self, uid: &str) {
        if let Some(entries) = &self.entries {
            entries.remove(uid);
        }
    }

    /// How many requests it has.
    pub fn requests(&self) -> usize {
        self.entries.as_ref().map_or(0, Journal::len)
    }
}
