//! What the claims of a term share.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::PersistentVolume;
use crate::journal::{Journal, JournalError};
use crate::roles::kit::Memory;
use crate::roles::provisioner::claim::{Claim, ClaimKey};
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::topology::TopologyWarnings;

use super::entry::Entry;
use super::histories::Histories;
use super::memory::ClaimMemory;
use super::name_status::status_of;
use super::request::{NameRule, ProvisionRules, whole_uid};
use super::view::{NameStatus, Rules};

/// How long the end of a volume waits for the journal before the attempt fails, and says why.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(30);

/// What the claims of a term share.
#[derive(Debug)]
pub struct ClaimsContext {
    /// What they share with the other rooms.
    pub shared: Arc<Context>,
    /// The rules of provisioning.
    pub rules: Arc<Rules>,
    /// The settings that shape a request, beyond the claim and its class.
    pub asking: Arc<ProvisionRules>,
    /// What is written on each new PersistentVolume.
    pub marks: VolumeMarks,
    /// What the nodes report about the cluster's topology as a whole.
    pub topology: TopologyWarnings,
    /// The API's history of PersistentVolumes, for requests of an earlier term.
    pub histories: Histories,
    /// The requests that have no final answer yet.
    pub journal: RequestJournal,
    /// What the term remembers of claims.
    pub memory: Memory<ClaimMemory>,
}

/// What this process writes on each new PersistentVolume.
#[derive(Debug)]
pub struct VolumeMarks {
    /// The provisioner's identity, an attribute of the volume.
    pub identity: String,
    /// The finalizer that the attacher in this process would add to the volume at its first attach.
    pub attacher_finalizer: Option<String>,
}

/// The journal of requests that have no final answer yet.
#[derive(Debug, Clone)]
pub struct RequestJournal {
    /// Its entries. `None`: `durableIntent` is false.
    pub entries: Option<Journal<Entry>>,
    /// How the volumes are named.
    pub names: NameRule,
}

impl ClaimsContext {
    /// What the cluster has under the name of the claim's volume.
    pub fn place(&self, claim: &Claim, volume: Option<&PersistentVolume>) -> NameStatus {
        let Some(volume) = volume else { return NameStatus::Free };
        status_of(volume, &claim.key, &self.rules.driver)
    }

    /// What happens to a claim, for the status page.
    pub fn subject(&self, key: &ClaimKey) -> Option<String> {
        let state = self.memory.read(&key.uid, |it| it.state.clone())?;
        let class = state.claim.class.as_deref().unwrap_or("no class");
        // Without a request in progress, the last error says more than "not requested".
        let phase = state.phase().label().map(|label| format!(", {label}")).unwrap_or_default();
        Some(format!("{key}: class {class}{phase}"))
    }
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

    /// The keys under which the journal may have an entry for this PersistentVolume: the claim's uid, and the uid in
    /// the volume's name, because volume populators and people rebind a PersistentVolume to another claim. Without a
    /// whole uid in the name, each key counts that the name may have been made of.
    fn keys(&self, journal: &Journal<Entry>, volume: &PersistentVolume) -> Vec<String> {
        let claim = volume.spec.claim_ref.as_deref().and_then(|claim| claim.uid.clone());
        let name: &str = &volume.metadata.name;
        let of_name = match whole_uid(name) {
            Some(uid) => vec![uid.to_owned()],
            None => journal.keys(|key| self.names.may_be_of(name, key)),
        };
        claim.into_iter().chain(of_name).filter(|key| !key.is_empty()).collect()
    }

    /// Whether no later leader can find an entry of the journal for this PersistentVolume (J8).
    pub fn has_forgotten(&self, volume: &PersistentVolume) -> bool {
        let Some(journal) = &self.entries else { return true };
        self.keys(journal, volume).iter().all(|key| journal.is_gone(key))
    }

    /// Waits until no later leader can find an entry, at most `JOURNAL_PATIENCE`.
    pub async fn forgotten(&self, volume: &PersistentVolume) -> Result<(), JournalError> {
        let Some(journal) = &self.entries else { return Ok(()) };
        for key in self.keys(journal, volume) {
            journal.gone(&key, JOURNAL_PATIENCE).await?;
        }
        Ok(())
    }
}
