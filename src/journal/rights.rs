//! The rights that a journal needs.

use super::place::Place;
use crate::cluster::rbac::Rule;

/// The rights for the journal with this stem, in the daemon's own namespace; without a stem, for any journal. With node
/// deployment the rights are for all names, because no Role can list the names of all nodes in advance, and they include the
/// right to delete the segments of a node that is gone.
pub fn rules(stem: Option<&str>, per_node: bool) -> Vec<Rule> {
    let configmaps = |verbs: &[&str], reason| Rule::namespaced("", "configmaps", verbs, reason);
    let mut rules = vec![
        configmaps(&["create"], "create a missing segment of the journal"),
        configmaps(&["get", "patch"], "save each request in the journal before the driver is called")
            .named(stem.filter(|_| !per_node).map(Place::names).unwrap_or_default()),
    ];
    if per_node {
        rules.push(configmaps(&["list", "delete"], "delete the journal of a node that is gone"));
    }
    rules
}
