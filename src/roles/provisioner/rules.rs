//! The rights that the provisioner needs besides those of its caches, each with its reason.

use crate::cluster::EventRecorder;
use crate::cluster::rbac::Rule;

use crate::roles::kit::EventsMode;
use crate::roles::provisioner::config::ProvisionerSection;

const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

/// The rules for this configuration.
pub(super) fn rules(section: &ProvisionerSection) -> Vec<Rule> {
    let mut rules = vec![
        Rule::cluster(
            "",
            "persistentvolumes",
            &["get", "create", "patch", "delete"],
            "store a created volume, keep our finalizer on it, delete it with its claim",
        ),
        Rule::cluster(
            "",
            "persistentvolumeclaims",
            &["get", "patch"],
            "protect a claim that is being cloned, set or remove the selected node of a claim",
        ),
        Rule::cluster("", "secrets", &["get"], "read the secrets that storage classes name for the provisioner"),
        Rule::cluster("storage.k8s.io", "storageclasses", &["get"], "look for a class that the watch has not shown"),
        Rule::cluster(SNAPSHOTS, "volumesnapshots", &["get", "patch"], "protect a snapshot that is being restored"),
        Rule::cluster(SNAPSHOTS, "volumesnapshotcontents", &["get"], "find the driver's snapshot behind a snapshot"),
    ];
    if section.attributes_classes {
        let read = "read a claim's VolumeAttributesClass";
        rules.push(Rule::cluster("storage.k8s.io", "volumeattributesclasses", &["get"], read));
    }
    if section.cross_namespace_sources {
        rules.push(Rule::cluster(
            "gateway.networking.k8s.io",
            "referencegrants",
            &["list"],
            "check whether a source may be used from another namespace",
        ));
    }
    if section.node_deployment.enabled {
        rules.push(Rule::cluster("", "nodes", &["get"], "check whether the selected node of a claim still exists"));
    } else if section.topology {
        let unseen = "look for a node that the watch has not shown";
        rules.push(Rule::cluster("", "nodes", &["get"], unseen));
        rules.push(Rule::cluster("storage.k8s.io", "csinodes", &["get"], unseen));
    }
    if section.events != EventsMode::None {
        rules.push(EventRecorder::rule());
    }
    rules
}
