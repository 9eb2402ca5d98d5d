//! The slots for requests in flight, shared among the roles: [`Shares`] decides the order, and the requests wait here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::shares::Shares;

/// The slots of one client. Clones share them.
#[derive(Clone)]
pub(super) struct Slots(Arc<Mutex<State>>);

struct State {
    shares: Shares,
    /// The requests that wait, by their numbers.
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One request's slot. When it is dropped, the next waiting request gets it.
#[derive(Debug)]
#[must_use = "dropping it gives the slot back"]
pub(super) struct Slot {
    slots: Slots,
    share: &'static str,
}

/// A place in a share's queue. When it is dropped, it leaves the queue, or gives back the slot that it has got in the
/// meantime.
struct Place<'a> {
    slots: &'a Slots,
    share: &'static str,
    number: u64,
}

impl Slots {
    /// Creates this number of slots, at least one.
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(State { shares: Shares::new(count), waiting: BTreeMap::new() })))
    }

    /// Waits for a slot of this share.
    pub(super) async fn acquire(&self, share: &'static str) -> Slot {
        let waits = {
            let mut state = self.state();
            state.shares.ask(share).map(|number| {
                let (sender, receiver) = oneshot::channel();
                state.waiting.insert(number, sender);
                (number, receiver)
            })
        };
        if let Some((number, receiver)) = waits {
            let place = Place { slots: self, share, number };
            // The sender only goes after it has sent.
            let _ = receiver.await;
            std::mem::forget(place);
        }
        Slot { slots: self.clone(), share }
    }

    /// How many slots are free.
    pub(super) fn free(&self) -> usize {
        self.state().shares.free()
    }

    fn give_back(&self, share: &'static str) {
        let mut state = self.state();
        let next = state.shares.give_back(share);
        if let Some(sender) = next.and_then(|number| state.waiting.remove(&number)) {
            // If the request was just cancelled, it gives the slot back, because its number is no longer here.
            let _ = sender.send(());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.give_back(self.share);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        if state.waiting.remove(&self.number).is_some() {
            state.shares.leave(self.share, self.number);
        } else {
            drop(state);
            self.slots.give_back(self.share);
        }
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("free", &self.free()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_wait_that_is_given_up_leaves_no_hole_before_or_after_its_turn_has_come() {
        let slots = Slots::new(1);
        let held = slots.acquire("a").await;
        let mut waits: Vec<_> = (0..3).map(|_| Box::pin(slots.acquire("a"))).collect();
        assert!(waits.iter_mut().all(|wait| wait.as_mut().now_or_never().is_none()));
        drop(waits.remove(0));
        drop(held);
        // The second has its slot, and is given up before it could see so.
        drop(waits.remove(0));
        let last = waits.remove(0).now_or_never().expect("no other has it");
        assert_eq!(slots.free(), 0);
        drop(last);
        assert_eq!(slots.free(), 1);
        assert!(slots.state().waiting.is_empty());
    }
}
