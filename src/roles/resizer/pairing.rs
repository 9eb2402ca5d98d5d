//! One write for both changes of a claim, where the driver needs both calls at once (resizer spec 5.3). Pure.
//!
//! ```text
//! first change:  offers its patch ── waits ──┬── the other one has written both             Meeting::Written
//!                                            └── it does not come, or writes elsewhere      Meeting::Over: writes alone
//! second change: finds the offer ─────────────────────────────────────────────────────────  writes both
//! ```
//!
//! Their attempts are of one group, and hold the lock of the volume together. An offer is in the memory of its change. It is good for the
//! version of the object that it was made from.

use std::time::Duration;

use serde_json::Value;

use crate::cluster::Patch;

use super::progress::{Pairing, Progress};
use super::step::{Offer, Place, Step, Write};
use super::view::{Partner, View};
use super::writes;

/// How long a mark waits for the other change's: the calls are to reach the driver within 100 ms.
const MARK_PATIENCE: Duration = Duration::from_millis(50);
/// How long a result waits for the other change's. A driver that merges both calls answers them together.
const RESULT_PATIENCE: Duration = Duration::from_millis(500);

/// What has come of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// The other change may still come.
    Waits,
    /// It has written both.
    Written,
    /// The object has another version.
    Outdated,
    /// It does not come.
    Over,
}

/// How a write is done: alone, with what the other change offers, or by the other change.
pub fn meet(view: &View, progress: &Progress, write: Write) -> Step {
    let Some(partner) = &view.partner else { return Step::Write(write) };
    let place = write.place();
    let version = view.version(place);
    if let Pairing::Offers(offer) = &partner.pairing
        && offer.place == place
        && offer.version == version
    {
        return Step::WriteBoth(write, offer.clone());
    }
    let may_come = may_come(view, partner, write.is_begin()) && (write.is_begin() || write.is_result());
    match writes::patch(view, progress, &write) {
        Some(Patch::Strategic(patch)) if may_come && progress.offered.as_deref() != Some(version) => {
            Step::Meet(write, Offer { place, version: version.into(), patch })
        }
        _ => Step::Write(write),
    }
}

/// What has come of an offer that was made so long ago.
pub fn meeting(now: &View, write: &Write, offer: &Offer, waited: Duration) -> Meeting {
    let Some(partner) = &now.partner else { return Meeting::Over };
    let is_mine = |place: Place, version: &str| place == offer.place && version == offer.version;
    let patience = if write.is_begin() { MARK_PATIENCE } else { RESULT_PATIENCE };
    match &partner.pairing {
        Pairing::Took(place, version) if is_mine(*place, version) => Meeting::Written,
        Pairing::Takes(place, version) if is_mine(*place, version) => Meeting::Waits,
        _ if now.version(offer.place) != offer.version => Meeting::Outdated,
        _ if waited >= patience || !may_come(now, partner, write.is_begin()) => Meeting::Over,
        _ => Meeting::Waits,
    }
}

/// Whether the other change may come with a write. One that offers waits elsewhere, unless its offer is outdated: it finds that out in a
/// moment.
fn may_come(view: &View, partner: &Partner, is_begin: bool) -> bool {
    let is_busy = matches!(&partner.pairing, Pairing::Offers(offer) if view.version(offer.place) == offer.version);
    (partner.is_at_work || (is_begin && partner.is_wanted)) && !is_busy
}

/// Both patches in one: members of both, and the items of both lists. What both say they say alike.
pub fn merged(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Object(mut one), Value::Object(other)) => {
            for (name, value) in other {
                let both = match one.remove(&name) {
                    Some(held) => merged(held, value),
                    None => value,
                };
                one.insert(name, both);
            }
            Value::Object(one)
        }
        (Value::Array(mut one), Value::Array(other)) => {
            one.extend(other);
            Value::Array(one)
        }
        (_, other) => other,
    }
}
