use jiff::Timestamp;
use tonic::Code;

use super::profile::{GIB, Node, Profile};
use super::refusal::Refusal;
use super::state::State;
use base::proto::controller_service_capability::rpc::Type as Rpc;
use base::proto::plugin_capability::{service, volume_expansion};
use base::proto::volume_capability::access_mode::Mode;
use base::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use base::proto::volume_content_source::{SnapshotSource, Type as Source, VolumeSource};
use base::proto::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerGetVolumeRequest, ControllerModifyVolumeRequest,
    ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest,
    DeleteSnapshotRequest, DeleteVolumeRequest, GetCapacityRequest, GetSnapshotRequest, ListSnapshotsRequest,
    ListVolumesRequest, Topology, TopologyRequirement, ValidateVolumeCapabilitiesRequest, VolumeCapability,
    VolumeContentSource,
};

use Mode::{
    MultiNodeMultiWriter as Rwx, MultiNodeReaderOnly as Rox, MultiNodeSingleWriter as Mnsw,
    SingleNodeReaderOnly as Snro, SingleNodeWriter as Snw,
};

pub(super) fn mount(mode: Mode) -> VolumeCapability {
    let access_type = Some(AccessType::Mount(MountVolume::default()));
    VolumeCapability { access_type, access_mode: Some(AccessMode { mode: mode as i32 }) }
}

pub(super) fn publish(volume: &str, node: &str, mode: Mode, readonly: bool) -> ControllerPublishVolumeRequest {
    ControllerPublishVolumeRequest {
        volume_id: volume.to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(mount(mode)),
        readonly,
        ..ControllerPublishVolumeRequest::default()
    }
}

fn unpublish(volume: &str, node: &str) -> ControllerUnpublishVolumeRequest {
    let (volume_id, node_id) = (volume.to_owned(), node.to_owned());
    ControllerUnpublishVolumeRequest { volume_id, node_id, ..ControllerUnpublishVolumeRequest::default() }
}

pub(super) fn create(name: &str, gib: i64) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
        volume_capabilities: vec![mount(Snw)],
        ..CreateVolumeRequest::default()
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Code {
    result.map_or_else(|refusal| refusal.code, |_| Code::Ok)
}

fn created(state: &mut State, profile: &Profile, request: &CreateVolumeRequest) -> String {
    state.create_volume(profile, request).unwrap().volume.unwrap().volume_id
}

fn seeded() -> (State, Profile) {
    let mut state = State::default();
    state.seed("v");
    (state, Profile::with_nodes(["a", "b"]))
}

#[test]
fn publish_validates_before_it_looks_things_up() {
    let (mut state, profile) = seeded();
    let cases = [
        (publish("", "a", Snw, false), Code::InvalidArgument),
        (publish("v", "", Snw, false), Code::InvalidArgument),
        (
            ControllerPublishVolumeRequest { volume_capability: None, ..publish("x", "x", Snw, false) },
            Code::InvalidArgument,
        ),
        (publish("v", "a", Mode::Unknown, false), Code::InvalidArgument),
        (publish("unknown", "a", Snw, false), Code::NotFound),
        (publish("v", "unknown", Snw, false), Code::NotFound),
        (publish("v", "a", Snw, false), Code::Ok),
    ];
    for (request, expected) in cases {
        assert_eq!(code(state.publish(&profile, &request)), expected, "{request:?}");
    }
    assert!(state.published("unknown").is_empty() && !state.volumes().contains_key("unknown"));
}

#[test]
fn unknown_volumes_and_nodes_are_registered_on_demand() {
    let profile = Profile { accept_unknown_volumes: true, accept_unknown_nodes: true, ..Profile::default() };
    let mut state = State::default();
    assert_eq!(code(state.publish(&profile, &publish("v", "a", Snw, false))), Code::Ok);
    assert_eq!(state.published("v"), ["a".to_owned()].into());
}

