//! PersistentVolumes. A foreign driver's keeps its metadata and *whose* it is. `csi` is then `None`, so that a role that
//! does not ask refuses it instead of publishing it without its attributes. Pure.

use base::InTree;
use serde::Deserialize;

use super::in_tree::{
    AwsDisk, AzureDisk, AzureFile, GceDisk, InTreeSource, InTreeVolume, NodeRequirement, VolumeById, VsphereVolume,
};
use super::resize::{VolumeResize, WireSize};
use super::secret_ref::SecretRef;
use super::{
    BY_CLAIM, BY_HANDLE, BY_SUCCESSOR, Cached, ClaimLink, Fields, IdKind, IndexName, received, trim_meta_but,
    unless_empty,
};
use crate::cluster::meta::Meta;
use crate::cluster::moment::Moment;
use crate::cluster::names::{self, ObjectName};
use crate::cluster::packed_map::PackedMap;
use crate::cluster::packing::{Malformed, Pack, Packed, Reader, Writer};
use smol_str::SmolStr;

/// A volume of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "WireVolume")]
pub struct PersistentVolume {
    /// Name, uid, version, finalizers, deletion, and the annotations of [`names::PERSISTENT_VOLUME_ANNOTATIONS`].
    pub metadata: Meta,
    /// What the volume is.
    pub spec: VolumeSpec,
    /// `Available`, `Bound`, `Released` …; of a foreign volume unset.
    pub phase: Option<SmolStr>,
    /// Since when it is in that phase, as the API says. Servers before Kubernetes 1.29 do not say it.
    pub phase_since: Option<Moment>,
}

received! {
    /// The object as it is sent.
    struct WireVolume {
        metadata: Meta,
        spec: VolumeSpec = default,
        status: WireVolumeStatus = default,
    }

    #[derive(Default)]
    struct WireVolumeStatus {
        phase: Option<SmolStr>,
        last_phase_transition_time: Option<Moment>,
    }
}

impl From<WireVolume> for PersistentVolume {
    fn from(wire: WireVolume) -> Self {
        let WireVolumeStatus { phase, last_phase_transition_time: phase_since } = wire.status;
        Self { metadata: wire.metadata, spec: wire.spec, phase, phase_since }
    }
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
    /// Where it can be reached: in each of these places. Empty: everywhere.
    pub node_affinity: Box<[Reach]>,
    /// The kind of in-tree source that a CSI driver can take over, if it is one.
    pub in_tree: Option<InTree>,
    /// The CSI driver of a volume that is not ours.
    pub foreign_driver: Option<SmolStr>,
    /// That driver's id of the volume; with [`Fields::ATTACH`] alone.
    pub foreign_handle: Option<Box<str>>,
    /// Size and attributes; with [`Fields::RESIZE`] alone.
    pub resize: Option<Box<VolumeResize>>,
    /// What a translation of the in-tree volume reads; with [`Fields::MIGRATION`] alone, and only if our driver is its successor.
    pub migration: Option<Box<InTreeVolume>>,
}

received! {
    /// Nodes that a required term admits: those that fulfil all of its requirements. None if it has no requirement.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Reach {
        /// What the node's labels must be.
        pub match_expressions: Box<[NodeRequirement]> = default,
        /// What the node's fields must be. There is one: `metadata.name`.
        pub match_fields: Box<[NodeRequirement]> = default,
    }
}

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

