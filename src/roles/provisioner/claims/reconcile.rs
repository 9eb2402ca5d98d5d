//! The handler of claims: works one claim until its volume exists, nothing is wanted, or an attempt fails.
//!
//! Read the caches, ask [`next_step`], perform, and look again. How far the claim is lives in the term's book, written
//! *before* each step whose outcome might be lost, so that a panic or a cancelled run loses nothing.

use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::time::Instant;
use tracing::debug;

use crate::cluster::{ObjectName, PersistentVolume, VolumeAttributesClass};
use crate::csi::VolumeLock;
use crate::queue::{Outcome, Ticket};
use crate::roles::attempt::hold;
use crate::roles::kit::secrets::Secret;

use super::claim::ClaimKey;
use super::decide::{Ignored, NameStatus, Step, next_step};
pub(in crate::roles::provisioner) use super::error::Stop;
use super::error::{AttemptError, BECOME_OWNER, ClaimReason, InvalidClaim, READ_ATTRIBUTES_CLASS};
use super::finality::Finality;
use super::haste::OnItsWay;
use super::observe::Observed;
use super::pending_on::Dependency;
use super::perform;
use super::request::RequestError;
use super::state::{ClaimState, Phase, Reported};
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::node::scope::Asked;
use crate::roles::provisioner::sources::status::SourceObjects;

/// How often one attempt reads the claim again because a write's precondition failed. More would be a fight with another
/// writer, which back-off settles better.
const MAX_REFRESHES: u32 = 3;
/// More steps than any attempt needs, with every refresh used up.
const MAX_STEPS: u32 = 40;

/// One attempt at one claim.
pub(in crate::roles::provisioner) struct Attempt<'a> {
    pub(in crate::roles::provisioner) cx: &'a Context,
    pub(in crate::roles::provisioner) ticket: &'a mut Ticket<ClaimKey>,
    /// A copy of the book's entry; [`Attempt::note`] writes it back.
    pub(in crate::roles::provisioner) state: ClaimState,
    pub(in crate::roles::provisioner) found: SourceObjects,
    pub(in crate::roles::provisioner) attributes_class: Option<VolumeAttributesClass>,
    pub(in crate::roles::provisioner) secrets: Option<Secret>,
    /// What the API itself said of the volume's name.
    pub(in crate::roles::provisioner) seen: Option<PersistentVolume>,
    /// What was asked about whose claim it is.
    pub(in crate::roles::provisioner) asked: Asked,
    pub(in crate::roles::provisioner) operation: Option<VolumeLock>,
    pub(in crate::roles::provisioner) begun: Instant,
    /// From when nothing but the driver is missing, until the volume object is stored.
    pub(in crate::roles::provisioner) on_its_way: Option<OnItsWay>,
    /// Whether the claim was given back to the scheduler.
    pub(in crate::roles::provisioner) given_back: bool,
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
pub(in crate::roles::provisioner) async fn handle(cx: Arc<Context>, mut ticket: Ticket<ClaimKey>) -> Outcome {
    loop {
        // Boxed, and gone while the claim gives way: thousands do so at once.
        match Box::pin(try_once(&cx, &mut ticket)).await {
            ControlFlow::Break(outcome) => return outcome,
            ControlFlow::Continue(()) => give_way(&cx, &mut ticket).await,
        }
    }
}

/// Works the ticket until there is an outcome, or until what is left can wait.
async fn try_once(cx: &Context, ticket: &mut Ticket<ClaimKey>) -> ControlFlow<Outcome> {
    let key = ticket.key().clone();
    let known = cx.states.get(&key.uid).or_else(|| cx.find(&key).map(ClaimState::at_first_sight));
    let Some(mut state) = known else { return ControlFlow::Break(Outcome::Forget) };
    state.begin();
    let mut attempt = Attempt {
        begun: cx.clock.now(),
        on_its_way: None,
        cx,
        ticket,
        state,
        found: SourceObjects::default(),
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
            cx.dismiss(&attempt.state.claim);
            cx.forget(&key);
            Outcome::Settled
        }
        Ok(End::Ignored(why)) => {
            attempt.tell_ignored(why);
            attempt.drop_entry(why);
            cx.dismiss(&attempt.state.claim);
            cx.forget(&key);
            if why == Ignored::Gone { Outcome::Forget } else { Outcome::Settled }
        }
        Err(Stop::Failed(error)) => {
            if matches!(error, AttemptError::Reason(ClaimReason::Invalid(InvalidClaim::Source(_)))) {
                cx.dismiss(&attempt.state.claim);
            }
            attempt.tell_failure(&error)
        }
        Err(Stop::TermOver) => Outcome::Interrupted,
        Err(Stop::Later(wait)) => Outcome::RetryAfter(wait),
        Err(Stop::Behind(error)) => attempt.tell_failure(&error),
    })
}

