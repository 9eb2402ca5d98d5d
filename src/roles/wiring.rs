//! What a role may ask for while it loads: declarations only, no I/O.

use std::collections::BTreeSet;

use kube::Resource;
use kube::core::NamespaceResourceScope;

use crate::cluster::rbac::Rule;
use crate::cluster::{Cache, Cached, Caches, Fields, Viewpoint, WatchHandle, WatchScope};

/// Collects what a role needs before anything of it is started.
#[derive(Debug)]
pub struct Wiring<'a> {
    caches: &'a Caches,
    active: Vec<&'a str>,
    wired: Wired,
}

/// What a role asked for.
#[derive(Debug, Default)]
pub struct Wired {
    /// The rights that it needs beyond its caches'.
    pub rules: Vec<Rule>,
    /// Its caches, held for as long as this is.
    pub watches: Vec<WatchHandle>,
    /// The roles whose presence it asked about. When one of them comes or goes, this one must be loaded anew.
    pub depends_on: BTreeSet<&'static str>,
}

impl<'a> Wiring<'a> {
    /// Declarations go into `caches`.
    pub fn new(caches: &'a Caches) -> Self {
        Self { caches, active: Vec::new(), wired: Wired::default() }
    }

    /// Says which roles this daemon serves, those still to be loaded among them.
    #[must_use]
    pub fn hosting(mut self, roles: impl IntoIterator<Item = &'a str>) -> Self {
        self.active.extend(roles);
        self
    }

    /// Whether this daemon serves `role` too.
    pub fn hosts(&mut self, role: &'static str) -> bool {
        self.wired.depends_on.insert(role);
        self.active.contains(&role)
    }

    /// The shared cache of a kind: one watch, whoever asks.
    pub fn cache<K: Cached>(&mut self) -> Cache<K> {
        let (cache, handle) = self.caches.watch::<K>();
        self.wired.watches.push(handle);
        cache
    }

    /// The same, with groups of fields that no cache holds unless a hosted role asks for them.
    pub fn cache_with<K: Cached>(&mut self, fields: Fields) -> Cache<K> {
        let (cache, handle) = self.caches.watch_with::<K>(fields);
        self.wired.watches.push(handle);
        cache
    }

    /// The shared cache of a kind of which this role needs only a part. Who else wants more makes it hold more.
    pub fn cache_in<K>(&mut self, scope: impl Fn(&Viewpoint<'_>) -> WatchScope + Send + Sync + 'static) -> Cache<K>
    where
        K: Cached<Kind: Resource<Scope = NamespaceResourceScope>>,
    {
        let (cache, handle) = self.caches.watch_in::<K>(scope);
        self.wired.watches.push(handle);
        cache
    }

    /// A way to watch single namespaces of a kind, while the role is served and somebody needs it. The role asks for the right to
    /// do so by [`needs`](Self::needs).
    pub fn namespaces(&self) -> Caches {
        self.caches.clone()
    }

    /// A right that the role needs beyond its caches'.
    pub fn needs(&mut self, rule: Rule) {
        self.wired.rules.push(rule);
    }

    /// What was asked for.
    pub fn into_wired(self) -> Wired {
        self.wired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::rbac::Scope;
    use crate::cluster::{CsiStorageCapacity, PersistentVolume, VolumeSnapshot};

    #[test]
    fn a_role_hears_who_is_served_beside_it() {
        let caches = Caches::new();
        let mut wiring = Wiring::new(&caches).hosting(["attacher", "provisioner"]);
        assert!(wiring.hosts("attacher") && !wiring.hosts("resizer"));
        assert!(wiring.into_wired().depends_on.into_iter().eq(["attacher", "resizer"]));
    }

    #[test]
    fn fields_that_only_some_roles_read_are_asked_for_of_the_same_cache() {
        let caches = Caches::new();
        let mut wiring = Wiring::new(&caches);
        let _ = wiring.cache::<PersistentVolume>();
        let _ = wiring.cache_with::<PersistentVolume>(Fields::RESIZE);
        assert_eq!(wiring.into_wired().watches.len(), 2);
        assert_eq!(caches.rules(&Viewpoint::of("demo")).len(), 0, "nothing is held by a role that has gone");
    }

    #[test]
    fn the_right_to_read_a_part_is_asked_for_where_the_part_is() {
        let caches = Caches::new();
        let mut wiring = Wiring::new(&caches);
        let own = |view: &Viewpoint<'_>| WatchScope {
            namespace: view.namespace.map(str::to_owned),
            labels: Some(format!("driver={}", view.driver)),
        };
        let _ = wiring.cache_in::<CsiStorageCapacity>(own);
        let _ = wiring.cache::<VolumeSnapshot>();
        let view = Viewpoint { namespace: Some("kube"), ..Viewpoint::of("demo") };
        let told = |rules: Vec<Rule>| rules.into_iter().map(|rule| (rule.resource, rule.scope)).collect::<Vec<_>>();
        assert_eq!(
            told(caches.rules(&view)),
            [("csistoragecapacities".to_owned(), Scope::Namespace), ("volumesnapshots".to_owned(), Scope::Cluster)]
        );
        let _ = wiring.cache::<CsiStorageCapacity>();
        assert_eq!(told(caches.rules(&view))[0].1, Scope::Cluster, "somebody wants them all");
    }
}