#[test]
fn publish_again_is_the_same_answer_or_already_exists() {
    let (mut state, profile) = seeded();
    let first = state.publish(&profile, &publish("v", "a", Snw, false)).unwrap();
    assert_eq!(state.publish(&profile, &publish("v", "a", Snw, false)).unwrap(), first);
    assert_eq!(code(state.publish(&profile, &publish("v", "a", Snw, true))), Code::AlreadyExists);
    assert_eq!(code(state.publish(&profile, &publish("v", "a", Rwx, false))), Code::AlreadyExists);
    assert!(state.detach_behind("v", "a") && !state.detach_behind("v", "a"));
    assert_ne!(state.publish(&profile, &publish("v", "a", Snw, false)).unwrap(), first, "a new attachment");
}

#[test]
fn a_second_node_is_a_question_of_access_modes() {
    let cases = [
        ((Snw, false), (Snw, false), false),
        ((Snw, false), (Rwx, false), false),
        ((Rwx, false), (Snw, false), false),
        ((Snro, true), (Rox, true), false),
        ((Rwx, false), (Rwx, false), true),
        ((Rox, true), (Rox, true), true),
        ((Mnsw, false), (Mnsw, false), false),
        ((Mnsw, false), (Mnsw, true), true),
        ((Mnsw, true), (Mnsw, false), true),
    ];
    for (first, second, fits) in cases {
        let (mut state, profile) = seeded();
        state.publish(&profile, &publish("v", "a", first.0, first.1)).unwrap();
        let answer = state.publish(&profile, &publish("v", "b", second.0, second.1));
        assert_eq!(answer.is_ok(), fits, "{first:?} then {second:?}");
        if let Err(refusal) = answer {
            assert_eq!(refusal.code, Code::FailedPrecondition);
            assert!(refusal.message.contains("\"a\""), "it names the node: {}", refusal.message);
        }
    }
}

#[test]
fn a_full_node_is_exhausted_but_keeps_what_it_has() {
    let (mut state, mut profile) = seeded();
    state.seed("w");
    profile.nodes.insert("a".to_owned(), Node { max_volumes: 1, ..Node::default() });
    assert_eq!(code(state.publish(&profile, &publish("v", "a", Snw, false))), Code::Ok);
    assert_eq!(code(state.publish(&profile, &publish("w", "a", Snw, false))), Code::ResourceExhausted);
    assert_eq!(code(state.publish(&profile, &publish("v", "a", Snw, false))), Code::Ok);
}

#[test]
fn readonly_needs_its_capability() {
    let (mut state, profile) = seeded();
    let profile = profile.without(Rpc::PublishReadonly);
    assert_eq!(code(state.publish(&profile, &publish("v", "a", Rox, true))), Code::InvalidArgument);
}

#[test]
fn unpublish_of_what_is_not_there_succeeds() {
    let (mut state, profile) = seeded();
    let cases = [
        ("", "a", Code::InvalidArgument),
        ("unknown", "a", Code::Ok),
        ("v", "unknown", Code::Ok),
        ("v", "a", Code::Ok),
    ];
    for (volume, node, expected) in cases {
        assert_eq!(code(state.unpublish(&profile, &unpublish(volume, node))), expected, "{volume} {node}");
    }
    for node in ["a", "b"] {
        state.publish(&profile, &publish("v", node, Rwx, false)).unwrap();
    }
    state.unpublish(&profile, &unpublish("v", "a")).unwrap();
    assert_eq!(state.published("v"), ["b".to_owned()].into());
    state.publish(&profile, &publish("v", "a", Rwx, false)).unwrap();
    state.unpublish(&profile, &unpublish("v", "")).unwrap();
    assert!(state.published("v").is_empty(), "no node means all nodes");
}

