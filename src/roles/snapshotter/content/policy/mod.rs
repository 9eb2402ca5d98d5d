//! What is done next for a content. Pure.
//!
//! ```text
//! decide.rs     the decision table; its rows are create.rs, look_up.rs, delete.rs, orphan.rs
//! view.rs       what a decision depends on, and the steps     observed.rs   the objects and facts that it is made from
//! progress.rs   what one attempt has learnt                   keepers.rs    who needs a snapshot of a group
//! predicates.rs which change wakes a content
//! ```

pub mod create;
pub mod decide;
pub mod delete;
pub mod keepers;
pub mod look_up;
pub mod observed;
mod orphan;
pub mod predicates;
pub mod progress;
#[cfg(test)]
pub(in crate::roles::snapshotter) mod tables;
pub mod view;

pub use decide::Phase;
pub use look_up::LookUp;
pub use observed::{Objects, Observed};
pub use progress::{Answer, ContentEnd, Failed, Failure, Left, NotTaken, Progress, Warning, Who};
pub use view::{Doomed, Kept, Known, OwnerNeed, Refusal, Rules, SecretNeed, Step, View};
