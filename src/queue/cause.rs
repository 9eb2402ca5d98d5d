//! Why a key is in the queue, and how its run ended. Pure.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

/// Why a key was added. A cause only widens what the handler checks; the state is read again in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Something that the handler reads has changed. Runs now.
    Changed,
    /// A periodic check, or the replay of a cache. Never shortens a back-off delay.
    Resync,
    /// The driver's list and the recorded state disagree: trust neither. Runs now.
    Drift,
}

/// The causes of one run, collected since the key last settled.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Causes(u8);

impl Cause {
    /// Every cause there is.
    pub const ALL: [Self; 3] = [Self::Changed, Self::Resync, Self::Drift];

    /// Whether it ends a pending delay.
    pub(super) fn is_urgent(self) -> bool {
        match self {
            Self::Changed | Self::Drift => true,
            Self::Resync => false,
        }
    }

    fn bit(self) -> u8 {
        match self {
            Self::Changed => 1,
            Self::Resync => 2,
            Self::Drift => 4,
        }
    }
}

impl Causes {
    /// Whether `cause` is among them.
    pub fn contains(self, cause: Cause) -> bool {
        self.0 & cause.bit() != 0
    }

    /// Whether there is none.
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// These, but for `cause`.
    #[must_use]
    pub(super) fn without(self, cause: Cause) -> Self {
        Self(self.0 & !cause.bit())
    }

    /// The causes, in their order.
    pub fn iter(self) -> impl Iterator<Item = Cause> {
        Cause::ALL.into_iter().filter(move |cause| self.contains(*cause))
    }

    /// These and `other`.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl From<Cause> for Causes {
    fn from(cause: Cause) -> Self {
        Self(cause.bit())
    }
}

impl fmt::Debug for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// How a key is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activation {
    /// Why.
    pub cause: Cause,
    /// The lane whose workers run it, as an index into the settings' lanes. One past the end means the last.
    pub lane: usize,
    /// [`epoch_of`] the object: if it differs from the pending epoch, the key starts as new.
    pub epoch: u64,
}

impl Activation {
    /// In the first lane, and without an epoch: a key keeps its failures, whatever object it stands for.
    pub fn of(cause: Cause) -> Self {
        Self { cause, lane: 0, epoch: 0 }
    }
}

/// The epoch of a key: a hash of the object's uid (because names can be reused) and of the direction of the work.
pub fn epoch_of(life: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    life.hash(&mut hasher);
    hasher.finish()
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do: count, causes and note vanish.
    Settled,
    /// It failed: run again after the back-off, which is at most `cap` if there is one.
    Retry {
        /// A shorter limit than the queue's for this failure.
        cap: Option<Duration>,
    },
    /// Not a failure: run again after exactly this long. The failure count stays as it is.
    RetryAfter(Duration),
    /// It failed, and trying sooner is no use: run again after exactly this long. The failure counts.
    RetryFailedAfter(Duration),
    /// It failed, and the server sent a `Retry-After`: run again after the back-off, but not before this time.
    RetryNoSooner(Duration),
    /// The term ended during the run: this is not a failure and not counted. Run again after the first delay of the
    /// back-off.
    Interrupted,
    /// The object is gone or not ours: as if the key had never been added.
    Forget,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_a_set() {
        let both = Causes::from(Cause::Drift).union(Cause::Changed.into()).union(Cause::Drift.into());
        assert_eq!(both.iter().collect::<Vec<_>>(), [Cause::Changed, Cause::Drift]);
        assert!(!both.contains(Cause::Resync));
        assert_eq!(format!("{both:?}"), "{Changed, Drift}");
    }
}
