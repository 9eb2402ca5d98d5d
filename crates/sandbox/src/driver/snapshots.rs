//! Creating, listing and deleting snapshots. Pure: the time is an argument.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::profile::Profile;
use super::refusal::Refusal;
use super::state::{Snapshot, State};
use super::validate;
use base::proto::controller_service_capability::rpc::Type as Rpc;
use base::proto::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, GetSnapshotRequest,
    GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse, list_snapshots_response,
};

impl State {
    /// Cuts a snapshot without a call, as an operator at the storage console would.
    pub fn cut(&mut self, name: &str, volume: &str, now: Timestamp) -> Option<String> {
        let size = self.volumes.get(volume)?.capacity;
        let id = self.next_id("snapshot");
        self.snapshots.insert(id.clone(), Snapshot::of(name, volume, BTreeMap::new(), size, now));
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
        profile.snapshot_secrets.admit(&request.secrets)?;
        validate::name("name", &request.name)?;
        validate::required("source_volume_id", &request.source_volume_id)?;
        let parameters = validate::sorted(&request.parameters);
        if let Some((id, snapshot)) = self.snapshots.iter_mut().find(|(_, s)| s.name == request.name) {
            return if snapshot.source == request.source_volume_id && snapshot.parameters == parameters {
                Ok(CreateSnapshotResponse { snapshot: Some(snapshot.tell(profile, id, now)) })
            } else {
                Err(Refusal::exists(format!("snapshot {:?} exists and is incompatible", request.name)))
            };
        }
        let size = self.existing(&request.source_volume_id)?.capacity;
        let mut snapshot = Snapshot::of(&request.name, &request.source_volume_id, parameters, size, now);
        let id = self.next_id("snapshot");
        let described = snapshot.tell(profile, &id, now);
        self.snapshots.insert(id, snapshot);
        Ok(CreateSnapshotResponse { snapshot: Some(described) })
    }

    /// `DeleteSnapshot`. What is gone already is a success; the members of a group go with their group alone.
    pub fn delete_snapshot(
        &mut self,
        profile: &Profile,
        request: &DeleteSnapshotRequest,
    ) -> Result<DeleteSnapshotResponse, Refusal> {
        profile.require(Rpc::CreateDeleteSnapshot)?;
        profile.snapshot_secrets.admit(&request.secrets)?;
        validate::required("snapshot_id", &request.snapshot_id)?;
        if let Some(snapshot) = self.snapshots.get(&request.snapshot_id).filter(|it| !it.group.is_empty()) {
            return Err(Refusal::invalid(format!(
                "snapshot {:?} is part of the group {:?}",
                request.snapshot_id, snapshot.group
            )));
        }
        self.snapshots.remove(&request.snapshot_id);
        Ok(DeleteSnapshotResponse {})
    }

    /// `ListSnapshots`, in the order of the IDs. A filter that matches nothing gives an empty list.
    pub fn list_snapshots(
        &mut self,
        profile: &Profile,
        request: &ListSnapshotsRequest,
        now: Timestamp,
    ) -> Result<ListSnapshotsResponse, Refusal> {
        profile.require(Rpc::ListSnapshots)?;
        profile.snapshot_list_secrets.admit(&request.secrets)?;
        let wanted = |filter: &str, value: &str| filter.is_empty() || filter == value;
        let items = self
            .snapshots
            .iter_mut()
            .filter(|(id, s)| wanted(&request.snapshot_id, id) && wanted(&request.source_volume_id, &s.source))
            .map(|(id, snapshot)| (id, (id, snapshot)));
        let (page, next_token) =
            validate::page(items, &request.starting_token, request.max_entries, profile.page_limit)?;
        let entries = page
            .into_iter()
            .map(|(id, s)| list_snapshots_response::Entry { snapshot: Some(s.tell(profile, id, now)) })
            .collect();
        Ok(ListSnapshotsResponse { entries, next_token })
    }

    /// `GetSnapshot`.
    pub fn get_snapshot(
        &mut self,
        profile: &Profile,
        request: &GetSnapshotRequest,
        now: Timestamp,
    ) -> Result<GetSnapshotResponse, Refusal> {
        profile.require(Rpc::GetSnapshot)?;
        profile.snapshot_list_secrets.admit(&request.secrets)?;
        validate::required("snapshot_id", &request.snapshot_id)?;
        let Some(snapshot) = self.snapshots.get_mut(&request.snapshot_id) else {
            return Err(Refusal::not_found("snapshot", &request.snapshot_id));
        };
        Ok(GetSnapshotResponse { snapshot: Some(snapshot.tell(profile, &request.snapshot_id, now)) })
    }
}

impl Snapshot {
    pub(super) fn of(
        name: &str,
        source: &str,
        parameters: BTreeMap<String, String>,
        size: i64,
        created: Timestamp,
    ) -> Self {
        let (name, source) = (name.to_owned(), source.to_owned());
        Self { name, source, parameters, size, created, told: 0, ready: None, group: String::new() }
    }

    /// Whether it is ready to use: by the operator's decision, or else once it is old enough and was reported often
    /// enough.
    fn is_ready(&self, profile: &Profile, now: Timestamp) -> bool {
        let age = std::time::Duration::try_from(now.duration_since(self.created)).unwrap_or_default();
        let comes =
            !profile.snapshots_wait && age >= profile.snapshot_ready_after && self.told >= profile.snapshot_ready_polls;
        self.ready.unwrap_or(comes)
    }

