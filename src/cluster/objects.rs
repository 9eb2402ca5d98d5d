//! The parts of Kubernetes objects that some role reads, and nothing else.
//!
//! k8s-openapi's full types cost 7–17 kB an object. These cost what the driver's own volumes need, and a few hundred
//! bytes for what belongs to others:
//!
//! - Any object: no managed fields, labels, owners; only the annotations that somebody reads. An annotation map that was
//!   there stays there, if empty, because a patch must know whether it exists.
//! - A foreign VolumeAttachment: its name, uid, version, deletion, attacher and volume. It must be known, because it
//!   keeps its volume from being released.
//! - A foreign driver's PersistentVolume: its metadata and *whose* it is. `csi` is then `None`, so that a role that does
//!   not ask refuses it instead of publishing it without its attributes.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};

use super::{meta, names};

/// A look-up of objects by something that they carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexName(pub &'static str);

/// VolumeAttachments by the name of their PersistentVolume.
pub const BY_VOLUME: IndexName = IndexName("by-volume");
/// VolumeAttachments by the name of their node.
pub const BY_NODE: IndexName = IndexName("by-node");

/// A kind that can be held in a cache.
pub trait Cached:
    Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + PartialEq + Send + Sync + 'static
{
    /// The kind's name on metrics and on the status page.
    const KIND: &'static str;

    /// Drops what no role reads, seen from `driver`.
    fn trim(&mut self, driver: &str);

    /// Tells every look-up under which the object can be found.
    fn index(&self, add: &mut dyn FnMut(IndexName, String));
}

fn trim_meta(meta: &mut ObjectMeta, annotations: &[&str]) {
    meta.managed_fields = None;
    meta.labels = None;
    meta.owner_references = None;
    meta.generate_name = None;
    meta.generation = None;
    meta.self_link = None;
    meta.deletion_grace_period_seconds = None;
    if let Some(held) = &mut meta.annotations {
        held.retain(|key, _| annotations.contains(&key.as_str()));
    }
}

/// A member that may be missing or null. Go writes an empty list that has no `omitempty` as null: the `CSINode` of a node
/// without drivers says `drivers: null`, and one such node must not stop the cache of them all.
fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// The wish that a volume be attached to a node.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::storage::v1::VolumeAttachment)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttachment {
    /// Name, uid, version, finalizers, deletion, and the node id annotation.
    #[serde(deserialize_with = "meta::lean")]
    pub metadata: ObjectMeta,
    /// What is wished.
    pub spec: VolumeAttachmentSpec,
    /// What was done; empty for a foreign attachment.
    #[serde(default, deserialize_with = "or_default")]
    pub status: VolumeAttachmentStatus,
}

/// Which volume, which node, whose job.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttachmentSpec {
    /// The name of the CSI driver that must act.
    pub attacher: String,
    /// The Kubernetes node; empty for a foreign attachment.
    #[serde(default, deserialize_with = "or_default")]
    pub node_name: String,
    /// The volume.
    #[serde(default, deserialize_with = "or_default")]
    pub source: VolumeAttachmentSource,
}

/// The volume: exactly one of the two.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttachmentSource {
    /// The name of a PersistentVolume.
    pub persistent_volume_name: Option<String>,
    /// A volume that has no PersistentVolume: a pod's inline volume, translated by the attach/detach controller.
    pub inline_volume_spec: Option<Box<VolumeSpec>>,
}

/// What was done about an attachment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttachmentStatus {
    /// Whether the volume is attached.
    #[serde(default, deserialize_with = "or_default")]
    pub attached: bool,
    /// The driver's answer to the publish call, for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment_metadata: Option<BTreeMap<String, String>>,
    /// Why the last attempt to attach failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach_error: Option<Box<VolumeError>>,
    /// Why the last attempt to detach failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detach_error: Option<Box<VolumeError>>,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeError {
    /// The error's text, at most 1024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// The gRPC status code, if the driver answered with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<i32>,
}

impl Cached for VolumeAttachment {
    const KIND: &'static str = "VolumeAttachment";

