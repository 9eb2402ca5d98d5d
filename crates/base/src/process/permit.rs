//! A right that can end and is checked at the last moment.

use std::sync::Arc;

/// Whether an action is allowed now.
pub type Permit = Arc<dyn Fn() -> bool + Send + Sync>;

/// A client that checks a permit after its last wait, because the right may end while it waits.
pub trait Permitted {
    /// The same client, which works only while `permit` returns true.
    #[must_use]
    fn permitted(self, permit: Permit) -> Self;
}
