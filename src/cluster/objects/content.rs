//! `VolumeSnapshotContents`: what a snapshotter does its work by.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};

use super::{Cached, ClaimLink, Fields, IndexName, ObjectReference, received, trim_meta};
use crate::cluster::meta::Meta;
use crate::cluster::names;
use crate::cluster::packing::{Malformed, Pack, Packed, Reader, Writer};
use smol_str::SmolStr;

/// A snapshot, as the driver sees it. A foreign driver's keeps its metadata and whose it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VolumeSnapshotContent {
    /// The object's metadata; from a cache with the annotations of [`names::CONTENT_ANNOTATIONS`] and the label
    /// [`names::LABEL_MANAGED_BY`] alone.
    pub metadata: Meta,
    /// The driver that holds it.
    pub driver: String,
    /// The `VolumeSnapshot` that it belongs to.
    pub snapshot_ref: ObjectReference,
    /// The mode of the volume that it was taken of.
    pub source_volume_mode: Option<String>,
    /// `Delete` or `Retain`: what becomes of the snapshot when the object is deleted.
    pub deletion_policy: SmolStr,
    /// The name of its class.
    pub class_name: Option<String>,
    /// The driver's id of the volume that it is to be taken of.
    pub source_volume: Option<String>,
    /// The driver's id of a snapshot that was there before the object.
    pub source_snapshot: Option<String>,
    /// The driver's id of the snapshot, once taken.
    pub snapshot_handle: Option<String>,
    /// The rest of what became of it; `None` if the object has no status.
    pub status: Option<Box<ContentStatus>>,
}

received! {
    /// What became of a snapshot, as its driver sees it.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct ContentStatus {
        /// When it was taken, in nanoseconds since 1970.
        pub creation_time: Option<i64>,
        /// Whether a volume can be made from it.
        pub ready_to_use: Option<bool>,
        /// The least size of such a volume, in bytes.
        pub restore_size: Option<i64>,
        /// What went wrong last.
        pub error: Option<SnapshotError>,
        /// The driver's id of the group that it was taken in.
        pub volume_group_snapshot_handle: Option<String>,
    }

    /// What went wrong with a snapshot or a group.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct SnapshotError {
        /// When.
        pub time: Option<Time>,
        /// What.
        pub message: Option<String>,
    }

    struct Wire {
        metadata: Meta,
        spec: WireSpec = default,
        status: Option<WireStatus>,
    }

    #[derive(Default)]
    struct WireSpec {
        driver: String = default,
        volume_snapshot_ref: ObjectReference = default,
        source_volume_mode: Option<String>,
        deletion_policy: SmolStr = default,
        volume_snapshot_class_name: Option<String>,
        source: WireSource = default,
    }

    #[derive(Default)]
    struct WireSource {
        volume_handle: Option<String>,
        snapshot_handle: Option<String>,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    snapshot_handle: Option<String>,
    #[serde(flatten)]
    rest: ContentStatus,
}

impl<'de> Deserialize<'de> for VolumeSnapshotContent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec, status } = Wire::deserialize(from)?;
        let (snapshot_handle, status) = status.map(|status| (status.snapshot_handle, Box::new(status.rest))).unzip();
        Ok(Self {
            metadata,
            driver: spec.driver,
            snapshot_ref: spec.volume_snapshot_ref,
            source_volume_mode: spec.source_volume_mode,
            deletion_policy: spec.deletion_policy,
            class_name: spec.volume_snapshot_class_name,
            source_volume: spec.source.volume_handle,
            source_snapshot: spec.source.snapshot_handle,
            snapshot_handle: snapshot_handle.flatten(),
            status,
        })
    }
}

impl Cached for VolumeSnapshotContent {
    const KIND: &'static str = "VolumeSnapshotContent";
    const OPTIONAL: bool = true;

    fn trim(&mut self, driver: &str, _fields: Fields) {
        let labels = self.metadata.labels.take();
        trim_meta(&mut self.metadata, names::CONTENT_ANNOTATIONS);
        if self.driver == driver {
            let managed_by = labels.and_then(|mut labels| labels.remove_entry(names::LABEL_MANAGED_BY));
            self.metadata.labels = managed_by.map(|label| BTreeMap::from([label]));
        } else {
            let (mut metadata, driver) = (std::mem::take(&mut self.metadata), std::mem::take(&mut self.driver));
            metadata.annotations = None;
            metadata.finalizers = None;
            metadata.creation_timestamp = None;
            *self = Self { metadata, driver, ..Self::default() };
        }
    }

    /// Another driver's.
    fn packed(&self, driver: &str) -> Option<Packed> {
        if self.driver == driver { None } else { Packed::of(self) }
    }

    fn opened(packed: &Packed) -> Option<Self> {
        packed.open()
    }

    fn whereabouts(&self) -> Option<String> {
        let is_ready = self.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true));
        let state = if is_ready { "ready to use" } else { "not ready to use" };
        let snapshot = &self.snapshot_ref;
        (!snapshot.name.is_empty()).then(|| format!("{state}, snapshot {}/{}", snapshot.namespace, snapshot.name))
    }

    fn claim_link(&self) -> Option<ClaimLink> {
        let volume = self.source_volume.as_ref()?;
        Some(ClaimLink::Handle(super::IdKind::Volume.key(&self.driver, volume)))
    }

    fn handle(&self) -> Option<&str> {
        self.snapshot_handle.as_deref().or(self.source_snapshot.as_deref())
    }

    fn trouble(&self) -> Option<&str> {
        let error = self.status.as_ref()?.error.as_ref()?;
        Some(error.message.as_deref().unwrap_or("failed"))
    }

    fn index(&self, add: &mut dyn FnMut(IndexName, &str)) {
        if let Some(class) = &self.class_name {
            add(super::BY_CLASS, class);
        }
        if let Some(handle) = self.snapshot_handle.as_ref().or(self.source_snapshot.as_ref()) {
            add(super::BY_HANDLE, &super::IdKind::Snapshot.key(&self.driver, handle));
        }
    }
}

impl Pack for VolumeSnapshotContent {
    fn pack(&self, to: &mut Writer) {
        self.metadata.pack(to);
        to.text(&self.driver);
    }

    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { metadata: Meta::unpack(from)?, driver: from.text()?, ..Self::default() })
    }
}
