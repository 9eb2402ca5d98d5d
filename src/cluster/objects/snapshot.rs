//! Snapshots, which a cluster has only if the snapshot CRDs are installed. Pure.

use crate::cluster::meta::Meta;
use smol_str::SmolStr;

use super::{Cached, ClaimLink, Fields, IndexName, quantity, received, trim_meta};

received! {
    /// A snapshot, as its user sees it.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct VolumeSnapshot {
        /// Name, uid, version, finalizers and deletion.
        pub metadata: Meta,
        /// What became of it.
        pub status: VolumeSnapshotStatus = default,
    }

    /// What became of a snapshot.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
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

received! {
    /// Which object is meant.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct ObjectReference {
        /// Its namespace.
        pub namespace: String = default,
        /// Its name.
        pub name: String = default,
        /// Its uid; empty if the reference does not say.
        pub uid: String = default,
    }
}
