//! One kind, held in memory and shared by all its users.
//!
//! ```text
//! watch ──> trim ──> Fanout (store + indexes) ──> subscribers, in order, none lost
//! own write's answer ──^
//! ```
//!
//! There are two locks. `subscribers` is held while an event is applied *and* delivered, so every subscriber gets the
//! same order. `store` is held only for a read or a change, so a subscriber may read this and any other cache in its
//! callback. A subscriber must not apply events, subscribe, or end a subscription.
//!
//! A panic of one subscriber does not affect the others: the cache catches it, sends that subscriber no more changes,
//! and continues. [`Subscription::panicked`] reports the panic to the subscription's owner, whose term must fail.

mod progress;
mod turns;
mod walk;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use metrics::{Counter, Gauge};

use super::change::Change;
use super::fanout::{Fanout, News, Place};
use super::names::ObjectName;
use super::objects::{Cached, Fields, IndexName};
use super::subscription::{Link, Subscribed, Subscriber, Subscription};
use crate::process::{Clock, watch};
use crate::telemetry::{Meter, names as metric, show_count};

pub use progress::CacheStatus;
use progress::Progress;
pub use turns::WriteTurn;
pub use walk::Each;

/// Objects that subscribers are told of, or that a walk takes, before other tasks get their turn: about a millisecond's work.
const PORTION: usize = 256;

/// The objects of one kind. Clones are handles to the same objects.
pub struct Cache<K: Cached>(Arc<Inner<K>>);

struct Inner<K: Cached> {
    store: RwLock<Fanout<K>>,
    subscribers: Mutex<Vec<Subscriber<K>>>,
    progress: Mutex<Progress>,
    synced: watch::Sender<bool>,
    /// The current wish, and the number of the wish that the running list serves.
    wishes: Mutex<Wishes>,
    /// Why lists have failed for a while.
    unreadable: watch::Sender<Option<Arc<str>>>,
    /// Whether the cluster has the kind, as far as known.
    present: AtomicBool,
    /// Which of [`Cached::VERSIONS`] is read.
    version: AtomicUsize,
    lists: watch::Sender<Lists>,
    setup: OnceLock<Setup>,
    turns: turns::Turns,
}

/// Values that are known only after the driver's name is known.
struct Setup {
    driver: String,
    clock: Clock,
    objects: Gauge,
    lists: Counter,
    errors: Counter,
    unreadable: Gauge,
    meter: Meter,
}

/// A list for an earlier wish has less than the current wish needs, so it does not make the cache synced.
#[derive(Debug, Default)]
struct Wishes {
    fields: Fields,
    last: u64,
    listed: u64,
}

/// Requested and completed lists, by request number. A list serves all requests that were made before it began.
#[derive(Debug, Default)]
struct Lists {
    asked: u64,
    begun: u64,
    done: u64,
    /// All lists, whether requested or not.
    started: u64,
    /// The last of them that is complete.
    ended: u64,
}

impl<K: Cached> Subscribed for Inner<K> {
    fn unsubscribe(&self, link: &Arc<Link>) {
        let mut subscribers = locked(&self.subscribers);
        let at = subscribers.iter().position(|subscriber| Arc::ptr_eq(&subscriber.link, link));
        let gone = at.map(|at| subscribers.remove(at));
        // Dropped outside the lock, because the subscribers' own `Drop` code is unknown.
        drop(subscribers);
        drop(gone);
    }

