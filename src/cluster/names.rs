//! Names that other programs see and that the caches or more than one role use: annotations and finalizers. Also the
//! address of an object. Pure. All are the names of the Go sidecars, so that a migration needs no clean-up. Names that
//! only one role uses are in its `names.rs`.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The name that our requests carry as user agent and field manager.
pub const PROGRAM: &str = "csi-control-plane";

/// On a VolumeAttachment: the CSI node id that the volume was published to.
pub const ANNOTATION_NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";
/// On a VolumeAttachment: the handle of the published volume. The object's name is only a hash of it, and the
/// PersistentVolume may be gone at the detach.
pub const ANNOTATION_VOLUME_HANDLE: &str = "csi-control-plane.io/volume-handle";
/// On a VolumeAttachment: `namespace/name` of the Secret for the publish, for the same reason.
pub const ANNOTATION_PUBLISH_SECRET: &str = "csi-control-plane.io/publish-secret";
/// On a VolumeAttachment: the uid of the object for which the other annotations were written. A copy of the object has another uid.
pub const ANNOTATION_RECORDED_FOR: &str = "csi-control-plane.io/recorded-for";
/// On a PersistentVolume with an in-tree source: the CSI driver that owns it now.
pub const ANNOTATION_MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";

/// On a PersistentVolume of `azureFile`: the resource group of its storage account.
pub const ANNOTATION_AZURE_FILE_GROUP: &str = "kubernetes.io/azure-file-resource-group";
/// On a PersistentVolume of `portworxVolume`: the Secret of all its calls.
pub const ANNOTATION_PORTWORX_SECRET_NAME: &str = "openstorage.io/auth-secret-name";
/// On a PersistentVolume of `portworxVolume`: the namespace of that Secret.
pub const ANNOTATION_PORTWORX_SECRET_NAMESPACE: &str = "openstorage.io/auth-secret-namespace";
/// On a node and on a PersistentVolume: its zone.
pub const LABEL_ZONE: &str = "topology.kubernetes.io/zone";
/// On a node and on a PersistentVolume: its region.
pub const LABEL_REGION: &str = "topology.kubernetes.io/region";
/// The zone, before Kubernetes 1.17.
pub const LABEL_BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
/// The region, before Kubernetes 1.17.
pub const LABEL_BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

/// On a Node: an attach/detach controller manages its volumes. Any value counts.
pub const ANNOTATION_CONTROLLER_MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// What the names of CSI volumes begin with in a Node's status.
pub const CSI_VOLUME: &str = "kubernetes.io/csi/";
/// On a Node: it is out of service, and its volumes may be detached by force. Any value and any effect count.
pub const TAINT_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// On a PersistentVolume: the driver that created it.
pub const ANNOTATION_PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a PersistentVolume: the Secret for `DeleteVolume`.
pub const ANNOTATION_DELETION_SECRET_NAME: &str = "volume.kubernetes.io/provisioner-deletion-secret-name";
/// On a PersistentVolume: the namespace of that Secret.
pub const ANNOTATION_DELETION_SECRET_NAMESPACE: &str = "volume.kubernetes.io/provisioner-deletion-secret-namespace";
/// On a PersistentVolume: the Secret for changing its attributes, which the resizer reads.
pub const ANNOTATION_MODIFY_SECRET_NAME: &str = "volume.kubernetes.io/controller-modify-secret-name";
/// On a PersistentVolume: the namespace of that Secret.
pub const ANNOTATION_MODIFY_SECRET_NAMESPACE: &str = "volume.kubernetes.io/controller-modify-secret-namespace";

/// On a PersistentVolume that was created while traces were on: the `traceparent` of its claim's trace. Only this
/// daemon uses it, and only for traces.
pub const ANNOTATION_TRACEPARENT: &str = "csi-control-plane.io/traceparent";

