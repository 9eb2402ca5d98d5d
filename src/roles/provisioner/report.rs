//! Reports deletions, and records the role's Events.

use tracing::info;

use crate::cluster::{EventKind, EventTarget, PersistentVolume, Reach};
use crate::queue::{Outcome, Ticket};
use crate::roles::kit::EventsMode;
use crate::roles::kit::report::log_failure;
use crate::roles::provisioner::claims::claim::Claim;
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::deletion::error::{DeleteError, is_of_the_volume};
use crate::roles::provisioner::topology::Segment;

impl Context {
    /// An attempt at a volume failed.
    pub(super) fn deletion_failed(
        &self,
        ticket: &Ticket<String>,
        volume: &PersistentVolume,
        error: &DeleteError,
    ) -> Outcome {
        let message = error.message();
        log_failure!(
            self.failures,
            self.scope.clock.now(),
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
        // Keep the uid until the cache has seen that the object is gone: an earlier wake-up of the key must not delete
        // twice.
        info!("the volume and its persistentvolume are gone");
        // We never write a term with several values for one key.
        let segment = |term: &Reach| {
            let inside = term.match_expressions.iter().filter(|requirement| requirement.operator == "In");
            Segment::new(inside.filter_map(|one| Some((one.key.to_string(), one.values.first()?.to_string()))))
        };
        let mut segments: Vec<Segment> = volume.spec.node_affinity.iter().map(segment).collect();
        if segments.is_empty() {
            segments.push(Segment::default());
        }
        self.capacity.invalidate_segments(&segments);
    }

    /// Records an Event on a claim, unless Events are off.
    pub(super) fn tell_claim(&self, claim: &Claim, kind: EventKind, reason: &str, note: &str) {
        if self.section.events == EventsMode::None {
            return;
        }
        self.scope.event(&EventTarget::of(claim.object.as_ref()), kind, reason, note);
    }

    fn tell_volume(&self, volume: &PersistentVolume, reason: &str, note: &str) {
        if self.section.events == EventsMode::None {
            return;
        }
        self.scope.event(&EventTarget::of(volume), EventKind::Warning, reason, note);
    }
}
