//! Asks the driver how its volumes are, and tells the owners of their claims: what external-health-monitor does, in both generations of
//! CSI, and what it should have done (node-and-health spec C1 to C7).
//!
//! ```text
//! rounds ──┬─ a list of what is not healthy ──> pass ──┐        (CSI 1.13)
//!          └─ each volume in its turn ────────────────>├─> queue of handles ──> reconcile ──> policy (P) ──> status, Events
//! claims and volumes that are bound ──> triggers ──────┘
//! ```
//!
//! - A key is the driver's id of a volume: one question, whatever the number of its claims.
//! - Only an answer of the driver makes a volume healthy again, and only one that came after the last bad news. Errors, absences and
//!   kinds of faults that are not known never do (I1).
//! - The claim's status, or an Event, holds what was told. The term's memory may be lost: then the driver is asked once more.
//! - Lease, Events and metrics have the names of external-health-monitor, so that either can take over from the other.
//!
//! Not here yet:
//!
//! - what asks and writes: only what is decided is here;
//! - the pass over `ListVolumes` that the role shares with the reconciler, for drivers before CSI 1.13 without `ControllerGetVolume`;
//! - `nodeWatch`: Events about volumes on nodes that have failed;
//! - the line in [`ROLES`](super::ROLES), and with it what users see: until then no daemon hosts the role.

pub mod condition;
mod config;
pub mod policy;
pub mod source;
pub mod view;

pub use self::config::{HealthMonitorSection, Report};