/// On a claim: the driver that must create its volume.
pub const ANNOTATION_STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The same, before Kubernetes 1.23; read only if the other is absent.
pub const ANNOTATION_BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a claim: its class, from before there was a field.
pub const ANNOTATION_BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// On a claim: the node that the scheduler chose.
pub const ANNOTATION_SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The same, in very old clusters.
pub const ANNOTATION_ALPHA_SELECTED_NODE: &str = "volume.alpha.kubernetes.io/selected-node";
/// On a claim: the resizer of its in-tree volume.
pub const ANNOTATION_STORAGE_RESIZER: &str = "volume.kubernetes.io/storage-resizer";
/// On a claim: no node has to expand the volume to its current size.
pub const ANNOTATION_EXPANSION_NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
/// On a PersistentVolume: its claim's capacity before an expansion that a node has to finish.
pub const ANNOTATION_PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// On a `VolumeSnapshotContent`: the driver was called for the snapshot, and its final answer is not saved yet.
pub const ANNOTATION_SNAPSHOT_BEING_CREATED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
/// On a `VolumeAttachment`: when the attach/detach controller has kept it, although a deletion may have been sent before.
pub const ANNOTATION_KEPT_AT: &str = "csi-control-plane.io/kept-at";
/// On a `VolumeSnapshotContent`: its `VolumeSnapshot` is being deleted.
pub const ANNOTATION_SNAPSHOT_BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
/// On a `VolumeSnapshotContent`: the Secret for `DeleteSnapshot`.
pub const ANNOTATION_SNAPSHOT_SECRET_NAME: &str = "snapshot.storage.kubernetes.io/deletion-secret-name";
/// On a `VolumeSnapshotContent`: the namespace of that Secret.
pub const ANNOTATION_SNAPSHOT_SECRET_NAMESPACE: &str = "snapshot.storage.kubernetes.io/deletion-secret-namespace";
/// On a `VolumeSnapshotContent`: a volume of another mode may be made from it, if it says `true`.
pub const ANNOTATION_ALLOW_MODE_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";
/// On a `VolumeSnapshotContent`, a label: the node whose snapshotter serves it.
pub const LABEL_MANAGED_BY: &str = "snapshot.storage.kubernetes.io/managed-by";
/// On a `VolumeSnapshotContent`: our request to the driver, until its final answer is saved.
pub const ANNOTATION_SNAPSHOTTING: &str = "csi-control-plane.io/snapshotting";
/// On a `VolumeSnapshotContent`: the uid that it had when the driver was first called for it. It stays, so that a copy is known.
pub const ANNOTATION_CONTENT_UID: &str = "csi-control-plane.io/content-uid";
/// On the content of a group: the driver's ids of its snapshots, where the answer did not say of which volumes they are. A JSON list.
pub const ANNOTATION_UNLISTED_MEMBERS: &str = "csi-control-plane.io/unlisted-members";
/// On a `VolumeSnapshotContent`: the driver's id of the group that it was taken in.
pub const ANNOTATION_GROUP_HANDLE: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
/// On a `VolumeGroupSnapshotContent`: the driver was called for the group, and its final answer is not saved yet.
pub const ANNOTATION_GROUP_BEING_CREATED: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created";
/// On a `VolumeGroupSnapshotContent`: its `VolumeGroupSnapshot` is being deleted.
pub const ANNOTATION_GROUP_BEING_DELETED: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
/// On a `VolumeGroupSnapshotContent`: the Secret for deleting the group.
pub const ANNOTATION_GROUP_SECRET_NAME: &str = "groupsnapshot.storage.kubernetes.io/deletion-secret-name";
/// On a `VolumeGroupSnapshotContent`: the namespace of that Secret.
pub const ANNOTATION_GROUP_SECRET_NAMESPACE: &str = "groupsnapshot.storage.kubernetes.io/deletion-secret-namespace";

/// On a ConfigMap, a label: it is a segment of this driver's journal.
pub const LABEL_JOURNAL: &str = "csi-control-plane.io/journal";
/// On a segment of a journal: the version of its format.
pub const ANNOTATION_JOURNAL_VERSION: &str = "csi-control-plane.io/journal-version";
/// On a segment of a journal that belongs to one node: the node. No label, because a node's name can be too long for one.
pub const ANNOTATION_JOURNAL_NODE: &str = "csi-control-plane.io/node";

/// On a PersistentVolume: the provisioner still has to delete the driver's volume.
pub const FINALIZER_PROVISIONER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// On a `VolumeSnapshotContent`: its snapshotter still has to delete the driver's snapshot, or to see that it stays.
pub const FINALIZER_BOUND_CONTENT: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// On a `VolumeGroupSnapshotContent`: the same for a group of snapshots.
pub const FINALIZER_BOUND_GROUP_CONTENT: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";
/// On a claim: it is being cloned.
pub const FINALIZER_CLONING: &str = "provisioner.storage.kubernetes.io/cloning-protection";

/// The namespace of Events about cluster-scoped objects.
pub const NAMESPACE_OF_CLUSTER_EVENTS: &str = "default";

