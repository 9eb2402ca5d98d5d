//! What every ticket of a term shares, and the view of one claim as read from the caches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use crate::cluster::{
    Api, Cache, CsiNode, CsiStorageCapacity, EventRecorder, Node, ObjectName, PersistentVolume, PersistentVolumeClaim,
    StorageClass, VolumeAttachment, VolumeSnapshot,
};
use crate::csi::{Capabilities, Client, VolumeLocks};
use crate::election::{Fenced, Term};
use crate::process::Clock;
use crate::queue::{Activation, Cause, WorkQueue};
use crate::roles::kit::{KeyedLock, UidSet};

use crate::roles::provisioner::capacity::CapacityInvalidation;
use crate::roles::provisioner::claims::claim::{Claim, ClaimKey};
use crate::roles::provisioner::claims::decide::{NameStatus, Rules};
use crate::roles::provisioner::claims::haste::Haste;
use crate::roles::provisioner::claims::pending_on::PendingOn;
use crate::roles::provisioner::claims::phase::Phase;
use crate::roles::provisioner::claims::request::ProvisionRules;
use crate::roles::provisioner::claims::state::ClaimState;
use crate::roles::provisioner::config::ProvisionerSection;
use crate::roles::provisioner::deletion;
use crate::roles::provisioner::node::scope::Scope;
use crate::roles::provisioner::reporter::Reporter;
use crate::roles::provisioner::sources::protection::SourceKey;
use crate::roles::provisioner::topology::TopologyKeyStats;

/// The caches that the provisioner reads.
#[derive(Debug, Clone)]
pub struct Stores {
    /// Every claim; what is not ours without its details.
    pub claims: Cache<PersistentVolumeClaim>,
    /// Every `PersistentVolume`.
    pub volumes: Cache<PersistentVolume>,
    /// Every class.
    pub classes: Cache<StorageClass>,
    /// Every `VolumeAttachment`: what is attached must not be deleted.
    pub attachments: Cache<VolumeAttachment>,
    /// Every snapshot, if the cluster has them.
    pub snapshots: Cache<VolumeSnapshot>,
    /// Where nodes are; none where topology is switched off or the driver of this node tells.
    pub nodes: Option<(Cache<Node>, Cache<CsiNode>)>,
    /// What the scheduler was told of the room that is left; none where that is switched off.
    pub capacities: Option<Cache<CsiStorageCapacity>>,
}

/// What every ticket of a term shares.
#[derive(Debug)]
pub struct Context {
    /// The rules of provisioning.
    pub rules: Rules,
    /// The rules of deletion.
    pub deletion: deletion::decide::Rules,
    /// What goes into a request, beyond the claim and its class.
    pub asking: ProvisionRules,
    /// What the driver can do.
    pub capabilities: Capabilities,
    /// The role's configuration.
    pub section: ProvisionerSection,
    /// What the cluster looks like.
    pub stores: Stores,
    /// Which claims and volumes are for this daemon.
    pub scope: Scope,
    /// The right to write, which ends with the term.
    pub term: Term,
    /// The work path to the API, usable only during the term.
    pub api: Fenced<Api>,
    /// The driver, usable only during the term.
    pub driver: Fenced<Client>,
    /// One mutating call per volume at a time.
    pub operations: VolumeLocks,
    /// Kubernetes Events.
    pub events: EventRecorder,
    /// Figures.
    pub reporter: Reporter,
    /// Time.
    pub clock: Clock,
    /// Written on volumes: who made them.
    pub identity: String,
    /// The finalizer that the attacher beside us would put on a volume at its first attach.
    pub attacher_finalizer: Option<String>,
    /// Tells of volumes made and deleted, so that capacity is asked for again.
    pub capacity: CapacityInvalidation,
    /// What was begun.
    pub states: ClaimStates,
    /// Which claims go first.
    pub haste: Arc<Haste>,
    /// Which claims wait for what no look-up of the caches finds them by.
    pub pending_on: PendingOn,
    /// Which topology keys the nodes tell.
    pub topology_keys: Mutex<TopologyKeyStats>,
    /// Whether people have heard that there are more places than a claim has room for.
    pub cut: Once,
    /// Which volumes wait until they are detached.
    pub detaching: Detaching,
    /// The uids of the volumes that the driver has deleted in this term.
    pub deleted: UidSet,
    /// Whether volumes and attachments were listed since the term began.
    pub relisted: tokio::sync::OnceCell<()>,
    /// Whether claims were.
    pub relisted_claims: tokio::sync::OnceCell<()>,
    /// A source is locked while its finalizer is added or removed. So an attempt that removes it has counted all users.
    pub source_locks: KeyedLock<SourceKey>,
    /// The uids of the claims for which a grant was found, and that have yet to be begun or are waited for.
    pub admitted: UidSet,
    /// The sources that may have lost their last user.
    pub free_sources: WorkQueue<SourceKey>,
}