#[test]
fn calls_without_their_capability_are_unimplemented() {
    let (mut state, _) = seeded();
    let bare = Profile { controller: [].into(), ..Profile::with_nodes(["a"]) };
    let codes = [
        code(state.publish(&bare, &publish("v", "a", Snw, false))),
        code(state.unpublish(&bare, &unpublish("v", "a"))),
        code(state.create_volume(&bare, &create("x", 1))),
        code(state.delete_volume(&bare, &DeleteVolumeRequest::default())),
        code(state.list_volumes(&bare, &ListVolumesRequest::default())),
        code(state.get_capacity(&bare, &GetCapacityRequest::default())),
        code(state.get_volume(&bare, &ControllerGetVolumeRequest::default())),
        code(state.expand_volume(&bare, &ControllerExpandVolumeRequest::default())),
        code(state.modify_volume(&bare, &ControllerModifyVolumeRequest::default())),
        code(state.create_snapshot(&bare, &CreateSnapshotRequest::default(), Timestamp::UNIX_EPOCH)),
        code(state.delete_snapshot(&bare, &DeleteSnapshotRequest::default())),
        code(state.list_snapshots(&bare, &ListSnapshotsRequest::default(), Timestamp::UNIX_EPOCH)),
        code(state.get_snapshot(&bare, &GetSnapshotRequest::default(), Timestamp::UNIX_EPOCH)),
    ];
    assert_eq!(codes, [Code::Unimplemented; 13]);
}

