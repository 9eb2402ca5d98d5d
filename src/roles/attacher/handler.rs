//! The real handler: works one attachment until it is settled or an attempt fails.
//!
//! Read the caches, ask [`next_step`], perform, and look again: the API's and the driver's answers are in the next view.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tracing::{debug, info};

use crate::cluster::ApiErrorKind;
use crate::csi::VolumeLock;
use crate::queue::{Cause, Outcome, Ticket};
use crate::roles::attempt::{self, Failure as _, hold};

use super::attachment::Direction;
use super::context::{Context, Objects};
use super::decide::{Progress, Step, next_step};
use super::error::{AttemptError, InvalidAttachment};
use super::perform::{self, Performed};

/// How often one attempt reads an object again because a write's precondition failed. More would be a fight with
/// another writer, which back-off settles better.
const MAX_REFRESHES: u32 = 3;
/// How often one attempt tries to record that a volume is attached before it gives up: the alternative is to publish again.
const MAX_RECORD_TRIES: u32 = 4;
/// The pause before the first of these tries; it doubles.
const RECORD_PAUSE: Duration = Duration::from_millis(100);
/// A server that asks for a longer pause is left alone until the queue's next try: the worker, and a stop of the daemon,
/// must not wait for it.
const LONGEST_RECORD_PAUSE: Duration = Duration::from_secs(5);
/// More steps than any attempt needs, with every refresh and every try used up. Beyond lies an API whose answers never
/// show what was written, such as one with a webhook that rewrites it: that is for back-off, not for a loop.
const MAX_STEPS: u32 = 40;

/// How long a cache that lacks what another, or the API, has gets to catch up before the key looks again by itself: its watch
/// will deliver it in a moment, and that wakes the key.
pub(super) const CATCH_UP: Duration = Duration::from_millis(200);

/// A cache that lags for longer than this is a failure like any other, with its error told and its back-off.
const LAG_PATIENCE: Duration = Duration::from_secs(5);

/// Why an attempt ended without being settled.
pub(super) type Stop = attempt::Stop<AttemptError>;

/// One attempt at one attachment.
struct Attempt<'a> {
    cx: &'a Context,
    ticket: &'a mut Ticket<String>,
    done: Progress,
    operation: Option<VolumeLock>,
    refreshes: u32,
    record_tries: u32,
}

/// Works one ticket of the attachment queue.
pub(super) async fn handle(cx: Arc<Context>, mut ticket: Ticket<String>) -> Outcome {
    let Some(first) = cx.find(ticket.key()) else { return Outcome::Forget };
    ticket.span().record("operation", first.attachment.direction.label());
    first.join_trace(&ticket);
    let mut attempt = Attempt {
        cx: &cx,
        ticket: &mut ticket,
        done: Progress::default(),
        operation: None,
        refreshes: 0,
        record_tries: 0,
    };
    let outcome = attempt.work(&first).await;
    // The volume is free for others before this key is.
    drop(attempt);
    match outcome {
        Ok(()) => Outcome::Settled,
        Err(Stop::Later(_)) if ticket.age() >= LAG_PATIENCE => Outcome::Retry { cap: None },
        // The watch has yet to say so. Nobody reads the errors of an object that is gone.
        Err(Stop::Failed(error)) if error.says_gone() => {
            ticket.note(error.message());
            Outcome::Retry { cap: None }
        }
        Err(Stop::Failed(error)) => cx.report_failure(&ticket, &first, &error).await,
        Err(stop) => stop.outcome(),
    }
}

