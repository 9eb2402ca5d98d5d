//! Fills one cache, forever: list, watch, and again after every error. [`ListWatch`] does the reading (pages, events, bookmarks). This file
//! decides when:
//!
//! - **Back-off after an error.** The delay doubles from 0.8 s to 30 s, with jitter from our random numbers.
//! - **A version that the server has forgotten** (410), in a watch or at its beginning: everything is listed again, at once if the watch
//!   has worked for a while.
//! - **Timeouts.** We abort a list that stops half-way. After a long time without watch events we do not trust the
//!   watch, and list again.
//! - **Optional kinds.** If a cluster does not have the CRD, the kind has no objects; this is not an error. It is looked for again after
//!   30 s at the latest, and at once where another absent kind is found ([`Found`]): they are installed together. A watch of
//!   `CustomResourceDefinition`s would need a right that the daemon has no other use for.
//! - **Kinds with several versions.** The best that the server has is read, and another when that is no longer served.
//!
//! Lists are always consistent reads, page by page. A list streamed by a watch (`sendInitialEvents`) shows no change before all objects,
//! and not every server has it.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

use super::cache::Cache;
use super::error::ApiErrorKind;
use super::fanout::News;
use super::list_watch::{ListWatch, Source};
use super::objects::Cached;
use super::outage::Outage;
use super::pass::Pass;
use super::scope::{WatchScope, Wish};
use super::trouble::{Loudness, Told};
use super::watch_error::{Failure, LIST, ReadError, WATCH, right};
use crate::process::{Clock, Rng, watch};

/// The least limit for the time from one object of a list to the next.
const LIST_SILENCE: Duration = Duration::from_secs(90);
/// This limit exceeds the clients' limit for the beginning of a response by this time, because a page may begin late.
const BEYOND_ANSWER: Duration = Duration::from_secs(30);
/// After this time without watch events everything is listed again: the Go sidecars' resync period, here a safety net
/// for dead watches.
const WATCH_SILENCE: Duration = Duration::from_secs(600);
/// The delays after errors of kube and client-go, and the time without errors that resets them.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));
const FORGIVEN: Duration = Duration::from_secs(120);
/// A watch that has not failed for this long counts as working, even without events.
const RECOVERED: Duration = Duration::from_secs(10);
/// The pauses between looks for an optional kind that the cluster does not have, or that we may not read. They double: what
/// is installed together is often there a moment later.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The longest pause before the next look for a kind that the daemon needs, where the server lacks it or refuses it: the daemon is not
/// ready meanwhile, and such an answer costs the server little.
const LOOK_FOR_NEEDED: Duration = Duration::from_secs(10);

/// Counts the kinds that could not be read and now can. Each watch of another such kind follows it.
pub(super) type Found = watch::Sender<u64>;

/// Why everything is listed again.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Restart {
    Expired,
    Silent,
    Asked,
    Absent,
    /// The kind cannot be read in this version, and may be in another.
    OtherVersion(Failure),
    /// The list has failed, and the server's answer was about the kind.
    Refused(ApiErrorKind),
    /// The list has failed for another reason, or an object has no version.
    Failed,
}

/// What a watch needs beside its cache and its API.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) clock: Clock,
    pub(super) rng: Rng,
    pub(super) outage: Outage,
    pub(super) found: Found,
    /// The limit for the time from one object of a list to the next.
    pub(super) list_silence: Duration,
}

/// The limit for the time from one object of a list to the next, for clients with this response timeout.
pub(super) fn list_silence(response_timeout: Duration) -> Duration {
    LIST_SILENCE.max(response_timeout.saturating_add(BEYOND_ANSWER))
}

