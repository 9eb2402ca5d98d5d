//! Removes our finalizer from a volume once the volume is being deleted and no attachment names it (spec 2.11).

use std::sync::Arc;

use tracing::info;

use crate::cluster::{BY_VOLUME, PersistentVolume, patch};
use crate::roles::kit::drive::Next;
use crate::roles::kit::report::log_failure;
use crate::roles::kit::{self, End, Io, Memory, NoReason, Part, Reconcile, Run, Start, Telling, Written};

use super::context::Context;
use super::error::RELEASE_VOLUME;
use super::policy::{Rules, is_releasable};

/// Why a step ended the attempt.
type Stop = kit::Stop<NoReason>;

/// What a step may do.
type Verbs<'a> = Io<'a, String>;

/// The reconciler of the queue of volumes.
#[derive(Debug)]
pub(super) struct Volumes {
    cx: Arc<Context>,
    memory: Memory<()>,
}

impl Volumes {
    pub(super) fn of(cx: &Arc<Context>) -> Self {
        Self { cx: Arc::clone(cx), memory: Memory::default() }
    }
}

/// A volume, and what is known of its attachments.
#[derive(Debug)]
pub(super) struct View {
    rules: Arc<Rules>,
    volume: Arc<PersistentVolume>,
    /// Whether an attachment of any driver names it.
    is_attached: bool,
    /// Whether the attachments were listed since the term began.
    is_listed: bool,
}

/// One request.
#[derive(Debug)]
pub(super) enum Step {
    /// List the attachments, once a term.
    List,
    /// Remove our finalizer.
    Release,
}

/// Whether our finalizer is off the volume, or a read has not found the volume. The cache may show both still.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Progress {
    /// Not yet.
    #[default]
    Waits,
    /// It is off.
    Released,
    /// There is no such volume any more.
    NotFound,
}

impl Reconcile for Volumes {
    type Key = String;
    type View = View;
    type Memory = ();
    type Progress = Progress;
    type Step = Step;
    type Answer = Progress;
    type Reason = NoReason;

    fn memory(&self) -> &Memory<()> {
        &self.memory
    }

    fn is_there(&self, name: &String, uid: &str) -> bool {
        self.cx.stores.volumes.has(name, uid)
    }

    fn view(&self, name: &String) -> Option<View> {
        let stores = &self.cx.stores;
        Some(View {
            rules: Arc::clone(&self.cx.rules),
            volume: stores.volumes.named(name)?,
            is_attached: !stores.attachments.find(BY_VOLUME, name).is_empty(),
            is_listed: stores.attachments.is_listed(),
        })
    }

    fn uid(view: &View) -> &str {
        &view.volume.metadata.uid
    }

    fn begin(_: &View, _: Start) -> Progress {
        Progress::Waits
    }

    /// A deletion of the volume or of its last attachment wakes the key again.
    fn next_step(view: &View, progress: &Progress) -> Next<Step> {
        if *progress != Progress::Waits || !is_releasable(&view.volume, view.is_attached, &view.rules) {
            return Next::Done;
        }
        Next::Do(if view.is_listed { Step::Release } else { Step::List })
    }

    async fn perform(&self, step: Step, view: &View, _: &Progress, io: &Verbs<'_>) -> Result<Progress, Stop> {
        let stores = &self.cx.stores;
        let Step::Release = step else {
            return io.wait_listed(&stores.attachments).await.map(|()| Progress::Waits);
        };
        let Some(patch) = patch::remove_finalizer(&view.volume.metadata, &view.rules.finalizer) else {
            return Ok(Progress::Waits);
        };
        // Another controller may have added or removed a finalizer (R36), or the volume may be gone.
        match io.write(&stores.volumes, view.volume.as_ref(), (Part::Object, &patch), RELEASE_VOLUME).await? {
            Written::NotFound(_) => Ok(Progress::NotFound),
            Written::Kept | Written::Ended => Ok(Progress::Released),
        }
    }

    fn apply((): &mut (), progress: &mut Progress, answer: Progress) {
        *progress = answer;
    }

    fn tell(view: &View, progress: &Progress, end: &End<'_, NoReason>, run: &Run<'_>) -> Vec<Telling> {
        match end {
            End::Settled if *progress == Progress::Released => {
                info!("removed the attacher's finalizer from the volume");
                vec![Telling::Did("released", view.volume.subject())]
            }
            End::Settled => Vec::new(),
            End::Failed(error) => {
                log_failure!(run, error, {}, "cannot remove the attacher's finalizer from the volume");
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "writes_tests.rs"]
mod tests;
