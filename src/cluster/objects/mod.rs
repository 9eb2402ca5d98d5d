//! The parts of Kubernetes objects that some role reads, and nothing else. Pure.
//!
//! k8s-openapi's full types cost 7–17 kB an object. These cost what the driver's own volumes need, and a few hundred
//! bytes for what belongs to others. So any object loses its managed fields, its labels and owners (but where a role reads
//! them), and the annotations that nobody reads. An annotation map that was there stays there, if empty, because a patch
//! must know whether it exists. What each kind keeps of a foreign object is said in its file, and what it keeps only
//! while a role is hosted that reads it, in `fields.rs`.
//!
//! What stays of a foreign object is read seldom, and each of it by somebody. So a cache holds it as bytes, and gives it out as it was
//! ([`Cached::packed`]):
//!
//! | of a foreign | who reads what of it |
//! |---|---|
//! | PersistentVolume | the attacher and the health monitor by the name that an attachment or a claim has: that it is another's, and whose; the attacher whether a finalizer of ours is on it; the provisioner whether a name is free, and who made the volume; clones by the API |
//! | `PersistentVolumeClaim` | the provisioner as a source: uid, size, mode, volume, phase, finalizers; the resizer and the health monitor, if its volume is ours after all: sizes, class, health |
//! | VolumeAttachment | attacher and provisioner by its volume: that it is there, so that a volume that is attached by any driver is neither released nor deleted |
//! | `VolumeSnapshotContent` | a restore by the name that a snapshot has: that it is another's |
//!
//! Dropping them altogether would turn "there is none" into "there is none, or it is another's" for each of these, and each of them acts
//! on the first: it takes a name, releases a volume, or deletes one.

mod attachment;
mod capacity;
mod claim;
mod class;
mod config_map;
mod content;
mod driver;
mod event;
mod fields;
mod grant;
mod group;
mod health;
mod id;
mod in_tree;
mod lease;
mod members;
mod node;
mod node_state;
mod pod;
mod resize;
mod secret_ref;
mod snapshot;
mod volume;

use std::borrow::Cow;
use std::fmt::Debug;

use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::PartialObjectMeta;
use serde::de::DeserializeOwned;

use super::managers::Managers;
use super::meta::Meta;
use super::names::ObjectName;
use super::packing::Packed;
use members::{quantity, received, unless_empty};

pub use attachment::{
    VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec, VolumeAttachmentStatus, VolumeError,
};
pub use capacity::CsiStorageCapacity;
pub use claim::{ClaimSpec, ClaimStatus, DataSource, PersistentVolumeClaim, source_key};
pub use class::{
    StorageClass, TopologyExpression, TopologySelectorTerm, VolumeAttributesClass, VolumeGroupSnapshotClass,
    VolumeSnapshotClass,
};
pub use config_map::{ConfigMap, ConfigMapMeta};
pub use content::{ContentStatus, SnapshotError, VolumeSnapshotContent};
pub use driver::{CsiDriver, CsiDriverSpec};
pub use event::ToldEvent;
pub use fields::Fields;
pub use grant::{GrantFrom, GrantTo, ReferenceGrant};
pub use group::{GroupMember, GroupSource, GroupStatus, MemberList, VolumeGroupSnapshotContent};
pub use health::{ClaimHealth, HealthCondition};
pub use id::{IdKind, UNSPECIFIED};
pub use in_tree::{
    AwsDisk, AzureDisk, AzureFile, GceDisk, InTreeSource, InTreeVolume, NodeRequirement, VolumeById, VsphereVolume,
};
pub use lease::{Lease, LeaseSpec};
pub use node::{CsiNode, CsiNodeDriver, CsiNodeSpec, Node};
pub use node_state::{AttachedVolume, NodeReady, NodeState};
pub use pod::{Pod, PodAttach};
pub use resize::{ClaimCondition, ClaimResize, ModifyStatus, VolumeResize};
pub use secret_ref::SecretRef;
pub use snapshot::{ObjectReference, VolumeSnapshot, VolumeSnapshotStatus};
pub use volume::{ClaimRef, CsiSource, PersistentVolume, Reach, VolumeSpec};

/// A look-up of objects by something that they carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexName(pub &'static str);

