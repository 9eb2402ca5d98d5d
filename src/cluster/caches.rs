//! Each kind once, whoever asks.
//!
//! Roles say what they want while they load, offline: that makes the handles and the RBAC rules. The watches start when
//! the driver's name is known; a kind that is wanted later starts at once.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Resource;
use kube::core::NamespaceResourceScope;

use super::cache::{Cache, CacheStatus};
use super::clients::Clients;
use super::objects::Cached;
use super::rbac::Rule;
use super::scope::{Asked, Viewpoint, WatchScope};
use super::watch::{self, Watched};
use crate::process::{Clock, Entropy, Tasks};
use crate::telemetry::Meter;

/// The caches of one process. Clones share them.
#[derive(Clone, Default)]
pub struct Caches(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    wanted: Vec<Box<dyn AnyWanted>>,
    start: Option<Start>,
}

/// The way to one namespace.
type InNamespace<K> = fn(kube::Client, &str) -> kube::Api<Watched<K>>;

/// A kind that somebody asked for.
struct Wanted<K: Cached> {
    cache: Cache<K>,
    asked: Asked,
    /// The way to one namespace, known if the kind has them.
    in_namespace: Option<InNamespace<K>>,
}

/// What a watch needs to run.
#[derive(Clone)]
struct Start {
    client: kube::Client,
    driver: String,
    namespace: Option<String>,
    node: Option<String>,
    tasks: Tasks,
    meter: Meter,
    clock: Clock,
    entropy: Entropy,
}

/// A wanted kind when it no longer matters which.
trait AnyWanted: Send + Sync {
    fn start(&self, start: &Start);
    fn status(&self) -> CacheStatus;
    fn rule(&self, view: &Viewpoint<'_>) -> Rule;
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<K: Cached> AnyWanted for Wanted<K> {
    fn start(&self, start: &Start) {
        self.cache.set_up(&start.driver, &start.meter, start.clock);
        let view =
            Viewpoint { driver: &start.driver, namespace: start.namespace.as_deref(), node: start.node.as_deref() };
        let scope = self.asked.scope(&view);
        let api = match (self.in_namespace, &scope.namespace) {
            (Some(within), Some(namespace)) => within(start.client.clone(), namespace),
            _ => kube::Api::all(start.client.clone()),
        };
        let future = watch::run(self.cache.clone(), api, scope.labels, start.clock, start.entropy.clone());
        start.tasks.spawn(format_args!("watch.{}", K::Kind::plural(&())), future);
    }

    fn status(&self) -> CacheStatus {
        self.cache.status()
    }

    fn rule(&self, view: &Viewpoint<'_>) -> Rule {
        let of = if self.asked.scope(view).namespace.is_some() { Rule::namespaced } else { Rule::cluster };
        let reason = if K::OPTIONAL { "shared cache, if the cluster has the kind" } else { "shared cache" };
        of(&K::Kind::group(&()), &K::Kind::plural(&()), &["list", "watch"], reason)
    }

    fn as_any(&mut self) -> &mut dyn Any {
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
        self.enter(|wanted: &mut Wanted<K>| wanted.asked.whole())
    }

    /// The cache of a kind, which need not hold more of it than `scope`. A watch that runs keeps the scope that it has.
    pub fn want_in<K>(&self, scope: impl Fn(&Viewpoint<'_>) -> WatchScope + Send + Sync + 'static) -> Cache<K>
    where
        K: Cached<Kind: Resource<Scope = NamespaceResourceScope>>,
    {
        self.enter(|wanted: &mut Wanted<K>| {
            wanted.in_namespace = Some(kube::Api::namespaced);
            wanted.asked.part(Arc::new(scope));
        })
    }

    fn enter<K: Cached>(&self, ask: impl FnOnce(&mut Wanted<K>)) -> Cache<K> {
        let mut state = self.state();
        if let Some(held) = state.wanted.iter_mut().find_map(|wanted| wanted.as_any().downcast_mut::<Wanted<K>>()) {
            ask(held);
            return held.cache.clone();
        }
        let mut wanted = Wanted { cache: Cache::<K>::new(), asked: Asked::default(), in_namespace: None };
        ask(&mut wanted);
        if let Some(start) = &state.start {
            wanted.start(start);
        }
        let cache = wanted.cache.clone();
        state.wanted.push(Box::new(wanted));
        cache
    }

    /// Starts the watch of every wanted kind, each a task of `tasks`, seen from `view`. Only the first call counts.
    pub fn start(
        &self,
        clients: &Clients,
        view: &Viewpoint<'_>,
        tasks: &Tasks,
        meter: &Meter,
        clock: Clock,
        entropy: Entropy,
    ) {
        let mut state = self.state();
        if state.start.is_some() {
            return;
        }
        let start = Start {
            client: clients.watch.clone(),
            driver: view.driver.to_owned(),
            namespace: view.namespace.map(str::to_owned),
            node: view.node.map(str::to_owned),
            tasks: tasks.clone(),
            meter: meter.clone(),
            clock,
            entropy,
        };
        for wanted in &state.wanted {
            wanted.start(&start);
        }
        state.start = Some(start);
    }

    /// The rights that the wanted caches need.
    pub fn rules(&self, view: &Viewpoint<'_>) -> Vec<Rule> {
        self.state().wanted.iter().map(|wanted| wanted.rule(view)).collect()
    }

    /// How each cache is doing, in the order in which they were wanted.
    pub fn status(&self) -> Vec<CacheStatus> {
        self.state().wanted.iter().map(|wanted| wanted.status()).collect()
    }

    /// Whether every wanted cache completed a list.
    pub fn all_synced(&self) -> bool {
        self.state().wanted.iter().all(|wanted| wanted.status().synced)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.state().wanted.iter().map(|wanted| wanted.status().kind)).finish()
    }
}
