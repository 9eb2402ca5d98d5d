//! What one attempt observes of its claim: the caches, the state in this term, and the API's answers. This module only reads.

use std::sync::Arc;

use crate::cluster::{BY_CLAIM, ObjectName, PersistentVolume, StorageClass};

use super::attempt::State;
use super::claim::{Claim, ClaimKey};
use super::decide::{AttemptFacts, Ignored, Lookup, NameStatus, SourceStatus, View, Whose, ignored, is_unwanted};
use super::error::InvalidClaim;
use super::name_status::was_handed_on;
use super::phase::{Made, Phase};
use super::request::{RequestError, check_capabilities};
use super::state::ClaimState;
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::sources::source::{Source, SourceError, Wanted, normalise};
use crate::roles::provisioner::sources::status::origin;

/// The observation that one decision is made from.
pub(in crate::roles::provisioner) struct Observed {
    pub(in crate::roles::provisioner) claim: Claim,
    pub(in crate::roles::provisioner) present: bool,
    pub(in crate::roles::provisioner) class: Option<Arc<StorageClass>>,
    pub(in crate::roles::provisioner) source: Result<Source, SourceError>,
    whose: Whose,
    origin: SourceStatus,
    place: NameStatus,
    has_volume: bool,
    listed: bool,
}

/// The term's context and the attempt's state, for one step. A step only reads them.
#[derive(Clone, Copy)]
pub(in crate::roles::provisioner) struct Look<'a> {
    pub(in crate::roles::provisioner) cx: &'a Context,
    pub(in crate::roles::provisioner) state: &'a State,
}

