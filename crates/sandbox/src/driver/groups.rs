//! Groups of snapshots: taking, telling of, and deleting them. Pure: the time is an argument.
//!
//! The members of a group are snapshots like others, but for their group: they are listed, restored from, and never deleted alone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::profile::Profile;
use super::refusal::Refusal;
use super::state::{Group, Snapshot, State};
use super::validate;
use base::proto::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, DeleteVolumeGroupSnapshotRequest,
    DeleteVolumeGroupSnapshotResponse, GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    VolumeGroupSnapshot,
};

impl State {
    /// `CreateVolumeGroupSnapshot`.
    pub fn create_group(
        &mut self,
        profile: &Profile,
        request: &CreateVolumeGroupSnapshotRequest,
        now: Timestamp,
    ) -> Result<CreateVolumeGroupSnapshotResponse, Refusal> {
        profile.require_groups()?;
        profile.snapshot_secrets.admit(&request.secrets)?;
        validate::name("name", &request.name)?;
        let sources: BTreeSet<String> = request.source_volume_ids.iter().cloned().collect();
        if sources.is_empty() || sources.contains("") {
            return Err(Refusal::invalid("source_volume_ids has no ID, or an empty one"));
        }
        let parameters = validate::sorted(&request.parameters);
        if let Some((id, group)) = self.groups.iter().find(|(_, group)| group.name == request.name) {
            if group.sources != sources || group.parameters != parameters {
                return Err(Refusal::exists(format!("group {:?} exists and is incompatible", request.name)));
            }
            let id = id.clone();
            return Ok(CreateVolumeGroupSnapshotResponse { group_snapshot: self.tell_group(profile, &id, now) });
        }
        let sizes: BTreeMap<&String, i64> = sources
            .iter()
            .map(|volume| self.existing(volume).map(|found| (volume, found.capacity)))
            .collect::<Result<_, _>>()?;
        let id = self.next_id("group");
        let members = sizes.iter().map(|(volume, size)| {
            let name = format!("{}-{volume}", request.name);
            let member = Snapshot::of(&name, volume, BTreeMap::new(), *size, now);
            Snapshot { group: id.clone(), ..member }
        });
        for member in members.collect::<Vec<_>>() {
            let id = self.next_id("snapshot");
            self.snapshots.insert(id, member);
        }
        let group = Group { name: request.name.clone(), sources, parameters, created: now };
        self.groups.insert(id.clone(), group);
        Ok(CreateVolumeGroupSnapshotResponse { group_snapshot: self.tell_group(profile, &id, now) })
    }

    /// `GetVolumeGroupSnapshot`.
    pub fn get_group(
        &mut self,
        profile: &Profile,
        request: &GetVolumeGroupSnapshotRequest,
        now: Timestamp,
    ) -> Result<GetVolumeGroupSnapshotResponse, Refusal> {
        profile.require_groups()?;
        profile.snapshot_list_secrets.admit(&request.secrets)?;
        let id = &request.group_snapshot_id;
        validate::required("group_snapshot_id", id)?;
        if !self.groups.contains_key(id) {
            return Err(Refusal::not_found("group", id));
        }
        self.admit_members(id, &request.snapshot_ids)?;
        Ok(GetVolumeGroupSnapshotResponse { group_snapshot: self.tell_group(profile, id, now) })
    }

    /// `DeleteVolumeGroupSnapshot`. What is gone already is a success. A caller that knows no members need not name them.
    pub fn delete_group(
        &mut self,
        profile: &Profile,
        request: &DeleteVolumeGroupSnapshotRequest,
    ) -> Result<DeleteVolumeGroupSnapshotResponse, Refusal> {
        profile.require_groups()?;
        profile.snapshot_secrets.admit(&request.secrets)?;
        let id = &request.group_snapshot_id;
        validate::required("group_snapshot_id", id)?;
        if self.groups.contains_key(id) {
            self.admit_members(id, &request.snapshot_ids)?;
            self.groups.remove(id);
            self.snapshots.retain(|_, snapshot| snapshot.group != *id);
        }
        Ok(DeleteVolumeGroupSnapshotResponse {})
    }

    /// The snapshots of a group, by ID.
    pub fn members(&self, group: &str) -> BTreeSet<String> {
        let members = self.snapshots.iter().filter(|(_, snapshot)| snapshot.group == group);
        members.map(|(id, _)| id.clone()).collect()
    }

    fn admit_members(&self, group: &str, named: &[String]) -> Result<(), Refusal> {
        let named: BTreeSet<String> = named.iter().cloned().collect();
        if named.is_empty() || named == self.members(group) {
            return Ok(());
        }
        Err(Refusal::invalid(format!("snapshot_ids are not the snapshots of the group {group:?}")))
    }