    fn replay(&self, link: &Arc<Link>) -> bool {
        let mut subscribers = locked(&self.subscribers);
        let subscriber = subscribers.iter_mut().find(|subscriber| Arc::ptr_eq(&subscriber.link, link));
        let page = |after: &Place| {
            let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
            store.page(after, PORTION)
        };
        subscriber.is_some_and(|subscriber| subscriber.replay(page))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Cached> Cache<K> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            store: RwLock::default(),
            subscribers: Mutex::default(),
            progress: Mutex::default(),
            synced: watch::Sender::new(false),
            unreadable: watch::Sender::new(None),
            wishes: Mutex::default(),
            present: AtomicBool::new(true),
            version: AtomicUsize::new(0),
            lists: watch::Sender::new(Lists::default()),
            setup: OnceLock::new(),
            turns: turns::Turns::default(),
        }))
    }

    /// Sets the driver for which objects are trimmed. Events before this call are ignored.
    pub(super) fn set_up(&self, driver: &str, meter: &Meter, clock: Clock) {
        self.0.store.write().unwrap_or_else(PoisonError::into_inner).serve(driver);
        let labels = [("kind", K::KIND)];
        // A second call has the same driver, because a change of the driver's name ends the process.
        let _ = self.0.setup.set(Setup {
            driver: driver.to_owned(),
            clock,
            objects: meter.gauge(&metric::CACHE_OBJECTS, &labels),
            lists: meter.counter(&metric::CACHE_RELISTS, &labels),
            errors: meter.counter(&metric::CACHE_WATCH_ERRORS, &labels),
            unreadable: meter.gauge(&metric::CACHE_UNREADABLE, &labels),
            meter: meter.clone(),
        });
    }

    /// The object of that name.
    pub fn get(&self, name: &ObjectName) -> Option<Arc<K>> {
        self.read(|store| store.get(name))
    }

    /// The object of that name, of a cluster-scoped kind.
    pub fn named(&self, name: &str) -> Option<Arc<K>> {
        self.read(|store| store.named(name))
    }

    /// The objects found under `value` in an index, by name; behind them those that are held [packed](Cached::packed).
    pub fn find(&self, index: IndexName, value: &str) -> Vec<Arc<K>> {
        self.read(|store| store.find(index, value))
    }

    /// Every object, by name, but those of other drivers that are held [packed](Cached::packed): no role has work with them.
    pub fn own(&self) -> Vec<Arc<K>> {
        self.read(|store| store.own().cloned().collect())
    }

    /// Whether this object came in an answer to our own request, and the watch may not have got as far: objects may be missing that are
    /// older than it. After [`Self::relisted`] none is.
    pub fn is_ahead(&self, object: &K) -> bool {
        self.read(|store| store.is_ahead(object))
    }

    /// Whether the watch or a complete list has delivered this version or a later one: then the cache has every object of this version,
    /// unless it is gone.
    pub fn has_heard(&self, version: u128) -> bool {
        self.read(|store| store.has_heard(version))
    }

    /// Number of objects in the cache.
    pub fn len(&self) -> usize {
        self.read(Fanout::len)
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.read(Fanout::is_empty)
    }

    /// Whether a list was ever completed. Before that, callers must not decide anything.
    pub fn is_synced(&self) -> bool {
        *self.0.synced.borrow()
    }

    /// Whether the cluster does not have the kind, or does not let us read it. Then the empty cache is correct.
    pub fn is_absent(&self) -> bool {
        !self.0.present.load(Ordering::Acquire)
    }

    /// The version in which the kind is read, if it has several.
    pub fn version(&self) -> Option<&'static str> {
        K::VERSIONS.get(self.0.version.load(Ordering::Acquire)).copied()
    }

    /// Which of [`Cached::VERSIONS`] is read from now on.
    pub(super) fn read_as(&self, version: usize) {
        self.0.version.store(version, Ordering::Release);
    }

    /// Waits until a list was completed.
    pub async fn synced(&self) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = self.0.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Waits for a list that begins after this call. After it, the cache has no object that was gone at the call, and
    /// every object that existed, however late the watch was.
    pub async fn relisted(&self) {
        let mut lists = self.0.lists.subscribe();
        let mut mine = 0;
        self.0.lists.send_modify(|lists| {
            lists.asked += 1;
            mine = lists.asked;
        });
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = lists.wait_for(|lists| lists.done >= mine).await;
    }

    /// Waits until no object is missing that is older than this one ([`Self::is_ahead`]), as far as a list can tell: until the end of the
    /// list that runs, beside which the watch may have shown the object, or else of another one.
    pub async fn caught_up(&self, object: &K) {
        let mut lists = self.0.lists.subscribe();
        let running = lists.borrow().started;
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = lists.wait_for(|lists| lists.ended >= running).await;
        if self.is_ahead(object) {
            self.relisted().await;
        }
    }

    /// The API has an older version of an object than the cache: its storage was restored from a backup. A list is requested, which
    /// replaces every object.
    pub(crate) fn went_back(&self) {
        self.0.store.write().unwrap_or_else(PoisonError::into_inner).go_back();
        self.0.lists.send_modify(|lists| lists.asked += 1);
    }

    /// Something names an object of this kind: if the kind is absent or cannot be read, it is looked for at once.
    pub fn look_again(&self) {
        if self.is_absent() || self.0.unreadable.borrow().is_some() {
            self.0.lists.send_if_modified(|lists| {
                let is_first = lists.asked <= lists.begun;
                lists.asked += u64::from(is_first);
                is_first
            });
        }
    }

    /// Waits until a list is requested that has not begun.
    pub(super) async fn relist_asked(&self) {
        let _ = self.0.lists.subscribe().wait_for(|lists| lists.asked > lists.begun).await;
    }

    /// Calls `tell` for every object in the cache, then for every change, in order and without a gap. `tell` runs while
    /// the event is applied: it must be quick, and must not subscribe to this cache or apply own writes to it. If it
    /// panics, it is not called again, and [`Subscription::panicked`] resolves.
    pub fn subscribe(&self, tell: impl Fn(&Change<K>) + Send + Sync + 'static) -> Subscription {
        let subscription = self.subscribe_later(tell);
        while self.0.replay(&subscription.link) {}
        subscription
    }

    /// The same, but that nothing is told before [`Subscription::replay`], which leaves other tasks their turn: there may be a hundred
    /// thousand objects.
    pub fn subscribe_later(&self, tell: impl Fn(&Change<K>) + Send + Sync + 'static) -> Subscription {
        self.add(Subscriber::new(tell, true))
    }

    /// Calls `tell` for every change, as [`Self::subscribe`] does, and not for the objects in the cache.
    pub fn subscribe_to_changes(&self, tell: impl Fn(&Change<K>) + Send + Sync + 'static) -> Subscription {
        self.add(Subscriber::new(tell, false))
    }

    fn add(&self, subscriber: Subscriber<K>) -> Subscription {
        let link = Arc::clone(&subscriber.link);
        locked(&self.0.subscribers).push(subscriber);
        let from: Weak<Inner<K>> = Arc::downgrade(&self.0);
        Subscription { link, from }
    }

    /// Makes every current subscriber panic at the next change.
    #[cfg(test)]
    pub(crate) fn break_subscribers(&self, message: &'static str) {
        for subscriber in locked(&self.0.subscribers).iter_mut() {
            subscriber.tell = Box::new(move |_| panic!("{message}"));
        }
    }

    /// Applies the server's answer to our own write before the watch delivers it, so that the next decision uses the
    /// written state.
    pub(super) fn apply_own_write(&self, written: K) {
        self.feed(News::OwnWrite(written));
    }

    pub(super) fn feed(&self, news: News<K>) {
        let Some(setup) = self.0.setup.get() else { return };
        let (begins, ends) = (matches!(news, News::RestartList), matches!(news, News::ListDone));
        if begins {
            let mut wishes = locked(&self.0.wishes);
            wishes.listed = wishes.last;
            drop(wishes);
            self.0.lists.send_modify(|lists| (lists.begun, lists.started) = (lists.asked, lists.started + 1));
        }
        self.ingest(news, setup);
        if ends {
            self.0.lists.send_modify(|lists| (lists.done, lists.ended) = (lists.begun, lists.started));
        }
    }

    fn ingest(&self, news: News<K>, setup: &Setup) {
        let fields = locked(&self.0.wishes).fields;
        let trimmed = |mut object: K| {
            object.trim(&setup.driver, fields);
            object
        };
        let news = match news {
            News::Listed(object) => News::Listed(trimmed(object)),
            News::Applied(object) => News::Applied(trimmed(object)),
            News::OwnWrite(object) => News::OwnWrite(trimmed(object)),
            other => other,
        };
        self.note(&news, setup);
        let list_done = matches!(news, News::ListDone);

        self.change(setup, |store| store.apply(news));
        if list_done {
            let wishes = locked(&self.0.wishes);
            if wishes.listed == wishes.last {
                self.0.synced.send_replace(true);
            }
        }
    }

    /// The list that runs has everything: what it lacks is gone. All of that may be gone at once, so other tasks get their turn while it
    /// is delivered. [`News::ListDone`] must follow.
    pub(super) async fn sweep(&self) {
        let Some(setup) = self.0.setup.get() else { return };
        let gone = self.read(Fanout::gone);
        for (number, portion) in gone.chunks(PORTION).enumerate() {
            if number > 0 {
                tokio::task::yield_now().await;
            }
            self.change(setup, |store| store.remove_gone(portion));
        }
    }

    /// Changes the objects, and delivers what that has changed.
    fn change(&self, setup: &Setup, change: impl FnOnce(&mut Fanout<K>) -> Vec<Change<K>>) {
        let mut subscribers = locked(&self.0.subscribers);
        let (changes, held) = {
            let mut store = self.0.store.write().unwrap_or_else(PoisonError::into_inner);
            (change(&mut store), store.len())
        };
        show_count(&setup.objects, held);
        for change in &changes {
            for subscriber in subscribers.iter_mut() {
                subscriber.hear(change);
            }
        }
    }

    /// Sets the wished fields. Unless the cached objects are enough (`is_enough`), the cache is not synced until the
    /// next list.
    pub(super) fn turn(&self, fields: Fields, is_enough: bool) {
        let mut wishes = locked(&self.0.wishes);
        if wishes.fields != fields {
            wishes.fields = fields;
            self.0.store.write().unwrap_or_else(PoisonError::into_inner).refit();
        }
        if !is_enough {
            wishes.last += 1;
            self.0.synced.send_replace(false);
        }
    }

    /// Forgets everything, because the kind has no users any more and the objects would become stale.
    pub(super) fn clear(&self) {
        self.0.synced.send_replace(false);
        self.0.store.write().unwrap_or_else(PoisonError::into_inner).clear();
        locked(&self.0.progress).last_error = None;
        self.0.unreadable.send_replace(None);
        if let Some(setup) = self.0.setup.get() {
            setup.unreadable.set(0.0);
            setup.objects.set(0.0);
        }
    }

    fn read<R>(&self, look: impl FnOnce(&Fanout<K>) -> R) -> R {
        look(&self.0.store.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: Cached> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Cached> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("kind", &K::KIND).field("objects", &self.len()).finish_non_exhaustive()
    }
}
