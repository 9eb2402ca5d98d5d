//! Records the Events of claims.

use crate::cluster::{EventKind, EventTarget};
use crate::roles::kit::EventsMode;
use crate::roles::provisioner::claims::claim::Claim;
use crate::roles::provisioner::context::Context;

impl Context {
    /// Records an Event on a claim, unless Events are off.
    pub(super) fn tell_claim(&self, claim: &Claim, kind: EventKind, reason: &str, note: &str) {
        if self.section.events == EventsMode::None {
            return;
        }
        self.scope.event(&EventTarget::of(claim.object.as_ref()), kind, reason, note);
    }
}
