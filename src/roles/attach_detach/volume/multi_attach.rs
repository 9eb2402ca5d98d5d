//! Whether a volume may be attached to one more node, and what the pods are told that wait for another node: attach-detach spec 6. Pure.

use std::sync::Arc;

use crate::cluster::{Pod, SmolStr};
use crate::roles::attach_detach::config::MultiAttach;

/// Modes that let several nodes have the volume.
const SHARED: [&str; 2] = ["ReadWriteMany", "ReadOnlyMany"];

/// What another node has of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// An attachment that is attached.
    Attached,
    /// One that is not attached yet, is being deleted, or has failed: whether the node has the volume is uncertain.
    Uncertain,
}

/// Whether only one node may have a volume of these access modes. Nothing is known of a volume without modes.
pub fn is_exclusive(modes: &[SmolStr]) -> bool {
    !modes.is_empty() && !modes.iter().any(|mode| SHARED.contains(&mode.as_str()))
}

/// Whether what another node has keeps an exclusive volume from this node.
pub fn blocks(hold: Hold, rule: MultiAttach) -> bool {
    match hold {
        Hold::Attached => true,
        Hold::Uncertain => rule == MultiAttach::Strict,
    }
}

/// Another node that has an exclusive volume, or gets it first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Holder {
    /// The pods there that want it.
    pub pods: Vec<Arc<Pod>>,
    /// Whether it is going to let the volume go: it has an attachment of this controller's, and no pod there wants the volume.
    pub ends: bool,
}

/// What a pod of `namespace` is told that waits for these holders. The names of pods in other namespaces are never shown.
pub fn text(volume: &str, namespace: &str, holders: &[Holder]) -> String {
    let pods = || holders.iter().flat_map(|holder| &holder.pods);
    let is_own = |pod: &&Arc<Pod>| pod.metadata.namespace.as_deref() == Some(namespace);
    let mut own: Vec<&str> = pods().filter(is_own).map(|pod| &*pod.metadata.name).collect();
    own.sort_unstable();
    let others = pods().count() - own.len();
    let waits = holders.iter().all(|holder| holder.ends);
    let begin = if waits { "Waiting for detach for" } else { "Multi-Attach error for" };
    let rest = match (own.is_empty(), others) {
        (true, 0) if waits => {
            "already exclusively attached to one node, waiting on detach before it can be attached to another node"
                .to_owned()
        }
        (true, 0) => "already exclusively attached to one node and can't be attached to another".to_owned(),
        (true, others) => format!("already used by {others} pod(s) in different namespaces"),
        (false, 0) => format!("already used by pod(s) {}", own.join(", ")),
        (false, others) => {
            format!("already used by pod(s) {} and {others} pod(s) in different namespaces", own.join(", "))
        }
    };
    format!("{begin} volume \"{volume}\" Volume is {rest}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, name: &str) -> Arc<Pod> {
        Arc::new(serde_json::from_value(json!({ "metadata": { "namespace": namespace, "name": name } })).unwrap())
    }

    #[test]
    fn a_volume_is_exclusive_if_it_has_modes_and_none_is_for_many() {
        for (modes, expected) in [
            (&["ReadWriteOnce"][..], true),
            (&["ReadWriteOncePod"], true),
            (&[], false),
            (&["ReadWriteMany"], false),
            (&["ReadWriteOnce", "ReadOnlyMany"], false),
        ] {
            let modes: Vec<SmolStr> = modes.iter().map(|mode| (*mode).into()).collect();
            assert_eq!(is_exclusive(&modes), expected, "{modes:?}");
        }
    }

    #[test]
    fn each_case_of_the_table_of_holds() {
        for (row, hold, rule, expected) in [
            ("6.3", Hold::Attached, MultiAttach::Strict, true),
            ("6.3", Hold::Attached, MultiAttach::Confirmed, true),
            ("6.4", Hold::Uncertain, MultiAttach::Strict, true),
            ("6.5", Hold::Uncertain, MultiAttach::Confirmed, false),
        ] {
            assert_eq!(blocks(hold, rule), expected, "{row}");
        }
    }

    #[test]
    fn d18_d19_a_pod_reads_who_has_the_volume_and_whether_that_ends() {
        let (a, b, c) = (pod("shop", "a"), pod("shop", "b"), pod("other", "secret"));
        let holder = |pods: &[&Arc<Pod>], ends| Holder { pods: pods.iter().map(|it| Arc::clone(it)).collect(), ends };
        for (holders, expected) in [
            (
                vec![holder(&[], false)],
                "Multi-Attach error for volume \"pv\" Volume is already exclusively attached to one node and can't be attached \
                 to another",
            ),
            (
                vec![holder(&[], true)],
                "Waiting for detach for volume \"pv\" Volume is already exclusively attached to one node, waiting on detach \
                 before it can be attached to another node",
            ),
            (
                vec![holder(&[&b, &a], false)],
                "Multi-Attach error for volume \"pv\" Volume is already used by pod(s) a, b",
            ),
            (
                vec![holder(&[&a], false), holder(&[&c], false)],
                "Multi-Attach error for volume \"pv\" Volume is already used by pod(s) a and 1 pod(s) in different namespaces",
            ),
            (
                vec![holder(&[&c, &c], false)],
                "Multi-Attach error for volume \"pv\" Volume is already used by 2 pod(s) in different namespaces",
            ),
        ] {
            assert_eq!(text("pv", "shop", &holders), expected);
        }
    }
}
