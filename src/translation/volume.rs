//! An in-tree PersistentVolume in its CSI form, field by field (migration spec 4). Pure.

use crate::cluster::names::{
    ANNOTATION_AZURE_FILE_GROUP, ANNOTATION_PORTWORX_SECRET_NAME, ANNOTATION_PORTWORX_SECRET_NAMESPACE,
    LABEL_BETA_ZONE, LABEL_ZONE,
};
use crate::cluster::{
    AwsDisk, AzureDisk, AzureFile, CsiSource, GceDisk, InTree, InTreeSource, Meta, PackedMap, PersistentVolume,
    SecretRef, SmolStr, VolumeById, VsphereVolume,
};

use super::csi_volume::CsiVolume;
use super::ebs_id::ebs_id;
use super::error::TranslationError;
use super::handles;
use super::topology::{self, Terms};

/// A PersistentVolume that the driver of its plugin's successor serves, in its CSI form. The cache holds the fields that this reads
/// for that driver alone (`Fields::MIGRATION`).
pub fn volume_to_csi(volume: &PersistentVolume) -> Result<CsiVolume, TranslationError> {
    let (meta, spec) = (&volume.metadata, &volume.spec);
    let Some(in_tree) = &spec.migration else { return Err(TranslationError::NoPlugin(meta.name.to_string())) };
    let none = topology::Labels::new();
    let labels = meta.labels.as_ref().unwrap_or(&none);
    let modes = spec.access_modes.clone();
    let kind = in_tree.source.kind();
    let volume = match &in_tree.source {
        InTreeSource::GcePersistentDisk(disk) => {
            let label = |key: &str| labels.get(key).map(String::as_str).filter(|zone| !zone.is_empty());
            let zone = label(LABEL_BETA_ZONE).or_else(|| label(LABEL_ZONE)).unwrap_or_default();
            CsiVolume::new(gce(disk, handles::gce(zone, &disk.pd_name)?), attachable(&modes))
        }
        InTreeSource::AwsElasticBlockStore(disk) => CsiVolume::new(aws(disk)?, modes),
        InTreeSource::Cinder(volume) => CsiVolume::new(by_id(kind, volume), modes),
        InTreeSource::AzureDisk(disk) => CsiVolume::new(azure_disk(disk, disk.caching_mode.as_deref())?, modes),
        InTreeSource::AzureFile(share) => {
            let claim = spec.claim_ref.as_ref().map(|claim| claim.namespace.as_str());
            let namespace = share.secret_namespace.as_deref().or(claim).filter(|namespace| !namespace.is_empty());
            let namespace = namespace.ok_or(TranslationError::AzureSecretNamespace)?;
            let group = meta.annotation(ANNOTATION_AZURE_FILE_GROUP).unwrap_or_default();
            azure_file(share, group, &meta.name, namespace, modes)
        }
        InTreeSource::VsphereVolume(disk) => CsiVolume::new(vsphere(disk), modes),
        InTreeSource::PortworxVolume(volume) => with_secret(CsiVolume::new(by_id(kind, volume), modes), meta),
    };
    let terms: Terms = in_tree.node_affinity.iter().map(|term| term.to_vec()).collect();
    Ok(volume.with_affinity(topology::to_csi(kind, terms, labels)))
}

/// The access modes that Google's driver can attach. The in-tree plugin did not look at them (migration spec 4.2).
fn attachable(modes: &[SmolStr]) -> Box<[SmolStr]> {
    let has = |mode: &str| modes.iter().any(|held| held == mode);
    match modes {
        [] => Box::default(),
        _ if has("ReadOnlyMany") && !has("ReadWriteOnce") && !has("ReadWriteMany") => mode("ReadOnlyMany"),
        _ => mode("ReadWriteOnce"),
    }
}

pub(super) fn mode(mode: &'static str) -> Box<[SmolStr]> {
    [SmolStr::new_static(mode)].into()
}

fn source(kind: InTree, handle: String, fs_type: Option<&SmolStr>, read_only: bool) -> CsiSource {
    CsiSource {
        driver: SmolStr::new_static(kind.successor()),
        volume_handle: handle,
        read_only,
        fs_type: fs_type.filter(|fs_type| !fs_type.is_empty()).cloned(),
        volume_attributes: PackedMap::default(),
        controller_publish_secret_ref: None,
    }
}

