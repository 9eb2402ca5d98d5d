//! The handler of claims: works one claim until its volume exists, nothing is wanted, or an attempt fails.
//!
//! Read the caches, ask [`next_step`], perform, and look again. How far the claim is lives in the term's book, written
//! *before* each step whose outcome might be lost, so that a panic or a cancelled run loses nothing.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::time::Instant;
use tracing::debug;

use crate::cluster::{ObjectName, PersistentVolume, StorageClass, VolumeAttributesClass};
use crate::csi::OperationGuard;
use crate::queue::{Outcome, Ticket};
use crate::roles::attempt::{self, Failure as _, hold};

use super::claim::{Claim, ClaimKey};
use super::decide::{Attempt as Known, Ignored, Origin, Place, Site, Step, View, ignored, is_unwanted, next_step};
use super::desk::{Awaited, Desk, was_handed_on};
use super::haste::OnItsWay;
use super::intent::Intent;
use super::origin::{Findings, origin};
use super::perform;
use super::progress::{Phase, Progress, Told};
use super::refusal::{AttemptError, Refusal};
use super::request::{NameRule, RequestError, check_capabilities};
use super::site::Asked;
use super::source::{ContentSource, Source, SourceError, Wanted, normalise};
use super::state::State;

/// How often one attempt reads the claim again because a write's precondition failed. More would be a fight with another
/// writer, which back-off settles better.
const MAX_REFRESHES: u32 = 3;
/// More steps than any attempt needs, with every refresh used up.
const MAX_STEPS: u32 = 40;

/// Why an attempt ended without its claim being settled.
pub(super) type Stop = attempt::Stop<AttemptError>;

/// One attempt at one claim.
pub(super) struct Attempt<'a> {
    pub(super) desk: &'a Desk,
    pub(super) ticket: &'a mut Ticket<ClaimKey>,
    /// A copy of the book's entry; [`Attempt::note`] writes it back.
    pub(super) progress: Progress,
    pub(super) found: Findings,
    pub(super) attributes_class: Option<VolumeAttributesClass>,
    pub(super) secrets: Option<HashMap<String, String>>,
    /// What the API itself said of the volume's name.
    pub(super) seen: Option<PersistentVolume>,
    /// What was asked about whose claim it is.
    pub(super) asked: Asked,
    pub(super) operation: Option<OperationGuard>,
    pub(super) begun: Instant,
    /// From when nothing but the driver is missing, until the volume object is stored.
    pub(super) on_its_way: Option<OnItsWay>,
    /// Whether the claim was given back to the scheduler.
    given_back: bool,
    refreshes: u32,
}

/// What one decision is made from.
pub(super) struct Now {
    pub(super) claim: Claim,
    pub(super) present: bool,
    pub(super) class: Option<Arc<StorageClass>>,
    pub(super) source: Result<Source, SourceError>,
    origin: Origin,
    place: Place,
    site: Site,
}

impl Now {
    /// Whether each node has a daemon of its own, and none has the claim.
    pub(super) fn is_nobodys(&self) -> bool {
        matches!(self.site, Site::Free { .. })
    }
}

/// How an attempt ended well.
enum End {
    /// The volume exists.
    Provisioned,
    /// The volume exists, and the claim is still to be released, which can wait.
    Stored,
    /// There is nothing to do.
    Ignored(Ignored),
}

/// Works one ticket of the claim queue.
pub(super) async fn handle(desk: Arc<Desk>, mut ticket: Ticket<ClaimKey>) -> Outcome {
    loop {
        // Boxed, and gone while the claim gives way: thousands do so at once.
        match Box::pin(try_once(&desk, &mut ticket)).await {
            ControlFlow::Break(outcome) => return outcome,
            ControlFlow::Continue(()) => give_way(&desk, &mut ticket).await,
        }
    }
}

