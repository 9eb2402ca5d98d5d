//! Snapshots of several volumes at once, as their driver sees them: contents of groups.
//!
//! A server serves them as `v1`, `v1beta2` or `v1beta1`, or as several of them. There is one type, read from each. `v1beta1` has another
//! list of the members in the status, with their handles alone.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};

use super::{Cached, Fields, IndexName, ObjectReference, SnapshotError, received, trim_meta};
use crate::cluster::meta::Meta;
use crate::cluster::names;
use smol_str::SmolStr;

/// The versions that are read, the best one first.
pub(super) const VERSIONS: &[&str] = &["v1", "v1beta2", V1BETA1];
/// The version of external-snapshotter 8.2 and 8.3.
const V1BETA1: &str = "v1beta1";

/// A group of snapshots, as its driver sees it. A foreign driver's keeps its metadata and whose it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VolumeGroupSnapshotContent {
    /// The object's metadata; from a cache with the annotations of [`names::GROUP_CONTENT_ANNOTATIONS`] alone.
    pub metadata: Meta,
    /// The driver that holds it.
    pub driver: String,
    /// `Delete` or `Retain`: what becomes of the snapshots when the object is deleted.
    pub deletion_policy: SmolStr,
    /// The name of its class.
    pub class_name: Option<String>,
    /// The `VolumeGroupSnapshot` that it belongs to.
    pub group_ref: ObjectReference,
    /// What it is to be made of, or was.
    pub source: GroupSource,
    /// What became of it; `None` if the object has no status.
    pub status: Option<Box<GroupStatus>>,
    /// How the status of its version lists the members.
    pub member_list: MemberList,
}

/// How a status lists the members of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemberList {
    /// With what is known of each.
    #[default]
    Infos,
    /// By their handles alone, as `v1beta1` does.
    HandlePairs,
}

impl MemberList {
    fn of(api_version: &str) -> Self {
        let is_old = api_version.split_once('/').is_some_and(|(_, version)| version == V1BETA1);
        if is_old { Self::HandlePairs } else { Self::Infos }
    }

    /// The list's name in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Infos => "volumeSnapshotInfoList",
            Self::HandlePairs => "volumeSnapshotHandlePairList",
        }
    }

    /// As much of a member as the list can say.
    #[must_use]
    pub fn entry(self, member: &GroupMember) -> GroupMember {
        match self {
            Self::Infos => member.clone(),
            Self::HandlePairs => GroupMember {
                volume_handle: member.volume_handle.clone(),
                snapshot_handle: member.snapshot_handle.clone(),
                ..GroupMember::default()
            },
        }
    }
}

/// What a group of snapshots is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GroupSource {
    /// The object does not say.
    #[default]
    None,
    /// Snapshots are to be taken of these volumes: the driver's ids.
    Volumes(Vec<String>),
    /// The group was there before the object.
    Snapshots {
        /// The driver's id of the group.
        group: String,
        /// The driver's ids of its snapshots.
        members: Vec<String>,
    },
}

received! {
    /// What became of a group of snapshots.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct GroupStatus {
        /// The driver's id of the group.
        pub volume_group_snapshot_handle: Option<String>,
        /// When it was taken.
        pub creation_time: Option<Time>,
        /// Whether volumes can be made from all of it.
        pub ready_to_use: Option<bool>,
        /// What went wrong last.
        pub error: Option<SnapshotError>,
        /// Its snapshots.
        #[serde(rename = "volumeSnapshotInfoList", alias = "volumeSnapshotHandlePairList")]
        pub members: Vec<GroupMember> = default,
    }

    /// A snapshot of a group.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct GroupMember {
        /// The driver's id of the volume.
        pub volume_handle: String = default,
        /// The driver's id of the snapshot.
        pub snapshot_handle: String = default,
        /// When it was taken, in nanoseconds since 1970.
        pub creation_time: Option<i64>,
        /// Whether a volume can be made from it.
        pub ready_to_use: Option<bool>,
        /// The least size of such a volume, in bytes.
        pub restore_size: Option<i64>,
    }

    struct Wire<'a> {
        #[serde(default, borrow)]
        api_version: Cow<'a, str>,
        metadata: Meta,
        spec: WireSpec = default,
        status: Option<Box<GroupStatus>>,
    }

    #[derive(Default)]
    struct WireSpec {
        driver: String = default,
        deletion_policy: SmolStr = default,
        volume_group_snapshot_class_name: Option<String>,
        volume_group_snapshot_ref: ObjectReference = default,
        source: WireSource = default,
    }

    #[derive(Default)]
    struct WireSource {
        volume_handles: Option<Vec<String>>,
        group_snapshot_handles: Option<WireHandles>,
    }

    struct WireHandles {
        volume_group_snapshot_handle: String = default,
        volume_snapshot_handles: Vec<String> = default,
    }
}

impl From<WireSource> for GroupSource {
    fn from(wire: WireSource) -> Self {
        match (wire.volume_handles, wire.group_snapshot_handles) {
            (_, Some(handles)) => Self::Snapshots {
                group: handles.volume_group_snapshot_handle,
                members: handles.volume_snapshot_handles,
            },
            (Some(volumes), None) => Self::Volumes(volumes),
            (None, None) => Self::None,
        }
    }
}

impl<'de> Deserialize<'de> for VolumeGroupSnapshotContent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Wire { api_version, metadata, spec, status } = Wire::deserialize(from)?;
        Ok(Self {
            metadata,
            driver: spec.driver,
            deletion_policy: spec.deletion_policy,
            class_name: spec.volume_group_snapshot_class_name,
            group_ref: spec.volume_group_snapshot_ref,
            source: spec.source.into(),
            status,
            member_list: MemberList::of(&api_version),
        })
    }
}

impl Cached for VolumeGroupSnapshotContent {
    const KIND: &'static str = "VolumeGroupSnapshotContent";
    const OPTIONAL: bool = true;
    const VERSIONS: &'static [&'static str] = VERSIONS;

    fn trim(&mut self, driver: &str, _fields: Fields) {
        trim_meta(&mut self.metadata, names::GROUP_CONTENT_ANNOTATIONS);
        if self.driver != driver {
            let (mut metadata, driver) = (std::mem::take(&mut self.metadata), std::mem::take(&mut self.driver));
            metadata.annotations = None;
            metadata.finalizers = None;
            metadata.creation_timestamp = None;
            *self = Self { metadata, driver, ..Self::default() };
        }
    }

    fn index(&self, add: &mut dyn FnMut(IndexName, &str)) {
        if let Some(class) = &self.class_name {
            add(super::BY_CLASS, class);
        }
        let given = match &self.source {
            GroupSource::Snapshots { group, .. } => Some(group),
            GroupSource::Volumes(_) | GroupSource::None => None,
        };
        let stored = self.status.as_ref().and_then(|status| status.volume_group_snapshot_handle.as_ref());
        if let Some(handle) = stored.or(given) {
            add(super::BY_HANDLE, &super::IdKind::Snapshot.key(&self.driver, handle));
        }
    }
}
