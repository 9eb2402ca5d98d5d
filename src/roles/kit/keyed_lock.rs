//! A mutex per key: work on different keys goes on side by side.

use std::fmt;

use crate::csi::{VolumeLock, VolumeLocks};
use crate::election::{Term, TermOver};
use crate::process::Clock;
use crate::queue::{Key, Ticket};

/// A mutex per key. First come, first served.
#[derive(Debug)]
pub struct KeyedLock<S> {
    locks: VolumeLocks,
    key: std::marker::PhantomData<fn(&S)>,
}

impl<S: fmt::Display> KeyedLock<S> {
    /// Nothing is locked.
    pub fn new(clock: Clock) -> Self {
        Self { locks: VolumeLocks::new(clock), key: std::marker::PhantomData }
    }

    /// Locks `key` until the returned guard is dropped. Waits without holding a worker, and not beyond the end of the term.
    pub async fn lock<K: Key>(&self, key: &S, ticket: &mut Ticket<K>, term: &Term) -> Result<VolumeLock, TermOver> {
        let key = key.to_string();
        match self.locks.try_acquire(&key) {
            Some(guard) => Ok(guard),
            None => ticket.park(term.unless_over(self.locks.acquire(&key))).await,
        }
    }
}
