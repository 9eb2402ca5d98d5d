//! Each step's request or call. It makes no decisions: they come from
//! [`next_step`](crate::roles::snapshotter::content::policy::decide::next_step). Every write has a precondition.

use std::time::Duration;

use tracing::{info, warn};

use crate::cluster::{IdKind, ObjectName, Patch, VolumeSnapshot};
use crate::process::ErrorChain;
use crate::queue::Cause;
use crate::roles::kit::freshness::CATCH_UP;
use crate::roles::kit::io::CONFIRM;
use crate::roles::kit::{AttemptError, HeldLocks, Op, Part, Secret, Store, Written};
use crate::roles::snapshotter::content::policy::{
    Answer, ContentEnd, Failed, Kept, Left, NotTaken, OwnerNeed, SecretNeed, Step, Warning, create::name_taken,
    decide::is_ours,
};
use crate::roles::snapshotter::content::record::error::{
    BEGIN, CLEAR, LIST_MEMBERS, LOAD_DELETION_SECRET, LOAD_LIST_SECRET, LOAD_SECRET, READ_END, READ_OWNER,
    RECORD_ERROR, RELEASE, SAVE, SEEK, UNMARK,
};
use crate::roles::snapshotter::content::record::{
    Asked, Found, InvalidSnapshot, Operation, Stop, Wait, across, facts, status, writes,
};
use crate::roles::snapshotter::content::told::{report, texts};
use crate::roles::snapshotter::names::ANNOTATION_SNAPSHOTTING;

use super::call::{Act, Driven};
use super::{leftovers, memory};

/// Between two looks at a volume that others change.
const TURN_PAUSE: Duration = Duration::from_secs(1);

/// Does one step. A request that fails ends the attempt, and what the driver says is told although the status cannot say it.
pub(super) async fn perform<K: Driven>(act: &Act<'_, '_, K>, step: Step) -> Result<Answer, Stop> {
    let failure = act.progress.failure.as_ref();
    if let (Step::Failed, Some(failure)) = (&step, failure) {
        return Err(failure.error.clone().into());
    }
    match (act.take(step).await, failure) {
        (Err(Stop::Failed(error)), Some(failure)) => {
            report::log_unrecorded::<K>(&act.cx.scope, failure.operation, &error);
            Ok(Answer::Unrecorded)
        }
        (Err(Stop::Failed(error)), None) => {
            Ok(Answer::Failed(recorded(act.failed(act.seen.phase().operation(), error))))
        }
        (ended, _) => ended,
    }
}

/// The same failure. The status says nothing about it.
fn recorded(mut failed: Box<Failed>) -> Box<Failed> {
    failed.failure.is_recorded = true;
    failed
}

