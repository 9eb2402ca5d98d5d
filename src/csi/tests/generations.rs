//! Drivers of CSI 1.0 to 1.12, which may send what 1.13 has removed, and drivers of 1.13.
//!
//! The bytes were written by the specification's Go library (`github.com/container-storage-interface/spec/lib/go/csi`), v1.12.0 and
//! v1.13.0, and not by our own encoder: it would read back whatever it has written.

use prost::Message;

use crate::csi::{Capabilities, ControllerRpc};
use crate::proto::{
    ControllerGetCapabilitiesResponse, ControllerGetVolumeHealthResponse, ControllerGetVolumeResponse,
    ControllerListVolumeHealthResponse, CreateSnapshotResponse, GetPluginCapabilitiesResponse, ListVolumesResponse,
    NodeGetCapabilitiesResponse, NodeGetVolumeStatsResponse, VolumeCondition, VolumeHealthErrorType,
    node_service_capability,
};

fn read<M: Message + Default>(hex: &str) -> M {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    let read = M::decode(bytes.as_slice()).unwrap();
    assert_eq!(read.encode_to_vec().len(), bytes.len(), "nothing of it is unknown");
    read
}

fn names(controller: &str) -> Vec<String> {
    let response: ControllerGetCapabilitiesResponse = read(controller);
    Capabilities::from_responses(&GetPluginCapabilitiesResponse::default(), Some(&response)).names()
}

#[test]
fn nc1_the_conditions_of_a_driver_of_1_12_are_read() {
    let condition = Some(VolumeCondition { abnormal: true, message: "one disk of two".to_owned() });
    let list: ListVolumesResponse = read(concat!(
        "0a270a0a0880808080041202763112190a026e3112130801120f6f6e65206469736b206f662074776f",
        "0a080a04120276321200120132"
    ));
    let told: Vec<_> = list.entries.into_iter().map(|entry| entry.status.unwrap()).collect();
    assert_eq!(told[0].published_node_ids, ["n1"]);
    assert_eq!((&told[0].volume_condition, &told[1].volume_condition), (&condition, &None));
    let get: ControllerGetVolumeResponse = read("0a041202763112190a026e3112130801120f6f6e65206469736b206f662074776f");
    assert_eq!(get.status.unwrap().volume_condition, condition);
    let stats: NodeGetVolumeStatsResponse = read("0a041007200112130801120f6f6e65206469736b206f662074776f");
    assert_eq!((stats.usage[0].total, stats.volume_condition), (7, condition));
    assert_eq!(names("0a040a0208030a040a02080b"), ["LIST_VOLUMES", "VOLUME_CONDITION"]);
    let node: NodeGetCapabilitiesResponse = read("0a040a020804");
    let Some(node_service_capability::Type::Rpc(rpc)) = node.capabilities[0].r#type else { panic!("{node:?}") };
    assert_eq!(rpc.r#type(), node_service_capability::rpc::Type::VolumeCondition);
}

#[test]
fn nc2_nc3_the_health_and_the_topology_of_a_driver_of_1_13_are_read() {
    const HEALTH: &str = "0a2c0a027631121d080112084469736b4c6f73741a0f6f6e65206469736b206f662074776f1207080912034e6577";
    let list: ControllerListVolumeHealthResponse = read(&format!("{HEALTH}120132"));
    let get: ControllerGetVolumeHealthResponse = read(HEALTH);
    let health = get.volume_health.unwrap();
    assert_eq!((list.next_token.as_str(), list.entries.as_slice()), ("2", std::slice::from_ref(&health)));
    let [data_loss, later_kind] = &health.health_statuses[..] else { panic!("{health:?}") };
    assert_eq!((health.volume_id.as_str(), data_loss.status()), ("v1", VolumeHealthErrorType::Degraded));
    assert_eq!((data_loss.reason.as_str(), data_loss.message.as_str()), ("DiskLost", "one disk of two"));
    assert_eq!((later_kind.status, later_kind.reason.as_str()), (9, "New"), "a kind of a later version is kept");
    let list: ListVolumesResponse = read("0a120a0a0880808080041202763112040a026e31120132");
    assert_eq!(list.entries[0].status.as_ref().unwrap().volume_condition, None, "there is none any more");
    let snapshot: CreateSnapshotResponse = read("0a18120273311a02763128013a0c0a0a0a047a6f6e6512027a31");
    assert_eq!(snapshot.snapshot.unwrap().accessible_topology[0].segments["zone"], "z1");
    let offered = ["LIST_VOLUMES", "GET_VOLUME_HEALTH", "LIST_VOLUME_HEALTH"];
    assert_eq!(names("0a040a0208030a040a0208100a040a020811"), offered);
    let plugin: GetPluginCapabilitiesResponse = read("0a040a020805");
    assert_eq!(Capabilities::from_responses(&plugin, None).names(), ["SNAPSHOT_ACCESSIBILITY_CONSTRAINTS"]);
}

#[test]
fn the_numbers_of_what_was_removed_are_those_of_1_12() {
    use node_service_capability::rpc::Type as NodeRpc;
    assert_eq!((ControllerRpc::VolumeCondition as i32, NodeRpc::VolumeCondition as i32), (11, 4));
    assert_eq!((ControllerRpc::GetVolumeHealth as i32, ControllerRpc::ListVolumeHealth as i32), (16, 17));
    assert_eq!((NodeRpc::GetVolumeHealth as i32, NodeRpc::GetStorageHealth as i32), (7, 8));
}