/// Lets the claims that have no volume object yet go first.
async fn give_way(cx: &Context, ticket: &mut Ticket<ClaimKey>) {
    let key = ticket.key().clone();
    // Looked at by thousands once a second, so it is not parsed.
    let is_patient = || {
        let claim = cx.stores.claims.get(&key.name);
        let claim = claim.filter(|claim| claim.metadata.uid.as_deref() == Some(&*key.uid));
        claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_none())
    };
    let others = async {
        tokio::select! {
            biased;
            () = cx.term.over() => {}
            () = cx.haste.give_way(is_patient) => {}
        }
    };
    ticket.park(others).await;
}

impl Attempt<'_> {
    async fn work(&mut self) -> Result<End, Stop> {
        for _ in 0..MAX_STEPS {
            let now = self.observe();
            // Once the term is being wound down nothing is begun; what the driver has answered is still recorded.
            if self.cx.term.is_over() && !self.state.has_answer() {
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
        if why == Ignored::NoNode && self.state.reported != Reported::default() {
            self.let_go();
        } else {
            self.cx.states.forget(&self.state.claim.key.uid);
        }
    }

    /// What keeps a claim that is nobody's from being asked for keeps no node from taking it (spec 2.14): else every node would
    /// fail, and tell of it. Whoever has it finds the same.
    fn unless_nobodys(&mut self, done: Result<(), Stop>, now: &Observed) -> Result<(), Stop> {
        let is_looking = now.is_nobodys() && self.state.is_unasked() && self.asked.fits.is_none();
        match done {
            Err(Stop::Failed(error)) if is_looking && !error.is_of(BECOME_OWNER) => {
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
        let claim = self.state.claim.clone();
        let is_seen = claim.volume_name.is_some() || (self.seen.is_none() && self.place(&claim) == NameStatus::Ours);
        if is_seen {
            self.cx.states.forget(&claim.key.uid);
        } else {
            self.state.phase = Phase::Stored;
            self.note();
        }
    }

    /// Whether nobody waits for the claim's release: it just got its volume object, and is wanted.
    fn has_time(&self) -> bool {
        let is_stored = self.state.phase == Phase::Stored && self.state.success.is_some();
        self.on_its_way.is_some() && is_stored && !self.state.claim.deleting
    }

    async fn perform(&mut self, step: Step, now: &Observed) -> Result<(), Stop> {
        if matches!(step, Step::SaveIntent | Step::Create | Step::SaveVolume) {
            self.on_its_way.get_or_insert_with(|| self.cx.haste.begin());
        }
        match step {
            // `work` has returned.
            Step::Settled | Step::Ignore(_) => Ok(()),
            Step::Refuse(refusal) => self.refuse(refusal, now),
            Step::Conclude => {
                self.given_back = matches!(self.state.phase, Phase::Finished { reschedule: true, .. });
                self.state.phase = Phase::Idle;
                let failure = self.state.failure.take();
                self.note();
                failure.map_or(Ok(()), |failure| Err(failure.into()))
            }
            Step::Resume => {
                debug!("the claim carries a mark that is not of this term: resuming what it stands for");
                self.state.resume();
                self.secrets = None;
                self.note();
                Ok(())
            }
            Step::WaitTurn(wait) => Err(Stop::Later(wait)),
            Step::AskCapacity => self.ask_capacity().await,
            Step::AskForHolder(node) => self.ask_for_holder(node).await,
            Step::BecomeOwner => self.become_owner(now).await,
            Step::ReleaseOwnership => self.release_ownership(now).await,
            Step::LetGo => {
                self.let_go();
                Ok(())
            }
            Step::ConfirmVolume => self.confirm_volume(now).await,
            Step::Source(step) => self.source_step(step, now).await,
            Step::GetAttributesClass(name) => {
                let at = ObjectName::cluster(&name);
                self.attributes_class = perform::read(self.cx, &at, READ_ATTRIBUTES_CLASS).await?;
                if self.attributes_class.is_none() {
                    return Err(AttemptError::from(RequestError::AttributesClassMissing(name)).into());
                }
                Ok(())
            }
            Step::Plan => self.plan(now).or_else(|error| self.fail_before_asking(error, now)),
            Step::ReadSecret(reference) => self.read_secret(&reference, now).await,
            Step::SaveIntent => {
                let text = self.state.written.clone().unwrap_or_default();
                let saved = perform::save_intent(self.cx, &now.claim, &text).await;
                // Only then it is known to be ours. Where the answer was lost, it is resumed like anybody else's.
                if saved.is_ok() && self.state.phase == Phase::Idle {
                    self.state.phase = Phase::Marked;
                    self.note();
                }
                self.refresh_after(saved, now).await
            }
            Step::Create => self.create(now).await,
            Step::DeleteCreated(volume_id) => self.delete_created(now, &volume_id).await,
            Step::SaveVolume => self.save_volume(now).await,
            Step::Release { reschedule } => {
                let released = perform::release(self.cx, &now.claim, reschedule).await;
                self.refresh_after(released, now).await
            }
        }
    }

    /// Nothing was asked of the driver in this attempt. Where it owes no answer either, an error that is final ends what
    /// was begun.
    pub(in crate::roles::provisioner) fn fail_before_asking(
        &mut self,
        error: AttemptError,
        now: &Observed,
    ) -> Result<(), Stop> {
        let finality = error.finality();
        if now.is_nobodys() || !self.state.is_unasked() || !finality.is_final() {
            return Err(error.into());
        }
        self.state.end(finality == Finality::Reschedule);
        self.state.failure = Some(error);
        self.note();
        Ok(())
    }

    fn refuse(&mut self, refusal: InvalidClaim, now: &Observed) -> Result<(), Stop> {
        if matches!(refusal, InvalidClaim::NameTaken(_)) {
            self.wait_for_name();
        }
        self.fail_before_asking(refusal.into(), now)
    }

    /// Whatever has the name of the claim's volume: its going wakes the claim.
    pub(in crate::roles::provisioner) fn wait_for_name(&self) {
        let (cx, key) = (self.cx, &self.state.claim.key);
        if let Ok(name) = self.volume_name(&self.state.claim) {
            cx.pending_on.add(Dependency::Name(ObjectName::cluster(name)), key.clone());
        }
    }

    /// A failed precondition says that the view was old: read the claim again and go on. Anything else ends the attempt.
    pub(in crate::roles::provisioner) async fn refresh_after(
        &mut self,
        done: Result<(), Stop>,
        now: &Observed,
    ) -> Result<(), Stop> {
        let Err(Stop::Failed(error)) = &done else { return done };
        if !error.is_of_an_old_view() || self.refreshes >= MAX_REFRESHES {
            return done;
        }
        self.refreshes += 1;
        debug!(error = error.message(), "a precondition failed: reading the claim again");
        if perform::refresh(self.cx, &now.claim).await? { Ok(()) } else { done }
    }

    /// Takes the volume for this attempt. `false`: it had to wait, so what it knows may be old; look again.
    pub(in crate::roles::provisioner) async fn holds(&mut self, volume: &str) -> bool {
        hold(&mut self.operation, &self.cx.operations, volume, self.ticket).await
    }

    /// Writes the entry of the term's book.
    pub(in crate::roles::provisioner) fn note(&self) {
        self.cx.states.put(self.state.clone());
    }
}
