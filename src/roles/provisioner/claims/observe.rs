//! What one decision about a claim is made from: the caches, the attempt so far, and the API's answers. This module only reads.

use std::sync::Arc;

use tokio::time::Instant;

use crate::cluster::{BY_CLAIM, PersistentVolume, SmolStr, StorageClass};

use super::context::ClaimsContext;
use super::decide::{AttemptFacts, Ignored, Lookup, NameStatus, Rules, View, Whose, ignored, is_unwanted};
use super::error::InvalidClaim;
use super::memory::{ClaimMemory, namesake};
use super::name_status::was_handed_on;
use super::phase::{Made, Phase};
use super::progress::{Beginning, Progress};
use super::request::{ProvisionRules, RequestError, check_capabilities};
use super::state::ClaimState;
use super::transition::Change;
use crate::roles::provisioner::claim::{Claim, ClaimKey};
use crate::roles::provisioner::config::ProvisionerSection;
use crate::roles::provisioner::sources::source::{Source, SourceError, Wanted, normalise};
use crate::roles::provisioner::sources::status::{SourceStatus, status};

/// What one decision is made from.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct Seen {
    /// The claim; as it was last seen, if it is gone.
    pub claim: Claim,
    /// Whether the API still has it.
    pub present: bool,
    /// The class that it names.
    pub class: Option<Arc<StorageClass>>,
    /// Its data source.
    pub source: Result<Source, SourceError>,
    /// The name of its volume: that of the request, or that of the next request.
    pub volume_name: Option<String>,
    /// The PersistentVolume that may have the volume which the driver has created.
    pub owner: Owner,
    /// Which PersistentVolume has the name of its volume.
    pub place: NameStatus,
    /// Whether another node owns the claim.
    pub is_anothers: bool,
    /// Now.
    pub now: Instant,
    /// What an attempt knows that begins now.
    pub beginning: Beginning,
    /// The rules of provisioning.
    pub rules: Arc<Rules>,
    /// The settings that shape a request.
    pub asking: Arc<ProvisionRules>,
    /// The role's configuration.
    pub section: Arc<ProvisionerSection>,
    /// Whether snapshots wake the claims that wait for them.
    pub watches_snapshots: bool,
    /// Whether claims and PersistentVolumes were listed in this term.
    pub listed: bool,
    whose: Whose,
    source_status: Result<SourceStatus, InvalidClaim>,
    has_volume: bool,
}

/// The PersistentVolume, other than the claim's own, that has the volume which the driver has created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// None.
    Nobody,
    /// The one with this name.
    Other(String),
    /// The claim is bound to the one with this name, which the cache lacks: it must be read first.
    Unread(String),
}

/// What the attempts of a term share, and the attempt so far. A step only reads them.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// What the attempts share.
    pub cx: &'a ClaimsContext,
    /// The attempt.
    pub progress: &'a Progress,
}

/// What an attempt knows when it begins. `None`: the claim is gone, and the term has no state of it.
pub fn begin(cx: &ClaimsContext, key: &ClaimKey) -> Option<Beginning> {
    let found = cx.shared.find(key);
    let remembered = |it: &ClaimMemory| (it.state.clone(), it.is_without_volume);
    let (state, mut is_without_volume) = cx.memory.read(&key.uid, remembered);
    let mut known = match state {
        Some(mut known) => {
            if let Some(found) = found {
                Arc::make_mut(&mut known).claim = found;
            }
            known
        }
        None => Arc::new(ClaimState::at_first_sight(found?)),
    };
    let has_heard = |version| cx.shared.caches.volumes.has_heard(version);
    // From then on the cache says it, also if a user has deleted the PersistentVolume meanwhile.
    if known.stored_version().is_some_and(has_heard) {
        let volumes = &cx.shared.caches.volumes;
        is_without_volume |= known.request().is_none_or(|request| volumes.named(&request.volume_name).is_none());
        Arc::make_mut(&mut known).apply(Change::Seen);
    }
    Arc::make_mut(&mut known).apply(Change::Renewed);
    Some(Beginning {
        known,
        is_without_volume,
        releases: cx.shared.sources.releases(),
        at: cx.shared.scope.clock.now(),
    })
}