#[test]
fn create_is_idempotent_by_name() {
    let profile = Profile::default();
    let mut state = State::default();
    let id = created(&mut state, &profile, &create("x", 2));
    assert_eq!(created(&mut state, &profile, &create("x", 2)), id);
    assert_eq!(created(&mut state, &profile, &create("x", 1)), id, "large enough");
    let limited = CapacityRange { required_bytes: 0, limit_bytes: GIB };
    let source = VolumeContentSource { r#type: Some(Source::Volume(VolumeSource { volume_id: id })) };
    let mutable = [("iops".to_owned(), "1".to_owned())];
    let others = [
        create("x", 3),
        CreateVolumeRequest { capacity_range: Some(limited), ..create("x", 2) },
        CreateVolumeRequest { volume_capabilities: vec![mount(Rwx)], ..create("x", 2) },
        CreateVolumeRequest { parameters: [("k".to_owned(), "v".to_owned())].into(), ..create("x", 2) },
        CreateVolumeRequest { mutable_parameters: mutable.into(), ..create("x", 2) },
        CreateVolumeRequest { volume_content_source: Some(source), ..create("x", 2) },
    ];
    for request in others {
        assert_eq!(code(state.create_volume(&profile, &request)), Code::AlreadyExists, "{request:?}");
    }
    assert_eq!(state.volumes().len(), 1);
}

#[test]
fn create_refuses_what_it_cannot_make() {
    let profile = Profile { capacity: 10 * GIB, ..Profile::default() };
    let mut state = State::default();
    let from = |source| Some(VolumeContentSource { r#type: Some(source) });
    let snapshot = Source::Snapshot(SnapshotSource { snapshot_id: "unknown".to_owned() });
    let volume = Source::Volume(VolumeSource { volume_id: "unknown".to_owned() });
    let unknown = [("color".to_owned(), "red".to_owned())];
    let cases = [
        (create("", 1), Code::InvalidArgument),
        (create("x", -1), Code::InvalidArgument),
        (CreateVolumeRequest { volume_capabilities: Vec::new(), ..create("x", 1) }, Code::InvalidArgument),
        (CreateVolumeRequest { mutable_parameters: unknown.into(), ..create("x", 1) }, Code::InvalidArgument),
        (
            CreateVolumeRequest { accessibility_requirements: Some(TopologyRequirement::default()), ..create("x", 1) },
            Code::InvalidArgument,
        ),
        (
            CreateVolumeRequest { volume_content_source: Some(VolumeContentSource::default()), ..create("x", 1) },
            Code::InvalidArgument,
        ),
        (CreateVolumeRequest { volume_content_source: from(snapshot), ..create("x", 1) }, Code::NotFound),
        (CreateVolumeRequest { volume_content_source: from(volume), ..create("x", 1) }, Code::NotFound),
        (create("x", 2048), Code::OutOfRange),
        (create("x", 11), Code::ResourceExhausted),
        (CreateVolumeRequest { capacity_range: None, ..create("x", 0) }, Code::Ok),
    ];
    for (request, expected) in cases {
        assert_eq!(code(state.create_volume(&profile, &request)), expected, "{request:?}");
    }
}

#[test]
fn copies_are_at_least_as_large_as_their_source() {
    let profile = Profile::default();
    let mut state = State::default();
    let source = created(&mut state, &profile, &create("source", 5));
    let clone = VolumeContentSource { r#type: Some(Source::Volume(VolumeSource { volume_id: source.clone() })) };
    let small = CreateVolumeRequest { volume_content_source: Some(clone.clone()), ..create("clone", 1) };
    let volume = state.create_volume(&profile, &small).unwrap().volume.unwrap();
    assert_eq!((volume.capacity_bytes, volume.content_source), (5 * GIB, Some(clone.clone())));
    let limit = Some(CapacityRange { required_bytes: GIB, limit_bytes: GIB });
    let tight = CreateVolumeRequest { name: "tight".to_owned(), capacity_range: limit, ..small };
    assert_eq!(code(state.create_volume(&profile, &tight)), Code::OutOfRange);
}

#[test]
fn a_published_volume_is_not_deleted() {
    let (mut state, profile) = seeded();
    state.publish(&profile, &publish("v", "a", Snw, false)).unwrap();
    let delete = |id: &str| DeleteVolumeRequest { volume_id: id.to_owned(), ..DeleteVolumeRequest::default() };
    assert_eq!(code(state.delete_volume(&profile, &delete(""))), Code::InvalidArgument);
    assert_eq!(code(state.delete_volume(&profile, &delete("v"))), Code::FailedPrecondition);
    state.unpublish(&profile, &unpublish("v", "a")).unwrap();
    for _ in 0..2 {
        assert_eq!(code(state.delete_volume(&profile, &delete("v"))), Code::Ok);
    }
    assert!(state.volumes().is_empty());
}

#[test]
fn validation_confirms_or_tells_why_not() {
    let profile = Profile::default();
    let mut state = State::default();
    let id = created(&mut state, &profile, &create("x", 1));
    let ask = |volume_id: &str, volume_capabilities: Vec<VolumeCapability>| ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id.to_owned(),
        volume_capabilities,
        ..ValidateVolumeCapabilitiesRequest::default()
    };
    let cases = [
        (ask("", vec![mount(Snw)]), Code::InvalidArgument),
        (ask(&id, Vec::new()), Code::InvalidArgument),
        (ask(&id, vec![VolumeCapability::default()]), Code::InvalidArgument),
        (ask("unknown", vec![mount(Snw)]), Code::NotFound),
    ];
    for (request, expected) in cases {
        assert_eq!(code(state.validate_volume_capabilities(&profile, &request)), expected, "{request:?}");
    }
    let confirmed = state.validate_volume_capabilities(&profile, &ask(&id, vec![mount(Snw)])).unwrap();
    assert_eq!(confirmed.confirmed.unwrap().volume_capabilities, [mount(Snw)]);
    let refused = state.validate_volume_capabilities(&profile, &ask(&id, vec![mount(Snw), mount(Rwx)])).unwrap();
    assert!(refused.confirmed.is_none() && !refused.message.is_empty());
}

#[test]
fn listings_tell_what_the_capabilities_promise() {
    let (mut state, profile) = seeded();
    state.attach_behind("v", "b");
    let ask = ListVolumesRequest::default();
    let status = state.list_volumes(&profile, &ask).unwrap().entries[0].status.clone().unwrap();
    assert_eq!((status.published_node_ids, status.volume_condition.is_some()), (vec!["b".to_owned()], true));
    let silent = profile.without(Rpc::ListVolumesPublishedNodes).without(Rpc::VolumeCondition);
    assert!(state.list_volumes(&silent, &ask).unwrap().entries[0].status.is_none());
    let get = |id: &str| ControllerGetVolumeRequest { volume_id: id.to_owned() };
    assert_eq!(code(state.get_volume(&silent, &get(""))), Code::InvalidArgument);
    assert_eq!(code(state.get_volume(&silent, &get("unknown"))), Code::NotFound);
    assert!(state.get_volume(&silent, &get("v")).unwrap().status.unwrap().published_node_ids.is_empty());
}

#[test]
fn volumes_grow_and_never_shrink() {
    let (mut state, mut profile) = seeded();
    let expand = |id: &str, required_bytes: i64, limit_bytes: i64| ControllerExpandVolumeRequest {
        volume_id: id.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes }),
        ..ControllerExpandVolumeRequest::default()
    };
    let cases = [
        (expand("", GIB, 0), Code::InvalidArgument),
        (ControllerExpandVolumeRequest { capacity_range: None, ..expand("v", 0, 0) }, Code::InvalidArgument),
        (expand("unknown", GIB, 0), Code::NotFound),
        (expand("v", 4096 * GIB, 0), Code::OutOfRange),
        (expand("v", 0, GIB / 2), Code::OutOfRange),
        (expand("v", 0, 0), Code::InvalidArgument),
        (expand("v", 3 * GIB, 2 * GIB), Code::InvalidArgument),
        (
            ControllerExpandVolumeRequest {
                volume_capability: Some(VolumeCapability::default()),
                ..expand("v", 2 * GIB, 0)
            },
            Code::InvalidArgument,
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(code(state.expand_volume(&profile, &request)), expected, "{request:?}");
        assert_eq!(state.volumes()["v"].capacity, GIB, "a refusal changes nothing: {request:?}");
    }
    let grown = state.expand_volume(&profile, &expand("v", 2 * GIB, 0)).unwrap();
    assert_eq!((grown.capacity_bytes, grown.node_expansion_required), (2 * GIB, true));
    let block = VolumeCapability { access_type: Some(AccessType::Block(BlockVolume {})), ..mount(Snw) };
    let again = ControllerExpandVolumeRequest { volume_capability: Some(block), ..expand("v", GIB, 0) };
    let same = state.expand_volume(&profile, &again).unwrap();
    assert_eq!((same.capacity_bytes, same.node_expansion_required), (2 * GIB, false));
    profile.expansion = Some(volume_expansion::Type::Offline as i32);
    state.attach_behind("v", "a");
    assert_eq!(code(state.expand_volume(&profile, &expand("v", 3 * GIB, 0))), Code::FailedPrecondition);
}

#[test]
fn modify_changes_the_given_keys_only() {
    let (mut state, profile) = seeded();
    let modify = |id: &str, key: &str| ControllerModifyVolumeRequest {
        volume_id: id.to_owned(),
        mutable_parameters: [(key.to_owned(), "1".to_owned())].into(),
        ..ControllerModifyVolumeRequest::default()
    };
    let cases = [
        ("", "iops", Code::InvalidArgument),
        ("unknown", "iops", Code::NotFound),
        ("v", "color", Code::InvalidArgument),
        ("v", "iops", Code::Ok),
        ("v", "throughput", Code::Ok),
        ("v", "iops", Code::Ok),
    ];
    for (id, key, expected) in cases {
        assert_eq!(code(state.modify_volume(&profile, &modify(id, key))), expected, "{id} {key}");
    }
    assert_eq!(state.volumes()["v"].mutable.len(), 2, "keys that are not told stay as they are");
    let nothing = ControllerModifyVolumeRequest { mutable_parameters: [].into(), ..modify("v", "iops") };
    assert_eq!(code(state.modify_volume(&profile, &nothing)), Code::InvalidArgument);
    let mut mixed = modify("v", "color");
    mixed.mutable_parameters.insert("iops".to_owned(), "9".to_owned());
    assert_eq!(code(state.modify_volume(&profile, &mixed)), Code::InvalidArgument);
    assert_eq!(state.volumes()["v"].mutable["iops"], "1", "all of them or none");
}

#[test]
fn snapshots_are_idempotent_listed_and_ready_in_time() {
    let (mut state, profile) = seeded();
    let profile = Profile { snapshot_ready_after: std::time::Duration::from_secs(60), ..profile };
    state.seed("w");
    let (now, later) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(60).unwrap());
    let cut = |name: &str, source: &str| CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: source.to_owned(),
        ..CreateSnapshotRequest::default()
    };
    assert_eq!(code(state.create_snapshot(&profile, &cut("", "v"), now)), Code::InvalidArgument);
    assert_eq!(code(state.create_snapshot(&profile, &cut("s", ""), now)), Code::InvalidArgument);
    assert_eq!(code(state.create_snapshot(&profile, &cut("s", "unknown"), now)), Code::NotFound);
    let first = state.create_snapshot(&profile, &cut("s", "v"), now).unwrap().snapshot.unwrap();
    assert!(!first.ready_to_use);
    let again = state.create_snapshot(&profile, &cut("s", "v"), later).unwrap().snapshot.unwrap();
    assert_eq!((again.ready_to_use, &again.snapshot_id), (true, &first.snapshot_id));
    assert_eq!(code(state.create_snapshot(&profile, &cut("s", "w"), now)), Code::AlreadyExists);
    state.create_snapshot(&profile, &cut("t", "w"), now).unwrap();

    let mut found = |source: &str, id: &str| {
        let request = ListSnapshotsRequest {
            source_volume_id: source.to_owned(),
            snapshot_id: id.to_owned(),
            ..ListSnapshotsRequest::default()
        };
        state.list_snapshots(&profile, &request, now).unwrap().entries.len()
    };
    assert_eq!((found("", ""), found("v", ""), found("", &first.snapshot_id), found("unknown", "")), (2, 1, 1, 0));
    let get = |id: &str| GetSnapshotRequest { snapshot_id: id.to_owned(), ..GetSnapshotRequest::default() };
    assert_eq!(code(state.get_snapshot(&profile, &get(""), now)), Code::InvalidArgument);
    assert_eq!(code(state.get_snapshot(&profile, &get("unknown"), now)), Code::NotFound);
    assert_eq!(code(state.get_snapshot(&profile, &get(&first.snapshot_id), now)), Code::Ok);
    let delete = |id: &str| DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..DeleteSnapshotRequest::default() };
    assert_eq!(code(state.delete_snapshot(&profile, &delete(""))), Code::InvalidArgument);
    for _ in 0..2 {
        assert_eq!(code(state.delete_snapshot(&profile, &delete(&first.snapshot_id))), Code::Ok);
    }
}

