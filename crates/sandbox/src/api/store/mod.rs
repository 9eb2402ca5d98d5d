//! The versioned store: the objects of all kinds, one version counter, and the recent events.
//!
//! ```text
//!   create / update / patch / delete ─> write ─> commit ─┬─> objects   (get, list)
//!                                                        ├─> history   (watch, list at an old version)
//!                                                        ├─> hooks     (invariants, at every commit)
//!                                                        └─> changed   (wakes watches)
//! ```
//!
//! Everything here is synchronous and runs under the one lock that [`Api`](super::Api) holds, as if etcd were a map: a
//! request sees a consistent state, a commit is seen by all or by none.

mod admission;
mod defaults;
mod history;
pub(crate) mod meta;
mod naming;
mod quota;
mod read;
mod sources;
mod token;
mod write;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base::process::watch;
use serde_json::{Value, json};

pub(crate) use history::{Event, History};
pub(crate) use read::{At, ListQuery, ListRefusal, Listed};
pub(crate) use token::Continue;
pub(crate) use write::{Preconditions, Target, WriteOptions};

use crate::api::pure::resources::{RESOURCES, Resource};
use base::process::{Clock, Rng};

/// A kind's identity in the store: its group and plural. Versions of one group share their objects.
pub(crate) type Kind = (&'static str, &'static str);

/// An object's place within its kind, in the order in which lists are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Empty for objects of the cluster scope.
    pub(crate) namespace: String,
    /// The object's name.
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// One committed change, as a hook sees it.
#[derive(Debug)]
pub struct Committed<'a> {
    /// The resourceVersion of the change.
    pub version: u64,
    /// The kind that was changed.
    pub resource: &'static Resource,
    /// The object before.
    pub old: Option<&'a Value>,
    /// The object after; `None` when it is gone.
    pub new: Option<&'a Value>,
    /// The writer: the user of the request's token.
    pub actor: &'a str,
    /// The whole store, the change included.
    pub store: Snapshot<'a>,
}

/// Read access to the store at the moment of a commit.
#[derive(Clone, Copy)]
pub struct Snapshot<'a>(&'a State);

impl<'a> Snapshot<'a> {
    /// The oldest version from which the API can still tell all changes.
    pub fn oldest(self) -> u64 {
        self.0.history.oldest()
    }

    /// All objects of a kind, by its plural and group, in order.
    pub fn objects(self, group: &str, plural: &str) -> impl Iterator<Item = &'a Value> {
        let kind = self.0.objects.iter().find(|(kind, _)| kind.0 == group && kind.1 == plural);
        kind.into_iter().flat_map(|(_, objects)| objects.values().map(AsRef::as_ref))
    }

    /// One object; `namespace` is empty for the cluster scope.
    pub fn object(self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<&'a Value> {
        let (_, objects) = self.0.objects.iter().find(|(kind, _)| kind.0 == group && kind.1 == plural)?;
        objects.get(&Key::new(namespace, name)).map(AsRef::as_ref)
    }
}

impl fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot(version {})", self.0.version)
    }
}