/// Watches the current wish. Without a wish, it watches nothing and the cache is empty.
pub(super) async fn run<K: Cached>(
    cache: Cache<K>,
    client: kube::Client,
    mut wish: watch::Receiver<Option<Wish>>,
    means: Means,
) {
    loop {
        let wanted = wish.borrow_and_update().clone();
        let changed = async {
            if wish.changed().await.is_err() {
                // The set of caches is gone, but this cache may still have readers: it stays as it is.
                std::future::pending::<()>().await;
            }
        };
        if let Some(Wish { scope, .. }) = wanted {
            tokio::select! {
                biased;
                () = changed => {}
                () = keep(&cache, &client, &scope, &means) => {}
            }
        } else {
            cache.clear();
            changed.await;
        }
    }
}

/// Fills the cache from one scope, forever.
async fn keep<K: Cached>(cache: &Cache<K>, client: &kube::Client, scope: &WatchScope, means: &Means) {
    let mut others = means.found.subscribe();
    let mut watch = Watch {
        cache,
        means,
        backoff: Backoff::new(means.rng.clone()),
        told: Told::default(),
        pass: Pass::default(),
        listed: None,
    };
    let mut after = None;
    let mut pause = LOOK_AGAIN.0;
    loop {
        cache.read_as(watch.pass.version);
        let source = Source::new::<K>(client, scope, cache.version());
        others.mark_unchanged();
        let begun = Instant::now();
        let restart = watch.follow(ListWatch::new(source), after.as_ref()).await;
        if let Restart::OtherVersion(failure) = restart {
            watch.pass.next(K::VERSIONS.len(), failure);
            continue;
        }
        watch.pass.end();
        debug!(kind = K::KIND, because = ?restart, "listing again");
        match restart {
            Restart::Asked => {}
            // Whatever changes until the next list is not seen.
            Restart::Expired if watch.has_worked() => {}
            Restart::Absent => {
                let is_soon = look_again(cache, &mut others, begun, pause).await;
                pause = if is_soon { LOOK_AGAIN.0 } else { (pause * 2).min(LOOK_AGAIN.1) };
                watch.pass.version = 0;
            }
            Restart::Refused(class) => {
                let delay = watch.backoff.next(means.clock.now());
                let delay = if class.is_withheld() { delay.min(LOOK_FOR_NEEDED) } else { delay };
                look_again(cache, &mut others, begun, delay).await;
                watch.pass.version = 0;
            }
            // Without this, a server that refuses every watch right after every list would be listed without a pause.
            _ => sleep(watch.backoff.next(means.clock.now())).await,
        }
        if !matches!(restart, Restart::Asked | Restart::Absent) {
            pause = LOOK_AGAIN.0;
        }
        after = Some(restart);
    }
}

/// Waits before the next look for a kind that cannot be read. The wait ends early if something asks for the kind, or another such kind
/// was found: `true`.
async fn look_again<K: Cached>(
    cache: &Cache<K>,
    others: &mut watch::Receiver<u64>,
    begun: Instant,
    pause: Duration,
) -> bool {
    let other_found = timeout(pause, async {
        tokio::select! {
            biased;
            () = cache.relist_asked() => false,
            changed = others.changed() => changed.is_ok(),
        }
    });
    let is_soon = other_found.await == Ok(true);
    // Many objects may name the kind, one after the other.
    sleep_until(begun + LOOK_AGAIN.0).await;
    is_soon
}

/// One watch.
struct Watch<'a, K: Cached> {
    cache: &'a Cache<K>,
    means: &'a Means,
    backoff: Backoff,
    /// The failures that the log has told.
    told: Told,
    pass: Pass,
    /// When the list was complete that the watch goes on from.
    listed: Option<Instant>,
}

