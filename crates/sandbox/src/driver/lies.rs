//! Wrong and invalid answers. Pure: changes a correct answer into a wrong one.

use std::collections::BTreeMap;

use super::faults::Lie;
use super::validate;
use base::proto::controller_service_capability::{Rpc, Type as ControllerType};
use base::proto::plugin_capability::{Service, Type as PluginType};
use base::proto::{
    ControllerExpandVolumeResponse, ControllerGetCapabilitiesResponse, ControllerGetVolumeResponse,
    ControllerModifyVolumeResponse, ControllerPublishVolumeResponse, ControllerServiceCapability,
    ControllerUnpublishVolumeResponse, CreateSnapshotResponse, CreateVolumeGroupSnapshotResponse, CreateVolumeResponse,
    DeleteSnapshotResponse, DeleteVolumeGroupSnapshotResponse, DeleteVolumeResponse, GetCapacityResponse,
    GetPluginCapabilitiesResponse, GetPluginInfoResponse, GetSnapshotResponse, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesResponse, ListSnapshotsResponse, ListVolumesResponse, PluginCapability,
    ProbeResponse, Topology, ValidateVolumeCapabilitiesResponse, list_snapshots_response, list_volumes_response,
};

/// A capability that no version of the specification has.
const UNHEARD_OF: i32 = 4242;

