//! PersistentVolumes. A foreign driver's keeps its metadata and *whose* it is. `csi` is then `None`, so that a role that
//! does not ask refuses it instead of publishing it without its attributes. Pure.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::resize::{VolumeResize, WireSize};
use super::secret_ref::SecretRef;
use super::{BY_CLAIM, BY_HANDLE, Cached, Fields, IndexName, or_default, trim_meta, unless_empty};
use crate::cluster::meta::Meta;
use crate::cluster::names;
use crate::cluster::packed_map::PackedMap;
use smol_str::SmolStr;

/// A volume of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct PersistentVolume {
    /// Name, uid, version, finalizers, deletion, and the annotations of [`names::PERSISTENT_VOLUME_ANNOTATIONS`].
    pub metadata: Meta,
    /// What the volume is.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: VolumeSpec,
    /// `Available`, `Bound`, `Released` …; of a foreign volume unset.
    #[serde(default, rename = "status", deserialize_with = "phase")]
    pub phase: Option<SmolStr>,
}

fn phase<'de, D: Deserializer<'de>>(status: D) -> Result<Option<SmolStr>, D::Error> {
    #[derive(Deserialize)]
    struct Status {
        phase: Option<SmolStr>,
    }
    Ok(Option::<Status>::deserialize(status)?.and_then(|status| status.phase))
}

/// What a volume is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "WireVolumeSpec")]
pub struct VolumeSpec {
    /// The CSI volume; `None` for in-tree sources and for the volumes of other drivers.
    pub csi: Option<Box<CsiSource>>,
    /// Access modes as Kubernetes spells them.
    pub access_modes: Box<[SmolStr]>,
    /// Mount options, in their order.
    pub mount_options: Box<[SmolStr]>,
    /// `Filesystem`, `Block`, or unset for the former.
    pub volume_mode: Option<SmolStr>,
    /// The claim that the volume is bound to.
    pub claim_ref: Option<Box<ClaimRef>>,
    /// What becomes of the volume when its claim is gone: `Delete`, `Retain`, `Recycle`.
    pub reclaim_policy: Option<SmolStr>,
    /// The name of its class.
    pub storage_class_name: Option<SmolStr>,
    /// Where it can be reached: in each of these places.
    pub node_affinity: Box<[Reach]>,
    /// The kind of in-tree source that a CSI driver can take over, if it is one.
    pub in_tree: Option<InTree>,
    /// The CSI driver of a volume that is not ours.
    pub foreign_driver: Option<SmolStr>,
    /// Size and attributes; with [`Fields::RESIZE`] alone.
    pub resize: Option<Box<VolumeResize>>,
}

/// Nodes that a required term admits: labels, each with the values that it may have. Other operators than `In` are left out.
pub type Reach = Box<[(SmolStr, Box<[SmolStr]>)]>;

/// A CSI volume.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CsiSource {
    /// The driver's name.
    pub driver: SmolStr,
    /// The driver's id of the volume.
    pub volume_handle: String,
    /// Whether it may only be read.
    pub read_only: bool,
    /// The file system; unset for the default one.
    pub fs_type: Option<SmolStr>,
    /// What the driver wants to be told with each call.
    pub volume_attributes: PackedMap,
    /// The Secret for publish and unpublish calls.
    pub controller_publish_secret_ref: Option<Box<SecretRef>>,
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
    const ALL: [Self; 7] = [
        Self::GcePersistentDisk,
        Self::AwsElasticBlockStore,
        Self::AzureDisk,
        Self::AzureFile,
        Self::Cinder,
        Self::VsphereVolume,
        Self::PortworxVolume,
    ];

    /// The source whose plugin has this name, as the provisioner of a class.
    pub fn of_plugin(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.plugin() == name)
    }

    /// The plugin's name, as the provisioner of a class.
    pub fn plugin(self) -> &'static str {
        match self {
            Self::GcePersistentDisk => "kubernetes.io/gce-pd",
            Self::AwsElasticBlockStore => "kubernetes.io/aws-ebs",
            Self::AzureDisk => "kubernetes.io/azure-disk",
            Self::AzureFile => "kubernetes.io/azure-file",
            Self::Cinder => "kubernetes.io/cinder",
            Self::VsphereVolume => "kubernetes.io/vsphere-volume",
            Self::PortworxVolume => "kubernetes.io/portworx-volume",
        }
    }

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
    csi: Option<WireCsi>,
    #[serde(default, deserialize_with = "or_default")]
    capacity: WireSize,
    #[serde(default, deserialize_with = "unless_empty")]
    volume_attributes_class_name: Option<SmolStr>,
    #[serde(default, deserialize_with = "or_default")]
    access_modes: Box<[SmolStr]>,
    #[serde(default, deserialize_with = "or_default")]
    mount_options: Box<[SmolStr]>,
    volume_mode: Option<SmolStr>,
    claim_ref: Option<Box<ClaimRef>>,
    #[serde(rename = "persistentVolumeReclaimPolicy")]
    reclaim_policy: Option<SmolStr>,
    storage_class_name: Option<SmolStr>,
    node_affinity: Option<WireAffinity>,
    gce_persistent_disk: Option<IgnoredAny>,
    aws_elastic_block_store: Option<IgnoredAny>,
    azure_disk: Option<IgnoredAny>,
    azure_file: Option<IgnoredAny>,
    cinder: Option<IgnoredAny>,
    vsphere_volume: Option<IgnoredAny>,
    portworx_volume: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCsi {
    driver: SmolStr,
    volume_handle: String,
    #[serde(default, deserialize_with = "or_default")]
    read_only: bool,
    fs_type: Option<SmolStr>,
    #[serde(default, deserialize_with = "or_default")]
    volume_attributes: PackedMap,
    controller_publish_secret_ref: Option<Box<SecretRef>>,
    controller_expand_secret_ref: Option<SecretRef>,
}