impl<K: Driven> Act<'_, '_, K> {
    async fn take(&self, step: Step) -> Result<Answer, Stop> {
        let Self { cx, seen, io, progress } = self;
        let (content, locks) = (self.content(), &cx.scope.volume_locks);
        let (object, state) = (Part::Object, Part::Status);
        match step {
            Step::Settled | Step::Failed => Ok(Answer::Nothing),
            Step::Wait(wait) => self.wait(wait),
            Step::GiveWay(pause) => Err(Stop::Later(pause)),
            Step::Fail(operation, reason) => self.fail(operation, reason).await,
            Step::LeaveName(asked, other) => Ok(self.leave_name(&asked, &other)),
            Step::ReadSecret(need) => self.read_secret(need).await,
            Step::TakeTurn(volumes) => {
                let held = io.wait(cx.take_turn(&volumes, content)).await?;
                Ok(Answer::VolumeTurn(volumes, held))
            }
            Step::TryTurn(volumes) => {
                let turn =
                    |volume: &String| Some((cx.turns.lines.try_lock(volume)?, HeldLocks::try_of(locks, volume)?));
                Ok(match volumes.first().and_then(turn) {
                    Some((line, lock)) => Answer::VolumeTurn(volumes, vec![line, lock]),
                    None => self.give_way(),
                })
            }
            Step::AwaitTurn(volumes) => {
                let place = volumes.first().and_then(|volume| cx.turns.looks.try_lock(volume));
                let Some(place) = place else { return Ok(self.give_way()) };
                let lock = io.wait(HeldLocks::of_all(locks, &volumes)).await?;
                Ok(Answer::VolumeTurn(volumes, vec![place, lock]))
            }
            Step::TakeSnapshotTurns(ids) => {
                // All roles take them in the same order.
                let turns = async {
                    let mut turns = Vec::new();
                    for id in &ids {
                        turns.push(cx.scope.snapshot_locks.exclusive(id).await);
                    }
                    turns
                };
                io.wait(turns).await.map(Answer::SnapshotTurns)
            }
            Step::Begin(asked) => {
                let recorded = content.meta().annotation(ANNOTATION_SNAPSHOTTING);
                if recorded.is_some_and(|recorded| recorded != asked.intent) {
                    warn!("the request that the content records does not count, and is replaced");
                }
                self.write(object, writes::begun(content, &asked.intent), BEGIN, Answer::Nothing).await
            }
            Step::Confirm => self.confirm().await,
            Step::Relist => {
                let is_once_enough = seen.now.exists && !K::NAMES.is_group;
                io.wait(cx.listed(is_once_enough)).await.map(|()| Answer::Listed)
            }
            Step::CatchUp => io.catch_up(&cx.stores.contents, content).await.map(|()| Answer::CaughtUp),
            Step::ReadEnd => Ok(Answer::End(match io.history(&cx.stores.contents, content, READ_END).await? {
                None => ContentEnd::Unknown,
                Some(last) if facts::is_policy_delete(&last) => ContentEnd::Delete,
                Some(_) => ContentEnd::Retain,
            })),
            Step::Seek(handle) => self.seek(&handle).await,
            Step::ReadOwner(OwnerNeed { content: of, snapshot: named }) => {
                let name = ObjectName::namespaced(&named.namespace, &named.name);
                // No cache has them: they are needed before the deletion of some groups alone.
                let snapshot = io.get::<VolumeSnapshot, _>(&name, READ_OWNER).await?;
                Ok(Answer::Owner(of, across::ownership(snapshot.as_ref(), &named, content.owner())))
            }
            Step::Create(asked) => self.create(&asked).await,
            Step::Assume(handle) => Ok(self.assume(handle)),
            Step::LookUp(handle) => self.look_up(&handle).await,
            Step::ListMembers(members) => {
                self.write(object, writes::listing(content, &members), LIST_MEMBERS, Answer::Nothing).await
            }
            Step::Save(found) => {
                let is_cut = facts::handle(content).is_none();
                let saved = Answer::Saved { is_cut, is_ready: found.is_ready };
                let saved = self.write(state, status::filled(content, &found), SAVE, saved).await?;
                if is_cut && matches!(saved, Answer::Saved { .. }) {
                    info!(snapshot = found.handle, "took the snapshot");
                }
                Ok(saved)
            }
            Step::Unmark { keep_intent } => {
                self.write(object, writes::unmarked(content, keep_intent), UNMARK, Answer::Unmarked).await
            }
            Step::RecordError => {
                let told = progress.failure.as_ref().and_then(|it| texts::told(content, it.operation, &it.error));
                let patch = told.and_then(|(_, message)| status::failed(content, &message, progress.wall));
                self.write(state, patch, RECORD_ERROR, Answer::Recorded).await
            }
            Step::Delete(doomed) => self.delete(&doomed).await,
            Step::NameLeftovers => self.name_leftovers().await,
            Step::Clear => self.write(state, status::cleared(content), CLEAR, Answer::Cleared).await,
            Step::Release => self.release(None).await,
            Step::ReleaseKept(kept) => self.release(Some(&kept)).await,
            Step::Abandon(left) => {
                if left == Left::ToHeir {
                    cx.hand_over(content);
                }
                Ok(Answer::Abandoned(left))
            }
        }
    }

    /// The attempt ends, and says what it waits for.
    fn wait(&self, wait: Wait) -> Result<Answer, Stop> {
        let (cx, seen) = (self.cx, self.seen);
        if let Wait::NotDue(left) = wait {
            return Err(Stop::Later(left));
        }
        let (says, is_for_driver) = (wait.says::<K>(&cx.scope.driver_name), wait == Wait::NotReady);
        let reason = match wait {
            Wait::ForeignClass(_) => Some("SnapshotClassMismatch".to_owned()),
            _ => wait.is_for_copy().then(|| format!("{}ContentCopied", K::NAMES.reason)),
        };
        let waits = InvalidSnapshot::Waits(wait, says.clone());
        let mut failed = recorded(self.failed(seen.phase().operation(), waits));
        failed.warning = reason.map(|reason| Warning { reason, note: says });
        if !is_for_driver {
            return Ok(Answer::Failed(failed));
        }
        if self.progress.has_cut {
            cx.add(&seen.now, Cause::Resync);
        }
        let pause = memory::pause(seen.known.looks, &cx.section.ready_check.backoff(), cx.scope.rng.fraction());
        Ok(Answer::NotReady(failed, pause))
    }

    /// Fails. The API is asked for a class that the cache lacks before the content fails for that: the watch may be late. A class of
    /// another driver counts as missing, and the cache has it.
    async fn fail(&self, operation: Operation, reason: InvalidSnapshot) -> Result<Answer, Stop> {
        if let InvalidSnapshot::ClassMissing(_, class) | InvalidSnapshot::ListClassMissing(_, class) = &reason
            && let (name, classes) = (ObjectName::cluster(class), &self.cx.stores.caches.classes)
            && classes.get(&name).is_none()
        {
            match self.io.lacks(&Store::of(classes), &name, reason.clone()).await {
                Stop::Failed(AttemptError::Reason(_)) => {}
                stop => return Err(stop),
            }
        }
        Ok(Answer::Failed(self.failed(operation, reason)))
    }

