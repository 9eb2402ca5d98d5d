//! Node ids: where they come from, and what happens when nodes come and go.

use csi_control_plane::cluster::names::ANNOTATION_RECORDED_FOR as RECORDED_FOR;
use csi_control_plane::sandbox::driver::Method;
use k8s_openapi::api::core::v1::{Event, Node};
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;

use crate::world::World;

/// A back-off that only a wake-up can end within [`crate::world::PATIENCE`].
const LONG: &str = "10m";

#[tokio::test]
async fn a_driver_that_registers_on_a_node_wakes_what_failed_for_it() {
    let world = World::new().await;
    let retry = json!({ "roles": { "attacher": { "retry": { "initial": LONG, "max": LONG } } } });
    let _daemon = world.daemon(retry).await;
    let (node, volume) = (world.name("node"), world.volume("pv").await);
    world.know_node(&world.node_id(&node));
    let attachment = world.attach(&volume, &node).await;
    world.failed(&attachment, "not found").await;
    // The node appears, but with another driver only.
    world.set_drivers(&node, json!([{ "name": "other.csi.example.com", "nodeID": "x", "topologyKeys": null }])).await;
    world.register(&node, &world.node_id(&node)).await;
    world.attached(&attachment).await;
    world.detached(&attachment).await;
}

#[tokio::test]
async fn a_volume_that_appears_wakes_what_failed_for_it() {
    let world = World::new().await;
    let retry = json!({ "roles": { "attacher": { "retry": { "initial": LONG, "max": LONG } } } });
    let _daemon = world.daemon(retry).await;
    let node = world.node("node").await;
    let attachment = world.attach(&world.name("pv"), &node).await;
    world.failed(&attachment, "not found").await;
    let volume = world.volume("pv").await;
    world.attached(&attachment).await;
    assert!(world.is_published(&volume, &node));
}

#[tokio::test]
async fn r15_a_gone_node_is_detached_by_its_recorded_id() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    world.all::<CSINode>().delete(&node, &DeleteParams::default()).await.unwrap();
    world.detached(&attachment).await;
    assert!(!world.is_published(&volume, &node));
    assert_eq!(world.unpublishes(&volume)[0].node, Some(world.node_id(&node)));
}

#[tokio::test]
async fn r16_a_driver_gone_from_its_node_is_detached_by_the_recorded_id() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    world.set_drivers(&node, json!([])).await;
    world.detached(&attachment).await;
    assert_eq!(world.unpublishes(&volume)[0].node, Some(world.node_id(&node)));
}

#[tokio::test]
async fn r18_an_annotation_of_the_node_is_never_consulted() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.name("node"), world.volume("pv").await);
    let id = world.node_id(&node);
    world.know_node(&id);
    let annotation = json!({ world.driver_name(): id }).to_string();
    world
        .create::<Node>(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node,
            "annotations": { "csi.volume.kubernetes.io/nodeid": annotation } } }))
        .await;
    let attachment = world.attach(&volume, &node).await;
    world.failed(&attachment, "CSINode").await;
    assert_eq!(world.publishes(&volume).len(), 0);
    world.all::<Node>().delete(&node, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn r45_a_recreated_node_is_detached_by_the_id_that_it_was_attached_with() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    world.all::<CSINode>().delete(&node, &DeleteParams::default()).await.unwrap();
    world.know_node("another-machine");
    world.register(&node, "another-machine").await;
    world.detached(&attachment).await;
    let nodes: Vec<_> = world.unpublishes(&volume).into_iter().map(|call| call.node.clone().unwrap()).collect();
    assert_eq!(nodes, [world.node_id(&node)]);
    // A new attachment goes to the new machine.
    let attachment = world.attach(&volume, &node).await;
    let object = world.attached(&attachment).await;
    assert_eq!(object.metadata.annotations.unwrap()["csi.alpha.kubernetes.io/node-id"], "another-machine");
    assert_eq!(world.publishes(&volume)[1].node.as_deref(), Some("another-machine"));
}