/// Works the ticket until there is an outcome, or until what is left can wait.
async fn try_once(desk: &Desk, ticket: &mut Ticket<ClaimKey>) -> ControlFlow<Outcome> {
    let uid = ticket.key().uid.clone();
    let known = desk.progress.get(&uid).or_else(|| desk.find(ticket.key()).map(Progress::at_first_sight));
    let Some(mut progress) = known else { return ControlFlow::Break(Outcome::Forget) };
    progress.begin();
    let mut attempt = Attempt {
        begun: desk.clock.now(),
        on_its_way: None,
        desk,
        ticket,
        progress,
        found: Findings::default(),
        attributes_class: None,
        secrets: None,
        seen: None,
        asked: Asked::default(),
        operation: None,
        given_back: false,
        refreshes: 0,
    };
    let ended = attempt.work().await;
    attempt.operation = None;
    ControlFlow::Break(match ended {
        Ok(End::Stored) => {
            attempt.tell_success();
            attempt.note();
            return ControlFlow::Continue(());
        }
        Ok(End::Provisioned) => {
            attempt.tell_success();
            attempt.settle();
            desk.dismiss(&attempt.progress.claim);
            desk.locality.forget(&uid);
            Outcome::Settled
        }
        Ok(End::Ignored(why)) => {
            attempt.tell_ignored(why);
            attempt.drop_entry(why);
            desk.dismiss(&attempt.progress.claim);
            desk.locality.forget(&uid);
            if why == Ignored::Gone { Outcome::Forget } else { Outcome::Settled }
        }
        Err(Stop::Failed(error)) => {
            if matches!(error, AttemptError::Refused(Refusal::Source(_))) {
                desk.dismiss(&attempt.progress.claim);
            }
            attempt.tell_failure(&error)
        }
        Err(stop) => stop.outcome(),
    })
}

/// Lets the claims that have no volume object yet go first.
async fn give_way(desk: &Desk, ticket: &mut Ticket<ClaimKey>) {
    let key = ticket.key().clone();
    let is_patient = || desk.find(&key).is_some_and(|claim| !claim.deleting);
    let others = async {
        tokio::select! {
            biased;
            () = desk.term.over() => {}
            () = desk.haste.give_way(is_patient) => {}
        }
    };
    ticket.park(others).await;
}

