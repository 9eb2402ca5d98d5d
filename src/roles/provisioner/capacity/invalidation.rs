//! What the rest of the provisioner tells of its deeds, so that capacity is asked for when it has changed.
//!
//! What was told and not heard yet is a set: however many volumes come and go meanwhile, it holds no more than there are
//! classes and places.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;

use crate::roles::provisioner::topology::Segment;

/// Tells. Clones tell the same; without a listener nothing happens.
#[derive(Debug, Clone)]
pub struct CapacityHints(Weak<Told>);

/// Listens.
#[derive(Debug)]
pub struct CapacityHintReceiver(Arc<Told>);

/// What was told and not heard yet.
#[derive(Debug, Default)]
struct Told {
    hints: Mutex<BTreeSet<Hint>>,
    news: Notify,
}

/// What may have changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hint {
    /// A class, wherever.
    Class(String),
    /// All classes at these places.
    Places(Vec<Segment>),
}

impl CapacityHints {
    /// A teller and its listener.
    pub fn new() -> (Self, CapacityHintReceiver) {
        let told = Arc::default();
        (Self(Arc::downgrade(&told)), CapacityHintReceiver(told))
    }

    /// Tells nobody: capacity is off.
    pub fn off() -> Self {
        Self(Weak::new())
    }

    /// A volume of a class was made, reachable from these places only, if any.
    pub fn provisioned(&self, class: &str, affinity: Option<&[Segment]>) {
        self.tell(affinity.map_or_else(|| Hint::Class(class.to_owned()), |places| Hint::Places(places.to_vec())));
    }

    /// A volume of a class could not be made: perhaps there is less room than we said.
    pub fn failed(&self, class: &str) {
        self.tell(Hint::Class(class.to_owned()));
    }

    /// A volume was deleted that was reachable from these places only; without any, from everywhere.
    pub fn deleted(&self, affinity: Option<&[Segment]>) {
        self.tell(Hint::Places(affinity.map_or_else(|| vec![Segment::default()], <[Segment]>::to_vec)));
    }

    fn tell(&self, hint: Hint) {
        // Nobody listens once the term is over.
        let Some(told) = self.0.upgrade() else { return };
        told.hints.lock().unwrap_or_else(PoisonError::into_inner).insert(hint);
        told.news.notify_one();
    }
}

impl CapacityHintReceiver {
    /// All that was told since, once there is something.
    pub(super) async fn next(&self) -> BTreeSet<Hint> {
        loop {
            let hints = std::mem::take(&mut *self.0.hints.lock().unwrap_or_else(PoisonError::into_inner));
            if !hints.is_empty() {
                return hints;
            }
            self.0.news.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn what_is_told_often_is_heard_once() {
        let (hints, receiver) = CapacityHints::new();
        assert!(receiver.next().now_or_never().is_none());
        for _ in 0..1000 {
            hints.failed("gold");
            hints.clone().deleted(None);
        }
        let both = [Hint::Class("gold".to_owned()), Hint::Places(vec![Segment::default()])];
        assert_eq!(receiver.next().now_or_never(), Some(BTreeSet::from(both)));
        assert!(receiver.next().now_or_never().is_none());
        drop(receiver);
        hints.failed("gold");
        assert_eq!(hints.0.strong_count(), 0, "nothing is kept for nobody");
    }
}