impl<'a> Look<'a> {
    /// The claim's state in this term.
    pub(super) fn known(&self) -> &'a ClaimState {
        &self.progress.known
    }

    /// Reads what the caches hold about the claim.
    pub fn observe(&self, key: &ClaimKey) -> Seen {
        let (cx, known) = (self.cx, self.known());
        let found = cx.shared.find(key).filter(|_| !self.progress.is_gone);
        let present = found.is_some();
        let claim = found.unwrap_or_else(|| known.claim.clone());
        let class = cx.shared.class(claim.class.as_deref()).or_else(|| match &self.progress.class {
            Lookup::Found(class) => Some(Arc::clone(class)),
            Lookup::NotAsked | Lookup::Missing => None,
        });
        let held = self.of_name(&claim);
        let place = match self.status_of(&claim, held.as_deref()) {
            // The claim no longer wants a volume: ignore the name conflict and finish cleaning up.
            NameStatus::Conflict(_) if self.is_over(&claim, present) => NameStatus::Free,
            place => place,
        };
        let own = claim.key.name.namespace().unwrap_or_default().to_owned();
        let source = normalise(&claim.object.spec, &own, cx.shared.section.cross_namespace_sources);
        // A request that was sent does not change, even if the source has changed since.
        let source_status =
            if known.is_begun() { Ok(SourceStatus::Stores) } else { self.source_status(&claim, &source, &own) };
        // A claim that lost its node before our driver's final answer still gets our volume, until another node is selected.
        let is_ours = cx.shared.deployment.is_ours(&claim) || known.is_begun() && claim.selected_node.is_none();
        let is_elsewhere = place == NameStatus::OtherNode || present && !is_ours;
        let whose = match is_ours {
            _ if known.is_begun() && is_elsewhere => Whose::GivenAway,
            true => Whose::Ours,
            false => Whose::Anothers,
        };
        // Of our driver, whichever claim it belongs to.
        let is_volume = |it: &PersistentVolume| it.served_by() == Some(cx.rules.driver.as_str());
        Seen {
            present,
            class,
            source,
            owner: self.owner(&claim),
            volume_name: self.volume_name(&claim).ok(),
            has_volume: held.is_some_and(|it| is_volume(&it) && cx.shared.deployment.may_be_here(&it)),
            listed: cx.shared.stores.has_listed_volumes() && cx.shared.stores.claims.is_listed(),
            is_anothers: cx.shared.deployment.is_anothers(&claim),
            now: cx.shared.scope.clock.now(),
            beginning: self.progress.beginning.clone(),
            rules: Arc::clone(&cx.rules),
            asking: Arc::clone(&cx.asking),
            section: Arc::clone(&cx.shared.section),
            watches_snapshots: cx.shared.caches.snapshots.is_known(),
            claim,
            whose,
            source_status,
            place,
        }
    }

    /// The PersistentVolume other than the claim's own that has the volume of the driver's answer.
    ///
    /// Before a deletion, PersistentVolumes were listed in this attempt. Before a PersistentVolume is stored, the watch may lack one,
    /// most likely the one to which the claim was bound just now, so that one is read from the API.
    fn owner(&self, claim: &Claim) -> Owner {
        let Some(volume_id) = self.progress.volume_id() else { return Owner::Nobody };
        let all = self.cx.shared.volumes_of(volume_id);
        if let Some(other) = all.iter().find(|volume| self.is_other(claim, volume)) {
            return Owner::Other(other.metadata.name.to_string());
        }
        let Some(bound) = &claim.volume_name else { return Owner::Nobody };
        if self.cx.shared.caches.volumes.named(bound).is_some() {
            return Owner::Nobody;
        }
        match &self.progress.bound {
            Some((name, is_owner)) if name == bound => {
                if *is_owner {
                    Owner::Other(name.clone())
                } else {
                    Owner::Nobody
                }
            }
            _ => Owner::Unread(bound.clone()),
        }
    }

    /// Whether a PersistentVolume is not the claim's own. A person may have created one of its name that is bound to this claim.
    fn is_other(&self, claim: &Claim, volume: &PersistentVolume) -> bool {
        let own = self.volume_name(claim).ok();
        Some(&*volume.metadata.name) != own.as_deref() || self.cx.place(claim, Some(volume)) != NameStatus::Ours
    }

    /// Whether this PersistentVolume, which may not be from the cache, is not the claim's own and has the volume with this id.
    pub(super) fn is_owner(&self, claim: &Claim, volume: &PersistentVolume, volume_id: &str) -> bool {
        self.is_other(claim, volume) && self.cx.shared.names(volume, volume_id)
    }

    /// The PersistentVolume that has the name of the claim's volume, whichever driver and claim it belongs to.
    fn of_name(&self, claim: &Claim) -> Option<Arc<PersistentVolume>> {
        self.cx.shared.caches.volumes.named(&self.volume_name(claim).ok()?)
    }

    /// Whether a request waits for the driver's final answer, and the claim no longer wants the volume.
    pub(super) fn is_over(&self, claim: &Claim, present: bool) -> bool {
        let name = self.volume_name(claim).ok();
        self.known().is_creating() && is_unwanted(claim, present, name.as_deref())
    }

    /// The status of the source. A source is refused at once if the driver lacks a capability that the claim needs.
    fn source_status(
        &self,
        claim: &Claim,
        source: &Result<Source, SourceError>,
        own: &str,
    ) -> Result<SourceStatus, InvalidClaim> {
        let cx = self.cx;
        if let Ok(source) = source
            && !matches!(source, Source::Populator { .. })
        {
            check_capabilities(&cx.asking, &cx.shared.scope.capabilities, &claim.object, source)
                .map_err(InvalidClaim::Request)?;
        }
        status(source, own, &self.wanted(claim), &self.progress.found).map_err(InvalidClaim::Source)
    }

    /// Which PersistentVolume has the name of the claim's volume.
    pub(super) fn place(&self, claim: &Claim) -> NameStatus {
        self.status_of(claim, self.of_name(claim).as_deref())
    }

    /// The same, if the cache has `held` under that name.
    fn status_of(&self, claim: &Claim, held: Option<&PersistentVolume>) -> NameStatus {
        let cx = self.cx;
        let Ok(name) = self.volume_name(claim) else { return NameStatus::Free };
        let place = self.whose(claim, held.or(self.progress.seen.as_ref()));
        let is_stored = || {
            cx.shared
                .caches
                .volumes
                .find(BY_CLAIM, &claim.key.uid)
                .iter()
                .any(|it| cx.place(claim, Some(it)) == NameStatus::Ours)
        };
        // An unbound PersistentVolume that has its name from another configuration counts, too.
        let is_settled = self.known().is_unasked() || self.known().is_stored();
        if place == NameStatus::Free && is_settled && is_stored() {
            return NameStatus::Ours;
        }
        if place == NameStatus::Free
            && self.known().is_unasked()
            && let Some(other) = self.namesake(claim)
        {
            return NameStatus::Conflict(format!("volume \"{name}\" is provisioned for claim {}", other.name));
        }
        place
    }

    /// Another claim whose volume of the same name exists or is requested in this term.
    pub(super) fn namesake(&self, claim: &Claim) -> Option<ClaimKey> {
        let name = self.volume_name(claim).ok()?;
        namesake(&self.cx.memory, &name, &claim.key.uid)
    }

    /// To whom the PersistentVolume belongs that has the name of the claim's volume.
    pub(super) fn whose(&self, claim: &Claim, found: Option<&PersistentVolume>) -> NameStatus {
        let cx = self.cx;
        // A PersistentVolume that was handed on to another claim is the outcome of the request, too.
        let is_begun = self.known().is_creating();
        let is_handed_on = |volume: &PersistentVolume| was_handed_on(volume, claim, &cx.rules.driver);
        let place = if is_begun && found.is_some_and(is_handed_on) { NameStatus::Ours } else { cx.place(claim, found) };
        match found {
            Some(found) if place == NameStatus::Ours && self.known().is_begun() => self.answer(found),
            _ => place,
        }
    }

    /// Whether the claim's own PersistentVolume can be the outcome of our driver's answer.
    fn answer(&self, found: &PersistentVolume) -> NameStatus {
        if !self.cx.shared.deployment.may_be_here(found) {
            return NameStatus::OtherNode;
        }
        match self.known().phase() {
            Phase::Created(made) if !self.is_outcome(found, made) => NameStatus::Conflict(another_handle(found)),
            _ => NameStatus::Ours,
        }
    }

    /// Whether this PersistentVolume, of the claim's name and uid, has the volume that our driver has created. The handle of an
    /// in-tree volume may be another than the driver's answer: the plugin's source has no place for a project, for example
    /// (migration spec I2). The request and the name are the same, so the volume is.
    pub(super) fn is_outcome(&self, found: &PersistentVolume, made: &Made) -> bool {
        let is_of_plugin = || {
            let is_in_tree = made.plan.request.plan.in_tree && found.spec.in_tree.is_some();
            is_in_tree && found.served_by() == Some(&self.cx.rules.driver)
        };
        self.cx.shared.names(found, &made.volume.volume_id) || is_of_plugin()
    }

    /// The name of the claim's volume: that of the request, or that of the next request.
    pub(super) fn volume_name(&self, claim: &Claim) -> Result<String, RequestError> {
        match self.known().request() {
            Some(request) => Ok(request.volume_name.clone()),
            None => self.cx.asking.names.volume_name(&claim.key.uid),
        }
    }

    pub(super) fn wanted<'b>(&'b self, claim: &'b Claim) -> Wanted<'b> {
        Wanted {
            claim: &claim.object,
            driver: &self.cx.rules.driver,
            prevent_mode_conversion: self.cx.shared.section.prevent_volume_mode_conversion,
        }
    }
}

