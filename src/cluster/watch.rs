//! Fills one cache, forever: list, watch, and again after every error. kube's watcher implements the protocol (pages,
//! bookmarks, an expired version inside a stream). This file adds:
//!
//! - **Back-off after an error.** kube's watcher would continue at once. Our delay doubles from 0.8 s to 30 s, with
//!   jitter from our random numbers.
//! - **A watch that is refused with a plain 410 response.** kube's watcher would request the same version forever; we
//!   list again.
//! - **Timeouts.** We abort a list that stops half-way. After a long time without watch events we do not trust the
//!   watch, and list again.
//! - **Optional kinds.** If a cluster does not have the CRD, the kind has no objects; this is not an error. It is looked for again after
//!   30 s at the latest, and at once where another absent kind is found ([`Found`]): they are installed together. A watch of
//!   `CustomResourceDefinition`s would need a right that the daemon has no other use for.
//! - **Kinds with several versions.** The best that the server has is read, and another when that is no longer served.
//!
//! Lists are always consistent reads, page by page. kube's streaming lists start at version 0, which may be older than
//! the cached objects: then "not in the list" would not mean "gone", and a volume could be released while it is
//! attached.

use std::borrow::Cow;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::runtime::watcher::{self, Event, watcher};
use serde::{Deserialize, Deserializer};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{debug, warn};

use super::cache::Cache;
use super::error::ApiErrorKind;
use super::fanout::News;
use super::objects::Cached;
use super::outage::Outage;
use super::scope::{WatchScope, Wish};
use super::watch_error::{LIST, classified, code, is_absent, is_forbidden, right, told};
use crate::process::{Clock, FailureLog, Rng, watch};

/// How long the server may keep one watch open. Short, because a dead connection is noticed only when this time is
/// over; a new watch costs one request.
const WATCH_SECONDS: u32 = 60;
/// Objects a page.
const PAGE: u32 = 500;
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
/// A restarted watch that has not failed for this long counts as working, even without events.
const RECOVERED: Duration = Duration::from_secs(10);
/// The pauses between looks for an optional kind that the cluster does not have, or that we may not read. They double: what
/// is installed together is often there a moment later.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Counts the absent kinds that were found. Each watch of an absent kind follows it.
pub(super) type Found = watch::Sender<u64>;

/// Why the watcher is dropped and everything is listed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restart {
    Expired,
    Silent,
    Ended,
    Asked,
    Absent,
    /// The server has no such version of the kind, and may have another.
    Unserved,
}

/// The version in which a kind is read; `None`: that of its URL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Version(pub(super) Option<&'static str>);

/// An object for kube's watcher, which needs only the version.
#[derive(Debug, Clone)]
pub(super) struct Watched<K> {
    version: ObjectMeta,
    object: K,
}

impl<'de, K: Cached> Deserialize<'de> for Watched<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let object = K::deserialize(from)?;
        let resource_version = object.meta().resource_version.as_deref().map(str::to_owned);
        Ok(Self { version: ObjectMeta { resource_version, ..ObjectMeta::default() }, object })
    }
}

impl<K: Cached> Resource for Watched<K> {
    type DynamicType = Version;
    type Scope = <K::Kind as Resource>::Scope;

    fn kind(_: &Version) -> Cow<'_, str> {
        K::Kind::kind(&())
    }

    fn group(_: &Version) -> Cow<'_, str> {
        K::Kind::group(&())
    }

    fn version(version: &Version) -> Cow<'_, str> {
        version.0.map_or_else(|| K::Kind::version(&()), Cow::Borrowed)
    }

    fn plural(_: &Version) -> Cow<'_, str> {
        K::Kind::plural(&())
    }

    fn metadata_api() -> bool {
        K::Kind::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.version
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.version
    }
}

/// The limit for the time from one object of a list to the next, for clients with this response timeout.
pub(super) fn list_silence(response_timeout: Duration) -> Duration {
    LIST_SILENCE.max(response_timeout.saturating_add(BEYOND_ANSWER))
}

