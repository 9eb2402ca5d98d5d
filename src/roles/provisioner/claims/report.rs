//! Reports attempts at claims: Events, metrics, log lines. Pure, but for the log lines.
//!
//! Each new failure and each recovery is reported once. The Go sidecar writes the same Event for every attempt. An ignored claim is no
//! failure.

use tracing::{info, warn};

use crate::cluster::{EventKind, EventTarget};
use crate::process::ErrorChain;
use crate::roles::kit::report::log_failure;
use crate::roles::kit::telling::Labels;
use crate::roles::kit::{End, EventsMode, Run, Telling};
use crate::roles::provisioner::metrics;
use crate::roles::provisioner::sources::source::{Source, normalise};

use super::answer::{Answer, Ended, FailureTold, Happened, SourceRead, anothers};
use super::decide::Ignored;
use super::error::{AttemptError, ClaimReason};
use super::observe::Seen;
use super::phase::Phase;
use super::progress::Progress;
use super::state::ClaimState;
use super::transition::Change;
use crate::roles::provisioner::finality::Finality;

/// What the log and the Event say of a request that is left alone.
const LEFT_OVER: &str = "the driver was asked for this volume, and its claim is gone: the volume may be left over, or its data may have been kept, so it is not deleted; the status page says what to do";

/// The class and the kind of the source, as labels of figures. A label must not have a text that a claim's author can choose freely,
/// because each text would be a new series. So the class is the one of the request, or an existing one, or empty.
pub(super) fn labels(seen: &Seen, known: &ClaimState) -> Labels {
    let claim = &seen.claim;
    let own = claim.key.name.namespace().unwrap_or_default();
    let source = normalise(&claim.object.spec, own, true).unwrap_or(Source::None);
    vec![("class", class(seen, known).to_owned()), ("source", source.kind().to_owned())]
}

/// The class of the request, or an existing one, or none.
pub(super) fn class<'a>(seen: &'a Seen, known: &'a ClaimState) -> &'a str {
    let asked = known.request().map(|request| request.plan.class.as_str());
    asked.or_else(|| seen.claim.class.as_deref().filter(|_| seen.class.is_some())).unwrap_or_default()
}

/// An Event on the claim, unless Events are off.
fn event(seen: &Seen, kind: EventKind, reason: &'static str, note: String) -> Option<Telling> {
    let on = EventTarget::of(seen.claim.object.as_ref());
    (seen.section.events != EventsMode::None).then(|| Telling::Event { on, kind, reason: reason.into(), note })
}

/// The driver is asked for the volume.
pub(super) fn provisioning(seen: &Seen) -> Option<Telling> {
    let note = format!("External provisioner is provisioning volume for claim \"{}\"", seen.claim.key.name);
    event(seen, EventKind::Normal, "Provisioning", note)
}

/// The result of a request that an earlier term had sent.
fn resumed(seen: &Seen, known: &ClaimState, result: &str) -> Option<Telling> {
    let labels = vec![("driver_name", seen.rules.driver.clone()), ("result", result.to_owned())];
    known.is_resumed().then_some(Telling::Count(&metrics::VOLUMES_RESUMED, labels))
}

/// The reports as soon as a step is done.
pub(super) fn tell_step(seen: &Seen, progress: &Progress, answer: &Answer) -> Vec<Telling> {
    let known = &*progress.known;
    match &answer.happened {
        Happened::Changed(Change::Stored { .. }) => Vec::from_iter(resumed(seen, known, "saved")),
        Happened::Changed(Change::LeftAlone) => Vec::from_iter(resumed(seen, known, "found")),
        Happened::Changed(Change::Discarded) => discarded(seen, progress),
        Happened::Answered { change: Some(Change::Refused { reschedule, .. }), .. } => {
            let finality = if *reschedule { Finality::Reschedule } else { Finality::Finished };
            Vec::from_iter(resumed(seen, known, finality.label()))
        }
        Happened::LeftOver => left_over(seen, known),
        Happened::Abandoned { volume_id, other, is_unwanted } => {
            warn!(
                volume = volume_id,
                other, "did not delete or store the volume: another persistentvolume has the same handle"
            );
            // This is not tried again, but the user must know.
            let note = || anothers(volume_id, other).message();
            let failed = is_unwanted.then(|| event(seen, EventKind::Warning, "ProvisioningFailed", note())).flatten();
            resumed(seen, known, "left").into_iter().chain(failed).collect()
        }
        Happened::Source(SourceRead::Unprotected(error)) if !known.reported.unprotected => unprotected(seen, error),
        Happened::Ended(Ended::Provisioned { is_burst, .. }) => success(seen, known, *is_burst),
        Happened::Ended(Ended::Ignored(Ignored::Populator)) => {
            let note = "Assuming an external populator will provision the volume";
            Vec::from_iter(event(seen, EventKind::Normal, "Provisioning", note.to_owned()))
        }
        Happened::FailureNoted(Some(told)) => failed(seen, progress, told),
        _ => Vec::new(),
    }
}

