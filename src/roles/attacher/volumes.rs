//! Removes our finalizer from a volume once the volume is being deleted and no attachment names it (spec 2.11).

use std::sync::Arc;

use tracing::info;

use crate::cluster::{BY_VOLUME, ObjectName, PersistentVolume, patch};
use crate::queue::{Outcome, Ticket};
use crate::roles::kit::freshness::{Freshness, read_again};
use crate::roles::kit::report::log_failure;
use crate::roles::kit::{Attempt, AttemptError, Next, NoReason, Reconciler, Stop, TermScope};

use super::context::Context;
use super::decide::is_releasable;
use super::error::{REFRESH, RELEASE_VOLUME};

/// The reconciler of the queue of volumes.
#[derive(Debug)]
pub(super) struct Volumes(pub(super) Arc<Context>);

/// One request.
#[derive(Debug)]
pub(super) enum Step {
    /// List the attachments, once a term.
    Relist,
    /// Remove our finalizer.
    Release,
}

/// The volume, if our finalizer should leave it.
type View = Option<Arc<PersistentVolume>>;

impl Reconciler for Volumes {
    type Key = String;
    /// Whether nothing is left to do: our finalizer is off the volume, or a read has not found the volume. The cache may show both
    /// still.
    type State = bool;
    type View = View;
    type Step = Step;
    /// Whether nothing is left to do.
    type Event = bool;
    type End = ();
    type Reason = NoReason;

    fn scope(&self) -> &TermScope {
        &self.0.scope
    }

    fn begin(&self, ticket: &Ticket<String>) -> Option<bool> {
        self.0.stores.volumes.get(&ObjectName::cluster(ticket.key())).map(|_| false)
    }

    fn observe(&self, key: &String, _: &bool) -> View {
        let stores = &self.0.stores;
        let is_attached = !stores.attachments.find(BY_VOLUME, key).is_empty();
        let volume = stores.volumes.get(&ObjectName::cluster(key));
        volume.filter(|volume| is_releasable(volume, is_attached, &self.0.rules))
    }

    /// A deletion of the volume or of its last attachment wakes the key again.
    fn next_step(&self, volume: &View, is_done: &bool) -> Next<Step, ()> {
        if volume.is_none() || *is_done {
            return Next::Done(());
        }
        Next::Do(if self.0.relisted.is_done() { Step::Release } else { Step::Relist })
    }

    fn has_answer(&self, _: &bool) -> bool {
        false
    }

    async fn perform(
        &self,
        step: Step,
        volume: &View,
        _: &bool,
        attempt: &mut Attempt<'_, String>,
    ) -> Result<bool, Stop<NoReason>> {
        let cx = &*self.0;
        let (Step::Release, Some(volume)) = (step, volume) else {
            let listed = cx.relisted.wait(|| cx.stores.attachments.relisted());
            attempt.park(&cx.scope.term, listed).await?;
            return Ok(false);
        };
        let Some(patch) = patch::remove_finalizer(&volume.metadata, &cx.rules.finalizer) else { return Ok(false) };
        let _turn = cx.scope.write_turn(&cx.stores.volumes, volume.as_ref()).await?;
        let api = cx.scope.api.use_now()?;
        let written = api.patch::<PersistentVolume>(&ObjectName::of(volume.as_ref()), &patch).await;
        let written = written.map_err(|error| RELEASE_VOLUME.failed(error))?;
        cx.confirmed.forget(&written.metadata.uid);
        cx.stores.volumes.apply_own_write(written);
        info!("removed the attacher's finalizer from the volume");
        attempt.ticket.did("released", None);
        // If it was the last one, the object is gone, and the cache shows it with our finalizer until the watch says so.
        Ok(true)
    }

    fn apply(&self, is_done: &mut bool, done: bool) {
        *is_done |= done;
    }

    /// Another controller may have added or removed a finalizer (R36), or the volume may be gone.
    async fn refresh(&self, volume: &View, error: &AttemptError<NoReason>) -> Result<Option<bool>, Stop<NoReason>> {
        let Some(volume) = volume else { return Ok(None) };
        let api = self.0.scope.api.use_now()?;
        let read = read_again(api, &self.0.stores.volumes, volume.as_ref()).await;
        Ok(match read.map_err(|error| REFRESH.failed(error))? {
            Freshness::Newer => Some(false),
            // The 404 of the write was wrong: the API has the volume.
            Freshness::Same if error.says_not_found() => Some(false),
            Freshness::Same => None,
            Freshness::Gone => Some(true),
        })
    }

    async fn conclude(&self, ticket: &Ticket<String>, _: bool, ended: Result<(), AttemptError<NoReason>>) -> Outcome {
        let Err(error) = ended else { return Outcome::Settled };
        log_failure!(
            self.0.failures,
            self.0.scope.clock.now(),
            &error,
            { attempt = ticket.attempt() + 1, },
            "cannot remove the attacher's finalizer from the volume"
        );
        ticket.note(error.message());
        error.outcome()
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "writes_tests.rs"]
mod tests;
