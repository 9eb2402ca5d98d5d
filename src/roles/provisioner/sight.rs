//! What one attempt sees of its claim: the caches, its own entry in the term's book, and what the API itself has said.

use std::sync::Arc;

use crate::cluster::{BY_CLAIM, ObjectName, PersistentVolume, StorageClass};

use super::claim::Claim;
use super::decide::{Attempt as Known, Ignored, Origin, Place, Site, View, ignored, is_unwanted};
use super::desk::was_handed_on;
use super::intent::Intent;
use super::origin::origin;
use super::progress::{MadeFrom, Phase};
use super::provision::Attempt;
use super::refusal::Refusal;
use super::request::{NameRule, RequestError, check_capabilities};
use super::source::{ContentSource, Source, SourceError, Wanted, normalise};

/// What one decision is made from.
pub(super) struct Now {
    pub(super) claim: Claim,
    pub(super) present: bool,
    pub(super) class: Option<Arc<StorageClass>>,
    pub(super) source: Result<Source, SourceError>,
    origin: Origin,
    place: Place,
    site: Site,
    given_away: bool,
}

impl Now {
    /// Whether each node has a daemon of its own, and none has the claim.
    pub(super) fn is_nobodys(&self) -> bool {
        matches!(self.site, Site::Free { .. })
    }
}