/// What the term knows of each claim that was begun or has failed.
#[derive(Debug, Default)]
pub struct ClaimStates(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_uid: BTreeMap<Arc<str>, ClaimState>,
    /// How many of them need a source: each clone of a thousand asks whether it was the last.
    users: BTreeMap<SourceKey, usize>,
}

impl Entries {
    fn insert(&mut self, state: ClaimState) {
        if let Some(source) = needed_by(&state) {
            *self.users.entry(source).or_default() += 1;
        }
        let before = self.by_uid.insert(state.claim.key.uid.clone(), state);
        self.left(before.as_ref());
    }

    fn remove(&mut self, uid: &str) {
        let before = self.by_uid.remove(uid);
        self.left(before.as_ref());
    }

    fn left(&mut self, before: Option<&ClaimState>) {
        let Some(source) = before.and_then(needed_by) else { return };
        if let Some(users) = self.users.get_mut(&source) {
            *users -= 1;
            if *users == 0 {
                self.users.remove(&source);
            }
        }
    }
}

/// The source that the driver may still make a claim's volume from.
fn needed_by(state: &ClaimState) -> Option<SourceKey> {
    if state.is_begun() { SourceKey::of(&state.claim.object) } else { None }
}

impl ClaimStates {
    /// What is known of the claim of this uid.
    pub fn get(&self, uid: &str) -> Option<ClaimState> {
        self.lock().by_uid.get(uid).cloned()
    }

    /// Notes how far a claim is.
    pub fn put(&self, state: ClaimState) {
        self.lock().insert(state);
    }

    /// Notes a claim that is marked, unless it is known already.
    pub fn note_marked(&self, claim: Claim) {
        let mut book = self.lock();
        if !book.by_uid.contains_key(&claim.key.uid) {
            book.insert(ClaimState::at_first_sight(claim));
        }
    }

    /// Nothing of the claim is left to be known.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Whether a volume of this claim may exist that only the entry, or the claim's mark, tells of.
    pub fn is_begun(&self, uid: &str) -> bool {
        self.lock().by_uid.get(uid).is_some_and(ClaimState::is_begun)
    }

    /// Whether a claim that names this source was begun.
    pub fn is_used(&self, source: &SourceKey) -> bool {
        self.lock().users.contains_key(source)
    }

    /// How many volumes wait for their volume object, and how many answers are outstanding: without those that are another
    /// node's driver's to give.
    pub fn count(&self, is_anothers: impl Fn(&Claim) -> bool) -> (usize, usize) {
        let book = self.lock();
        let unsaved = book.by_uid.values().filter(|state| matches!(state.phase(), Phase::Created(_))).count();
        let is_outstanding =
            |state: &&ClaimState| state.is_creating() && !(state.is_anothers() && is_anothers(&state.claim));
        (unsaved, book.by_uid.values().filter(is_outstanding).count())
    }