    /// The driver is not asked, because `other` has the name. A mark of another program stays: that may have asked.
    fn leave_name(&self, asked: &Asked, other: &str) -> Answer {
        let mut failed = self.failed(Operation::Create, name_taken::<K>(&asked.request.name, other));
        failed.failure.is_final = !asked.is_inherited;
        let exists = self.seen.now.exists;
        Answer::Refused(failed, NotTaken { is_answer: false, leaves_doubt: false, exists, warning: None })
    }

    async fn read_secret(&self, need: SecretNeed) -> Result<Answer, Stop> {
        let SecretNeed { place, operation, is_for_listing } = need;
        let failure = match self.io.secret(&place).await? {
            Ok(secret) => return Ok(Answer::Secret(place, secret)),
            Err(failure) => failure,
        };
        let (is_deletion, is_withheld) = (operation == Operation::Delete, failure.is_withheld());
        if is_deletion && is_for_listing && is_withheld {
            return Ok(leftovers::not_asked(&failure));
        }
        if is_deletion && !is_for_listing && self.cx.section.delete_without_secret && failure.is_missing() {
            warn!(error = %ErrorChain(&failure), "deleting without the secret");
            return Ok(Answer::Secret(place, Secret::default()));
        }
        let op = match (is_for_listing, is_deletion) {
            (true, _) => LOAD_LIST_SECRET,
            (_, true) if is_withheld => LOAD_DELETION_SECRET,
            _ => LOAD_SECRET,
        };
        let error = op.failed(failure);
        // What only people can change goes into the status.
        if is_withheld { Ok(Answer::Failed(self.failed(operation, error))) } else { Err(error.into()) }
    }

    /// The look comes soon again.
    fn give_way(&self) -> Answer {
        let scope = &self.cx.scope;
        Answer::GaveWay(scope.clock.now(), scope.rng.jittered(TURN_PAUSE, 1.0))
    }

    /// Has the API confirm that the content is what the cache says, or that it is gone.
    async fn confirm(&self) -> Result<Answer, Stop> {
        let (contents, content) = (&self.cx.stores.contents, self.content());
        let name = ObjectName::of(content);
        if !self.seen.now.exists {
            let found = self.io.look_up::<K, _>(contents, &name, CONFIRM).await?;
            return match found.filter(|found| found.meta().uid == content.meta().uid) {
                None => Ok(Answer::Gone),
                // The cache of a node has the contents of that node alone.
                Some(found) if is_ours(&found, &self.cx.rules) => Err(Stop::Later(CATCH_UP)),
                Some(_) => Ok(Answer::Others),
            };
        }
        let is_there = self.io.confirm(contents, content).await?.is_there("content", &name.to_string())?;
        Ok(if is_there { Answer::Confirmed } else { Answer::Gone })
    }

    /// Looks for another content with this snapshot, in the whole cluster.
    async fn seek(&self, handle: &str) -> Result<Answer, Stop> {
        let (stores, driver) = (&self.cx.stores, &self.cx.rules.request.driver);
        let list = self.io.list::<K, InvalidSnapshot>(&stores.contents, SEEK);
        let keepers = stores.elsewhere.keepers(driver, list).await?;
        let same = keepers.get(&IdKind::Snapshot.key(driver, handle));
        let other = same.into_iter().flatten().find(|(uid, _)| uid != self.seen.now.uid());
        Ok(Answer::Sought(other.map(|(_, name)| format!("{} {name}", K::KIND))))
    }

    /// A driver that cannot be asked is believed: the snapshot is there, and ready.
    fn assume(&self, handle: String) -> Answer {
        // A time that is stored stays.
        let creation_time = i64::try_from(self.cx.scope.clock.wall().as_nanosecond()).unwrap_or(i64::MAX);
        let group = facts::given_handle(self.content()).and_then(|given| self.cx.listed_group(given));
        let found = Found { handle, creation_time, is_ready: true, group, ..Found::default() };
        Answer::Found { found, is_grouped: false, warning: None }
    }

    /// Writes to the content. Says `done`, unless that is gone. Without a patch, the content says all of it already.
    async fn write(&self, part: Part, patch: Option<Patch>, op: Op, done: Answer) -> Result<Answer, Stop> {
        let Some(patch) = patch else { return Ok(done) };
        Ok(match self.io.write(&self.cx.stores.contents, self.content(), (part, &patch), op).await? {
            Written::Kept => done,
            Written::Ended | Written::NotFound(_) => Answer::Gone,
        })
    }

    /// Removes our finalizer. `kept`: why the snapshot is kept although the policy would have it deleted.
    async fn release(&self, kept: Option<&Kept>) -> Result<Answer, Stop> {
        let content = self.content();
        let Some(patch) = writes::released(content) else { return Ok(Answer::Nothing) };
        let written = self.io.write(&self.cx.stores.contents, content, (Part::Object, &patch), RELEASE).await?;
        if let Written::NotFound(_) = written {
            return Ok(Answer::Gone);
        }
        info!("released the content");
        let is_gone = matches!(written, Written::Ended);
        Ok(match kept {
            Some(kept) => Answer::ReleasedKept(report::kept(content, kept), is_gone),
            None if is_gone => Answer::Gone,
            None => Answer::Nothing,
        })
    }
}
