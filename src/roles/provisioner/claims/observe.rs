//! What one attempt sees of its claim: the caches, its own entry in the term's book, and what the API itself has said.

use std::sync::Arc;

use crate::cluster::{BY_CLAIM, ObjectName, PersistentVolume, StorageClass};

use super::claim::Claim;
use super::decide::{AttemptFacts, Ignored, NameStatus, Ownership, SourceStatus, View, ignored, is_unwanted};
use super::error::InvalidClaim;
use super::intent::Intent;
use super::reconcile::Attempt;
use super::request::{NameRule, RequestError, check_capabilities};
use super::state::{MadeFrom, Phase};
use crate::roles::provisioner::context::was_handed_on;
use crate::roles::provisioner::sources::source::{ContentSource, Source, SourceError, Wanted, normalise};
use crate::roles::provisioner::sources::status::origin;

/// What one decision is made from.
pub(in crate::roles::provisioner) struct Observed {
    pub(in crate::roles::provisioner) claim: Claim,
    pub(in crate::roles::provisioner) present: bool,
    pub(in crate::roles::provisioner) class: Option<Arc<StorageClass>>,
    pub(in crate::roles::provisioner) source: Result<Source, SourceError>,
    origin: SourceStatus,
    place: NameStatus,
    ownership: Ownership,
    given_away: bool,
}

impl Observed {
    /// Whether each node has a daemon of its own, and none has the claim.
    pub(in crate::roles::provisioner) fn is_nobodys(&self) -> bool {
        matches!(self.ownership, Ownership::Free { .. })
    }
}

