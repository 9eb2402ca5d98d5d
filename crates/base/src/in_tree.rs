//! The in-tree volume plugins that CSI drivers have taken over: their names. Pure.

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
    /// All of them.
    pub const ALL: [Self; 7] = [
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

    /// The source that this driver has taken over.
    pub fn of_driver(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.successor() == name)
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