/// The annotations that some role reads on a VolumeAttachment; all others are dropped on arrival.
pub const VOLUME_ATTACHMENT_ANNOTATIONS: &[&str] =
    &[ANNOTATION_NODE_ID, ANNOTATION_VOLUME_HANDLE, ANNOTATION_PUBLISH_SECRET, ANNOTATION_RECORDED_FOR];
/// The annotations that some role reads on a PersistentVolume.
pub const PERSISTENT_VOLUME_ANNOTATIONS: &[&str] = &[
    ANNOTATION_MIGRATED_TO,
    ANNOTATION_PROVISIONED_BY,
    ANNOTATION_DELETION_SECRET_NAME,
    ANNOTATION_DELETION_SECRET_NAMESPACE,
    ANNOTATION_TRACEPARENT,
];
/// The annotations that some role reads on a claim that we do not provision.
pub const CLAIM_ANNOTATIONS: &[&str] = &[
    ANNOTATION_STORAGE_PROVISIONER,
    ANNOTATION_BETA_STORAGE_PROVISIONER,
    ANNOTATION_BETA_STORAGE_CLASS,
    ANNOTATION_MIGRATED_TO,
];

/// The annotations that name the node that was selected for a claim, the new one first.
pub const SELECTED_NODE_ANNOTATIONS: &[&str] = &[ANNOTATION_SELECTED_NODE, ANNOTATION_ALPHA_SELECTED_NODE];
/// The annotations that a resizer reads on a claim besides.
pub const RESIZED_CLAIM_ANNOTATIONS: &[&str] = &[ANNOTATION_STORAGE_RESIZER, ANNOTATION_EXPANSION_NOT_REQUIRED];
/// The annotations that a resizer reads on a PersistentVolume besides.
pub const RESIZED_VOLUME_ANNOTATIONS: &[&str] =
    &[ANNOTATION_PRE_RESIZE_CAPACITY, ANNOTATION_MODIFY_SECRET_NAME, ANNOTATION_MODIFY_SECRET_NAMESPACE];
/// The annotations that a translation reads on a PersistentVolume besides.
pub const MIGRATED_VOLUME_ANNOTATIONS: &[&str] =
    &[ANNOTATION_AZURE_FILE_GROUP, ANNOTATION_PORTWORX_SECRET_NAME, ANNOTATION_PORTWORX_SECRET_NAMESPACE];
/// The labels that a translation reads on a PersistentVolume.
pub const MIGRATED_VOLUME_LABELS: &[&str] = &[LABEL_ZONE, LABEL_REGION, LABEL_BETA_ZONE, LABEL_BETA_REGION];
/// The annotations that a snapshotter reads on a `VolumeSnapshotContent`.
pub const CONTENT_ANNOTATIONS: &[&str] = &[
    ANNOTATION_SNAPSHOT_BEING_CREATED,
    ANNOTATION_SNAPSHOT_BEING_DELETED,
    ANNOTATION_SNAPSHOT_SECRET_NAME,
    ANNOTATION_SNAPSHOT_SECRET_NAMESPACE,
    ANNOTATION_SNAPSHOTTING,
    ANNOTATION_CONTENT_UID,
    ANNOTATION_GROUP_HANDLE,
    ANNOTATION_ALLOW_MODE_CHANGE,
];

/// The annotations that a snapshotter reads on a `VolumeGroupSnapshotContent`.
pub const GROUP_CONTENT_ANNOTATIONS: &[&str] = &[
    ANNOTATION_GROUP_BEING_CREATED,
    ANNOTATION_GROUP_BEING_DELETED,
    ANNOTATION_GROUP_SECRET_NAME,
    ANNOTATION_GROUP_SECRET_NAMESPACE,
    ANNOTATION_SNAPSHOTTING,
    ANNOTATION_CONTENT_UID,
    ANNOTATION_UNLISTED_MEMBERS,
];

/// Texts that many objects have: a packed object has a byte for each.
pub(super) const WORDS: [&str; 20] = [
    "",
    "kubernetes.io/pv-protection",
    "kubernetes.io/pvc-protection",
    FINALIZER_PROVISIONER,
    "Bound",
    "Pending",
    "Lost",
    "Filesystem",
    "Block",
    "default",
    "standard",
    ANNOTATION_PROVISIONED_BY,
    ANNOTATION_DELETION_SECRET_NAME,
    ANNOTATION_DELETION_SECRET_NAMESPACE,
    ANNOTATION_STORAGE_PROVISIONER,
    ANNOTATION_BETA_STORAGE_PROVISIONER,
    ANNOTATION_BETA_STORAGE_CLASS,
    ANNOTATION_MIGRATED_TO,
    ANNOTATION_STORAGE_RESIZER,
    ANNOTATION_EXPANSION_NOT_REQUIRED,
];

