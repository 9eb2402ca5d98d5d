//! Volumes that the driver expands only while no pod uses them (resizer spec 3.7).
//!
//! The resizer reads no pods before the driver has refused such a volume. Then the term remembers the claim, and watches the pods of the
//! claim's namespace until it remembers no claim of that namespace any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cluster::{BY_POD_CLAIM, Cache, Cached as _, Caches, Change, ObjectName, Pod, SmolStr, Subscription};
use crate::process::Tasks;
use crate::roles::kit::{Memory, UnknownValues};

use super::progress;
use super::unknown;
use super::view::Pods;
use super::waiting::Reason;

/// Wakes a claim.
pub type Wake = Arc<dyn Fn(&ObjectName) + Send + Sync>;

/// The pods of the namespaces with remembered claims.
pub struct InUse {
    caches: Caches,
    /// What is remembered.
    memory: Arc<Memory<progress::Memory>>,
    /// Wakes a claim that no pod uses any more.
    wake: Wake,
    /// Tells of phases that are not known.
    unknown: Arc<UnknownValues>,
    namespaces: Mutex<BTreeMap<String, Namespace>>,
}

impl std::fmt::Debug for InUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.namespaces.lock().keys()).finish()
    }
}

/// One namespace with remembered claims.
struct Namespace {
    pods: Cache<Pod>,
    _subscriptions: [Subscription; 2],
    _tasks: Tasks,
}

impl InUse {
    /// No namespace is watched.
    pub fn new(caches: Caches, memory: Arc<Memory<progress::Memory>>, wake: Wake, unknown: Arc<UnknownValues>) -> Self {
        Self { caches, memory, wake, unknown, namespaces: Mutex::default() }
    }

    /// Whether pods use a claim that is remembered. The first question begins to watch its namespace.
    pub fn pods(&self, claim: &ObjectName) -> Pods {
        let Some(namespace) = claim.namespace() else { return Pods::None };
        let mut namespaces = self.namespaces.lock();
        if !namespaces.contains_key(namespace) {
            let Some(begun) = self.watch(namespace) else { return Pods::None };
            namespaces.insert(namespace.to_owned(), begun);
        }
        match namespaces.get(namespace) {
            Some(watched) if !watched.pods.is_synced() => Pods::Unknown,
            Some(watched) if !watched.pods.find(BY_POD_CLAIM, claim.name()).is_empty() => Pods::Some,
            _ => Pods::None,
        }
    }

    /// Stops the watches of namespaces without a remembered claim.
    pub fn sweep(&self) {
        let mut namespaces = self.namespaces.lock();
        if namespaces.is_empty() {
            return;
        }
        let claims = self.memory.collect(|memory| memory.in_use.clone());
        let kept: BTreeSet<_> = claims.iter().filter_map(ObjectName::namespace).collect();
        let is_kept = |(namespace, _): &(String, Namespace)| kept.contains(namespace.as_str());
        let (watched, gone): (_, BTreeMap<_, _>) = std::mem::take(&mut *namespaces).into_iter().partition(is_kept);
        *namespaces = watched;
        // A subscription ends after the lock is released, because a change that is being delivered may wait for the lock.
        drop(namespaces);
        for (namespace, watched) in gone {
            drop(watched);
            self.unknown.forget_all(Pod::KIND, &namespace);
        }
    }

    /// Why the pods of the claim's namespace cannot be read, if they cannot.
    pub fn trouble(&self, claim: &ObjectName) -> Option<String> {
        self.namespaces.lock().get(claim.namespace()?)?.pods.status().last_error
    }

    fn watch(&self, namespace: &str) -> Option<Namespace> {
        let (tasks, _) = Tasks::new("resizer");
        let pods = self.caches.watch_namespace::<Pod>(namespace, &tasks)?;
        let subscription = pods.subscribe({
            let wake = self.waker(namespace);
            move |change| {
                let freed = freed(change);
                wake(&|memory| memory.in_use.as_ref().is_some_and(|claim| freed.contains(claim.name())));
            }
        });
        tasks.spawn(format_args!("pods.{namespace}"), {
            let (pods, wake) = (pods.clone(), self.waker(namespace));
            async move {
                pods.synced().await;
                // A claim whose last call has just been refused waits for its back-off.
                wake(&|memory| memory.waiting.as_ref().is_some_and(|waiting| waiting.reason == Reason::InUse));
                // Does not end, because the end of a task counts as a failure.
                std::future::pending::<()>().await;
            }
        });
        let subscriptions = [subscription, pods.subscribe(self.unknown.of(unknown::of_pod))];
        Some(Namespace { pods, _subscriptions: subscriptions, _tasks: tasks })
    }

    /// Wakes those remembered claims of a namespace that are meant.
    fn waker(&self, namespace: &str) -> impl Fn(&dyn Fn(&progress::Memory) -> bool) + Send + Sync + 'static {
        let (memory, wake, namespace) = (Arc::clone(&self.memory), Arc::clone(&self.wake), namespace.to_owned());
        move |is_meant| {
            let of_namespace = |claim: &ObjectName| claim.namespace() == Some(&*namespace);
            let meant =
                memory.collect(|memory| memory.in_use.clone().filter(|it| of_namespace(it) && is_meant(memory)));
            for claim in &meant {
                wake(claim);
            }
        }
    }
}

/// The names of the claims that a pod used before this change, and does not after it.
fn freed(change: &Change<Pod>) -> BTreeSet<String> {
    let used = |pod: Option<&Arc<Pod>>| -> BTreeSet<String> {
        let pod = pod.filter(|pod| !pod.has_ended);
        pod.into_iter().flat_map(|pod| pod.claims.iter().map(SmolStr::to_string)).collect()
    };
    used(change.old.as_ref()).difference(&used(change.new.as_ref())).cloned().collect()
}
