//! Groups of snapshots (snapshotter spec 10): what their contents have of their own beside [`super::content`].
//!
//! ```text
//! kind.rs      names, what a content says, what of an answer changes its status: pure
//! look_up.rs   when GetVolumeGroupSnapshot is called: pure       found.rs      the driver's answer: pure
//! call.rs      the calls                                         presence.rs   whether the cluster has the kinds
//! ```
//!
//! - **A group that is cut and not ready is asked for by its id**, where a snapshot is asked for by its request once more:
//!   `GetVolumeGroupSnapshot` comes with the same capability as the other calls, and needs no turn of any volume.
//! - **Its members are the snapshot-controller's.** It makes their contents once handle and members are in the status, and deletes
//!   them with the group; the role releases them, and never asks the driver to delete one.

mod call;
#[cfg(test)]
mod fixtures;
mod found;
mod kind;
mod look_up;
pub(super) mod presence;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod serve_tests;
#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
