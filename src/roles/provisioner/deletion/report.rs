//! Reports an attempt: one log line, an Event, metrics, a row on the status page. Pure, but for the log line.

use tracing::info;

use crate::cluster::EventTarget;
use crate::roles::kit::report::log_failure;
use crate::roles::kit::{End, Run, Telling};
use crate::roles::provisioner::metrics;

use super::error::{DeleteReason, is_of_the_volume};
use super::policy::View;
use super::progress::Progress;

/// The reports of an attempt that began with `first`.
pub(super) fn tell(first: &View, progress: &Progress, end: &End<'_, DeleteReason>, run: &Run<'_>) -> Vec<Telling> {
    let class = first.volume.spec.storage_class_name.as_deref().unwrap_or_default().to_owned();
    let labels = vec![("class", class)];
    match end {
        End::Settled if progress.is_complete() => {
            info!("the volume and its persistentvolume are gone");
            let took = run.now.saturating_duration_since(progress.begun);
            vec![
                Telling::Count(&metrics::DELETE_TOTAL, labels.clone()),
                Telling::Took(&metrics::DELETE_DURATION, labels, took),
                Telling::Did("deleted", first.volume.subject()),
            ]
        }
        End::Settled => Vec::new(),
        End::Failed(error) => {
            log_failure!(run, error, {}, "could not delete the volume, or keep its finalizer");
            if !is_of_the_volume(error) {
                return Vec::new();
            }
            // The same text is one Event, counted now and then.
            let on = EventTarget::of(first.volume.as_ref());
            let event = first.rules.has_events.then(|| Telling::warning(on, "VolumeFailedDelete", error.message()));
            event.into_iter().chain([Telling::Count(&metrics::DELETE_FAILED, labels)]).collect()
        }
    }
}
