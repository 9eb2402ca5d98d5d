//! The rights that the resizer needs beyond its caches', each with its reason.

use crate::cluster::rbac::{Rule, rules};

use super::config::ResizerSection;

/// The rules for this configuration.
pub(super) fn rules(section: &ResizerSection) -> Vec<Rule> {
    let mut rules = rules! {
        "", "persistentvolumeclaims", ["get"], "read a claim again before its volume is changed";
        "", "persistentvolumeclaims/status", ["patch"], "record how far an expansion or a modification is, or why it failed";
        "", "persistentvolumes", ["get", "patch"], "record the size and the attributes class of a volume";
        "", "secrets", ["get"], "read the secrets for expanding and modifying, where a volume has them";
    };
    if section.modify {
        let why = "read a class that a claim names before the watch has shown it";
        rules.push(Rule::cluster("storage.k8s.io", "volumeattributesclasses", &["get"], why));
    }
    if section.in_use_check {
        let why = "wait for the pods of a volume that the driver expands only while it is not used";
        rules.push(Rule::cluster("", "pods", &["list", "watch"], why));
    }
    rules.extend(section.events.rule());
    rules
}