pub(super) fn gce(disk: &GceDisk, handle: String) -> CsiSource {
    let partition = if disk.partition == 0 { String::new() } else { disk.partition.to_string() };
    CsiSource {
        volume_attributes: [("partition", partition)].into_iter().collect(),
        ..source(InTree::GcePersistentDisk, handle, disk.fs_type.as_ref(), disk.read_only)
    }
}

pub(super) fn aws(disk: &AwsDisk) -> Result<CsiSource, TranslationError> {
    let handle = ebs_id(&disk.volume_id).map_err(TranslationError::EbsId)?;
    Ok(CsiSource {
        volume_attributes: [("partition", disk.partition.to_string())].into_iter().collect(),
        ..source(InTree::AwsElasticBlockStore, handle, disk.fs_type.as_ref(), disk.read_only)
    })
}

/// Whether it may only be read is kept, which the Go library forgets of a Portworx volume.
pub(super) fn by_id(kind: InTree, volume: &VolumeById) -> CsiSource {
    source(kind, volume.volume_id.to_string(), volume.fs_type.as_ref(), volume.read_only)
}

/// `caching_mode`: what the attribute becomes, if it is to be there.
pub(super) fn azure_disk(disk: &AzureDisk, caching_mode: Option<&str>) -> Result<CsiSource, TranslationError> {
    const MANAGED: &str = "Managed";
    if let Some(kind) = disk.kind.as_ref().filter(|kind| !kind.eq_ignore_ascii_case(MANAGED)) {
        return Err(TranslationError::AzureKind(kind.to_string()));
    }
    let attributes = [("kind", Some(MANAGED)), ("cachingmode", caching_mode), ("fstype", disk.fs_type.as_deref())];
    let set = attributes.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let read_only = disk.read_only.unwrap_or_default();
    Ok(CsiSource {
        volume_attributes: set.collect(),
        ..source(InTree::AzureDisk, disk.disk_uri.to_string(), disk.fs_type.as_ref(), read_only)
    })
}

pub(super) fn azure_file(
    share: &AzureFile,
    group: &str,
    name: &str,
    namespace: &str,
    modes: Box<[SmolStr]>,
) -> CsiVolume {
    let handle = handles::azure_file(group, &share.secret_name, &share.share_name, name, namespace);
    let source = CsiSource {
        volume_attributes: [("sharename", &share.share_name)].into_iter().collect(),
        ..source(InTree::AzureFile, handle, None, share.read_only)
    };
    let secret = SecretRef { name: share.secret_name.to_string(), namespace: namespace.to_owned() };
    CsiVolume { node_stage_secret: Some(secret), ..CsiVolume::new(source, modes) }
}

pub(super) fn vsphere(disk: &VsphereVolume) -> CsiSource {
    let policy = disk.storage_policy_name.as_deref().filter(|policy| !policy.is_empty());
    CsiSource {
        volume_attributes: policy.map(|policy| ("storagepolicyname", policy)).into_iter().collect(),
        ..source(InTree::VsphereVolume, disk.volume_path.to_string(), disk.fs_type.as_ref(), false)
    }
}

/// One Secret for all calls, if both annotations are there (migration spec 4.5).
fn with_secret(volume: CsiVolume, meta: &Meta) -> CsiVolume {
    let annotation = |key: &str| meta.annotation(key).map(str::to_owned);
    let both = (annotation(ANNOTATION_PORTWORX_SECRET_NAME), annotation(ANNOTATION_PORTWORX_SECRET_NAMESPACE));
    let (Some(name), Some(namespace)) = both else { return volume };
    let secret = Some(SecretRef { name, namespace });
    CsiVolume {
        source: CsiSource { controller_publish_secret_ref: secret.clone().map(Box::new), ..volume.source },
        node_stage_secret: secret.clone(),
        node_publish_secret: secret.clone(),
        controller_expand_secret: secret.clone(),
        node_expand_secret: secret,
        ..volume
    }
}
