//! What the term remembers of a claim: how far it is, and what it waits for. The journal has what must outlive the term. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::ObjectName;
use crate::roles::kit::memory::Mark;
use crate::roles::kit::{Memory, Remembered};
use crate::roles::provisioner::sources::protection::SourceKey;

use super::error::{AttemptError, ClaimReason, InvalidClaim};
use super::phase::Phase;
use super::state::{ClaimState, Reported};
use super::transition::Change;
use crate::roles::provisioner::claim::{Claim, ClaimKey};

/// The relation of a claim to the source from which the driver may still be creating its volume.
const USES: &str = "the driver may use";
/// The relation to the source in another namespace that the claim may use.
const ADMITTED: &str = "admitted to";
/// The relation to the name of the volume.
const VOLUME: &str = "volume";
/// The relation to what wakes the claim.
const WAITS: &str = "waits for";

/// What the term remembers of a claim.
#[derive(Debug, Default)]
pub struct ClaimMemory {
    /// How far it is, once its request was made or it has failed.
    pub state: Option<Arc<ClaimState>>,
    /// The cache shows it unbound although its PersistentVolume has gone: the watch of claims may be late.
    pub is_without_volume: bool,
    /// The source in another namespace that it may use by a grant, as long as it is not finished.
    pub admitted: Option<SourceKey>,
    /// What it waits for by which no index of the caches finds it.
    pub waits: BTreeSet<Dependency>,
}

impl PartialEq for ClaimMemory {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Remembered for ClaimMemory {
    fn marks(&self) -> Vec<Mark> {
        let state = self.state.as_deref();
        let used = state.filter(|state| state.is_begun()).and_then(|state| state.plan()?.source.as_ref()).map(used);
        // Until the cache shows its PersistentVolume.
        let volume = state.filter(|state| state.is_begun() || state.is_stored());
        let volume = volume.and_then(ClaimState::plan).map(|plan| named(&plan.request.volume_name));
        let admitted = self.admitted.as_ref().map(|source| Mark(ADMITTED, source.to_string()));
        let waits = self.waits.iter().map(Dependency::mark);
        used.into_iter().chain(volume).chain(admitted).chain(waits).collect()
    }
}

/// Something that a claim waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependency {
    /// Any change of the driver's nodes.
    AnyNode,
    /// The deletion of the PersistentVolume with this name.
    Name(ObjectName),
}

impl Dependency {
    /// What a claim that has failed for this reason waits for, if no index of the caches finds it. `volume`: the name of its volume.
    pub fn after(error: &AttemptError, claim: &Claim, volume: Option<&str>) -> Option<Self> {
        let AttemptError::Reason(reason) = error else { return None };
        match reason {
            ClaimReason::Topology(_) if claim.selected_node.is_none() => Some(Self::AnyNode),
            ClaimReason::Invalid(InvalidClaim::NameTaken(_)) | ClaimReason::SaveTaken { .. } => {
                volume.map(|name| Self::Name(ObjectName::cluster(name)))
            }
            ClaimReason::Anothers { other, .. } => Some(Self::Name(ObjectName::cluster(other))),
            _ => None,
        }
    }

    fn mark(&self) -> Mark {
        match self {
            Self::AnyNode => Mark(WAITS, String::new()),
            Self::Name(name) => Mark(WAITS, name.to_string()),
        }
    }
}

/// The mark of the claims that need a source until the driver has given its final answer.
pub fn used(source: &SourceKey) -> Mark {
    Mark(USES, source.to_string())
}

/// The mark of the claims whose volume of this name is requested or was created in this term.
fn named(volume: &str) -> Mark {
    Mark(VOLUME, volume.to_owned())
}

/// The source that a claim was the last one to need, of a mark that no claim has any more.
pub fn freed(Mark(relation, name): &Mark) -> Option<SourceKey> {
    [USES, ADMITTED].contains(relation).then(|| SourceKey::parse(name)).flatten()
}

/// Another claim than that of this uid whose volume of this name is requested or was created in this term: two claims have the same
/// volume name if `volumeNameUuidLength` is short.
pub fn namesake(memory: &Memory<ClaimMemory>, volume: &str, uid: &str) -> Option<ClaimKey> {
    let others = memory.marked(&named(volume)).into_iter().filter(|other| other != uid);
    others.into_iter().find_map(|other| memory.read(&other, ClaimMemory::key))
}

/// Takes the claims that wait for this.
pub fn take(memory: &Memory<ClaimMemory>, what: &Dependency) -> Vec<ClaimKey> {
    let take = |it: &mut ClaimMemory| if it.waits.remove(what) { it.key() } else { None };
    memory.marked(&what.mark()).iter().filter_map(|uid| memory.change(uid, take)).collect()
}

impl ClaimMemory {
    /// What is compared: another state is another one, whatever it says.
    fn parts(&self) -> impl PartialEq {
        (self.state.as_ref().map(Arc::as_ptr), self.is_without_volume, &self.admitted, &self.waits)
    }

    /// The claim's key, if its state is known.
    pub fn key(&self) -> Option<ClaimKey> {
        self.state.as_ref().map(|state| state.claim.key.clone())
    }

