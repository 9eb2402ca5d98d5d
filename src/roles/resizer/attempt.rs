//! One attempt at either job: what it holds, and what each step's outcome means for it.
//!
//! `T` is what the driver is asked for: a size, or the name of a class. `A` is what it has answered.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::cluster::Patch;
use crate::queue::Ticket;
use crate::roles::kit::{Attempt, Secret};

use super::context::{Context, Objects};
use super::error::RECORD_REFUSAL;
use super::memory::{ByUid, WorkKey};
use super::objects::{Stop, patch_claim};
use super::progress::{Progress, Refused};
use super::turn::Turn;

/// What a step has brought.
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
    /// The claim says why the driver has refused.
    RefusalRecorded,
    /// All of the answer is recorded.
    Recorded,
    /// The answer no longer matters.
    Dropped,
    /// The claim is gone.
    Gone,
}

/// One attempt: what decisions are made from, and what it holds.
#[derive(Debug)]
pub struct State<T, A> {
    /// The claim's uid.
    pub uid: String,
    /// When the attempt began.
    pub began: Timestamp,
    /// How long ago the change was first wanted.
    pub age: Duration,
    /// What it knows.
    pub progress: Progress<T, A>,
    /// The volume's lock. It ends with the attempt.
    pub turn: Option<Turn>,
    /// A change is recorded, and the time that it took is reported.
    pub did_something: bool,
}

impl<T, A: Clone> State<T, A> {
    /// What an attempt knows when it begins. `answers`: what the driver has done before is not asked of it again.
    pub fn begin(cx: &Context, ticket: &Ticket<WorkKey>, answers: &ByUid<A>) -> Option<Self> {
        let uid = cx.find(&ticket.key().claim)?.uid().to_owned();
        let progress = Progress { answer: answers.get(&uid), ..Progress::default() };
        let began = cx.scope.clock.wall();
        Some(Self { uid, began, age: ticket.age(), progress, turn: None, did_something: false })
    }

    /// What a step's outcome means.
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
                // The next change is asked for with the secret and the class as they are then.
                progress.secret = None;
                progress.is_looked_up = false;
                self.did_something = true;
            }
            Done::Dropped => progress.answer = None,
            Done::Gone => progress.gone = true,
        }
    }
}

/// Locks the volume of this handle for the attempt. The wait holds no worker.
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

/// Tells the claim why the driver has refused. `None`: the claim says so already.
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
