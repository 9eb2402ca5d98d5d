//! Which published capacities may be wrong since a volume was created, could not be, was deleted or has grown.
//!
//! The capacity loop takes all invalidations at once. Until then they are a set, so that a thousand volumes of one class need no
//! more memory than one.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::roles::provisioner::topology::Segment;

/// Sender side. Cheap to clone; a no-op once the receiver is dropped.
#[derive(Debug, Clone)]
pub struct CapacityInvalidation(Weak<Pending>);

/// Receiver side, for the capacity loop.
#[derive(Debug)]
pub struct CapacityInvalidationReceiver(Arc<Pending>);

/// What the receiver has not taken yet.
#[derive(Debug, Default)]
struct Pending {
    invalid: Mutex<BTreeSet<Invalid>>,
    added: Notify,
}

/// Capacities to ask the driver for again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invalid {
    /// One class in every segment.
    Class(String),
    /// Every class in these segments.
    Segments(Vec<Segment>),
    /// Where a volume of this class may be that does not say where it is.
    Anywhere(String),
}

impl CapacityInvalidation {
    /// A sender and its receiver.
    pub fn new() -> (Self, CapacityInvalidationReceiver) {
        let pending = Arc::default();
        (Self(Arc::downgrade(&pending)), CapacityInvalidationReceiver(pending))
    }

    /// A sender without a receiver, for a configuration without capacity.
    pub fn off() -> Self {
        Self(Weak::new())
    }

    /// The class may have another capacity now, in every segment.
    pub fn invalidate(&self, class: &str) {
        self.add(Invalid::Class(class.to_owned()));
    }

    pub(super) fn add(&self, invalid: Invalid) {
        let Some(pending) = self.0.upgrade() else { return };
        pending.invalid.lock().insert(invalid);
        pending.added.notify_one();
    }
}

impl CapacityInvalidationReceiver {
    /// Another sender.
    pub(super) fn sender(&self) -> CapacityInvalidation {
        CapacityInvalidation(Arc::downgrade(&self.0))
    }

    /// Waits for an invalidation, and takes all that there are.
    pub(super) async fn next(&self) -> BTreeSet<Invalid> {
        loop {
            let invalid = std::mem::take(&mut *self.0.invalid.lock());
            if !invalid.is_empty() {
                return invalid;
            }
            self.0.added.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_repeated_invalidation_is_received_once() {
        let (invalidation, receiver) = CapacityInvalidation::new();
        assert!(receiver.next().now_or_never().is_none());
        for _ in 0..1000 {
            invalidation.invalidate("gold");
            receiver.sender().add(Invalid::Segments(vec![Segment::default()]));
        }
        let both = [Invalid::Class("gold".to_owned()), Invalid::Segments(vec![Segment::default()])];
        assert_eq!(receiver.next().now_or_never(), Some(BTreeSet::from(both)));
        assert!(receiver.next().now_or_never().is_none());
        drop(receiver);
        invalidation.invalidate("gold");
        assert_eq!(invalidation.0.strong_count(), 0, "nothing is kept without a receiver");
    }
}