    fn trim(&mut self, driver: &str) {
        trim_meta(&mut self.metadata, names::VOLUME_ATTACHMENT_ANNOTATIONS);
        if self.spec.attacher != driver {
            self.metadata.annotations = None;
            self.metadata.finalizers = None;
            self.metadata.creation_timestamp = None;
            self.spec.node_name = String::new();
            self.spec.source.inline_volume_spec = None;
            self.status = VolumeAttachmentStatus::default();
        }
    }

    fn index(&self, add: &mut dyn FnMut(IndexName, String)) {
        if let Some(volume) = &self.spec.source.persistent_volume_name {
            add(BY_VOLUME, volume.clone());
        }
        if !self.spec.node_name.is_empty() {
            add(BY_NODE, self.spec.node_name.clone());
        }
    }
}

/// A volume of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::PersistentVolume)]
pub struct PersistentVolume {
    /// Name, uid, version, finalizers, deletion, and the migration annotation.
    #[serde(deserialize_with = "meta::lean")]
    pub metadata: ObjectMeta,
    /// What the volume is.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: VolumeSpec,
}

/// What a volume is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "WireVolumeSpec")]
pub struct VolumeSpec {
    /// The CSI volume; `None` for in-tree sources and for the volumes of other drivers.
    pub csi: Option<Box<CsiSource>>,
    /// Access modes as Kubernetes spells them.
    pub access_modes: Vec<String>,
    /// Mount options, in their order.
    pub mount_options: Vec<String>,
    /// `Filesystem`, `Block`, or unset for the former.
    pub volume_mode: Option<String>,
    /// The claim that the volume is bound to.
    pub claim_ref: Option<Box<ClaimRef>>,
    /// The kind of in-tree source that a CSI driver can take over, if it is one.
    pub in_tree: Option<InTree>,
    /// The CSI driver of a volume that is not ours.
    pub foreign_driver: Option<Box<str>>,
}

/// A CSI volume.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CsiSource {
    /// The driver's name.
    pub driver: String,
    /// The driver's id of the volume.
    pub volume_handle: String,
    /// Whether it may only be read.
    #[serde(default, deserialize_with = "or_default")]
    pub read_only: bool,
    /// The file system; unset for the default one.
    pub fs_type: Option<String>,
    /// What the driver wants to be told with each call.
    #[serde(default, deserialize_with = "or_default")]
    pub volume_attributes: BTreeMap<String, String>,
    /// The Secret for publish and unpublish calls.
    pub controller_publish_secret_ref: Option<Box<SecretRef>>,
}

/// Where a Secret is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct SecretRef {
    /// Its name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// Its namespace.
    #[serde(default, deserialize_with = "or_default")]
    pub namespace: String,
}

/// Which claim a volume is bound to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ClaimRef {
    /// Its namespace.
    #[serde(default, deserialize_with = "or_default")]
    pub namespace: String,
    /// Its name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// Its uid, once bound.
    pub uid: Option<String>,
}

/// The in-tree sources that CSI drivers have taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InTree {
    /// `gcePersistentDisk`
    GcePersistentDisk,
    /// `awsElasticBlockStore`
    AwsElasticBlockStore,
    /// `azureDisk`
    AzureDisk,
    /// `azureFile`
    AzureFile,
    /// `cinder`
    Cinder,
    /// `vsphereVolume`
    VsphereVolume,
    /// `portworxVolume`
    PortworxVolume,
}

impl InTree {
    /// The source's field in a volume's specification.
    pub fn field(self) -> &'static str {
        match self {
            Self::GcePersistentDisk => "gcePersistentDisk",
            Self::AwsElasticBlockStore => "awsElasticBlockStore",
            Self::AzureDisk => "azureDisk",
            Self::AzureFile => "azureFile",
            Self::Cinder => "cinder",
            Self::VsphereVolume => "vsphereVolume",
            Self::PortworxVolume => "portworxVolume",
        }
    }

    /// The driver that took the source over.
    pub fn successor(self) -> &'static str {
        match self {
            Self::GcePersistentDisk => "pd.csi.storage.gke.io",
            Self::AwsElasticBlockStore => "ebs.csi.aws.com",
            Self::AzureDisk => "disk.csi.azure.com",
            Self::AzureFile => "file.csi.azure.com",
            Self::Cinder => "cinder.csi.openstack.org",
            Self::VsphereVolume => "csi.vsphere.vmware.com",
            Self::PortworxVolume => "pxd.portworx.com",
        }
    }
}

