//! Leadership: one Lease, one holder at a time, and the proof of it that every write must show.
//!
//! ```text
//!   Lease in the API <── GET, POST, PUT(resourceVersion), watch ── elector ──> Leadership ──> Gate
//!                                                                    │                         │ next()
//!                              decide, record [pure]: what to do     │ renews, ends            ▼
//!                                                                    └───────────────────> Term <── TermGuard
//!                                                                                           │
//!                                   role's writing client <── use_now()? ── Fenced<C> <── fence()
//! ```
//!
//! Contract: two processes never hold overlapping terms, as long as their clocks run at about the same speed. A term ends
//! at the latest one renew deadline after the *start* of the last renewal that succeeded, by the local clock and whether
//! or not the elector was running meanwhile; another takes over at the earliest one lease duration after it *saw* that
//! renewal, which is later.
//!
//! Decisions:
//!
//! - **The record is client-go's**, so that a Go sidecar and this daemon keep each other out. Wall-clock times are
//!   written for people; nothing compares them.
//! - **The Lease is watched**, by standbys and by the holder: a release is noticed at once, an expiry at its exact
//!   moment, a theft or a deletion as it happens. Polling each retry period is the fallback.
//! - **A deleted Lease is not a released one.** A standby that saw it held waits until it would have expired; the holder,
//!   which sees the deletion too, makes it anew. (client-go creates it at once, and two lead for some seconds.)
//! - **Releasing comes last.** An elector that is told to stop goes on renewing while a [`TermGuard`] lives, so that
//!   work in flight ends under a valid Lease.
//! - **A lost Lease ends a term**, not the process: the elector is a candidate again.
//! - Monotonic time doesn't count a suspended machine. A leader on one that is suspended longer than its Lease could
//!   write once after waking; servers aren't suspended, and preconditions on every patch limit the harm.

mod config;
mod decide;
mod elector;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod fake_api;
mod gate;
mod lease_client;
mod lease_watch;
mod publisher;
mod record;
mod settings;
mod status;
mod term;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod tests;

pub use config::LeaderElectionSection;
pub use elector::{ElectionError, Elector};
pub use gate::{Gate, Leadership};
pub use lease_client::LeaseError;
pub use settings::{LeaseSettings, SettingsError, identity};
pub use status::{ElectionStatus, ElectionView, Stalled};
pub use term::{Fenced, Term, TermGuard, TermOver};
