//! The rights that the attach/detach controller needs beyond its caches', each with its reason (attach-detach spec 15).

use crate::cluster::EventRecorder;
use crate::cluster::rbac::{Rule, rules};

use super::config::{AttachDetachSection, ExclusiveCheck};
use super::other::LEASE;

/// The rules for this configuration.
pub(super) fn rules(section: &AttachDetachSection) -> Vec<Rule> {
    let mut rules = rules! {
        "storage.k8s.io", "volumeattachments", ["get", "create", "patch", "delete"],
            "ask for volumes on nodes, take that back, and keep attachments that an earlier deletion may still take";
        "", "nodes", ["get"], "read what a kubelet uses before its volume is taken from it";
    };
    if section.exclusive_check == ExclusiveCheck::Refuse {
        let reason = "begin once the kube-controller-manager whose attach/detach controller was active is gone";
        let [_, name] = LEASE;
        rules.push(Rule::cluster("coordination.k8s.io", "leases", &["get"], reason).named([name.to_owned()]));
    }
    if section.events {
        rules.push(EventRecorder::rule());
    }
    if section.write_node_status {
        rules.push(Rule::cluster("", "nodes/status", &["patch"], "report attached volumes to the kubelet"));
    }
    rules
}
