//! Tells of failures and successes: Kubernetes Events, metrics, one log line.
//!
//! People hear of changes: the Go sidecar tells of every attempt, and says the same of each. What is ignored is no failure.

use std::time::Duration;

use tracing::{debug, info, warn};

use crate::cluster::{ApiError, EventKind, EventTarget, PersistentVolume, Reach};
use crate::process::ErrorChain;
use crate::queue::{Outcome, Ticket};
use crate::roles::provisioner::metrics;
use crate::telemetry::Meter;

use crate::roles::kit::report::{FailureLog, log_failure};
use crate::roles::provisioner::claims::attempt::State;
use crate::roles::provisioner::claims::claim::{Claim, ClaimKey};
use crate::roles::provisioner::claims::decide::Ignored;
use crate::roles::provisioner::claims::error::AttemptError;
use crate::roles::provisioner::claims::observe::{Look, Observed};
use crate::roles::provisioner::claims::reconcile::ClaimReconciler;
use crate::roles::provisioner::claims::state::Phase;
use crate::roles::provisioner::config::EventsChoice;
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::deletion::error::{DeleteError, is_of_the_volume};
use crate::roles::provisioner::sources::source::{Source, normalise};
use crate::roles::provisioner::topology::Segment;

/// The provisioner's figures.
#[derive(Debug)]
pub struct Reporter {
    meter: Meter,
    driver: String,
}

impl Reporter {
    /// Figures labelled with the driver's name.
    pub fn new(meter: Meter, driver: String) -> Self {
        let reporter = Self { meter, driver };
        reporter.show(Duration::ZERO, (0, 0));
        reporter
    }

    /// The term is over: what waits now is told by whoever leads.
    pub(super) fn retire(&self) {
        self.show(Duration::ZERO, (0, 0));
    }

    fn provisioned(&self, class: &str, source: &str, took: Duration) {
        let labels = [("class", class), ("source", source)];
        self.meter.counter(&metrics::PROVISION_TOTAL, &labels).increment(1);
        self.meter.histogram(&metrics::PROVISION_DURATION, &labels).record(took.as_secs_f64());
    }

    fn provision_failed(&self, class: &str, source: &str) {
        self.meter.counter(&metrics::PROVISION_FAILED, &[("class", class), ("source", source)]).increment(1);
    }

    pub(super) fn deleted(&self, class: &str, took: Duration) {
        let labels = [("class", class)];
        self.meter.counter(&metrics::DELETE_TOTAL, &labels).increment(1);
        self.meter.histogram(&metrics::DELETE_DURATION, &labels).record(took.as_secs_f64());
    }

    fn delete_failed(&self, class: &str) {
        self.meter.counter(&metrics::DELETE_FAILED, &[("class", class)]).increment(1);
    }

    fn resumed(&self, result: &str) {
        self.meter
            .counter(&metrics::VOLUMES_RESUMED, &[("driver_name", &self.driver), ("result", result)])
            .increment(1);
    }

    fn reclaimed(&self) {
        self.meter.counter(&metrics::VOLUMES_RECLAIMED, &[("driver_name", &self.driver)]).increment(1);
    }

    /// The oldest claim without its volume, how many volumes are unsaved, and how many answers are outstanding.
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no cluster has 2^52 claims")]
    pub(super) fn show(&self, oldest: Duration, (unsaved, outstanding): (usize, usize)) {
        let labels = [("driver_name", self.driver.as_str())];
        self.meter.gauge(&metrics::CLAIMS_OLDEST, &labels).set(oldest.as_secs_f64());
        self.meter.gauge(&metrics::UNSAVED_VOLUMES, &labels).set(unsaved as f64);
        self.meter.gauge(&metrics::CLAIMS_IN_BACKGROUND, &labels).set(outstanding as f64);
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
        self.cx.section.events == EventsChoice::All && self.tell_provisioning()
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
        let note =
            format!("the snapshot is restored without being protected from deletion meanwhile: {}", ErrorChain(error));
        self.cx.tell_claim(&self.known().claim, EventKind::Warning, "SourceUnprotected", &note);
    }

    /// What became of a claim that another process, or an earlier term, had begun.
    pub(super) fn tell_resumed(&self, result: &str) {
        if self.known().is_resumed() {
            self.cx.reporter.resumed(result);
        }
    }

    /// A volume that is not wanted, or cannot be used, was deleted again.
    pub(super) fn tell_discarded(&self, volume: &str) {
        info!(volume, "deleted the volume: nobody waits for it, or it could not be used");
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
        let took = cx.clock.now().saturating_duration_since(success.begun);
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
        if reported.provisioning || reported.failure.is_some() || cx.section.events == EventsChoice::All {
            let note = format!("Successfully provisioned volume {name}");
            cx.tell_claim(claim, EventKind::Normal, "ProvisioningSucceeded", &note);
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
        log_failure!(self.failures, cx.clock.now(), error, { attempt = ticket.attempt() + 1, }, "provisioning failed");
        ticket.note(error.told());
        Look { cx, state }.tell_failed(now, error)
    }
}

impl Context {
    /// An attempt at a volume failed.
    pub(super) fn deletion_failed(
        &self,
        failures: &FailureLog,
        ticket: &Ticket<String>,
        volume: &PersistentVolume,
        error: &DeleteError,
    ) -> Outcome {
        let message = error.message();
        log_failure!(
            failures,
            self.clock.now(),
            error,
            { attempt = ticket.attempt() + 1, },
            "could not delete the volume, or keep its finalizer"
        );
        ticket.note(message.clone());
        if is_of_the_volume(error) {
            self.reporter.delete_failed(volume.spec.storage_class_name.as_deref().unwrap_or_default());
            // The same text is one Event, counted now and then.
            self.tell_volume(volume, "VolumeFailedDelete", &message);
        }
        error.outcome()
    }

    /// A volume and its object are gone.
    pub(super) fn tell_deleted(&self, volume: &PersistentVolume) {
        // Its uid stays known until the cache has seen that it is gone: whatever wakes the key before must not delete twice.
        info!("the volume and its persistentvolume are gone");
        // A term with several values for a key was not made by us.
        let segment = |term: &Reach| {
            Segment::new(term.iter().filter_map(|(key, values)| Some((key.to_string(), values.first()?.to_string()))))
        };
        let mut segments: Vec<Segment> = volume.spec.node_affinity.iter().map(segment).collect();
        if segments.is_empty() {
            segments.push(Segment::default());
        }
        self.capacity.invalidate_segments(&segments);
    }

    fn tell_claim(&self, claim: &Claim, kind: EventKind, reason: &str, note: &str) {
        if self.section.events == EventsChoice::None {
            return;
        }
        let target = EventTarget::of(claim.object.as_ref());
        self.events.record(&target, kind, reason, note, self.term.permit());
    }

    fn tell_volume(&self, volume: &PersistentVolume, reason: &str, note: &str) {
        if self.section.events == EventsChoice::None {
            return;
        }
        self.events.record(&EventTarget::of(volume), EventKind::Warning, reason, note, self.term.permit());
    }
}
