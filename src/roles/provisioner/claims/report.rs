//! Reports how attempts at claims end: Kubernetes Events, metrics, one log line. Reporting only reads.
//!
//! Each new failure and each recovery is reported once. The Go sidecar writes the same Event for every attempt. An ignored claim is no
//! failure.

use tracing::{debug, info, warn};

use crate::cluster::{ApiError, EventKind, EventTarget};
use crate::process::ErrorChain;
use crate::queue::Ticket;
use crate::roles::kit::report::log_failure;

use super::attempt::State;
use super::claim::{Claim, ClaimKey};
use super::decide::Ignored;
use super::error::{AttemptError, Told};
use super::observe::{Look, Observed};
use super::phase::Phase;
use super::reconcile::ClaimReconciler;
use crate::roles::kit::EventsMode;
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::sources::source::{Source, normalise};

/// What the log and the Event say of a request that is left alone.
const LEFT_OVER: &str = "the driver was asked for this volume, and its claim is gone: the volume may be left over, or its data may have been kept, so it is not deleted; the status page says what to do";

/// If the journal has more requests than this, claims that succeed at once get no Event.
const BURST: usize = 36;

impl Context {
    /// Whether so many claims are being provisioned that the writes of their Events would delay them.
    fn is_burst(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.len() > BURST)
    }
}

