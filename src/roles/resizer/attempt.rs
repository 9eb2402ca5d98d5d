//! The state of one attempt at either job, and how the outcome of a step changes it.
//!
//! `T` is what the request wants: a size, or the name of a class. `A` is the driver's answer.

use k8s_openapi::jiff::Timestamp;

use crate::cluster::Patch;
use crate::queue::Ticket;
use crate::roles::kit::{Attempt, ByUid, Secret};

use super::context::{Context, Objects};
use super::error::RECORD_REFUSAL;
use super::memory::WorkKey;
use super::objects::{Stop, patch_claim};
use super::progress::{Progress, Refused};
use super::turn::Turn;

/// The outcome of a step.
#[derive(Debug)]
pub enum Done<T, A> {
    /// Nothing that the attempt must know.
    Nothing,
    /// The API has no such class.
    LookedUp,
    /// The secret.
    Secret(Secret),
    /// The volume is locked.
    Turn(Turn),
    /// The driver has changed the volume.
    Answered(A),
    /// The driver has refused.
    Refused(Refused<T>),
    /// The claim's status says why the driver has refused.
    RefusalRecorded,
    /// The whole answer is recorded.
    Recorded,
    /// The answer no longer matters.
    Dropped,
    /// The claim is gone.
    Gone,
}

/// The state of one attempt.
#[derive(Debug)]
pub struct State<T, A> {
    /// The claim's uid.
    pub uid: String,
    /// When the attempt began.
    pub began: Timestamp,
    /// What it has done so far.
    pub progress: Progress<T, A>,
    /// The volume's lock. It ends with the attempt.
    pub turn: Option<Turn>,
    /// A change is recorded, and the time that it took is reported.
    pub did_something: bool,
}

impl<T, A: Clone> State<T, A> {
    /// The state when an attempt begins. `answers`: answers of the driver that are not recorded yet, so that the driver is not
    /// called again.
    pub fn begin(cx: &Context, ticket: &Ticket<WorkKey>, answers: &ByUid<A>) -> Option<Self> {
        let uid = cx.find(&ticket.key().claim)?.uid().to_owned();
        let progress = Progress { answer: answers.get(&uid), ..Progress::default() };
        let began = cx.scope.clock.wall();
        Some(Self { uid, began, progress, turn: None, did_something: false })
    }

    /// Applies the outcome of a step.
    pub fn apply(&mut self, done: Done<T, A>) {
        let progress = &mut self.progress;
        match done {
            Done::Nothing => {}
            Done::LookedUp => progress.is_looked_up = true,
            Done::Secret(secret) => progress.secret = Some(secret),
            Done::Turn(turn) => {
                progress.has_turn = true;
                self.turn = Some(turn);
            }
            Done::Answered(answer) => progress.answer = Some(answer),
            Done::Refused(refused) => progress.refused = Some(refused),
            Done::RefusalRecorded => {
                if let Some(refused) = &mut progress.refused {
                    refused.is_recorded = true;
                }
            }
            Done::Recorded => {
                progress.answer = None;
                // The next change reads the secret and the class again.
                progress.secret = None;
                progress.is_looked_up = false;
                self.did_something = true;
            }
            Done::Dropped => progress.answer = None,
            Done::Gone => progress.gone = true,
        }
    }
}

/// Locks the volume with this handle for the attempt. The wait does not occupy a worker.
pub(super) async fn take_turn<T, A>(
    cx: &Context,
    now: &Objects,
    handle: &str,
    attempt: &mut Attempt<'_, WorkKey>,
) -> Result<Done<T, A>, Stop> {
    let turn = cx.turns.join(now.uid(), handle);
    attempt.park(&cx.scope.term, turn.begin(&cx.scope.volume_locks, handle)).await?;
    Ok(Done::Turn(turn))
}

/// Writes to the claim why the driver has refused. `patch` is `None` if the claim says so already.
pub(super) async fn record_refusal<T, A>(
    cx: &Context,
    now: &Objects,
    patch: Option<Patch>,
    turn: &Turn,
) -> Result<Done<T, A>, Stop> {
    if let Some(patch) = patch
        && patch_claim(cx, now, turn, &patch, RECORD_REFUSAL).await?.is_none()
    {
        return Ok(Done::Nothing);
    }
    Ok(Done::RefusalRecorded)
}
