//! Attach and detach as users see them.

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::proto::volume_capability::AccessType;
use csi_control_plane::proto::volume_capability::access_mode::Mode;
use csi_control_plane::sandbox::driver::{Action, Call, Driver, Fault, Method};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use serde_json::json;

use crate::objects;
use crate::supplier::figure;
use crate::world::World;
use crate::world::wait::asked;

#[tokio::test]
async fn r5_r6_an_attach_is_one_publish_and_a_detach_one_unpublish() {
    let (world, daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;

    let object = world.attached(&attachment).await;
    assert!(world.is_published(&volume, &node));
    assert_eq!(object.metadata.finalizers, Some(vec![world.finalizer()]));
    assert_eq!(object.metadata.annotations.unwrap()["csi.alpha.kubernetes.io/node-id"], world.node_id(&node));
    let protected: PersistentVolume = world.until(&volume, "there", |_| true).await;
    assert!(protected.finalizers().contains(&world.finalizer()));
    assert_eq!(world.publishes(&volume).len(), 1);

    world.detached(&attachment).await;
    assert!(!world.is_published(&volume, &node));
    assert_eq!((world.publishes(&volume).len(), world.unpublishes(&volume).len()), (1, 1));
    assert_eq!(world.driver().violations(), []);
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn the_publish_context_becomes_the_attachment_metadata_and_goes_with_the_volume() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;
    let status = world.attached(&attachment).await.status.unwrap();
    let state = world.driver().state();
    let publication = &state.volumes()[&world.handle(&volume)].published[&world.node_id(&node)];
    assert_eq!(status.attachment_metadata.unwrap_or_default(), publication.context);

    // Another controller's finalizer keeps the object: then the status says that the volume is detached.
    let keep = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.com/keep" }]);
    world.json_patch::<VolumeAttachment>(&attachment, keep).await;
    world.detach(&attachment).await;
    let detached = world
        .until(&attachment, "detached", |it: &VolumeAttachment| it.status.as_ref().is_some_and(|it| !it.attached))
        .await;
    assert_eq!(detached.finalizers(), ["example.com/keep"], "theirs stays, ours went");
    assert_eq!(detached.status.unwrap().attachment_metadata, None);
    world.drop_finalizer::<VolumeAttachment>(&attachment, 0).await;
    world.gone::<VolumeAttachment>(&attachment).await;
    assert_eq!(world.unpublishes(&volume).len(), 1);
}

#[tokio::test]
async fn volumes_are_attached_side_by_side() {
    let (world, _daemon) =
        World::with_daemon(json!({ "roles": { "attacher": { "workers": 12, "detachWorkers": 12 } } })).await;
    let node = world.node("node").await;
    let (publish, unpublish) = (Method::ControllerPublishVolume, Method::ControllerUnpublishVolume);
    for method in [publish, unpublish] {
        world.driver().inject(Fault::on(method, Action::Hold).times(12));
    }
    // The driver answers none before it has all calls.
    let all_at_once = async |method| {
        let is_held = |call: &Call| call.method == method && call.ended.is_none();
        let twelve = |driver: &Driver| driver.calls().iter().filter(|call| is_held(call)).count() == 12;
        world.driver_until("twelve at once", twelve).await;
        world.driver().release();
    };
    let mut attachments = Vec::new();
    for number in 0..12 {
        let volume = world.volume(&format!("pv-{number}")).await;
        attachments.push(world.attach(&volume, &node).await);
    }
    all_at_once(publish).await;
    for attachment in &attachments {
        world.attached(attachment).await;
    }
    for attachment in &attachments {
        world.detach(attachment).await;
    }
    all_at_once(unpublish).await;
    for attachment in &attachments {
        world.gone::<VolumeAttachment>(attachment).await;
    }
    assert_eq!((world.driver().calls_of(publish).len(), world.driver().calls_of(unpublish).len()), (12, 12));
}

/// Access modes of a volume, and what the driver is told: with `SINGLE_NODE_MULTI_WRITER` and without. None: refused.
const ACCESS_MODES: &[(&[&str], Option<Mode>, Option<Mode>)] = &[
    (&["ReadWriteOnce"], Some(Mode::SingleNodeMultiWriter), Some(Mode::SingleNodeWriter)),
    (&["ReadWriteOncePod"], Some(Mode::SingleNodeSingleWriter), Some(Mode::SingleNodeWriter)),
    (&["ReadOnlyMany"], Some(Mode::MultiNodeReaderOnly), Some(Mode::MultiNodeReaderOnly)),
    (&["ReadWriteMany"], Some(Mode::MultiNodeMultiWriter), Some(Mode::MultiNodeMultiWriter)),
    (&["ReadWriteOnce", "ReadWriteMany"], Some(Mode::MultiNodeMultiWriter), Some(Mode::MultiNodeMultiWriter)),
    (&["ReadOnlyMany", "ReadWriteMany"], Some(Mode::MultiNodeMultiWriter), Some(Mode::MultiNodeMultiWriter)),
    (&["ReadWriteOnce", "ReadOnlyMany"], None, None),
];

#[tokio::test]
async fn r26_access_modes_reach_the_driver_as_it_understands_them() {
    for multi_writer in [true, false] {
        let world = World::with_rpc(Rpc::SingleNodeMultiWriter, multi_writer).await;
        let _daemon = world.daemon(json!({})).await;
        let node = world.node("node").await;
        for (number, (modes, with, without)) in ACCESS_MODES.iter().enumerate() {
            let volume = world.volume_with(&format!("pv-{number}"), json!({ "accessModes": modes })).await;
            let attachment = world.attach(&volume, &node).await;
            if let Some(mode) = if multi_writer { with } else { without } {
                world.attached(&attachment).await;
                let publish = world.publishes(&volume).remove(0).publish.clone().unwrap();
                let told = publish.volume_capability.unwrap().access_mode.unwrap().mode();
                assert_eq!(told, *mode, "{modes:?} with SINGLE_NODE_MULTI_WRITER: {multi_writer}");
            } else {
                let failed = world.failed(&attachment, "access modes").await;
                assert_eq!(failed.finalizers(), Vec::<String>::new(), "a hopeless attachment stays deletable");
                assert_eq!(world.publishes(&volume).len(), 0);
                world.detached(&attachment).await;
            }
        }
    }
}

#[tokio::test]
async fn r13_a_block_volume_is_published_as_a_block_device() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    let volume = world.volume_with("pv", json!({ "volumeMode": "Block" })).await;
    world.attached(&world.attach(&volume, &node).await).await;
    let capability = world.publishes(&volume).remove(0).publish.clone().unwrap().volume_capability.unwrap();
    assert!(matches!(capability.access_type, Some(AccessType::Block(_))), "{capability:?}");
}