received! {
    /// Which claim a volume is bound to.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct ClaimRef {
        /// Its namespace.
        pub namespace: String = default,
        /// Its name.
        pub name: String = default,
        /// Its uid, once bound.
        pub uid: Option<String>,
    }

    /// The specification as it is sent.
    struct WireVolumeSpec {
        csi: Option<WireCsi>,
        capacity: WireSize = default,
        #[serde(default, deserialize_with = "unless_empty")]
        volume_attributes_class_name: Option<SmolStr>,
        access_modes: Box<[SmolStr]> = default,
        mount_options: Box<[SmolStr]> = default,
        volume_mode: Option<SmolStr>,
        claim_ref: Option<Box<ClaimRef>>,
        #[serde(rename = "persistentVolumeReclaimPolicy")]
        reclaim_policy: Option<SmolStr>,
        storage_class_name: Option<SmolStr>,
        node_affinity: Option<WireAffinity>,
        gce_persistent_disk: Option<GceDisk>,
        aws_elastic_block_store: Option<AwsDisk>,
        azure_disk: Option<AzureDisk>,
        azure_file: Option<AzureFile>,
        cinder: Option<VolumeById>,
        vsphere_volume: Option<VsphereVolume>,
        portworx_volume: Option<VolumeById>,
    }

    struct WireCsi {
        driver: SmolStr,
        volume_handle: String,
        read_only: bool = default,
        fs_type: Option<SmolStr>,
        volume_attributes: PackedMap = default,
        controller_publish_secret_ref: Option<Box<SecretRef>>,
        controller_expand_secret_ref: Option<SecretRef>,
    }
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

received! {
    #[derive(Default)]
    struct WireAffinity {
        required: WireSelector = default,
    }

    #[derive(Default)]
    struct WireSelector {
        node_selector_terms: Box<[Reach]> = default,
    }
}

impl From<WireVolumeSpec> for VolumeSpec {
    fn from(wire: WireVolumeSpec) -> Self {
        let in_tree = wire
            .gce_persistent_disk
            .map(InTreeSource::GcePersistentDisk)
            .or_else(|| wire.aws_elastic_block_store.map(InTreeSource::AwsElasticBlockStore))
            .or_else(|| wire.azure_disk.map(InTreeSource::AzureDisk))
            .or_else(|| wire.azure_file.map(InTreeSource::AzureFile))
            .or_else(|| wire.cinder.map(InTreeSource::Cinder))
            .or_else(|| wire.vsphere_volume.map(InTreeSource::VsphereVolume))
            .or_else(|| wire.portworx_volume.map(InTreeSource::PortworxVolume));
        let reach = wire.node_affinity.unwrap_or_default().required.node_selector_terms;
        let migration = in_tree.map(|source| {
            let terms = reach.iter().map(|term| term.match_expressions.clone());
            Box::new(InTreeVolume { source, node_affinity: terms.collect() })
        });
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
            node_affinity: reach,
            in_tree: migration.as_ref().map(|volume| volume.source.kind()),
            foreign_driver: None,
            foreign_handle: None,
            resize: Some(Box::new(resize)),
            migration,
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
    /// The claim that it is bound to, or reserved for.
    pub fn claim(&self) -> Option<ObjectName> {
        let claim = self.spec.claim_ref.as_ref()?;
        Some(ObjectName::namespaced(&claim.namespace, &claim.name))
    }

    /// The volume with its claim, for people: a volume's own name says nothing to them.
    pub fn subject(&self) -> Option<String> {
        Some(format!("{}: claim {}", self.metadata.name, self.claim()?))
    }

    /// The CSI driver that serves it: its own, or the one that has taken its in-tree plugin over. Of another driver's CSI volume the
    /// cache does not hold this.
    pub fn served_by(&self) -> Option<&str> {
        let csi = self.spec.csi.as_ref().map(|csi| csi.driver.as_str());
        csi.or_else(|| self.spec.in_tree.map(InTree::successor))
    }

    /// The CSI driver that has taken over this in-tree volume.
    pub fn migrated_to(&self) -> Option<&str> {
        self.metadata.annotation(names::ANNOTATION_MIGRATED_TO)
    }
}

impl Cached for PersistentVolume {
    const KIND: &'static str = "PersistentVolume";

