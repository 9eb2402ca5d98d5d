//! Reports a change: Kubernetes Events, metrics, one log line, the status page.

use tracing::{debug, info};

use crate::cluster::quantity::format_bytes;
use crate::cluster::{EventKind, EventTarget};
use crate::diagnostics::{Cell, Table, table};
use crate::process::error_chain;
use crate::roles::kit::report::log_failure;
use crate::roles::kit::telling::Labels;
use crate::roles::kit::{AttemptError, End, Run, Telling, TermScope};

use super::context::Context;
use super::error::{ChangeError, InvalidChange, LOAD_SECRET, RECORD_SIZE, Wait, is_refusal};
use super::job::Job;
use super::metrics;
use super::progress::{Answer, Progress};
use super::step::Write;
use super::view::View;
use super::waiting::{Reason, Waiting};

/// The status page's table.
pub(super) const WAITING: Table = table! {
    "waitingChanges", "Claims waiting for a change of their volume":
        text("claim", "claim"), text("change", "change"), text("waitsFor", "waits for"),
        seconds("waitingSeconds", "since"), count("failedTries", "failed tries"), error("why", "why")
};

/// Its rows, those that have waited longest first.
pub(super) fn waiting_rows(cx: &Context) -> Vec<Vec<Cell>> {
    let now = cx.scope.clock.now();
    let mut waiting = cx.memory.collect(|memory| memory.waiting.clone());
    waiting.sort_by_key(|it| it.since);
    let row = |Waiting { claim, job, reason, since, failed, says }: Waiting| {
        vec![
            claim.to_string().into(),
            job.label().into(),
            reason.label().into(),
            now.saturating_duration_since(since).into(),
            failed.into(),
            // That a node has to act is no trouble.
            (reason != Reason::Node).then_some(says).into(),
        ]
    };
    waiting.into_iter().map(row).collect()
}

