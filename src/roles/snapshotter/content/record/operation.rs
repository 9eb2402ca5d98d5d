//! What is done for a content. Pure.

/// What is done for a content: the label of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Operation {
    /// The snapshot is taken.
    #[default]
    Create,
    /// A snapshot that exists is looked at until it is ready to use.
    Ready,
    /// The snapshot is deleted.
    Delete,
}