impl Attempt<'_> {
    async fn work(&mut self) -> Result<End, Stop> {
        for _ in 0..MAX_STEPS {
            let now = self.look();
            // Once the term is being wound down nothing is begun; what the driver has answered is still recorded.
            if self.desk.term.is_over() && !self.progress.has_answer() {
                return Err(Stop::TermOver);
            }
            let step = next_step(&self.view(&now));
            match step {
                Step::Settled => return Ok(End::Provisioned),
                Step::Ignore(why) => return Ok(End::Ignored(why)),
                Step::Release { .. } if self.has_time() => return Ok(End::Stored),
                step => {
                    let done = self.perform(step, &now).await;
                    self.unless_nobodys(done, &now)?;
                }
            }
        }
        Err(AttemptError::Endless(MAX_STEPS).into())
    }

    /// Nothing is begun, so that nothing needs to be known. But a claim that waits for another node is not over: who was told of
    /// a failure is told of its end.
    fn drop_entry(&mut self, why: Ignored) {
        if why == Ignored::NoNode && self.progress.told != Told::default() {
            self.let_go();
        } else {
            self.desk.progress.forget(&self.progress.claim.key.uid);
        }
    }

    /// What keeps a claim that is nobody's from being asked for keeps no node from taking it (spec 2.14): else every node would
    /// fail, and tell of it. Whoever has it finds the same.
    fn unless_nobodys(&mut self, done: Result<(), Stop>, now: &Now) -> Result<(), Stop> {
        let is_looking = now.is_nobodys() && self.progress.is_unasked() && self.asked.fits.is_none();
        match done {
            Err(Stop::Failed(error)) if is_looking && !matches!(error, AttemptError::Take(_)) => {
                debug!(error = error.message(), "cannot see how much room is wanted: taking the claim without");
                self.asked.fits = Some(true);
                Ok(())
            }
            done => done,
        }
    }

    /// The volume object exists. While the cache has not seen it, that is known from the entry alone: another run must not
    /// ask the driver a second time (59).
    fn settle(&mut self) {
        let claim = self.progress.claim.clone();
        let is_seen = claim.volume_name.is_some() || (self.seen.is_none() && self.place(&claim) == Place::Ours);
        if is_seen {
            self.desk.progress.forget(&claim.key.uid);
        } else {
            self.progress.phase = Phase::Saved;
            self.note();
        }
    }

    /// Whether nobody waits for the claim's release: it just got its volume object, and is wanted.
    fn has_time(&self) -> bool {
        let is_stored = self.progress.phase == Phase::Saved && self.progress.success.is_some();
        self.on_its_way.is_some() && is_stored && !self.progress.claim.deleting
    }

    /// Reads what the caches hold about the claim.
    fn look(&mut self) -> Now {
        let desk = self.desk;
        let found = desk.find(self.ticket.key());
        let present = found.is_some();
        if let Some(claim) = found {
            self.progress.claim = claim;
        }
        let claim = self.progress.claim.clone();
        let class = desk.class_of(&claim);
        let place = self.place(&claim);
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
        Now { claim, present, class, source, origin, place, site }
    }

    /// How far the source is known; refused at once where the driver can't do what the claim asks for.
    fn origin(&self, claim: &Claim, source: &Result<Source, SourceError>, own: &str) -> Origin {
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
        let name = self.volume_name(claim).ok();
        if self.progress.phase != Phase::Outstanding || !is_unwanted(claim, present, name.as_deref()) {
            return None;
        }
        Intent::parse(claim.intent.as_deref()?).ok()?.source
    }

    fn place(&self, claim: &Claim) -> Place {
        let desk = self.desk;
        let Ok(name) = self.volume_name(claim) else { return Place::Free };
        let held = desk.known.volumes.get(&ObjectName::cluster(name));
        self.whose(claim, held.as_deref().or(self.seen.as_ref()))
    }

    /// Whose the volume object is that has the name of the claim's volume.
    pub(super) fn whose(&self, claim: &Claim, found: Option<&PersistentVolume>) -> Place {
        let desk = self.desk;
        // What somebody else has begun is answered by one that was handed on, too.
        let is_begun = self.progress.phase == Phase::Outstanding;
        if is_begun && found.is_some_and(|volume| was_handed_on(volume, claim, &desk.rules.driver)) {
            return Place::Ours;
        }
        desk.place(claim, found)
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

    fn view<'b>(&'b self, now: &'b Now) -> View<'b> {
        let wants = now.claim.object.spec.volume_attributes_class_name.as_deref();
        View {
            claim: &now.claim,
            present: now.present,
            class: now.class.as_deref(),
            volume: &now.place,
            source: &now.origin,
            attributes_class: wants.filter(|_| self.attributes_class.is_none()),
            site: now.site,
            progress: &self.progress,
            attempt: Known { has_secret: self.secrets.is_some() },
            rules: &self.desk.rules,
        }
    }

    async fn perform(&mut self, step: Step, now: &Now) -> Result<(), Stop> {
        if matches!(step, Step::SaveIntent | Step::Create | Step::SaveVolume) {
            self.on_its_way.get_or_insert_with(|| self.desk.haste.begin());
        }
        match step {
            // `work` has returned.
            Step::Settled | Step::Ignore(_) => Ok(()),
            Step::Refuse(refusal) => self.refuse(refusal, now),
            Step::Conclude => {
                self.given_back = matches!(self.progress.phase, Phase::Ended { reschedule: true, .. });
                self.progress.phase = Phase::Idle;
                let failure = self.progress.failure.take();
                self.note();
                failure.map_or(Ok(()), |failure| Err(failure.into()))
            }
            Step::Resume => {
                debug!("the claim carries a mark that is not of this term: resuming what it stands for");
                self.progress.resume();
                self.secrets = None;
                self.note();
                Ok(())
            }
            Step::WaitTurn(wait) => Err(Stop::Later(wait)),
            Step::AskCapacity => self.ask_capacity().await,
            Step::AskForHolder(node) => self.ask_for_holder(node).await,
            Step::TakeClaim => self.take(now).await,
            Step::FreeClaim => self.free(now).await,
            Step::LetGo => {
                self.let_go();
                Ok(())
            }
            Step::ConfirmVolume => self.confirm_volume(now).await,
            Step::Source(step) => self.source_step(step, now).await,
            Step::GetAttributesClass(name) => {
                let api = self.desk.api.use_now()?;
                let class = api.get(&ObjectName::cluster(name)).await.map_err(AttemptError::AttributesClass)?;
                self.attributes_class = Some(class);
                Ok(())
            }
            Step::Plan => self.plan(now).or_else(|error| self.fail_before_asking(error, now)),
            Step::ReadSecret(reference) => self.read_secret(&reference).await,
            Step::SaveIntent => {
                let text = self.progress.written.clone().unwrap_or_default();
                let saved = perform::save_intent(self.desk, &now.claim, &text).await;
                // Only then it is known to be ours. Where the answer was lost, it is resumed like anybody else's.
                if saved.is_ok() && self.progress.phase == Phase::Idle {
                    self.progress.phase = Phase::Marked;
                    self.note();
                }
                self.refresh_after(saved, now).await
            }
            Step::Create => self.create(now).await,
            Step::DeleteCreated(volume_id) => self.delete_created(now, &volume_id).await,
            Step::SaveVolume => self.save_volume(now).await,
            Step::Release { reschedule } => {
                let released = perform::release(self.desk, &now.claim, reschedule).await;
                self.refresh_after(released, now).await
            }
        }
    }

    /// Nothing was asked of the driver in this attempt. Where it owes no answer either, an error that is final ends what
    /// was begun.
    pub(super) fn fail_before_asking(&mut self, error: AttemptError, now: &Now) -> Result<(), Stop> {
        let state = error.state();
        if now.is_nobodys() || !self.progress.is_unasked() || !state.is_final() {
            return Err(error.into());
        }
        self.progress.end(state == State::Reschedule);
        self.progress.failure = Some(error);
        self.note();
        Ok(())
    }

    fn refuse(&mut self, refusal: Refusal, now: &Now) -> Result<(), Stop> {
        if matches!(refusal, Refusal::NameTaken(_)) {
            self.wait_for_name();
        }
        self.fail_before_asking(refusal.into(), now)
    }

    /// Whatever has the name of the claim's volume: its going wakes the claim.
    pub(super) fn wait_for_name(&self) {
        let (desk, key) = (self.desk, &self.progress.claim.key);
        if let Ok(name) = self.volume_name(&self.progress.claim) {
            desk.waits.add(Awaited::Name(ObjectName::cluster(name)), key.clone());
        }
    }

    /// A failed precondition says that the view was old: read the claim again and go on. Anything else ends the attempt.
    pub(super) async fn refresh_after(&mut self, done: Result<(), Stop>, now: &Now) -> Result<(), Stop> {
        let Err(Stop::Failed(error)) = &done else { return done };
        if !error.is_stale() || self.refreshes >= MAX_REFRESHES {
            return done;
        }
        self.refreshes += 1;
        debug!(error = error.message(), "a precondition failed: reading the claim again");
        if perform::refresh(self.desk, &now.claim).await? { Ok(()) } else { done }
    }

    /// Takes the volume for this attempt. `false`: it had to wait, so what it knows may be old; look again.
    pub(super) async fn holds(&mut self, volume: &str) -> bool {
        hold(&mut self.operation, &self.desk.operations, volume, self.ticket).await
    }

    /// Writes the entry of the term's book.
    pub(super) fn note(&self) {
        self.desk.progress.put(self.progress.clone());
    }

    /// Whether the claim still wants what was refused: what only an old view shows is not worth telling. One that the
    /// failure itself gave back to the scheduler waits for another node because of it.
    pub(super) fn is_wanted(&mut self) -> bool {
        let now = self.look();
        // What another node's daemon works on is that one's to tell: else every node would.
        let is_anothers = self.desk.locality.is_anothers(&now.claim);
        if is_anothers && (self.progress.is_unasked() || self.progress.resumed) {
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