    /// The group in an answer. The answer is counted for each of its snapshots.
    fn tell_group(&mut self, profile: &Profile, id: &str, now: Timestamp) -> Option<VolumeGroupSnapshot> {
        let created = self.groups.get(id)?.created;
        let members = self.snapshots.iter_mut().filter(|(_, snapshot)| snapshot.group == id);
        let snapshots: Vec<_> = members.map(|(id, snapshot)| snapshot.tell(profile, id, now)).collect();
        Some(VolumeGroupSnapshot {
            group_snapshot_id: id.to_owned(),
            ready_to_use: snapshots.iter().all(|snapshot| snapshot.ready_to_use),
            snapshots,
            creation_time: Some(prost_types::Timestamp {
                seconds: created.as_second(),
                nanos: created.subsec_nanosecond(),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn request(name: &str, volumes: &[&str]) -> CreateVolumeGroupSnapshotRequest {
        let source_volume_ids = volumes.iter().map(|&volume| volume.to_owned()).collect();
        CreateVolumeGroupSnapshotRequest { name: name.to_owned(), source_volume_ids, ..Default::default() }
    }

    fn state() -> State {
        let mut state = State::default();
        state.seed("v");
        state.seed("w");
        state
    }

    fn created(state: &mut State, profile: &Profile) -> VolumeGroupSnapshot {
        let answer = state.create_group(profile, &request("g", &["v", "w"]), Timestamp::UNIX_EPOCH);
        answer.unwrap().group_snapshot.unwrap()
    }

    fn delete(id: &str, members: &[String]) -> DeleteVolumeGroupSnapshotRequest {
        let (group_snapshot_id, snapshot_ids) = (id.to_owned(), members.to_vec());
        DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, ..Default::default() }
    }

    #[test]
    fn a_group_is_one_snapshot_of_each_volume_and_is_made_once() {
        let (profile, mut state) = (Profile::default(), state());
        let first = created(&mut state, &profile);
        let volumes: Vec<&str> = first.snapshots.iter().map(|it| it.source_volume_id.as_str()).collect();
        assert_eq!((volumes, state.snapshots().len()), (vec!["v", "w"], 2));
        assert!(first.ready_to_use && first.snapshots.iter().all(|it| it.group_snapshot_id == first.group_snapshot_id));
        assert_eq!(created(&mut state, &profile).group_snapshot_id, first.group_snapshot_id);
        assert_eq!(state.snapshots().len(), 2);
        let mut code = |volumes: &[&str], name| {
            state.create_group(&profile, &request(name, volumes), Timestamp::UNIX_EPOCH).unwrap_err().code
        };
        assert_eq!(code(&["v"], "g"), Code::AlreadyExists);
        assert_eq!(code(&["x"], "h"), Code::NotFound);
        assert_eq!(code(&[], "h"), Code::InvalidArgument);
        let bare = Profile { group_controller: BTreeSet::new(), ..profile };
        let refused = state.create_group(&bare, &request("g", &["v"]), Timestamp::UNIX_EPOCH);
        assert_eq!(refused.unwrap_err().code, Code::Unimplemented);
    }

    #[test]
    fn a_group_is_ready_with_the_last_of_its_snapshots() {
        let (profile, mut state) = (Profile { snapshots_wait: true, ..Profile::default() }, state());
        let group = created(&mut state, &profile);
        let get = GetVolumeGroupSnapshotRequest {
            group_snapshot_id: group.group_snapshot_id,
            ..GetVolumeGroupSnapshotRequest::default()
        };
        for (ready, member) in group.snapshots.iter().enumerate() {
            let told = state.get_group(&profile, &get, Timestamp::UNIX_EPOCH).unwrap().group_snapshot.unwrap();
            assert!(!told.ready_to_use);
            assert_eq!(told.snapshots.iter().filter(|it| it.ready_to_use).count(), ready);
            state.snapshot_mut(&member.snapshot_id).unwrap().ready = Some(true);
        }
        let told = state.get_group(&profile, &get, Timestamp::UNIX_EPOCH).unwrap().group_snapshot.unwrap();
        assert!(told.ready_to_use);
        let other = GetVolumeGroupSnapshotRequest { group_snapshot_id: "other".to_owned(), ..get };
        let refused = state.get_group(&profile, &other, Timestamp::UNIX_EPOCH);
        assert_eq!(refused.unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn a_group_is_deleted_with_its_snapshots() {
        let (profile, mut state) = (Profile::default(), state());
        let group = created(&mut state, &profile);
        let refused = state.delete_group(&profile, &delete(&group.group_snapshot_id, &["other".to_owned()]));
        assert_eq!(refused.unwrap_err().code, Code::InvalidArgument);
        let members: Vec<String> = group.snapshots.into_iter().map(|it| it.snapshot_id).collect();
        for ids in [&members[..], &[]] {
            assert!(state.delete_group(&profile, &delete(&group.group_snapshot_id, ids)).is_ok(), "gone, or again");
            assert!(state.snapshots().is_empty());
        }
    }
}
