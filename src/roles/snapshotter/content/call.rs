//! The calls to the driver about a content: what is common to snapshots and groups.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tonic::Code;
use tracing::{debug, info, warn};

use crate::csi::{Client, RpcError};
use crate::process::{Clock, ErrorChain};
use crate::queue::Backoff;
use crate::roles::kit::{Attempt, Secret};

use super::attempt::{Done, Failure, Operation, State};
use super::context::{Context, Objects, described};
use super::create::name_taken;
use super::error::{InvalidSnapshot, Stop, is_answer, is_refusal};
use super::facts;
use super::found::Found;
use super::look_up::LookUp;
use super::memory::ContentKey;
use super::objects::restore;
use super::request::{Asked, Request};
use super::view::Doomed;

/// Between two tries to put the mark of an unanswered call back. A call is seldom longer than a minute.
const PUT_BACK_PACE: Backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(10) };

/// An answer, and what it says.
pub type Answer = Result<Result<Found, InvalidSnapshot>, RpcError>;

/// The calls that each kind of contents has of its own.
pub trait Driven: LookUp {
    /// Asks for it by its request. An answer that says no time has that of the clock.
    fn create(
        client: &Client,
        request: &Request,
        secrets: HashMap<String, String>,
        clock: Clock,
    ) -> impl Future<Output = Answer> + Send;

    /// Asks for it by its id.
    fn look_up(
        cx: &Context<Self>,
        now: &Objects<Self>,
        state: &State,
        handle: &str,
    ) -> impl Future<Output = Result<Done, Stop>> + Send;

    /// Has it deleted.
    fn delete(
        client: &Client,
        doomed: &Doomed,
        secrets: HashMap<String, String>,
    ) -> impl Future<Output = Result<(), RpcError>> + Send;
}

/// The secrets of a call.
pub fn secrets_of(state: &State) -> HashMap<String, String> {
    state.progress.secret.as_ref().map(|(_, secret)| Secret::texts(secret)).unwrap_or_default()
}

/// Asks the driver for a snapshot, or whether the one that it has taken is ready.
pub(super) async fn create<K: Driven>(
    cx: &Context<K>,
    now: &Objects<K>,
    state: &State,
    asked: &Asked,
    attempt: &mut Attempt<'_, ContentKey>,
) -> Result<Done, Stop> {
    let has_handle = facts::stored_handle(&*now.content).is_some();
    let operation = if has_handle { Operation::Ready } else { Operation::Create };
    let client = cx.scope.driver.use_now()?.with_timeout(cx.section.call_timeout);
    let is_repeated = cx.memory.is_unanswered(now.uid()) || cx.memory.resumed.has(now.uid());
    // The process remembers it before the driver can begin.
    let wiped = if has_handle {
        cx.memory.late.note(now.uid());
        None
    } else {
        match ask(cx, now, asked) {
            Ok(wiped) => Some(wiped),
            Err(other) => return Ok(not_asked(cx, now, asked, &other)),
        }
    };
    let taken = K::create(&client, &asked.request, secrets_of(state), cx.scope.clock);
    let mut call = std::pin::pin!(cx.scope.term.during(taken));
    let mut failures = 0;
    let answer = loop {
        let Some(wiped) = wiped.as_ref().filter(|_| now.exists) else { break call.await? };
        tokio::select! {
            biased;
            answer = &mut call => break answer?,
            () = wiped.notified() => {}
            () = pause(cx, failures), if failures > 0 => {}
        }
        failures = put_back(cx, now, asked, failures).await;
    };
    attempt.unlock();
    if answer.as_ref().err().is_none_or(|error| is_answer(error.code)) {
        cx.memory.late.forget(now.uid());
    }
    match answer {
        Ok(Ok(mut found)) => {
            tell_of_group(cx, now, &found);
            // A group's handle in the status would make the snapshot-controller look for a group that is none of its own.
            found.group = None;
            if let Some(odd) = &found.odd {
                warn!(
                    group = found.handle,
                    odd = odd.why,
                    "the driver has taken the group, and its answer cannot be used"
                );
            }
            cx.memory.answered(now.uid(), &found);
            cx.report_resumed(now, "created");
            Ok(Done::Found(found))
        }
        Ok(Err(reason)) => Ok(nameless(cx, now, operation, reason)),
        Err(error) => {
            let done = refused(cx, now, asked, operation, error);
            if is_repeated && matches!(&done, Done::Failed(failure) if failure.is_final) {
                cx.memory.doubtful.note(now.uid());
            }
            Ok(done)
        }
    }
}

/// Notes that the driver is asked, unless another content has the name meanwhile: that one is returned. One that asks at the same time
/// is noted; one whose call is answered has its handle in the cache before it is noted no more.
fn ask<K: Driven>(cx: &Context<K>, now: &Objects<K>, asked: &Asked) -> Result<Arc<Notify>, String> {
    let is_first = !cx.memory.is_unanswered(now.uid());
    let wiped = cx.memory.ask_alone(&now.content, asked).map_err(|other| described(&*other))?;
    let Some(other) = cx.cut_namesake(now).filter(|_| is_first) else { return Ok(wiped) };
    cx.memory.settle(now.uid());
    Err(other)
}

