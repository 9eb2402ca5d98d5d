//! Reports an attempt: Kubernetes Events, metrics, one log line.

use std::time::Duration;

use tracing::{debug, warn};

use crate::cluster::EventTarget;
use crate::roles::kit::report::{gist, log_failure};
use crate::roles::kit::telling::Labels;
use crate::roles::kit::{AttemptError, End, Run, Telling, TermScope};
use crate::roles::snapshotter::content::policy::{Answer, Failure, Kept, Left, Observed, Progress, Warning};
use crate::roles::snapshotter::content::record::{Content, ContentError, InvalidSnapshot, Operation, facts, request};
use crate::roles::snapshotter::metrics;

/// The reports as soon as a step is done.
pub fn tell_step<K: Content>(view: &Observed<K>, progress: &Progress, answer: &Answer) -> Vec<Telling> {
    let warned = answer
        .warning()
        .map(|warning| warning_events(view, &progress.who.targets, warning, is_news(view, &warning.note)));
    let is_resumed = view.known.is_resumed || progress.is_resumed;
    let told = match answer {
        Answer::Taken(..) if is_resumed => resumed(view, "created"),
        Answer::Refused(failed, _) if is_resumed && is_refusal(&failed.failure) => resumed(view, "refused"),
        Answer::Abandoned(left) => orphan(view, progress, *left),
        _ => Vec::new(),
    };
    warned.into_iter().flatten().chain(told).collect()
}

fn is_news<K: Content>(view: &Observed<K>, note: &str) -> bool {
    !view.known.told.has(&gist(note))
}

/// Whether the driver has said that it takes no snapshot.
fn is_refusal(failure: &Failure) -> bool {
    failure.is_final && failure.error.driver().is_some()
}

/// The call of an earlier term has its answer.
fn resumed<K: Content>(view: &Observed<K>, result: &str) -> Vec<Telling> {
    vec![Telling::Count(&metrics::SNAPSHOTS_RESUMED, labels(view, "result", result))]
}

/// The reports of an attempt that began with `first`.
pub fn tell<K: Content>(
    first: &Observed<K>,
    progress: &Progress,
    end: &End<'_, InvalidSnapshot>,
    run: &Run<'_>,
) -> Vec<Telling> {
    let mut told = done(first, progress, run);
    match end {
        End::Settled => {}
        End::Failed(AttemptError::Reason(InvalidSnapshot::Waits(wait, _))) => {
            if wait.is_for_copy() && progress.is_news {
                warn!(content = progress.who.name, "a content is a copy of another one, and is left alone");
            }
        }
        End::Failed(error) => told.extend(failure(first, progress, error, run)),
    }
    if let (End::Failed(_), Some(warning)) = (end, &progress.warning) {
        told.extend(warning_events(first, &progress.who.targets, warning, progress.is_news));
    }
    told
}

/// What the attempt has done, as far as it has.
fn done<K: Content>(first: &Observed<K>, progress: &Progress, run: &Run<'_>) -> Vec<Telling> {
    let waited = progress.unready_since.map(|since| run.now.saturating_duration_since(since));
    let of = |has: bool, operation, time: Duration, what| {
        let labels = labels(first, "operation", K::NAMES.operation(operation));
        let took = Telling::Took(&metrics::SNAPSHOT_DURATION, labels, time);
        has.then(|| [took, Telling::Did(what, Some(progress.who.owner.clone()))])
    };
    [
        of(progress.has_cut, Operation::Create, run.age, "taken"),
        of(progress.has_become_ready, Operation::Ready, waited.unwrap_or_default(), "ready to use"),
        of(progress.has_deleted, Operation::Delete, run.age, "deleted"),
    ]
    .into_iter()
    .flatten()
    .flatten()
    .collect()
}

fn failure<K: Content>(first: &Observed<K>, progress: &Progress, error: &ContentError, run: &Run<'_>) -> Vec<Telling> {
    let operation = K::NAMES.operation(progress.operation());
    if error.is_expected() {
        debug!(error = error.message(), "looking again");
    } else {
        log_failure!(run, error, { operation, }, "attempt failed");
    }
    let labels = [labels(first, "operation", operation), vec![("error", error.label().to_owned())]].concat();
    let is_other_id = matches!(error, AttemptError::Reason(InvalidSnapshot::OtherSnapshot { .. }));
    let orphaned = is_other_id.then(|| count_orphan(first, "otherId"));
    [Telling::Count(&metrics::SNAPSHOT_ERRORS, labels)].into_iter().chain(orphaned).collect()
}

/// The driver has answered, and the status could not say so. People hear of the answer; this is why the status lacks it.
pub fn log_unrecorded<K: Content>(scope: &TermScope, operation: Operation, error: &ContentError) {
    if error.is_expected() {
        debug!(error = error.message(), "looking again");
        return;
    }
    log_failure!(
        scope.failures,
        scope.clock.now(),
        error,
        { operation = K::NAMES.operation(operation), },
        "the driver has refused, and the status of the content does not say so"
    );
}

/// A Warning on the content, and on what its user has made, where people look: once for each text that differs in more than ids.
fn warning_events<K: Content>(
    view: &Observed<K>,
    targets: &[EventTarget],
    warning: &Warning,
    is_news: bool,
) -> Vec<Telling> {
    let Warning { reason, note } = warning;
    let is_due = view.section.events.is_due(is_news);
    let event = |on: &EventTarget| Telling::warning(on.clone(), reason.clone(), note.clone());
    targets.iter().filter(|_| is_due).map(event).collect()
}

