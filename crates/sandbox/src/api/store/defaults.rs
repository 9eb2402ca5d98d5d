//! The real server's defaults: default values of each kind's fields, and the status of a new object. Pure. Controllers
//! and people read these; no real cluster has, for example, a PV without `volumeMode`.

use serde_json::{Map, Value, json};

use crate::api::pure::base64;
use crate::api::pure::resources::Resource;
use crate::api::pure::strict;

/// Drops explicit nulls and fields that the kind does not have, writes `stringData` into `data`, and fills in what was left out.
pub(super) fn fill(resource: &Resource, object: &mut Value) {
    drop_nulls(object);
    // A client that asked for warnings got them before this point.
    strict::drop_unknown(resource, object, &mut Vec::new());
    if resource.plural == "secrets" {
        encode_string_data(object);
    }
    let defaults = match resource.plural {
        "persistentvolumes" => {
            json!({"spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}})
        }
        "persistentvolumeclaims" => {
            claim_status(object);
            json!({"spec": {"volumeMode": "Filesystem"}})
        }
        "storageclasses" => json!({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        "csidrivers" => json!({"spec": {
            "attachRequired": true, "fsGroupPolicy": "ReadWriteOnceWithFSType", "podInfoOnMount": false,
            "preventPodSchedulingIfMissing": false, "requiresRepublish": false, "seLinuxMount": false, "storageCapacity": false,
            "volumeLifecycleModes": ["Persistent"],
        }}),
        // Go writes an empty list that has no `omitempty` as null.
        "csinodes" => {
            if object.pointer("/spec/drivers").and_then(Value::as_array).is_some_and(Vec::is_empty) {
                drop(object.pointer_mut("/spec/drivers").map(Value::take));
            }
            underlay_each(object, "/spec/drivers", &json!({"topologyKeys": null}));
            json!({"spec": {"drivers": null}, "status": {}})
        }
        "volumeattachments" => json!({"status": {"attached": false}}),
        "events" => json!({"eventTime": null, "reportingComponent": "", "reportingInstance": ""}),
        "configmaps" => {
            drop_empty(object, &["data", "binaryData"]);
            return;
        }
        "secrets" => json!({"type": "Opaque"}),
        "namespaces" => namespace(object),
        // What Go writes of structs that have no `omitempty`.
        "nodes" => {
            let unknown = json!({"lastHeartbeatTime": null, "lastTransitionTime": null});
            underlay_each(object, "/status/conditions", &unknown);
            json!({"spec": {}, "status": {
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
                "nodeInfo": {
                    "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                    "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
                    "systemUUID": "",
                },
            }})
        }
        "pods" => json!({"spec": {
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30, "enableServiceLinks": true, "securityContext": {},
            "serviceAccountName": "default",
        }}),
        _ => return,
    };
    underlay(object, &defaults);
}

/// The status that a new object starts with.
pub(super) fn fill_status(resource: &Resource, object: &mut Value, now: &str) {
    let status = match resource.plural {
        "volumeattachments" => json!({"attached": false}),
        "persistentvolumes" => json!({"phase": "Pending", "lastPhaseTransitionTime": now}),
        "persistentvolumeclaims" => json!({"phase": "Pending"}),
        "namespaces" => json!({"phase": "Active"}),
        "pods" => json!({"phase": "Pending", "qosClass": "BestEffort"}),
        "resourcequotas" => json!({}),
        _ => return,
    };
    underlay(object, &json!({ "status": status }));
}

/// A volume's new phase is dated, unless the client has dated it.
pub(super) fn note_phase(resource: &Resource, old: &Value, new: &mut Value, now: &str) {
    const DATE: &str = "lastPhaseTransitionTime";
    if resource.plural != "persistentvolumes" {
        return;
    }
    let read = |object: &Value, member: &str| object.get("status").and_then(|status| status.get(member)).cloned();
    let same_phase = read(old, "phase") == read(new, "phase");
    let (before, after) = (read(old, DATE), read(new, DATE));
    let date = match after {
        None if same_phase => before,
        date if !same_phase && (date.is_none() || date == before) => Some(now.into()),
        date => date,
    };
    if let (Some(date), Some(status)) = (date, new.get_mut("status").and_then(Value::as_object_mut)) {
        status.insert(DATE.to_owned(), date);
    }
}

fn namespace(object: &Value) -> Value {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    json!({"metadata": {"labels": {"kubernetes.io/metadata.name": name}}, "spec": {"finalizers": ["kubernetes"]}})
}

/// Puts what `defaults` has under what `object` has.
fn underlay(object: &mut Value, defaults: &Value) {
    let (Some(object), Some(defaults)) = (object.as_object_mut(), defaults.as_object()) else { return };
    for (member, default) in defaults {
        match object.get_mut(member) {
            Some(value) => underlay(value, default),
            None => drop(object.insert(member.clone(), default.clone())),
        }
    }
}

/// Puts what `defaults` has under each item of the list at `pointer`.
fn underlay_each(object: &mut Value, pointer: &str, defaults: &Value) {
    for item in object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten() {
        underlay(item, defaults);
    }
}

/// What Go writes of a claim's status: no empty list and no empty map, but times that are not set as null.
fn claim_status(claim: &mut Value) {
    let Some(Value::Object(status)) = claim.get_mut("status") else { return };
    status.retain(|_, value| match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    });
    underlay_each(claim, "/status/conditions", &json!({"lastProbeTime": null, "lastTransitionTime": null}));
}

/// Maps that have `omitempty`.
fn drop_empty(object: &mut Value, members: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|member, value| {
            !members.contains(&member.as_str()) || value.as_object().is_none_or(|it| !it.is_empty())
        });
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn encode_string_data(object: &mut Value) {
    let Some(secret) = object.as_object_mut() else { return };
    let Some(Value::Object(plain)) = secret.remove("stringData") else { return };
    let data = secret.entry("data").or_insert_with(|| Value::Object(Map::new()));
    let Some(data) = data.as_object_mut() else { return };
    for (key, value) in plain {
        if let Some(text) = value.as_str() {
            data.insert(key, base64::encode(text.as_bytes()).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pure::resources;

    #[test]
    fn string_data_becomes_data() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"b": "foo"}});
        fill(resources::find("", "v1", "secrets").unwrap(), &mut secret);
        assert_eq!(secret, json!({"data": {"a": "eA==", "b": "Zm9v"}, "type": "Opaque"}));
    }

    #[test]
    fn defaults_never_overwrite() {
        let volumes = resources::find("", "v1", "persistentvolumes").unwrap();
        let mut volume = json!({"spec": {"volumeMode": "Block", "claimRef": {"name": "c"}, "mountOptions": null}});
        fill(volumes, &mut volume);
        assert_eq!(
            volume,
            json!({"spec": {"volumeMode": "Block", "persistentVolumeReclaimPolicy": "Retain",
                            "claimRef": {"name": "c"}}})
        );
    }
}
