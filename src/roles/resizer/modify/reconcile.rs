//! Reconciles the modification of a claim's volume: the hooks of the attempt loop.

use std::sync::Arc;

use crate::cluster::{Cache, ObjectName, VolumeAttributesClass};
use crate::csi::RpcError;
use crate::queue::{Outcome, Ticket};
use crate::roles::kit::freshness::Freshness;
use crate::roles::kit::{Attempt, AttemptError, Next, Reconciler, TermScope};
use crate::roles::resizer::attempt;
use crate::roles::resizer::claim::status;
use crate::roles::resizer::context::{Context, Objects};
use crate::roles::resizer::error::{ChangeError, InvalidChange, is_infeasible_modification, is_refusal};
use crate::roles::resizer::memory::{Job, WorkKey};
use crate::roles::resizer::objects::{self, Stop};
use crate::roles::resizer::waiting::Reason;

use super::decide::{Class, Step, View, Wait, next_step};
use super::perform::{self, Done};
use super::writes;

/// Reconciles the modifications of claims.
#[derive(Debug)]
pub struct Modifications(pub Arc<Context>);

type State = attempt::State<String, String>;

/// The observation that a decision is made from.
#[derive(Debug)]
pub struct Seen {
    now: Objects,
    wanted: Known,
    begun: Known,
}

/// A class as the cache has it.
#[derive(Debug, Clone)]
enum Known {
    Class(Arc<VolumeAttributesClass>),
    Missing,
    Unknown,
}

impl Known {
    fn class(&self) -> Class<'_> {
        match self {
            Self::Class(class) => Class::Known(class),
            Self::Missing => Class::Missing,
            Self::Unknown => Class::Unknown,
        }
    }
}

/// How an attempt ends without another error.
#[derive(Debug)]
pub enum End {
    /// The volume is as the claim asks.
    Settled,
    /// It waits.
    Waits(Wait),
    /// The driver has refused this class.
    Refused(String, RpcError),
}

impl Modifications {
    fn known(&self, class: Option<&str>) -> Known {
        let Some(class) = class else { return Known::Missing };
        let Some(classes) = self.0.stores.classes.as_ref() else { return Known::Unknown };
        if !classes.is_synced() || classes.is_absent() {
            return Known::Unknown;
        }
        classes.get(&ObjectName::cluster(class)).map_or(Known::Missing, Known::Class)
    }

    fn view<'a>(&'a self, seen: &'a Seen, state: &'a State) -> View<'a> {
        let (cx, uid) = (&*self.0, seen.now.uid());
        let begun = status(&seen.now.claim).modify.as_ref().and_then(|modify| modify.target.as_deref());
        View {
            claim: &seen.now.claim,
            volume: seen.now.volume.as_deref(),
            wanted: seen.wanted.class(),
            begun: seen.begun.class(),
            last_call: cx.last_call(uid, Job::Modify),
            gives_up_begun: begun.is_some_and(|class| cx.missing_for(uid, class) >= cx.section.retry.max),
            is_confirmed: cx.confirmed.has(uid),
            now: state.began,
            rules: &cx.modify,
            progress: &state.progress,
        }
    }
}

impl Reconciler for Modifications {
    type Key = WorkKey;
    type State = State;
    type View = Option<Seen>;
    type Step = Step;
    type Event = Done;
    type End = End;
    type Reason = InvalidChange;

    fn scope(&self) -> &TermScope {
        &self.0.scope
    }

    fn begin(&self, ticket: &Ticket<WorkKey>) -> Option<State> {
        State::begin(&self.0, ticket, &self.0.modified)
    }

    fn observe(&self, key: &WorkKey, _: &State) -> Option<Seen> {
        let now = self.0.find(&key.claim)?;
        let wanted = self.known(now.claim.spec.volume_attributes_class_name.as_deref());
        let begun = self.known(status(&now.claim).modify.as_ref().and_then(|modify| modify.target.as_deref()));
        Some(Seen { now, wanted, begun })
    }

    fn next_step(&self, seen: &Option<Seen>, state: &State) -> Next<Step, End> {
        let Some(seen) = seen.as_ref().filter(|seen| seen.now.uid() == state.uid) else {
            return Next::Done(End::Settled);
        };
        match next_step(&self.view(seen, state)) {
            Step::Settled => Next::Done(End::Settled),
            Step::Wait(wait) => Next::Done(End::Waits(wait)),
            Step::Refused(class, error) => Next::Done(End::Refused(class, error)),
            step => Next::Do(step),
        }
    }

    fn has_answer(&self, state: &State) -> bool {
        state.progress.has_answer()
    }

    fn keeps_changes(&self, state: &State) -> bool {
        state.progress.refused.is_some()
    }

