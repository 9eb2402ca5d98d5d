//! What stands on a content, and what is written to it. Pure.
//!
//! ```text
//! kind.rs      what tells kinds of contents apart     facts.rs     what a content says
//! request.rs   name and parameters of the request     intent.rs    the request, durable in an annotation
//! writes.rs    the patches of metadata                status.rs    what of an answer changes the status
//! found.rs     what the driver describes              unknown.rs   values that the role does not know
//! across.rs    what groups and the contents of their snapshots mean for each other
//! needed.rs    why a snapshot of a group is needed    wait.rs      what a content waits for
//! error.rs     the reasons, and the requests that may fail; operation.rs: for what
//! ```

pub mod across;
pub mod error;
pub mod facts;
#[cfg(test)]
pub(in crate::roles::snapshotter) mod fixtures;
pub mod found;
pub mod intent;
pub mod kind;
pub mod needed;
pub mod operation;
pub mod request;
pub mod status;
pub mod unknown;
pub mod wait;
pub mod writes;

pub use error::{ContentError, InvalidSnapshot, Stop};
pub use facts::ClassView;
pub use found::{Found, Odd};
pub use kind::{Class, Content, described};
pub use needed::{Needed, Ownership};
pub use operation::Operation;
pub use request::{Asked, NameRule, Request, RequestRules};
pub use wait::Wait;
