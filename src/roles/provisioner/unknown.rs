//! Values of claims, volumes and classes that the provisioner does not know (`docs/spec/values.md`). An access mode or a phase of a
//! data source that is not known fails the claim, and an Event names it. Pure.

use crate::cluster::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use crate::roles::kit::unknown_values::{UnknownValue, of_volume_mode};

use super::class::csi_class;
use super::predicates::is_wanted;
use super::volume::is_ours;

const PHASES: &[&str] = &["Pending", "Available", "Bound", "Released", "Failed"];
/// The API knows `Recycle`, which no CSI driver has.
const RECLAIM_POLICIES: &[&str] = &["Delete", "Retain", "Recycle"];
const BINDING_MODES: &[&str] = &["Immediate", "WaitForFirstConsumer"];
const OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];

/// Unknown values of a claim that waits for a volume of our driver.
pub fn of_claim(claim: &PersistentVolumeClaim, driver: &str) -> Vec<UnknownValue> {
    let mode = claim.spec.volume_mode.as_deref().filter(|_| is_wanted(claim, driver));
    of_volume_mode(mode).into_iter().collect()
}

/// Unknown values of a volume that this daemon deletes with its claim. `by_node`: with one daemon per node the node affinity says
/// whose it is.
pub fn of_volume(volume: &PersistentVolume, driver: &str, by_node: bool) -> Vec<UnknownValue> {
    if !is_ours(volume, driver) {
        return Vec::new();
    }
    let kept = "the volume is kept, and its object is not changed";
    let phase = UnknownValue::find("status.phase", volume.phase.as_deref(), PHASES, kept);
    let (field, policy) = ("spec.persistentVolumeReclaimPolicy", volume.spec.reclaim_policy.as_deref());
    let policy = UnknownValue::find(field, policy, RECLAIM_POLICIES, "the volume is kept");
    let terms = volume.spec.node_affinity.iter().filter(|_| by_node);
    let requirements = terms.flat_map(|term| term.match_expressions.iter().chain(&term.match_fields));
    let operators = requirements.filter_map(|requirement| {
        let follows = "the term matches no node: a volume without another term is no node's, and kept";
        UnknownValue::find("spec.nodeAffinity…operator", Some(requirement.operator.as_str()), OPERATORS, follows)
    });
    [phase, policy].into_iter().flatten().chain(operators).collect()
}

/// Unknown values of a class of our driver.
pub fn of_class(class: &StorageClass, driver: &str) -> Vec<UnknownValue> {
    if csi_class(class, driver).is_err() {
        return Vec::new();
    }
    let copied = "copied to the PersistentVolume; a volume that no claim wants any more is stored and not deleted";
    let policy = UnknownValue::find("reclaimPolicy", class.reclaim_policy.as_deref(), &["Delete", "Retain"], copied);
    let mode = class.volume_binding_mode.as_deref();
    let mode = UnknownValue::find("volumeBindingMode", mode, BINDING_MODES, "the volume is created at once");
    policy.into_iter().chain(mode).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::roles::provisioner::fixtures::{DRIVER, merged};
    use crate::roles::provisioner::names;

    fn fields(found: &[UnknownValue]) -> Vec<String> {
        found.iter().map(|it| format!("{}={}", it.field, it.value)).collect()
    }

    fn in_volume(patch: Value, by_node: bool) -> Vec<String> {
        let base = json!({ "metadata": { "name": "pv", "uid": "u" },
            "spec": { "csi": { "driver": DRIVER, "volumeHandle": "v" }, "persistentVolumeReclaimPolicy": "Delete" } });
        let volume: PersistentVolume = serde_json::from_value(merged(base, patch)).unwrap();
        fields(&of_volume(&volume, DRIVER, by_node))
    }

    #[test]
    fn each_value_of_a_volume_that_is_not_known_is_named_and_no_other() {
        for phase in PHASES.iter().chain(&[""]) {
            assert!(in_volume(json!({ "status": { "phase": phase } }), false).is_empty(), "{phase}");
        }
        for policy in RECLAIM_POLICIES {
            let patch = json!({ "spec": { "persistentVolumeReclaimPolicy": policy } });
            assert!(in_volume(patch, false).is_empty(), "{policy}");
        }
        let odd = json!({ "status": { "phase": "released" }, "spec": { "persistentVolumeReclaimPolicy": "delete" } });
        assert_eq!(
            in_volume(odd.clone(), false),
            ["status.phase=released", "spec.persistentVolumeReclaimPolicy=delete"]
        );
        let of_another = json!({ "metadata": { "annotations": { names::ANNOTATION_PROVISIONED_BY: "other" } } });
        assert!(in_volume(merged(odd, of_another), false).is_empty(), "another driver's volume");
    }

    #[test]
    fn an_operator_counts_only_where_it_says_whose_the_volume_is() {
        let term = |operator: &str| json!({ "key": "zone", "operator": operator, "values": ["a"] });
        let affinity = |expression: Value, field: Value| {
            let terms = json!([{ "matchExpressions": [expression], "matchFields": [field] }]);
            json!({ "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } } })
        };
        let odd = || affinity(term("Near"), term("Like"));
        assert_eq!(in_volume(odd(), true), ["spec.nodeAffinity…operator=Near", "spec.nodeAffinity…operator=Like"]);
        assert!(in_volume(odd(), false).is_empty());
        for operator in OPERATORS {
            assert!(in_volume(affinity(term(operator), term("In")), true).is_empty(), "{operator}");
        }
    }

    #[test]
    fn each_value_of_a_class_that_is_not_known_is_named() {
        let class = |patch: Value| -> Vec<String> {
            let base = json!({ "metadata": { "name": "gold", "uid": "c" }, "provisioner": DRIVER });
            fields(&of_class(&serde_json::from_value(merged(base, patch)).unwrap(), DRIVER))
        };
        let odd = json!({ "reclaimPolicy": "Recycle", "volumeBindingMode": "Later" });
        assert_eq!(class(odd.clone()), ["reclaimPolicy=Recycle", "volumeBindingMode=Later"]);
        assert!(class(merged(odd, json!({ "provisioner": "other" }))).is_empty());
        assert!(class(json!({})).is_empty());
        for (policy, mode) in ["Delete", "Retain"].iter().zip(BINDING_MODES) {
            assert!(class(json!({ "reclaimPolicy": policy, "volumeBindingMode": mode })).is_empty());
        }
    }

    #[test]
    fn a_mode_that_is_not_known_is_named_while_the_claim_waits_for_its_volume() {
        let claim = |patch: Value| -> Vec<String> {
            let base = json!({ "metadata": { "namespace": "shop", "name": "data", "uid": "c",
                    "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: DRIVER } },
                "spec": { "volumeMode": "Tape" } });
            fields(&of_claim(&serde_json::from_value(merged(base, patch)).unwrap(), DRIVER))
        };
        assert_eq!(claim(json!({})), ["spec.volumeMode=Tape"]);
        assert!(claim(json!({ "spec": { "volumeMode": "Block" } })).is_empty());
        assert!(claim(json!({ "spec": { "volumeName": "pv" } })).is_empty(), "it has its volume");
    }
}
