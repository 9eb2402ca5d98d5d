//! The kinds of `storage.k8s.io`.

use super::super::access::{at, list, text};
use super::super::rejection::Cause;
use super::{immutable, names, selectors, volumes};
use serde_json::{Value, json};

/// The longest error message that a VolumeAttachment's status can hold, in bytes.
const MAX_ERROR_MESSAGE: usize = 1024;
/// Keys and values of `attachmentMetadata` together.
const MAX_ATTACHMENT_METADATA: usize = 256 * 1024;
/// The CSI specification's limit for a node id, in bytes.
const MAX_NODE_ID: usize = 256;
/// The CSI specification's limit for a driver's name.
const MAX_DRIVER_NAME: usize = 63;

/// The spec of a VolumeAttachment.
pub(super) fn attachment(new: &Value, causes: &mut Vec<Cause>) {
    let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let inline = at(new, &["spec", "source", "inlineVolumeSpec"]);
    let volume = at(new, &["spec", "source", "persistentVolumeName"]).and_then(Value::as_str);
    let field = "spec.source.persistentVolumeName";
    match (inline, volume) {
        (None, None) => causes.push(Cause::required("spec.source", one)),
        (Some(_), Some(_)) => causes.push(Cause::forbidden("spec.source", one)),
        (None, Some("")) => causes.push(Cause::required(field, "must specify non empty persistentVolumeName")),
        (None, Some(_)) => {}
        (Some(spec), None) => volumes::spec(spec, true, "spec.source.inlineVolumeSpec", causes),
    }
    let node = text(new, &["spec", "nodeName"]);
    causes.extend(names::subdomain(node).into_iter().map(|why| Cause::invalid("spec.nodeName", &node.into(), why)));
    if let Some(name) = volume {
        causes.extend(names::subdomain(name).into_iter().map(|why| Cause::invalid(field, &name.into(), why)));
    }
}

/// What the type of a VolumeAttachment declares: its spec never changes, and the driver's name is judged on creation.
pub(super) fn attachment_declared(old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    if let Some(old) = old {
        if old.get("spec") != new.get("spec") {
            causes.push(Cause::immutable("spec"));
        }
        return;
    }
    let (name, field) = (text(new, &["spec", "attacher"]), "spec.attacher");
    if name.is_empty() {
        causes.push(Cause::required(field, ""));
        return;
    }
    let faults = names::subdomain_of_any_case(name);
    causes.extend(faults.into_iter().map(|why| Cause::invalid(field, &name.into(), why)));
    if name.chars().count() > MAX_DRIVER_NAME {
        causes.push(Cause::too_long_in(field, MAX_DRIVER_NAME, "characters"));
    }
}

/// The status of a VolumeAttachment.
pub(super) fn attachment_status(new: &Value, causes: &mut Vec<Cause>) {
    let metadata = at(new, &["status", "attachmentMetadata"]).and_then(Value::as_object).into_iter().flatten();
    let size: usize = metadata.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ATTACHMENT_METADATA {
        causes.push(Cause::too_long("status.attachmentMetadata", MAX_ATTACHMENT_METADATA));
    }
    for key in ["attachError", "detachError"] {
        if text(new, &["status", key, "message"]).len() > MAX_ERROR_MESSAGE {
            causes.push(Cause::too_long(format!("status.{key}.message"), MAX_ERROR_MESSAGE));
        }
        if let Some(code) = at(new, &["status", key, "errorCode"]).filter(|code| code.as_i64().is_some_and(|it| it < 0))
        {
            let why = "must be between 0 and 2147483647, inclusive";
            causes.push(Cause::invalid(format!("status.{key}.errorCode"), code, why));
        }
    }
}

/// A CSINode: each driver once, with a node id.
pub(super) fn csi_node(new: &Value, causes: &mut Vec<Cause>) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, driver) in list(new, &["spec", "drivers"]).iter().enumerate() {
        let field = format!("spec.drivers[{i}]");
        let name = text(driver, &["name"]);
        names::driver(name, &format!("{field}.name"), causes);
        let id = text(driver, &["nodeID"]);
        if id.is_empty() {
            causes.push(Cause::required(format!("{field}.nodeID"), ""));
        } else if id.len() > MAX_NODE_ID {
            let why = format!("must be {MAX_NODE_ID} characters or less");
            causes.push(Cause::invalid(format!("{field}.nodeID"), &id.into(), why));
        }
        if let Some(count) = at(driver, &["allocatable", "count"]).filter(|it| it.as_i64().is_some_and(|it| it < 0)) {
            let why = "must be greater than or equal to 0";
            causes.push(Cause::invalid(format!("{field}.allocatable.count"), count, why));
        }
        if seen.contains(&name) {
            causes.push(Cause::duplicate(format!("{field}.name"), &name.into()));
        }
        seen.push(name);
        let mut keys: Vec<&str> = Vec::new();
        for key in list(driver, &["topologyKeys"]).iter().filter_map(Value::as_str) {
            if key.is_empty() {
                causes.push(Cause::required(&field, ""));
            }
            if keys.contains(&key) {
                causes.push(Cause::duplicate(&field, &key.into()));
            }
            keys.push(key);
            causes.extend(names::qualified(key).into_iter().map(|why| Cause::invalid(&field, &key.into(), why)));
        }
    }
}

