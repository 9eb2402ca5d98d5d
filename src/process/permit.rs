//! A right that ends, asked for at the last moment.

use std::sync::Arc;

/// Whether something may be done at this very moment.
pub type Permit = Arc<dyn Fn() -> bool + Send + Sync>;

/// What asks a permit itself, after its last wait: who was allowed to begin may have waited past the end of that right.
pub trait Permitted {
    /// The same, as long as `permit` says yes.
    #[must_use]
    fn permitted(self, permit: Permit) -> Self;
}
