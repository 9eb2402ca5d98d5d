//! The rights that the attacher needs in addition to its caches' rights, each with its reason.

use crate::cluster::rbac::{Rule, rules};

use super::config::AttacherSection;

/// The rules for this configuration.
pub(super) fn rules(section: &AttacherSection) -> Vec<Rule> {
    let mut rules = rules! {
        "", "persistentvolumes", ["get", "patch"], "add our finalizer to a volume while it is attached";
        "storage.k8s.io", "volumeattachments", ["get", "patch"],
            "add our finalizer and the node ID to an attachment before its volume is published";
        "storage.k8s.io", "volumeattachments/status", ["patch"], "record that a volume is attached or detached, or why not";
        "storage.k8s.io", "csinodes", ["get"], "look for a node that the watch has not shown";
        "", "secrets", ["get"], "read the secret of a volume's controllerPublishSecretRef";
    };
    rules.extend(section.events.rule());
    rules
}
