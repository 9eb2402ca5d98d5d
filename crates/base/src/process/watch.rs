//! A watched value, like tokio's `watch`, but its receivers wake in the order in which they began to wait.
//!
//! tokio distributes the receivers of one channel over several lists at random. That is faster with many threads, but
//! then one seed has many traces: two daemons that see the same change would wake in random order.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

struct Shared<T> {
    state: RwLock<State<T>>,
    changed: Notify,
    senders: AtomicUsize,
}

struct State<T> {
    value: T,
    version: u64,
    is_closed: bool,
}

/// Changes the value. Clones change the same one.
pub struct Sender<T>(Arc<Shared<T>>);

/// Sees the value, and waits for the next.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// The value, borrowed. Not to be held over a wait.
pub struct Ref<'a, T>(RwLockReadGuard<'a, State<T>>);

/// The value will never change again: its senders are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sender of the value is gone")]
pub struct Closed;

/// A value with its first receiver.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    /// A value that nobody watches yet.
    pub fn new(value: T) -> Self {
        let state = RwLock::new(State { value, version: 0, is_closed: false });
        Self(Arc::new(Shared { state, changed: Notify::new(), senders: AtomicUsize::new(1) }))
    }

    /// Replaces the value, and returns the one before.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|current| std::mem::swap(current, &mut value));
        value
    }

    /// Changes the value in place.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Changes the value in place, and tells of it if `change` says so.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let is_modified = {
            let mut state = self.0.state.write();
            let is_modified = change(&mut state.value);
            state.version += u64::from(is_modified);
            is_modified
        };
        if is_modified {
            self.0.changed.notify_waiters();
        }
        is_modified
    }

    /// The value now.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }

    /// Another receiver, which has seen the value as it is now.
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = self.0.borrow().0.version;
        Receiver { shared: Arc::clone(&self.0), seen }
    }
}

impl<T> Receiver<T> {
    /// The value now.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.borrow()
    }

    /// The value now, which counts as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.borrow();
        self.seen = value.0.version;
        value
    }

    /// Counts the value as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.borrow().0.version;
    }

    /// Waits until the value is another than the one that was seen last, and counts it as seen.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            // Made before the look, so that no change falls in between.
            let changed = self.shared.changed.notified();
            {
                let state = self.shared.borrow().0;
                if state.version != self.seen {
                    self.seen = state.version;
                    return Ok(());
                }
                if state.is_closed {
                    return Err(Closed);
                }
            }
            changed.await;
        }
    }

    /// Waits until the value is as wanted. Where threads change it at the same time, what is returned may be newer still.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, Closed> {
        loop {
            let is_closed = {
                let state = self.shared.borrow().0;
                self.seen = state.version;
                if wanted(&state.value) {
                    break;
                }
                state.is_closed
            };
            if is_closed {
                return Err(Closed);
            }
            self.changed().await?;
        }
        Ok(self.shared.borrow())
    }
}

impl<T> Shared<T> {
    fn borrow(&self) -> Ref<'_, T> {
        Ref(self.state.read())
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.value.fmt(f)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.state.write().is_closed = true;
            self.0.changed.notify_waiters();
        }
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.borrow()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.borrow()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test]
    async fn receivers_wake_in_the_order_in_which_they_began_to_wait() {
        let (sender, order) = (Sender::new(0), Arc::new(Mutex::new(Vec::new())));
        let waiting = (0..50).map(|number| {
            let (mut receiver, order) = (sender.subscribe(), order.clone());
            async move {
                receiver.changed().await.unwrap();
                order.lock().unwrap().push(number);
            }
        });
        let (tasks, _ends) = crate::process::Tasks::new("waiting");
        for (number, one) in waiting.enumerate() {
            tasks.spawn(number, one);
        }
        tokio::task::yield_now().await;
        sender.send_replace(1);
        tokio::task::yield_now().await;
        assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn the_last_value_is_seen_even_when_its_sender_is_gone() {
        let (sender, mut receiver) = channel(0);
        sender.send_replace(1);
        drop(sender);
        assert_eq!(receiver.changed().await, Ok(()));
        assert_eq!(*receiver.borrow_and_update(), 1);
        assert_eq!(receiver.changed().await, Err(Closed));
        assert_eq!(receiver.wait_for(|value| *value == 1).await.map(|value| *value), Ok(1));
        assert_eq!(receiver.wait_for(|value| *value == 2).await.map(|value| *value), Err(Closed));
    }

    #[tokio::test]
    async fn a_value_is_waited_for() {
        let (sender, mut receiver) = channel(0);
        let wait = receiver.wait_for(|value| *value == 3);
        let send = async {
            for value in 1..=3 {
                sender.send_replace(value);
                tokio::task::yield_now().await;
            }
        };
        let (found, ()) = tokio::join!(wait, send);
        assert_eq!(found.map(|value| *value), Ok(3));
    }
}