    /// Whether a volume of the claim may exist that no PersistentVolume names.
    pub fn is_begun(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.is_begun())
    }

    /// Whether the volume exists, and the last attempt to store its PersistentVolume has failed.
    pub fn is_unsaved(&self) -> bool {
        let is_unsaved =
            |state: &Arc<ClaimState>| matches!(state.phase(), Phase::Created(_)) && state.reported.failure.is_some();
        self.state.as_ref().is_some_and(is_unsaved)
    }

    /// The claim waits for a node. If a failure was reported, so that the recovery is reported, too, that is kept.
    pub fn wait_for_node(&mut self, mut state: Arc<ClaimState>) {
        self.state = (state.reported != Reported::default()).then(|| {
            Arc::make_mut(&mut state).apply(Change::Renewed);
            state
        });
    }

    /// The claim needs nothing of the cluster any more.
    pub fn settled(&mut self) {
        (self.admitted, self.waits) = (None, BTreeSet::new());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;
    use crate::roles::provisioner::claims::phase::{Asker, Plan};
    use crate::roles::provisioner::fixtures::{self, DRIVER};

    fn claim(uid: &str, of: &str) -> Claim {
        let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": of } });
        let object = fixtures::claim(json!({ "metadata": { "uid": uid }, "spec": source }));
        Claim::parse(Arc::new(object), DRIVER)
    }

    fn key(of: &str) -> SourceKey {
        SourceKey::of(&claim("u", of).object).unwrap()
    }

    fn plan(of: &str) -> Plan {
        let request = Arc::new(fixtures::request(json!({}), json!({})));
        Plan { request, source: Some(key(of)), node: None, no_error_is_final: false, unproven: None }
    }

    /// The memory, and the sources that were freed since they were last taken.
    fn book() -> (Memory<ClaimMemory>, impl FnMut() -> Vec<SourceKey>) {
        let lost = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&lost);
        let memory = Memory::marking(move |mark| told.lock().unwrap().extend(freed(&mark)));
        (memory, move || std::mem::take(&mut *lost.lock().unwrap()))
    }

    #[test]
    fn a_source_is_used_as_long_as_a_claim_that_was_begun_names_it() {
        let by = Asker::ThisTerm;
        let begun = |of: &str| Phase::Creating { plan: plan(of).into(), by, confirmed: true, kept: None };
        let ((memory, mut freed), one, other) = (book(), key("one"), key("other"));
        let put = |uid: &str, of: &str, phase: Phase| {
            memory.change(uid, |it| it.state = Some(ClaimState::at(claim(uid, of), phase).into()));
        };
        put("u1", "one", Phase::default());
        assert!(!memory.has(&used(&one)), "nothing was begun");
        for uid in ["u1", "u1", "u2"] {
            put(uid, "one", begun("one"));
            assert_eq!(freed(), [], "{uid}");
        }
        assert!(memory.has(&used(&one)) && !memory.has(&used(&other)));
        memory.forget("u1");
        assert_eq!(freed(), [], "the second needs it");
        // The same uid with another source: the state counts as it is.
        put("u2", "other", begun("other"));
        assert_eq!(freed(), std::slice::from_ref(&one));
        assert!(!memory.has(&used(&one)) && memory.has(&used(&other)));
        put("u2", "other", Phase::Stored { plan: Some(plan("other").into()), by, version: None, success: None });
        assert_eq!(freed(), std::slice::from_ref(&other));
        assert!(!memory.has(&used(&other)), "its volume is stored");
        let name = fixtures::request(json!({}), json!({})).volume_name;
        assert_eq!(namesake(&memory, &name, "u3").unwrap().uid.as_ref(), "u2", "its volume is not seen yet");
        assert_eq!((namesake(&memory, &name, "u2"), namesake(&memory, "another", "u3")), (None, None));
        put("u2", "other", Phase::default());
        assert_eq!(namesake(&memory, &name, "u3"), None);
    }

    #[test]
    fn whoever_loses_a_grant_may_free_the_source() {
        let (memory, mut freed) = book();
        memory.change("u1", |it| it.admitted = Some(key("one")));
        memory.change("u1", ClaimMemory::settled);
        assert_eq!((freed(), memory.len()), (vec![key("one")], 0));
    }

    #[test]
    fn a_claim_that_waits_for_nothing_any_more_leaves_nothing() {
        let (memory, _) = book();
        let name = Dependency::Name(ObjectName::cluster("pvc-1"));
        for (what, uid) in [(&Dependency::AnyNode, "u1"), (&name, "u1"), (&Dependency::AnyNode, "u2")] {
            memory.change(uid, |it| {
                it.state = Some(ClaimState::at_first_sight(claim(uid, "one")).into());
                it.waits.insert(what.clone());
            });
        }
        memory.change("u1", ClaimMemory::settled);
        assert_eq!(take(&memory, &name), []);
        assert_eq!(take(&memory, &Dependency::AnyNode), [claim("u2", "one").key]);
        assert_eq!(take(&memory, &Dependency::AnyNode), []);
    }
}
