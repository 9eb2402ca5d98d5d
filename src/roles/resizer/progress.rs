//! What one attempt at either job has done so far. Decisions are made from this and from the caches.
//!
//! `T` is what the request wants: a size, or the name of a class. `A` is the driver's answer.

use crate::csi::RpcError;
use crate::roles::kit::Secret;

/// What one attempt has done so far.
#[derive(Debug)]
pub struct Progress<T, A> {
    /// The claim is gone.
    pub gone: bool,
    /// The volume is locked for this attempt.
    pub has_turn: bool,
    /// The API has no class of the name that the cache lacks.
    pub is_looked_up: bool,
    /// The secret, once read.
    pub secret: Option<Secret>,
    /// The driver has changed the volume, and the answer is not completely recorded.
    pub answer: Option<A>,
    /// The driver has not changed it.
    pub refused: Option<Refused<T>>,
}

/// Why the driver has not changed the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused<T> {
    /// The requested size or class.
    pub asked: T,
    /// The driver's error.
    pub error: RpcError,
    /// The claim's status says so.
    pub is_recorded: bool,
}

impl<T, A> Default for Progress<T, A> {
    fn default() -> Self {
        Self { gone: false, has_turn: false, is_looked_up: false, secret: None, answer: None, refused: None }
    }
}

impl<T, A> Progress<T, A> {
    /// Whether the driver has answered, and the answer is still to be recorded.
    pub fn has_answer(&self) -> bool {
        self.answer.is_some() || self.refused.is_some()
    }
}
