//! To whom the PersistentVolume belongs that has the name of a claim's volume. Pure.

use super::decide::NameStatus;
use crate::cluster::PersistentVolume;
use crate::roles::provisioner::claim::{Claim, ClaimKey};
use crate::roles::provisioner::volume::was_made_by;

/// Whether a PersistentVolume was created for the claim, also if another claim has it now: the claim was bound to its name, and a
/// provisioner of our driver has created it. A volume populator gives the volume of its own claim to the user's claim, and so do tools
/// that rename claims. As long as such a PersistentVolume exists, the volume of the claim's request is not lost.
pub fn was_handed_on(volume: &PersistentVolume, claim: &Claim, driver: &str) -> bool {
    let is_named = claim.volume_name.as_deref() == Some(&*volume.metadata.name);
    is_named && volume.served_by() == Some(driver) && was_made_by(volume, driver)
}

/// To whom a PersistentVolume belongs. A retained one whose claim was bound to another volume is the claim's own, too: a provisioner of
/// our driver has created it for this claim, and the PV controller has removed the uid from its `claimRef`, or a person has removed the
/// whole `claimRef`.
pub fn status_of(volume: &PersistentVolume, key: &ClaimKey, driver: &str) -> NameStatus {
    let found = volume.served_by();
    let claim = volume.spec.claim_ref.as_deref();
    let is_kept = || {
        let is_for_it = claim.is_none_or(|claim| {
            key.name.namespace() == Some(claim.namespace.as_str()) && key.name.name() == claim.name
        });
        is_for_it && was_made_by(volume, driver)
    };
    let owner = claim.and_then(|claim| claim.uid.as_deref()).filter(|uid| !uid.is_empty());
    match (found, owner) {
        (Some(found), Some(owner)) if found == driver && owner == &*key.uid => NameStatus::Ours,
        (Some(found), None) if found == driver && is_kept() => NameStatus::Ours,
        (found, owner) => {
            let driver = found.or(volume.spec.foreign_driver.as_deref()).unwrap_or("no CSI driver");
            let name = &volume.metadata.name;
            let owner = match (claim, owner) {
                (Some(claim), owner) => {
                    format!("claim {}/{} (uid {})", claim.namespace, claim.name, owner.unwrap_or("none"))
                }
                (None, _) => "no claim".to_owned(),
            };
            NameStatus::Conflict(format!("PersistentVolume \"{name}\" is of {driver} and belongs to {owner}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::roles::provisioner::fixtures::{self, DRIVER, merged};
    use crate::roles::provisioner::names::ANNOTATION_PROVISIONED_BY;

    #[test]
    fn only_what_we_made_and_the_claim_was_bound_to_counts_as_handed_on() {
        let claim = |spec: Value| Claim::parse(Arc::new(fixtures::claim(json!({ "spec": spec }))), DRIVER);
        let (bound, waiting) = (claim(json!({ "volumeName": "pvc-1" })), claim(json!({})));
        let volume = |change: Value| -> PersistentVolume {
            let made = json!({ "metadata": { "name": "pvc-1", "annotations": { ANNOTATION_PROVISIONED_BY: DRIVER } },
                "spec": { "csi": { "driver": DRIVER, "volumeHandle": "v" },
                    "claimRef": { "namespace": "shop", "name": "another", "uid": "u9" } } });
            serde_json::from_value(merged(made, change)).unwrap()
        };
        assert!(matches!(status_of(&volume(json!({})), &bound.key, DRIVER), NameStatus::Conflict(_)));
        assert!(was_handed_on(&volume(json!({})), &bound, DRIVER));
        assert!(!was_handed_on(&volume(json!({})), &waiting, DRIVER), "nobody has seen it stored for the claim");
        for (what, change) in [
            ("of another name", json!({ "metadata": { "name": "pvc-2" } })),
            ("made by people", json!({ "metadata": { "annotations": { ANNOTATION_PROVISIONED_BY: null } } })),
            ("made by others", json!({ "metadata": { "annotations": { ANNOTATION_PROVISIONED_BY: "other" } } })),
            ("of another driver", json!({ "spec": { "csi": { "driver": "other" } } })),
        ] {
            assert!(!was_handed_on(&volume(change), &bound, DRIVER), "{what}");
        }
    }
}
