//! What was added to a key during its run.

use std::time::Duration;

use super::cause::{Activation, Cause, Causes};

/// The run after this one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) epoch: u64,
    pub(super) lane: usize,
    pub(super) causes: Causes,
    pub(super) since: Duration,
    pub(super) urgent: bool,
    /// Another epoch than the run's, whose changes the run has read since.
    pub(super) is_read: bool,
}

impl Next {
    pub(super) fn new(now: Duration, lane: usize, what: Activation) -> Self {
        let (causes, urgent) = (what.cause.into(), what.cause.is_urgent());
        Self { epoch: what.epoch, lane, causes, since: now, urgent, is_read: false }
    }

    /// Adds to what comes after a run of this epoch. Returns false for a duplicate without news.
    pub(super) fn add(next: &mut Option<Self>, epoch: u64, now: Duration, lane: usize, what: Activation) -> bool {
        match next {
            Some(next) if next.epoch == what.epoch => {
                next.lane = lane;
                next.causes = next.causes.union(what.cause.into());
                next.urgent |= what.cause.is_urgent();
                next.is_read = false;
                false
            }
            next => {
                let fresh = next.as_ref().map_or(epoch, |next| next.epoch) != what.epoch;
                let mut added = Self::new(now, lane, what);
                added.urgent |= fresh;
                *next = Some(added);
                true
            }
        }
    }

    /// A run of this epoch reads now what it decides from. Returns true if that answers everything that was added.
    pub(super) fn is_answered_by_a_read(&mut self, epoch: u64) -> bool {
        if self.epoch != epoch {
            self.is_read = self.causes.without(Cause::Changed).is_empty();
            return false;
        }
        self.causes = self.causes.without(Cause::Changed);
        self.urgent = self.causes.iter().any(Cause::is_urgent);
        self.causes.is_empty()
    }
}
