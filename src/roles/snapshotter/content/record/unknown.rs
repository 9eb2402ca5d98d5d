//! Values of contents that the snapshotter does not know (`docs/spec/values.md`). Pure.

use crate::roles::kit::unknown_values::UnknownValue;

use super::kind::Content;

/// Unknown values of a content of our driver.
pub fn of_content<K: Content>(content: &K, driver: &str) -> Vec<UnknownValue> {
    let policy = Some(content.policy()).filter(|_| content.driver() == driver);
    let follows = "the snapshot is kept at the driver when the content is deleted";
    UnknownValue::find("spec.deletionPolicy", policy, &["Delete", "Retain"], follows).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::{VolumeGroupSnapshotContent, VolumeSnapshotContent};

    #[test]
    fn a_policy_that_is_not_known_is_named_for_snapshots_and_groups() {
        for (policy, driver, expected) in [
            ("Delete", "demo", false),
            ("Retain", "demo", false),
            ("", "demo", false),
            ("delete", "demo", true),
            ("New", "demo", true),
            ("New", "other", false),
        ] {
            let content = json!({ "metadata": { "name": "c", "uid": "u" }, "spec": { "driver": driver, "deletionPolicy": policy } });
            let single: VolumeSnapshotContent = serde_json::from_value(content.clone()).unwrap();
            let group: VolumeGroupSnapshotContent = serde_json::from_value(content).unwrap();
            assert_eq!(of_content(&single, "demo").len(), usize::from(expected), "{policy} {driver}");
            assert_eq!(of_content(&group, "demo").len(), usize::from(expected), "{policy} {driver}");
        }
    }
}