    fn trim(&mut self, driver: &str, fields: Fields) {
        let is_resized = fields.contains(Fields::RESIZE);
        let is_attached = fields.contains(Fields::ATTACH);
        let is_ours = |source: InTree| fields.contains(Fields::MIGRATION) && source.successor() == driver;
        let is_migrated = self.spec.in_tree.is_some_and(|source| is_attached || is_ours(source));
        let more = |wanted: bool, names: &'static [&'static str]| if wanted { names } else { &[] };
        let resized = more(is_resized, names::RESIZED_VOLUME_ANNOTATIONS);
        let migrated = more(is_migrated, names::MIGRATED_VOLUME_ANNOTATIONS);
        let wanted = [names::PERSISTENT_VOLUME_ANNOTATIONS, resized, migrated];
        let labels = self.metadata.labels.take().filter(|_| is_migrated);
        trim_meta_but(&mut self.metadata, |key| wanted.iter().any(|wanted| wanted.contains(&key)));
        if let Some(mut labels) = labels {
            labels.retain(|label, _| names::MIGRATED_VOLUME_LABELS.contains(&label.as_str()));
            self.metadata.labels = Some(labels).filter(|labels| !labels.is_empty());
        }
        if !is_resized {
            self.spec.resize = None;
        }
        if !is_migrated {
            self.spec.migration = None;
        }
        if let Some(foreign) = self.spec.csi.take_if(|csi| csi.driver != driver) {
            (self.phase, self.phase_since) = (None, None);
            let VolumeSpec { access_modes, claim_ref, .. } = std::mem::take(&mut self.spec);
            let foreign_driver = Some(foreign.driver);
            self.spec = if is_attached {
                let foreign_handle = Some(foreign.volume_handle.into());
                VolumeSpec { access_modes, claim_ref, foreign_driver, foreign_handle, ..VolumeSpec::default() }
            } else {
                VolumeSpec { foreign_driver, ..VolumeSpec::default() }
            };
        }
    }

    /// Another driver's CSI volume, which stays one: its source never changes. One that is being deleted is not packed, since a finalizer of
    /// ours may be on it. Nor is one that says that our driver, or an in-tree plugin, has made it.
    fn packed(&self, _driver: &str) -> Option<Packed> {
        let foreign = self.spec.foreign_driver.as_deref()?;
        let made_by = self.metadata.annotation(names::ANNOTATION_PROVISIONED_BY);
        let is_its_own = made_by.is_none_or(|driver| driver == foreign) && self.migrated_to().is_none();
        if is_its_own { Packed::of(self) } else { None }
    }

    fn opened(packed: &Packed) -> Option<Self> {
        packed.open()
    }

    fn whereabouts(&self) -> Option<String> {
        Some(self.phase.as_deref()?.to_owned())
    }

    fn claim_link(&self) -> Option<ClaimLink> {
        self.claim().map(ClaimLink::Claim)
    }

    fn handle(&self) -> Option<&str> {
        Some(&self.spec.csi.as_ref()?.volume_handle)
    }

    fn index(&self, add: &mut dyn FnMut(IndexName, &str)) {
        if let Some(uid) = self.spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_ref()) {
            add(BY_CLAIM, uid);
        }
        if let Some(csi) = &self.spec.csi {
            add(BY_HANDLE, &IdKind::Volume.key(&csi.driver, &csi.volume_handle));
        }
        if let Some(in_tree) = &self.spec.migration {
            add(BY_SUCCESSOR, in_tree.source.kind().successor());
        }
    }
}

impl Pack for PersistentVolume {
    fn pack(&self, to: &mut Writer) {
        self.metadata.pack(to);
        // Mostly the driver has made it, and is named there.
        let made_by = self.metadata.annotation(names::ANNOTATION_PROVISIONED_BY);
        to.optional(self.spec.foreign_driver.as_deref().filter(|driver| made_by != Some(driver)));
    }

    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let metadata = Meta::unpack(from)?;
        let driver = from.optional()?.map(SmolStr::from);
        let made_by = || metadata.annotation(names::ANNOTATION_PROVISIONED_BY).map(SmolStr::from);
        let spec = VolumeSpec { foreign_driver: driver.or_else(made_by), ..VolumeSpec::default() };
        Ok(Self { metadata, spec, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_mode_that_is_not_known_is_a_file_system() {
        for (mode, expected) in [
            (Some("Block"), true),
            (Some("Filesystem"), false),
            (Some("block"), false),
            (Some("New"), false),
            (None, false),
        ] {
            let spec = VolumeSpec { volume_mode: mode.map(Into::into), ..VolumeSpec::default() };
            assert_eq!(spec.is_block(), expected, "{mode:?}");
        }
    }
}
