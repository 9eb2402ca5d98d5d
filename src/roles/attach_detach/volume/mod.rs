//! Volumes, each with all nodes that have it or want it: which VolumeAttachments are created and deleted.
//!
//! | file | |
//! |---|---|
//! | `gate` | whether a volume that no pod wants may be taken from a node (P) |
//! | `multi_attach` | whether a second node may have it (P) |
//! | `holders` | which other nodes keep an exclusive volume from a node (P) |
//! | `policy` | what to do next (P) |
//! | `news` | what pods are told of what they wait for (P) |
//! | `observe` | the view, read from caches and memory |
//! | `reconcile` | one request for each step |

pub mod gate;
mod holders;
pub mod multi_attach;
pub mod news;
mod observe;
pub mod policy;
mod reconcile;
mod report;
pub mod view;

pub(super) use self::observe::observe;
pub(super) use self::reconcile::Volumes;