/// The specification as it is sent. Of an in-tree source only its presence matters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireVolumeSpec {
    csi: Option<Box<CsiSource>>,
    #[serde(default, deserialize_with = "or_default")]
    access_modes: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    mount_options: Vec<String>,
    volume_mode: Option<String>,
    claim_ref: Option<Box<ClaimRef>>,
    gce_persistent_disk: Option<IgnoredAny>,
    aws_elastic_block_store: Option<IgnoredAny>,
    azure_disk: Option<IgnoredAny>,
    azure_file: Option<IgnoredAny>,
    cinder: Option<IgnoredAny>,
    vsphere_volume: Option<IgnoredAny>,
    portworx_volume: Option<IgnoredAny>,
}

impl From<WireVolumeSpec> for VolumeSpec {
    fn from(wire: WireVolumeSpec) -> Self {
        let in_tree = [
            (wire.gce_persistent_disk, InTree::GcePersistentDisk),
            (wire.aws_elastic_block_store, InTree::AwsElasticBlockStore),
            (wire.azure_disk, InTree::AzureDisk),
            (wire.azure_file, InTree::AzureFile),
            (wire.cinder, InTree::Cinder),
            (wire.vsphere_volume, InTree::VsphereVolume),
            (wire.portworx_volume, InTree::PortworxVolume),
        ];
        Self {
            csi: wire.csi,
            access_modes: wire.access_modes,
            mount_options: wire.mount_options,
            volume_mode: wire.volume_mode,
            claim_ref: wire.claim_ref,
            in_tree: in_tree.into_iter().find_map(|(source, kind)| source.map(|_| kind)),
            foreign_driver: None,
        }
    }
}

impl VolumeSpec {
    /// Whether the volume is a raw device.
    pub fn is_block(&self) -> bool {
        self.volume_mode.as_deref() == Some("Block")
    }
}

impl PersistentVolume {
    /// The CSI driver that has taken over this in-tree volume.
    pub fn migrated_to(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(names::ANNOTATION_MIGRATED_TO).map(String::as_str)
    }
}

impl Cached for PersistentVolume {
    const KIND: &'static str = "PersistentVolume";

    fn trim(&mut self, driver: &str) {
        trim_meta(&mut self.metadata, names::PERSISTENT_VOLUME_ANNOTATIONS);
        let foreign = self.spec.csi.as_ref().filter(|csi| csi.driver != driver).map(|csi| csi.driver.clone());
        if let Some(foreign) = foreign {
            self.spec = VolumeSpec { foreign_driver: Some(foreign.into_boxed_str()), ..VolumeSpec::default() };
        }
    }

    fn index(&self, _add: &mut dyn FnMut(IndexName, String)) {}
}

/// Which CSI drivers run on a node, and how they call it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::storage::v1::CSINode)]
pub struct CsiNode {
    /// Name, uid and version.
    #[serde(deserialize_with = "meta::lean")]
    pub metadata: ObjectMeta,
    /// The drivers.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: CsiNodeSpec,
}

/// The drivers of a node; in a cache only our own.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct CsiNodeSpec {
    /// One entry per driver.
    #[serde(default, deserialize_with = "or_default")]
    pub drivers: Vec<CsiNodeDriver>,
}

/// A driver on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct CsiNodeDriver {
    /// The driver's name.
    pub name: String,
    /// The driver's id of the node.
    #[serde(rename = "nodeID")]
    pub node_id: String,
}

impl CsiNode {
    /// What `driver` calls this node, if it runs there.
    pub fn node_id(&self, driver: &str) -> Option<&str> {
        self.spec.drivers.iter().find(|entry| entry.name == driver).map(|entry| entry.node_id.as_str())
    }
}

impl Cached for CsiNode {
    const KIND: &'static str = "CSINode";

    fn trim(&mut self, driver: &str) {
        trim_meta(&mut self.metadata, &[]);
        self.metadata.annotations = None;
        self.metadata.creation_timestamp = None;
        self.spec.drivers.retain(|entry| entry.name == driver);
        self.spec.drivers.shrink_to_fit();
    }

    fn index(&self, _add: &mut dyn FnMut(IndexName, String)) {}
}
