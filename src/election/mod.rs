//! Leadership: one Lease, one holder at a time, and a proof of leadership that every write needs.
//!
//! ```text
//!   Lease in the API <── GET, POST, PUT(resourceVersion), watch ── elector ──> Leadership ──> Gate
//!   pod of its holder <── watch ───────────────────────────────────────┤                         │ next()
//!               decide, record, identity, proof [pure]: what to do   │ renews, ends            ▼
//!                                                                    └───────────────────> Term <── TermGuard
//!                                                                                           │ may_write(), permit()
//!                                                     each client that writes <─────────────┘
//! ```
//!
//! Contract: two processes never hold overlapping terms, as long as their clocks run at about the same speed. A term
//! ends at the latest one renew deadline after the *start* of the last successful renewal, by the local clock, even if
//! the elector does not run in that time. Another process takes over at the earliest one lease duration after it *saw*
//! that renewal, which is later.
//!
//! Decisions:
//!
//! - **The record has client-go's format**, so that a Go sidecar and this daemon exclude each other. Wall-clock times
//!   are written for people; no code compares them.
//! - **Standbys and the holder watch the Lease**: they notice a release, a deletion or a take-over at once, and an
//!   expiry at its exact time. Polling each retry period is the fallback.
//! - **A process that has provably ended keeps nobody out.** An identity names the pod, its uid and the container of the one process that
//!   holds the container's lock. The next holder of this lock takes the Lease at once: see `container`. A standby watches the pod of
//!   the holder, and takes the Lease when the kubelet reports the end of this very process: see `proof`. A pod that is gone, not
//!   ready, or on a lost node is no proof, and a Go sidecar names no container: then the Lease decides. What an ended process has
//!   sent may still arrive, as after any crash: preconditions, the journal and idempotent calls are for that.
//! - **A deleted Lease does not count as released.** A standby that saw a holder waits until the Lease would have
//!   expired; the holder, which also sees the deletion, creates it again. (With client-go a standby creates it at once,
//!   and two processes lead for some seconds.)
//! - **Releasing comes last.** On stop, an elector continues to renew while a [`TermGuard`] exists, so that work in
//!   flight ends under a valid Lease.
//! - **A lost Lease ends a term**, not the process: the elector is a candidate again.
//! - The monotonic clock stops while a machine is suspended. After a suspension that is longer than the Lease, a leader
//!   could write once; servers aren't suspended, and preconditions on every patch limit the damage.

mod config;
mod container;
mod decide;
mod elector;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod fake_api;
mod gate;
mod holder_watch;
mod identity;
mod lease_client;
mod object_watch;
mod pace;
mod proof;
mod publisher;
mod record;
mod settings;
mod status;
mod term;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod tests;

pub use config::LeaderElectionSection;
pub use container::{Container, identity};
pub use elector::{ElectionError, Elector};
pub use gate::{Gate, Leadership};
pub use identity::pod_of;
pub use lease_client::{LeaseError, rehearse};
pub use settings::{LeaseSettings, SettingsError};
pub use status::{ElectionStatus, ElectionView, Stalled};
pub use term::{Term, TermGuard, TermOver};