    /// The snapshot in an answer. The answer is counted.
    pub(super) fn tell(&mut self, profile: &Profile, id: &str, now: Timestamp) -> base::proto::Snapshot {
        let ready_to_use = self.is_ready(profile, now);
        self.told = self.told.saturating_add(1);
        base::proto::Snapshot {
            size_bytes: self.size,
            snapshot_id: id.to_owned(),
            source_volume_id: self.source.clone(),
            creation_time: Some(prost_types::Timestamp {
                seconds: self.created.as_second(),
                nanos: self.created.subsec_nanosecond(),
            }),
            ready_to_use,
            group_snapshot_id: self.group.clone(),
            accessible_topology: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::super::profile::Secrets;
    use super::*;

    fn cut(name: &str) -> CreateSnapshotRequest {
        let (name, source_volume_id) = (name.to_owned(), "v".to_owned());
        CreateSnapshotRequest { name, source_volume_id, ..CreateSnapshotRequest::default() }
    }

    fn asked(state: &mut State, profile: &Profile, name: &str) -> base::proto::Snapshot {
        state.create_snapshot(profile, &cut(name), Timestamp::UNIX_EPOCH).unwrap().snapshot.unwrap()
    }

    fn state() -> State {
        let mut state = State::default();
        state.seed("v");
        state
    }

    #[test]
    fn a_snapshot_is_ready_after_as_many_answers_as_the_profile_says_whichever_call_they_are_to() {
        let profile = Profile { snapshot_ready_polls: 3, ..Profile::default() };
        let mut state = state();
        let first = asked(&mut state, &profile, "s");
        assert!(!first.ready_to_use && !asked(&mut state, &profile, "s").ready_to_use);
        let list = ListSnapshotsRequest { snapshot_id: first.snapshot_id.clone(), ..ListSnapshotsRequest::default() };
        let mut listed = || {
            let answer = state.list_snapshots(&profile, &list, Timestamp::UNIX_EPOCH).unwrap();
            answer.entries[0].snapshot.as_ref().unwrap().ready_to_use
        };
        assert_eq!([listed(), listed()], [false, true]);
        let get = GetSnapshotRequest { snapshot_id: first.snapshot_id, ..GetSnapshotRequest::default() };
        assert!(state.get_snapshot(&profile, &get, Timestamp::UNIX_EPOCH).unwrap().snapshot.unwrap().ready_to_use);
    }

    #[test]
    fn an_operators_word_on_a_snapshot_counts_more_than_the_profile() {
        for (waits, word, ready) in [(true, None, false), (true, Some(true), true), (false, Some(false), false)] {
            let profile = Profile { snapshots_wait: waits, ..Profile::default() };
            let mut state = state();
            let id = asked(&mut state, &profile, "s").snapshot_id;
            state.snapshot_mut(&id).unwrap().ready = word;
            assert_eq!(asked(&mut state, &profile, "s").ready_to_use, ready, "{word:?}");
        }
    }

    #[test]
    fn a_member_of_a_group_is_not_deleted_alone() {
        let (profile, mut state) = (Profile::default(), state());
        let id = asked(&mut state, &profile, "s").snapshot_id;
        state.snapshot_mut(&id).unwrap().group = "g".to_owned();
        assert_eq!(asked(&mut state, &profile, "s").group_snapshot_id, "g");
        let delete = DeleteSnapshotRequest { snapshot_id: id.clone(), ..DeleteSnapshotRequest::default() };
        assert_eq!(state.delete_snapshot(&profile, &delete).unwrap_err().code, Code::InvalidArgument);
        assert!(state.lose_snapshot(&id) && !state.lose_snapshot(&id));
        assert!(state.delete_snapshot(&profile, &delete).is_ok());
    }

    #[test]
    fn cuts_and_look_ups_have_secrets_of_their_own() {
        let secrets = |value: &str| Secrets([("password".to_owned(), value.to_owned())].into());
        let snapshot_secrets = secrets("cut");
        let profile = Profile { snapshot_secrets, snapshot_list_secrets: secrets("list"), ..Profile::default() };
        let mut state = state();
        let with = |value: &str| [("password".to_owned(), value.to_owned())].into();
        for (given, fits) in [("cut", true), ("list", false), ("", false)] {
            let cut = CreateSnapshotRequest { secrets: with(given), ..cut("s") };
            assert_eq!(state.create_snapshot(&profile, &cut, Timestamp::UNIX_EPOCH).is_ok(), fits, "{given}");
            let (snapshot_id, secrets) = ("unknown".to_owned(), with(given));
            let delete = DeleteSnapshotRequest { snapshot_id, secrets };
            assert_eq!(state.delete_snapshot(&profile, &delete).is_ok(), fits, "{given}");
            let list = ListSnapshotsRequest { secrets: with(given), ..ListSnapshotsRequest::default() };
            let listed = state.list_snapshots(&profile, &list, Timestamp::UNIX_EPOCH);
            assert_eq!(listed.is_ok(), given == "list", "{given}");
        }
    }

    #[test]
    fn snapshots_are_listed_page_by_page() {
        let (profile, mut state) = (Profile::default(), state());
        let ids: Vec<String> = ["a", "b", "c"].map(|name| asked(&mut state, &profile, name).snapshot_id).into();
        let (mut seen, mut token) = (Vec::new(), String::new());
        loop {
            let list = ListSnapshotsRequest {
                max_entries: 2,
                starting_token: token,
                source_volume_id: "v".to_owned(),
                ..ListSnapshotsRequest::default()
            };
            let page = state.list_snapshots(&profile, &list, Timestamp::UNIX_EPOCH).unwrap();
            seen.extend(page.entries.into_iter().map(|it| it.snapshot.unwrap().snapshot_id));
            token = page.next_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(seen, ids);
    }
}
