//! The reconciler of volumes. The policy is [`policy`](super::policy), each step's request or call is in [`perform`](super::perform).

use std::sync::Arc;

use crate::cluster::{BY_VOLUME, PersistentVolume};
use crate::roles::kit::drive::Next;
use crate::roles::kit::{End, Memory, Reconcile, Run, Start, Telling};
use crate::roles::provisioner::class::csi_class;
use crate::roles::provisioner::parameters::secrets::{DeletionSecret, SecretError, for_deletion};

use super::context::DeletionContext;
use super::error::DeleteReason;
use super::perform::{Act, Stop, Verbs};
use super::policy::{Keeper, Past, Step, View, handle_of, next_step};
use super::progress::{self, Answer, Progress};
use super::report;
use crate::roles::provisioner::volume::{self, keeps};

/// The reconciler of the queue of volumes.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct Deletions(pub(in crate::roles::provisioner) Arc<DeletionContext>);

impl Reconcile for Deletions {
    type Key = String;
    type View = View;
    type Memory = progress::Memory;
    type Progress = Progress;
    type Step = Step;
    type Answer = Answer;
    type Reason = DeleteReason;

    fn memory(&self) -> &Memory<progress::Memory> {
        &self.0.memory
    }

    fn is_there(&self, name: &String, uid: &str) -> bool {
        self.0.shared.stores.volumes.has(name, uid)
    }

    fn view(&self, name: &String) -> Option<View> {
        let (cx, shared) = (&self.0, &self.0.shared);
        let volume = shared.stores.volumes.named(name)?;
        let (handle, twins) = (handle_of(&volume, &cx.rules.driver), shared.same_handle(&volume));
        let known = cx.memory.read(&volume.metadata.uid, Clone::clone);
        let wall = shared.scope.clock.wall();
        Some(View {
            rules: Arc::clone(&cx.rules),
            attachments: self.attachments(name, &twins),
            kept_by: twins.iter().find(|twin| keeps(twin)).map(|twin| self.keeper(twin, &handle)),
            handle,
            is_here: shared.deployment.is_here(&volume),
            is_listed: shared.stores.has_listed_volumes(),
            is_ahead: shared.stores.volumes.is_ahead(&volume),
            is_forgotten: cx.journal.has_forgotten(&volume),
            secret: self.secret_of(&volume),
            is_deleted: known.is_deleted,
            has_waited: known.waits.is_some(),
            phase_age: volume.phase_since.map(|since| wall.duration_since(since.timestamp())),
            now: shared.scope.clock.now(),
            volume,
        })
    }

    fn uid(view: &View) -> &str {
        &view.volume.metadata.uid
    }

    fn begin(first: &View, start: Start) -> Progress {
        let past = Past {
            detached: first.has_waited,
            failures: start.failed_before,
            queued: start.waited,
            phase_age: first.phase_age,
        };
        Progress::new(first.now, past.is_fresh(), first.is_deleted)
    }

    fn next_step(view: &View, progress: &Progress) -> Next<Step> {
        next_step(view, progress)
    }

    /// From the read that confirms the volume to the call.
    fn lock<'a>(view: &'a View, step: &'a Step) -> Option<(&'a str, &'a str)> {
        let is_for_call = matches!(step, Step::Confirm | Step::ReadSecret(_) | Step::Delete(_));
        let handle = view.handle.as_deref().ok().filter(|_| is_for_call)?;
        Some((&view.volume.metadata.name, handle))
    }

    fn waited(progress: &mut Progress) {
        progress.is_fresh = false;
    }

    fn has_answer(progress: &Progress) -> bool {
        progress.is_deleted
    }

    /// It does not wait any more. If it has to, [`Step::Wait`] says so again.
    fn intend(memory: &mut progress::Memory, _: &View, _: &Step) {
        memory.waits = None;
    }

    async fn perform(&self, step: Step, view: &View, progress: &Progress, io: &Verbs<'_>) -> Result<Answer, Stop> {
        Act { cx: &self.0, seen: view, progress, io }.perform(step).await
    }

    fn apply(memory: &mut progress::Memory, progress: &mut Progress, answer: Answer) {
        memory.apply(&answer);
        progress.apply(answer);
    }

    fn ended(memory: &mut progress::Memory, progress: &mut Progress, _: &End<'_, DeleteReason>) {
        if progress.waits.is_none() {
            memory.waits = None;
        }
    }

    fn tell(first: &View, progress: &Progress, end: &End<'_, DeleteReason>, run: &Run<'_>) -> Vec<Telling> {
        report::tell(first, progress, end, run)
    }
}

impl Deletions {
    /// How many attachments name the driver's volume, through any object with its handle.
    fn attachments(&self, name: &str, twins: &[Arc<PersistentVolume>]) -> usize {
        let of = |name: &str| self.0.shared.stores.attachments.find(BY_VOLUME, name).len();
        of(name) + twins.iter().map(|twin| of(&twin.metadata.name)).sum::<usize>()
    }

    fn keeper(&self, twin: &PersistentVolume, handle: &Result<String, DeleteReason>) -> Keeper {
        let spelled = volume::handle_of(twin, &self.0.rules.driver).filter(|spelled| Ok(spelled) != handle.as_ref());
        Keeper { name: twin.metadata.name.to_string(), spelled }
    }

    /// Where the secret for the deletion is.
    fn secret_of(&self, volume: &PersistentVolume) -> Result<DeletionSecret, SecretError> {
        let (shared, driver) = (&self.0.shared, &self.0.rules.driver);
        let class = shared.class(volume.spec.storage_class_name.as_deref());
        // A class of another provisioner, or one without a CSI form, names no secret.
        let class = class.as_deref().and_then(|class| csi_class(class, driver).ok());
        let parameters = class.as_deref().map(|class| &class.parameters);
        for_deletion(volume, parameters, &shared.section.deletion_secret_namespaces, driver)
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "reconcile_tests.rs"]
mod tests;

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "writes_tests.rs"]
mod writes_tests;

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "cuts_tests.rs"]
mod cuts_tests;
