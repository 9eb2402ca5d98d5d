//! Values of claims and pods that the resizer does not know (`docs/spec/values.md`). Pure.

use tonic::Code;

use crate::cluster::{PersistentVolume, PersistentVolumeClaim, Pod};
use crate::csi::code_name;
use crate::roles::kit::unknown_values::UnknownValue;

use super::claim::{Ownership, ownership, status};
use super::names;

const PHASES: &[&str] = &["Pending", "Bound", "Lost"];
const RESIZE_STATES: &[&str] = &[
    names::CONTROLLER_RESIZE_IN_PROGRESS,
    names::CONTROLLER_RESIZE_INFEASIBLE,
    names::NODE_RESIZE_PENDING,
    names::NODE_RESIZE_IN_PROGRESS,
    names::NODE_RESIZE_INFEASIBLE,
];
const MODIFY_STATES: &[&str] = &[names::PENDING, names::IN_PROGRESS, names::INFEASIBLE];
const CONDITION_STATES: &[&str] = &["True", "False", "Unknown"];
/// A reason that csi-resizer and this daemon write beside the names of gRPC codes.
const RETRYING: &str = "Retrying";

/// Unknown values of a claim whose volume is our driver's.
pub fn of_claim(claim: &PersistentVolumeClaim, volume: Option<&PersistentVolume>, driver: &str) -> Vec<UnknownValue> {
    if matches!(ownership(claim, volume, driver), Ownership::None | Ownership::Unseen) {
        return Vec::new();
    }
    let status = status(claim);
    let unbound = "not bound: the volume is not changed until the phase is Bound";
    let phase = UnknownValue::find("status.phase", claim.status.phase.as_deref(), PHASES, unbound);
    let (field, state) = ("status.allocatedResourceStatuses.storage", status.allocated_status.as_deref());
    let anew = "as no state: a larger request begins the expansion anew";
    let resize = UnknownValue::find(field, state, RESIZE_STATES, anew);
    let (field, state) = ("status.modifyVolumeStatus.status", status.modify.as_ref().map(|it| it.status.as_str()));
    let anew = "the modification begins anew, or its condition goes if the claim names no class";
    let modify = UnknownValue::find(field, state, MODIFY_STATES, anew);
    let conditions = status.conditions.iter().filter_map(|condition| {
        let follows = "the condition does not hold";
        UnknownValue::find("status.conditions.status", Some(condition.status.as_str()), CONDITION_STATES, follows)
    });
    [phase, resize, modify, reason(claim)].into_iter().flatten().chain(conditions).collect()
}

/// Why the driver has not expanded the volume, if that is neither the name of a gRPC code nor the word for a new attempt. It counts
/// only while the expansion is in progress.
fn reason(claim: &PersistentVolumeClaim) -> Option<UnknownValue> {
    let status = status(claim);
    let is_in_progress = status.allocated_status.as_deref() == Some(names::CONTROLLER_RESIZE_IN_PROGRESS);
    let reason = status.condition(names::CONTROLLER_RESIZE_ERROR).filter(|_| is_in_progress)?.reason.as_str();
    let codes = (0..=16).map(|number| code_name(Code::from_i32(number)));
    let known: Vec<&str> = codes.chain([RETRYING]).collect();
    let follows = "not final: the driver is asked again for the size that was begun";
    UnknownValue::find("status.conditions.reason", Some(reason), &known, follows)
}

/// Unknown values of a pod that may use a volume.
pub fn of_pod(pod: &Pod) -> Vec<UnknownValue> {
    let follows = "the pod may still run, and uses its volumes: their expansion waits for its end";
    let value = pod.unknown_phase.as_deref().filter(|_| !pod.claims.is_empty());
    UnknownValue::find("status.phase", value, &[], follows).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::roles::resizer::fixtures::{DRIVER, claim, volume};

    fn found(patch: Value) -> Vec<String> {
        let (claim, volume) = (claim(patch), volume(json!({})));
        let found = of_claim(&claim, Some(&volume), DRIVER);
        found.into_iter().map(|it| format!("{}={}", it.field, it.value)).collect()
    }

    #[test]
    fn each_value_of_a_claim_that_is_not_known_is_named_and_no_other() {
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({ "conditions": [{ "type": kind, "status": status, "reason": reason }],
                "allocatedResourceStatuses": { "storage": names::CONTROLLER_RESIZE_IN_PROGRESS } })
        };
        let state = |state: &str| json!({ "allocatedResourceStatuses": { "storage": state } });
        let modify = |state: &str| json!({ "modifyVolumeStatus": { "status": state } });
        let phase = |phase: &str| json!({ "phase": phase });
        let error = names::CONTROLLER_RESIZE_ERROR;
        let mut cases = vec![
            (phase("bound"), Some("status.phase=bound")),
            (phase("New"), Some("status.phase=New")),
            (phase(""), None),
            (state("ControllerResizeFailed"), Some("status.allocatedResourceStatuses.storage=ControllerResizeFailed")),
            (modify("New"), Some("status.modifyVolumeStatus.status=New")),
            (condition(names::RESIZING, "true", ""), Some("status.conditions.status=true")),
            (condition(error, "True", "Whatever"), Some("status.conditions.reason=Whatever")),
            (condition(error, "True", "internal"), Some("status.conditions.reason=internal")),
            (condition(error, "True", "Internal"), None),
            (condition(error, "True", "DeadlineExceeded"), None),
            (condition(error, "True", RETRYING), None),
            (condition(error, "Unknown", ""), None),
        ];
        cases.extend(PHASES.iter().map(|known| (phase(known), None)));
        cases.extend(RESIZE_STATES.iter().map(|known| (state(known), None)));
        cases.extend(MODIFY_STATES.iter().map(|known| (modify(known), None)));
        for (status, expected) in cases {
            let says: Vec<&str> = expected.into_iter().collect();
            assert_eq!(found(json!({ "status": status })), says, "{status}");
        }
    }

    #[test]
    fn claims_of_other_drivers_and_those_without_a_volume_are_not_looked_at() {
        let odd = claim(json!({ "status": { "phase": "New" } }));
        assert!(of_claim(&odd, None, DRIVER).is_empty());
        assert!(of_claim(&odd, Some(&volume(json!({}))), "other").is_empty());
    }
}