/// The driver was not asked, because `other` has the name. A mark of another program stays: that may have asked.
fn not_asked<K: Driven>(cx: &Context<K>, now: &Objects<K>, asked: &Asked, other: &str) -> Done {
    let is_final = !asked.is_inherited;
    if is_final {
        cx.memory.refused.note(now.uid());
    }
    let error = name_taken::<K>(&asked.request.name, other).into();
    Done::Failed(Failure { operation: Operation::Create, error, is_final, is_recorded: false })
}

/// The pause after so many failures to put the mark back.
async fn pause<K: Driven>(cx: &Context<K>, failures: u32) {
    tokio::time::sleep(PUT_BACK_PACE.delay(failures, None, cx.scope.rng.fraction())).await;
}

/// Puts mark and request back, which somebody has wiped during the call. Returns how often that has failed in a row: nothing else brings
/// it about again, because the watch has shown the wipe already, and without them a crash would leave the snapshot to nobody.
async fn put_back<K: Driven>(cx: &Context<K>, now: &Objects<K>, asked: &Asked, failures: u32) -> u32 {
    match restore(cx, now, asked).await {
        Ok(()) => return 0,
        // Somebody else was faster: the watch shows soon what the content looks like.
        Err(Stop::Failed(error)) if failures == 0 && !error.is_stale() && !error.is_of_outage() => {
            warn!(error = %ErrorChain(&error), "cannot put the mark of an unanswered call back, and try again until it is there");
        }
        Err(stop) => debug!(?stop, failures, "the mark of an unanswered call could not be put back"),
    }
    failures.saturating_add(1)
}

fn refused<K: Driven>(cx: &Context<K>, now: &Objects<K>, asked: &Asked, operation: Operation, error: RpcError) -> Done {
    let has_handle = operation == Operation::Ready;
    if has_handle && error.code == Code::NotFound && (cx.rules.lists || cx.rules.gets) {
        return Done::SourceGone;
    }
    let is_final = !has_handle && asked.is_as_recorded && is_refusal(error.code);
    if is_final {
        cx.report_resumed(now, "refused");
        if now.exists {
            cx.memory.refused.note(now.uid());
        } else {
            cx.memory.settle(now.uid());
        }
    }
    Done::Failed(Failure { operation, error: error.into(), is_final, is_recorded: false })
}

/// The driver says that it is done, and not what it has done: there may be a snapshot of unknown id. The driver is asked again as long
/// as the snapshot is wanted. A content that is being deleted goes, and its user is told where to look.
fn nameless<K: Driven>(cx: &Context<K>, now: &Objects<K>, operation: Operation, reason: InvalidSnapshot) -> Done {
    if operation == Operation::Ready {
        return Done::failed(operation, reason.into());
    }
    cx.memory.doubtful.note(now.uid());
    let is_final = !now.exists || (facts::is_deleting(&*now.content) && facts::has_lost_owner(&*now.content));
    if is_final && now.exists {
        cx.memory.refused.note(now.uid());
    } else if is_final {
        cx.report_unlisted(now);
        cx.memory.settle(now.uid());
    }
    Done::Failed(Failure { operation, error: reason.into(), is_final, is_recorded: false })
}

fn tell_of_group<K: Driven>(cx: &Context<K>, now: &Objects<K>, found: &Found) {
    if found.group.is_some() && !cx.memory.grouped.has(now.uid()) {
        cx.memory.grouped.note(now.uid());
        warn!(snapshot = found.handle, group = found.group, "the driver says that the snapshot is of a group");
    }
}

/// A driver that cannot be asked is believed: the snapshot is there, and ready.
pub(super) fn assume<K: Driven>(cx: &Context<K>, now: &Objects<K>, handle: String) -> Done {
    // A time that is stored stays.
    let creation_time = i64::try_from(cx.scope.clock.wall().as_nanosecond()).unwrap_or(i64::MAX);
    let group = facts::given_handle(&*now.content).and_then(|given| cx.listed_group(given));
    Done::Found(Found { handle, creation_time, is_ready: true, group, ..Found::default() })
}

/// Has the driver delete it.
pub(super) async fn delete<K: Driven>(
    cx: &Context<K>,
    now: &Objects<K>,
    state: &State,
    doomed: &Doomed,
) -> Result<Done, Stop> {
    let client = cx.scope.driver.use_now()?.with_timeout(cx.section.call_timeout);
    let (snapshot, kind) = (&*doomed.handle, K::NAMES.word);
    match cx.scope.term.during(K::delete(&client, doomed, secrets_of(state))).await? {
        Ok(()) => {
            // At once: whatever becomes of this attempt, the driver is not asked again in this term.
            cx.memory.deleted.note(now.uid());
            info!(snapshot, kind, "deleted the snapshot");
            Ok(Done::Deleted)
        }
        Err(error) if error.code == Code::InvalidArgument && cx.memory.grouped.has(now.uid()) => {
            warn!(snapshot, %error, "the snapshot goes with its group: only the content is released");
            cx.memory.undeletable.note(now.uid());
            Ok(Done::Nothing)
        }
        Err(error) => Ok(Done::failed(Operation::Delete, error.into())),
    }
}
