//! The volumes that one attempt has locked, and the one rule for the wait: it ends with the term.

use crate::csi::{VolumeLock, VolumeLocks};
use crate::election::{Term, TermOver};
use crate::queue::{Key, Ticket};

/// The volumes that one attempt has locked.
#[derive(Debug, Default)]
pub struct HeldLocks(Vec<VolumeLock>);

/// How long an attempt may wait for a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// The driver was not called yet: the wait ends when the term is over.
    UntilOver,
    /// The driver's answer must still be handled: only the loss of the Lease ends the wait.
    UntilLost,
}

impl HeldLocks {
    /// Whether this attempt has locked the volume.
    fn has(&self, volume: &str) -> bool {
        self.0.iter().any(|lock| lock.volume_id() == volume)
    }

    /// Unlocks all of them.
    pub fn release(&mut self) {
        self.0.clear();
    }

    /// Locks a volume with one or two names, and unlocks the volumes that were locked before. `false`: the attempt had
    /// to wait, so its view may be old and it must observe again.
    pub async fn lock<K: Key>(
        &mut self,
        locks: &VolumeLocks,
        (one, other): (&str, &str),
        term: &Term,
        patience: Patience,
        ticket: &mut Ticket<K>,
    ) -> Result<bool, TermOver> {
        if self.has(one) && self.has(other) {
            return Ok(true);
        }
        self.release();
        if let Some(pair) = locks.try_lock_pair(one, other) {
            self.keep(pair);
            return Ok(true);
        }
        let both = locks.lock_pair(one, other);
        let pair = match patience {
            Patience::UntilOver => ticket.park(term.unless_over(both)).await?,
            Patience::UntilLost => ticket.park(term.until_lost(both)).await?,
        };
        self.keep(pair);
        Ok(false)
    }

    fn keep(&mut self, (one, other): (VolumeLock, Option<VolumeLock>)) {
        self.0.push(one);
        self.0.extend(other);
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "locks_tests.rs"]
mod tests;
