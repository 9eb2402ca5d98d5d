//! The rights that the snapshotter needs beyond its caches', each with its reason.

use crate::cluster::rbac::{Rule, rules};

use super::config::SnapshotterSection;
use super::names::{GROUP_SNAPSHOTS, SNAPSHOTS};

/// Why classes are read one by one, although they are watched.
const READ_CLASS: &str = "look for a class that the watch has not shown";

/// The rules for this configuration.
pub(super) fn rules(section: &SnapshotterSection) -> Vec<Rule> {
    let mut rules = rules! {
        SNAPSHOTS, "volumesnapshotcontents", ["get", "patch"],
            "confirm a content before the driver is asked, mark it while a call is unanswered, remove the finalizer of a deleted one";
        SNAPSHOTS, "volumesnapshotcontents/status", ["patch"], "record the snapshot of a content, or why there is none";
        SNAPSHOTS, "volumesnapshotclasses", ["get"], READ_CLASS;
        "", "secrets", ["get"], "read the secrets that contents and classes name";
    };
    if section.group_snapshots && !section.node_deployment.enabled {
        rules.extend(rules! {
            GROUP_SNAPSHOTS, "volumegroupsnapshotcontents", ["get", "patch"],
                "confirm the content of a group before the driver is asked, mark it while a call is unanswered, remove the finalizer of a \
                 deleted one";
            GROUP_SNAPSHOTS, "volumegroupsnapshotcontents/status", ["patch"],
                "record the snapshots of a group, or why there are none";
            GROUP_SNAPSHOTS, "volumegroupsnapshotclasses", ["get"], READ_CLASS;
            SNAPSHOTS, "volumesnapshots", ["get"],
                "see whether a group that is to be deleted owns the VolumeSnapshot of a content that names one of its snapshots";
        });
    }
    rules.extend(section.events.rule());
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::kit::EventsMode;
    use crate::roles::snapshotter::config::NodeDeploymentSection;

    #[test]
    fn contents_are_neither_created_nor_deleted_and_snapshots_are_not_touched() {
        let rules = rules(&SnapshotterSection::default());
        let verbs: Vec<&String> = rules.iter().flat_map(|rule| &rule.verbs).collect();
        assert!(!verbs.iter().any(|verb| matches!(verb.as_str(), "delete" | "update")));
        let verbs_on = |resource: &str| -> Vec<&str> {
            let on = rules.iter().filter(|rule| rule.resource == resource);
            on.flat_map(|rule| rule.verbs.iter().map(String::as_str)).collect()
        };
        assert_eq!(verbs_on("volumesnapshots"), ["get"], "their owners are read");
        assert!(verbs_on("volumegroupsnapshots").is_empty());
        let off = SnapshotterSection { group_snapshots: false, ..SnapshotterSection::default() };
        let node_deployment = NodeDeploymentSection { enabled: true };
        let of_a_node = SnapshotterSection { node_deployment, ..SnapshotterSection::default() };
        let is_of_groups = |rule: &Rule| rule.api_group == GROUP_SNAPSHOTS || rule.resource == "volumesnapshots";
        for section in [off, of_a_node] {
            assert!(!super::rules(&section).iter().any(is_of_groups), "{section:?}");
        }
        let silent = SnapshotterSection { events: EventsMode::None, ..SnapshotterSection::default() };
        assert_eq!(super::rules(&silent).len(), rules.len() - 1);
    }
}