impl<K: Cached> Watch<'_, K> {
    async fn follow(&mut self, mut reader: ListWatch<K>, after: Option<&Restart>) -> Restart {
        let (cache, clock, list_silence) = (self.cache, self.means.clock, self.means.list_silence);
        let (mut listing, mut failing) = (true, false);
        let mut heard = clock.now();
        self.listed = None;
        cache.feed(News::RestartList);
        loop {
            let patience = match (listing, failing) {
                (true, _) => list_silence,
                (false, true) => RECOVERED,
                (false, false) => WATCH_SILENCE,
            };
            let event = tokio::select! {
                biased;
                () = cache.relist_asked(), if !listing => return Restart::Asked,
                event = timeout_at(heard + patience, reader.next()) => event,
            };
            let event = match event {
                Ok(event) => event,
                Err(_) if listing => {
                    self.note(Failure::silence(list_silence.as_secs()), false);
                    return Restart::Silent;
                }
                Err(_) if failing => {
                    self.works(&mut failing);
                    cache.recovered();
                    continue;
                }
                Err(_) => return Restart::Silent,
            };
            match event {
                Ok(News::ListDone) => {
                    cache.sweep().await;
                    self.listed(after);
                    (listing, failing) = (false, self.told.is_of(WATCH));
                }
                Ok(change @ (News::Applied(_) | News::Deleted(_))) => {
                    self.works(&mut failing);
                    cache.feed(change);
                    if listing {
                        // It does not show that the list goes on.
                        continue;
                    }
                }
                Ok(news) => cache.feed(news),
                Err(error) => {
                    let failure = Failure::of(&error);
                    if listing {
                        return self.list_failed(failure);
                    }
                    let seen = cache.is_synced() && !cache.is_absent();
                    if K::OPTIONAL && failure.is_absence(seen) {
                        // Only a list shows which objects exist.
                        return Restart::Expired;
                    }
                    // Servers and proxies end watches: what counts is whether the next one can be started.
                    let is_usual = !failing && failure.class.is_transient() && matches!(error, ReadError::Watch(_));
                    let is_expired = failure.is_expired();
                    self.note(failure, is_usual);
                    if is_expired {
                        return Restart::Expired;
                    }
                    if matches!(error, ReadError::NoVersion) {
                        return Restart::Failed;
                    }
                    failing = true;
                    sleep(self.backoff.next(clock.now())).await;
                }
            }
            heard = clock.now();
        }
    }

    /// A list is complete.
    fn listed(&mut self, after: Option<&Restart>) {
        let cache = self.cache;
        self.listed = Some(self.means.clock.now());
        if after != Some(&Restart::Expired) {
            self.backoff.failures = 0;
        }
        let is_found = match after {
            Some(Restart::Absent) => cache.is_absent(),
            Some(Restart::Refused(_)) => true,
            _ => false,
        };
        if self.told.is_of(LIST) {
            self.over();
        }
        cache.feed(News::ListDone);
        debug!(kind = K::KIND, objects = cache.len(), version = cache.version(), "cache listed");
        if is_found {
            self.means.found.send_modify(|found| *found += 1);
        }
    }

    /// A list has failed.
    fn list_failed(&mut self, failure: Failure) -> Restart {
        let (cache, is_lost) = (self.cache, self.means.outage.is_lost());
        let may_pass = failure.is_brief && !self.told.is_lasting(self.means.clock.now());
        let is_of_version = failure.is_of_kind() && !failure.is_forbidden() && !is_lost && !may_pass;
        if is_of_version && self.pass.unread + 1 < K::VERSIONS.len() {
            debug!(
                kind = K::KIND,
                version = cache.version(),
                error = failure.text,
                "cannot read the kind in this version"
            );
            return Restart::OtherVersion(failure);
        }
        // The server lacks the last of the versions, but has one that it cannot show.
        let failure = self.pass.earlier.take().filter(|_| failure.is_unserved()).unwrap_or(failure);
        if K::OPTIONAL && failure.is_absence(cache.is_synced() && !cache.is_absent()) {
            self.absent(failure);
            return Restart::Absent;
        }
        let refused = failure.is_of_kind() && !is_lost;
        let (class, text) = (failure.class, failure.text.clone());
        self.note(failure, false);
        if !refused {
            return Restart::Failed;
        }
        if self.told.is_lasting(self.means.clock.now()) {
            cache.unreadable(text);
        }
        Restart::Refused(class)
    }

    /// The cluster does not have the kind, or does not let us read it.
    fn absent(&mut self, failure: Failure) {
        let cache = self.cache;
        cache.feed(News::RestartList);
        cache.feed(News::ListDone);
        if !failure.is_forbidden() {
            debug!(kind = K::KIND, because = failure.text, "the cluster has no such kind");
            self.over();
            return cache.absent(None);
        }
        if self.told.failed(&failure, self.means.clock.now()) == Loudness::Debug {
            debug!(kind = K::KIND, because = failure.text, "the kind may still not be read");
        } else {
            warn!(
                kind = K::KIND,
                right = right::<K>(),
                error = failure.text,
                "the right to read a kind is missing: until it is granted, the daemon goes on as if there were no such objects"
            );
        }
        // We may only lack the right to see the kind: the status page shows this as an error.
        cache.absent(Some(failure.text));
        cache.shown_unreadable(true);
    }

    /// Notes a failed list or watch, and says so in the log. `is_usual`: it is nothing to speak of.
    fn note(&mut self, failure: Failure, is_usual: bool) {
        let is_quiet = is_usual || (failure.class.is_transient() && self.means.outage.is_lost());
        let loudness = if is_quiet { Loudness::Debug } else { self.told.failed(&failure, self.means.clock.now()) };
        let (kind, error) = (K::KIND, failure.text.as_str());
        match loudness {
            Loudness::Debug => debug!(kind, error, "watch failed"),
            Loudness::Info => info!(kind, error, "watch failed: this usually passes by itself"),
            Loudness::Warn if failure.is_forbidden() => {
                warn!(kind, right = right::<K>(), error, "the right to read a kind is missing");
            }
            Loudness::Warn => warn!(kind, error, "watch failed"),
        }
        self.cache.failed(failure.verb, failure.class, failure.text);
        self.cache.shown_unreadable(self.told.is_warned());
    }

    /// Whether the watch was begun a while ago.
    fn has_worked(&self) -> bool {
        self.listed.is_some_and(|listed| self.means.clock.now().duration_since(listed) >= RECOVERED)
    }

    /// The watch works.
    fn works(&mut self, failing: &mut bool) {
        self.backoff.failures = 0;
        if std::mem::take(failing) {
            self.over();
        }
    }

    /// What the log has told is over.
    fn over(&mut self) {
        if self.told.over() {
            info!(kind = K::KIND, "the kind can be read again");
        }
        self.cache.shown_unreadable(false);
    }
}

