//! The labels of the `CSIStorageCapacity` objects that this provisioner manages. Pure.
//!
//! They are the Go sidecar's labels, so that each of the two takes over the other's objects and creates no second ones.

use std::collections::BTreeMap;

use crate::cluster::{Viewpoint, WatchScope};
use crate::roles::provisioner::names;

/// The API's limit for the length of a label's value.
const LONGEST: usize = 63;
/// The length of a hash with a dash on each side.
const HASH_AND_DASHES: usize = 10;

/// The value of the label `managed-by`: the provisioner, or the provisioner of one node.
pub(super) fn managed_by(node: Option<&str>) -> String {
    node.map_or_else(|| names::MANAGED_BY_PROVISIONER.to_owned(), |node| joined(names::MANAGED_BY_PROVISIONER, node))
}

/// The labels of the objects.
pub(super) fn labels(driver: &str, node: Option<&str>) -> BTreeMap<String, String> {
    [(names::LABEL_DRIVER_NAME, driver.to_owned()), (names::LABEL_MANAGED_BY, managed_by(node))]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// Watches only the objects that this provisioner manages. `of_node`: with node deployment, those of this node's provisioner.
pub fn scope(of_node: bool) -> impl Fn(&Viewpoint<'_>) -> WatchScope + Send + Sync + 'static {
    move |view| {
        let node = view.node.filter(|_| of_node);
        let labels: Vec<String> =
            labels(view.driver, node).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        WatchScope { namespace: view.namespace.map(str::to_owned), labels: Some(labels.join(",")) }
    }
}

/// `base-suffix`. If that is too long for a label, the hash of `base` replaces the end of `base`; and if it is still too long, the
/// hash of the whole text replaces the suffix.
fn joined(base: &str, suffix: &str) -> String {
    let whole = if base.is_empty() { suffix.to_owned() } else { format!("{base}-{suffix}") };
    if whole.len() <= LONGEST {
        return whole;
    }
    if base.is_empty() {
        return hash(&whole);
    }
    match LONGEST.checked_sub(HASH_AND_DASHES + suffix.len()) {
        Some(room @ 1..) => format!("{}-{}-{suffix}", &base[..room.min(base.len())], hash(base)),
        _ => format!("{}-{}", &base[..base.len().min(LONGEST + 1 - HASH_AND_DASHES)], hash(&whole)),
    }
}

/// FNV-1a. Unlike FNV-1, it multiplies last.
fn hash(text: &str) -> String {
    let hash = text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r13_a_long_nodes_label_is_valid_and_the_go_sidecars() {
        let node = |letters| format!("node{}", "a".repeat(letters));
        for (letters, expected) in [
            (0, "external-provisioner-node".to_owned()),
            (38, format!("external-provisioner-{}", node(38))),
            (39, format!("external-p-53f40b57-{}", node(39))),
            (48, format!("e-53f40b57-{}", node(48))),
            (49, "external-provisioner-a3607ff1".to_owned()),
            (63, "external-provisioner-df38e37f".to_owned()),
        ] {
            assert_eq!(managed_by(Some(&node(letters))), expected, "{letters}");
            assert!(expected.len() <= LONGEST);
        }
        assert_eq!(joined("", &node(63)), "fa65587e");
        assert_eq!(joined("", "node"), "node");
        assert_eq!(managed_by(None), "external-provisioner");
    }

    #[test]
    fn ours_are_watched_in_our_namespace_by_both_labels() {
        let view = Viewpoint { driver: "demo", namespace: Some("kube-system"), node: Some("n1") };
        let of = |of_node| scope(of_node)(&view).labels.unwrap();
        assert_eq!(of(false), "csi.storage.k8s.io/drivername=demo,csi.storage.k8s.io/managed-by=external-provisioner");
        assert_eq!(
            of(true),
            "csi.storage.k8s.io/drivername=demo,csi.storage.k8s.io/managed-by=external-provisioner-n1"
        );
        assert_eq!(scope(true)(&view).namespace.as_deref(), Some("kube-system"));
    }
}
