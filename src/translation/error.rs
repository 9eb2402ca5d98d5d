//! Why an object cannot be translated. Pure.
//!
//! The texts are the Go library's, because people search for them. Where the library's text does not say what to do, ours does.

use thiserror::Error;

/// Why an object cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TranslationError {
    /// No CSI driver has taken the volume's source over.
    #[error("could not find in-tree plugin translation logic for {0:?}")]
    NoPlugin(String),
    /// The driver has taken no in-tree plugin over.
    #[error("could not find in-tree plugin translation logic for {0}")]
    NoDriver(String),
    /// Only a CSI volume can be translated back.
    #[error("CSI persistent volume was nil")]
    NotCsi,
    /// No CSI driver has taken the class's plugin over.
    #[error("could not find in-tree storage class parameter translation logic for {0:?}")]
    NoClassPlugin(String),
    /// Handles are repaired for the drivers of the table only.
    #[error("could not find In-Tree driver name for CSI plugin {0}")]
    NoRepair(String),
    /// The volume of a PersistentVolume cannot be read.
    #[error("the CSI persistent volume is not valid: {0}")]
    Malformed(String),

    /// The zones of a regional disk are in no region, or in several.
    #[error("failed to get region from zones: {0}")]
    Regions(#[source] RegionError),
    /// An id of an EBS volume that is no id.
    #[error("failed to translate Kubernetes ID to EBS Volume ID {0}")]
    EbsId(#[source] EbsIdError),
    /// A disk that is not managed.
    #[error(
        "kind({0}) is not supported in csi migration: only disks with `kind: Managed` are, and a volume without a kind gets `Shared` from the API server"
    )]
    AzureKind(String),
    /// The Secret of an Azure share is nowhere.
    #[error(
        "could not find a secret namespace in PersistentVolumeSource or ClaimRef: set azureFile.secretNamespace, or bind the volume to a claim"
    )]
    AzureSecretNamespace,
    /// A handle of an Azure disk without the disk's name.
    #[error("could not get disk name from {handle}, correct format: {format}")]
    AzureDiskName {
        /// The handle.
        handle: String,
        /// What it should look like.
        format: &'static str,
    },
    /// A handle of an Azure share that cannot be taken apart, though a part of it is needed.
    #[error("error parsing volume id: {0:?}, should at least contain two #")]
    AzureShareHandle(String),
    /// A handle of a disk of Google's cloud without the disk's name.
    #[error("failed to get id components.Got: {0}, wanted 6 components or more. ")]
    GceHandle(usize),
    /// A driver's partition that is no number.
    #[error("failed to convert partition {partition} to integer: {cause}")]
    Partition {
        /// What the driver said.
        partition: String,
        /// Why it is no number.
        #[source]
        cause: std::num::ParseIntError,
    },
    /// The driver of vSphere did not say where the disk is.
    #[error(
        "the driver's volume attributes have no initialvolumefilepath, without which the volume has no in-tree form: use a driver that knows csimigration"
    )]
    NoVolumePath,

    /// Topology stands in a class twice.
    #[error("cannot simultaneously set allowed topologies and zone/zones parameters")]
    TopologyTwice,
    /// The Go library takes either, by chance.
    #[error("cannot set both zone and zones parameters")]
    ZoneTwice,
    /// A list of zones without a zone.
    #[error("the parameter zones names no zone")]
    NoZones,

    /// A handle that is too short to be repaired.
    #[error("volume handle has wrong number of elements; got {0}, wanted 6 or more")]
    ShortHandle(usize),
    /// A node's id that is too short to repair a handle with.
    #[error("node handle has wrong number of elements; got {0}, wanted 6 or more")]
    ShortNodeId(usize),
    /// A handle that is neither of a zone nor of a region.
    #[error("expected volume handle to have zones or regions regionality value, got: {0}")]
    Regionality(String),
    /// The node is in no region.
    #[error("failed to get region from zone {zone}: {cause}")]
    NodeRegion {
        /// The node's zone.
        zone: String,
        /// What is wrong with it.
        #[source]
        cause: RegionError,
    },
}

/// Why zones have no region (migration spec 5.5).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegionError {
    /// There is none.
    #[error("no zones specified")]
    NoZones,
    /// Not as Google names zones.
    #[error("zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {0}")]
    GceZone(String),
    /// Not as Amazon names zones.
    #[error("Unexpected zone format: {0} is not a valid AWS zone")]
    AwsZone(String),
    /// They are in several.
    #[error("multiple or no regions gotten from zones, got: {0}")]
    Several(String),
}

/// Why a text is no id of an EBS volume (migration spec 4.3).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EbsIdError {
    /// It begins as a URL and is none.
    #[error("Invalid disk name ({id}): {cause}")]
    Url {
        /// The text.
        id: String,
        /// What is wrong with it.
        cause: &'static str,
    },
    /// The URL's path is no id.
    #[error("Invalid format for AWS volume ({0})")]
    Format(String),
}
