//! Works a content: the attempt loop's hooks.

use std::sync::Arc;

use crate::cluster::ApiErrorKind;
use crate::queue::{Cause, Outcome, Ticket};
use crate::roles::kit::freshness::{Freshness, read_again};
use crate::roles::kit::{Attempt, Next, Reconciler, TermScope};
use crate::roles::snapshotter::names::{ANNOTATION_CONTENT_UID, ANNOTATION_SNAPSHOTTING};

use super::attempt::{Done, Operation, Progress, State};
use super::call::Driven;
use super::context::{Context, Objects};
use super::decide::next_step;
use super::error::{ContentError, InvalidSnapshot, REFRESH, Stop};
use super::memory::ContentKey;
use super::perform;
use super::view::{Known, Step, View, Wait};
use super::waiting::Reason;

/// Works contents.
#[derive(Debug)]
pub(in crate::roles::snapshotter) struct Contents<K: Driven>(pub(in crate::roles::snapshotter) Arc<Context<K>>);

/// What one decision is made from, besides the attempt's own knowledge.
#[derive(Debug)]
pub(in crate::roles::snapshotter) struct Observed<K: Driven> {
    now: Objects<K>,
    known: Known,
}

/// How an attempt ends.
#[derive(Debug)]
pub(in crate::roles::snapshotter) enum End {
    /// The content is as it should be.
    Settled,
    /// It waits.
    Waits(Wait),
    /// It has failed, and the status says so.
    Failed,
}

impl<K: Driven> Contents<K> {
    fn known(&self, now: &Objects<K>, state: &State) -> Known {
        let (memory, uid) = (&self.0.memory, now.uid());
        let handle = state.progress.found.as_ref().map(|found| found.handle.as_str());
        let unanswered = memory.unanswered(uid);
        let is_end_unseen = unanswered.as_ref().is_some_and(|it| it.is_end_unseen);
        let (unanswered, since) = unanswered.map(|it| (it.asked, it.since)).unzip();
        let Progress { found, owners, .. } = &state.progress;
        let (needed_member, unread_owner) = self.0.needed_member(now, found.as_ref(), owners);
        Known {
            unanswered,
            asked_since: since.flatten(),
            is_end_unseen,
            is_relisted: self.0.relisted.is_done() && !self.0.stores.contents.is_ahead(&now.content),
            is_refused: memory.refused.has(uid),
            is_deleted: memory.deleted.has(uid),
            is_of_group: memory.undeletable.has(uid) || self.0.goes_with_group(now),
            is_doubtful: memory.doubtful.has(uid),
            is_late: memory.late.has(uid),
            is_confirmed: memory.confirmed.has(uid),
            pause_left: memory.pause_left(uid, state.started),
            is_overdue: memory.is_overdue(uid, state.started, self.0.section.ready_check.backoff().max),
            has_heir: !now.exists && self.0.has_heir(&now.content, handle),
            namesake: self.0.namesake(now),
            named_by: self.0.named_by(now),
            needed_member,
            unread_owner,
            are_members_unseen: self.0.are_members_unseen(),
            has_copy: !now.exists && self.0.has_copy(&now.content),
            is_kind_absent: self.0.stores.contents.is_absent(),
        }
    }
}

impl<K: Driven> Reconciler for Contents<K> {
    type Key = ContentKey;
    type State = State;
    type View = Option<Observed<K>>;
    type Step = Step;
    type Event = Done;
    type End = End;
    type Reason = InvalidSnapshot;

    fn scope(&self) -> &TermScope {
        &self.0.scope
    }

    fn begin(&self, ticket: &Ticket<ContentKey>) -> Option<State> {
        let cx = &*self.0;
        // Once the kinds are there, all contents are looked at.
        let now = cx.find(ticket.key()).filter(|now| !(now.exists && cx.is_idle()))?;
        let unanswered = cx.memory.unanswered(now.uid());
        cx.note_resumed(&now, unanswered.is_some());
        let moment = (cx.scope.clock.wall(), cx.scope.clock.now());
        Some(State::new(now.uid().to_owned(), moment, unanswered.and_then(|unanswered| unanswered.found)))
    }

    fn observe(&self, key: &ContentKey, state: &State) -> Option<Observed<K>> {
        let mut now = self.0.find(key)?;
        now.exists &= !state.progress.is_gone;
        let known = self.known(&now, state);
        Some(Observed { now, known })
    }

    fn next_step(&self, seen: &Option<Observed<K>>, state: &State) -> Next<Step, End> {
        let Some(Observed { now, known }) = seen else { return Next::Done(End::Settled) };
        let cx = &*self.0;
        let view = View {
            content: &*now.content,
            exists: now.exists,
            class: cx.class_of(now),
            known,
            rules: &cx.rules,
            progress: &state.progress,
        };
        match next_step(&view) {
            Step::Settled => Next::Done(End::Settled),
            Step::Wait(wait) => Next::Done(End::Waits(wait)),
            Step::Failed => Next::Done(End::Failed),
            step => Next::Do(step),
        }
    }

    fn has_answer(&self, state: &State) -> bool {
        state.has_answer(self.0.memory.is_unanswered(&state.uid))
    }

    fn keeps_changes(&self, state: &State) -> bool {
        let Progress { failure, is_gone, is_others, named_elsewhere, .. } = &state.progress;
        failure.is_some() || *is_gone || *is_others || named_elsewhere.is_some()
    }