impl WireCsi {
    fn parts(self) -> (Box<CsiSource>, Option<SecretRef>) {
        let source = CsiSource {
            driver: self.driver,
            volume_handle: self.volume_handle,
            read_only: self.read_only,
            fs_type: self.fs_type,
            volume_attributes: self.volume_attributes,
            controller_publish_secret_ref: self.controller_publish_secret_ref,
        };
        (Box::new(source), self.controller_expand_secret_ref)
    }
}

#[derive(Deserialize)]
struct WireAffinity {
    required: Option<WireSelector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSelector {
    #[serde(default, deserialize_with = "or_default")]
    node_selector_terms: Vec<WireTerm>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTerm {
    #[serde(default, deserialize_with = "or_default")]
    match_expressions: Vec<WireExpression>,
}

#[derive(Deserialize)]
struct WireExpression {
    key: SmolStr,
    operator: SmolStr,
    #[serde(default, deserialize_with = "or_default")]
    values: Box<[SmolStr]>,
}

impl WireAffinity {
    fn terms(self) -> Box<[Reach]> {
        let of = |term: WireTerm| -> Reach {
            let inside = term.match_expressions.into_iter().filter(|expression| expression.operator == "In");
            inside.map(|expression| (expression.key, expression.values)).collect()
        };
        self.required.map(|selector| selector.node_selector_terms.into_iter().map(of).collect()).unwrap_or_default()
    }
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
        let (csi, expand_secret) = wire.csi.map(WireCsi::parts).unzip();
        let resize = VolumeResize {
            capacity: wire.capacity.storage,
            attributes_class: wire.volume_attributes_class_name,
            expand_secret: expand_secret.flatten(),
        };
        Self {
            csi,
            access_modes: wire.access_modes,
            mount_options: wire.mount_options,
            volume_mode: wire.volume_mode,
            claim_ref: wire.claim_ref,
            reclaim_policy: wire.reclaim_policy,
            storage_class_name: wire.storage_class_name,
            node_affinity: wire.node_affinity.map(WireAffinity::terms).unwrap_or_default(),
            in_tree: in_tree.into_iter().find_map(|(source, kind)| source.map(|_| kind)),
            foreign_driver: None,
            resize: Some(Box::new(resize)),
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
        self.metadata.annotation(names::ANNOTATION_MIGRATED_TO)
    }
}

impl Cached for PersistentVolume {
    const KIND: &'static str = "PersistentVolume";

    fn trim(&mut self, driver: &str, fields: Fields) {
        let is_resized = fields.contains(Fields::RESIZE);
        let more = if is_resized { names::RESIZED_VOLUME_ANNOTATIONS } else { &[] };
        let wanted: Vec<&str> = names::PERSISTENT_VOLUME_ANNOTATIONS.iter().chain(more).copied().collect();
        trim_meta(&mut self.metadata, &wanted);
        if !is_resized {
            self.spec.resize = None;
        }
        let foreign = self.spec.csi.as_ref().filter(|csi| csi.driver != driver).map(|csi| csi.driver.clone());
        if let Some(foreign) = foreign {
            self.phase = None;
            self.spec = VolumeSpec { foreign_driver: Some(foreign), ..VolumeSpec::default() };
        }
    }

    fn index(&self, add: &mut dyn FnMut(IndexName, &str)) {
        if let Some(uid) = self.spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_ref()) {
            add(BY_CLAIM, uid);
        }
        if let Some(csi) = &self.spec.csi {
            add(BY_HANDLE, &csi.volume_handle);
        }
    }
}
