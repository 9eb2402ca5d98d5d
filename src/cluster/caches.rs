//! One cache per kind, shared by all users. Roles declare their kinds while they load, offline; this creates the
//! handles and the RBAC rules. The watches start when the driver's name is known; a kind that is declared later starts
//! at once. A user that may end before the daemon holds a [`WatchHandle`]: when the last handle of a kind is dropped,
//! the watch stops and the cache is cleared, because the right to read the kind may be gone, too.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kube::Resource;
use kube::core::NamespaceResourceScope;

use super::cache::{Cache, CacheStatus};
use super::clients::Clients;
use super::names::ObjectName;
use super::objects::{BY_HANDLE, Cached, ClaimLink, Fields, IndexName, PersistentVolume, VolumeSnapshotContent};
use super::rbac::Rule;
use super::scope::{Asked, Need, ScopeOf, Viewpoint, WatchScope, Wish};
use super::watch::{self, Found, Means};
use crate::process::watch as value;
use crate::process::{Clock, Rng, Tasks};
use crate::telemetry::Meter;

/// The caches of one process. Clones share them.
#[derive(Clone, Default)]
pub struct Caches(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    wanted: Vec<Box<dyn AnyWanted>>,
    start: Option<Start>,
}

/// A requested kind.
struct Wanted<K: Cached> {
    cache: Cache<K>,
    asked: Asked,
    /// What its watch must hold.
    wish: value::Sender<Option<Wish>>,
}

/// Keeps a kind watched until it is dropped.
#[must_use = "dropping it withdraws the claim"]
pub struct WatchHandle {
    caches: Weak<Mutex<State>>,
    kind: TypeId,
    ask: u64,
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        let Some(caches) = self.caches.upgrade() else { return };
        let mut state = caches.lock().unwrap_or_else(PoisonError::into_inner);
        let State { wanted, start } = &mut *state;
        for wanted in wanted.iter_mut().filter(|wanted| wanted.kind() == self.kind) {
            wanted.withdraw(self.ask, start.as_ref());
        }
    }
}

impl fmt::Debug for WatchHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchHandle").field(&self.ask).finish()
    }
}

/// An object that a search has found in a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// The kind.
    pub kind: &'static str,
    /// The object.
    pub name: ObjectName,
    /// Where it is, or how far, and whose it is.
    pub whereabouts: Option<String>,
    /// What the driver calls it.
    pub handle: Option<String>,
    /// Why it fails.
    pub trouble: Option<String>,
}

/// Whether a search finds an object with these texts: kind, name, whereabouts.
pub type Finds<'a> = &'a dyn Fn(&[&str]) -> bool;

/// The claim that a link leads to.
type ClaimOf<'a> = &'a dyn Fn(ClaimLink) -> Option<ObjectName>;

/// What a watch needs to run.
#[derive(Clone)]
struct Start {
    client: kube::Client,
    driver: String,
    namespace: Option<String>,
    node: Option<String>,
    tasks: Tasks,
    meter: Meter,
    means: Means,
}

