//! One kind, held in memory and shared by whoever asks.
//!
//! ```text
//! watch ──> trim ──> Fanout (store + indexes) ──> subscribers, in order, none lost
//! own write's answer ──^
//! ```
//!
//! Two locks, never the same work under both: `subscribers` is held while a piece of news is taken in *and* delivered,
//! which gives every subscriber one order; `store` is held only to look or to change, so that a subscriber may read this
//! and any other cache while it is being told. What a subscriber must not do is feed news, subscribe, or end a subscription.
//!
//! A subscriber that panics harms nobody else: the cache catches the panic, tells that subscriber nothing more, and goes on with
//! the next one. [`Subscription::panicked`] says so to the subscription's owner, whose term must fail.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use crate::process::watch;
use kube::Resource as _;
use metrics::{Counter, Gauge};
use tokio::time::Instant;

use super::error::ApiErrorKind;
use super::fanout::{Change, Fanout, News, Origin};
use super::names::ObjectName;
use super::objects::{Cached, Fields, IndexName};
use super::subscription::{Link, Subscribed, Subscriber, Subscription};
use crate::process::Clock;
use crate::telemetry::{Meter, names as metric};

/// The objects of one kind. Clones are handles to the same objects.
pub struct Cache<K: Cached>(Arc<Inner<K>>);

struct Inner<K: Cached> {
    store: RwLock<Fanout<K>>,
    subscribers: Mutex<Vec<Subscriber<K>>>,
    progress: Mutex<Progress>,
    synced: watch::Sender<bool>,
    /// What is wished now, and of which wish the list is that runs: by number.
    wishes: Mutex<Wishes>,
    /// Whether the cluster has the kind, as far as known.
    present: AtomicBool,
    lists: watch::Sender<Lists>,
    setup: OnceLock<Setup>,
}

/// What is known only once the driver is.
struct Setup {
    driver: String,
    clock: Clock,
    objects: Gauge,
    lists: Counter,
    errors: Counter,
    meter: Meter,
}

#[derive(Default)]
struct Progress {
    lists: u64,
    last_list: Option<Instant>,
    last_event: Option<Instant>,
    errors: u64,
    last_error: Option<String>,
}

/// A list of an earlier wish holds less than is wished, and makes nothing synced.
#[derive(Debug, Default)]
struct Wishes {
    fields: Fields,
    last: u64,
    listed: u64,
}

/// Which lists were asked for, and how far they are: numbers of requests, each list serves all that were made before it.
#[derive(Debug, Default)]
struct Lists {
    asked: u64,
    begun: u64,
    done: u64,
}

/// How a cache is doing, for the status page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheStatus {
    /// The kind.
    pub kind: &'static str,
    /// How many objects are held.
    pub objects: usize,
    /// Whether a list was ever completed.
    pub synced: bool,
    /// Whether the cluster lacks the kind, or does not let us read it.
    pub absent: bool,
    /// How many lists were completed.
    pub lists: u64,
    /// When the last one was.
    pub last_list: Option<Instant>,
    /// When the last watch event came.
    pub last_event: Option<Instant>,
    /// How many lists and watches failed.
    pub errors: u64,
    /// What is wrong now; `None` once the watch works again.
    pub last_error: Option<String>,
}

