//! What a role declares while it loads, without I/O.

use std::collections::BTreeSet;

use kube::Resource;
use kube::core::NamespaceResourceScope;

use crate::cluster::rbac::Rule;
use crate::cluster::{
    Cache, Cached, Caches, CsiDriver, CsiDriverSpec, Fields, Need, Viewpoint, WatchHandle, WatchScope,
};
use crate::csi::Capabilities;

use super::driver_object::{Expectation, Misfit};

/// Collects the declarations of a role before it starts.
#[derive(Debug)]
pub struct Wiring<'a> {
    caches: &'a Caches,
    active: Vec<&'a str>,
    wired: Wired,
}

/// Rights on objects that are named after the driver, if its name is known.
pub type RulesOf = fn(driver: Option<&str>) -> Vec<Rule>;

/// The declarations of a role.
#[derive(Debug, Default)]
pub struct Wired {
    /// The rights that it needs in addition to its caches' rights.
    pub rules: Vec<Rule>,
    /// The same, on objects that are named after the driver.
    pub rules_of_driver: Vec<RulesOf>,
    /// Its caches, kept alive by these handles.
    pub watches: Vec<WatchHandle>,
    /// The roles whose presence it checked. When one of them is added or removed, this role must be loaded again.
    pub depends_on: BTreeSet<&'static str>,
    /// What it expects of the driver's `CSIDriver` object.
    pub expectation: Option<Expectation>,
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

    /// The shared cache of a kind, with one watch for all roles.
    pub fn cache<K: Cached>(&mut self) -> Cache<K> {
        let (cache, handle) = self.caches.watch::<K>();
        self.wired.watches.push(handle);
        cache
    }

    /// The same, with groups of fields that a cache holds only on request.
    pub fn cache_with<K: Cached>(&mut self, fields: Fields) -> Cache<K> {
        let (cache, handle) = self.caches.watch_with::<K>(fields);
        self.wired.watches.push(handle);
        cache
    }

    /// The shared cache of a kind that only a feature of the role needs: the role does without it what needs no such objects, and the
    /// daemon's readiness does not wait for it. The role waits with [`Cache::settled`], and asks [`Cache::is_known`]. A kind of a CRD
    /// is always of this sort.
    pub fn cache_for_feature<K: Cached>(&mut self) -> Cache<K> {
        self.cache_for_feature_with(Fields::NONE)
    }

    /// The same, with groups of fields that a cache holds only on request.
    pub fn cache_for_feature_with<K: Cached>(&mut self, fields: Fields) -> Cache<K> {
        let (cache, handle) = self.caches.watch_for_feature::<K>(fields);
        self.wired.watches.push(handle);
        cache
    }

    /// The shared cache of a kind, for a role that needs only a part. It holds more if another role needs more.
    pub fn cache_in<K>(
        &mut self,
        scope: impl Fn(&Viewpoint<'_>) -> WatchScope + Send + Sync + 'static,
        need: Need,
    ) -> Cache<K>
    where
        K: Cached<Kind: Resource<Scope = NamespaceResourceScope>>,
    {
        let (cache, handle) = self.caches.watch_in::<K>(scope, need);
        self.wired.watches.push(handle);
        cache
    }

    /// The shared cache of a kind of which this role needs only the objects that a label selector matches; `None`: all. It holds more
    /// if another role needs more.
    pub fn cache_labelled<K: Cached>(
        &mut self,
        labels: impl Fn(&Viewpoint<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Cache<K> {
        let (cache, handle) = self.caches.watch_labelled::<K>(labels);
        self.wired.watches.push(handle);
        cache
    }

    /// Watches single namespaces of a kind while the role is served. The role declares the right to do so with
    /// [`needs`](Self::needs).
    pub fn namespaces(&self) -> Caches {
        self.caches.clone()
    }

    /// Declares a right that the role needs in addition to its caches' rights.
    pub fn needs(&mut self, rule: Rule) {
        self.wired.rules.push(rule);
    }

    /// The same for several.
    pub fn needs_all(&mut self, rules: impl IntoIterator<Item = Rule>) {
        self.wired.rules.extend(rules);
    }

    /// Declares rights on objects that are named after the driver.
    pub fn needs_of(&mut self, rules: RulesOf) {
        self.wired.rules_of_driver.push(rules);
    }

    /// Declares what of the driver's `CSIDriver` object does not fit the role: `judge` picks it from `known`. `events`: whether Events
    /// on the object say so, too.
    pub fn expects(
        &mut self,
        known: &'static [&'static Misfit],
        judge: impl Fn(&CsiDriverSpec, Option<&Capabilities>) -> Vec<&'static Misfit> + Send + Sync + 'static,
        events: bool,
    ) {
        let objects = self.cache_for_feature::<CsiDriver>();
        self.wired.expectation = Some(Expectation::new(objects, known, judge, events));
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
        let _ = wiring.cache_in::<CsiStorageCapacity>(own, Need::Role);
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
