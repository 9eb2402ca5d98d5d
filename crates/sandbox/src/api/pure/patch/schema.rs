//! Which lists and maps of our kinds are merged, and by what: the `x-kubernetes-*` marks of Kubernetes 1.37's
//! `OpenAPI`. A field is identified by its name and, if names clash, by its parent. A field that is not listed is
//! atomic: it is replaced as a whole.

/// How a list is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListType {
    /// Replaced as a whole.
    Atomic,
    /// Values, each once.
    Set,
    /// Objects, each known by these members.
    Map(&'static [&'static str]),
}

/// How server-side apply sees the list at this path of member names (`["spec", "drivers"]`).
pub(super) fn list_type(path: &[&str]) -> ListType {
    let Some(field) = path.last() else { return ListType::Atomic };
    match *field {
        "finalizers" if path == ["metadata", "finalizers"] => ListType::Set,
        "podCIDRs" | "volumeLifecycleModes" => ListType::Set,
        "ownerReferences" => ListType::Map(&["uid"]),
        "conditions" | "addresses" => ListType::Map(&["type"]),
        "imagePullSecrets" if path != ["spec", "imagePullSecrets"] => ListType::Atomic,
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets"
        | "schedulingGates"
        | "resourceClaims"
        | "resourceClaimStatuses"
        | "drivers"
        | "secrets"
        | "allocatedResourcesStatus"
        | "claims" => ListType::Map(&["name"]),
        "ports" => ListType::Map(&["containerPort", "protocol"]),
        "volumeDevices" => ListType::Map(&["devicePath"]),
        "volumeMounts" => ListType::Map(&["mountPath"]),
        "hostAliases" | "podIPs" => ListType::Map(&["ip"]),
        "topologySpreadConstraints" => ListType::Map(&["topologyKey", "whenUnsatisfiable"]),
        _ => ListType::Atomic,
    }
}

/// How a strategic merge patch sees the list: older, so some marks differ.
pub(super) fn patch_type(path: &[&str]) -> ListType {
    match path.last() {
        Some(&"hostIPs") => ListType::Map(&["ip"]),
        Some(&("claims" | "volumeLifecycleModes")) => ListType::Atomic,
        // One key is enough for a strategic patch: the first.
        Some(&"ports") => ListType::Map(&["containerPort"]),
        Some(&"topologySpreadConstraints") => ListType::Map(&["topologyKey"]),
        _ => list_type(path),
    }
}

/// The default of a key member that an item leaves out.
pub(super) fn key_default(key: &str) -> Option<&'static str> {
    (key == "protocol").then_some("TCP")
}

/// Whether the map at this path is owned and replaced as a whole by server-side apply.
pub(super) fn is_atomic_map(path: &[&str]) -> bool {
    let Some(field) = path.last() else { return false };
    match *field {
        "required" | "selector" => path.first() == Some(&"spec"),
        // Selectors, and references: of those `claimRef` alone is not one value.
        "nodeSelector" | "nodeTopology" | "allowedTopologies" | "labelSelector" | "involvedObject" | "related"
        | "dataSource" | "ownerReferences" | "imagePullSecrets" | "configMapKeyRef" | "fieldRef"
        | "resourceFieldRef" | "fileKeyRef" | "secretRef" | "secretKeyRef" => true,
        _ => field.ends_with("SecretRef"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_merged_as_the_openapi_marks_say() {
        let cases: &[(&[&str], ListType, ListType)] = &[
            (&["metadata", "finalizers"], ListType::Set, ListType::Set),
            (&["spec", "finalizers"], ListType::Atomic, ListType::Atomic),
            (&["metadata", "ownerReferences"], ListType::Map(&["uid"]), ListType::Map(&["uid"])),
            (&["spec", "drivers"], ListType::Map(&["name"]), ListType::Map(&["name"])),
            (&["spec", "taints"], ListType::Atomic, ListType::Atomic),
            (&["spec", "tolerations"], ListType::Atomic, ListType::Atomic),
            (&["imagePullSecrets"], ListType::Atomic, ListType::Atomic),
            (&["spec", "imagePullSecrets"], ListType::Map(&["name"]), ListType::Map(&["name"])),
            (
                &["spec", "containers", "ports"],
                ListType::Map(&["containerPort", "protocol"]),
                ListType::Map(&["containerPort"]),
            ),
            (&["spec", "accessModes"], ListType::Atomic, ListType::Atomic),
        ];
        for (path, applied, patched) in cases {
            assert_eq!((list_type(path), patch_type(path)), (*applied, *patched), "{path:?}");
        }
    }
}
