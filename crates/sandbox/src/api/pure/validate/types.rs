//! Members of the wrong JSON type, which a typed server can't even decode: one 400 for the first of them.
//!
//! Each entry is `path:Go type`; `[]` in a path walks into a list's items. A null is as good as a missing member.

use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD;

use super::super::rejection::Rejection;
use super::super::resources::Resource;
use serde_json::Value;

const METADATA: &[&str] = &[
    "apiVersion:string",
    "kind:string",
    "metadata:v1.ObjectMeta",
    "metadata.name:string",
    "metadata.generateName:string",
    "metadata.namespace:string",
    "metadata.uid:types.UID",
    "metadata.resourceVersion:string",
    "metadata.creationTimestamp:v1.Time",
    "metadata.deletionTimestamp:v1.Time",
    "metadata.labels:map[string]string",
    "metadata.annotations:map[string]string",
    "metadata.finalizers:[]string",
    "metadata.ownerReferences:[]v1.OwnerReference",
];

const VOLUME_SPEC: &[&str] = &[
    "accessModes:[]string",
    "mountOptions:[]string",
    "storageClassName:string",
    "volumeMode:string",
    "capacity:map[v1.ResourceName]resource.Quantity",
    "persistentVolumeReclaimPolicy:string",
    "claimRef:v1.ObjectReference",
    "csi:v1.CSIPersistentVolumeSource",
    "csi.driver:string",
    "csi.volumeHandle:string",
    "csi.readOnly:bool",
    "csi.fsType:string",
    "csi.volumeAttributes:map[string]string",
    "csi.controllerPublishSecretRef:v1.SecretReference",
    "csi.controllerPublishSecretRef.name:string",
    "csi.controllerPublishSecretRef.namespace:string",
];

/// The members of a claim.
const CLAIM: &[&str] = &[
    "spec:v1.PersistentVolumeClaimSpec",
    "spec.accessModes:[]string",
    "spec.volumeName:string",
    "spec.storageClassName:string",
    "spec.resources:v1.VolumeResourceRequirements",
    "spec.resources.requests:map[v1.ResourceName]resource.Quantity",
    "status:v1.PersistentVolumeClaimStatus",
    "status.phase:string",
    "status.accessModes:[]string",
    "status.capacity:map[v1.ResourceName]resource.Quantity",
    "status.allocatedResources:map[v1.ResourceName]resource.Quantity",
    "status.allocatedResourceStatuses:map[string]string",
    "status.conditions:[]v1.PersistentVolumeClaimCondition",
    "status.conditions[].type:string",
    "status.conditions[].status:string",
    "status.conditions[].reason:string",
    "status.conditions[].message:string",
    "status.conditions[].lastProbeTime:v1.Time",
    "status.conditions[].lastTransitionTime:v1.Time",
    "status.currentVolumeAttributesClassName:string",
    "status.modifyVolumeStatus:v1.ModifyVolumeStatus",
    "status.modifyVolumeStatus.status:string",
    "status.modifyVolumeStatus.targetVolumeAttributesClassName:string",
];

