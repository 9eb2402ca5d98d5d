//! What attempts at keys have in common, whatever the role: how they stop, and what the queue is told then.

use std::error::Error;
use std::time::Duration;

use crate::cluster::{Api, ApiError, ApiErrorKind, Cache, Cached, ObjectName};
use crate::csi::{RpcError, VolumeLock, VolumeLocks};
use crate::election::TermOver;
use crate::process::error_chain;
use crate::queue::{Key, Outcome, Ticket};

/// Why an attempt failed.
pub trait Failure: Error + Sized + 'static {
    /// The API's error, where there is one.
    fn api(&self) -> Option<&ApiError>;

    /// The driver's error, where there is one.
    fn driver(&self) -> Option<&RpcError>;

    /// The text for a status, an event, a log line or the status page: the error with its causes.
    fn message(&self) -> String {
        error_chain(self)
    }

    /// The longest wait before the next attempt, where the usual maximum would be too long.
    fn retry_cap(&self) -> Option<Duration> {
        self.driver().and_then(RpcError::retry_cap)
    }

    /// When to try again: no sooner than the API asks, and soon enough for what the failure is.
    fn outcome(&self) -> Outcome {
        match self.api().and_then(ApiError::retry_after) {
            Some(asked) => Outcome::RetryNoSooner(asked),
            None => Outcome::Retry { cap: self.retry_cap() },
        }
    }
}

/// Where an attempt makes requests to the API and nothing else.
impl Failure for ApiError {
    fn api(&self) -> Option<&ApiError> {
        Some(self)
    }

    fn driver(&self) -> Option<&RpcError> {
        None
    }
}

/// Why an attempt ended without its key being settled.
#[derive(Debug)]
pub enum Stop<E> {
    /// It failed.
    Failed(E),
    /// The term is over: nothing may be written any more, not even an error.
    TermOver,
    /// Nothing failed, and it is too early: look again after this long.
    Later(Duration),
}

impl<E> From<TermOver> for Stop<E> {
    fn from(_: TermOver) -> Self {
        Self::TermOver
    }
}

impl<E: Failure> From<E> for Stop<E> {
    fn from(error: E) -> Self {
        if error.api().is_some_and(|error| error.kind() == ApiErrorKind::NotPermitted) {
            return Self::TermOver;
        }
        Self::Failed(error)
    }
}

impl<E: Failure> Stop<E> {
    /// When to try again.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Failed(error) => error.outcome(),
            Self::TermOver => Outcome::Retry { cap: None },
            Self::Later(wait) => Outcome::RetryAfter(*wait),
        }
    }
}

/// Takes a volume for an attempt that has `held` another, or none. `false`: it had to wait, so what it knows may be old; look
/// again.
pub async fn hold<K: Key>(
    held: &mut Option<VolumeLock>,
    operations: &VolumeLocks,
    volume: &str,
    ticket: &mut Ticket<K>,
) -> bool {
    if held.as_ref().is_some_and(|guard| guard.volume_id() == volume) {
        return true;
    }
    *held = None;
    if let Some(guard) = operations.try_acquire(volume) {
        *held = Some(guard);
        return true;
    }
    *held = Some(ticket.park(operations.acquire(volume)).await);
    false
}

/// Reads an object again for its cache. `false`: there is nothing newer than what was `seen`, so another look would see the
/// same.
pub async fn read_again<K: Cached>(api: &Api, cache: &Cache<K>, seen: &K) -> Result<bool, ApiError> {
    let name = ObjectName::of(seen);
    // Where it is gone the watch will say so; nothing is taken out of the cache on hearsay.
    if let Some(object) = api.get_opt(&name).await? {
        cache.apply_own_write(object);
    }
    // Not compared with the cache of a moment ago: the write that outran ours may be our own, and be in there already.
    Ok(cache.get(&name).is_none_or(|held| held.meta().resource_version != seen.meta().resource_version))
}
