//! Reconciles the expansion of a claim: the hooks of the attempt loop.

use std::sync::Arc;
use std::time::Duration;

use crate::csi::RpcError;
use crate::queue::{Outcome, Ticket};
use crate::roles::kit::freshness::Freshness;
use crate::roles::kit::{Attempt, AttemptError, Next, Reconciler, TermScope};
use crate::roles::resizer::attempt;
use crate::roles::resizer::claim::Sizes;
use crate::roles::resizer::context::{Context, Objects};
use crate::roles::resizer::error::{ChangeError, InvalidChange, is_infeasible_expansion};
use crate::roles::resizer::memory::{Job, WorkKey};
use crate::roles::resizer::objects::{self, Stop};
use crate::roles::resizer::waiting::Reason;

use super::decide::{Answer, Pods, Step, View, Wait, next_step};
use super::perform::{self, Done};
use super::target::{Target, target};
use super::writes;

/// How often a claim whose volume is in use is checked again without a change, to report it if the daemon cannot watch its pods.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Reconciles the expansions of claims.
#[derive(Debug)]
pub struct Expansions(pub Arc<Context>);

type State = attempt::State<i64, Answer>;

/// How an attempt ends without another error.
#[derive(Debug)]
pub enum End {
    /// The claim has what it asks for.
    Settled,
    /// It waits.
    Waits(Wait),
    /// The driver has refused.
    Refused(RpcError),
}

impl Expansions {
    fn view<'a>(&'a self, now: &'a Objects, state: &'a State) -> View<'a> {
        let cx = &*self.0;
        let sizes = now.volume.as_ref().and_then(|volume| Sizes::of(&now.claim, volume).ok());
        let backoff = cx.section.retry.backoff();
        let pause = |sizes: Sizes| cx.node_pause(now.uid(), sizes.requested, sizes.capacity, &backoff);
        View {
            claim: &now.claim,
            volume: now.volume.as_deref(),
            expansion: cx.expansion.get(),
            pods: if cx.section.in_use_check { cx.in_use.pods(&now.name(), now.uid()) } else { Pods::None },
            node_pause: sizes.and_then(pause),
            last_call: cx.last_call(now.uid(), Job::Expand),
            is_confirmed: cx.confirmed.has(now.uid()),
            now: state.began,
            rules: &cx.expand,
            progress: &state.progress,
        }
    }
}

impl Reconciler for Expansions {
    type Key = WorkKey;
    type State = State;
    type View = Option<Objects>;
    type Step = Step;
    type Event = Done;
    type End = End;
    type Reason = InvalidChange;

    fn scope(&self) -> &TermScope {
        &self.0.scope
    }

    fn begin(&self, ticket: &Ticket<WorkKey>) -> Option<State> {
        State::begin(&self.0, ticket, &self.0.expanded)
    }

    fn observe(&self, key: &WorkKey, _: &State) -> Option<Objects> {
        self.0.find(&key.claim)
    }