/// The members of a kind that are checked, beside the metadata.
fn members(resource: &Resource) -> &'static [&'static str] {
    match resource.plural {
        "volumeattachments" => &[
            "spec:v1.VolumeAttachmentSpec",
            "spec.attacher:string",
            "spec.nodeName:string",
            "spec.source:v1.VolumeAttachmentSource",
            "spec.source.persistentVolumeName:string",
            "spec.source.inlineVolumeSpec:v1.PersistentVolumeSpec",
            "status:v1.VolumeAttachmentStatus",
            "status.attached:bool",
            "status.attachmentMetadata:map[string]string",
            "status.attachError:v1.VolumeError",
            "status.attachError.message:string",
            "status.attachError.errorCode:int32",
            "status.attachError.time:v1.Time",
            "status.detachError:v1.VolumeError",
            "status.detachError.message:string",
            "status.detachError.errorCode:int32",
            "status.detachError.time:v1.Time",
        ],
        "csinodes" => &[
            "spec:v1.CSINodeSpec",
            "spec.drivers:[]v1.CSINodeDriver",
            "spec.drivers[].name:string",
            "spec.drivers[].nodeID:string",
            "spec.drivers[].topologyKeys:[]string",
            "spec.drivers[].allocatable.count:int32",
        ],
        "csidrivers" => &["spec:v1.CSIDriverSpec", "spec.attachRequired:bool", "spec.volumeLifecycleModes:[]string"],
        "storageclasses" => &[
            "provisioner:string",
            "parameters:map[string]string",
            "reclaimPolicy:string",
            "mountOptions:[]string",
            "allowVolumeExpansion:bool",
            "volumeBindingMode:string",
        ],
        "volumeattributesclasses" => &["driverName:string", "parameters:map[string]string"],
        "csistoragecapacities" => &["storageClassName:string", "nodeTopology:v1.LabelSelector"],
        "persistentvolumes" => {
            &["spec:v1.PersistentVolumeSpec", "status:v1.PersistentVolumeStatus", "status.phase:string"]
        }
        "persistentvolumeclaims" => CLAIM,
        "resourcequotas" => &[
            "spec:v1.ResourceQuotaSpec",
            "spec.hard:map[v1.ResourceName]resource.Quantity",
            "status:v1.ResourceQuotaStatus",
            "status.hard:map[v1.ResourceName]resource.Quantity",
            "status.used:map[v1.ResourceName]resource.Quantity",
        ],
        "secrets" => &["data:map[string][]uint8", "stringData:map[string]string", "type:string", "immutable:bool"],
        "configmaps" => &["data:map[string]string", "binaryData:map[string][]uint8", "immutable:bool"],
        "leases" => &[
            "spec:v1.LeaseSpec",
            "spec.holderIdentity:string",
            "spec.leaseDurationSeconds:int32",
            "spec.leaseTransitions:int32",
            "spec.acquireTime:v1.MicroTime",
            "spec.renewTime:v1.MicroTime",
        ],
        "events" => &[
            "involvedObject:v1.ObjectReference",
            "involvedObject.kind:string",
            "involvedObject.name:string",
            "involvedObject.namespace:string",
            "involvedObject.uid:types.UID",
            "reason:string",
            "message:string",
            "type:string",
            "count:int32",
            "firstTimestamp:v1.Time",
            "lastTimestamp:v1.Time",
        ],
        "pods" => &["spec:v1.PodSpec", "spec.nodeName:string", "spec.containers:[]v1.Container", "status.phase:string"],
        "nodes" => &[
            "spec:v1.NodeSpec",
            "spec.unschedulable:bool",
            "spec.taints:[]v1.Taint",
            "status.conditions:[]v1.NodeCondition",
        ],
        _ => &[],
    }
}

/// Refuses an object with a member of the wrong JSON type.
pub(super) fn check(resource: &Resource, object: &Value) -> Result<(), Rejection> {
    if !object.is_object() {
        let detail = format!("json: cannot unmarshal {} into Go value of type v1.{}", json_type(object), resource.kind);
        return Err(Rejection::undecodable(resource, detail));
    }
    let volume_at: &[&str] = match resource.plural {
        "persistentvolumes" => &["spec"],
        "volumeattachments" => &["spec", "source", "inlineVolumeSpec"],
        _ => &[],
    };
    METADATA.iter().chain(members(resource)).try_for_each(|entry| check_entry(resource, object, "", entry))?;
    if volume_at.is_empty() {
        return Ok(());
    }
    let Some(spec) = super::at(object, volume_at) else { return Ok(()) };
    let prefix = format!("{}.", volume_at.join("."));
    VOLUME_SPEC.iter().try_for_each(|entry| check_entry(resource, spec, &prefix, entry))
}

