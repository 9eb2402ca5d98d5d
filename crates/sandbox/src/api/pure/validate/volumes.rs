//! PersistentVolume.

use super::super::access::{at, list, text};
use super::super::rejection::Cause;
use super::{difference, immutable, names, selectors};
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
        if let Some(affinity) = at(spec, &["nodeAffinity"]) {
            selectors::node_affinity(affinity, &at_field("nodeAffinity"), causes);
        }
        volume_mode(spec, &at_field("volumeMode"), causes);
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
        class_name(spec, "storageClassName", field, causes);
        attributes_class(spec, field, causes);
    }
}

/// A claim's or volume's mode.
pub(super) fn volume_mode(spec: &Value, field: &str, causes: &mut Vec<Cause>) {
    let modes = ["Block", "Filesystem"];
    if let Some(mode) = at(spec, &["volumeMode"]).filter(|mode| !modes.iter().any(|it| *mode == it)) {
        causes.push(Cause::not_supported(field, mode, &modes));
    }
}

/// The name of a class of either sort, if there is one.
pub(super) fn class_name(spec: &Value, member: &str, field: &str, causes: &mut Vec<Cause>) {
    let (class, field) = (text(spec, &[member]), format!("{field}.{member}"));
    if !class.is_empty() {
        causes.extend(names::subdomain(class).into_iter().map(|why| Cause::invalid(&field, &class.into(), why)));
    }
}

fn attributes_class(spec: &Value, field: &str, causes: &mut Vec<Cause>) {
    let member = "volumeAttributesClassName";
    let Some(class) = at(spec, &[member]) else { return };
    if *class == "" {
        causes.push(Cause::required(format!("{field}.{member}"), "an empty string is disallowed"));
    }
    class_name(spec, member, field, causes);
    if at(spec, &["csi"]).is_none() {
        let why = "has to be specified when using volumeAttributesClassName";
        causes.push(Cause::required(format!("{field}.csi"), why));
    }
}

/// Checks that a spec inside a VolumeAttachment is CSI, and lacks the forbidden members.
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

/// A claim's or volume's access modes.
pub(super) fn access_modes(spec: &Value, field: &str, when_missing: &str, causes: &mut Vec<Cause>) {
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

/// Refuses a quantity that is zero or negative. Its digits decide, not its suffix.
pub(super) fn positive(quantity: &Value, field: &str, causes: &mut Vec<Cause>) {
    let shown = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    let digits = shown.trim_start_matches('+');
    let number = digits.split(|c: char| c.is_ascii_alphabetic()).next().unwrap_or("");
    if digits.starts_with('-') || !number.chars().any(|c| ('1'..='9').contains(&c)) {
        causes.push(Cause::invalid(field, &shown.into(), "must be greater than zero"));
    }
}

/// The value of a quantity, exact enough to compare two of them.
pub(super) fn quantity(quantity: &Value) -> Option<f64> {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(digits)?;
    let factor = match suffix {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => f64::from(1 << 10),
        "Mi" => f64::from(1 << 20),
        "Gi" => f64::from(1 << 30),
        "Ti" => f64::from(1 << 20) * f64::from(1 << 20),
        "Pi" => f64::from(1 << 30) * f64::from(1 << 20),
        "Ei" => f64::from(1 << 30) * f64::from(1 << 30),
        // An exponent.
        _ => return text.parse().ok(),
    };
    Some(number.parse::<f64>().ok()? * factor)
}

fn csi(source: &Value, field: &str, causes: &mut Vec<Cause>) {
    names::driver(text(source, &["driver"]), &format!("{field}.driver"), causes);
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
        let field = "spec.persistentvolumesource";
        let differ = difference::of_sources(&old["spec"], &new["spec"]);
        causes.push(Cause::forbidden(field, format!("{field} is immutable after creation\n{differ}")));
    }
    immutable("volumeMode", at(old, &["spec", "volumeMode"]), at(new, &["spec", "volumeMode"]), causes);
    let affinity = |object| at(object, &["spec", "nodeAffinity"]);
    if affinity(old).is_some() && affinity(old) != affinity(new) {
        let shown = affinity(new).unwrap_or(&Value::Null);
        let why = "field is immutable, except for updating from beta label to GA";
        causes.push(Cause::invalid("nodeAffinity", shown, why));
    }
    let class = |object| at(object, &["spec", "volumeAttributesClassName"]);
    if class(old).is_some() && class(new).is_none() {
        causes
            .push(Cause::forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden"));
    }
}
