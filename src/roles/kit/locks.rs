//! The volumes that one attempt has locked, and the one rule for the wait: it ends with the term.

use std::pin::pin;
use std::time::Duration;

use futures::FutureExt as _;

use crate::csi::{GroupLock, VolumeLock, VolumeLocks};
use crate::election::{Term, TermOver};
use crate::queue::{Key, Ticket};

/// How long an attempt joins no line after it got one of its volumes in its turn and found another one busy.
const PAUSE: Duration = Duration::from_millis(10);

/// The volumes that one attempt has locked.
#[derive(Debug, Default)]
pub struct HeldLocks(Vec<GroupLock>);

/// How long an attempt may wait for a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// The driver was not called yet: the wait ends when the term is over.
    UntilOver,
    /// The driver's answer must still be handled: only the loss of the Lease ends the wait.
    UntilLost,
}

impl Patience {
    /// Waits for something for so long.
    pub async fn wait<F: Future>(self, term: &Term, event: F) -> Result<F::Output, TermOver> {
        match self {
            Self::UntilOver => term.unless_over(event).await,
            Self::UntilLost => term.until_lost(event).await,
        }
    }
}

impl HeldLocks {
    /// Whether this attempt has locked the volume.
    fn has(&self, volume: &str) -> bool {
        self.0.iter().any(|lock| lock.is_of(volume))
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
        self.keep(ticket.park(patience.wait(term, locks.lock_pair(one, other))).await?);
        Ok(false)
    }

    /// Locks a volume together with the other attempts of a group, and unlocks the volumes that were locked before. `false`: as above.
    pub async fn lock_for<K: Key>(
        &mut self,
        locks: &VolumeLocks,
        (volume, group): (&str, &str),
        term: &Term,
        patience: Patience,
        ticket: &mut Ticket<K>,
    ) -> Result<bool, TermOver> {
        if self.has(volume) {
            return Ok(true);
        }
        self.release();
        let mut lock = pin!(locks.acquire_for(volume, group));
        let at_once = lock.as_mut().now_or_never();
        let has_waited = at_once.is_none();
        self.0.push(match at_once {
            Some(lock) => lock,
            None => ticket.park(patience.wait(term, lock)).await?,
        });
        Ok(!has_waited)
    }

    /// Locks several volumes, named in their order, until the returned guards are dropped. None of them is held while the attempt waits
    /// for another.
    ///
    /// An attempt that gets one volume in its turn and finds another one busy unlocks the first one, and joins no line for a moment.
    /// Otherwise three attempts that wait for the same two volumes keep each other waiting for ever: an unlocked volume goes to the next
    /// in its line, so both are never free at once.
    pub async fn of_all(locks: &VolumeLocks, volumes: &[String]) -> Self {
        let (mut held, mut has_had_turn) = (Self::default(), false);
        loop {
            let is_busy = |volume: &&String| {
                let is_taken = !held.has(volume);
                let lock = if is_taken { locks.try_acquire(volume) } else { None };
                let is_busy = is_taken && lock.is_none();
                held.0.extend(lock.map(GroupLock::from));
                is_busy
            };
            let Some(busy) = volumes.iter().find(is_busy) else { return held };
            held.release();
            if has_had_turn {
                tokio::time::sleep(PAUSE).await;
            } else {
                held.0.push(locks.acquire(busy).await.into());
            }
            has_had_turn = !has_had_turn;
        }
    }

    /// Locks a volume if nobody holds or awaits it.
    pub fn try_of(locks: &VolumeLocks, volume: &str) -> Option<Self> {
        Some(Self(vec![locks.try_acquire(volume)?.into()]))
    }

    fn keep(&mut self, (one, other): (VolumeLock, Option<VolumeLock>)) {
        self.0.push(one.into());
        self.0.extend(other.map(GroupLock::from));
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "locks_tests.rs"]
mod tests;
