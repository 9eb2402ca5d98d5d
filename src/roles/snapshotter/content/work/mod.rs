//! The work on contents.
//!
//! ```text
//! triggers.rs   what feeds the queue                      reconcile.rs   the reconciler
//! context.rs    what the attempts of a term share         neighbours.rs  what other contents mean for a content
//! memory.rs     what a term remembers of a content        elsewhere.rs   the contents that the daemon of a node does not watch
//! perform.rs    one request for each step                 call.rs        the calls to the driver
//! leftovers.rs  snapshots that a refusal may have left over
//! ```

pub mod call;
pub mod context;
pub mod elsewhere;
mod leftovers;
pub mod memory;
mod neighbours;
mod perform;
pub(in crate::roles::snapshotter) mod reconcile;
pub(in crate::roles::snapshotter) mod triggers;

pub use call::{Brought, Driven, LookedUp, Query};
pub use context::{Caches, Context};