#[tokio::test]
async fn r27_file_system_mount_options_and_attributes_reach_the_driver() {
    let (world, _daemon) = World::with_daemon(json!({ "roles": { "attacher": { "defaultFsType": "xfs" } } })).await;
    let node = world.node("node").await;
    for (name, fs_type, expected) in [("plain", None, "xfs"), ("named", Some("ext4"), "ext4")] {
        let mut spec = json!({ "mountOptions": ["noatime"], "csi": { "volumeAttributes": { "tier": "gold" } } });
        if let Some(fs_type) = fs_type {
            spec["csi"]["fsType"] = json!(fs_type);
        }
        let volume = world.volume_with(name, spec).await;
        world.attached(&world.attach(&volume, &node).await).await;
        let publish = world.publishes(&volume).remove(0).publish.clone().unwrap();
        assert_eq!(publish.volume_context["tier"], "gold");
        let Some(AccessType::Mount(mount)) = publish.volume_capability.unwrap().access_type else { panic!("a mount") };
        assert_eq!((mount.fs_type.as_str(), mount.mount_flags), (expected, vec!["noatime".to_owned()]));
    }
}

#[tokio::test]
async fn r14_read_only_is_asked_for_only_where_the_driver_can() {
    for capable in [true, false] {
        let world = World::with_rpc(Rpc::PublishReadonly, capable).await;
        let _daemon = world.daemon(json!({})).await;
        let node = world.node("node").await;
        let volume = world.volume_with("pv", json!({ "csi": { "readOnly": true } })).await;
        world.attached(&world.attach(&volume, &node).await).await;
        assert_eq!(world.publishes(&volume)[0].publish.as_ref().unwrap().readonly, capable);
    }
}