/// The content is released, and the driver keeps a snapshot that its policy would have deleted.
pub fn kept<K: Content>(content: &K, kept: &Kept) -> Warning {
    let (word, kind, handle) = (K::NAMES.word, K::KIND, facts::handle(content).unwrap_or_default());
    let note = match kept {
        Kept::NamedBy(other) => format!(
            "the {word} {handle} is kept, because the {other} names it, too. It is deleted when that one is, if its policy says \
             so"
        ),
        Kept::Earlier(handle) => format!(
            "the {word} {handle} is kept, because it was taken before this {kind} was made: it may be somebody else's"
        ),
        Kept::OfAnother => format!(
            "this {kind} was a copy of another one, in this cluster or in another: the {word} {handle} of that one, if there is \
             one, is kept"
        ),
    };
    warn!(snapshot = handle, reason = ?kept, "the content is released, and its snapshot is kept");
    Warning { reason: format!("{}Kept", K::NAMES.reason), note }
}

/// The driver has snapshots of a volume that no content names, and may have taken one of them for the content.
pub fn leftovers(volume: &str, snapshots: &[String]) -> Warning {
    let note = format!(
        "the driver was asked for a snapshot of volume {volume}, and never said whether it has it, or by which id. No \
         VolumeSnapshotContent has these snapshots of the volume, and one of them may be left over: {}. Nothing was deleted",
        snapshots.join(", ")
    );
    warn!(volume, ?snapshots, "snapshots may be left over at the driver");
    Warning { reason: "SnapshotMaybeLeaked".to_owned(), note }
}

/// The driver may have taken a snapshot for the content, and cannot be asked which ones it has.
pub fn unlisted<K: Content>(view: &Observed<K>) -> Warning {
    let content = &*view.now.content;
    let (word, name) = (K::NAMES.word, request::name(content, &view.rules.request));
    let note = format!(
        "the driver was asked for the {word} {name} of {}, and never said whether it has it, or by which id. It may be left over, and \
         the driver cannot be asked: look for that name at the storage. Nothing was deleted",
        content.sources().join(", ")
    );
    warn!(name, kind = word, "a snapshot may be left over at the driver");
    Warning { reason: "SnapshotMaybeLeaked".to_owned(), note }
}

/// The driver was asked for one snapshot by its id, and has named several others.
pub fn other_id<K: Content>(view: &Observed<K>, asked: &str, taken: &str, others: usize) -> Warning {
    let note = format!(
        "the driver was asked for the {} {asked}, and answered with {taken} and {others} more, none of which has this id: {taken} is \
         taken for it. Check that the {0} exists",
        K::NAMES.word
    );
    if is_news(view, &note) {
        warn!(asked, taken, others, "the driver has several snapshots for one id, and none with it");
    }
    Warning { reason: format!("{}IdNotListed", K::NAMES.reason), note }
}

/// The content was removed by force during a call, and the driver has answered.
fn orphan<K: Content>(view: &Observed<K>, progress: &Progress, left: Left) -> Vec<Telling> {
    let (name, handle) = (&progress.who.name, progress.found.as_ref().map_or("", |found| found.handle.as_str()));
    let begin = format!("{name} was removed during {}: its {} {handle} is", K::NAMES.call, K::NAMES.word);
    let (result, note) = match left {
        Left::Deleted => ("deleted", format!("{begin} deleted")),
        Left::Retained => ("left", format!("{begin} kept, as its policy says")),
        Left::EndUnknown => (
            "left",
            format!(
                "{begin} kept, because the API no longer says which deletionPolicy {name} had in the end. If nobody needs it, delete it at \
                 the storage"
            ),
        ),
        Left::MemberNeeded => (
            "left",
            format!(
                "{begin} kept, because a VolumeSnapshotContent names one of its snapshots. If nobody needs it any more, delete it at the \
                 storage"
            ),
        ),
        Left::MaybeKept => (
            "left",
            format!(
                "{begin} kept, because it is older than {name}, or the driver does not say how old it is, or there is a copy of {name}: \
                 somebody may have kept it on purpose. If nobody needs it, delete it at the storage"
            ),
        ),
        Left::ToOtherNode => {
            let asked = view.known.unanswered.as_ref().filter(|_| handle.is_empty());
            let asked = asked.map(|asked| format!("by the name {}", asked.request.name)).unwrap_or_default();
            let (call, word) = (K::NAMES.call, K::NAMES.word);
            let note = format!(
                "{name} was given to another node during {call}. The driver of this node may have the {word} {asked}{handle}, which nobody \
                 deletes"
            );
            ("left", note)
        }
        Left::ToHeir => {
            debug!(snapshot = handle, "another content has the snapshot of the one that is gone");
            return Vec::new();
        }
    };
    warn!(snapshot = handle, result, note, "a content was taken away while its snapshot was taken");
    // On what the user has made: the content is gone.
    let owner = progress.who.targets.get(1..).unwrap_or_default();
    let warning = Warning { reason: format!("{}ContentRemoved", K::NAMES.reason), note };
    [count_orphan(view, result)].into_iter().chain(warning_events(view, owner, &warning, true)).collect()
}

fn count_orphan<K: Content>(view: &Observed<K>, result: &str) -> Telling {
    Telling::Count(&metrics::SNAPSHOTS_ORPHANED, labels(view, "result", result))
}

fn labels<K: Content>(view: &Observed<K>, name: &'static str, value: &str) -> Labels {
    vec![("driver_name", view.rules.request.driver.clone()), (name, value.to_owned())]
}