struct Backoff {
    failures: u32,
    last: Option<Instant>,
    rng: Rng,
}

impl Backoff {
    fn new(rng: Rng) -> Self {
        Self { failures: 0, last: None, rng }
    }

    fn next(&mut self, now: Instant) -> Duration {
        let (first, most) = BACKOFF;
        if self.last.is_some_and(|last| now.duration_since(last) > FORGIVEN) {
            self.failures = 0;
        }
        let base = first.saturating_mul(2_u32.saturating_pow(self.failures.min(10))).min(most);
        self.failures = self.failures.saturating_add(1);
        self.last = Some(now);
        self.rng.jittered(base, 0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_half_a_minute_and_start_over_after_quiet() {
        let mut backoff = Backoff::new(Rng::seeded(1));
        let now = Instant::now();
        let delays: Vec<Duration> = (0..12).map(|_| backoff.next(now)).collect();
        assert!(delays[0] >= Duration::from_millis(800) && delays[0] <= Duration::from_millis(1200), "{delays:?}");
        assert!(delays[1] >= Duration::from_millis(1600), "{delays:?}");
        let longest = Duration::from_secs(30)..=Duration::from_secs(45);
        assert!(delays.iter().skip(6).all(|delay| longest.contains(delay)), "{delays:?}");
        assert!(backoff.next(now + Duration::from_secs(121)) < Duration::from_secs(2));
    }
}
