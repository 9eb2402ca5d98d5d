//! The work on a content, of a snapshot or of a group. [`record::kind::Content`] has the differences between the two; `single` and `group`
//! beside this module implement it. One executor serves both: a group has its own calls, look-up, answer and fields, but no step of its
//! own.
//!
//! ```text
//! record/   what stands on a content: facts, request, patches      policy/   what is done next: pure
//! work/     the cluster, the driver, and what a term remembers     told/     reports to people and metrics
//!
//! work ──> told ──> policy ──> record
//! ```
//!
//! Where this role differs from others:
//!
//! - **The driver's answer is durable before the attempt fails for it.** So a failure is an answer like others: the steps write status and
//!   mark, then the attempt ends with the failure. If the content waits for something, the attempt ends in the same way, without a write.
//! - **A step takes several locks**: those of the volumes of a group, and a place in the line of each. The attempt holds them from one
//!   step to the next, because P1 and the read that confirms come between the lock and the call.
//! - **The call that takes a snapshot has a write beside it**: mark and request come back as soon as another writer wipes them.
//! - **The memory forgets the unanswered call before our own write removes the mark.** The watch may show that write before its answer
//!   comes. The write would then look like another writer's, and the mark would come back.

pub mod policy;
pub mod record;
pub mod told;
pub mod work;
