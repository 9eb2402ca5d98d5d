//! PersistentVolume and `PersistentVolumeClaim`.

use super::super::access::{at, list, set, text};
use super::super::rejection::Cause;
use super::{immutable, names, storage};
use serde_json::{Value, json};

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Every volume source that a PersistentVolume's spec can have, in the order in which the server looks at them.
pub(crate) const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// A PersistentVolume.
pub(super) fn volume(new: &Value, causes: &mut Vec<Cause>) {
    spec(at(new, &["spec"]).unwrap_or(&Value::Null), false, "spec", causes);
}

/// The spec of a PersistentVolume, or the one written into a VolumeAttachment.
pub(super) fn spec(spec: &Value, inline: bool, field: &str, causes: &mut Vec<Cause>) {
    let at_field = |key: &str| format!("{field}.{key}");
    if inline {
        inline_only(spec, field, causes);
    }
    access_modes(spec, &at_field("accessModes"), "", causes);
    if !inline {
        capacity(spec, &at_field("capacity"), causes);
        let policies = ["Delete", "Recycle", "Retain"];
        let policy = at(spec, &["persistentVolumeReclaimPolicy"]).filter(|policy| *policy != "");
        if let Some(policy) = policy.filter(|policy| !policies.iter().any(|it| *policy == it)) {
            causes.push(Cause::not_supported(at_field("persistentVolumeReclaimPolicy"), policy, &policies));
        }
        let modes = ["Block", "Filesystem"];
        if let Some(mode) = at(spec, &["volumeMode"]).filter(|mode| !modes.iter().any(|it| *mode == it)) {
            causes.push(Cause::not_supported(at_field("volumeMode"), mode, &modes));
        }
    }
    let mut sources = 0;
    for source in SOURCES.iter().filter(|source| at(spec, &[source]).is_some()) {
        sources += 1;
        if sources > 1 {
            causes.push(Cause::forbidden(at_field(source), "may not specify more than 1 volume type"));
        } else if *source == "csi" {
            csi(&spec["csi"], &at_field("csi"), causes);
        } else if *source == "local" && at(spec, &["nodeAffinity"]).is_none() {
            causes.push(Cause::required(at_field("nodeAffinity"), "Local volume requires node affinity"));
        }
    }
    if sources == 0 {
        causes.push(Cause::required(field, "must specify a volume type"));
    }
    if !inline {
        class_name(spec, &at_field("storageClassName"), causes);
    }
}

fn class_name(spec: &Value, field: &str, causes: &mut Vec<Cause>) {
    let class = text(spec, &["storageClassName"]);
    if !class.is_empty() {
        causes.extend(names::subdomain(class).into_iter().map(|why| Cause::invalid(field, &class.into(), why)));
    }
}

/// What a spec inside a VolumeAttachment must not say, and that it is CSI.
fn inline_only(spec: &Value, field: &str, causes: &mut Vec<Cause>) {
    let why = "may not be specified in the context of inline volumes";
    for key in ["claimRef", "capacity", "nodeAffinity", "storageClassName"] {
        let empty = |value: &Value| *value == json!({}) || *value == "";
        if at(spec, &[key]).is_some_and(|value| !empty(value)) {
            causes.push(Cause::forbidden(format!("{field}.{key}"), why));
        }
    }
    if at(spec, &["csi"]).is_none() {
        causes.push(Cause::required(format!("{field}.csi"), "has to be specified in the context of inline volumes"));
    }
    if !matches!(text(spec, &["persistentVolumeReclaimPolicy"]), "" | "Retain") {
        let why = "may only be Retain in the context of inline volumes";
        causes.push(Cause::forbidden(format!("{field}.persistentVolumeReclaimPolicy"), why));
    }
    if !matches!(text(spec, &["volumeMode"]), "" | "Filesystem") {
        let why = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        causes.push(Cause::forbidden(format!("{field}.volumeMode"), why));
    }
}

fn access_modes(spec: &Value, field: &str, when_missing: &str, causes: &mut Vec<Cause>) {
    let modes = list(spec, &["accessModes"]);
    if modes.is_empty() {
        causes.push(Cause::required(field, when_missing));
    }
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.iter().any(|it| *mode == it)) {
        causes.push(Cause::not_supported(field, mode, ACCESS_MODES));
    }
    let single = modes.iter().any(|mode| mode == "ReadWriteOncePod");
    if single && modes.iter().any(|mode| mode != "ReadWriteOncePod" && ACCESS_MODES.iter().any(|it| mode == it)) {
        causes.push(Cause::forbidden(field, "may not use ReadWriteOncePod with other access modes"));
    }
}

