//! The subscribers of a cache, and the lifetime of a subscription.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tracing::error;

use crate::process::{panic_message, watch};

use super::fanout::Change;
use super::objects::Cached;

/// One subscriber of a cache.
pub(super) struct Subscriber<K> {
    pub(super) link: Arc<Link>,
    pub(super) tell: Tell<K>,
}

pub(super) type Tell<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// What a subscriber and its [`Subscription`] share.
pub(super) struct Link {
    pub(super) alive: AtomicBool,
    /// The subscriber's panic message.
    panic: watch::Sender<Option<String>>,
}

impl<K: Cached> Subscriber<K> {
    pub(super) fn new(tell: impl Fn(&Change<K>) + Send + Sync + 'static) -> Self {
        let link = Link { alive: AtomicBool::new(true), panic: watch::Sender::new(None) };
        Self { link: Arc::new(link), tell: Box::new(tell) }
    }

    /// Delivers a change to the subscriber, unless its subscription has ended or it has panicked before.
    pub(super) fn tell(&self, change: &Change<K>) {
        if !self.link.alive.load(Ordering::Acquire) {
            return;
        }
        // The panic can leave only the subscriber's own state inconsistent, and the subscriber is not called again.
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.tell)(change))) else { return };
        self.link.alive.store(false, Ordering::Release);
        let message = format!("the subscriber to {} panicked: {}", K::KIND, panic_message(panic.as_ref()));
        error!(error = message, "a cache subscriber panicked and gets no more changes");
        self.link.panic.send_replace(Some(message));
    }
}

/// Keeps a subscription alive. Dropping it ends the subscription: a running call finishes, no other begins, and the
/// subscriber is dropped.
#[must_use = "dropping it ends the subscription"]
pub struct Subscription {
    pub(super) link: Arc<Link>,
    pub(super) from: Weak<dyn Subscribed>,
}

/// A cache, independent of its kind.
pub(super) trait Subscribed: Send + Sync {
    fn unsubscribe(&self, link: &Arc<Link>);
}

impl Subscription {
    /// Waits until the subscriber has panicked, and returns its name and its panic message. Waits forever if it never
    /// panics. From then on the subscriber gets no changes, so its owner must stop.
    pub async fn panicked(&self) -> String {
        let mut panic = self.link.panic.subscribe();
        let message = panic.wait_for(Option::is_some).await.ok().and_then(|message| message.clone());
        match message {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.link.alive.store(false, Ordering::Release);
        if let Some(cache) = self.from.upgrade() {
            cache.unsubscribe(&self.link);
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}
