//! How far a cache is, and what is wrong with it: for its readers, the status page and the metrics.

use std::sync::atomic::Ordering;

use kube::Resource as _;
use tokio::time::Instant;

use super::{Cache, Setup, locked};
use crate::cluster::error::ApiErrorKind;
use crate::cluster::fanout::News;
use crate::cluster::objects::Cached;
use crate::cluster::watch_error::right;
use crate::telemetry::names as metric;

#[derive(Default)]
pub(super) struct Progress {
    lists: u64,
    last_list: Option<Instant>,
    last_event: Option<Instant>,
    errors: u64,
    pub(super) last_error: Option<String>,
    /// An absent kind may exist: only the right to read it is missing.
    is_forbidden: bool,
}

/// The state of a cache, for the status page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheStatus {
    /// The kind.
    pub kind: &'static str,
    /// Number of objects in the cache.
    pub objects: usize,
    /// Whether a list was ever completed.
    pub synced: bool,
    /// Whether the cluster does not have the kind, or does not let us read it.
    pub absent: bool,
    /// How many lists were completed.
    pub lists: u64,
    /// When the last one was.
    pub last_list: Option<Instant>,
    /// When the last watch event came.
    pub last_event: Option<Instant>,
    /// How many lists and watches failed.
    pub errors: u64,
    /// The current error; `None` once the watch works again.
    pub last_error: Option<String>,
    /// Why the kind cannot be listed, if its lists have failed for a while.
    pub unreadable: Option<String>,
    /// Whether a role needs the kind for all that it does. Otherwise the role serves without it what needs no such objects.
    pub needed: bool,
}

impl<K: Cached> Cache<K> {
    /// Why the objects of the kind are not known, as text for people. `None`: they are, or the first list is still to come.
    pub fn missing(&self) -> Option<String> {
        let plural = if K::KIND.ends_with('s') { "es" } else { "s" };
        if !self.is_synced() {
            return Some(format!("{}{plural} cannot be read: {}", K::KIND, self.why_unreadable()?));
        }
        if !self.is_absent() {
            return None;
        }
        if locked(&self.0.progress).is_forbidden {
            return Some(format!("the right to {} is missing", right::<K>()));
        }
        Some(format!("the cluster has no {}{plural}", K::KIND))
    }

    /// Whether the objects of the kind are known: then one that the cache lacks does not exist, or is younger than the cache.
    pub fn is_known(&self) -> bool {
        self.is_synced() && !self.is_absent()
    }

    /// Whether the cluster does not have the kind: then there is no object of it. A kind that cannot be read may have some.
    pub fn does_not_exist(&self) -> bool {
        self.is_synced() && self.is_absent() && !locked(&self.0.progress).is_forbidden
    }

    /// Why the objects of the kind are not known; `None`: they are.
    pub fn unknown(&self) -> Option<String> {
        if self.is_known() {
            return None;
        }
        Some(self.missing().unwrap_or_else(|| format!("{} is not listed yet", K::KIND)))
    }

    /// Waits until a list was completed, or until lists have failed for so long that the kind counts as unreadable. What the cache
    /// lacks may exist then: ask [`is_known`](Self::is_known).
    pub async fn settled(&self) {
        let unreadable = async {
            // The sender lives as long as `self`, so the wait cannot fail.
            let _ = self.0.unreadable.subscribe().wait_for(Option::is_some).await;
        };
        tokio::select! {
            biased;
            () = self.synced() => {}
            () = unreadable => {}
        }
    }

    fn why_unreadable(&self) -> Option<String> {
        self.0.unreadable.borrow().as_deref().map(str::to_owned)
    }

    /// The state of the cache.
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
            unreadable: self.why_unreadable(),
            needed: !K::OPTIONAL,
        }
    }

    /// Records that a list or a watch failed, also in the metric of API requests, so that the alert about missing
    /// rights covers caches, too. Successes are not counted there, because a watch has no end.
    pub(in crate::cluster) fn failed(&self, verb: &str, class: ApiErrorKind, error: String) {
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

    /// Records that lists of the kind have failed for a while. The next successful list resets this.
    pub(in crate::cluster) fn unreadable(&self, error: String) {
        self.0.unreadable.send_replace(Some(error.into()));
    }

    /// Shows in the metrics whether the kind cannot be read.
    pub(in crate::cluster) fn shown_unreadable(&self, is_unreadable: bool) {
        if let Some(setup) = self.0.setup.get() {
            setup.unreadable.set(f64::from(u8::from(is_unreadable)));
        }
    }

    /// Records that the cluster does not have the kind, or why we can't know. The next successful list resets this.
    pub(in crate::cluster) fn absent(&self, trouble: Option<String>) {
        self.0.present.store(false, Ordering::Release);
        let mut progress = locked(&self.0.progress);
        (progress.is_forbidden, progress.last_error) = (trouble.is_some(), trouble);
    }

    /// Records that the watch works again.
    pub(in crate::cluster) fn recovered(&self) {
        locked(&self.0.progress).last_error = None;
    }

    pub(super) fn note(&self, news: &News<K>, setup: &Setup) {
        let mut progress = locked(&self.0.progress);
        match news {
            News::ListDone => {
                self.0.present.store(true, Ordering::Release);
                self.0.unreadable.send_if_modified(|held| held.take().is_some());
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
}