    async fn perform(
        &self,
        step: Step,
        seen: &Option<Seen>,
        state: &State,
        attempt: &mut Attempt<'_, WorkKey>,
    ) -> Result<Done, Stop> {
        let cx = &*self.0;
        let Some(Seen { now, .. }) = seen else { return Ok(Done::Nothing) };
        // The steps that need no turn come first.
        match &step {
            // `next_step` has ended the attempt.
            Step::Settled | Step::Wait(_) | Step::Refused(..) => return Ok(Done::Nothing),
            Step::Refuse(reason) => return Err(reason.clone().into()),
            Step::LookUp(class) => return perform::look_up(cx, now, class).await,
            Step::ReadSecret(place) => return objects::read_secret(cx, place).await.map(Done::Secret),
            Step::TakeTurn(handle) => return attempt::take_turn(cx, now, handle, attempt).await,
            Step::DropAnswer => {
                cx.modified.forget(now.uid());
                return Ok(Done::Dropped);
            }
            _ => {}
        }
        let Some(turn) = &state.turn else { return Ok(Done::Nothing) };
        match step {
            Step::Cancel => perform::cancel(cx, now, turn).await,
            Step::RecordPending(_) => perform::record_unusable(cx, now, writes::pending(&now.claim), turn).await,
            Step::RecordForeign(class, reason) => {
                let patch = writes::foreign(&now.claim, &class, &reason.to_string(), cx.scope.clock.wall());
                perform::record_unusable(cx, now, patch, turn).await
            }
            Step::Begin(class) => perform::begin(cx, now, &class, turn, state.began).await,
            Step::Confirm => Ok(if objects::confirm(cx, now).await? { Done::Nothing } else { Done::Gone }),
            Step::Modify(modify) => perform::modify(cx, now, *modify, state.progress.secret.as_ref()).await,
            Step::RecordClass(class) => perform::record_class(cx, now, &class, turn).await,
            Step::RecordModified(class) => perform::record_modified(cx, now, &class, turn).await,
            Step::RecordRefusal => {
                let refused = state.progress.refused.as_ref();
                let patch = refused.and_then(|refused| writes::refused(&now.claim, refused, cx.scope.clock.wall()));
                attempt::record_refusal(cx, now, patch, turn).await
            }
            _ => Ok(Done::Nothing),
        }
    }

    fn apply(&self, state: &mut State, done: Done) {
        state.apply(done);
    }

    async fn refresh(&self, seen: &Option<Seen>, error: &ChangeError) -> Result<Option<Done>, Stop> {
        let Some(Seen { now, .. }) = seen else { return Ok(None) };
        Ok(match objects::refresh(&self.0, now, error).await? {
            Freshness::Newer => Some(Done::Nothing),
            Freshness::Same => None,
            Freshness::Gone => Some(Done::Gone),
        })
    }

    async fn conclude(&self, ticket: &Ticket<WorkKey>, state: State, ended: Result<End, ChangeError>) -> Outcome {
        let cx = &*self.0;
        let State { uid, progress, did_something, turn, .. } = state;
        drop(turn);
        // The claim is gone, or another claim has its name.
        let Some(now) = cx.find(&ticket.key().claim).filter(|now| now.uid() == uid) else { return Outcome::Forget };
        if did_something {
            cx.report_time(ticket, Job::Modify);
        }
        // The driver's error is reported, even if it could not be written to the claim.
        let ended = match (ended, progress.refused) {
            (Err(error), Some(refused)) => {
                cx.log_unrecorded(&now, Job::Modify, &error);
                Ok(End::Refused(refused.asked, refused.error))
            }
            (ended, _) => ended,
        };
        match ended {
            Ok(End::Settled) => {
                cx.report_settled(&uid, Job::Modify);
                if did_something {
                    ticket.did("modified", Some(now.name().to_string()));
                }
                Outcome::Settled
            }
            Ok(End::Waits(wait)) => self.conclude_wait(ticket, &now, &wait),
            Ok(End::Refused(class, error)) => {
                let is_infeasible = is_infeasible_modification(error.code);
                let goes_on = format!(". Still modifying to VAC {class}");
                let suffix = if is_refusal(error.code) { "" } else { &goes_on };
                let failed = cx.report_failure(ticket, &now, &AttemptError::Driver(error), suffix);
                if !is_infeasible {
                    return failed;
                }
                cx.report_waiting(ticket, &now, Reason::Infeasible, "the driver says that the class is infeasible");
                Outcome::RetryAfter(cx.section.retry.infeasible)
            }
            Err(error) => cx.report_failure(ticket, &now, &error, ""),
        }
    }
}

impl Modifications {
    fn conclude_wait(&self, ticket: &Ticket<WorkKey>, now: &Objects, wait: &Wait) -> Outcome {
        let cx = &*self.0;
        match wait {
            // The watch wakes the key.
            Wait::Volume => Outcome::Settled,
            Wait::Classes => {
                // The API stores a class's name only if it serves classes.
                cx.stores.classes.iter().for_each(Cache::look_again);
                let classes = cx.stores.classes.as_ref();
                let says =
                    classes.and_then(Cache::unknown).unwrap_or_else(|| "VolumeAttributesClasses are off".to_owned());
                cx.report_waiting(ticket, now, Reason::ClassMissing, &says);
                // A kind that is being installed is there in a moment.
                if classes.is_some_and(|classes| classes.status().last_error.is_some()) {
                    cx.warn(now, Job::Modify, "VolumeModifyFailed", &says, &says);
                }
                Outcome::Settled
            }
            Wait::Class(reason) => {
                let says = reason.to_string();
                cx.report_waiting(ticket, now, Reason::ClassMissing, &says);
                cx.warn(now, Job::Modify, "VolumeModifyFailed", &says, &says);
                Outcome::Settled
            }
            Wait::Infeasible(left) => {
                cx.report_waiting(ticket, now, Reason::Infeasible, "the driver says that the class is infeasible");
                Outcome::RetryAfter(*left)
            }
        }
    }
}
