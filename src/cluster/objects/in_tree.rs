//! In-tree volumes that CSI drivers have taken over. Of each its kind is held. What a translation reads of them is held only while
//! a role is hosted that translates, and only for the driver's own: [`Fields::MIGRATION`](super::Fields::MIGRATION). Pure.
//!
//! The fields are those of migration spec 4 and 6. A text that a volume may lack is unset then, and empty if it is there and empty:
//! that makes a difference to a translation.

use base::InTree;
use smol_str::SmolStr;

use super::received;

/// What a translation reads of an in-tree volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InTreeVolume {
    /// The volume, as its plugin knew it.
    pub source: InTreeSource,
    /// The nodes that may use it: the expressions of each required term, with all operators (migration spec 5.1).
    pub node_affinity: Box<[Box<[NodeRequirement]>]>,
}

received! {
    /// What a node's label must be.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct NodeRequirement {
        /// The label.
        pub key: SmolStr = default,
        /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
        pub operator: SmolStr = default,
        /// The values that the operator is about, in their order.
        pub values: Box<[SmolStr]> = default,
    }
}

/// A source that a CSI driver has taken over, as PersistentVolumes and pods name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InTreeSource {
    /// `gcePersistentDisk`
    GcePersistentDisk(GceDisk),
    /// `awsElasticBlockStore`
    AwsElasticBlockStore(AwsDisk),
    /// `azureDisk`
    AzureDisk(AzureDisk),
    /// `azureFile`
    AzureFile(AzureFile),
    /// `cinder`
    Cinder(VolumeById),
    /// `vsphereVolume`
    VsphereVolume(VsphereVolume),
    /// `portworxVolume`
    PortworxVolume(VolumeById),
}

received! {
    /// A disk of Google's cloud.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct GceDisk {
        /// The disk's name: `pdName`.
        pub pd_name: Box<str> = default,
        /// The file system; unset for the default one.
        pub fs_type: Option<SmolStr>,
        /// The partition that is mounted; 0 for the whole disk.
        pub partition: i32 = default,
        /// Whether it may only be read.
        pub read_only: bool = default,
    }

    /// A disk of Amazon's cloud.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct AwsDisk {
        /// The disk's id, with or without `aws://` and its zone: `volumeID`.
        #[serde(rename = "volumeID")]
        pub volume_id: Box<str> = default,
        /// The file system; unset for the default one.
        pub fs_type: Option<SmolStr>,
        /// The partition that is mounted; 0 for the whole disk.
        pub partition: i32 = default,
        /// Whether it may only be read.
        pub read_only: bool = default,
    }

    /// A disk of Microsoft's cloud.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct AzureDisk {
        /// The disk's address: `diskURI`.
        #[serde(rename = "diskURI")]
        pub disk_uri: Box<str> = default,
        /// `Shared`, `Dedicated` or `Managed`. Only the last can be translated.
        pub kind: Option<SmolStr>,
        /// How the host caches it.
        pub caching_mode: Option<SmolStr>,
        /// The file system.
        pub fs_type: Option<SmolStr>,
        /// Whether it may only be read.
        pub read_only: Option<bool>,
    }

    /// A share of Microsoft's cloud.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct AzureFile {
        /// The share's name.
        pub share_name: Box<str> = default,
        /// The name of the Secret with the storage account's key. The account's name is part of it.
        pub secret_name: Box<str> = default,
        /// Its namespace. A pod's volume never has one.
        pub secret_namespace: Option<Box<str>>,
        /// Whether it may only be read.
        pub read_only: bool = default,
    }

    /// A volume of `OpenStack` or Portworx.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct VolumeById {
        /// The volume's id: `volumeID`.
        #[serde(rename = "volumeID")]
        pub volume_id: Box<str> = default,
        /// The file system; unset for the default one.
        pub fs_type: Option<SmolStr>,
        /// Whether it may only be read.
        pub read_only: bool = default,
    }

    /// A disk of vSphere.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct VsphereVolume {
        /// Where the disk is.
        pub volume_path: Box<str> = default,
        /// The file system; unset for the default one.
        pub fs_type: Option<SmolStr>,
        /// The name of its storage policy.
        pub storage_policy_name: Option<Box<str>>,
    }
}

impl InTreeSource {
    /// Which one it is.
    pub fn kind(&self) -> InTree {
        match self {
            Self::GcePersistentDisk(_) => InTree::GcePersistentDisk,
            Self::AwsElasticBlockStore(_) => InTree::AwsElasticBlockStore,
            Self::AzureDisk(_) => InTree::AzureDisk,
            Self::AzureFile(_) => InTree::AzureFile,
            Self::Cinder(_) => InTree::Cinder,
            Self::VsphereVolume(_) => InTree::VsphereVolume,
            Self::PortworxVolume(_) => InTree::PortworxVolume,
        }
    }
}
