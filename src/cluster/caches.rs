//! Each kind once, whoever asks.
//!
//! Roles say what they want while they load, offline: that makes the handles and the RBAC rules. The watches start when
//! the driver's name is known; a kind that is wanted later starts at once.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cache::{Cache, CacheStatus};
use super::clients::Clients;
use super::objects::Cached;
use super::rbac::Rule;
use super::watch;
use crate::process::{Clock, Entropy, Tasks};
use crate::telemetry::Meter;

/// The caches of one process. Clones share them.
#[derive(Clone, Default)]
pub struct Caches(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    wanted: Vec<Wanted>,
    start: Option<Start>,
}

struct Wanted {
    kind: TypeId,
    cache: Box<dyn AnyCache>,
}

/// What a watch needs to run.
#[derive(Clone)]
struct Start {
    client: kube::Client,
    driver: String,
    tasks: Tasks,
    meter: Meter,
    clock: Clock,
    entropy: Entropy,
}

/// A cache whose kind no longer matters.
trait AnyCache: Send + Sync {
    fn start(&self, start: &Start);
    fn status(&self) -> CacheStatus;
    fn rule(&self) -> Rule;
    fn as_any(&self) -> &dyn Any;
}

impl<K: Cached> AnyCache for Cache<K> {
    fn start(&self, start: &Start) {
        self.set_up(&start.driver, &start.meter, start.clock);
        let future = watch::run(self.clone(), kube::Api::all(start.client.clone()), start.clock, start.entropy.clone());
        start.tasks.spawn(format_args!("watch.{}", K::plural(&())), future);
    }

    fn status(&self) -> CacheStatus {
        Self::status(self)
    }

    fn rule(&self) -> Rule {
        Rule::cluster(&K::group(&()), &K::plural(&()), &["list", "watch"], "shared cache")
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Caches {
    /// No caches yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The cache of a kind: the same one for whoever asks.
    pub fn want<K: Cached>(&self) -> Cache<K> {
        let mut state = self.state();
        let held = state.wanted.iter().find(|wanted| wanted.kind == TypeId::of::<K>());
        if let Some(cache) = held.and_then(|wanted| wanted.cache.as_any().downcast_ref::<Cache<K>>()) {
            return cache.clone();
        }
        let cache = Cache::<K>::new();
        if let Some(start) = &state.start {
            cache.start(start);
        }
        state.wanted.push(Wanted { kind: TypeId::of::<K>(), cache: Box::new(cache.clone()) });
        cache
    }

    /// Starts the watch of every wanted kind, each a task of `tasks`, seen from `driver`. Only the first call counts.
    pub fn start(&self, clients: &Clients, driver: &str, tasks: &Tasks, meter: &Meter, clock: Clock, entropy: Entropy) {
        let mut state = self.state();
        if state.start.is_some() {
            return;
        }
        let start = Start {
            client: clients.watch.clone(),
            driver: driver.to_owned(),
            tasks: tasks.clone(),
            meter: meter.clone(),
            clock,
            entropy,
        };
        for wanted in &state.wanted {
            wanted.cache.start(&start);
        }
        state.start = Some(start);
    }

    /// The rights that the wanted caches need.
    pub fn rules(&self) -> Vec<Rule> {
        self.state().wanted.iter().map(|wanted| wanted.cache.rule()).collect()
    }

    /// How each cache is doing, in the order in which they were wanted.
    pub fn status(&self) -> Vec<CacheStatus> {
        self.state().wanted.iter().map(|wanted| wanted.cache.status()).collect()
    }

    /// Whether every wanted cache completed a list.
    pub fn all_synced(&self) -> bool {
        self.state().wanted.iter().all(|wanted| wanted.cache.status().synced)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.state().wanted.iter().map(|wanted| wanted.cache.status().kind)).finish()
    }
}
