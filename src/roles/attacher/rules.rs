//! The rights that the attacher needs in addition to its caches' rights, each with its reason.

use crate::cluster::EventRecorder;
use crate::cluster::rbac::Rule;
use crate::roles::kit::EventsMode;

use super::config::AttacherSection;

/// The rules for this configuration.
pub(super) fn rules(section: &AttacherSection) -> Vec<Rule> {
    let mut rules = vec![
        Rule::cluster("", "persistentvolumes", &["get", "patch"], "add our finalizer to a volume while it is attached"),
        Rule::cluster(
            "storage.k8s.io",
            "volumeattachments",
            &["get", "patch"],
            "add our finalizer and the node ID to an attachment before its volume is published",
        ),
        Rule::cluster(
            "storage.k8s.io",
            "volumeattachments/status",
            &["patch"],
            "record that a volume is attached or detached, or why not",
        ),
        Rule::cluster("storage.k8s.io", "csinodes", &["get"], "look for a node that the watch has not shown"),
        Rule::cluster("", "secrets", &["get"], "read the secret of a volume's controllerPublishSecretRef"),
    ];
    if section.events != EventsMode::None {
        rules.push(EventRecorder::rule());
    }
    rules
}
