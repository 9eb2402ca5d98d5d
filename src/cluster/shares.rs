//! Decides which share gets the next of a limited number of permits. Pure.
//!
//! Each share (a role, or the daemon itself) has its own FIFO queue. Among the waiting shares, the one with the fewest
//! permits gets a free permit; among equals, the one that was served the longest ago. So:
//!
//! - No permit is free while a request waits: a share alone has all permits.
//! - Of N shares that always wait, each gets an equal number of permits, plus or minus one. A burst of one share delays
//!   only that share.
//! - No share starves, because a share that holds none comes before a share that holds one.

use std::collections::{BTreeMap, BTreeSet};

/// The permits, and the requests that wait for one.
#[derive(Debug)]
pub(super) struct Shares {
    free: usize,
    by_name: BTreeMap<&'static str, Share>,
    /// Numbers the requests that wait, and the grants.
    next: u64,
}

/// One share.
#[derive(Debug, Default)]
struct Share {
    held: usize,
    waiting: BTreeSet<u64>,
    served: u64,
}

impl Shares {
    /// Creates this number of permits, at least one.
    pub(super) fn new(permits: usize) -> Self {
        Self { free: permits.max(1), by_name: BTreeMap::new(), next: 0 }
    }

    /// How many permits are free.
    pub(super) fn free(&self) -> usize {
        self.free
    }

    /// Requests a permit. `None`: granted. Otherwise the number of the waiting request.
    pub(super) fn ask(&mut self, share: &'static str) -> Option<u64> {
        self.next += 1;
        let number = self.next;
        self.by_name.entry(share).or_default().waiting.insert(number);
        // If a permit is free, no other request waits, so the grant is for this one.
        self.grant().is_none().then_some(number)
    }

    /// The request with this number waits no longer.
    pub(super) fn leave(&mut self, share: &'static str, number: u64) {
        if let Some(share) = self.by_name.get_mut(share) {
            share.waiting.remove(&number);
        }
    }

    /// Gives a permit back. Returns the number of the request that has it now.
    pub(super) fn give_back(&mut self, share: &'static str) -> Option<u64> {
        if let Some(share) = self.by_name.get_mut(share).filter(|share| share.held > 0) {
            share.held -= 1;
            self.free += 1;
        }
        self.grant()
    }

    /// Gives a free permit to the share whose turn it is.
    fn grant(&mut self) -> Option<u64> {
        self.free = self.free.checked_sub(1).filter(|_| self.free > 0)?;
        let waiting = self.by_name.values_mut().filter(|share| !share.waiting.is_empty());
        let Some(share) = waiting.min_by_key(|share| (share.held, share.served)) else {
            self.free += 1;
            return None;
        };
        self.next += 1;
        share.served = self.next;
        share.held += 1;
        share.waiting.pop_first()
    }
}

#[cfg(test)]
#[path = "shares_tests.rs"]
mod tests;