impl<K: Cached> Subscribed for Inner<K> {
    fn unsubscribe(&self, link: &Arc<Link>) {
        let mut subscribers = locked(&self.subscribers);
        let at = subscribers.iter().position(|subscriber| Arc::ptr_eq(&subscriber.link, link));
        let gone = at.map(|at| subscribers.remove(at));
        // Not under the lock: nobody knows what goes with it.
        drop(subscribers);
        drop(gone);
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
            wishes: Mutex::default(),
            present: AtomicBool::new(true),
            lists: watch::Sender::new(Lists::default()),
            setup: OnceLock::new(),
        }))
    }

    /// Says from whose view objects are trimmed. News that comes before is not taken in.
    pub(super) fn set_up(&self, driver: &str, meter: &Meter, clock: Clock) {
        let labels = [("kind", K::KIND)];
        // A second call would be for the same driver: another one is fatal to the process.
        let _ = self.0.setup.set(Setup {
            driver: driver.to_owned(),
            clock,
            objects: meter.gauge(&metric::CACHE_OBJECTS, &labels),
            lists: meter.counter(&metric::CACHE_RELISTS, &labels),
            errors: meter.counter(&metric::CACHE_WATCH_ERRORS, &labels),
            meter: meter.clone(),
        });
    }

    /// The object of that name.
    pub fn get(&self, name: &ObjectName) -> Option<Arc<K>> {
        self.read(|store| store.get(name).cloned())
    }

    /// The objects found under `value` in an index, by name.
    pub fn find(&self, index: IndexName, value: &str) -> Vec<Arc<K>> {
        self.read(|store| store.find(index, value).cloned().collect())
    }

    /// Every object, by name.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read(|store| store.all().cloned().collect())
    }

    /// How many objects are held.
    pub fn len(&self) -> usize {
        self.read(Fanout::len)
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.read(Fanout::is_empty)
    }

    /// Whether a list was ever completed. Nothing may be decided before.
    pub fn is_synced(&self) -> bool {
        *self.0.synced.borrow()
    }

    /// Whether the cluster lacks the kind, or does not let us read it: then nothing is held, truly.
    pub fn is_absent(&self) -> bool {
        !self.0.present.load(Ordering::Acquire)
    }

    /// Waits until a list was completed.
    pub async fn synced(&self) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = self.0.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Waits for a list that begins after this call. Whatever was gone by then is no longer held, and whatever was there is,
    /// however far behind the watch was.
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

    /// Waits until somebody wants a list that has not begun.
    pub(super) async fn relist_asked(&self) {
        let _ = self.0.lists.subscribe().wait_for(|lists| lists.asked > lists.begun).await;
    }

    /// Tells `tell` of everything that is held, then of every change, in order and without a gap.
    ///
    /// `tell` runs where the news comes in: it must be quick, and must not subscribe to or apply own writes to this cache. If
    /// it panics, it is told nothing more, and [`Subscription::panicked`] resolves.
    pub fn subscribe(&self, tell: impl Fn(&Change<K>) + Send + Sync + 'static) -> Subscription {
        let mut subscribers = locked(&self.0.subscribers);
        let subscriber = Subscriber::new(tell);
        for object in self.all() {
            subscriber.tell(&Change { old: None, new: Some(object), origin: Origin::Replay });
        }
        let link = Arc::clone(&subscriber.link);
        subscribers.push(subscriber);
        let from: Weak<Inner<K>> = Arc::downgrade(&self.0);
        Subscription { link, from }
    }

    /// Lets every subscriber that there is now panic at the next change.
    #[cfg(test)]
    pub(crate) fn break_subscribers(&self, message: &'static str) {
        for subscriber in locked(&self.0.subscribers).iter_mut() {
            subscriber.tell = Box::new(move |_| panic!("{message}"));
        }
    }

    /// Takes in the server's answer to our own write, ahead of the watch: the next decision is made from what was
    /// written, not from what the watch has brought so far.
    pub fn apply_own_write(&self, written: K) {
        self.feed(News::OwnWrite(written));
    }

    /// How the cache is doing.
    pub fn status(&self) -> CacheStatus {
        let progress = locked(&self.0.progress);
        CacheStatus {
            kind: K::KIND,
            objects: self.len(),
            synced: self.is_synced(),
            absent: self.is_absent(),
            lists: progress.lists,
            last_list: progress.last_list,
            last_event: progress.last_event,
            errors: progress.errors,
            last_error: progress.last_error.clone(),
        }
    }

    pub(super) fn feed(&self, news: News<K>) {
        let Some(setup) = self.0.setup.get() else { return };
        let (begins, ends) = (matches!(news, News::RestartList), matches!(news, News::ListDone));
        if begins {
            let mut wishes = locked(&self.0.wishes);
            wishes.listed = wishes.last;
            drop(wishes);
            self.0.lists.send_modify(|lists| lists.begun = lists.asked);
        }
        self.ingest(news, setup);
        if ends {
            self.0.lists.send_modify(|lists| lists.done = lists.begun);
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

        let subscribers = locked(&self.0.subscribers);
        let (changes, held) = {
            let mut store = self.0.store.write().unwrap_or_else(PoisonError::into_inner);
            (store.apply(news), store.len())
        };
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no cluster has 2^52 objects")]
        setup.objects.set(held as f64);
        for change in &changes {
            for subscriber in subscribers.iter() {
                subscriber.tell(change);
            }
        }
        drop(subscribers);
        if list_done {
            let wishes = locked(&self.0.wishes);
            if wishes.listed == wishes.last {
                self.0.synced.send_replace(true);
            }
        }
    }

    /// From now on this is wished. Unless what is held `is_enough`, nothing may be decided before the next list.
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

    /// Forgets everything, for nobody wants it any more: what is held would grow old.
    pub(super) fn clear(&self) {
        self.0.synced.send_replace(false);
        *self.0.store.write().unwrap_or_else(PoisonError::into_inner) = Fanout::default();
        locked(&self.0.progress).last_error = None;
        if let Some(setup) = self.0.setup.get() {
            setup.objects.set(0.0);
        }
    }

    /// Records that a list or a watch failed, also among the requests: whoever is alarmed by a right that is missing must hear of
    /// a cache that grows old for want of it. What goes well is not counted there, for a watch has no end.
    pub(super) fn failed(&self, verb: &str, class: ApiErrorKind, error: String) {
        if let Some(setup) = self.0.setup.get() {
            setup.errors.increment(1);
            let resource = K::Kind::plural(&());
            let labels = [("verb", verb), ("resource", &*resource), ("outcome", class.label())];
            setup.meter.counter(&metric::API_REQUESTS, &labels).increment(1);
        }
        let mut progress = locked(&self.0.progress);
        progress.errors += 1;
        progress.last_error = Some(error);
    }

    /// Records that the cluster does not have the kind, or why we can't know. The next list that succeeds says otherwise.
    pub(super) fn absent(&self, trouble: Option<String>) {
        self.0.present.store(false, Ordering::Release);
        locked(&self.0.progress).last_error = trouble;
    }

    /// Records that the watch works again.
    pub(super) fn recovered(&self) {
        locked(&self.0.progress).last_error = None;
    }

    fn note(&self, news: &News<K>, setup: &Setup) {
        let mut progress = locked(&self.0.progress);
        match news {
            News::ListDone => {
                self.0.present.store(true, Ordering::Release);
                setup.lists.increment(1);
                progress.lists += 1;
                progress.last_list = Some(setup.clock.now());
                progress.last_error = None;
            }
            News::Applied(_) | News::Deleted(_) => {
                progress.last_event = Some(setup.clock.now());
                progress.last_error = None;
            }
            News::RestartList | News::Listed(_) | News::OwnWrite(_) => {}
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
