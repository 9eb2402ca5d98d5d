//! Snapshots, which a cluster has only if the snapshot CRDs are installed. Pure.

use serde::{Deserialize, Deserializer};

use crate::cluster::meta::Meta;
use smol_str::SmolStr;

use super::{Cached, IndexName, or_default, quantity, trim_meta};

/// A snapshot, as its user sees it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct VolumeSnapshot {
    /// Name, uid, version, finalizers and deletion.
    pub metadata: Meta,
    /// What became of it.
    #[serde(default, deserialize_with = "or_default")]
    pub status: VolumeSnapshotStatus,
}

/// What became of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    /// The name of its `VolumeSnapshotContent`.
    #[serde(rename = "boundVolumeSnapshotContentName")]
    pub bound_content: Option<String>,
    /// Whether a volume can be made from it.
    pub ready_to_use: Option<bool>,
    /// The least size of such a volume, a quantity.
    #[serde(default, deserialize_with = "quantity")]
    pub restore_size: Option<SmolStr>,
}

impl Cached for VolumeSnapshot {
    const KIND: &'static str = "VolumeSnapshot";
    const OPTIONAL: bool = true;

    fn trim(&mut self, _driver: &str) {
        trim_meta(&mut self.metadata, &[]);
        self.metadata.creation_timestamp = None;
    }

    fn index(&self, _add: &mut dyn FnMut(IndexName, &str)) {}
}

/// A snapshot, as the driver sees it. Read when needed, never cached.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VolumeSnapshotContent {
    /// The object's metadata, with all annotations.
    pub metadata: Meta,
    /// The driver that holds it.
    pub driver: String,
    /// The `VolumeSnapshot` that it belongs to.
    pub snapshot_ref: ObjectReference,
    /// The mode of the volume that it was taken of.
    pub source_volume_mode: Option<String>,
    /// The driver's id of the snapshot, once taken.
    pub snapshot_handle: Option<String>,
}

/// Which object is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ObjectReference {
    /// Its namespace.
    #[serde(default, deserialize_with = "or_default")]
    pub namespace: String,
    /// Its name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// Its uid; empty if the reference does not say.
    #[serde(default, deserialize_with = "or_default")]
    pub uid: String,
}

#[derive(Deserialize)]
struct Wire {
    metadata: Meta,
    #[serde(default, deserialize_with = "or_default")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "or_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    #[serde(default, deserialize_with = "or_default")]
    driver: String,
    #[serde(default, deserialize_with = "or_default")]
    volume_snapshot_ref: ObjectReference,
    source_volume_mode: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    snapshot_handle: Option<String>,
}

impl<'de> Deserialize<'de> for VolumeSnapshotContent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec, status } = Wire::deserialize(from)?;
        Ok(Self {
            metadata,
            driver: spec.driver,
            snapshot_ref: spec.volume_snapshot_ref,
            source_volume_mode: spec.source_volume_mode,
            snapshot_handle: status.snapshot_handle,
        })
    }
}
