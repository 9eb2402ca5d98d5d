//! The work on a content, whether of a snapshot or of a group: [`record::kind::Content`] says what tells them apart, and `single` and
//! `group` beside this module have what each has of its own. One executor does both: a group has its own calls, look-up, answer and
//! fields, and no step of its own.
//!
//! ```text
//! record/   what stands on a content: facts, request, patches      policy/   what is done next: pure
//! work/     the cluster, the driver, and what a term remembers     told/     what people and metrics are told
//!
//! work ──> told ──> policy ──> record
//! ```
//!
//! Where this role differs from others:
//!
//! - **The driver's answer is durable before the attempt fails for it.** So a failure is an answer like others: status and mark are
//!   written, then the attempt ends with it. What the content waits for comes to the same end, without a write.
//! - **A step takes several locks**: those of the volumes of a group, and a place in the line of each. The attempt holds them from one
//!   step to the next, because P1 and the read that confirms come between the lock and the call.
//! - **The call that takes a snapshot has a write beside it**: mark and request come back as soon as somebody wipes them.
//! - **What is unanswered is settled before our own write takes the mark off.** The watch may show that write before its answer comes. It
//!   would pass for a wipe, and the mark would come back.

pub mod policy;
pub mod record;
pub mod told;
pub mod work;
