//! Works contents, one step at a time. No decisions: what to do comes from [`super::decide`].

use std::time::Duration;

use tracing::{info, warn};

use crate::cluster::ObjectName;
use crate::process::ErrorChain;
use crate::roles::kit::freshness::{catch_up, lacks};
use crate::roles::kit::{Attempt, Secret, secrets};
use crate::roles::snapshotter::names::ANNOTATION_SNAPSHOTTING;

use super::attempt::{Done, Operation, State};
use super::call::{self, Driven};
use super::context::{Context, Objects};
use super::error::{
    BEGIN, CLEAR, CONFIRM, ContentError, InvalidSnapshot, LIST_MEMBERS, LOAD_DELETION_SECRET, LOAD_LIST_SECRET,
    LOAD_SECRET, RECORD_ERROR, RELEASE, SAVE, Stop, UNMARK,
};
use super::facts;
use super::found::Found;
use super::kind::Content;
use super::leftovers;
use super::memory::ContentKey;
use super::objects::{self, confirm, patch_content, patch_status};
use super::request::Asked;
use super::status;
use super::texts;
use super::view::{Left, SecretNeed, Step};
use super::writes;

/// Between two looks at a volume that somebody else is at.
const TURN_PAUSE: Duration = Duration::from_secs(1);

/// Does one step.
pub(super) async fn perform<K: Driven>(
    cx: &Context<K>,
    step: Step,
    now: &Objects<K>,
    state: &State,
    attempt: &mut Attempt<'_, ContentKey>,
) -> Result<Done, Stop> {
    match step {
        // The attempt has ended.
        Step::Settled | Step::Wait(_) | Step::Failed => Ok(Done::Nothing),
        Step::Fail(operation, reason) => {
            // The stored handle stays, and the other one is not remembered.
            if matches!(reason, InvalidSnapshot::OtherSnapshot { .. }) {
                cx.memory.settle(now.uid());
            }
            doubt(cx, &reason).await?;
            Ok(Done::failed(operation, reason.into()))
        }
        Step::ReadSecret(need) => read_secret(cx, need).await,
        Step::TakeTurn(volumes) => take_turn(cx, volumes, attempt).await,
        Step::TryTurn(volumes) => {
            if let [volume] = volumes.as_slice()
                && let Some(line) = cx.lines.try_lock(volume)
                && attempt.try_lock(volume, &cx.scope.volume_locks)
            {
                return Ok(Done::VolumeTurn(volumes, line));
            }
            cx.memory.gave_way(now.uid(), cx.scope.clock.now());
            Err(give_way(cx))
        }
        Step::AwaitTurn(volumes) => {
            let place = volumes.first().and_then(|volume| cx.looks.try_lock(volume)).ok_or_else(|| give_way(cx))?;
            attempt.lock_all(&volumes, &cx.scope.volume_locks, &cx.scope.term).await?;
            Ok(Done::VolumeTurn(volumes, place))
        }
        Step::TakeSnapshotTurns(ids) => take_snapshot_turns(cx, &ids, attempt).await,
        Step::Begin(asked) => begin(cx, now, &asked).await,
        Step::Confirm => confirm(cx, now).await,
        Step::Relist => {
            if now.exists && !K::NAMES.is_group {
                attempt.park(&cx.scope.term, cx.relisted.wait(|| cx.listed())).await?;
            } else {
                attempt.park(&cx.scope.term, cx.listed()).await?;
            }
            let caught_up = catch_up(cx.scope.api.use_now()?, &cx.stores.contents, &*now.content);
            attempt.park(&cx.scope.term, caught_up).await?.map_err(|error| CONFIRM.failed(error))?;
            Ok(Done::Listed)
        }
        Step::ReadEnd => objects::read_end(cx, now).await,
        Step::Seek(handle) => objects::seek(cx, now, &handle).await,
        Step::ReadOwner(need) => objects::read_owner(cx, now, need).await,
        Step::Create(asked) => call::create(cx, now, state, &asked, attempt).await,
        Step::Assume(handle) => Ok(call::assume(cx, now, handle)),
        Step::LookUp(handle) => K::look_up(cx, now, state, &handle).await,
        Step::ListMembers(members) => match writes::listing(&*now.content, &members) {
            Some(patch) => patch_content(cx, now, &patch, LIST_MEMBERS).await,
            None => Ok(Done::Nothing),
        },
        Step::Save(found) => save(cx, now, &found).await,
        Step::Unmark { keep_intent } => unmark(cx, now, keep_intent).await,
        Step::RecordError => record_error(cx, now, state).await,
        Step::Delete(doomed) => call::delete(cx, now, state, &doomed).await,
        Step::NameLeftovers => leftovers::name(cx, now).await,
        Step::Clear => {
            if let Some(patch) = status::cleared(&*now.content) {
                patch_status(cx, now, &patch, CLEAR).await?;
            }
            Ok(Done::Cleared)
        }
        Step::Release => release(cx, now).await,
        Step::ReleaseKept(kept) => {
            let done = release(cx, now).await?;
            cx.report_kept(now, &kept);
            Ok(done)
        }
        Step::Abandon(left) => Ok(abandon(cx, now, state, left)),
    }
}

/// Asks the API for a class that the cache lacks, before the content fails for that: the watch may be late. `Ok`: the API lacks it, too,
/// or the content fails for another reason.
async fn doubt<K: Content>(cx: &Context<K>, reason: &InvalidSnapshot) -> Result<(), Stop> {
    let (InvalidSnapshot::ClassMissing(_, class) | InvalidSnapshot::ListClassMissing(_, class)) = reason else {
        return Ok(());
    };
    let (name, classes) = (ObjectName::cluster(class), &cx.stores.classes);
    // A class of another driver counts as missing, and the cache has it.
    if classes.get(&name).is_some() {
        return Ok(());
    }
    match lacks(cx.scope.api.use_now()?, classes, &name, reason.clone()).await {
        Stop::Failed(ContentError::Reason(_)) => Ok(()),
        stop => Err(stop),
    }
}