impl Seen {
    /// What [`next_step`](super::decide::next_step) decides from.
    pub fn view<'a>(&'a self, progress: &'a Progress) -> View<'a> {
        let wants = self.asking.attributes_class(&self.claim.object);
        View {
            claim: &self.claim,
            present: self.present,
            class: self.class.as_deref(),
            volume: &self.place,
            has_volume: self.has_volume,
            listed: self.listed,
            source: &self.source_status,
            attributes_class: wants.filter(|_| progress.attributes_class.is_none()),
            whose: self.whose,
            state: &progress.known,
            attempt: AttemptFacts {
                is_without_volume: progress.is_without_volume,
                has_recorded: progress.has_recorded,
                class: match progress.class {
                    Lookup::NotAsked => Lookup::NotAsked,
                    Lookup::Missing => Lookup::Missing,
                    Lookup::Found(_) => Lookup::Found(()),
                },
                has_secret: progress.secrets.is_some(),
                checked: progress.checked,
                history: progress.history,
            },
            rules: &self.rules,
        }
    }

    /// The version of the claim.
    pub fn version(&self) -> Option<SmolStr> {
        self.claim.object.metadata.resource_version.clone()
    }

    /// Whether the claim no longer wants the volume.
    pub fn is_unwanted(&self) -> bool {
        is_unwanted(&self.claim, self.present, self.volume_name.as_deref())
    }

    /// Whether the claim still wants the volume that was refused: a failure of an older view is not reported. A claim that the
    /// failure itself has returned to the scheduler counts: it waits for another node because of the failure.
    pub fn is_wanted(&self, progress: &Progress) -> bool {
        // Only the daemon of the claim's node reports the failure; otherwise every node would.
        if self.is_anothers && progress.known.is_unasked() {
            return false;
        }
        let is_at_rest = match ignored(&self.view(progress)) {
            None => false,
            Some(Ignored::NoNode) => !progress.given_back,
            Some(_) => true,
        };
        !is_at_rest || progress.known.is_begun()
    }
}

/// Describes a PersistentVolume that has the expected name and claim, but another handle than the driver's volume.
pub(super) fn another_handle(found: &PersistentVolume) -> String {
    let handle = found.spec.csi.as_ref().map_or("none", |csi| csi.volume_handle.as_str());
    let name = &found.metadata.name;
    format!("PersistentVolume \"{name}\" has the handle {handle}")
}