/// Watches the current wish. Without a wish, it watches nothing and the cache is empty.
pub(super) async fn run<K: Cached>(
    cache: Cache<K>,
    api: impl Fn(Option<&str>, Version) -> kube::Api<Watched<K>>,
    mut wish: watch::Receiver<Option<Wish>>,
    list_silence: Duration,
    clock: Clock,
    (rng, outage, found): (Rng, Outage, Found),
) {
    loop {
        let wanted = wish.borrow_and_update().clone();
        let changed = async {
            if wish.changed().await.is_err() {
                // The set of caches is gone, but this cache may still have readers: it stays as it is.
                std::future::pending::<()>().await;
            }
        };
        if let Some(Wish { scope: WatchScope { namespace, labels }, .. }) = wanted {
            let api = |version| api(namespace.as_deref(), version);
            tokio::select! {
                biased;
                () = changed => {}
                () = keep(&cache, api, labels, list_silence, clock, (rng.clone(), outage.clone(), found.clone())) => {}
            }
        } else {
            cache.clear();
            changed.await;
        }
    }
}

/// Fills the cache from one scope, forever.
async fn keep<K: Cached>(
    cache: &Cache<K>,
    api: impl Fn(Version) -> kube::Api<Watched<K>>,
    labels: Option<String>,
    list_silence: Duration,
    clock: Clock,
    (rng, outage, found): (Rng, Outage, Found),
) {
    let mut others = found.subscribe();
    let mut backoff =
        Backoff { failures: 0, last: None, rng, outage, found, told: FailureLog::default(), is_right_missing: false };
    let mut config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE);
    config.label_selector = labels;
    let mut after = None;
    // Which version is read, how many in a row are not served, and the pause before the next look for an absent kind.
    let (mut version, mut unserved, mut pause) = (0, 0, LOOK_AGAIN.0);
    loop {
        cache.read_as(version);
        let api = api(Version(cache.version()));
        let has_other = unserved + 1 < K::VERSIONS.len();
        others.mark_unchanged();
        let begun = Instant::now();
        let restart = follow(cache, &api, &config, list_silence, clock, &mut backoff, (after, has_other)).await;
        if restart == Restart::Unserved {
            unserved += 1;
            version = (version + 1) % K::VERSIONS.len().max(1);
            continue;
        }
        unserved = 0;
        debug!(kind = K::KIND, because = ?restart, "listing again");
        after = Some(restart);
        if restart == Restart::Asked {
            continue;
        }
        if restart == Restart::Absent {
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
            pause = if is_soon { LOOK_AGAIN.0 } else { (pause * 2).min(LOOK_AGAIN.1) };
            version = 0;
            continue;
        }
        pause = LOOK_AGAIN.0;
        // Without this, a server that refuses every watch right after every list would be listed without a pause.
        sleep(backoff.next(clock.now())).await;
    }
}

