//! The rights that the attacher needs beyond its caches', each with its reason.

use crate::cluster::EventRecorder;
use crate::cluster::rbac::Rule;

use super::config::AttacherSection;

/// The rules for this configuration.
pub(super) fn rules(section: &AttacherSection) -> Vec<Rule> {
    let mut rules = vec![
        Rule::cluster("", "persistentvolumes", &["get", "patch"], "put our finalizer on a volume while it is attached"),
        Rule::cluster(
            "storage.k8s.io",
            "volumeattachments",
            &["get", "patch"],
            "put our finalizer and the node id on an attachment before its volume is published",
        ),
        Rule::cluster(
            "storage.k8s.io",
            "volumeattachments/status",
            &["patch"],
            "record that a volume is attached or detached, or why not",
        ),
        Rule::cluster("", "secrets", &["get"], "read controllerPublishSecretRef, where a volume has one"),
    ];
    if section.events {
        rules.push(EventRecorder::rule());
    }
    rules
}