    fn next_step(&self, now: &Option<Objects>, state: &State) -> Next<Step, End> {
        let Some(now) = now.as_ref().filter(|now| now.uid() == state.uid) else { return Next::Done(End::Settled) };
        match next_step(&self.view(now, state)) {
            Step::Settled => Next::Done(End::Settled),
            Step::Wait(wait) => Next::Done(End::Waits(wait)),
            Step::Refused(error) => Next::Done(End::Refused(error)),
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
        now: &Option<Objects>,
        state: &State,
        attempt: &mut Attempt<'_, WorkKey>,
    ) -> Result<Done, Stop> {
        let cx = &*self.0;
        let Some(now) = now else { return Ok(Done::Nothing) };
        // The steps that need no turn come first.
        match &step {
            // `next_step` has ended the attempt.
            Step::Settled | Step::Wait(_) | Step::Refused(_) => return Ok(Done::Nothing),
            Step::Refuse(reason) => return Err(reason.clone().into()),
            Step::RemoveNote => return perform::remove_note(cx, now).await,
            Step::ReadSecret(place) => return objects::read_secret(cx, place).await.map(Done::Secret),
            Step::TakeTurn(handle) => return attempt::take_turn(cx, now, handle, attempt).await,
            Step::DropAnswer => {
                cx.expanded.forget(now.uid());
                return Ok(Done::Dropped);
            }
            _ => {}
        }
        let Some(turn) = &state.turn else { return Ok(Done::Nothing) };
        match step {
            Step::Begin(begin) => perform::begin(cx, now, &begin, turn, state.began).await,
            Step::Confirm => Ok(if objects::confirm(cx, now).await? { Done::Nothing } else { Done::Gone }),
            Step::Expand(expand) => perform::expand(cx, now, *expand, state.progress.secret.as_ref()).await,
            Step::LeaveToNode(size) => {
                perform::tell_of_size(cx, now, size);
                Ok(Done::Answered(Answer { asked: size, size, needs_node: true }))
            }
            Step::RecordSize { size, before } => perform::record_size(cx, now, size, before, turn).await,
            Step::RecordNode { begun } => perform::record_node(cx, now, begun, turn, cx.scope.clock.wall()).await,
            Step::NodeHasBegun => Ok(perform::left_to_node(cx, now)),
            Step::RecordDone(size) => perform::record_done(cx, now, size, turn).await,
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

    async fn refresh(&self, now: &Option<Objects>, error: &ChangeError) -> Result<Option<Done>, Stop> {
        let Some(now) = now else { return Ok(None) };
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
        let key = ticket.key();
        // The claim is gone, or another claim has its name.
        let Some(now) = cx.find(&key.claim).filter(|now| now.uid() == uid) else { return Outcome::Forget };
        if did_something {
            cx.report_time(ticket, Job::Expand);
        }
        // The driver's error is reported, even if it could not be written to the claim.
        let ended = match (ended, progress.refused) {
            (Err(error), Some(refused)) => {
                cx.log_unrecorded(&now, Job::Expand, &error);
                Ok(End::Refused(refused.error))
            }
            (ended, _) => ended,
        };
        match ended {
            Ok(End::Settled) => {
                cx.report_settled(&uid, Job::Expand);
                if did_something {
                    ticket.did("expanded", Some(now.name().to_string()));
                }
                cx.in_use.unmark(&key.claim, &uid);
                Outcome::Settled
            }
            Ok(End::Waits(wait)) => self.conclude_wait(ticket, &now, wait),
            Ok(End::Refused(error)) => self.conclude_refusal(ticket, &now, error),
            Err(error) => cx.report_failure(ticket, &now, &error, ""),
        }
    }
}

impl Expansions {
    fn conclude_wait(&self, ticket: &Ticket<WorkKey>, now: &Objects, wait: Wait) -> Outcome {
        let cx = &*self.0;
        let waits = |reason, says: &str| cx.report_waiting(ticket, now, reason, says);
        match wait {
            // The watch wakes the key.
            Wait::Volume | Wait::Driver => Outcome::Settled,
            Wait::PodList => {
                let trouble = cx.in_use.trouble(&now.name()).map(|trouble| format!(": {trouble}")).unwrap_or_default();
                waits(Reason::InUse, &format!("the pods that may use the volume are not listed yet{trouble}"));
                Outcome::RetryAfter(cx.section.retry.initial)
            }
            Wait::Node => {
                waits(Reason::Node, "the node has to expand the file system");
                Outcome::Settled
            }
            Wait::Pods => {
                let driver = &cx.scope.driver_name;
                let says = format!(
                    "Unable to expand {} because CSI driver {driver} only supports offline expansion and volume is \
                     currently in-use",
                    now.name()
                );
                // The end of the last pod wakes the key. If the daemon cannot watch the pods, the text says so.
                let trouble = cx.in_use.trouble(&now.name()).map(|trouble| format!("; {trouble}")).unwrap_or_default();
                waits(Reason::InUse, &(says.clone() + &trouble));
                cx.warn(now, Job::Expand, "VolumeResizeFailed", &says, &says);
                Outcome::RetryAfter(LOOK_AGAIN.min(cx.section.retry.max))
            }
            Wait::Infeasible(left) => {
                waits(Reason::Infeasible, "the driver says that the size is infeasible");
                Outcome::RetryAfter(left)
            }
            Wait::NodeRetry(left) => {
                waits(Reason::Backoff, "the node could not expand the file system");
                Outcome::RetryAfter(left)
            }
        }
    }

    fn conclude_refusal(&self, ticket: &Ticket<WorkKey>, now: &Objects, error: RpcError) -> Outcome {
        let (cx, code) = (&*self.0, error.code);
        let failed = cx.report_failure(ticket, now, &AttemptError::Driver(error), "");
        // Another size is requested by now, and comes after the back-off.
        let sizes = now.volume.as_ref().and_then(|volume| Sizes::of(&now.claim, volume).ok());
        let is_other = sizes.is_some_and(|sizes| {
            let sizes = Sizes { has_failed: true, ..sizes };
            sizes.allocated.is_some_and(|asked| target(&sizes, true) != Target::Size(asked))
        });
        if is_infeasible_expansion(code) && !is_other {
            cx.report_waiting(ticket, now, Reason::Infeasible, "the driver says that the size is infeasible");
            return Outcome::RetryAfter(cx.section.retry.infeasible);
        }
        failed
    }
}