impl<'a> Look<'a> {
    /// The claim's state in this term.
    pub(in crate::roles::provisioner) fn known(&self) -> &'a ClaimState {
        &self.state.known
    }

    /// Reads what the caches hold about the claim.
    pub(in crate::roles::provisioner) fn observe(&self, key: &ClaimKey) -> Observed {
        let (cx, known) = (self.cx, self.known());
        let found = cx.find(key).filter(|_| !self.state.is_gone);
        let present = found.is_some();
        let claim = found.unwrap_or_else(|| known.claim.clone());
        let class = cx.class_of(&claim).or_else(|| match &self.state.class {
            Lookup::Found(class) => Some(Arc::clone(class)),
            Lookup::NotAsked | Lookup::Missing => None,
        });
        let place = match self.place(&claim) {
            // The claim no longer wants a volume: ignore the name conflict and finish cleaning up.
            NameStatus::Conflict(_) if self.is_over(&claim, present) => NameStatus::Free,
            place => place,
        };
        let own = claim.key.name.namespace().unwrap_or_default().to_owned();
        let source = normalise(&claim.object.spec, &own, cx.section.cross_namespace_sources);
        // A request that was sent does not change, even if the source has changed since.
        let origin = if known.is_begun() { SourceStatus::Stores } else { self.origin(&claim, &source, &own) };
        // A claim that lost its node before our driver's final answer still gets our volume, until another node is selected.
        let is_ours = cx.deployment.is_ours(&claim) || known.is_begun() && claim.selected_node.is_none();
        let is_elsewhere = place == NameStatus::OtherNode || present && !is_ours;
        let whose = match is_ours {
            _ if known.is_begun() && is_elsewhere => Whose::GivenAway,
            true => Whose::Ours,
            false => Whose::Anothers,
        };
        let named = self.named_volume(&claim);
        let has_volume = named.as_ref().is_some_and(|it| cx.deployment.may_be_here(it));
        let listed = cx.deletion.is_listed() && cx.sources.relisted.is_done();
        Observed { claim, present, class, source, whose, origin, place, has_volume, listed }
    }

    /// The PersistentVolume of our driver that has the name of the claim's volume, whichever claim it belongs to.
    fn named_volume(&self, claim: &Claim) -> Option<Arc<PersistentVolume>> {
        let name = self.volume_name(claim).ok()?;
        let found = self.cx.stores.volumes.get(&ObjectName::cluster(name))?;
        (found.served_by() == Some(self.cx.rules.driver.as_str())).then_some(found)
    }

    /// Whether a request waits for the driver's final answer, and the claim no longer wants the volume.
    pub(in crate::roles::provisioner) fn is_over(&self, claim: &Claim, present: bool) -> bool {
        let name = self.volume_name(claim).ok();
        self.known().is_creating() && is_unwanted(claim, present, name.as_deref())
    }

    /// The status of the source. A source is refused at once if the driver lacks a capability that the claim needs.
    fn origin(&self, claim: &Claim, source: &Result<Source, SourceError>, own: &str) -> SourceStatus {
        let (cx, found) = (self.cx, &self.state.found);
        if let Ok(source) = source
            && let Err(error) = check_capabilities(&cx.asking, &cx.scope.capabilities, &claim.object, source)
        {
            return match source {
                Source::Populator { .. } => origin(&Ok(source.clone()), own, &self.wanted(claim), found),
                _ => SourceStatus::Refused(InvalidClaim::Request(error)),
            };
        }
        origin(source, own, &self.wanted(claim), found)
    }

    /// Which PersistentVolume has the name of the claim's volume.
    pub(in crate::roles::provisioner) fn place(&self, claim: &Claim) -> NameStatus {
        let cx = self.cx;
        let Ok(name) = self.volume_name(claim) else { return NameStatus::Free };
        let held = cx.stores.volumes.get(&ObjectName::cluster(&name));
        let place = self.whose(claim, held.as_deref().or(self.state.seen.as_ref()));
        let is_stored = || {
            cx.stores
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
    pub(in crate::roles::provisioner) fn namesake(&self, claim: &Claim) -> Option<ClaimKey> {
        let name = self.volume_name(claim).ok()?;
        self.cx.states.namesake(&name, &claim.key.uid)
    }

    /// To whom the PersistentVolume belongs that has the name of the claim's volume.
    pub(in crate::roles::provisioner) fn whose(&self, claim: &Claim, found: Option<&PersistentVolume>) -> NameStatus {
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
        if !self.cx.deployment.may_be_here(found) {
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
    pub(in crate::roles::provisioner) fn is_outcome(&self, found: &PersistentVolume, made: &Made) -> bool {
        let is_of_plugin = || {
            let is_in_tree = made.plan.request.plan.in_tree && found.spec.in_tree.is_some();
            is_in_tree && found.served_by() == Some(&self.cx.rules.driver)
        };
        self.cx.names(found, &made.volume.volume_id) || is_of_plugin()
    }

    /// The name of the claim's volume: that of the request, or that of the next request.
    pub(in crate::roles::provisioner) fn volume_name(&self, claim: &Claim) -> Result<String, RequestError> {
        match self.known().request() {
            Some(request) => Ok(request.volume_name.clone()),
            None => self.cx.asking.names.volume_name(&claim.key.uid),
        }
    }

    pub(in crate::roles::provisioner) fn wanted<'b>(&'b self, claim: &'b Claim) -> Wanted<'b> {
        Wanted {
            claim: &claim.object,
            driver: &self.cx.rules.driver,
            prevent_mode_conversion: self.cx.section.prevent_volume_mode_conversion,
        }
    }

    pub(in crate::roles::provisioner) fn view<'b>(&'b self, now: &'b Observed) -> View<'b> {
        let wants = self.cx.asking.attributes_class(&now.claim.object);
        let state = self.state;
        View {
            claim: &now.claim,
            present: now.present,
            class: now.class.as_deref(),
            volume: &now.place,
            has_volume: now.has_volume,
            listed: now.listed,
            source: &now.origin,
            attributes_class: wants.filter(|_| state.attributes_class.is_none()),
            whose: now.whose,
            state: &state.known,
            attempt: AttemptFacts {
                is_without_volume: state.is_without_volume,
                has_recorded: state.has_recorded,
                class: match state.class {
                    Lookup::NotAsked => Lookup::NotAsked,
                    Lookup::Missing => Lookup::Missing,
                    Lookup::Found(_) => Lookup::Found(()),
                },
                has_secret: state.secrets.is_some(),
                checked: state.checked,
                history: state.history,
            },
            rules: &self.cx.rules,
        }
    }

    /// Whether the claim still wants the volume that was refused: a failure of an older view is not reported. A claim that the
    /// failure itself has returned to the scheduler counts: it waits for another node because of the failure.
    pub(in crate::roles::provisioner) fn is_wanted(&self, now: &Observed) -> bool {
        let known = self.known();
        // Only the daemon of the claim's node reports the failure; otherwise every node would.
        if self.cx.deployment.is_anothers(&now.claim) && known.is_unasked() {
            return false;
        }
        let is_at_rest = match ignored(&self.view(now)) {
            None => false,
            Some(Ignored::NoNode) => !self.state.given_back,
            Some(_) => true,
        };
        !is_at_rest || known.is_begun()
    }
}

/// Describes a PersistentVolume that has the expected name and claim, but another handle than the driver's volume.
pub(in crate::roles::provisioner) fn another_handle(found: &PersistentVolume) -> String {
    let handle = found.spec.csi.as_ref().map_or("none", |csi| csi.volume_handle.as_str());
    let name = &found.metadata.name;
    format!("PersistentVolume \"{name}\" has the handle {handle}")
}