impl Attempt<'_> {
    /// Reads what the caches hold about the claim.
    pub(super) fn look(&mut self) -> Now {
        let desk = self.desk;
        let found = desk.find(self.ticket.key());
        let present = found.is_some();
        if let Some(claim) = found {
            self.progress.claim = claim;
        }
        let claim = self.progress.claim.clone();
        let class = desk.class_of(&claim);
        if class.as_deref().is_some_and(|class| self.progress.reconsider(&made_from(&claim, class))) {
            // Of the request that is no more.
            (self.secrets, self.attributes_class) = (None, None);
            self.note();
        }
        let place = match self.place(&claim) {
            // Whatever has the name: what is still owed for a claim that wants no volume is brought to its end, and goes.
            Place::Taken(_) if self.is_over(&claim, present) => Place::Free,
            place => place,
        };
        if place == Place::Ours && !matches!(self.progress.phase, Phase::Ended { .. } | Phase::Saved) {
            self.progress.phase = Phase::Saved;
            self.note();
        }
        let own = claim.key.name.namespace().unwrap_or_default().to_owned();
        let source = normalise(&claim.object.spec, &own, desk.section.cross_namespace_sources);
        let origin = match self.origin(&claim, &source, &own) {
            // Then it need not be there: what comes of it is deleted.
            Origin::Refused(Refusal::Source(_)) if self.recorded_source(&claim, present).is_some() => Origin::Known,
            origin => origin,
        };
        let site = desk.locality.site(desk, &claim, class.as_deref(), &self.asked);
        let is_elsewhere = place == Place::Anothers || present && site != Site::Here;
        let given_away = self.progress.is_owed_here() && is_elsewhere;
        Now { claim, present, class, source, origin, place, site, given_away }
    }

    /// Whether a driver owes an answer for a claim that wants no volume any more.
    pub(super) fn is_over(&self, claim: &Claim, present: bool) -> bool {
        let name = self.volume_name(claim).ok();
        self.progress.phase == Phase::Outstanding && is_unwanted(claim, present, name.as_deref())
    }

    /// How far the source is known; refused at once where the driver can't do what the claim asks for.
    pub(super) fn origin(&self, claim: &Claim, source: &Result<Source, SourceError>, own: &str) -> Origin {
        let desk = self.desk;
        if let Ok(source) = source
            && let Err(error) = check_capabilities(&desk.rules.driver, &desk.capabilities, &claim.object, source)
        {
            return match source {
                Source::Populator { .. } => origin(&Ok(source.clone()), own, &self.wanted(claim), &self.found),
                _ => Origin::Refused(Refusal::Request(error)),
            };
        }
        origin(source, own, &self.wanted(claim), &self.found)
    }

    /// What the volume of a claim that wants none any more was made from, as far as the claim's annotation says so.
    pub(super) fn recorded_source(&self, claim: &Claim, present: bool) -> Option<ContentSource> {
        if !self.is_over(claim, present) {
            return None;
        }
        Intent::parse(claim.intent.as_deref()?).ok()?.source
    }

    pub(super) fn place(&self, claim: &Claim) -> Place {
        let desk = self.desk;
        let Ok(name) = self.volume_name(claim) else { return Place::Free };
        let held = desk.known.volumes.get(&ObjectName::cluster(name));
        let place = self.whose(claim, held.as_deref().or(self.seen.as_ref()));
        let is_stored = || {
            desk.known
                .volumes
                .find(BY_CLAIM, &claim.key.uid)
                .iter()
                .any(|it| desk.place(claim, Some(it)) == Place::Ours)
        };
        // Under the name that another configuration has made, and not bound yet.
        let is_settled = self.progress.is_unasked() || self.progress.phase == Phase::Saved;
        if place == Place::Free && is_settled && is_stored() { Place::Ours } else { place }
    }

    /// Whose the volume object is that has the name of the claim's volume.
    pub(super) fn whose(&self, claim: &Claim, found: Option<&PersistentVolume>) -> Place {
        let desk = self.desk;
        // What somebody else has begun is answered by one that was handed on, too.
        let is_begun = self.progress.phase == Phase::Outstanding;
        let is_handed_on = |volume: &PersistentVolume| was_handed_on(volume, claim, &desk.rules.driver);
        let place = if is_begun && found.is_some_and(is_handed_on) { Place::Ours } else { desk.place(claim, found) };
        match found {
            Some(found) if place == Place::Ours && self.progress.is_owed_here() => self.answer(found),
            _ => place,
        }
    }

    /// Whether the claim's own volume object can be what comes of our driver's answer.
    fn answer(&self, found: &PersistentVolume) -> Place {
        if !self.desk.locality.may_be_here(found) {
            return Place::Anothers;
        }
        match &self.progress.phase {
            Phase::Created(made) if !self.desk.names(found, &made.volume.volume_id) => {
                Place::Taken(another_handle(found))
            }
            _ => Place::Ours,
        }
    }

    /// The name of the claim's volume: as it was asked for, or is to be.
    pub(super) fn volume_name(&self, claim: &Claim) -> Result<String, RequestError> {
        match &self.progress.request {
            Some(request) => Ok(request.volume_name.clone()),
            None => self.name_rule(claim).volume_name(&claim.key.uid),
        }
    }

    /// How that name is made. What was begun keeps its name, whatever is configured since: the driver knows it by no other.
    pub(super) fn name_rule(&self, claim: &Claim) -> NameRule {
        let text = claim.intent.as_deref().filter(|_| self.progress.phase == Phase::Outstanding);
        let intent = text.and_then(|text| Intent::parse(text).ok());
        let begun = intent.and_then(|intent| intent.name_rule(&claim.key.uid));
        begun.unwrap_or_else(|| self.desk.asking.names.clone())
    }

    pub(super) fn wanted<'b>(&'b self, claim: &'b Claim) -> Wanted<'b> {
        Wanted {
            claim: &claim.object,
            driver: &self.desk.rules.driver,
            prevent_mode_conversion: self.desk.section.prevent_volume_mode_conversion,
        }
    }

    pub(super) fn view<'b>(&'b self, now: &'b Now) -> View<'b> {
        let wants = now.claim.object.spec.volume_attributes_class_name.as_deref();
        View {
            claim: &now.claim,
            present: now.present,
            class: now.class.as_deref(),
            volume: &now.place,
            source: &now.origin,
            attributes_class: wants.filter(|_| self.attributes_class.is_none()),
            site: now.site,
            given_away: now.given_away,
            progress: &self.progress,
            attempt: Known { has_secret: self.secrets.is_some() },
            rules: &self.desk.rules,
        }
    }

    /// Whether the claim still wants what was refused: what only an old view shows is not worth telling. One that the
    /// failure itself gave back to the scheduler waits for another node because of it.
    pub(super) fn is_wanted(&mut self) -> bool {
        let now = self.look();
        // What another node's daemon works on is that one's to tell: else every node would.
        let is_anothers = self.desk.locality.is_anothers(&now.claim);
        if is_anothers && (self.progress.is_unasked() || self.progress.is_anothers()) {
            return false;
        }
        let is_at_rest = match ignored(&self.view(&now)) {
            None => false,
            Some(Ignored::NoNode) => !self.given_back,
            Some(_) => true,
        };
        !is_at_rest || self.progress.is_begun()
    }
}

/// What a volume object is that has the claim's name and claim, and is not of the volume that the driver has made.
pub(super) fn another_handle(found: &PersistentVolume) -> String {
    let handle = found.spec.csi.as_ref().map_or("none", |csi| csi.volume_handle.as_str());
    let name = found.metadata.name.as_deref().unwrap_or_default();
    format!("PersistentVolume \"{name}\" has the handle {handle}")
}

/// What a request for the claim is made from, as far as that may change while the driver owes an answer.
pub(super) fn made_from(claim: &Claim, class: &StorageClass) -> MadeFrom {
    MadeFrom {
        class: class.metadata.uid.as_deref().unwrap_or_default().to_owned(),
        attributes_class: claim.object.spec.volume_attributes_class_name.as_deref().map(str::to_owned),
    }
}