    async fn perform(
        &self,
        step: Step,
        seen: &Option<Observed<K>>,
        state: &State,
        attempt: &mut Attempt<'_, ContentKey>,
    ) -> Result<Done, Stop> {
        let Some(Observed { now, .. }) = seen else { return Ok(Done::Nothing) };
        perform::perform(&self.0, step, now, state, attempt).await
    }

    fn apply(&self, state: &mut State, done: Done) {
        state.apply(done);
    }

    async fn refresh(&self, seen: &Option<Observed<K>>, error: &ContentError) -> Result<Option<Done>, Stop> {
        let Some(Observed { now, .. }) = seen else { return Ok(None) };
        let api = self.0.api()?;
        let read = read_again(&api, &self.0.stores.contents, now.content.as_ref()).await;
        let is_denied = error.api().is_some_and(|error| error.kind() == ApiErrorKind::NotFound);
        Ok(match read.map_err(|error| REFRESH.failed(error))? {
            Freshness::Newer => Some(Done::Nothing),
            Freshness::Gone => Some(Done::Gone),
            // What the API says not to have, and has, may be written at the next try.
            Freshness::Same => is_denied.then_some(Done::Nothing),
        })
    }

    async fn conclude(&self, ticket: &Ticket<ContentKey>, state: State, ended: Result<End, ContentError>) -> Outcome {
        let cx = &*self.0;
        cx.report_progress(ticket, &state);
        let Some(now) = cx.find(ticket.key()) else {
            cx.forget(ticket.key());
            return Outcome::Forget;
        };
        let operation = cx.phase_of(&now).operation();
        match (ended, &state.progress.failure) {
            // What the driver says is told, whether the status could be written or not.
            (Err(error), Some(failure)) => {
                cx.log_unrecorded(failure.operation, &error);
                cx.report_failure(ticket, &now, failure.operation, &failure.error)
            }
            (Ok(End::Failed), Some(failure)) => cx.report_failure(ticket, &now, failure.operation, &failure.error),
            (Err(error), None) => cx.report_failure(ticket, &now, operation, &error),
            (Ok(End::Settled | End::Failed), _) => {
                cx.report_settled(now.uid());
                Outcome::Settled
            }
            (Ok(End::Waits(wait)), _) => self.conclude_wait(ticket, &now, &state, operation, wait),
        }
    }
}

impl<K: Driven> Contents<K> {
    fn conclude_wait(
        &self,
        ticket: &Ticket<ContentKey>,
        now: &Objects<K>,
        state: &State,
        operation: Operation,
        wait: Wait,
    ) -> Outcome {
        let cx = &*self.0;
        let waits = |reason, says: &str| {
            ticket.note(says);
            cx.note_wait(&now.content, operation, reason, says);
        };
        let others = |says: &str| {
            waits(Reason::Others, says);
            // What is waited for wakes the key.
            Outcome::Settled
        };
        match wait {
            Wait::NotReady => {
                waits(Reason::NotReady, "the snapshot is cut, and the driver has not made it ready to use yet");
                let (pace, now_is) = (cx.section.ready_check.backoff(), cx.scope.clock.now());
                let pause = cx.memory.not_ready(now.uid(), now_is, &pace, cx.scope.rng.fraction());
                if state.has_cut {
                    // The failures of the cut do not count against the looks that follow.
                    cx.add(now, Cause::Resync);
                    return Outcome::Settled;
                }
                Outcome::RetryAfter(pause)
            }
            Wait::NotDue(left) => Outcome::RetryAfter(left),
            Wait::Member => others("the snapshot-controller has not filled the status of this snapshot of a group yet"),
            Wait::Snapshot => others(&format!(
                "it is being deleted, and waits until its {} is deleted, because that still needs it",
                K::NAMES.owner
            )),
            Wait::Unprotected => others(
                "it is being deleted without the finalizer of this driver's snapshotter, so that no snapshot is taken",
            ),
            Wait::Copied => {
                let says = format!(
                    "it is a copy: an annotation on it was written for another {}, in this cluster or in another one, whose snapshot \
                     may be in use. Nothing is taken or deleted for it. If it is to be taken as a new one, remove the annotations \
                     {}, {ANNOTATION_SNAPSHOTTING} and {ANNOTATION_CONTENT_UID}, as far as it has them; else delete it, which leaves \
                     the storage as it is",
                    K::KIND,
                    K::NAMES.mark,
                );
                cx.tell_of_copy(now, &says);
                others(&says)
            }
            Wait::Earlier(handle) => {
                // What the user changes counts, and not what is remembered.
                cx.memory.settle(now.uid());
                let says = format!(
                    "another program had marked it as begun, and the driver has the {} {handle} for it, which was taken before this {} \
                     was made: it may be a copy, and the {0} somebody else's. It is neither taken over nor deleted. If this one is to have \
                     it, remove the annotations {} and {ANNOTATION_SNAPSHOTTING}; else delete it, which leaves the storage as it is",
                    K::NAMES.word,
                    K::KIND,
                    K::NAMES.mark,
                );
                cx.tell_of_copy(now, &says);
                others(&says)
            }
            Wait::ForeignClass(driver) => {
                let says = format!(
                    "its class is of driver {driver}, and not of {}: correct the name of the class in its spec",
                    cx.scope.driver_name
                );
                cx.tell_of_class(now, &says);
                others(&says)
            }
        }
    }
}
