//! Works claims: asks the driver for a claim's volume, stores its PersistentVolume, or deletes the volume again.
//!
//! ```text
//! claims queue ──> reconcile ──> observe ──> decide (P) ──> perform: create | discard
//!                      └──────── state (P): what the driver was asked and has answered <── what has happened
//! ```

pub(super) mod attempt;
pub mod claim;
pub(super) mod create;
pub mod decide;
pub(super) mod discard;
pub mod entry;
pub mod error;
pub mod evidence;
pub mod finality;
pub mod histories;
pub mod name_status;
pub(super) mod observe;
pub mod pending_on;
pub(super) mod perform;
pub mod phase;
pub(super) mod reconcile;
mod report;
pub mod request;
pub mod response;
pub mod state;
pub mod states;
pub mod transition;
pub mod view;
pub mod volume;

pub(super) use reconcile::ClaimReconciler;
