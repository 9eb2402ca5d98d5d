//! The rights that the provisioner needs besides those of its caches, each with its reason.

use crate::cluster::rbac::{Rule, rules};

use crate::roles::provisioner::config::ProvisionerSection;

const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

/// The rules for this configuration.
pub(super) fn rules(section: &ProvisionerSection) -> Vec<Rule> {
    let mut rules = rules! {
        "", "persistentvolumes", ["get", "create", "patch", "delete"],
            "store a created volume, keep our finalizer on it, delete it with its claim";
        "", "persistentvolumeclaims", ["get", "patch"],
            "protect a claim that is being cloned, set or remove the selected node of a claim";
        "", "secrets", ["get"], "read the secrets that storage classes name for the provisioner";
        "storage.k8s.io", "storageclasses", ["get"], "look for a class that the watch has not shown";
        SNAPSHOTS, "volumesnapshots", ["get", "patch"], "protect a snapshot that is being restored";
        SNAPSHOTS, "volumesnapshotcontents", ["get"], "find the driver's snapshot behind a snapshot";
    };
    if section.attributes_classes {
        let read = "read a claim's VolumeAttributesClass";
        rules.push(Rule::cluster("storage.k8s.io", "volumeattributesclasses", &["get"], read));
    }
    if section.cross_namespace_sources {
        let check = "check whether a source may be used from another namespace";
        rules.push(Rule::cluster("gateway.networking.k8s.io", "referencegrants", &["list"], check));
    }
    if section.node_deployment.enabled {
        rules.push(Rule::cluster("", "nodes", &["get"], "check whether the selected node of a claim still exists"));
    } else if section.topology {
        let unseen = "look for a node that the watch has not shown";
        rules.push(Rule::cluster("", "nodes", &["get"], unseen));
        rules.push(Rule::cluster("storage.k8s.io", "csinodes", &["get"], unseen));
    }
    rules.extend(section.events.rule());
    rules
}
