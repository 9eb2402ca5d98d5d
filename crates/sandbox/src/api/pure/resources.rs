//! The kinds that the sandbox serves: names, scopes and verbs as the real server's discovery lists them.
//!
//! One table; discovery, routing, validation and printing all read it. A kind that is not here does not exist; one that is
//! `optional` is served once it was installed. A kind with several versions has a row for each, and a cluster serves one of them.

/// A kind and its place in the API.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// The API group; empty for core.
    pub group: &'static str,
    /// The version within the group.
    pub version: &'static str,
    /// `VolumeAttachment`.
    pub kind: &'static str,
    /// `VolumeAttachmentList`.
    pub list_kind: &'static str,
    /// `volumeattachments`, as in paths.
    pub plural: &'static str,
    /// `volumeattachment`.
    pub singular: &'static str,
    /// The short names that kubectl users type.
    pub short_names: &'static [&'static str],
    /// `all`, for `kubectl get all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether there is a `/status` subresource, and writes to the two are kept apart.
    pub has_status: bool,
    /// The verbs, in discovery's order.
    pub verbs: &'static [&'static str],
    /// Whether a cluster has the kind only if somebody installed its definition.
    pub optional: bool,
}

/// The verbs for a `/status` subresource.
pub const STATUS_VERBS: &[&str] = &["get", "patch", "update"];

macro_rules! resource {
    ($group:literal $version:literal $kind:literal $plural:literal $singular:literal $short:expr, $scope:ident, $status:ident, $life:ident) => {
        Resource {
            group: $group,
            version: $version,
            kind: $kind,
            list_kind: concat!($kind, "List"),
            plural: $plural,
            singular: $singular,
            short_names: $short,
            categories: &[],
            namespaced: matches!(Scope::$scope, Scope::Namespaced),
            has_status: matches!(Status::$status, Status::Apart),
            verbs: Life::$life.verbs(),
            optional: matches!(Life::$life, Life::Installed),
        }
    };
}

enum Scope {
    Cluster,
    Namespaced,
}

enum Status {
    Apart,
    None,
}

/// What becomes of objects.
enum Life {
    /// They are stored.
    Stored,
    /// They are stored, where somebody has installed the kind's definition.
    Installed,
    /// They are stored, and cannot be deleted all at once.
    Namespace,
    /// A question is answered and not stored.
    Question,
}

impl Life {
    /// The verbs, in discovery's order.
    const fn verbs(&self) -> &'static [&'static str] {
        match self {
            Self::Stored => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            Self::Installed => &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
            Self::Namespace => &["create", "delete", "get", "list", "patch", "update", "watch"],
            Self::Question => &["create"],
        }
    }
}

/// A kind that `kubectl get all` shows.
const fn in_all(resource: &Resource) -> Resource {
    Resource { categories: &["all"], ..*resource }
}

