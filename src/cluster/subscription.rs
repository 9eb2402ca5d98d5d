//! The subscribers of a cache, and the lifetime of a subscription.
//!
//! A subscriber may be told of the objects that are there already in portions, with changes in between. What is told does not depend on
//! where the changes fall: each object is told once as it is then, and after that each of its changes.
//!
//! | a change of an object | that was told | that was not told yet |
//! |---|---|---|
//! | before the first portion | – | is not told: a portion will have the object as it is then |
//! | the object is new, or is another version | is told | is told as a new object, which no portion has again |
//! | the object is gone | is told | is not told |

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::task::yield_now;
use tracing::error;

use crate::process::{panic_message, watch};

use super::change::{Change, Origin};
use super::fanout::Place;
use super::foreign::hash;
use super::names::ObjectName;
use super::objects::Cached;

/// One subscriber of a cache.
pub(super) struct Subscriber<K> {
    pub(super) link: Arc<Link>,
    pub(super) tell: Tell<K>,
    /// While it has not been told of all objects that were there before it.
    replay: Option<Replay>,
}

/// How far a subscriber has been told of the objects that were there before it.
#[derive(Debug, Default)]
struct Replay {
    /// `None`: the first portion is still to come.
    at: Option<Place>,
    /// The hashes of the names of those that it was told of and that are there: a change may move an object to another place.
    told: BTreeSet<u64>,
}

pub(super) type Tell<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// What a subscriber and its [`Subscription`] share.
pub(super) struct Link {
    pub(super) alive: AtomicBool,
    /// The subscriber's panic message.
    panic: watch::Sender<Option<String>>,
}

impl<K: Cached> Subscriber<K> {
    /// `is_to_replay`: it is to be told of the objects that are there.
    pub(super) fn new(tell: impl Fn(&Change<K>) + Send + Sync + 'static, is_to_replay: bool) -> Self {
        let link = Link { alive: AtomicBool::new(true), panic: watch::Sender::new(None) };
        Self { link: Arc::new(link), tell: Box::new(tell), replay: is_to_replay.then(Replay::default) }
    }

    /// Delivers a change to the subscriber.
    pub(super) fn hear(&mut self, change: &Change<K>) {
        let Some(replay) = &mut self.replay else { return self.tell(change) };
        let Some(object) = change.last().filter(|_| replay.at.is_some()) else {
            return;
        };
        let name = hash(ObjectName::of(object));
        let is_told = if change.new.is_some() { !replay.told.insert(name) } else { replay.told.remove(&name) };
        if is_told || change.new.is_some() {
            self.tell(&Change { old: change.old.clone().filter(|_| is_told), ..change.clone() });
        }
    }

    /// Delivers the next portion of the objects that were there before the subscriber, which `page` returns with the place behind them.
    /// `false`: that was the last one.
    pub(super) fn replay(&mut self, page: impl FnOnce(&Place) -> (Vec<Arc<K>>, Option<Place>)) -> bool {
        let Some(Replay { at, mut told }) = self.replay.take() else { return false };
        let (objects, at) = page(&at.unwrap_or_default());
        for object in objects.into_iter().filter(|object| told.insert(hash(ObjectName::of(&**object)))) {
            self.tell(&Change { old: None, new: Some(object), origin: Origin::Replay });
        }
        self.replay = at.map(|at| Replay { at: Some(at), told });
        self.replay.is_some()
    }

    /// Tells the subscriber, unless its subscription has ended or it has panicked before.
    fn tell(&self, change: &Change<K>) {
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

    /// Delivers the next portion of the objects that were there before this subscriber. `false`: that was the last one.
    fn replay(&self, link: &Arc<Link>) -> bool;
}

impl Subscription {
    /// Tells the subscriber of all objects that were there before it, if it has not been. Other tasks get their turn in between. Until the
    /// first call of this it is told of no change.
    pub async fn replay(&self) {
        while self.from.upgrade().is_some_and(|cache| cache.replay(&self.link)) {
            yield_now().await;
        }
    }

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
