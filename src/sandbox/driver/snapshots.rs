//! Creating, listing and deleting snapshots. Pure: the time is an argument.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::profile::Profile;
use super::refusal::Refusal;
use super::state::{Snapshot, State};
use super::validate;
use crate::proto::controller_service_capability::rpc::Type as Rpc;
use crate::proto::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, GetSnapshotRequest,
    GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse, list_snapshots_response,
};

impl State {
    /// Cuts a snapshot without being asked to, as an operator at the storage console would.
    pub fn cut(&mut self, name: &str, volume: &str, now: Timestamp) -> Option<String> {
        let size = self.volumes.get(volume)?.capacity;
        let id = self.next_id("snapshot");
        let (name, source) = (name.to_owned(), volume.to_owned());
        self.snapshots.insert(id.clone(), Snapshot { name, source, parameters: BTreeMap::new(), size, created: now });
        Some(id)
    }

    /// `CreateSnapshot`.
    pub fn create_snapshot(
        &mut self,
        profile: &Profile,
        request: &CreateSnapshotRequest,
        now: Timestamp,
    ) -> Result<CreateSnapshotResponse, Refusal> {
        profile.require(Rpc::CreateDeleteSnapshot)?;
        validate::name("name", &request.name)?;
        validate::required("source_volume_id", &request.source_volume_id)?;
        let parameters = validate::sorted(&request.parameters);
        if let Some((id, snapshot)) = self.snapshots.iter().find(|(_, s)| s.name == request.name) {
            return if snapshot.source == request.source_volume_id && snapshot.parameters == parameters {
                Ok(CreateSnapshotResponse { snapshot: Some(snapshot.describe(profile, id, now)) })
            } else {
                Err(Refusal::exists(format!("snapshot {:?} exists and is incompatible", request.name)))
            };
        }
        let snapshot = Snapshot {
            name: request.name.clone(),
            source: request.source_volume_id.clone(),
            parameters,
            size: self.existing(&request.source_volume_id)?.capacity,
            created: now,
        };
        let id = self.next_id("snapshot");
        let described = snapshot.describe(profile, &id, now);
        self.snapshots.insert(id, snapshot);
        Ok(CreateSnapshotResponse { snapshot: Some(described) })
    }

    /// `DeleteSnapshot`. What is gone already is a success.
    pub fn delete_snapshot(
        &mut self,
        profile: &Profile,
        request: &DeleteSnapshotRequest,
    ) -> Result<DeleteSnapshotResponse, Refusal> {
        profile.require(Rpc::CreateDeleteSnapshot)?;
        validate::required("snapshot_id", &request.snapshot_id)?;
        self.snapshots.remove(&request.snapshot_id);
        Ok(DeleteSnapshotResponse {})
    }

    /// `ListSnapshots`, in the order of the IDs. A filter that matches nothing gives an empty list.
    pub fn list_snapshots(
        &self,
        profile: &Profile,
        request: &ListSnapshotsRequest,
        now: Timestamp,
    ) -> Result<ListSnapshotsResponse, Refusal> {
        profile.require(Rpc::ListSnapshots)?;
        let wanted = |filter: &str, value: &str| filter.is_empty() || filter == value;
        let items = self
            .snapshots
            .iter()
            .filter(|(id, s)| wanted(&request.snapshot_id, id) && wanted(&request.source_volume_id, &s.source))
            .map(|(id, snapshot)| (id, (id, snapshot)));
        let (page, next_token) =
            validate::page(items, &request.starting_token, request.max_entries, profile.page_limit)?;
        let entries = page
            .into_iter()
            .map(|(id, s)| list_snapshots_response::Entry { snapshot: Some(s.describe(profile, id, now)) })
            .collect();
        Ok(ListSnapshotsResponse { entries, next_token })
    }

    /// `GetSnapshot`.
    pub fn get_snapshot(
        &self,
        profile: &Profile,
        request: &GetSnapshotRequest,
        now: Timestamp,
    ) -> Result<GetSnapshotResponse, Refusal> {
        profile.require(Rpc::GetSnapshot)?;
        validate::required("snapshot_id", &request.snapshot_id)?;
        let Some(snapshot) = self.snapshots.get(&request.snapshot_id) else {
            return Err(Refusal::not_found("snapshot", &request.snapshot_id));
        };
        Ok(GetSnapshotResponse { snapshot: Some(snapshot.describe(profile, &request.snapshot_id, now)) })
    }
}

impl Snapshot {
    fn describe(&self, profile: &Profile, id: &str, now: Timestamp) -> crate::proto::Snapshot {
        let age = now.duration_since(self.created);
        crate::proto::Snapshot {
            size_bytes: self.size,
            snapshot_id: id.to_owned(),
            source_volume_id: self.source.clone(),
            creation_time: Some(prost_types::Timestamp {
                seconds: self.created.as_second(),
                nanos: self.created.subsec_nanosecond(),
            }),
            ready_to_use: std::time::Duration::try_from(age).unwrap_or_default() >= profile.snapshot_ready_after,
            group_snapshot_id: String::new(),
        }
    }
}