/// An answer that can be made false.
pub(super) trait Answer: Send + 'static {
    /// Makes the answer false in this way; leaves it true where that makes no sense.
    fn distort(&mut self, _lie: &Lie) {}

    /// Takes in how many bytes of the volume are used, if it tells that.
    fn measured(&mut self, _used: i64) {}

    /// The IDs of what was made: a volume, a snapshot, or a group and its snapshots.
    fn made(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Answer for DeleteVolumeResponse {}
impl Answer for ControllerUnpublishVolumeResponse {}
impl Answer for DeleteSnapshotResponse {}
impl Answer for ControllerModifyVolumeResponse {}

impl Answer for ControllerGetVolumeResponse {
    fn distort(&mut self, lie: &Lie) {
        if *lie == Lie::EntryWithoutStatus {
            self.status = None;
        }
    }
}

impl Answer for ControllerExpandVolumeResponse {
    fn distort(&mut self, lie: &Lie) {
        if let Lie::Size(bytes) = lie {
            self.capacity_bytes = *bytes;
        }
    }
}

impl Answer for CreateVolumeResponse {
    fn made(&self) -> Vec<String> {
        self.volume.iter().map(|volume| volume.volume_id.clone()).collect()
    }

    fn distort(&mut self, lie: &Lie) {
        if matches!(lie, Lie::NoVolume) {
            self.volume = None;
        }
        let Some(volume) = &mut self.volume else { return };
        match lie {
            Lie::EmptyVolumeId => volume.volume_id.clear(),
            Lie::VolumeId(id) => volume.volume_id.clone_from(id),
            Lie::Size(bytes) => volume.capacity_bytes = *bytes,
            Lie::ForgetSource => volume.content_source = None,
            Lie::Topologies(places) => {
                let topology = |segments: &BTreeMap<String, String>| Topology {
                    segments: segments.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
                };
                volume.accessible_topology = places.iter().map(topology).collect();
            }
            Lie::Huge(bytes) => {
                volume.volume_context.insert("padding".to_owned(), "x".repeat(*bytes));
            }
            _ => {}
        }
    }
}

impl Answer for CreateSnapshotResponse {
    fn made(&self) -> Vec<String> {
        self.snapshot.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect()
    }

    fn distort(&mut self, lie: &Lie) {
        distort_snapshot(&mut self.snapshot, lie);
    }
}

impl Answer for GetSnapshotResponse {
    fn distort(&mut self, lie: &Lie) {
        distort_snapshot(&mut self.snapshot, lie);
    }
}

impl Answer for ListSnapshotsResponse {
    fn distort(&mut self, lie: &Lie) {
        match lie {
            Lie::OmitSnapshots => self.entries.clear(),
            Lie::EntryWithoutSnapshot => {
                self.entries.insert(0, list_snapshots_response::Entry { snapshot: None });
            }
            Lie::AnotherSnapshotFirst(id) => {
                let snapshot = base::proto::Snapshot {
                    snapshot_id: id.clone(),
                    size_bytes: 1,
                    ..base::proto::Snapshot::default()
                };
                self.entries.insert(0, list_snapshots_response::Entry { snapshot: Some(snapshot) });
            }
            Lie::OtherSnapshots(ids) => {
                let snapshot = |id: &String| base::proto::Snapshot {
                    snapshot_id: id.clone(),
                    ready_to_use: true,
                    ..base::proto::Snapshot::default()
                };
                let entry = |id| list_snapshots_response::Entry { snapshot: Some(snapshot(id)) };
                self.entries = ids.iter().map(entry).collect();
            }
            Lie::TokenLoop => self.next_token = validate::first_page_token(),
            Lie::NoSnapshot => self.entries.iter_mut().for_each(|entry| entry.snapshot = None),
            _ => self.entries.iter_mut().for_each(|entry| distort_snapshot(&mut entry.snapshot, lie)),
        }
    }
}

fn distort_snapshot(told: &mut Option<base::proto::Snapshot>, lie: &Lie) {
    if matches!(lie, Lie::NoSnapshot) {
        *told = None;
    }
    let Some(snapshot) = told else { return };
    match lie {
        Lie::NotReady => snapshot.ready_to_use = false,
        Lie::EmptySnapshotId => snapshot.snapshot_id.clear(),
        Lie::SnapshotId(id) => snapshot.snapshot_id.clone_from(id),
        Lie::Size(bytes) => snapshot.size_bytes = *bytes,
        Lie::NoCreationTime => snapshot.creation_time = None,
        Lie::CreationTime(seconds, nanos) => {
            snapshot.creation_time = Some(prost_types::Timestamp { seconds: *seconds, nanos: *nanos });
        }
        Lie::SnapshotGroup(id) => snapshot.group_snapshot_id.clone_from(id),
        _ => {}
    }
}

impl Answer for CreateVolumeGroupSnapshotResponse {
    fn made(&self) -> Vec<String> {
        let group = self.group_snapshot.iter();
        group
            .flat_map(|it| [&it.group_snapshot_id].into_iter().chain(it.snapshots.iter().map(|it| &it.snapshot_id)))
            .cloned()
            .collect()
    }

    fn distort(&mut self, lie: &Lie) {
        distort_group(&mut self.group_snapshot, lie);
    }
}

impl Answer for GetVolumeGroupSnapshotResponse {
    fn distort(&mut self, lie: &Lie) {
        distort_group(&mut self.group_snapshot, lie);
    }
}

impl Answer for DeleteVolumeGroupSnapshotResponse {}
impl Answer for GroupControllerGetCapabilitiesResponse {}

/// A lie about a snapshot is a lie about its group.
fn distort_group(told: &mut Option<base::proto::VolumeGroupSnapshot>, lie: &Lie) {
    if matches!(lie, Lie::NoSnapshot) {
        *told = None;
    }
    let Some(group) = told else { return };
    match lie {
        Lie::NotReady => group.ready_to_use = false,
        Lie::EmptySnapshotId => group.group_snapshot_id.clear(),
        Lie::SnapshotId(id) => group.group_snapshot_id.clone_from(id),
        Lie::NoCreationTime => group.creation_time = None,
        Lie::CreationTime(seconds, nanos) => {
            group.creation_time = Some(prost_types::Timestamp { seconds: *seconds, nanos: *nanos });
        }
        Lie::EmptyMemberId => group.snapshots.iter_mut().take(1).for_each(|member| member.snapshot_id.clear()),
        Lie::SameMemberId => {
            let first = group.snapshots.first().map(|member| member.snapshot_id.clone()).unwrap_or_default();
            group.snapshots.iter_mut().for_each(|member| member.snapshot_id.clone_from(&first));
        }
        Lie::MemberOf(volume) => {
            group.snapshots.iter_mut().take(1).for_each(|member| member.source_volume_id.clone_from(volume));
        }
        Lie::OmitMembers => group.snapshots.clear(),
        _ => {}
    }
}

impl Answer for GetCapacityResponse {
    fn distort(&mut self, lie: &Lie) {
        if let Lie::Capacity(bytes) = lie {
            self.available_capacity = *bytes;
        }
    }
}

impl Answer for ProbeResponse {
    fn distort(&mut self, lie: &Lie) {
        if matches!(lie, Lie::NotReady) {
            self.ready = Some(false);
        }
    }
}

impl Answer for GetPluginInfoResponse {
    fn distort(&mut self, lie: &Lie) {
        match lie {
            Lie::EmptyName => self.name.clear(),
            Lie::Huge(bytes) => {
                self.manifest.insert("padding".to_owned(), "x".repeat(*bytes));
            }
            _ => {}
        }
    }
}

impl Answer for GetPluginCapabilitiesResponse {
    fn distort(&mut self, lie: &Lie) {
        if matches!(lie, Lie::BogusCapabilities) {
            self.capabilities.push(PluginCapability { r#type: None });
            let unheard_of = PluginType::Service(Service { r#type: UNHEARD_OF });
            self.capabilities.push(PluginCapability { r#type: Some(unheard_of) });
        }
    }
}

impl Answer for ControllerGetCapabilitiesResponse {
    fn distort(&mut self, lie: &Lie) {
        if matches!(lie, Lie::BogusCapabilities) {
            self.capabilities.push(ControllerServiceCapability { r#type: None });
            for number in [UNHEARD_OF, 0, -1] {
                let unheard_of = ControllerType::Rpc(Rpc { r#type: number });
                self.capabilities.push(ControllerServiceCapability { r#type: Some(unheard_of) });
            }
        }
    }
}

impl Answer for ControllerPublishVolumeResponse {
    fn distort(&mut self, lie: &Lie) {
        if let Lie::Huge(bytes) = lie {
            self.publish_context.insert("padding".to_owned(), "x".repeat(*bytes));
        }
    }
}

impl Answer for ValidateVolumeCapabilitiesResponse {
    fn distort(&mut self, lie: &Lie) {
        if let Lie::Huge(bytes) = lie {
            self.message = "x".repeat(*bytes);
        }
    }
}

impl Answer for ListVolumesResponse {
    fn distort(&mut self, lie: &Lie) {
        match lie {
            Lie::OmitVolumes(omitted) => {
                self.entries.retain(|e| e.volume.as_ref().is_none_or(|v| !omitted.contains(&v.volume_id)));
            }
            Lie::OmitNodes => {
                self.entries.iter_mut().filter_map(|e| e.status.as_mut()).for_each(|s| s.published_node_ids.clear());
            }
            Lie::EntryWithoutVolume => {
                let published_node_ids = vec!["nowhere".to_owned()];
                let status = list_volumes_response::VolumeStatus { published_node_ids, volume_condition: None };
                self.entries.insert(0, list_volumes_response::Entry { volume: None, status: Some(status) });
            }
            Lie::EntryWithoutStatus => self.entries.iter_mut().for_each(|entry| entry.status = None),
            Lie::DuplicateEntries => {
                let mut again = self.entries.clone();
                again.iter_mut().filter_map(|e| e.status.as_mut()).for_each(|s| s.published_node_ids.clear());
                self.entries.extend(again);
            }
            Lie::TokenLoop => self.next_token = validate::first_page_token(),
            Lie::Huge(bytes) => {
                let context = [("padding".to_owned(), "x".repeat(*bytes))].into_iter().collect();
                let padding = base::proto::Volume {
                    volume_id: "padding".to_owned(),
                    volume_context: context,
                    ..base::proto::Volume::default()
                };
                self.entries.push(list_volumes_response::Entry { volume: Some(padding), status: None });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> ListVolumesResponse {
        let entry = |id: &str| list_volumes_response::Entry {
            volume: Some(base::proto::Volume { volume_id: id.to_owned(), ..base::proto::Volume::default() }),
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids: vec!["n".to_owned()],
                volume_condition: None,
            }),
        };
        ListVolumesResponse { entries: vec![entry("a"), entry("b")], next_token: String::new() }
    }

    fn distorted(lie: &Lie) -> ListVolumesResponse {
        let mut answer = listing();
        answer.distort(lie);
        answer
    }

    #[test]
    fn creations_lie_as_told() {
        let distorted = |lie: Lie| {
            let volume = base::proto::Volume {
                volume_id: "v".to_owned(),
                capacity_bytes: 5,
                content_source: Some(base::proto::VolumeContentSource::default()),
                ..base::proto::Volume::default()
            };
            let mut answer = CreateVolumeResponse { volume: Some(volume) };
            answer.distort(&lie);
            answer.volume
        };
        assert_eq!(distorted(Lie::NoVolume), None);
        assert_eq!(distorted(Lie::EmptyVolumeId).unwrap().volume_id, "");
        assert_eq!(distorted(Lie::VolumeId("w".to_owned())).unwrap().volume_id, "w");
        assert_eq!(distorted(Lie::Size(3)).unwrap().capacity_bytes, 3);
        assert_eq!(distorted(Lie::ForgetSource).unwrap().content_source, None);
        let nowhere = Lie::Topologies(vec![BTreeMap::new()]);
        assert_eq!(distorted(nowhere).unwrap().accessible_topology, [Topology::default()]);
        assert!(distorted(Lie::NotReady).is_some_and(|it| it.capacity_bytes == 5 && it.content_source.is_some()));
    }

    #[test]
    fn snapshots_lie_as_told() {
        let told = || {
            let snapshot = base::proto::Snapshot {
                snapshot_id: "s".to_owned(),
                size_bytes: 5,
                creation_time: Some(prost_types::Timestamp { seconds: 7, nanos: 0 }),
                ready_to_use: true,
                ..base::proto::Snapshot::default()
            };
            CreateSnapshotResponse { snapshot: Some(snapshot) }
        };
        let distorted = |lie: Lie| {
            let mut answer = told();
            answer.distort(&lie);
            answer.snapshot
        };
        assert_eq!(distorted(Lie::NoSnapshot), None);
        assert_eq!(distorted(Lie::EmptySnapshotId).unwrap().snapshot_id, "");
        assert_eq!(distorted(Lie::SnapshotId("t".to_owned())).unwrap().snapshot_id, "t");
        assert_eq!(distorted(Lie::Size(-1)).unwrap().size_bytes, -1);
        assert_eq!(distorted(Lie::NoCreationTime).unwrap().creation_time, None);
        assert_eq!(distorted(Lie::CreationTime(-9, 4)).unwrap().creation_time.unwrap().seconds, -9);
        assert_eq!(distorted(Lie::SnapshotGroup("g".to_owned())).unwrap().group_snapshot_id, "g");
        assert!(!distorted(Lie::NotReady).unwrap().ready_to_use);
        assert_eq!(distorted(Lie::NoVolume), told().snapshot);
    }

    #[test]
    fn groups_lie_as_told() {
        let distorted = |lie: Lie| {
            let member = |id: &str| base::proto::Snapshot { snapshot_id: id.to_owned(), ..Default::default() };
            let group = base::proto::VolumeGroupSnapshot {
                group_snapshot_id: "g".to_owned(),
                snapshots: vec![member("s"), member("t")],
                ready_to_use: true,
                ..Default::default()
            };
            let mut answer = GetVolumeGroupSnapshotResponse { group_snapshot: Some(group) };
            answer.distort(&lie);
            answer.group_snapshot
        };
        let ids = |lie| distorted(lie).unwrap().snapshots.into_iter().map(|it| it.snapshot_id).collect::<Vec<_>>();
        assert_eq!(distorted(Lie::NoSnapshot), None);
        assert_eq!(distorted(Lie::EmptySnapshotId).unwrap().group_snapshot_id, "");
        assert_eq!(distorted(Lie::SnapshotId("h".to_owned())).unwrap().group_snapshot_id, "h");
        assert!(!distorted(Lie::NotReady).unwrap().ready_to_use);
        assert_eq!(ids(Lie::EmptyMemberId), ["", "t"]);
        assert_eq!(ids(Lie::SameMemberId), ["s", "s"]);
        assert!(ids(Lie::OmitMembers).is_empty());
        assert_eq!(distorted(Lie::MemberOf("x".to_owned())).unwrap().snapshots[0].source_volume_id, "x");
    }

    #[test]
    fn listings_of_snapshots_lie_as_told() {
        let snapshot = base::proto::Snapshot { snapshot_id: "s".to_owned(), ..base::proto::Snapshot::default() };
        let distorted = |lie: &Lie| {
            let entry = list_snapshots_response::Entry { snapshot: Some(snapshot.clone()) };
            let mut answer = ListSnapshotsResponse { entries: vec![entry], next_token: String::new() };
            answer.distort(lie);
            answer
        };
        let ids = |lie: &Lie| -> Vec<Option<String>> {
            distorted(lie).entries.into_iter().map(|it| it.snapshot.map(|it| it.snapshot_id)).collect()
        };
        let id = |id: &str| Some(id.to_owned());
        assert_eq!(ids(&Lie::OmitSnapshots), []);
        assert_eq!(ids(&Lie::EntryWithoutSnapshot), [None, id("s")]);
        assert_eq!(ids(&Lie::AnotherSnapshotFirst("t".to_owned())), [id("t"), id("s")]);
        assert_eq!(ids(&Lie::OtherSnapshots(vec!["t".to_owned(), "u".to_owned()])), [id("t"), id("u")]);
        assert_eq!(ids(&Lie::NoSnapshot), [None]);
        assert_eq!(ids(&Lie::SnapshotId("u".to_owned())), [id("u")]);
        assert_ne!(distorted(&Lie::TokenLoop).next_token, "");
    }

    #[test]
    fn listings_lie_as_told() {
        assert_eq!(distorted(&Lie::OmitVolumes(["a".to_owned()].into())).entries.len(), 1);
        assert!(distorted(&Lie::OmitNodes).entries[0].status.as_ref().unwrap().published_node_ids.is_empty());
        assert!(distorted(&Lie::EntryWithoutVolume).entries[0].volume.is_none());
        assert!(distorted(&Lie::EntryWithoutStatus).entries.iter().all(|e| e.status.is_none()));
        let twice = distorted(&Lie::DuplicateEntries).entries;
        assert_eq!((twice.len(), &twice[2].volume), (4, &twice[0].volume));
        assert_ne!(distorted(&Lie::TokenLoop).next_token, "");
        assert!(prost::Message::encoded_len(&distorted(&Lie::Huge(5 << 20))) > 5 << 20);
        assert_eq!(distorted(&Lie::NotReady), listing());
    }
}