impl Attempt<'_> {
    async fn work(&mut self, first: &Objects) -> Result<(), Stop> {
        let forced = self.ticket.causes().contains(Cause::Drift);
        for _ in 0..MAX_STEPS {
            // Once the term is being wound down nothing is begun; what the driver has answered is still recorded. So a
            // stop waits for one call to the driver, and not for a line of them.
            if self.cx.term.is_over() && !self.has_answer(first.attachment.direction) {
                return Err(Stop::TermOver);
            }
            let Some(now) = self.cx.find(self.ticket.key()) else {
                self.settle(first);
                return Ok(());
            };
            if now.attachment.uid != first.attachment.uid || now.attachment.direction != first.attachment.direction {
                // Another object, or the other direction: its own ticket, on its own lane, is on its way.
                return Ok(());
            }
            let step = next_step(&now.view(&self.cx.rules, forced, &self.done));
            if step == Step::Settled {
                self.settle(first);
                return Ok(());
            }
            self.perform(step, &now).await?;
        }
        Err(AttemptError::Endless(MAX_STEPS).into())
    }

    /// Whether the driver has answered what was wanted of it. An unpublish from a node's former life is not that: a publish
    /// would follow.
    fn has_answer(&self, wanted: Direction) -> bool {
        match wanted {
            Direction::Attach => self.done.published.is_some(),
            Direction::Detach => self.done.unpublished,
        }
    }

    async fn perform(&mut self, next: Step, now: &Objects) -> Result<(), Stop> {
        match next {
            Step::Settled => Ok(()),
            Step::Refuse(refusal) => {
                // Kinds are watched apart: an attachment can arrive before its volume. That is confirmed before it is told.
                if let InvalidAttachment::VolumeMissing(volume) = &refusal
                    && self.ticket.age() < LAG_PATIENCE
                    && perform::is_there(self.cx, volume).await?
                {
                    debug!(error = %refusal, "the API has it, the cache has not seen it yet");
                    return Err(Stop::Later(CATCH_UP));
                }
                Err(AttemptError::from(refusal).into())
            }
            Step::Prepare(preparations) => {
                let all = join_all(preparations.into_iter().map(|one| perform::prepare(self.cx, now, one))).await;
                for performed in all {
                    match performed {
                        Ok(Performed::Written) => {}
                        Ok(Performed::Secret(secret)) => self.done.secret = Some(secret),
                        Err(ended) => self.refresh_after(ended, now).await?,
                    }
                }
                Ok(())
            }
            Step::Publish(publish) => {
                if !self.holds(&publish.volume_id).await
                    || perform::confirm(self.cx, now).await?
                    || perform::confirm_volume(self.cx, now).await?
                {
                    return Ok(());
                }
                let context = perform::publish(self.cx, now, *publish, self.done.secret.as_ref()).await?;
                self.operation = None;
                self.done.published = Some(context);
                Ok(())
            }
            Step::Unpublish(unpublish) => {
                if !self.holds(&unpublish.volume_id).await || perform::confirm(self.cx, now).await? {
                    return Ok(());
                }
                perform::unpublish(self.cx, *unpublish, self.done.secret.as_ref()).await?;
                self.operation = None;
                self.done.unpublished = true;
                // What is asked next may be about another volume: the secret was this one's.
                self.done.secret = None;
                Ok(())
            }
            Step::RecordAttached(context) => self.record_attached(now, &context).await,
            Step::Release => match perform::release(self.cx, now).await {
                Ok(gone) => {
                    self.done.gone = gone;
                    Ok(())
                }
                Err(ended) => self.refresh_after(ended, now).await,
            },
            Step::RecordDetached => match perform::record_detached(self.cx, now).await {
                Ok(()) => Ok(()),
                // The other finalizer went in the meantime, and the object with it: there is no status left to write (R5).
                Err(Stop::Failed(error)) if error.says_gone() => {
                    self.done.gone = true;
                    Ok(())
                }
                Err(ended) => self.refresh_after(ended, now).await,
            },
        }
    }

    /// Takes the volume for this attempt. `false`: it had to wait, so what it knows may be old; look again.
    async fn holds(&mut self, volume_id: &str) -> bool {
        hold(&mut self.operation, &self.cx.operations, volume_id, self.ticket).await
    }

    /// Records the publish context, and keeps at it for a moment: giving up means to publish once more.
    async fn record_attached(&mut self, now: &Objects, context: &BTreeMap<String, String>) -> Result<(), Stop> {
        match perform::record_attached(self.cx, now, context).await {
            Ok(()) => Ok(()),
            Err(Stop::Failed(AttemptError::RecordAttached(error)))
                if error.is_transient() && self.record_tries < MAX_RECORD_TRIES =>
            {
                let pause = error.retry_after().unwrap_or_else(|| RECORD_PAUSE * 2_u32.pow(self.record_tries));
                if pause > LONGEST_RECORD_PAUSE {
                    return Err(AttemptError::RecordAttached(error).into());
                }
                self.record_tries += 1;
                debug!(error = %crate::process::ErrorChain(&error), "could not record the attachment yet");
                tokio::time::sleep(pause).await;
                Ok(())
            }
            Err(ended) => self.refresh_after(ended, now).await,
        }
    }

    /// A failed precondition says that the view was old: read the objects again and go on. Anything else ends the attempt.
    async fn refresh_after(&mut self, stop: Stop, now: &Objects) -> Result<(), Stop> {
        let Stop::Failed(error) = &stop else { return Err(stop) };
        let is_stale = |kind: ApiErrorKind| kind.is_stale() || kind == ApiErrorKind::NotFound;
        let is_stale = error.api().is_some_and(|error| is_stale(error.kind()));
        // A secret that is not there is a failure to report, not an old view.
        if !is_stale || matches!(error, AttemptError::Secret(_)) || self.refreshes >= MAX_REFRESHES {
            return Err(stop);
        }
        self.refreshes += 1;
        debug!(error = error.message(), "a precondition failed: reading the objects again");
        if perform::refresh(self.cx, now).await? { Ok(()) } else { Err(stop) }
    }

    /// Tells of the success, where there is one to tell of.
    fn settle(&self, first: &Objects) {
        let did_something = self.has_answer(first.attachment.direction);
        if did_something {
            match first.attachment.direction {
                Direction::Attach => info!(node = first.attachment.node, "attached"),
                Direction::Detach => info!(node = first.attachment.node, "detached"),
            }
        }
        self.cx.report_success(self.ticket, first, did_something);
    }
}