fn capacity(spec: &Value, field: &str, causes: &mut Vec<Cause>) {
    let capacity = at(spec, &["capacity"]);
    let members = capacity.and_then(Value::as_object);
    if members.is_none_or(serde_json::Map::is_empty) {
        causes.push(Cause::required(field, ""));
    }
    if members.is_none_or(|members| members.len() != 1 || !members.contains_key("storage")) {
        causes.push(Cause::not_supported(field, capacity.unwrap_or(&Value::Null), &["storage"]));
    }
    for (name, quantity) in members.into_iter().flatten() {
        positive(quantity, &format!("{field}[{name}]"), causes);
    }
}

/// Refuses a quantity that is zero or negative; its digits decide, whatever its suffix.
fn positive(quantity: &Value, field: &str, causes: &mut Vec<Cause>) {
    let shown = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    let digits = shown.trim_start_matches('+');
    let number = digits.split(|c: char| c.is_ascii_alphabetic()).next().unwrap_or("");
    if digits.starts_with('-') || !number.chars().any(|c| ('1'..='9').contains(&c)) {
        causes.push(Cause::invalid(field, &shown.into(), "must be greater than zero"));
    }
}

fn csi(source: &Value, field: &str, causes: &mut Vec<Cause>) {
    storage::driver_name(text(source, &["driver"]), &format!("{field}.driver"), causes);
    if text(source, &["volumeHandle"]).is_empty() {
        causes.push(Cause::required(format!("{field}.volumeHandle"), ""));
    }
    let references = [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodeStageSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ];
    for reference in references.into_iter().filter(|reference| at(source, &[reference]).is_some()) {
        for key in ["name", "namespace"] {
            if text(source, &[reference, key]).is_empty() {
                causes.push(Cause::required(format!("{field}.{reference}.{key}"), ""));
            }
        }
    }
}

/// A volume's source never changes, but a secret for expansion may be added.
pub(super) fn volume_changes(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let sources = |object: &Value| -> Vec<Option<Value>> {
        SOURCES.iter().map(|source| at(object, &["spec", source]).cloned()).collect()
    };
    let (before, mut after) = (sources(old), sources(new));
    if at(old, &["spec", "csi", "controllerExpandSecretRef"]).is_none()
        && let Some(Some(csi)) = after.last_mut()
        && let Some(csi) = csi.as_object_mut()
    {
        csi.remove("controllerExpandSecretRef");
    }
    if before != after {
        let why = "spec.persistentvolumesource is immutable after creation";
        causes.push(Cause::forbidden("spec.persistentvolumesource", why));
    }
    immutable("volumeMode", at(old, &["spec", "volumeMode"]), at(new, &["spec", "volumeMode"]), causes);
}

/// A `PersistentVolumeClaim`.
pub(super) fn claim(new: &Value, causes: &mut Vec<Cause>) {
    let spec = at(new, &["spec"]).unwrap_or(&Value::Null);
    access_modes(spec, "spec.accessModes", "at least 1 access mode is required", causes);
    match at(spec, &["resources", "requests", "storage"]) {
        None => causes.push(Cause::required("spec.resources[storage]", "")),
        Some(quantity) => positive(quantity, "spec.resources[storage]", causes),
    }
    class_name(spec, "spec.storageClassName", causes);
}

/// What of a claim may change: the binding, once; later its size and its attributes class.
pub(super) fn claim_changes(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let spec = |object: &Value| at(object, &["spec"]).cloned().unwrap_or_else(|| json!({}));
    let (before, mut after) = (spec(old), spec(new));
    let bound = text(old, &["status", "phase"]) == "Bound";
    let mut restore = |key: &str, free: bool| {
        if free {
            match before.get(key) {
                Some(value) => set(&mut after, key, value.clone()),
                None => drop(after.as_object_mut().and_then(|map| map.remove(key))),
            }
        }
    };
    restore("volumeName", text(old, &["spec", "volumeName"]).is_empty());
    restore("storageClassName", at(old, &["spec", "storageClassName"]).is_none());
    restore("resources", bound);
    restore("volumeAttributesClassName", bound);
    if before != after {
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.push(Cause::forbidden("spec", why));
    }
}