impl Look<'_> {
    /// The class and the kind of the source, as labels of metrics. A label must not have a text that a claim's author can choose freely,
    /// because each text would be a new series. So the class is the one of the request, or an existing one, or empty.
    fn labels(&self, claim: &Claim) -> (String, &'static str) {
        let own = claim.key.name.namespace().unwrap_or_default();
        let source = normalise(&claim.object.spec, own, true).unwrap_or(Source::None);
        let asked = self.known().request().map(|request| request.plan.class.as_str());
        let known = asked.or_else(|| claim.class.as_deref().filter(|_| self.cx.class_of(claim).is_some()));
        (known.unwrap_or_default().to_owned(), source.kind())
    }

    /// The driver is about to be called. Returns whether an Event says so.
    pub(super) fn tell_begins(&self) -> bool {
        debug!(resumed = self.known().is_resumed(), "asking the driver for the volume");
        let tells_all = self.cx.section.events == EventsMode::All;
        if tells_all {
            self.say_provisioning();
        }
        tells_all
    }

    fn say_provisioning(&self) {
        let claim = &self.known().claim;
        let note = format!("External provisioner is provisioning volume for claim \"{}\"", claim.key.name);
        self.cx.tell_claim(claim, EventKind::Normal, "Provisioning", &note);
    }

    /// The driver is slow. Writes an Event, if there is none yet, and returns `true`.
    pub(super) fn tell_provisioning(&self) -> bool {
        // With `events: all` the beginning of the attempt has said so.
        if !self.known().reported.provisioning && self.cx.section.events != EventsMode::All {
            self.say_provisioning();
        }
        true
    }

    /// The snapshot has no finalizer while it is restored. Reported once for each claim.
    pub(super) fn tell_unprotected(&self, error: &ApiError) {
        if self.known().reported.unprotected {
            return;
        }
        warn!(error = %ErrorChain(error), "cannot protect the snapshot: restoring it unprotected");
        let note = format!("the snapshot is restored without protection against deletion: {}", ErrorChain(error));
        self.cx.tell_claim(&self.known().claim, EventKind::Warning, "SourceUnprotected", &note);
    }

    /// The result of a request that an earlier term had sent.
    pub(in crate::roles::provisioner) fn tell_resumed(&self, result: &str) {
        if self.known().is_resumed() {
            self.cx.reporter.resumed(result);
        }
    }

    /// A volume that no claim wants, or that could not be used, was deleted again.
    pub(super) fn tell_discarded(&self, volume: &str) {
        info!(volume, "deleted the volume: no claim wants it, or it could not be used");
        self.tell_resumed("reclaimed");
        self.cx.reporter.reclaimed();
    }

    /// The claim no longer waits for its volume, and nothing proves that no PersistentVolume was stored for it. The volume is kept.
    pub(super) fn tell_left_over(&self, now: &Observed) {
        let claim = &self.known().claim;
        let volume = self.volume_name(claim).unwrap_or_default();
        warn!(persistent_volume = volume, persistent_volume_claim = %claim.key.name, "{LEFT_OVER}");
        self.tell_resumed("left_over");
        if now.present {
            self.cx.tell_claim(
                claim,
                EventKind::Warning,
                "VolumeMayBeLeftOver",
                &format!("volume {volume}: {LEFT_OVER}"),
            );
        }
    }

    /// A volume that the claim no longer wants was left to another PersistentVolume. This is not tried again, but the user must know.
    pub(super) fn tell_left(&self, error: &AttemptError) {
        self.cx.tell_claim(&self.known().claim, EventKind::Warning, "ProvisioningFailed", &error.message());
    }

    /// The claim has its volume.
    pub(super) fn tell_success(&self, now: &Observed, ticket: &Ticket<ClaimKey>) {
        self.tell_resumed("found");
        let (cx, claim) = (self.cx, &now.claim);
        cx.sources_may_be_free(claim);
        // Only once, although the claim may be reconciled again.
        let Phase::Stored { success: Some(success), .. } = self.known().phase() else { return };
        let (class, source) = self.labels(claim);
        let took = cx.scope.clock.now().saturating_duration_since(success.begun);
        // A claim with a request has a volume name.
        let name = self.volume_name(claim).unwrap_or_default();
        info!(
            persistent_volume = name,
            volume = success.volume.volume_id,
            storage_class = class,
            seconds = took.as_secs_f64(),
            "provisioned"
        );
        ticket.did("provisioned", Some(format!("{}: {name}", ticket.key())));
        match success.volume.affinity.as_deref() {
            Some(segments) => cx.capacity.invalidate_segments(segments),
            None => cx.capacity.invalidate(&class),
        }
        cx.reporter.provisioned(&class, source, took);
        let reported = &self.known().reported;
        let note = format!("Successfully provisioned volume {name}");
        if reported.provisioning || reported.failure.is_some() || cx.section.events == EventsMode::All {
            cx.tell_claim(claim, EventKind::Normal, "ProvisioningSucceeded", &note);
        } else if cx.section.events != EventsMode::None && !cx.is_burst() {
            cx.scope.event_low(
                &EventTarget::of(claim.object.as_ref()),
                EventKind::Normal,
                "ProvisioningSucceeded",
                &note,
            );
        }
    }

    /// There is nothing to do for the claim.
    pub(super) fn tell_ignored(&self, why: Ignored) {
        debug!(?why, "ignored");
        let (cx, claim) = (self.cx, &self.known().claim);
        cx.sources_may_be_free(claim);
        if why == Ignored::Populator {
            let note = "Assuming an external populator will provision the volume";
            cx.tell_claim(claim, EventKind::Normal, "Provisioning", note);
        }
    }

    /// An attempt failed: reports this in an Event and in metrics. Returns the failure's gist if an Event was written.
    pub(super) fn tell_failed(&self, now: &Observed, error: &AttemptError) -> Option<String> {
        let cx = self.cx;
        // A claim whose PersistentVolume is stored is provisioned, and an Event has said so. What is left concerns only the daemon.
        if self.known().is_stored() || !self.is_wanted(now) {
            return None;
        }
        let (class, source) = self.labels(&now.claim);
        cx.reporter.provision_failed(&class, source);
        if error.is_of_the_driver() {
            cx.capacity.invalidate(&class);
        }
        let news = error.gist();
        if self.known().reported.failure.as_ref() == Some(&news) && cx.section.events != EventsMode::All {
            return None;
        }
        let note = format!("failed to provision volume: {}", error.told());
        cx.tell_claim(&now.claim, EventKind::Warning, "ProvisioningFailed", &note);
        Some(news)
    }
}

impl ClaimReconciler {
    /// An attempt failed: reports this in the log, on the status page, in an Event and in metrics. Returns the failure's gist if an
    /// Event was written.
    pub(super) fn tell_failure(
        &self,
        ticket: &Ticket<ClaimKey>,
        state: &State,
        now: &Observed,
        error: &AttemptError,
    ) -> Option<String> {
        let cx = &self.cx;
        let attempt = ticket.attempt() + 1;
        log_failure!(cx.failures, cx.scope.clock.now(), Told(error), { attempt, }, "provisioning failed");
        ticket.note(error.told());
        Look { cx, state }.tell_failed(now, error)
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "report_tests.rs"]
mod tests;