#[test]
fn volumes_go_where_they_are_wanted_and_stay_there() {
    let zone = |zone: &str| [("zone".to_owned(), zone.to_owned())];
    let mut profile = Profile::with_nodes(["a"]);
    profile.services.insert(service::Type::VolumeAccessibilityConstraints as i32);
    profile.segments = vec![zone("one").into(), zone("two").into()];
    profile.nodes.insert("b".to_owned(), Node { segments: zone("two").into(), ..Node::default() });
    let wanted = |name: &str| Topology { segments: zone(name).into() };
    let require = |requisite: Vec<Topology>| CreateVolumeRequest {
        accessibility_requirements: Some(TopologyRequirement { requisite, preferred: Vec::new() }),
        ..create("x", 1)
    };
    let mut state = State::default();
    assert_eq!(code(state.create_volume(&profile, &require(vec![wanted("three")]))), Code::ResourceExhausted);
    let request = require(vec![wanted("three"), wanted("two")]);
    let volume = state.create_volume(&profile, &request).unwrap().volume.unwrap();
    assert_eq!(volume.accessible_topology, [wanted("two")]);
    assert_eq!(code(state.publish(&profile, &publish(&volume.volume_id, "a", Snw, false))), Code::FailedPrecondition);
    assert_eq!(code(state.publish(&profile, &publish(&volume.volume_id, "b", Snw, false))), Code::Ok);
    let capacity = |state: &State, name: &str| {
        let request = GetCapacityRequest { accessible_topology: Some(wanted(name)), ..GetCapacityRequest::default() };
        state.get_capacity(&profile, &request).unwrap().available_capacity
    };
    assert_eq!((capacity(&state, "one"), capacity(&state, "three")), (profile.capacity - GIB, 0));
}
