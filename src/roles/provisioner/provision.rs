//! The handler of claims: works one claim until its volume exists, nothing is wanted, or an attempt fails.
//!
//! Read the caches, ask [`next_step`], perform, and look again. How far the claim is lives in the term's book, written
//! *before* each step whose outcome might be lost, so that a panic or a cancelled run loses nothing.

use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::time::Instant;
use tracing::debug;

use crate::cluster::{ObjectName, PersistentVolume, VolumeAttributesClass};
use crate::csi::OperationGuard;
use crate::queue::{Outcome, Ticket};
use crate::roles::attempt::{self, Failure as _, hold};
use crate::roles::secret::Secret;

use super::claim::ClaimKey;
use super::decide::{Ignored, Place, Step, next_step};
use super::desk::Desk;
use super::haste::OnItsWay;
use super::origin::Findings;
use super::perform;
use super::progress::{Phase, Progress, Told};
use super::refusal::{AttemptError, Refusal};
use super::request::RequestError;
use super::sight::Now;
use super::site::Asked;
use super::state::State;
use super::waits::Awaited;

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
    pub(super) secrets: Option<Secret>,
    /// What the API itself said of the volume's name.
    pub(super) seen: Option<PersistentVolume>,
    /// What was asked about whose claim it is.
    pub(super) asked: Asked,
    pub(super) operation: Option<OperationGuard>,
    pub(super) begun: Instant,
    /// From when nothing but the driver is missing, until the volume object is stored.
    pub(super) on_its_way: Option<OnItsWay>,
    /// Whether the claim was given back to the scheduler.
    pub(super) given_back: bool,
    refreshes: u32,
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
    let key = ticket.key().clone();
    let known = desk.progress.get(&key.uid).or_else(|| desk.find(&key).map(Progress::at_first_sight));
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
            desk.forget(&key);
            Outcome::Settled
        }
        Ok(End::Ignored(why)) => {
            attempt.tell_ignored(why);
            attempt.drop_entry(why);
            desk.dismiss(&attempt.progress.claim);
            desk.forget(&key);
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
    // Looked at by thousands once a second, so it is not parsed.
    let is_patient = || {
        let claim = desk.known.claims.get(&key.name);
        let claim = claim.filter(|claim| claim.metadata.uid.as_deref() == Some(&*key.uid));
        claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_none())
    };
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
    /// ask the driver a second time (R59).
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
                let at = ObjectName::cluster(&name);
                self.attributes_class = perform::read(self.desk, &at, AttemptError::AttributesClass).await?;
                if self.attributes_class.is_none() {
                    return Err(AttemptError::from(RequestError::AttributesClassMissing(name)).into());
                }
                Ok(())
            }
            Step::Plan => self.plan(now).or_else(|error| self.fail_before_asking(error, now)),
            Step::ReadSecret(reference) => self.read_secret(&reference, now).await,
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
}