impl Attempt<'_> {
    /// Reads what the caches hold about the claim.
    pub(in crate::roles::provisioner) fn observe(&mut self) -> Observed {
        let cx = self.cx;
        let found = cx.find(self.ticket.key());
        let present = found.is_some();
        if let Some(claim) = found {
            self.state.claim = claim;
        }
        let claim = self.state.claim.clone();
        let class = cx.class_of(&claim);
        if class.as_deref().is_some_and(|class| self.state.reconsider(&made_from(&claim, class))) {
            // Of the request that is no more.
            (self.secrets, self.attributes_class) = (None, None);
            self.note();
        }
        let place = match self.place(&claim) {
            // Whatever has the name: what is still owed for a claim that wants no volume is brought to its end, and goes.
            NameStatus::Conflict(_) if self.is_over(&claim, present) => NameStatus::Free,
            place => place,
        };
        if place == NameStatus::Ours && !matches!(self.state.phase, Phase::Finished { .. } | Phase::Stored) {
            self.state.phase = Phase::Stored;
            self.note();
        }
        let own = claim.key.name.namespace().unwrap_or_default().to_owned();
        let source = normalise(&claim.object.spec, &own, cx.section.cross_namespace_sources);
        let origin = match self.origin(&claim, &source, &own) {
            // Then it need not be there: what comes of it is deleted.
            SourceStatus::Refused(InvalidClaim::Source(_)) if self.recorded_source(&claim, present).is_some() => {
                SourceStatus::Stores
            }
            origin => origin,
        };
        let ownership = cx.scope.ownership(cx, &claim, class.as_deref(), &self.asked);
        let is_elsewhere = place == NameStatus::OtherNode || present && ownership != Ownership::Here;
        let given_away = self.state.is_owed_here() && is_elsewhere;
        Observed { claim, present, class, source, origin, place, ownership, given_away }
    }

    /// Whether a driver owes an answer for a claim that wants no volume any more.
    pub(in crate::roles::provisioner) fn is_over(&self, claim: &Claim, present: bool) -> bool {
        let name = self.volume_name(claim).ok();
        self.state.phase == Phase::Creating && is_unwanted(claim, present, name.as_deref())
    }

    /// How far the source is known; refused at once where the driver can't do what the claim asks for.
    pub(in crate::roles::provisioner) fn origin(
        &self,
        claim: &Claim,
        source: &Result<Source, SourceError>,
        own: &str,
    ) -> SourceStatus {
        let cx = self.cx;
        if let Ok(source) = source
            && let Err(error) = check_capabilities(&cx.rules.driver, &cx.capabilities, &claim.object, source)
        {
            return match source {
                Source::Populator { .. } => origin(&Ok(source.clone()), own, &self.wanted(claim), &self.found),
                _ => SourceStatus::Refused(InvalidClaim::Request(error)),
            };
        }
        origin(source, own, &self.wanted(claim), &self.found)
    }

    /// What the volume of a claim that wants none any more was made from, as far as the claim's annotation says so.
    pub(in crate::roles::provisioner) fn recorded_source(&self, claim: &Claim, present: bool) -> Option<ContentSource> {
        if !self.is_over(claim, present) {
            return None;
        }
        Intent::parse(claim.intent.as_deref()?).ok()?.source
    }

    pub(in crate::roles::provisioner) fn place(&self, claim: &Claim) -> NameStatus {
        let cx = self.cx;
        let Ok(name) = self.volume_name(claim) else { return NameStatus::Free };
        let held = cx.stores.volumes.get(&ObjectName::cluster(name));
        let place = self.whose(claim, held.as_deref().or(self.seen.as_ref()));
        let is_stored = || {
            cx.stores
                .volumes
                .find(BY_CLAIM, &claim.key.uid)
                .iter()
                .any(|it| cx.place(claim, Some(it)) == NameStatus::Ours)
        };
        // Under the name that another configuration has made, and not bound yet.
        let is_settled = self.state.is_unasked() || self.state.phase == Phase::Stored;
        if place == NameStatus::Free && is_settled && is_stored() { NameStatus::Ours } else { place }
    }

    /// Whose the volume object is that has the name of the claim's volume.
    pub(in crate::roles::provisioner) fn whose(&self, claim: &Claim, found: Option<&PersistentVolume>) -> NameStatus {
        let cx = self.cx;
        // What somebody else has begun is answered by one that was handed on, too.
        let is_begun = self.state.phase == Phase::Creating;
        let is_handed_on = |volume: &PersistentVolume| was_handed_on(volume, claim, &cx.rules.driver);
        let place = if is_begun && found.is_some_and(is_handed_on) { NameStatus::Ours } else { cx.place(claim, found) };
        match found {
            Some(found) if place == NameStatus::Ours && self.state.is_owed_here() => self.answer(found),
            _ => place,
        }
    }

    /// Whether the claim's own volume object can be what comes of our driver's answer.
    fn answer(&self, found: &PersistentVolume) -> NameStatus {
        if !self.cx.scope.may_be_here(found) {
            return NameStatus::OtherNode;
        }
        match &self.state.phase {
            Phase::Created(made) if !self.cx.names(found, &made.volume.volume_id) => {
                NameStatus::Conflict(another_handle(found))
            }
            _ => NameStatus::Ours,
        }
    }

    /// The name of the claim's volume: as it was asked for, or is to be.
    pub(in crate::roles::provisioner) fn volume_name(&self, claim: &Claim) -> Result<String, RequestError> {
        match &self.state.request {
            Some(request) => Ok(request.volume_name.clone()),
            None => self.name_rule(claim).volume_name(&claim.key.uid),
        }
    }

    /// How that name is made. What was begun keeps its name, whatever is configured since: the driver knows it by no other.
    pub(in crate::roles::provisioner) fn name_rule(&self, claim: &Claim) -> NameRule {
        let text = claim.intent.as_deref().filter(|_| self.state.phase == Phase::Creating);
        let intent = text.and_then(|text| Intent::parse(text).ok());
        let begun = intent.and_then(|intent| intent.name_rule(&claim.key.uid));
        begun.unwrap_or_else(|| self.cx.asking.names.clone())
    }

    pub(in crate::roles::provisioner) fn wanted<'b>(&'b self, claim: &'b Claim) -> Wanted<'b> {
        Wanted {
            claim: &claim.object,
            driver: &self.cx.rules.driver,
            prevent_mode_conversion: self.cx.section.prevent_volume_mode_conversion,
        }
    }

    pub(in crate::roles::provisioner) fn view<'b>(&'b self, now: &'b Observed) -> View<'b> {
        let wants = now.claim.object.spec.volume_attributes_class_name.as_deref();
        View {
            claim: &now.claim,
            present: now.present,
            class: now.class.as_deref(),
            volume: &now.place,
            source: &now.origin,
            attributes_class: wants.filter(|_| self.attributes_class.is_none()),
            ownership: now.ownership,
            given_away: now.given_away,
            state: &self.state,
            attempt: AttemptFacts { has_secret: self.secrets.is_some() },
            rules: &self.cx.rules,
        }
    }

    /// Whether the claim still wants what was refused: what only an old view shows is not worth telling. One that the
    /// failure itself gave back to the scheduler waits for another node because of it.
    pub(in crate::roles::provisioner) fn is_wanted(&mut self) -> bool {
        let now = self.observe();
        // What another node's daemon works on is that one's to tell: else every node would.
        let is_anothers = self.cx.scope.is_anothers(&now.claim);
        if is_anothers && (self.state.is_unasked() || self.state.is_anothers()) {
            return false;
        }
        let is_at_rest = match ignored(&self.view(&now)) {
            None => false,
            Some(Ignored::NoNode) => !self.given_back,
            Some(_) => true,
        };
        !is_at_rest || self.state.is_begun()
    }
}

/// What a volume object is that has the claim's name and claim, and is not of the volume that the driver has made.
pub(in crate::roles::provisioner) fn another_handle(found: &PersistentVolume) -> String {
    let handle = found.spec.csi.as_ref().map_or("none", |csi| csi.volume_handle.as_str());
    let name = found.metadata.name.as_deref().unwrap_or_default();
    format!("PersistentVolume \"{name}\" has the handle {handle}")
}

/// What a request for the claim is made from, as far as that may change while the driver owes an answer.
pub(in crate::roles::provisioner) fn made_from(claim: &Claim, class: &StorageClass) -> MadeFrom {
    MadeFrom {
        class: class.metadata.uid.as_deref().unwrap_or_default().to_owned(),
        attributes_class: claim.object.spec.volume_attributes_class_name.as_deref().map(str::to_owned),
    }
}
