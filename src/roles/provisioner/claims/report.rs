//! Reports how attempts at claims end: Kubernetes Events, metrics, one log line. Reporting reads, and changes nothing.
//!
//! People hear of changes: the Go sidecar tells of every attempt, and says the same of each. What is ignored is no failure.

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

/// With more requests than this in the journal, nobody reads an Event of each claim that goes smoothly.
const BURST: usize = 36;

impl Context {
    /// Whether so many claims are provisioned at once that the writes of their Events would delay them.
    fn is_burst(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.len() > BURST)
    }
}

impl Look<'_> {
    /// The class and the kind of the source, for figures. What a claim's author may write freely is no label, or each would be
    /// a series for good: only a class that there is counts, or the one that the driver was asked with.
    fn labels(&self, claim: &Claim) -> (String, &'static str) {
        let own = claim.key.name.namespace().unwrap_or_default();
        let source = normalise(&claim.object.spec, own, true).unwrap_or(Source::None);
        let asked = self.known().request().map(|request| request.plan.class.as_str());
        let known = asked.or_else(|| claim.class.as_deref().filter(|_| self.cx.class_of(claim).is_some()));
        (known.unwrap_or_default().to_owned(), source.kind())
    }

    /// The driver is about to be asked. Says whether people were told.
    pub(super) fn tell_begins(&self) -> bool {
        debug!(resumed = self.known().is_resumed(), "asking the driver for the volume");
        self.cx.section.events == EventsMode::All && self.tell_provisioning()
    }

    /// It takes its time. Says whether people were told, by now or before.
    pub(super) fn tell_provisioning(&self) -> bool {
        let (claim, reported) = (&self.known().claim, &self.known().reported);
        if !reported.provisioning {
            let note = format!("External provisioner is provisioning volume for claim \"{}\"", claim.key.name);
            self.cx.tell_claim(claim, EventKind::Normal, "Provisioning", &note);
        }
        true
    }

    /// Nothing keeps the snapshot while it is restored: once for each claim, however often it is tried.
    pub(super) fn tell_unprotected(&self, error: &ApiError) {
        if self.known().reported.unprotected {
            return;
        }
        warn!(error = %ErrorChain(error), "cannot protect the snapshot: restoring it unprotected");
        let note = format!("the snapshot is restored without protection against deletion: {}", ErrorChain(error));
        self.cx.tell_claim(&self.known().claim, EventKind::Warning, "SourceUnprotected", &note);
    }

    /// What became of a claim that another process, or an earlier term, had begun.
    pub(in crate::roles::provisioner) fn tell_resumed(&self, result: &str) {
        if self.known().is_resumed() {
            self.cx.reporter.resumed(result);
        }
    }

    /// A volume that is not wanted, or cannot be used, was deleted again.
    pub(super) fn tell_discarded(&self, volume: &str) {
        info!(volume, "deleted the volume: no claim wants it, or it could not be used");
        self.tell_resumed("reclaimed");
        self.cx.reporter.reclaimed();
    }

    /// A volume that the claim has no use for was left to another PersistentVolume: nothing that is tried again, but people must
    /// know.
    pub(super) fn tell_left(&self, error: &AttemptError) {
        self.cx.tell_claim(&self.known().claim, EventKind::Warning, "ProvisioningFailed", &error.message());
    }

    /// The claim has its volume.
    pub(super) fn tell_success(&self, now: &Observed) {
        self.tell_resumed("found");
        let (cx, claim) = (self.cx, &now.claim);
        cx.sources_may_be_free(claim);
        // Once, though the claim may still have to be released.
        let Phase::Stored { success: Some(success), .. } = self.known().phase() else { return };
        let (class, source) = self.labels(claim);
        let took = cx.scope.clock.now().saturating_duration_since(success.begun);
        // What was asked for has a name.
        let name = self.volume_name(claim).unwrap_or_default();
        info!(
            persistent_volume = name,
            volume = success.volume.volume_id,
            storage_class = class,
            seconds = took.as_secs_f64(),
            "provisioned"
        );
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
        match why {
            Ignored::Populator => {
                let note = "Assuming an external populator will provision the volume";
                cx.tell_claim(claim, EventKind::Normal, "Provisioning", note);
            }
            Ignored::InTree => {
                let class = claim.class.as_deref().unwrap_or_default();
                let note = format!(
                    "StorageClass \"{class}\" is of an in-tree plugin, whose migration to {} is not supported: \
                     use a class whose provisioner is {}",
                    cx.rules.driver, cx.rules.driver
                );
                cx.tell_claim(claim, EventKind::Warning, "ProvisioningFailed", &note);
            }
            _ => {}
        }
    }

    /// An attempt failed: says so in an Event and in the figures. Returns the failure's gist where people were told of it.
    pub(super) fn tell_failed(&self, now: &Observed, error: &AttemptError) -> Option<String> {
        let cx = self.cx;
        // One whose volume object is stored is provisioned, and was told so: what is left is our affair.
        if self.known().is_stored() || !self.is_wanted(now) {
            return None;
        }
        let (class, source) = self.labels(&now.claim);
        cx.reporter.provision_failed(&class, source);
        if error.is_of_the_driver() {
            cx.capacity.invalidate(&class);
        }
        let news = error.gist();
        if self.known().reported.failure.as_ref() == Some(&news) {
            return None;
        }
        let note = format!("failed to provision volume: {}", error.told());
        cx.tell_claim(&now.claim, EventKind::Warning, "ProvisioningFailed", &note);
        Some(news)
    }
}

impl ClaimReconciler {
    /// An attempt failed: says so in the log, on the status page, in an Event and in the figures. Returns the failure's gist where
    /// an Event tells of it. Nothing changes by it.
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