/// An attachment of an inline volume, as the attach/detach controller writes it for a migrated in-tree volume.
async fn attach_inline(world: &World, node: &str) -> String {
    let volume = world.name("inline");
    world.driver().seed([world.handle(&volume).as_str()]);
    let mut source = objects::volume(&volume, world.driver_name(), &world.handle(&volume))["spec"].take();
    source.as_object_mut().unwrap().remove("capacity");
    let name = objects::attachment_name(&world.handle(&volume), world.driver_name(), node);
    let source = json!({ "inlineVolumeSpec": source });
    world.create::<VolumeAttachment>(objects::attachment_of(&name, world.driver_name(), node, &source)).await;
    name
}

#[tokio::test]
async fn r12_an_inline_volume_is_attached_and_detached() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    let attachment = attach_inline(&world, &node).await;
    world.attached(&attachment).await;
    let volume = world.name("inline");
    assert!(world.is_published(&volume, &node));
    world.detached(&attachment).await;
    assert!(!world.is_published(&volume, &node));
}

#[tokio::test]
async fn r51_an_inline_volume_that_was_lost_is_attached_again() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    let attachment = attach_inline(&world, &node).await;
    world.attached(&attachment).await;
    let volume = world.name("inline");
    assert!(world.driver().detach_behind(&world.handle(&volume), &world.node_id(&node)));
    world.driver_until("published again", |_| world.is_published(&volume, &node)).await;
}

#[tokio::test]
async fn a_driver_without_publish_has_its_attachments_confirmed_without_a_call() {
    let world = World::with_rpc(Rpc::PublishUnpublishVolume, false).await;
    let daemon = world.daemon(json!({})).await;
    // Not even a node is needed.
    let volume = world.volume("pv").await;
    let attachment = world.attach(&volume, &world.name("nowhere")).await;
    let object = world.attached(&attachment).await;
    let took = "csi_control_plane_attachment_duration_seconds_count";
    asked("the attach in the figures", async || {
        figure(&world.metrics(&daemon).await, took, &["operation=\"attach\""]).filter(|count| *count > 0.5)
    })
    .await;
    assert_eq!(object.finalizers(), Vec::<String>::new());
    let volume_object: PersistentVolume = world.until(&volume, "there", |_| true).await;
    assert!(!volume_object.finalizers().contains(&world.finalizer()));
    world.detached(&attachment).await;
    assert_eq!(world.publishes(&volume).len() + world.unpublishes(&volume).len(), 0);
}

#[tokio::test]
async fn an_in_tree_volume_of_another_driver_is_refused_in_words() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    let in_tree = json!({ "csi": null, "awsElasticBlockStore": { "volumeID": "vol-1" } });
    let volume = world.volume_with("pv", in_tree).await;
    let attachment = world.attach(&volume, &node).await;
    world.failed(&attachment, "belongs to driver ebs.csi.aws.com").await;
    world.detached(&attachment).await;
}

#[tokio::test]
async fn r23_foreign_attachments_are_left_alone() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let foreign = world.name("foreign");
    let source = json!({ "persistentVolumeName": volume });
    let driver = format!("other-{}", world.driver_name());
    let made: VolumeAttachment = world.create(objects::attachment_of(&foreign, &driver, &node, &source)).await;
    // Ours, made later, is done: so the foreign one was seen and passed over.
    let other = world.volume("other").await;
    world.attached(&world.attach(&other, &node).await).await;
    let now = world.until(&foreign, "there", |_: &VolumeAttachment| true).await;
    assert_eq!(now.resource_version(), made.resource_version());
    assert_eq!(world.publishes(&volume).len(), 0);
    world.detached(&foreign).await;
}
