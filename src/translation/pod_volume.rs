//! A pod's in-tree volume in its CSI form: the specification of a VolumeAttachment that names no PersistentVolume (migration spec 6).
//! Pure.

use serde_json::{Value, json};

use crate::cluster::InTreeSource;

use super::csi_volume::CsiVolume;
use super::error::TranslationError;
use super::handles;
use super::volume::{aws, azure_disk, azure_file, by_id, gce, mode, vsphere};

/// A pod's volume as if it had a PersistentVolume.
#[derive(Debug, Clone, PartialEq)]
pub struct PodVolume {
    /// The name that its PersistentVolume would have. It is unique per disk.
    pub name: String,
    /// What it is.
    pub volume: CsiVolume,
}

impl PodVolume {
    /// The volume's specification as a VolumeAttachment carries it.
    pub fn to_spec(&self) -> Value {
        let mut spec = self.volume.to_spec();
        spec["volumeMode"] = json!("Filesystem");
        spec
    }
}

/// The volume that a pod of `namespace` calls `name`. An unknown namespace counts as `default`.
pub fn pod_volume_to_csi(
    source: &InTreeSource,
    name: &str,
    namespace: Option<&str>,
) -> Result<PodVolume, TranslationError> {
    const ONCE: &str = "ReadWriteOnce";
    let by_use = |read_only: bool| mode(if read_only { "ReadOnlyMany" } else { ONCE });
    let kind = source.kind();
    let volume = match source {
        InTreeSource::GcePersistentDisk(disk) => {
            CsiVolume::new(gce(disk, handles::gce("", &disk.pd_name)?), by_use(disk.read_only))
        }
        InTreeSource::AwsElasticBlockStore(disk) => CsiVolume::new(aws(disk)?, mode(ONCE)),
        InTreeSource::Cinder(volume) => CsiVolume::new(by_id(kind, volume), mode(ONCE)),
        InTreeSource::AzureDisk(disk) => {
            let caching_mode = disk.caching_mode.as_deref().filter(|mode| !mode.is_empty());
            CsiVolume::new(azure_disk(disk, caching_mode)?, mode(ONCE))
        }
        InTreeSource::AzureFile(share) => {
            let namespace = namespace.filter(|namespace| !namespace.is_empty()).unwrap_or("default");
            azure_file(share, "", name, namespace, mode("ReadWriteMany"))
        }
        InTreeSource::VsphereVolume(disk) => CsiVolume::new(vsphere(disk), mode(ONCE)),
        InTreeSource::PortworxVolume(volume) => CsiVolume::new(by_id(kind, volume), by_use(volume.read_only)),
    };
    let with_driver = |part: &str| format!("{}-{part}", volume.source.driver);
    let name = match source {
        InTreeSource::GcePersistentDisk(disk) => with_driver(&disk.pd_name),
        InTreeSource::AzureDisk(_) | InTreeSource::AzureFile(_) => volume.source.volume_handle.clone(),
        _ => with_driver(&volume.source.volume_handle),
    };
    Ok(PodVolume { name, volume })
}
