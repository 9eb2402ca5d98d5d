//! Contents of groups of snapshots (snapshotter spec 10). Pure.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::{GroupMember, GroupSource, ObjectReference, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent};
use crate::roles::snapshotter::content::record::kind::{Names, Said};
use crate::roles::snapshotter::content::record::{Class, Content, Found};
use crate::roles::snapshotter::names;

impl Content for VolumeGroupSnapshotContent {
    type Class = VolumeGroupSnapshotClass;

    const NAMES: Names = Names {
        finalizer: names::FINALIZER_BOUND_GROUP_CONTENT,
        mark: names::ANNOTATION_GROUP_BEING_CREATED,
        lost: names::ANNOTATION_GROUP_BEING_DELETED,
        secret: (names::ANNOTATION_GROUP_SECRET_NAME, names::ANNOTATION_GROUP_SECRET_NAMESPACE),
        handle: "volumeGroupSnapshotHandle",
        owner: "VolumeGroupSnapshot",
        group: names::GROUP_SNAPSHOTS,
        is_group: true,
        word: "group snapshot",
        looked_up: "group snapshot content",
        classes: "volumegroupsnapshotclass.groupsnapshot.storage.k8s.io",
        reason: "GroupSnapshot",
        metadata: [
            "csi.storage.k8s.io/volumegroupsnapshot/name",
            "csi.storage.k8s.io/volumegroupsnapshot/namespace",
            "csi.storage.k8s.io/volumegroupsnapshotcontent/name",
        ],
        call: "CreateVolumeGroupSnapshot",
        name_length: "groupSnapshotNameUuidLength",
        capability: "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT",
        operations: ["group_create", "ready", "group_delete"],
    };
    const IS_ASKED_BY_ID: bool = true;

    fn driver(&self) -> &str {
        &self.driver
    }

    fn owner(&self) -> &ObjectReference {
        &self.group_ref
    }

    fn policy(&self) -> &str {
        &self.deletion_policy
    }

    fn class_name(&self) -> Option<&str> {
        self.class_name.as_deref()
    }

    fn sources(&self) -> &[String] {
        match &self.source {
            GroupSource::Volumes(volumes) => volumes,
            GroupSource::Snapshots { .. } | GroupSource::None => &[],
        }
    }

    fn given_handle(&self) -> Option<&str> {
        match &self.source {
            GroupSource::Snapshots { group, .. } => Some(group),
            GroupSource::Volumes(_) | GroupSource::None => None,
        }
    }

    fn stored_handle(&self) -> Option<&str> {
        self.status.as_ref()?.volume_group_snapshot_handle.as_deref()
    }

    fn said(&self) -> Option<Said<'_>> {
        let status = self.status.as_deref()?;
        Some(Said { ready: status.ready_to_use, error: status.error.as_ref() })
    }

    /// Those that the status lists, else those that were there before, else those of an answer that the status could not list.
    fn members(&self) -> Vec<String> {
        let stored = self.status.as_ref().map(|status| status.members.as_slice()).unwrap_or_default();
        match &self.source {
            GroupSource::Snapshots { members, .. } if stored.is_empty() => members.clone(),
            _ if stored.is_empty() => self.unlisted_members().unwrap_or_default(),
            _ => stored.iter().map(|member| member.snapshot_handle.clone()).collect(),
        }
    }

    fn unlisted_members(&self) -> Option<Vec<String>> {
        serde_json::from_str(self.metadata.annotation(names::ANNOTATION_UNLISTED_MEMBERS)?).ok()
    }

    fn learnt(&self, found: &Found) -> Vec<(&'static str, Value)> {
        let status = self.status.as_deref();
        let mut learnt = Vec::new();
        if status.is_none_or(|status| status.creation_time.is_none()) {
            learnt.push(("creationTime", json!(rfc3339(found.creation_time))));
        }
        let stored = status.map(|status| status.members.as_slice()).unwrap_or_default();
        let told: Vec<GroupMember> = found.members.iter().map(|member| self.member_list.entry(member)).collect();
        let members = if stored.is_empty() { told } else { refreshed(stored, &told) };
        // The members of a group that was there before have contents of their own already, which people have made.
        if matches!(self.source, GroupSource::Volumes(_)) && members != stored {
            learnt.push((self.member_list.name(), members.iter().map(to_json).collect()));
        }
        learnt
    }

    fn perishable(&self) -> Vec<&'static str> {
        let Some(status) = self.status.as_deref() else { return Vec::new() };
        let time = status.creation_time.as_ref().map(|_| "creationTime");
        time.into_iter().chain(status.error.as_ref().map(|_| "error")).collect()
    }
}

impl Class for VolumeGroupSnapshotClass {
    fn driver(&self) -> &str {
        &self.driver
    }

    fn parameters(&self) -> &BTreeMap<String, String> {
        &self.parameters
    }
}

/// What is stored, with readiness and size as the driver says by now. A driver that spells the id of a snapshot in its own way is
/// understood by the volume.
fn refreshed(stored: &[GroupMember], found: &[GroupMember]) -> Vec<GroupMember> {
    let of_volume = |volume: &str| {
        let mut of_it = found.iter().filter(|found| found.volume_handle == volume);
        of_it.next().filter(|_| of_it.next().is_none())
    };
    let refreshed = |stored: &GroupMember| {
        let same = found.iter().find(|found| found.snapshot_handle == stored.snapshot_handle);
        let news = same.or_else(|| of_volume(&stored.volume_handle));
        GroupMember {
            ready_to_use: news.and_then(|news| news.ready_to_use).or(stored.ready_to_use),
            restore_size: news.and_then(|news| news.restore_size).or(stored.restore_size),
            ..stored.clone()
        }
    };
    stored.iter().map(refreshed).collect()
}

fn to_json(member: &GroupMember) -> Value {
    let mut json = json!({ "volumeHandle": member.volume_handle, "snapshotHandle": member.snapshot_handle });
    let more = [
        ("creationTime", member.creation_time.map(Value::from)),
        ("readyToUse", member.ready_to_use.map(Value::from)),
        ("restoreSize", member.restore_size.map(Value::from)),
    ];
    for (name, value) in more {
        if let Some(value) = value {
            json[name] = value;
        }
    }
    json
}

/// As a server writes it: to the second.
fn rfc3339(nanoseconds: i64) -> String {
    let time = Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
#[path = "kind_tests.rs"]
mod tests;
