//! A `StorageClass` as our driver understands it: its own class, or a class of the in-tree plugin that our driver has
//! taken over (migration spec 10, rows 6 and 11). Pure.

use std::borrow::Cow;

use crate::cluster::{InTree, StorageClass};
use crate::translation::{TranslationError, class_to_csi};

/// Why our driver does not serve a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassFault {
    /// It belongs to another provisioner.
    Foreign,
    /// It belongs to the in-tree plugin, and has no CSI form.
    Untranslatable(TranslationError),
}

/// Whether the class belongs to the in-tree plugin that `driver` has taken over.
pub fn is_in_tree(class: &StorageClass, driver: &str) -> bool {
    InTree::of_plugin(&class.provisioner).is_some_and(|plugin| plugin.successor() == driver)
}

/// Whether `driver` creates the volumes of the class.
pub fn is_served(class: &StorageClass, driver: &str) -> bool {
    class.provisioner == driver || is_in_tree(class, driver)
}

/// The class with its parameters and allowed topologies translated for `driver`. Name, reclaim policy and mount options
/// stay.
pub fn csi_class<'a>(class: &'a StorageClass, driver: &str) -> Result<Cow<'a, StorageClass>, ClassFault> {
    if class.provisioner == driver {
        return Ok(Cow::Borrowed(class));
    }
    if !is_in_tree(class, driver) {
        return Err(ClassFault::Foreign);
    }
    class_to_csi(class).map(Cow::Owned).map_err(ClassFault::Untranslatable)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::roles::provisioner::fixtures::{self, DRIVER, map};

    const EBS: &str = "ebs.csi.aws.com";

    #[test]
    fn a_class_is_served_by_its_driver_and_by_the_successor_of_its_plugin() {
        for (provisioner, driver, served, in_tree) in [
            (DRIVER, DRIVER, true, false),
            ("other", DRIVER, false, false),
            ("kubernetes.io/aws-ebs", EBS, true, true),
            ("kubernetes.io/aws-ebs", DRIVER, false, false),
            ("kubernetes.io/gce-pd", EBS, false, false),
        ] {
            let class = fixtures::class(json!({ "provisioner": provisioner }));
            assert_eq!((is_served(&class, driver), is_in_tree(&class, driver)), (served, in_tree), "{provisioner}");
            assert_eq!(csi_class(&class, driver).is_ok(), served, "{provisioner}");
        }
    }

    #[test]
    fn a_class_of_the_plugin_is_translated_and_its_policy_and_options_stay() {
        let class = fixtures::class(json!({ "provisioner": "kubernetes.io/aws-ebs", "reclaimPolicy": "Retain",
            "mountOptions": ["noatime"], "parameters": { "type": "gp3", "fsType": "xfs", "zone": "us-east-1a" } }));
        let translated = csi_class(&class, EBS).unwrap();
        assert_eq!(translated.parameters, map(&[("csi.storage.k8s.io/fstype", "xfs"), ("type", "gp3")]));
        assert_eq!(translated.allowed_topologies[0].match_label_expressions[0].values, ["us-east-1a"]);
        assert_eq!(translated.reclaim_policy.as_deref(), Some("Retain"));
        assert_eq!(translated.mount_options, ["noatime"]);
        let twice = fixtures::class(json!({ "provisioner": "kubernetes.io/aws-ebs",
            "parameters": { "zone": "us-east-1a", "zones": "us-east-1b" } }));
        assert_eq!(csi_class(&twice, EBS), Err(ClassFault::Untranslatable(TranslationError::ZoneTwice)));
    }
}