async fn read_secret<K: Content>(cx: &Context<K>, need: SecretNeed) -> Result<Done, Stop> {
    let SecretNeed { place, operation, is_for_listing } = need;
    let failure = match secrets::read(cx.scope.api.use_now()?, &place).await {
        Ok(secret) => return Ok(Done::Secret(place, secret)),
        Err(failure) => failure,
    };
    let is_deletion = operation == Operation::Delete;
    if is_deletion && cx.section.delete_without_secret && failure.is_missing() {
        warn!(error = %ErrorChain(&failure), "deleting without the secret");
        return Ok(Done::Secret(place, Secret::default()));
    }
    let is_withheld = failure.is_withheld();
    let op = match (is_for_listing, is_deletion) {
        (true, _) => LOAD_LIST_SECRET,
        (_, true) if is_withheld => LOAD_DELETION_SECRET,
        _ => LOAD_SECRET,
    };
    let error = ContentError::from(op.failed(failure));
    // What only people can change goes into the status.
    if is_withheld { Ok(Done::failed(operation, error)) } else { Err(error.into()) }
}

/// Waits for the turns of the source volumes. Of each volume one content stands in its line until its call is over, and the others wait
/// for that: so who comes for the volume meanwhile comes before them.
async fn take_turn<K: Content>(
    cx: &Context<K>,
    volumes: Vec<String>,
    attempt: &mut Attempt<'_, ContentKey>,
) -> Result<Done, Stop> {
    let term = &cx.scope.term;
    let lines = cx.lines.lock_all(&volumes, attempt.ticket, term).await?;
    attempt.lock_all(&volumes, &cx.scope.volume_locks, term).await?;
    Ok(Done::VolumeTurn(volumes, lines))
}

/// The look comes soon again.
fn give_way<K: Content>(cx: &Context<K>) -> Stop {
    Stop::Later(cx.scope.rng.jittered(TURN_PAUSE, 1.0))
}

/// Waits for the turns of all that is to be deleted. Everybody takes them in the same order.
async fn take_snapshot_turns<K: Content>(
    cx: &Context<K>,
    ids: &[String],
    attempt: &mut Attempt<'_, ContentKey>,
) -> Result<Done, Stop> {
    let turns = async {
        let mut turns = Vec::new();
        for id in ids {
            turns.push(cx.scope.snapshot_locks.exclusive(id).await);
        }
        turns
    };
    Ok(Done::SnapshotTurns(attempt.park(&cx.scope.term, turns).await?))
}

async fn begin<K: Content>(cx: &Context<K>, now: &Objects<K>, asked: &Asked) -> Result<Done, Stop> {
    let Some(patch) = writes::begun(&*now.content, &asked.intent) else { return Ok(Done::Nothing) };
    let recorded = now.content.meta().annotation(ANNOTATION_SNAPSHOTTING);
    if recorded.is_some_and(|recorded| recorded != asked.intent) {
        warn!("the request that the content records does not count, and is replaced");
    }
    // The answer to an earlier request says nothing of this one.
    cx.memory.refused.forget(now.uid());
    patch_content(cx, now, &patch, BEGIN).await
}

async fn save<K: Content>(cx: &Context<K>, now: &Objects<K>, found: &Found) -> Result<Done, Stop> {
    let Some(patch) = status::filled(&*now.content, found) else { return Ok(Done::Nothing) };
    patch_status(cx, now, &patch, SAVE).await?;
    let is_cut = facts::handle(&*now.content).is_none();
    if is_cut {
        info!(snapshot = found.handle, "took the snapshot");
    }
    Ok(Done::Saved { is_cut, is_ready: found.is_ready })
}

async fn unmark<K: Content>(cx: &Context<K>, now: &Objects<K>, keep_intent: bool) -> Result<Done, Stop> {
    // First, so that our own write is not taken for a wipe.
    cx.memory.settle(now.uid());
    if let Some(patch) = writes::unmarked(&*now.content, keep_intent) {
        patch_content(cx, now, &patch, UNMARK).await?;
    }
    cx.memory.refused.forget(now.uid());
    Ok(Done::Nothing)
}

async fn record_error<K: Content>(cx: &Context<K>, now: &Objects<K>, state: &State) -> Result<Done, Stop> {
    let Some(failure) = &state.progress.failure else { return Ok(Done::Nothing) };
    let told = texts::told(&*now.content, failure.operation, &failure.error);
    if let Some(patch) = told.and_then(|(_, message)| status::failed(&*now.content, &message, state.wall)) {
        patch_status(cx, now, &patch, RECORD_ERROR).await?;
    }
    Ok(Done::Recorded)
}

async fn release<K: Content>(cx: &Context<K>, now: &Objects<K>) -> Result<Done, Stop> {
    // First, so that our own write is not taken for a wipe, nor the object's end for one by force.
    cx.memory.settle(now.uid());
    let Some(patch) = writes::released(&*now.content) else { return Ok(Done::Nothing) };
    let done = patch_content(cx, now, &patch, RELEASE).await?;
    info!("released the content");
    Ok(done)
}

/// The content was removed by force, and the driver owes nothing any more.
fn abandon<K: Content>(cx: &Context<K>, now: &Objects<K>, state: &State, left: Left) -> Done {
    let handle = state.progress.found.as_ref().map(|found| found.handle.as_str());
    cx.report_orphan(now, handle, left);
    if left == Left::ToHeir {
        cx.hand_over(&*now.content);
    }
    cx.memory.settle(now.uid());
    Done::Nothing
}