/// Every kind, by group and then by name, as discovery sorts them.
pub const RESOURCES: &[Resource] = &[
    resource!("" "v1" "ConfigMap" "configmaps" "configmap" &["cm"], Namespaced, None, Stored),
    resource!("" "v1" "Event" "events" "event" &["ev"], Namespaced, None, Stored),
    resource!("" "v1" "Namespace" "namespaces" "namespace" &["ns"], Cluster, Apart, Namespace),
    resource!("" "v1" "Node" "nodes" "node" &["no"], Cluster, Apart, Stored),
    resource!("" "v1" "PersistentVolumeClaim" "persistentvolumeclaims" "persistentvolumeclaim" &["pvc"], Namespaced, Apart, Stored),
    resource!("" "v1" "PersistentVolume" "persistentvolumes" "persistentvolume" &["pv"], Cluster, Apart, Stored),
    in_all(&resource!("" "v1" "Pod" "pods" "pod" &["po"], Namespaced, Apart, Stored)),
    resource!("" "v1" "ResourceQuota" "resourcequotas" "resourcequota" &["quota"], Namespaced, Apart, Stored),
    resource!("" "v1" "Secret" "secrets" "secret" &[], Namespaced, None, Stored),
    resource!("" "v1" "ServiceAccount" "serviceaccounts" "serviceaccount" &["sa"], Namespaced, None, Stored),
    in_all(&resource!("apps" "v1" "DaemonSet" "daemonsets" "daemonset" &["ds"], Namespaced, Apart, Stored)),
    in_all(&resource!("apps" "v1" "Deployment" "deployments" "deployment" &["deploy"], Namespaced, Apart, Stored)),
    in_all(&resource!("apps" "v1" "ReplicaSet" "replicasets" "replicaset" &["rs"], Namespaced, Apart, Stored)),
    in_all(&resource!("apps" "v1" "StatefulSet" "statefulsets" "statefulset" &["sts"], Namespaced, Apart, Stored)),
    resource!("authentication.k8s.io" "v1" "SelfSubjectReview" "selfsubjectreviews" "selfsubjectreview" &[], Cluster, None, Question),
    resource!("authorization.k8s.io" "v1" "SelfSubjectAccessReview" "selfsubjectaccessreviews" "selfsubjectaccessreview" &[], Cluster, None, Question),
    resource!("authorization.k8s.io" "v1" "SelfSubjectRulesReview" "selfsubjectrulesreviews" "selfsubjectrulesreview" &[], Cluster, None, Question),
    resource!("coordination.k8s.io" "v1" "Lease" "leases" "lease" &[], Namespaced, None, Stored),
    resource!("gateway.networking.k8s.io" "v1beta1" "ReferenceGrant" "referencegrants" "referencegrant" &[], Namespaced, None, Installed),
    resource!("groupsnapshot.storage.k8s.io" "v1" "VolumeGroupSnapshotClass" "volumegroupsnapshotclasses" "volumegroupsnapshotclass" &["vgsclass", "vgsclasses"], Cluster, None, Installed),
    resource!("groupsnapshot.storage.k8s.io" "v1" "VolumeGroupSnapshotContent" "volumegroupsnapshotcontents" "volumegroupsnapshotcontent" &["vgsc", "vgscs"], Cluster, Apart, Installed),
    resource!("groupsnapshot.storage.k8s.io" "v1" "VolumeGroupSnapshot" "volumegroupsnapshots" "volumegroupsnapshot" &["vgs"], Namespaced, Apart, Installed),
    resource!("groupsnapshot.storage.k8s.io" "v1beta1" "VolumeGroupSnapshotClass" "volumegroupsnapshotclasses" "volumegroupsnapshotclass" &["vgsclass", "vgsclasses"], Cluster, None, Installed),
    resource!("groupsnapshot.storage.k8s.io" "v1beta1" "VolumeGroupSnapshotContent" "volumegroupsnapshotcontents" "volumegroupsnapshotcontent" &["vgsc", "vgscs"], Cluster, Apart, Installed),
    resource!("groupsnapshot.storage.k8s.io" "v1beta1" "VolumeGroupSnapshot" "volumegroupsnapshots" "volumegroupsnapshot" &["vgs"], Namespaced, Apart, Installed),
    resource!("groupsnapshot.storage.k8s.io" "v1beta2" "VolumeGroupSnapshotClass" "volumegroupsnapshotclasses" "volumegroupsnapshotclass" &["vgsclass", "vgsclasses"], Cluster, None, Installed),
    resource!("groupsnapshot.storage.k8s.io" "v1beta2" "VolumeGroupSnapshotContent" "volumegroupsnapshotcontents" "volumegroupsnapshotcontent" &["vgsc", "vgscs"], Cluster, Apart, Installed),
    resource!("groupsnapshot.storage.k8s.io" "v1beta2" "VolumeGroupSnapshot" "volumegroupsnapshots" "volumegroupsnapshot" &["vgs"], Namespaced, Apart, Installed),
    resource!("snapshot.storage.k8s.io" "v1" "VolumeSnapshotClass" "volumesnapshotclasses" "volumesnapshotclass" &["vsclass", "vsclasses"], Cluster, None, Installed),
    resource!("snapshot.storage.k8s.io" "v1" "VolumeSnapshotContent" "volumesnapshotcontents" "volumesnapshotcontent" &["vsc", "vscs"], Cluster, Apart, Installed),
    resource!("snapshot.storage.k8s.io" "v1" "VolumeSnapshot" "volumesnapshots" "volumesnapshot" &["vs"], Namespaced, Apart, Installed),
    resource!("storage.k8s.io" "v1" "CSIDriver" "csidrivers" "csidriver" &[], Cluster, None, Stored),
    resource!("storage.k8s.io" "v1" "CSINode" "csinodes" "csinode" &[], Cluster, None, Stored),
    resource!("storage.k8s.io" "v1" "CSIStorageCapacity" "csistoragecapacities" "csistoragecapacity" &[], Namespaced, None, Stored),
    resource!("storage.k8s.io" "v1" "StorageClass" "storageclasses" "storageclass" &["sc"], Cluster, None, Stored),
    resource!("storage.k8s.io" "v1" "VolumeAttachment" "volumeattachments" "volumeattachment" &[], Cluster, Apart, Stored),
    resource!("storage.k8s.io" "v1" "VolumeAttributesClass" "volumeattributesclasses" "volumeattributesclass" &["vac"], Cluster, None, Stored),
];