async fn follow<K: Cached>(
    cache: &Cache<K>,
    api: &kube::Api<Watched<K>>,
    config: &watcher::Config,
    list_silence: Duration,
    clock: Clock,
    backoff: &mut Backoff,
    (after, has_other): (Option<Restart>, bool),
) -> Restart {
    let mut events = pin!(watcher(api.clone(), config.clone()));
    let (mut listing, mut failing) = (true, false);
    let mut heard = clock.now();
    loop {
        let patience = match (listing, failing) {
            (true, _) => list_silence,
            (false, true) => RECOVERED,
            (false, false) => WATCH_SILENCE,
        };
        let event = tokio::select! {
            biased;
            () = cache.relist_asked(), if !listing => return Restart::Asked,
            event = timeout_at(heard + patience, events.next()) => event,
        };
        let event = match event {
            Ok(Some(event)) => event,
            Ok(None) => return Restart::Ended,
            Err(_) if listing => {
                let text = format!("a list stopped half-way: nothing more for {}s", list_silence.as_secs());
                cache.failed(LIST, ApiErrorKind::Timeout, text);
                return Restart::Silent;
            }
            Err(_) if failing => {
                failing = false;
                cache.recovered();
                continue;
            }
            Err(_) => return Restart::Silent,
        };
        match event {
            Ok(Event::Init) => {
                listing = true;
                cache.feed(News::RestartList);
            }
            Ok(Event::InitApply(object)) => cache.feed(News::Listed(object.object)),
            Ok(Event::InitDone) => {
                (listing, failing, backoff.is_right_missing) = (false, false, false);
                if after != Some(Restart::Expired) {
                    backoff.failures = 0;
                }
                let was_absent = after == Some(Restart::Absent) && cache.is_absent();
                cache.feed(News::ListDone);
                debug!(kind = K::KIND, objects = cache.len(), "cache listed");
                if was_absent {
                    backoff.found.send_modify(|found| *found += 1);
                }
            }
            Ok(Event::Apply(object)) => {
                (failing, backoff.failures) = (false, 0);
                cache.feed(News::Applied(object.object));
            }
            Ok(Event::Delete(object)) => {
                (failing, backoff.failures) = (false, 0);
                cache.feed(News::Deleted(object.object));
            }
            Err(error) if K::OPTIONAL && is_absent(&error, cache.is_synced() && !cache.is_absent()) => {
                if listing && has_other && code(&error) == Some(404) {
                    return Restart::Unserved;
                }
                if listing {
                    cache.feed(News::RestartList);
                    cache.feed(News::ListDone);
                    let (because, is_forbidden) = (told(&error), is_forbidden(&error));
                    if !is_forbidden {
                        debug!(kind = K::KIND, because, "the cluster has no such kind");
                    } else if backoff.is_right_missing {
                        debug!(kind = K::KIND, because, "the kind may still not be read");
                    } else {
                        warn!(
                            kind = K::KIND,
                            right = right::<K>(),
                            error = because,
                            "the right to read a kind is missing: until it is granted, the daemon goes on as if there were no such objects"
                        );
                    }
                    backoff.is_right_missing = is_forbidden;
                    // We may only lack the right to see the kind: the status page shows this as an error.
                    cache.absent(is_forbidden.then_some(because));
                    return Restart::Absent;
                }
                // Only a list shows which objects exist.
                return Restart::Expired;
            }
            Err(error) => {
                let text = told(&error);
                let (verb, class) = classified(&error);
                // Servers and proxies end watches: what counts is whether the next one can be started.
                let is_usual = !failing && class.is_transient() && matches!(error, watcher::Error::WatchFailed(_));
                let is_quiet = is_usual || (class.is_transient() && backoff.outage.is_lost());
                let warns = if is_quiet { None } else { backoff.told.warns(&text, clock.now()) };
                tell::<K>(&text, is_forbidden(&error), warns);
                failing = true;
                cache.failed(verb, class, text);
                if matches!(&error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410) {
                    return Restart::Expired;
                }
                sleep(backoff.next(clock.now())).await;
            }
        }
        heard = clock.now();
    }
}

/// Logs a failed list or watch. `warns`: it is worth a warning, and how many like it were left out before.
fn tell<K: Cached>(error: &str, is_forbidden: bool, warns: Option<u64>) {
    match warns {
        None => debug!(kind = K::KIND, error, "watch failed"),
        Some(left_out) if is_forbidden => {
            warn!(kind = K::KIND, right = right::<K>(), error, left_out, "the right to read a kind is missing");
        }
        Some(left_out) => warn!(kind = K::KIND, error, left_out, "watch failed"),
    }
}

struct Backoff {
    failures: u32,
    last: Option<Instant>,
    rng: Rng,
    /// What fails while the API is lost is no news.
    outage: Outage,
    found: Found,
    /// The failures that the log has told.
    told: FailureLog,
    /// The kind may not be read, and the log has told so.
    is_right_missing: bool,
}

impl Backoff {
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
        let mut backoff = Backoff {
            failures: 0,
            last: None,
            rng: Rng::seeded(1),
            outage: Outage::default(),
            found: Found::new(0),
            told: FailureLog::default(),
            is_right_missing: false,
        };
        let now = Instant::now();
        let delays: Vec<Duration> = (0..12).map(|_| backoff.next(now)).collect();
        assert!(delays[0] >= Duration::from_millis(800) && delays[0] <= Duration::from_millis(1200), "{delays:?}");
        assert!(delays[1] >= Duration::from_millis(1600), "{delays:?}");
        let longest = Duration::from_secs(30)..=Duration::from_secs(45);
        assert!(delays.iter().skip(6).all(|delay| longest.contains(delay)), "{delays:?}");
        assert!(backoff.next(now + Duration::from_secs(121)) < Duration::from_secs(2));
    }
}
