//! What a role may ask for while it loads: declarations only, no I/O.

use crate::cluster::rbac::Rule;
use crate::cluster::{Cache, Cached, Caches};

/// Collects what the enabled roles need before anything is started.
#[derive(Debug)]
pub struct Wiring<'a> {
    caches: &'a Caches,
    rules: Vec<Rule>,
}

impl<'a> Wiring<'a> {
    /// Declarations go into `caches`.
    pub fn new(caches: &'a Caches) -> Self {
        Self { caches, rules: Vec::new() }
    }

    /// The shared cache of a kind: one watch, whoever asks.
    pub fn cache<K: Cached>(&mut self) -> Cache<K> {
        self.caches.want::<K>()
    }

    /// A right that the role needs beyond its caches'.
    pub fn needs(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// The rights declared beyond the caches'.
    pub fn into_rules(self) -> Vec<Rule> {
        self.rules
    }
}