    /// All entries, by uid.
    pub fn all(&self) -> Vec<ClaimState> {
        self.lock().by_uid.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which volumes wait until they are detached, and by how many attachments they are held.
#[derive(Debug, Default)]
pub struct Detaching(Mutex<BTreeMap<String, usize>>);

impl Detaching {
    /// A volume waits.
    pub fn note(&self, volume: &str, attachments: usize) {
        self.lock().insert(volume.to_owned(), attachments);
    }

    /// It waits no more. Says whether it did.
    pub fn forget(&self, volume: &str) -> bool {
        self.lock().remove(volume).is_some()
    }

    /// All that wait, by name.
    pub fn all(&self) -> Vec<(String, usize)> {
        self.lock().iter().map(|(volume, attachments)| (volume.clone(), *attachments)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Context {
    /// The claim as the cache has it, unless another has taken its name.
    pub fn find(&self, key: &ClaimKey) -> Option<Claim> {
        let object = self.stores.claims.get(&key.name)?;
        (object.metadata.uid.as_deref() == Some(&*key.uid)).then(|| self.parse(object))
    }

    /// Parses a claim.
    pub fn parse(&self, object: Arc<PersistentVolumeClaim>) -> Claim {
        Claim::parse(object, &self.rules.driver, &self.rules.mark)
    }

    /// The class that a claim names.
    pub fn class_of(&self, claim: &Claim) -> Option<Arc<StorageClass>> {
        self.stores.classes.get(&ObjectName::cluster(claim.class.as_deref()?))
    }

    /// What the cluster has under the name of a claim's volume.
    pub fn place(&self, claim: &Claim, volume: Option<&PersistentVolume>) -> NameStatus {
        let Some(volume) = volume else { return NameStatus::Free };
        place_of(volume, &claim.key, &self.rules.driver)
    }

    /// What a claim is about, for people.
    pub fn subject(&self, key: &ClaimKey) -> Option<String> {
        let state = self.states.get(&key.uid)?;
        let class = state.claim.class.as_deref().unwrap_or("no class");
        Some(format!("{key}: class {class}, {}", state.phase().label()))
    }

    /// A claim no longer needs the source that it names: perhaps nobody does.
    pub fn sources_may_be_free(&self, claim: &Claim) {
        if let Some(source) = SourceKey::of(&claim.object) {
            self.free_sources.add(source, Activation { cause: Cause::Changed, lane: 0, epoch: 0 });
        }
    }

    /// The claim is settled, or gone: nothing that it waits for matters any more.
    pub fn forget(&self, key: &ClaimKey) {
        self.pending_on.forget(key);
        self.scope.forget(key);
    }

    /// A claim of another namespace than its source's needs it no longer, or may not use it.
    pub fn dismiss(&self, claim: &Claim) {
        if self.admitted.forget(&claim.key.uid) {
            self.sources_may_be_free(claim);
        }
    }

    /// Waits until volumes and attachments were listed once since the term began: the watches of a new leader may be
    /// behind, and the leader before may have deleted, or somebody attached, what they still show.
    pub async fn relist(&self) {
        let both = || async {
            futures::future::join(self.stores.volumes.relisted(), self.stores.attachments.relisted()).await;
        };
        self.relisted.get_or_init(both).await;
    }

    /// Waits until claims were listed once since the term began: one that a new leader's watch has not brought yet may need
    /// the source that seems to be free.
    pub async fn relist_claims(&self) {
        self.relisted_claims.get_or_init(|| self.stores.claims.relisted()).await;
    }
}

/// Whether a volume object is the one that was made for the claim, whoever has it now: the claim was bound to it under its name,
/// and a provisioner of our driver has made it. A volume populator hands the volume of a claim of its own to the claim of people,
/// and so does whoever renames a claim. As long as there is such an object, nothing that was asked for the claim can be lost.
pub fn was_handed_on(volume: &PersistentVolume, claim: &Claim, driver: &str) -> bool {
    let is_named = claim.volume_name.is_some() && claim.volume_name.as_deref() == volume.metadata.name.as_deref();
    let is_ours = volume.spec.csi.as_ref().is_some_and(|csi| csi.driver == driver);
    is_named && is_ours && deletion::decide::provisioned_by(volume) == Some(driver)
}

/// Whether a volume object is the claim's own. One that was kept when its claim was bound elsewhere is, too: our driver has made
/// it under the claim's name, and the PV controller has taken the uid out of its reference, or somebody the whole of it.
pub fn place_of(volume: &PersistentVolume, key: &ClaimKey, driver: &str) -> NameStatus {
    let found = volume.spec.csi.as_ref().map(|csi| csi.driver.as_str());
    let claim = volume.spec.claim_ref.as_deref();
    let is_kept = || {
        let is_for_it = claim.is_none_or(|claim| {
            key.name.namespace() == Some(claim.namespace.as_str()) && key.name.name() == claim.name
        });
        is_for_it && deletion::decide::provisioned_by(volume) == Some(driver)
    };
    let owner = claim.and_then(|claim| claim.uid.as_deref()).filter(|uid| !uid.is_empty());
    match (found, owner) {
        (Some(found), Some(owner)) if found == driver && owner == &*key.uid => NameStatus::Ours,
        (Some(found), None) if found == driver && is_kept() => NameStatus::Ours,
        (found, owner) => {
            let driver = found.or(volume.spec.foreign_driver.as_deref()).unwrap_or("no CSI driver");
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            let owner = match (claim, owner) {
                (Some(claim), owner) => {
                    format!("claim {}/{} (uid {})", claim.namespace, claim.name, owner.unwrap_or("none"))
                }
                (None, _) => "no claim".to_owned(),
            };
            NameStatus::Conflict(format!("PersistentVolume \"{name}\" is of {driver} and belongs to {owner}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::roles::provisioner::claims::phase::Asker;
    use crate::roles::provisioner::fixtures::{self, DRIVER, merged};
    use crate::roles::provisioner::names::ANNOTATION_PROVISIONED_BY;

    #[test]
    fn a_source_is_used_as_long_as_a_claim_that_was_begun_names_it() {
        let clone = |uid: &str, of: &str| {
            let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": of } });
            let object = fixtures::claim(json!({ "metadata": { "uid": uid }, "spec": source }));
            ClaimState::at_first_sight(Claim::parse(Arc::new(object), DRIVER, "mark"))
        };
        let creating = Phase::Creating { plan: None, by: Asker::Us, confirmed: true, kept: None };
        let begun = |uid: &str, of: &str| ClaimState::at(clone(uid, of).claim, creating.clone());
        let key = |of: &str| SourceKey::of(&clone("u", of).claim.object).unwrap();
        let (book, one, other) = (ClaimStates::default(), key("one"), key("other"));
        book.put(clone("u1", "one"));
        assert!(!book.is_used(&one), "nothing was begun");
        book.put(begun("u1", "one"));
        book.put(begun("u1", "one"));
        book.put(begun("u2", "one"));
        assert!(book.is_used(&one) && !book.is_used(&other));
        book.note_marked(clone("u2", "one").claim);
        book.forget("u1");
        book.forget("u1");
        assert!(book.is_used(&one), "by the second");
        // As when somebody has made the claim anew under its uid: the entry counts as it is.
        book.put(begun("u2", "other"));
        assert!(!book.is_used(&one) && book.is_used(&other));
        let stored = Phase::Stored { plan: None, by: Asker::Us, success: None };
        book.put(ClaimState::at(clone("u2", "other").claim, stored));
        assert!(!book.is_used(&other), "its volume is stored");
        assert!(book.lock().users.is_empty(), "nothing is left of it");
    }

    #[test]
    fn only_what_we_made_and_the_claim_was_bound_to_counts_as_handed_on() {
        let claim = |spec: Value| Claim::parse(Arc::new(fixtures::claim(json!({ "spec": spec }))), DRIVER, "mark");
        let (bound, waiting) = (claim(json!({ "volumeName": "pvc-1" })), claim(json!({})));
        let volume = |change: Value| -> PersistentVolume {
            let made = json!({ "metadata": { "name": "pvc-1", "annotations": { ANNOTATION_PROVISIONED_BY: DRIVER } },
                "spec": { "csi": { "driver": DRIVER, "volumeHandle": "v" },
                    "claimRef": { "namespace": "shop", "name": "another", "uid": "u9" } } });
            serde_json::from_value(merged(made, change)).unwrap()
        };
        assert!(matches!(place_of(&volume(json!({})), &bound.key, DRIVER), NameStatus::Conflict(_)));
        assert!(was_handed_on(&volume(json!({})), &bound, DRIVER));
        assert!(!was_handed_on(&volume(json!({})), &waiting, DRIVER), "nobody has seen it stored for the claim");
        for (what, change) in [
            ("of another name", json!({ "metadata": { "name": "pvc-2" } })),
            ("made by people", json!({ "metadata": { "annotations": { ANNOTATION_PROVISIONED_BY: null } } })),
            ("made by others", json!({ "metadata": { "annotations": { ANNOTATION_PROVISIONED_BY: "other" } } })),
            ("of another driver", json!({ "spec": { "csi": { "driver": "other" } } })),
        ] {
            assert!(!was_handed_on(&volume(change), &bound, DRIVER), "{what}");
        }
    }
}