impl Resource {
    /// `persistentvolumes`, `volumeattachments.storage.k8s.io`: as errors name the resource.
    pub fn qualified(&self) -> String {
        qualify(self.plural, self.group)
    }

    /// `PersistentVolume`, `VolumeAttachment.storage.k8s.io`: as errors name the kind.
    pub fn qualified_kind(&self) -> String {
        qualify(self.kind, self.group)
    }

    /// `v1`, `storage.k8s.io/v1`: the `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        group_version(self.group, self.version)
    }

    /// Whether objects are kept, as opposed to questions that are answered.
    pub fn is_stored(&self) -> bool {
        self.can("get")
    }

    /// Whether the resource has this verb.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
}

/// A resource or kind with its group: `volumeattachments.storage.k8s.io`.
pub(super) fn qualify(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// `v1` for core, `group/version` otherwise.
pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The resource at this place of the API, if the sandbox has it.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|it| it.group == group && it.version == version && it.plural == plural)
}

/// The resource of objects with this `apiVersion` and `kind`.
pub fn of_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|it| it.kind == kind && it.api_version() == api_version)
}

/// The kinds that a cluster serves: those that each has, and of the others those for which `installed` is true.
pub fn served(installed: impl Fn(&Resource) -> bool) -> Vec<&'static Resource> {
    RESOURCES.iter().filter(|it| !it.optional || installed(it)).collect()
}

/// The named groups of these kinds with their version, each once, in their order.
pub fn groups(resources: &[&'static Resource]) -> Vec<(&'static str, &'static str)> {
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for resource in resources.iter().filter(|it| !it.group.is_empty()) {
        if !groups.contains(&(resource.group, resource.version)) {
            groups.push((resource.group, resource.version));
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_is_found_by_its_path_and_by_its_kind() {
        for resource in RESOURCES {
            assert_eq!(find(resource.group, resource.version, resource.plural), Some(resource));
            assert_eq!(of_kind(&resource.api_version(), resource.kind), Some(resource));
            assert_eq!(resource.list_kind, format!("{}List", resource.kind));
        }
        assert_eq!(find("storage.k8s.io", "v1beta1", "volumeattachments"), None);
    }

    #[test]
    fn only_these_keep_their_status_apart() {
        let apart: Vec<_> = RESOURCES.iter().filter(|it| it.has_status).map(|it| it.plural).collect();
        assert_eq!(
            apart,
            [
                "namespaces",
                "nodes",
                "persistentvolumeclaims",
                "persistentvolumes",
                "pods",
                "resourcequotas",
                "daemonsets",
                "deployments",
                "replicasets",
                "statefulsets",
                "volumegroupsnapshotcontents",
                "volumegroupsnapshots",
                "volumegroupsnapshotcontents",
                "volumegroupsnapshots",
                "volumegroupsnapshotcontents",
                "volumegroupsnapshots",
                "volumesnapshotcontents",
                "volumesnapshots",
                "volumeattachments"
            ]
        );
    }

    #[test]
    fn optional_kinds_are_served_once_installed() {
        let bare = served(|_| false);
        assert!(bare.iter().all(|it| !it.optional) && bare.len() + 13 == RESOURCES.len());
        let snapshots = served(|it| it.group == "snapshot.storage.k8s.io");
        assert!(groups(&snapshots).contains(&("snapshot.storage.k8s.io", "v1")));
        assert!(!groups(&snapshots).contains(&("gateway.networking.k8s.io", "v1beta1")));
    }

    #[test]
    fn questions_are_not_stored() {
        let questions: Vec<_> = RESOURCES.iter().filter(|it| !it.is_stored()).map(|it| it.plural).collect();
        assert_eq!(questions, ["selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"]);
    }
}
