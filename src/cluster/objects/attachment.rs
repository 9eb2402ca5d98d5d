//! VolumeAttachments. A foreign one keeps its name, uid, version, deletion, attacher and volume: it must be known, because
//! it keeps its volume from being released. An attach/detach controller is there for all drivers: with it, all are kept. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use super::{BY_NODE, BY_VOLUME, Cached, ClaimLink, Fields, IndexName, VolumeSpec, received, trim_meta};
use crate::cluster::managers::Managers;
use crate::cluster::meta::Meta;
use crate::cluster::names;
use crate::cluster::packed_map::PackedMap;
use crate::cluster::packing::{Malformed, Pack, Packed, Reader, Writer};
use smol_str::SmolStr;

received! {
    /// The wish that a volume be attached to a node.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct VolumeAttachment {
        /// Name, uid, version, finalizers, deletion, and the annotations of [`names::VOLUME_ATTACHMENT_ANNOTATIONS`]; with
        /// [`Fields::ATTACH`] also whether `kube-controller-manager` has made it.
        pub metadata: Meta,
        /// What is wished.
        pub spec: VolumeAttachmentSpec,
        /// What was done; empty for a foreign attachment, unless with [`Fields::ATTACH`].
        pub status: VolumeAttachmentStatus = default,
    }

    /// Which volume, which node, whose job.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct VolumeAttachmentSpec {
        /// The name of the CSI driver that must act.
        pub attacher: SmolStr,
        /// The Kubernetes node; empty for a foreign attachment, unless with [`Fields::ATTACH`].
        pub node_name: String = default,
        /// The volume.
        pub source: VolumeAttachmentSource = default,
    }

    /// The volume: exactly one of the two.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct VolumeAttachmentSource {
        /// The name of a PersistentVolume.
        pub persistent_volume_name: Option<String>,
        /// A volume that has no PersistentVolume: a pod's inline volume, translated by the attach/detach controller.
        pub inline_volume_spec: Option<Box<VolumeSpec>>,
    }

    /// What was done about an attachment.
    #[derive(Debug, Clone, Default, PartialEq, Serialize)]
    pub struct VolumeAttachmentStatus {
        /// Whether the volume is attached.
        pub attached: bool = default,
        /// The driver's answer to the publish call, for the node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub attachment_metadata: Option<PackedMap>,
        /// Why the last attempt to attach failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub attach_error: Option<Box<VolumeError>>,
        /// Why the last attempt to detach failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub detach_error: Option<Box<VolumeError>>,
    }

    /// Why an attempt failed.
    #[derive(Debug, Clone, PartialEq, Serialize)]
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
}

impl Cached for VolumeAttachment {
    const KIND: &'static str = "VolumeAttachment";

    fn trim(&mut self, driver: &str, fields: Fields) {
        let is_ours = self.spec.attacher == driver;
        // Its specification never changes, so who manages that has made it (attach-detach spec 1).
        let made_by = self.metadata.managers.intersection(Managers::SPEC);
        trim_meta(&mut self.metadata, names::VOLUME_ATTACHMENT_ANNOTATIONS);
        let is_attached = fields.contains(Fields::ATTACH);
        if is_attached {
            self.metadata.managers = made_by;
        }
        if let Some(volume) = &mut self.spec.source.inline_volume_spec {
            // No claim, so nothing to resize. And it arrives translated (migration spec 6).
            volume.resize = None;
            volume.migration = None;
        }
        if !is_ours {
            self.metadata.annotations = None;
            self.metadata.finalizers = None;
            self.status.attachment_metadata = None;
        }
        if !is_ours && !is_attached {
            self.metadata.creation_timestamp = None;
            self.spec.node_name = String::new();
            self.spec.source.inline_volume_spec = None;
            self.status = VolumeAttachmentStatus::default();
        }
    }

    /// Another driver's: the attacher of an attachment never changes.
    fn packed(&self, driver: &str) -> Option<Packed> {
        if self.spec.attacher == driver { None } else { Packed::of(self) }
    }

    fn opened(packed: &Packed) -> Option<Self> {
        packed.open()
    }

    fn whereabouts(&self) -> Option<String> {
        let volume = self.spec.source.persistent_volume_name.as_deref().unwrap_or("an inline volume");
        let state = if self.status.attached { "attached to" } else { "not attached to" };
        (!self.spec.node_name.is_empty()).then(|| format!("{volume} is {state} {}", self.spec.node_name))
    }

    fn claim_link(&self) -> Option<ClaimLink> {
        self.spec.source.persistent_volume_name.clone().map(ClaimLink::Volume)
    }

    fn trouble(&self) -> Option<&str> {
        let error = self.status.detach_error.as_deref().or(self.status.attach_error.as_deref())?;
        Some(error.message.as_deref().unwrap_or("failed"))
    }

    fn index(&self, add: &mut dyn FnMut(IndexName, &str)) {
        if let Some(volume) = &self.spec.source.persistent_volume_name {
            add(BY_VOLUME, volume);
        }
        if !self.spec.node_name.is_empty() {
            add(BY_NODE, &self.spec.node_name);
        }
    }
}

impl Pack for VolumeAttachment {
    fn pack(&self, to: &mut Writer) {
        self.metadata.pack(to);
        to.text(&self.spec.attacher);
        to.optional(self.spec.source.persistent_volume_name.as_deref());
    }

    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (metadata, attacher) = (Meta::unpack(from)?, from.text()?.into());
        let source =
            VolumeAttachmentSource { persistent_volume_name: from.optional()?, ..VolumeAttachmentSource::default() };
        let spec = VolumeAttachmentSpec { attacher, source, ..VolumeAttachmentSpec::default() };
        Ok(Self { metadata, spec, ..Self::default() })
    }
}
