//! A snapshot or a group as the driver describes it. Pure.

use k8s_openapi::jiff::Timestamp;

use crate::cluster::GroupMember;

/// A snapshot, or a group, as the driver describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Its id.
    pub handle: String,
    /// When it was taken, in nanoseconds since 1970.
    pub creation_time: i64,
    /// Whether the driver has said that time; otherwise it is the time of the answer.
    pub is_dated: bool,
    /// The least size of a volume made from it; `None`: not known.
    pub restore_size: Option<i64>,
    /// Whether volumes can be made from it.
    pub is_ready: bool,
    /// The driver's id of its group, as far as the status may hold it.
    pub group: Option<String>,
    /// Of a group, its snapshots.
    pub members: Vec<GroupMember>,
    /// What cannot be used of the answer. The rest has the id, so that it can be deleted.
    pub odd: Option<Odd>,
}

/// A group: the driver's answer does not say which snapshot is of which volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Odd {
    /// What is wrong.
    pub why: String,
    /// The ids of its snapshots, if the answer has them all: the driver may want them for the deletion.
    pub members: Vec<String>,
}

impl Found {
    /// Of a group, the ids of its snapshots.
    pub fn member_ids(&self) -> Vec<String> {
        let members = self.members.iter().map(|member| member.snapshot_handle.clone());
        members.chain(self.odd.iter().flat_map(|odd| odd.members.clone())).collect()
    }
}

/// Whether a driver that tells this tells a time: 1970 itself is none.
pub fn is_time(told: &prost_types::Timestamp) -> bool {
    (told.seconds, told.nanos) != (0, 0)
}

/// A time in nanoseconds since 1970. `None` and 1970 itself are no time: then it is `now`.
pub fn nanoseconds(told: Option<prost_types::Timestamp>, now: Option<Timestamp>) -> Option<i64> {
    let told = told.filter(is_time);
    let told = told.map(|time| time.seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nanos)));
    told.or_else(|| now.map(|now| i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX)))
}

/// A size in bytes. Nothing is none.
pub fn size(bytes: i64) -> Option<i64> {
    (bytes > 0).then_some(bytes)
}