/// VolumeAttachments by the name of their PersistentVolume.
pub const BY_VOLUME: IndexName = IndexName("by-volume");
/// VolumeAttachments, and pods that have not ended, by the name of their node.
pub const BY_NODE: IndexName = IndexName("by-node");
/// PersistentVolumes by the uid of their claim.
pub const BY_CLAIM: IndexName = IndexName("by-claim");
/// PersistentVolumes of our driver by its id of the volume, contents of snapshots by its id of the snapshot: by [`IdKind::key`].
pub const BY_HANDLE: IndexName = IndexName("by-handle");
/// PersistentVolumes of in-tree plugins, with what a translation reads, by the CSI driver that has taken over.
pub const BY_SUCCESSOR: IndexName = IndexName("by-successor");
/// Claims whose volume is not made yet by what it is to be made from: [`source_key`].
pub const BY_SOURCE: IndexName = IndexName("by-source");
/// Claims without a volume, and contents of snapshots, by the name of their class.
pub const BY_CLASS: IndexName = IndexName("by-class");
/// Claims with a volume by the attributes classes that they ask for and are being changed to; with [`Fields::RESIZE`] only.
pub const BY_ATTRIBUTES_CLASS: IndexName = IndexName("by-attributes-class");
/// Pods that have not ended by the names of the claims that they use.
pub const BY_POD_CLAIM: IndexName = IndexName("by-pod-claim");
/// Claims without a volume by the node that the scheduler chose.
pub const BY_SELECTED_NODE: IndexName = IndexName("by-selected-node");

/// What an object of the API is read into.
pub trait Object: DeserializeOwned + 'static {
    /// Where the API has such objects: the URL is made of it.
    type Kind: Resource<DynamicType = ()>;

    /// Who it is.
    fn meta(&self) -> &Meta;
}

impl ObjectName {
    /// The namespace and the name that `object` carries. The name is empty if it has none, which no server sends.
    pub fn of(object: &impl Object) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.clone(), meta.name.clone())
    }
}

/// The claim that an object belongs to, or the object that knows more of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimLink {
    /// The claim itself.
    Claim(ObjectName),
    /// The `PersistentVolume` with this name.
    Volume(String),
    /// The `PersistentVolume` with this key in [`BY_HANDLE`].
    Handle(String),
    /// The `VolumeSnapshotContent` with this name.
    Content(String),
}

/// A kind that can be held in a cache.
pub trait Cached: Object + Clone + Debug + PartialEq + Send + Sync {
    /// The kind's name on metrics and on the status page.
    const KIND: &'static str;

    /// Whether a cluster may lack the kind, or not let us read it: then there is none, and it is looked for again now and
    /// then.
    const OPTIONAL: bool = false;

    /// The versions that the kind can be read in, the best first: the first that the server has counts. Empty: that of its URL alone.
    const VERSIONS: &'static [&'static str] = &[];

    /// Drops what no role reads, seen from `driver`, and the groups of fields that are not among `fields`.
    fn trim(&mut self, driver: &str, fields: Fields);

    /// The object as bytes if it is another driver's and no role has work with it. The cache holds it so, and gives it to whoever asks as
    /// it was. A walk over the objects that may be work leaves it out ([`Cache::own`](super::Cache::own)), so what a role may have to
    /// change by its own decision is never packed.
    fn packed(&self, _driver: &str) -> Option<Packed> {
        None
    }

    /// The object of these bytes.
    fn opened(_packed: &Packed) -> Option<Self> {
        None
    }

    /// Where it is, or how far, in a few words for the status page. `None`: what is kept of it does not say.
    fn whereabouts(&self) -> Option<String> {
        None
    }

    /// Whose it is, or through which object that can be learnt. A search finds it by its claim.
    fn claim_link(&self) -> Option<ClaimLink> {
        None
    }

    /// What the driver calls it, as rows of the status page name it.
    fn handle(&self) -> Option<&str> {
        None
    }

    /// Why it fails, if the object says so.
    fn trouble(&self) -> Option<&str> {
        None
    }

    /// Tells every look-up under which the object can be found.
    fn index(&self, add: &mut dyn FnMut(IndexName, &str));
}

