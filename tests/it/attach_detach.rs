//! The attach/detach controller in the daemon, beside the attacher: what a pod wants is attached and reported to its node, and taken back;
//! and nothing is written while the controller of kube-controller-manager works. Each on a cluster of its own: the role works for all
//! drivers.

use csi_control_plane::roles::attach_detach::{metrics, names};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::attaching::{OTHER, attach_detach};
use crate::monitoring::count;
use crate::objects;
use crate::world::World;

#[tokio::test]
async fn d2_a_pod_gets_its_volume_and_gives_it_back_once_its_node_does_not_use_it() {
    let world = World::alone().await;
    let daemon = world.daemon(attach_detach(json!({}))).await;
    let node = world.place("node", &[]).await;
    let (claim, volume) = world.monitored("claim").await;
    let (pod, uid) = world.pod_on("pod", &claim, &node).await;
    let attachment = world.attachment_of(&volume, &node);
    world.attached(&attachment).await;
    world.reports(&node, &[&volume]).await;
    assert!(world.is_published(&volume, &node));
    world.events_until(&uid, "it is attached", |events| count(events, names::ATTACHED) == 1).await;
    world.uses(&node, &[&volume]).await;
    world.delete_pod(&pod).await;
    world.rests_with(&daemon, 0).await;
    world.attached(&attachment).await;
    world.reports(&node, &[&volume]).await;
    world.uses(&node, &[]).await;
    world.gone::<VolumeAttachment>(&attachment).await;
    world.reports(&node, &[]).await;
    assert!(!world.is_published(&volume, &node));
    // Of the waits there is nothing to see: in simulated time this one took none.
    let (written, figures) = (format!("\n{}{{result=\"ok\"}}", metrics::STATUS_WRITES.name), daemon.meter.render());
    assert!(figures.contains(&written), "{figures}");
}

#[tokio::test]
async fn d28_nothing_is_written_once_the_other_controller_has_made_an_attachment_until_that_is_gone() {
    let world = World::alone().await;
    let leases: Api<Lease> = Api::namespaced(world.client(), "kube-system");
    let lease = json!({ "metadata": { "name": OTHER }, "spec": { "holderIdentity": "the-other", "leaseDurationSeconds": 3600 } });
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let daemon = world.daemon(attach_detach(json!({ "resync": "1s" }))).await;
    world.has_begun(&daemon).await;
    let node = world.place("node", &[]).await;
    let other = world.volume("other-pv").await;
    let theirs = world.attachment_of(&other, &node);
    let mut object = objects::attachment(&theirs, world.driver_name(), &other, &node);
    // A real server would say the same by itself.
    object["metadata"]["managedFields"] = json!([{ "manager": OTHER, "operation": "Update", "apiVersion": "storage.k8s.io/v1",
        "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": { "f:attacher": {}, "f:nodeName": {} } } }]);
    let object: VolumeAttachment = serde_json::from_value(object).unwrap();
    let manager = PostParams { field_manager: Some(OTHER.to_owned()), ..PostParams::default() };
    world.all().create(&manager, &object).await.unwrap();
    world.keeps_away(&daemon, &theirs).await;
    let (claim, volume) = world.monitored("claim").await;
    world.pod_on("pod", &claim, &node).await;
    world.rests_with(&daemon, 1).await;
    // The attacher attaches what the other has made; this role neither reports it nor takes it away, and makes none.
    world.attached(&theirs).await;
    let all = world.all::<VolumeAttachment>().list(&ListParams::default()).await.unwrap();
    assert_eq!(all.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [theirs.as_str()]);
    assert!(world.publishes(&volume).is_empty());
    world.reports(&node, &[]).await;
    let released = Patch::Merge(json!({ "spec": { "holderIdentity": "" } }));
    leases.patch(OTHER, &PatchParams::default(), &released).await.unwrap();
    world.attached(&world.attachment_of(&volume, &node)).await;
    world.gone::<VolumeAttachment>(&theirs).await;
    world.reports(&node, &[&volume]).await;
}