/// A driver's entry of a CSINode never changes but for its limit: it is removed and added again.
pub(super) fn csi_node_changes(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let without_limit = |driver: &Value| {
        let mut driver = driver.clone();
        driver.as_object_mut().map(|map| map.remove("allocatable"));
        driver
    };
    for before in list(old, &["spec", "drivers"]) {
        for after in list(new, &["spec", "drivers"]).iter().filter(|it| it.get("name") == before.get("name")) {
            let (before, after) = (without_limit(before), without_limit(after));
            immutable("spec.drivers", Some(&before), Some(&after), causes);
        }
    }
}

/// A `CSIDriver`.
pub(super) fn csi_driver(new: &Value, causes: &mut Vec<Cause>) {
    let name = text(new, &["metadata", "name"]);
    if name.len() > 63 {
        causes.push(Cause::too_long("metadata.name", 63));
    }
    let modes = ["Ephemeral", "Persistent"];
    for mode in list(new, &["spec", "volumeLifecycleModes"]) {
        if !modes.iter().any(|it| mode == it) {
            causes.push(Cause::not_supported("spec.volumeLifecycleModes", mode, &modes));
        }
    }
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    one_of(at(new, &["spec", "fsGroupPolicy"]), "spec.fsGroupPolicy", &policies, causes);
}

fn one_of(value: Option<&Value>, field: &str, allowed: &[&str], causes: &mut Vec<Cause>) {
    if let Some(value) = value.filter(|value| !allowed.iter().any(|it| *value == it)) {
        causes.push(Cause::not_supported(field, value, allowed));
    }
}

/// The name of a driver where it may be any qualified name, if there is one.
fn provisioner(new: &Value, field: &str, causes: &mut Vec<Cause>) {
    let name = text(new, &[field]);
    if !name.is_empty() {
        let faults = names::qualified(&name.to_lowercase());
        // The real server shows the name as it compares it.
        causes.extend(faults.into_iter().map(|why| Cause::invalid(field, &name.to_lowercase().into(), why)));
    }
}

/// A `StorageClass`.
pub(super) fn storage_class(new: &Value, causes: &mut Vec<Cause>) {
    provisioner(new, "provisioner", causes);
    one_of(new.get("reclaimPolicy").filter(|it| !it.is_null()), "reclaimPolicy", &["Delete", "Retain"], causes);
    let modes = ["Immediate", "WaitForFirstConsumer"];
    one_of(new.get("volumeBindingMode").filter(|it| !it.is_null()), "volumeBindingMode", &modes, causes);
    selectors::allowed_topologies(list(new, &["allowedTopologies"]), "allowedTopologies", causes);
}

/// What the type of a `StorageClass` declares: which members are there and never change.
pub(super) fn storage_class_declared(old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    // Unset is `Delete` and `Immediate`: the server fills them in.
    let read = |object: &Value, key: &str| match (key, at(object, &[key])) {
        ("reclaimPolicy", None) => json!("Delete"),
        ("volumeBindingMode", None) => json!("Immediate"),
        (_, value) => value.cloned().unwrap_or_default(),
    };
    for key in ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"] {
        if key == "provisioner" && text(new, &[key]).is_empty() {
            causes.push(Cause::required(key, ""));
        } else if old.is_some_and(|old| read(old, key) != read(new, key)) {
            causes.push(Cause::immutable(key));
        }
    }
}

/// A `VolumeAttributesClass`.
pub(super) fn attributes_class(new: &Value, causes: &mut Vec<Cause>) {
    if text(new, &["driverName"]).is_empty() {
        causes.push(Cause::required("driverName", ""));
    }
    provisioner(new, "driverName", causes);
    let parameters = at(new, &["parameters"]).and_then(Value::as_object);
    if parameters.is_none_or(serde_json::Map::is_empty) {
        causes.push(Cause::required("parameters", "must contain at least one key/value pair"));
    }
}

/// A `CSIStorageCapacity`.
pub(super) fn capacity(new: &Value, causes: &mut Vec<Cause>) {
    if let Some(topology) = at(new, &["nodeTopology"]) {
        selectors::labels(topology, "nodeTopology", causes);
    }
    let class = text(new, &["storageClassName"]);
    causes
        .extend(names::subdomain(class).into_iter().map(|why| Cause::invalid("storageClassName", &class.into(), why)));
    if let Some(quantity) = at(new, &["capacity"]).filter(|it| volumes::quantity(it).is_some_and(|it| it < 0.0)) {
        causes.push(Cause::invalid("capacity", quantity, "must be greater than or equal to 0"));
    }
}