/// Drops what no role reads of any kind. Labels, owners and managers that a role does read are put back by the kind.
fn trim_meta(meta: &mut Meta, annotations: &[&str]) {
    trim_meta_but(meta, |key| annotations.contains(&key));
}

/// The same but for the annotations that are wanted.
fn trim_meta_but(meta: &mut Meta, is_wanted: impl Fn(&str) -> bool) {
    trim_unread(meta);
    if let Some(held) = &mut meta.annotations {
        held.retain(is_wanted);
    }
}

fn trim_unread(meta: &mut Meta) {
    meta.labels = None;
    meta.owner_references = None;
    meta.managers = Managers::default();
}

/// Says which kind of k8s-openapi a type is read from.
macro_rules! object {
    ($type:ty, $kind:ty) => {
        impl Object for $type {
            type Kind = $kind;

            fn meta(&self) -> &Meta {
                &self.metadata
            }
        }
    };
}

object!(VolumeAttachment, storage::VolumeAttachment);
object!(PersistentVolume, core::PersistentVolume);
object!(PersistentVolumeClaim, core::PersistentVolumeClaim);
object!(StorageClass, storage::StorageClass);
object!(VolumeAttributesClass, storage::VolumeAttributesClass);
object!(CsiNode, storage::CSINode);
object!(CsiStorageCapacity, storage::CSIStorageCapacity);
object!(CsiDriver, storage::CSIDriver);
// The server is asked for the metadata alone, because who reads more has `NodeState`.
object!(Node, PartialObjectMeta<core::Node>);
object!(Pod, core::Pod);
object!(NodeState, core::Node);
object!(Lease, coordination::Lease);
object!(ToldEvent, core::Event);
object!(ConfigMap, core::ConfigMap);
object!(ConfigMapMeta, core::ConfigMap);
object!(VolumeSnapshot, kinds::VolumeSnapshot);
object!(VolumeSnapshotContent, kinds::VolumeSnapshotContent);
object!(VolumeSnapshotClass, kinds::VolumeSnapshotClass);
object!(VolumeGroupSnapshotContent, kinds::VolumeGroupSnapshotContent);
object!(VolumeGroupSnapshotClass, kinds::VolumeGroupSnapshotClass);
object!(ReferenceGrant, kinds::ReferenceGrant);

/// Kinds of CRDs, where no type of k8s-openapi says what the URL is made of. There is nothing of these types.
mod kinds {
    use super::{Cow, ObjectMeta, Resource};

    const GROUPS: &str = "groupsnapshot.storage.k8s.io";

    macro_rules! kind {
        ($kind:ident, $scope:ident, $group:expr, $version:literal, $plural:literal) => {
            pub enum $kind {}

            impl Resource for $kind {
                type DynamicType = ();
                type Scope = kube::core::$scope;

                fn kind((): &()) -> Cow<'_, str> {
                    stringify!($kind).into()
                }

                fn group((): &()) -> Cow<'_, str> {
                    $group.into()
                }

                fn version((): &()) -> Cow<'_, str> {
                    $version.into()
                }

                fn plural((): &()) -> Cow<'_, str> {
                    $plural.into()
                }

                fn meta(&self) -> &ObjectMeta {
                    match *self {}
                }

                fn meta_mut(&mut self) -> &mut ObjectMeta {
                    match *self {}
                }
            }
        };
    }

    kind!(VolumeSnapshot, NamespaceResourceScope, "snapshot.storage.k8s.io", "v1", "volumesnapshots");
    kind!(VolumeSnapshotContent, ClusterResourceScope, "snapshot.storage.k8s.io", "v1", "volumesnapshotcontents");
    kind!(VolumeSnapshotClass, ClusterResourceScope, "snapshot.storage.k8s.io", "v1", "volumesnapshotclasses");
    kind!(VolumeGroupSnapshotContent, ClusterResourceScope, GROUPS, "v1", "volumegroupsnapshotcontents");
    kind!(VolumeGroupSnapshotClass, ClusterResourceScope, GROUPS, "v1", "volumegroupsnapshotclasses");
    kind!(ReferenceGrant, NamespaceResourceScope, "gateway.networking.k8s.io", "v1beta1", "referencegrants");
}