/// Called on every committed change, in order, before anyone else sees it. It must not call the API: that would wait for
/// itself.
pub type Hook = Arc<dyn Fn(&Committed<'_>) + Send + Sync>;

/// The store's whole state.
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with each other")]
pub(crate) struct State {
    clock: Clock,
    rng: Rng,
    version: u64,
    objects: BTreeMap<Kind, BTreeMap<Key, Arc<Value>>>,
    history: History,
    hooks: Vec<Hook>,
    changed: watch::Sender<u64>,
    /// Whether `metadata.managedFields` is kept for writes other than apply.
    managed_fields: bool,
    /// The groups of optional kinds that were installed, each with the version that is served.
    installed: BTreeMap<String, String>,
    /// Whether new claims and volumes get the finalizer that holds them while they are in use.
    protects: bool,
    /// Whether claims may name sources in other namespaces.
    sources_anywhere: bool,
    volume_health: bool,
}

/// The effect of a commit on an object.
enum Change {
    Put(Value),
    Remove(Value),
}

impl State {
    /// A store with the namespaces that every cluster has.
    pub(crate) fn new(clock: Clock, rng: Rng, history_limit: usize, managed_fields: bool) -> Self {
        let mut state = Self {
            clock,
            rng,
            version: 0,
            objects: BTreeMap::new(),
            history: History::new(history_limit),
            hooks: Vec::new(),
            changed: watch::Sender::new(0),
            managed_fields,
            installed: BTreeMap::new(),
            protects: false,
            sources_anywhere: false,
            volume_health: false,
        };
        if let Some(namespaces) = RESOURCES.iter().find(|resource| resource.plural == "namespaces") {
            for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
                let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                let target = Target { resource: namespaces, namespace: "", name };
                // Nothing can be wrong with these, and a cluster without them would show at once.
                let _ = state.create(target, object, WriteOptions::by("system:apiserver"));
            }
        }
        state
    }

    /// The latest resourceVersion.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Sends each new version.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The recent events.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Forgets the history up to now.
    pub(crate) fn compact(&mut self) {
        self.history.compact(self.version);
        // Watches that lag behind learn it now, not with the next change.
        self.changed.send_replace(self.version);
    }

    /// Installs the optional kinds of a group, in the version that `group/version` names, else in the first that there is.
    pub(crate) fn install(&mut self, what: &str) {
        let (group, version) = what.split_once('/').unzip();
        let group = group.unwrap_or(what);
        let of_group = RESOURCES.iter().find(|resource| resource.group == group);
        let version = version.or_else(|| of_group.map(|resource| resource.version)).unwrap_or_default();
        self.installed.insert(group.to_owned(), version.to_owned());
    }

    /// The kinds of this group are not there any more.
    pub(crate) fn uninstall(&mut self, group: &str) {
        self.installed.remove(group);
    }

    /// Whether the kind is there.
    pub(crate) fn serves(&self, resource: &Resource) -> bool {
        !resource.optional || self.installed.get(resource.group).is_some_and(|version| version == resource.version)
    }

    /// From now on new claims, volumes and attributes classes are held while they are in use.
    pub(crate) fn protect_storage_in_use(&mut self) {
        self.protects = true;
    }

    /// From now on claims may name sources in other namespaces.
    pub(crate) fn allow_sources_anywhere(&mut self) {
        self.sources_anywhere = true;
    }

    /// See [`Api`](super::Api).
    pub(crate) fn keep_volume_health(&mut self) {
        self.volume_health = true;
    }

    /// Adds a hook.
    pub(crate) fn hook(&mut self, hook: Hook) {
        self.hooks.push(hook);
    }

    /// One object.
    pub(crate) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.objects.get(&kind(resource))?.get(&Key::new(namespace, name)).cloned()
    }

    /// Commits a change under a new version, and wakes all readers.
    fn commit(&mut self, resource: &'static Resource, key: Key, change: Change, actor: &str) -> Arc<Value> {
        self.version += 1;
        let (deleted, mut object) = match change {
            Change::Put(object) => (false, object),
            Change::Remove(object) => (true, object),
        };
        meta::set(&mut object, "resourceVersion", Some(self.version.to_string().into()));
        let object = Arc::new(object);
        let objects = self.objects.entry(kind(resource)).or_default();
        let old = if deleted { objects.remove(&key) } else { objects.insert(key.clone(), Arc::clone(&object)) };
        let namespace = key.namespace.clone();
        self.history.push(Event {
            version: self.version,
            kind: kind(resource),
            key,
            old: old.clone(),
            object: Arc::clone(&object),
            deleted,
            at: self.clock.now(),
        });
        for hook in &self.hooks {
            hook(&Committed {
                version: self.version,
                resource,
                old: old.as_deref(),
                new: (!deleted).then_some(object.as_ref()),
                actor,
                store: Snapshot(self),
            });
        }
        self.changed.send_replace(self.version);
        if deleted && !namespace.is_empty() {
            self.reap_namespace(&namespace);
        }
        object
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("version", &self.version).finish_non_exhaustive()
    }
}

/// A kind's identity in the store.
pub(crate) fn kind(resource: &Resource) -> Kind {
    (resource.group, resource.plural)
}