fn check_entry(resource: &Resource, object: &Value, prefix: &str, entry: &str) -> Result<(), Rejection> {
    let Some((path, go_type)) = entry.split_once(':') else { return Ok(()) };
    let mut found = vec![object];
    for segment in path.split('.') {
        let (key, each) = segment.strip_suffix("[]").map_or((segment, false), |key| (key, true));
        found = found.into_iter().filter_map(|value| value.get(key)).collect();
        if each {
            found = found.into_iter().filter_map(Value::as_array).flatten().collect();
        }
    }
    for value in found {
        if let Some((wrong, wanted)) = mismatch(value, go_type) {
            let path = format!("{prefix}{}", path.replace("[]", ""));
            return Err(Rejection::undecodable(resource, complaint(resource, &path, wrong, wanted)));
        }
    }
    Ok(())
}

/// The message of Go's decoder about a value that does not fit: it names the struct of the field.
fn complaint(resource: &Resource, path: &str, wrong: &Value, wanted: &str) -> String {
    if let (Some(text), "v1.Time" | "v1.MicroTime") = (wrong.as_str(), wanted) {
        let layout = if wanted == "v1.Time" { "2006-01-02T15:04:05Z07:00" } else { "2006-01-02T15:04:05.000000Z07:00" };
        return format!("parsing time \"{text}\" as \"{layout}\"");
    }
    if wanted == "resource.Quantity" && wrong.is_string() {
        return "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            .to_owned();
    }
    if wanted == "[]uint8" && wrong.is_string() {
        return format!("illegal base64 data at input byte {}", wrong.as_str().map_or(0, base64_fault));
    }
    let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
    let own = METADATA.iter().chain(members(resource)).map(|entry| ("", *entry));
    let prefixes = ["spec.", "spec.source.inlineVolumeSpec."];
    let of_volumes = prefixes.iter().flat_map(|prefix| VOLUME_SPEC.iter().map(|entry| (*prefix, *entry)));
    let holder = own.chain(of_volumes).find_map(|(prefix, entry)| {
        let (path, go_type) = entry.split_once(':')?;
        (parent.strip_prefix(prefix) == Some(path)).then(|| go_type.trim_start_matches("[]").trim_start_matches("v1."))
    });
    let holder = holder.unwrap_or(resource.kind);
    format!("json: cannot unmarshal {} into Go struct field {holder}.{path} of type {wanted}", json_type(wrong))
}

/// Where a text stops being base64.
fn base64_fault(text: &str) -> usize {
    let odd = |byte: u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\n' | b'\r'));
    text.bytes().position(odd).unwrap_or(text.len() / 4 * 4)
}

/// Whether the API reads this as a time: RFC 3339, in a Lease to the microsecond.
fn is_time(text: &str, micro: bool) -> bool {
    text.parse::<jiff::Timestamp>().is_ok() && (!micro || text.contains('.'))
}

/// The part of a value that does not fit, and the type that it should have.
fn mismatch<'a>(value: &'a Value, go_type: &'a str) -> Option<(&'a Value, &'a str)> {
    if value.is_null() {
        return None;
    }
    if let Some(item) = go_type.strip_prefix("[]").filter(|_| go_type != "[]uint8") {
        return match value {
            Value::Array(items) => items.iter().find_map(|value| mismatch(value, item)),
            _ => Some((value, go_type)),
        };
    }
    if let Some((_, item)) = go_type.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return match value {
            Value::Object(map) => map.values().find_map(|value| mismatch(value, item)),
            _ => Some((value, go_type)),
        };
    }
    let fits = match go_type {
        "string" | "types.UID" => value.is_string(),
        "v1.Time" | "v1.MicroTime" => value.as_str().is_some_and(|text| is_time(text, go_type == "v1.MicroTime")),
        "[]uint8" => value.as_str().is_some_and(|text| STANDARD.decode(text).is_ok()),
        "bool" => value.is_boolean(),
        "int32" => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        "resource.Quantity" => super::volumes::quantity(value).is_some(),
        _ => value.is_object(),
    };
    (!fits).then_some((value, go_type))
}

/// How Go's decoder calls a value.
pub(in super::super) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
