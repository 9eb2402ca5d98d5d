//! Snapshots, which a cluster has only if the snapshot CRDs are installed. Pure.

use serde::Deserialize;

use crate::cluster::meta::Meta;
use smol_str::SmolStr;

use super::{Cached, ClaimLink, Fields, IndexName, or_default, quantity, trim_meta};

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

    fn trim(&mut self, _driver: &str, _fields: Fields) {
        trim_meta(&mut self.metadata, &[]);
        self.metadata.creation_timestamp = None;
    }

    fn whereabouts(&self) -> Option<String> {
        let state = if self.status.ready_to_use == Some(true) { "ready to use" } else { "not ready to use" };
        Some(match &self.status.bound_content {
            Some(content) => format!("{state}, {content}"),
            None => state.to_owned(),
        })
    }

    fn claim_link(&self) -> Option<ClaimLink> {
        self.status.bound_content.clone().map(ClaimLink::Content)
    }

    fn index(&self, _add: &mut dyn FnMut(IndexName, &str)) {}
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