/// The reports as soon as a step is done.
pub(super) fn tell_step(view: &View, answer: &Answer) -> Vec<Telling> {
    let (reason, note, is_repeated) = match answer {
        Answer::LeftToNode(size) => ("Resizing", beginning(view), view.memory.has_begun(*size)),
        Answer::Wrote(write) | Answer::WroteBoth(write, ..) => match write {
            Write::BeginExpansion(begin) => ("Resizing", beginning(view), !begin.is_fresh),
            Write::LeftToNode { .. } => {
                ("FileSystemResizeRequired", "Require file system resize of volume on node".to_owned(), false)
            }
            Write::Expanded(size) => {
                info!(size = format_bytes(*size), "expanded");
                ("VolumeResizeSuccessful", "Resize volume succeeded".to_owned(), false)
            }
            Write::BeginModification(class) => {
                let note =
                    format!("external resizer is modifying volume {} with vac {class}", view.claim.metadata.name);
                ("VolumeModify", note, view.begun_name() == Some(class))
            }
            Write::Modified(class) => {
                info!(class, "modified");
                let name = &view.claim.metadata.name;
                let note = format!("external resizer modified volume {name} with vac {class} successfully");
                ("VolumeModifySuccessful", note, false)
            }
            Write::Cancel => ("VolumeModifyCanceled", "Cancelled modify.".to_owned(), false),
            _ => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    event(view, (EventKind::Normal, reason), note, !is_repeated)
}

fn beginning(view: &View) -> String {
    format!("External resizer is resizing volume {}", view.volume_name())
}

/// The reports of an attempt that began with `first`.
pub(super) fn tell(first: &View, progress: &Progress, end: &End<'_, InvalidChange>, run: &Run<'_>) -> Vec<Telling> {
    let took = progress.did_something.then(|| Telling::Took(&metrics::CHANGE_DURATION, labels(first), run.age));
    let ended = match end {
        End::Settled => did(first, progress),
        End::Failed(AttemptError::Reason(InvalidChange::Waits { wait, says, warns })) => {
            let note = if *wait == Wait::Pods { in_use_text(first) } else { says.clone() };
            if *warns { warning(first, progress, note) } else { Vec::new() }
        }
        End::Failed(error) => tell_failure(first, progress, error, run),
    };
    took.into_iter().chain(ended).collect()
}

fn did(first: &View, progress: &Progress) -> Vec<Telling> {
    let word = match first.job {
        Job::Expand => "expanded",
        Job::Modify => "modified",
    };
    let did = progress.did_something.then(|| Telling::Did(word, Some(first.name().to_string())));
    did.into_iter().collect()
}

fn tell_failure(first: &View, progress: &Progress, error: &ChangeError, run: &Run<'_>) -> Vec<Telling> {
    if error.is_expected() {
        debug!(error = error.message(), "looking again");
    } else {
        let (persistent_volume, operation) = (first.volume_name(), first.job.label());
        log_failure!(run, error, { persistent_volume, operation, }, "attempt failed");
    }
    let labels = [labels(first), vec![("error", error.label().to_owned())]].concat();
    let counted = vec![Telling::Count(&metrics::CHANGE_ERRORS, labels)];
    let warned = failure_text(first, progress, error).map(|note| warning(first, progress, note));
    counted.into_iter().chain(warned.into_iter().flatten()).collect()
}

/// The driver has refused, and the write to the claim's status failed. An Event reports the refusal; this logs the failed write.
pub(super) fn log_unrecorded(scope: &TermScope, view: &View, error: &ChangeError) {
    if error.is_expected() {
        debug!(error = error.message(), "looking again");
        return;
    }
    log_failure!(
        scope.failures,
        scope.clock.now(),
        error,
        { persistent_volume = view.volume_name(), operation = view.job.label(), },
        "the driver has refused, and the claim's status does not say so"
    );
}

/// A Warning on the claim: once for each text, where IDs do not count as a difference.
fn warning(first: &View, progress: &Progress, note: String) -> Vec<Telling> {
    let reason = match first.job {
        Job::Expand => "VolumeResizeFailed",
        Job::Modify => "VolumeModifyFailed",
    };
    event(first, (EventKind::Warning, reason), note, progress.is_news)
}

/// An Event on the claim. One that is no news is written only with `events: all`.
fn event(view: &View, (kind, reason): (EventKind, &'static str), note: String, is_news: bool) -> Vec<Telling> {
    let on = EventTarget::of(view.claim.as_ref());
    if view.rules.section.events.is_due(is_news) {
        vec![Telling::Event { on, kind, reason: reason.into(), note }]
    } else {
        Vec::new()
    }
}

/// The text of csi-resizer for a volume that is in use.
pub(super) fn in_use_text(view: &View) -> String {
    let (claim, driver) = (view.name(), &view.rules.driver);
    format!(
        "Unable to expand {claim} because CSI driver {driver} only supports offline expansion and volume is currently in-use"
    )
}

/// The Event's text for a failure, in the words of csi-resizer. `None` for a write that only has to be repeated.
fn failure_text(first: &View, progress: &Progress, error: &ChangeError) -> Option<String> {
    let (job, volume) = (first.job, first.volume_name());
    let worded = |text: String| match job {
        Job::Expand => format!("resize volume \"{volume}\" by resizer \"{}\" failed: {text}", first.rules.driver),
        Job::Modify => text,
    };
    match error {
        AttemptError::Op(_) if error.is_of(LOAD_SECRET) => Some(worded(secret_text(error))),
        AttemptError::Op(_) if error.is_of(RECORD_SIZE) && !is_transient(error) => Some(format!(
            "error updating pv \"{volume}\" by resizer: update capacity of PV {volume} failed: {}",
            error.message()
        )),
        AttemptError::Op(_) | AttemptError::Unseen(..) | AttemptError::Replaced(..) | AttemptError::Endless(_) => None,
        AttemptError::Reason(
            InvalidChange::NoExpansion(_)
            | InvalidChange::NoModification(_)
            | InvalidChange::NoClass(_)
            | InvalidChange::ForeignClass { .. },
        ) => Some(error.message()),
        AttemptError::Driver(refusal) if job == Job::Modify && !is_refusal(refusal.code) => {
            let class = progress.refused.as_ref().map(|refused| refused.asked.as_str()).unwrap_or_default();
            Some(format!("{}. Still modifying to VAC {class}", error.message()))
        }
        AttemptError::Reason(_) | AttemptError::Driver(_) => Some(worded(error.message())),
    }
}

/// Which secret could not be read, and why.
fn secret_text(error: &ChangeError) -> String {
    let Some(api) = error.api() else { return error.message() };
    let (name, namespace) = (api.object().name(), api.object().namespace().unwrap_or_default());
    format!("error getting secret {name} in namespace {namespace}: {}", error_chain(api))
}

fn is_transient(error: &ChangeError) -> bool {
    error.api().is_some_and(|error| error.is_transient() || error.kind().is_stale())
}

fn labels(first: &View) -> Labels {
    vec![("driver_name", first.rules.driver.clone()), ("operation", first.job.label().to_owned())]
}
