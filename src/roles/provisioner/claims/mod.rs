//! Works claims: asks the driver for a claim's volume, stores its PersistentVolume, or deletes the volume again.
//!
//! ```text
//! claims queue ──> reconcile ──> observe ──> policy, decide (P) ──> perform: source | create | discard
//!                      └──────── progress, memory (P): state, transition (P) <── what has happened
//!                                                 └──> report (P)
//! ```

pub mod answer;
pub mod context;
mod create;
pub mod decide;
mod discard;
pub mod entry;
pub mod error;
pub mod evidence;
pub mod histories;
pub mod memory;
pub mod name_status;
pub mod observe;
mod perform;
pub mod phase;
pub mod policy;
pub mod progress;
mod reconcile;
mod report;
pub mod request;
pub mod response;
mod source;
pub mod state;
pub mod transition;
pub mod view;
pub mod volume;

pub(super) use reconcile::Claims;
