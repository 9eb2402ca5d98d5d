//! Reports the outcome of an attempt: Kubernetes Events, metrics, one log line, the status page.

use tracing::debug;

use crate::cluster::{ApiErrorKind, EventKind, EventTarget};
use crate::process::error_chain;
use crate::queue::{Outcome, Ticket};
use crate::roles::kit::report::{gist, log_failure};
use crate::roles::kit::{AttemptError, EventsMode};

use super::context::{Context, Objects};
use super::error::{ChangeError, InvalidChange, LOAD_SECRET, RECORD_SIZE};
use super::memory::{Job, WorkKey};
use super::metrics;
use super::waiting::Reason;

impl Context {
    /// An Event on the claim.
    pub(super) fn event(&self, now: &Objects, kind: EventKind, reason: &str, note: &str) {
        if self.section.events != EventsMode::None {
            self.scope.event(&EventTarget::of(now.claim.as_ref()), kind, reason, note);
        }
    }

    /// A Normal Event for an attempt that is not the first. Only with `events: all`.
    pub(super) fn tell_of_attempt(&self, now: &Objects, reason: &str, note: &str) {
        if self.section.events == EventsMode::All {
            self.event(now, EventKind::Normal, reason, note);
        }
    }

    /// A Warning on the claim: once for each text, where IDs do not count as a difference.
    pub(super) fn warn(&self, now: &Objects, job: Job, reason: &str, note: &str, gist: &str) {
        let is_news = self.told.is_news((now.uid().to_owned(), job), gist);
        if is_news || self.section.events == EventsMode::All {
            self.event(now, EventKind::Warning, reason, note);
        }
    }

    /// The attempt has ended with nothing left to do.
    pub(super) fn report_settled(&self, uid: &str, job: Job) {
        self.told.forget(&(uid.to_owned(), job));
        self.waiting.forget(uid, job);
    }

    /// The controller's part of the change is done.
    pub(super) fn report_time(&self, ticket: &Ticket<WorkKey>, job: Job) {
        let labels = [("driver_name", self.scope.driver_name.as_str()), ("operation", job.label())];
        self.scope.meter.histogram(&metrics::CHANGE_DURATION, &labels).record(ticket.age().as_secs_f64());
    }

    /// The claim waits, and the status page and a metric say for what.
    pub(super) fn report_waiting(&self, ticket: &Ticket<WorkKey>, now: &Objects, reason: Reason, says: &str) {
        ticket.note(says);
        self.waiting.note(&now.name(), now.uid(), ticket.key().job, reason, says);
    }

    /// The attempt failed: reports this in an Event, which ends with `suffix`, in metrics and in the log. Returns when to try again.
    pub(super) fn report_failure(
        &self,
        ticket: &Ticket<WorkKey>,
        now: &Objects,
        error: &ChangeError,
        suffix: &str,
    ) -> Outcome {
        let (job, message) = (ticket.key().job, error.message());
        if is_expected(error) {
            debug!(error = message, "looking again");
        } else {
            log_failure!(
                self.failures,
                self.scope.clock.now(),
                error,
                { persistent_volume = now.volume_name(), operation = job.label(), attempt = ticket.attempt() + 1, },
                "attempt failed"
            );
        }
        self.count_failure(job, error.label());
        if let Some((reason, note)) = self.warning(now, job, error) {
            let note = note + suffix;
            self.warn(now, job, reason, &note, &gist(&note));
        }
        self.report_waiting(ticket, now, Reason::Backoff, &message);
        match error {
            // Only another driver, or another request of the user, can help. Both wake the key.
            AttemptError::Reason(InvalidChange::NoExpansion(_) | InvalidChange::NoModification(_)) => {
                self.waiting.forget(now.uid(), job);
                Outcome::Settled
            }
            AttemptError::Reason(InvalidChange::NotStored(..)) => Outcome::RetryAfter(self.section.retry.max),
            _ => error.outcome(),
        }
    }

    /// The driver has refused, and the write to the claim's status failed. An Event reports the refusal; this logs the failed write.
    pub(super) fn log_unrecorded(&self, now: &Objects, job: Job, error: &ChangeError) {
        if is_expected(error) {
            debug!(error = error.message(), "looking again");
            return;
        }
        log_failure!(
            self.failures,
            self.scope.clock.now(),
            error,
            { persistent_volume = now.volume_name(), operation = job.label(), },
            "the driver has refused, and the claim's status does not say so"
        );
    }

    fn count_failure(&self, job: Job, label: &str) {
        let labels = [("driver_name", self.scope.driver_name.as_str()), ("operation", job.label()), ("error", label)];
        self.scope.meter.counter(&metrics::CHANGE_ERRORS, &labels).increment(1);
    }

    /// The Event for a failure, in the words of csi-resizer. `None` for a write that only has to be repeated.
    fn warning(&self, now: &Objects, job: Job, error: &ChangeError) -> Option<(&'static str, String)> {
        let reason = match job {
            Job::Expand => "VolumeResizeFailed",
            Job::Modify => "VolumeModifyFailed",
        };
        let (volume, driver) = (now.volume_name(), self.scope.driver_name.as_str());
        let is_plain = matches!(
            error,
            AttemptError::Reason(
                InvalidChange::NoExpansion(_)
                    | InvalidChange::NoModification(_)
                    | InvalidChange::NoClass(_)
                    | InvalidChange::ForeignClass { .. }
            )
        );
        let note = match (error, job) {
            (AttemptError::Op(_), _) if error.is_of(LOAD_SECRET) => worded(job, volume, driver, &secret_text(error)),
            (AttemptError::Op(_), Job::Expand) if error.is_of(RECORD_SIZE) && !is_transient(error) => format!(
                "error updating pv \"{volume}\" by resizer: update capacity of PV {volume} failed: {}",
                error.message()
            ),
            (
                AttemptError::Op(_)
                | AttemptError::Unseen(..)
                | AttemptError::Endless(_)
                | AttemptError::Reason(InvalidChange::UnseenClass(_) | InvalidChange::Replaced(_)),
                _,
            ) => return None,
            (AttemptError::Reason(_), _) if is_plain => error.message(),
            (AttemptError::Reason(_) | AttemptError::Driver(_), _) => worded(job, volume, driver, &error.message()),
        };
        Some((reason, note))
    }
}

fn worded(job: Job, volume: &str, driver: &str, text: &str) -> String {
    match job {
        Job::Expand => format!("resize volume \"{volume}\" by resizer \"{driver}\" failed: {text}"),
        Job::Modify => text.to_owned(),
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

/// Whether the error also happens in a healthy cluster. Such an error is not logged as a failure.
fn is_expected(error: &ChangeError) -> bool {
    error.api().is_some_and(|error| error.kind().is_stale() || error.kind() == ApiErrorKind::NotFound)
}