/// The snapshot has no finalizer while it is restored. Reported once for each claim.
fn unprotected(seen: &Seen, error: &AttemptError) -> Vec<Telling> {
    let cause = error.api().map(|cause| ErrorChain(cause).to_string()).unwrap_or_default();
    warn!(error = cause, "cannot protect the snapshot: restoring it unprotected");
    let note = format!("the snapshot is restored without protection against deletion: {cause}");
    Vec::from_iter(event(seen, EventKind::Warning, "SourceUnprotected", note))
}

/// A volume that no claim wants, or that could not be used, was deleted again.
fn discarded(seen: &Seen, progress: &Progress) -> Vec<Telling> {
    info!(volume = progress.volume_id(), "deleted the volume: no claim wants it, or it could not be used");
    let driver = vec![("driver_name", seen.rules.driver.clone())];
    let reclaimed = Telling::Count(&metrics::VOLUMES_RECLAIMED, driver);
    resumed(seen, &progress.known, "reclaimed").into_iter().chain([reclaimed]).collect()
}

/// The claim no longer waits for its volume, and nothing proves that no PersistentVolume was stored for it. The volume is kept.
fn left_over(seen: &Seen, known: &ClaimState) -> Vec<Telling> {
    let volume = seen.volume_name.as_deref().unwrap_or_default();
    warn!(persistent_volume = volume, persistent_volume_claim = %seen.claim.key.name, "{LEFT_OVER}");
    let note = format!("volume {volume}: {LEFT_OVER}");
    let warned = event(seen, EventKind::Warning, "VolumeMayBeLeftOver", note).filter(|_| seen.present);
    resumed(seen, known, "left_over").into_iter().chain(warned).collect()
}

/// The claim has its volume.
fn success(seen: &Seen, known: &ClaimState, is_burst: bool) -> Vec<Telling> {
    let mut told = Vec::from_iter(resumed(seen, known, "found"));
    // Only once, although the claim may be reconciled again.
    let Phase::Stored { success: Some(success), .. } = known.phase() else { return told };
    let labels = labels(seen, known);
    let took = seen.now.saturating_duration_since(success.begun);
    // A claim with a request has a volume name.
    let name = seen.volume_name.as_deref().unwrap_or_default();
    info!(
        persistent_volume = name,
        volume = success.volume.volume_id,
        storage_class = class(seen, known),
        seconds = took.as_secs_f64(),
        "provisioned"
    );
    told.extend([
        Telling::Did("provisioned", Some(format!("{}: {name}", seen.claim.key))),
        Telling::Count(&metrics::PROVISION_TOTAL, labels.clone()),
        Telling::Took(&metrics::PROVISION_DURATION, labels, took),
    ]);
    let (reported, reason) = (&known.reported, "ProvisioningSucceeded");
    let note = format!("Successfully provisioned volume {name}");
    if reported.provisioning || reported.failure.is_some() || seen.section.events == EventsMode::All {
        told.extend(event(seen, EventKind::Normal, reason, note));
    } else if seen.section.events != EventsMode::None && !is_burst {
        told.push(Telling::MinorEvent { on: EventTarget::of(seen.claim.object.as_ref()), reason, note });
    }
    told
}

/// The report of a failure. `None`: no report, because the claim has its volume, or wants none any more.
pub(super) fn failure(seen: &Seen, progress: &Progress, error: &AttemptError) -> Option<FailureTold> {
    let known = &*progress.known;
    // A claim whose PersistentVolume is stored is provisioned, and an Event has said so. What is left concerns only the daemon.
    if known.is_stored() || !seen.is_wanted(progress) {
        return None;
    }
    let news = error.gist();
    let is_news = known.reported.failure.as_ref() != Some(&news) || seen.section.events == EventsMode::All;
    Some(FailureTold { labels: labels(seen, known), news: is_news.then_some(news) })
}

fn failed(seen: &Seen, progress: &Progress, FailureTold { labels, news }: &FailureTold) -> Vec<Telling> {
    let note = progress.failed.as_ref().filter(|_| news.is_some());
    let note = note.map(|error| format!("failed to provision volume: {}", error.message()));
    let event = note.and_then(|note| event(seen, EventKind::Warning, "ProvisioningFailed", note));
    [Telling::Count(&metrics::PROVISION_FAILED, labels.clone())].into_iter().chain(event).collect()
}

/// The reports at the end of an attempt that began with `first`. What follows from a failure is a step.
pub(super) fn tell(first: &Seen, progress: &Progress, end: &End<'_, ClaimReason>, run: &Run<'_>) -> Vec<Telling> {
    let End::Failed(error) = end else { return Vec::new() };
    log_failure!(run, error, {}, "provisioning failed");
    // After too many steps there is none left.
    let is_endless = matches!(error, AttemptError::Endless(_));
    let told = failure(first, progress, error).filter(|_| is_endless);
    told.map(|told| failed(first, progress, &told)).unwrap_or_default()
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "report_tests.rs"]
mod tests;
