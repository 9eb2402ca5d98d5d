//! Volumes that the driver expands only while no pod uses them (resizer spec 3.7).
//!
//! The resizer reads no pods before the driver has refused such a volume. Then it marks the claim in memory, and watches the pods of
//! the claim's namespace until no claim of that namespace is marked any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cluster::{BY_POD_CLAIM, Cache, Cached as _, Caches, Change, ObjectName, Pod, SmolStr, Subscription};
use crate::process::Tasks;
use crate::roles::kit::UnknownValues;

use super::expand::decide::Pods;
use super::unknown;

/// Wakes a claim.
pub type Wake = Arc<dyn Fn(&ObjectName) + Send + Sync>;

/// The claims that are marked, and the pods of their namespaces.
pub struct InUse {
    caches: Caches,
    /// Wakes a claim that no pod uses any more.
    wake: Wake,
    /// Tells of phases that are not known.
    unknown: Arc<UnknownValues>,
    namespaces: Mutex<BTreeMap<String, Namespace>>,
}

impl std::fmt::Debug for InUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

/// The marked claims by uid.
type Marks = Arc<Mutex<BTreeMap<String, Mark>>>;

#[derive(Debug, Clone)]
struct Mark {
    claim: ObjectName,
    /// An attempt has ended because the pods were not listed yet.
    awaits_list: bool,
}

/// One namespace with marked claims.
struct Namespace {
    marked: Marks,
    pods: Cache<Pod>,
    _subscriptions: [Subscription; 2],
    _tasks: Tasks,
}

impl InUse {
    /// No claim is marked.
    pub fn new(caches: Caches, wake: Wake, unknown: Arc<UnknownValues>) -> Self {
        Self { caches, wake, unknown, namespaces: Mutex::default() }
    }

    /// The driver has refused the claim's volume, perhaps because it is in use.
    pub fn mark(&self, claim: &ObjectName, uid: &str) {
        let Some(namespace) = claim.namespace() else { return };
        let mut namespaces = self.lock();
        if !namespaces.contains_key(namespace) {
            let Some(begun) = self.watch(namespace) else { return };
            namespaces.insert(namespace.to_owned(), begun);
        }
        if let Some(watched) = namespaces.get(namespace) {
            let mark = Mark { claim: claim.clone(), awaits_list: false };
            lock(&watched.marked).entry(uid.to_owned()).or_insert(mark);
        }
    }

    /// The claim no longer waits for its pods.
    pub fn unmark(&self, claim: &ObjectName, uid: &str) {
        let Some(namespace) = claim.namespace() else { return };
        let mut namespaces = self.lock();
        let is_last = namespaces.get(namespace).is_some_and(|watched| {
            let mut marked = lock(&watched.marked);
            marked.remove(uid);
            marked.is_empty()
        });
        let gone = if is_last { namespaces.remove(namespace) } else { None };
        let is_gone = gone.is_some();
        // The subscription ends after the lock is released, because a change that is being delivered may wait for the lock.
        drop(namespaces);
        drop(gone);
        if is_gone {
            self.unknown.forget_all(Pod::KIND, namespace);
        }
    }

    /// Whether pods use a claim. If the pods are not listed yet, the claim is woken when they are.
    pub fn pods(&self, claim: &ObjectName, uid: &str) -> Pods {
        let namespaces = self.lock();
        let watched = claim.namespace().and_then(|namespace| namespaces.get(namespace));
        let Some(watched) = watched else { return Pods::None };
        let mut marked = lock(&watched.marked);
        let Some(mark) = marked.get_mut(uid) else { return Pods::None };
        if !watched.pods.is_synced() {
            mark.awaits_list = true;
            return Pods::Unknown;
        }
        drop(marked);
        if watched.pods.find(BY_POD_CLAIM, claim.name()).is_empty() { Pods::None } else { Pods::Some }
    }

    /// Why the pods of the claim's namespace cannot be read, if they cannot.
    pub fn trouble(&self, claim: &ObjectName) -> Option<String> {
        self.lock().get(claim.namespace()?)?.pods.status().last_error
    }

    fn watch(&self, namespace: &str) -> Option<Namespace> {
        let wake = Arc::clone(&self.wake);
        let (tasks, _) = Tasks::new("resizer");
        let pods = self.caches.watch_namespace::<Pod>(namespace, &tasks)?;
        let marked: Marks = Arc::default();
        let subscription = pods.subscribe({
            let (marked, wake) = (Arc::clone(&marked), Arc::clone(&wake));
            move |change| {
                let freed = freed(change);
                let woken = chosen(&marked, |mark| freed.contains(mark.claim.name()));
                for claim in &woken {
                    wake(claim);
                }
            }
        });
        tasks.spawn(format_args!("pods.{namespace}"), {
            let (pods, marked) = (pods.clone(), Arc::clone(&marked));
            async move {
                pods.synced().await;
                for claim in &chosen(&marked, |mark| mark.awaits_list) {
                    wake(claim);
                }
                // Does not end, because the end of a task counts as a failure.
                std::future::pending::<()>().await;
            }
        });
        let subscriptions = [subscription, pods.subscribe(self.unknown.of(unknown::of_pod))];
        Some(Namespace { marked, pods, _subscriptions: subscriptions, _tasks: tasks })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Namespace>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn chosen(marked: &Marks, is_meant: impl Fn(&Mark) -> bool) -> Vec<ObjectName> {
    lock(marked).values().filter(|mark| is_meant(mark)).map(|mark| mark.claim.clone()).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The names of the claims that a pod used before this change, and does not after it.
fn freed(change: &Change<Pod>) -> BTreeSet<String> {
    let used = |pod: Option<&Arc<Pod>>| -> BTreeSet<String> {
        let pod = pod.filter(|pod| !pod.has_ended);
        pod.into_iter().flat_map(|pod| pod.claims.iter().map(SmolStr::to_string)).collect()
    };
    used(change.old.as_ref()).difference(&used(change.new.as_ref())).cloned().collect()
}