/// A wanted kind, independent of its type.
trait AnyWanted: Send + Sync {
    fn start(&self, start: &Start);
    fn withdraw(&mut self, ask: u64, start: Option<&Start>);
    fn is_wanted(&self) -> bool;
    fn kind(&self) -> TypeId;
    fn status(&self) -> CacheStatus;
    fn find(&self, finds: Finds<'_>, claim_of: ClaimOf<'_>) -> Vec<Sighting>;
    /// Where the claim of the object with this name, or else with this value in an index, can be learnt.
    fn claim_link(&self, name: &ObjectName, index: Option<IndexName>) -> Option<ClaimLink>;
    fn rule(&self, view: &Viewpoint<'_>) -> Rule;
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<K: Cached> AnyWanted for Wanted<K> {
    fn start(&self, start: &Start) {
        self.cache.set_up(&start.driver, &start.meter, start.means.clock);
        self.turn(Some(start));
        let (client, wish) = (start.client.clone(), self.wish.subscribe());
        let future = watch::run(self.cache.clone(), client, wish, start.means.clone());
        start.tasks.spawn(format_args!("watch.{}", K::Kind::plural(&())), future);
    }

    fn withdraw(&mut self, ask: u64, start: Option<&Start>) {
        self.asked.withdraw(ask);
        self.turn(start);
    }

    fn is_wanted(&self) -> bool {
        !self.asked.is_empty()
    }

    fn kind(&self) -> TypeId {
        TypeId::of::<K>()
    }

    fn status(&self) -> CacheStatus {
        let status = self.cache.status();
        CacheStatus { needed: status.needed && self.asked.is_needed(), ..status }
    }

    fn find(&self, finds: Finds<'_>, claim_of: ClaimOf<'_>) -> Vec<Sighting> {
        let sighting = |object: Arc<K>| {
            let claim = object.claim_link().and_then(claim_of).map(|claim| format!("claim {claim}"));
            let texts: Vec<String> = object.whereabouts().into_iter().chain(claim).collect();
            let (name, whereabouts) = (ObjectName::of(object.as_ref()), (!texts.is_empty()).then(|| texts.join(", ")));
            let handle = object.handle().map(str::to_owned);
            let is_found = finds(&[K::KIND, &name.to_string(), whereabouts.as_deref().unwrap_or_default()]);
            let trouble = object.trouble().map(str::to_owned);
            is_found.then_some(Sighting { kind: K::KIND, name, whereabouts, handle, trouble })
        };
        let mut found: Vec<Sighting> = self.cache.each().filter_map(sighting).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    fn claim_link(&self, name: &ObjectName, index: Option<IndexName>) -> Option<ClaimLink> {
        let object = match index {
            Some(index) => self.cache.find(index, name.name()).into_iter().next(),
            None => self.cache.get(name),
        };
        object?.claim_link()
    }

    fn rule(&self, view: &Viewpoint<'_>) -> Rule {
        let of = if self.asked.scope(view).is_some_and(|scope| scope.namespace.is_some()) {
            Rule::namespaced
        } else {
            Rule::cluster
        };
        let reason = if K::OPTIONAL { "shared cache, if the cluster has the kind" } else { "shared cache" };
        of(&K::Kind::group(&()), &K::Kind::plural(&()), &["list", "watch"], reason)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl<K: Cached> Wanted<K> {
    /// Adapts the running watch to the current wishes.
    fn turn(&self, start: Option<&Start>) {
        let Some(start) = start else { return };
        let wish = self.asked.wish(&start.view());
        self.wish.send_if_modified(|current| {
            let differs = *current != wish;
            if differs {
                let is_enough = match (&*current, &wish) {
                    (Some(held), Some(wish)) => held.scope == wish.scope && held.fields.contains(wish.fields),
                    _ => false,
                };
                self.cache.turn(wish.as_ref().map_or(Fields::NONE, |wish| wish.fields), is_enough);
                current.clone_from(&wish);
            }
            differs
        });
    }
}

impl State {
    /// The claim at the end of a link: a snapshot knows its content, that its volume, and that its claim.
    fn claim_of(&self, mut link: ClaimLink) -> Option<ObjectName> {
        loop {
            let (kind, name, index) = match link {
                ClaimLink::Claim(claim) => return Some(claim),
                ClaimLink::Volume(name) => (TypeId::of::<PersistentVolume>(), name, None),
                ClaimLink::Handle(key) => (TypeId::of::<PersistentVolume>(), key, Some(BY_HANDLE)),
                ClaimLink::Content(name) => (TypeId::of::<VolumeSnapshotContent>(), name, None),
            };
            let known = self.wanted.iter().find(|wanted| wanted.kind() == kind && wanted.is_wanted())?;
            link = known.claim_link(&ObjectName::cluster(name), index)?;
        }
    }
}

impl Start {
    fn view(&self) -> Viewpoint<'_> {
        Viewpoint { driver: &self.driver, namespace: self.namespace.as_deref(), node: self.node.as_deref() }
    }
}

impl Caches {
    /// No caches yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The cache of a kind, for as long as the daemon runs. All callers get the same cache.
    pub fn want<K: Cached>(&self) -> Cache<K> {
        self.enter(|wanted: &mut Wanted<K>| wanted.asked.whole(Fields::NONE, Need::Role)).0
    }

    /// The same, for as long as the handle is held.
    pub fn watch<K: Cached>(&self) -> (Cache<K>, WatchHandle) {
        self.watch_with(Fields::NONE)
    }

    /// The same, with additional groups of fields.
    pub fn watch_with<K: Cached>(&self, fields: Fields) -> (Cache<K>, WatchHandle) {
        let (cache, ask) = self.enter(|wanted: &mut Wanted<K>| wanted.asked.whole(fields, Need::Role));
        (cache, self.handle::<K>(ask))
    }

    /// The cache of a kind, with these groups of fields, that only a feature of its user needs, for as long as the handle is held.
    pub fn watch_for_feature<K: Cached>(&self, fields: Fields) -> (Cache<K>, WatchHandle) {
        let (cache, ask) = self.enter(|wanted: &mut Wanted<K>| wanted.asked.whole(fields, Need::Feature));
        (cache, self.handle::<K>(ask))
    }

    /// The cache of a kind, with at least the objects in `scope`, for as long as the daemon runs.
    pub fn want_in<K>(&self, scope: impl Fn(&Viewpoint<'_>) -> WatchScope + Send + Sync + 'static) -> Cache<K>
    where
        K: Cached<Kind: Resource<Scope = NamespaceResourceScope>>,
    {
        self.enter_in(Arc::new(scope), Need::Role).0
    }

    /// The same, for as long as the handle is held.
    pub fn watch_in<K>(
        &self,
        scope: impl Fn(&Viewpoint<'_>) -> WatchScope + Send + Sync + 'static,
        need: Need,
    ) -> (Cache<K>, WatchHandle)
    where
        K: Cached<Kind: Resource<Scope = NamespaceResourceScope>>,
    {
        let (cache, ask) = self.enter_in(Arc::new(scope), need);
        (cache, self.handle::<K>(ask))
    }

    /// The cache of a kind, with at least the objects that a label selector matches, for as long as the handle is held. `None`: all
    /// objects.
    pub fn watch_labelled<K: Cached>(
        &self,
        labels: impl Fn(&Viewpoint<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> (Cache<K>, WatchHandle) {
        let scope: ScopeOf = Arc::new(move |view| WatchScope { namespace: None, labels: labels(view) });
        let (cache, ask) = self.enter(|wanted: &mut Wanted<K>| wanted.asked.part(scope, Need::Role));
        (cache, self.handle::<K>(ask))
    }

    fn enter_in<K>(&self, scope: ScopeOf, need: Need) -> (Cache<K>, u64)
    where
        K: Cached<Kind: Resource<Scope = NamespaceResourceScope>>,
    {
        self.enter(|wanted: &mut Wanted<K>| wanted.asked.part(scope, need))
    }

    fn enter<K: Cached>(&self, ask: impl FnOnce(&mut Wanted<K>) -> u64) -> (Cache<K>, u64) {
        let mut state = self.state();
        let State { wanted, start } = &mut *state;
        if let Some(held) = wanted.iter_mut().find_map(|wanted| wanted.as_any().downcast_mut::<Wanted<K>>()) {
            let ask = ask(held);
            held.turn(start.as_ref());
            return (held.cache.clone(), ask);
        }
        let wish = value::Sender::new(None);
        let mut new = Wanted { cache: Cache::<K>::new(), asked: Asked::default(), wish };
        let ask = ask(&mut new);
        if let Some(start) = start {
            new.start(start);
        }
        let cache = new.cache.clone();
        wanted.push(Box::new(new));
        (cache, ask)
    }

    /// A cache of its own for the objects of one namespace, watched by a task of `tasks` for as long as those last. It is for what a
    /// role needs seldom and of few namespaces: it is not shared, and neither metrics nor the status page show it. `None`: the
    /// watches have not been started.
    pub fn watch_namespace<K>(&self, namespace: &str, tasks: &Tasks) -> Option<Cache<K>>
    where
        K: Cached<Kind: Resource<Scope = NamespaceResourceScope>>,
    {
        let start = self.state().start.clone()?;
        let cache = Cache::<K>::new();
        cache.set_up(&start.driver, &Meter::new(), start.means.clock);
        let scope = WatchScope { namespace: Some(namespace.to_owned()), labels: None };
        let wish = value::Sender::new(Some(Wish { scope, fields: Fields::NONE }));
        let watched = watch::run(cache.clone(), start.client, wish.subscribe(), start.means);
        tasks.spawn(format_args!("watch.{}.{namespace}", K::Kind::plural(&())), async move {
            // Its receiver waits for another wish, and none comes.
            let _wish = wish;
            watched.await;
        });
        Some(cache)
    }

    fn handle<K: Cached>(&self, ask: u64) -> WatchHandle {
        WatchHandle { caches: Arc::downgrade(&self.0), kind: TypeId::of::<K>(), ask }
    }

    /// Starts the watch of every wanted kind, each a task of `tasks`, seen from `view`. Only the first call counts.
    pub fn start(&self, clients: &Clients, view: &Viewpoint<'_>, tasks: &Tasks, meter: &Meter, clock: Clock, rng: Rng) {
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
            means: Means {
                clock,
                rng,
                outage: clients.outage.clone(),
                found: Found::new(0),
                list_silence: watch::list_silence(clients.response_timeout),
            },
        };
        for wanted in &state.wanted {
            wanted.start(&start);
        }
        state.start = Some(start);
    }

    /// The rights that the wanted caches need.
    pub fn rules(&self, view: &Viewpoint<'_>) -> Vec<Rule> {
        self.state().wanted.iter().filter(|wanted| wanted.is_wanted()).map(|wanted| wanted.rule(view)).collect()
    }

    /// The state of each wanted cache, in the order of their first request.
    pub fn status(&self) -> Vec<CacheStatus> {
        self.state().wanted.iter().filter(|wanted| wanted.is_wanted()).map(|wanted| wanted.status()).collect()
    }

    /// The cached objects that a search finds, kind by kind. What belongs to a claim is found by the claim's name, too.
    pub fn find(&self, finds: Finds<'_>) -> Vec<Sighting> {
        let state = self.state();
        let claim_of = |link| state.claim_of(link);
        let wanted = state.wanted.iter().filter(|wanted| wanted.is_wanted());
        wanted.flat_map(|wanted| wanted.find(finds, &claim_of)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.status().iter().map(|status| status.kind)).finish()
    }
}