/// csi-lib-utils' sanitising: everything outside `[A-Za-z0-9-]` becomes `-`, and a trailing `-` gets an `X` behind it.
pub fn sanitised(text: &str) -> String {
    let mut name: String = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    if name.ends_with('-') {
        name.push('X');
    }
    name
}

/// The same for the name of an object, such as a Lease. Lower-cased, where csi-lib-utils keeps capitals: a driver name may have
/// them, an object's name may not.
pub fn object_name(text: &str) -> String {
    sanitised(text).to_ascii_lowercase()
}

/// A name, in the order of its text. Eight bytes are compared at once: musl compares byte by byte, and many names begin alike. That was a
/// fifteenth of an attach's CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<T = Arc<str>>(pub T);

impl<T: AsRef<str> + Eq> PartialOrd for Name<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: AsRef<str> + Eq> Ord for Name<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        let (one, other) = (self.0.as_ref().as_bytes(), other.0.as_ref().as_bytes());
        let ((ones, _), (others, _)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
        let alike = ones.iter().zip(others).take_while(|(one, other)| one == other).count();
        match (ones.get(alike), others.get(alike)) {
            (Some(one), Some(other)) => u64::from_be_bytes(*one).cmp(&u64::from_be_bytes(*other)),
            // One of them ends within eight bytes: too few for a call.
            _ => one[8 * alike..].iter().cmp(&other[8 * alike..]),
        }
    }
}

/// The address of an object within its kind: those without a namespace come first. Clones share the text, because a cache's indexes have
/// many of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    namespace: Option<Name>,
    name: Name,
}

impl ObjectName {
    /// An object of a cluster-scoped kind.
    pub fn cluster(name: impl AsRef<str>) -> Self {
        Self::new(None, name.as_ref().into())
    }

    /// An object in a namespace.
    pub fn namespaced(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self::new(Some(namespace.as_ref().into()), name.as_ref().into())
    }

    /// An object of that name, in that namespace if there is one.
    pub(super) fn new(namespace: Option<Arc<str>>, name: Arc<str>) -> Self {
        Self { namespace: namespace.map(Name), name: Name(name) }
    }

    /// The namespace, if the kind has them.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_ref().map(|Name(namespace)| &**namespace)
    }

    /// The name without its namespace.
    pub fn name(&self) -> &str {
        &self.name.0
    }
}

/// Namespace and name: what a map by [`ObjectName`] can be asked for without making one.
pub(super) trait Address {
    fn parts(&self) -> (Option<Name<&str>>, Name<&str>);
}

impl Address for ObjectName {
    fn parts(&self) -> (Option<Name<&str>>, Name<&str>) {
        (self.namespace().map(Name), Name(self.name()))
    }
}

/// An object of a cluster-scoped kind.
impl Address for &str {
    fn parts(&self) -> (Option<Name<&str>>, Name<&str>) {
        (None, Name(self))
    }
}

impl<'a> Borrow<dyn Address + 'a> for ObjectName {
    fn borrow(&self) -> &(dyn Address + 'a) {
        self
    }
}

// As names are compared.
impl PartialEq for dyn Address + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Address + '_ {}

impl PartialOrd for dyn Address + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Address + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{namespace}/{}", self.name()),
            None => f.write_str(self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_are_in_the_order_of_their_texts(
            one in ("([ab]{0,2})?", "(aaaaaaaa)?[ab]{0,9}é?"),
            other in ("([ab]{0,2})?", "(aaaaaaaa)?[ab]{0,9}é?"),
        ) {
            let name = |(namespace, name): &(String, String)| match namespace.as_str() {
                "" => ObjectName::cluster(name),
                namespace => ObjectName::namespaced(namespace, name),
            };
            prop_assert_eq!(name(&one).cmp(&name(&other)), one.cmp(&other));
            prop_assert_eq!(Name(&one.1).cmp(&Name(&other.1)), one.1.cmp(&other.1));
        }
    }

    #[test]
    fn object_names_show_their_namespace_only_if_they_have_one() {
        assert_eq!(ObjectName::cluster("pv-1").to_string(), "pv-1");
        assert_eq!(ObjectName::namespaced("default", "secret").to_string(), "default/secret");
    }
}