/// A volume that is attached to a machine, and to the same one under another name: the first name, the volume, both attachments.
async fn attached_under_two_names(world: &World) -> (String, String, [String; 2]) {
    let (before, volume, old) = world.attached_anew().await;
    let after = world.name("renamed");
    world.register(&after, &world.node_id(&before)).await;
    let new = world.attach(&volume, &after).await;
    world.attached(&new).await;
    (before, volume, [old, new])
}

#[tokio::test]
async fn a_node_that_has_another_name_by_now_keeps_its_volume_when_the_old_attachment_goes() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (before, volume, [old, new]) = attached_under_two_names(&world).await;
    world.detached(&old).await;
    assert_eq!(world.unpublishes(&volume).len(), 0);
    assert!(world.is_published(&volume, &before), "it is the same machine");
    world.detached(&new).await;
    assert_eq!(world.unpublishes(&volume).len(), 1);
    assert!(!world.is_published(&volume, &before));
}

#[tokio::test]
async fn a_copied_attachment_detaches_nothing_in_the_cluster_that_it_is_from() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    let object: VolumeAttachment = world.until(&attachment, "there", |_| true).await;
    assert_eq!(object.annotations().get(RECORDED_FOR), object.metadata.uid.as_ref(), "it says whose data it is");
    // As in another cluster: neither the node nor the volume are there.
    let copy = world.name("copy");
    let mut copied = serde_json::to_value(&object).unwrap();
    copied["metadata"] =
        json!({ "name": copy, "annotations": object.annotations(), "finalizers": object.finalizers() });
    copied["spec"]["nodeName"] = world.name("elsewhere").into();
    copied["spec"]["source"] = json!({ "persistentVolumeName": world.name("elsewhere") });
    let copied = world.create::<VolumeAttachment>(copied).await;
    world.detached(&copy).await;
    assert_eq!(world.unpublishes(&volume).len(), 0);
    assert!(world.is_published(&volume, &node));
    let is_told = |events: &[Event]| {
        let told = |event: &Event| event.message.as_deref().is_some_and(|text| text.contains(&world.handle(&volume)));
        events.iter().any(|event| event.reason.as_deref() == Some("VolumeDetachSkipped") && told(event))
    };
    world.events_until(&copied.metadata.uid.unwrap(), "what to do", is_told).await;
    world.detached(&attachment).await;
    assert!(!world.is_published(&volume, &node));
}

#[tokio::test]
async fn of_two_attachments_to_one_machine_that_go_together_the_volume_is_detached() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (before, volume, [old, new]) = attached_under_two_names(&world).await;
    for attachment in [&old, &new] {
        world.detach(attachment).await;
    }
    for attachment in [&old, &new] {
        world.gone::<VolumeAttachment>(attachment).await;
    }
    assert!(!world.is_published(&volume, &before));
}

#[tokio::test]
async fn r44_a_namesake_inherits_neither_delay_nor_finalizer() {
    let world = World::new().await;
    let retry = json!({ "roles": { "attacher": { "retry": { "initial": LONG, "max": LONG } } } });
    let _daemon = world.daemon(retry).await;
    let (node, volume) = (world.name("node"), world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;
    let first = world.failed(&attachment, "CSINode").await;
    // Nothing was begun, so it goes at once.
    world.detached(&attachment).await;
    world.know_node(&world.node_id(&node));
    world.register(&node, &world.node_id(&node)).await;
    assert_eq!(world.attach(&volume, &node).await, attachment);
    let second = world.attached(&attachment).await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    assert_eq!(world.publishes(&volume).len(), 1);
    world.detached(&attachment).await;
    assert_eq!(world.driver().calls_of(Method::ControllerUnpublishVolume).len(), 1);
}

#[tokio::test]
async fn a_namesake_that_comes_at_once_is_attached_and_detached_once_each_time() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    for round in 1..=3 {
        let attachment = world.attach(&volume, &node).await;
        world.attached(&attachment).await;
        world.detach(&attachment).await;
        world.gone::<VolumeAttachment>(&attachment).await;
        assert_eq!((world.publishes(&volume).len(), world.unpublishes(&volume).len()), (round, round));
    }
}
