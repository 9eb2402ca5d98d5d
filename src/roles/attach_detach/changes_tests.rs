//! What the attach/detach controller does about nodes, claims and pods that go, come back, or are of in-tree volumes.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;
use serde_json::json;

use crate::roles::attach_detach::fixtures::{
    asking, at, attach, attachments, bind, cluster, delete_pod, events, failure, id, pod, reported, says, settled, uses,
};
use crate::roles::attach_detach::volume_id::VolumeId;
use crate::roles::kit::served::Served;
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::faults::{Action, Fault, Matching, WatchEnd};
use crate::sandbox::api::pure::rejection::Rejection;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn delete_node(world: &Served) {
    assert!(world.testbed.api.delete::<core::Node>("", "n1").is_ok());
}

/// The node registers anew. Its kubelet says nothing yet.
fn register(world: &Served) {
    let managed = json!({ "volumes.kubernetes.io/controller-managed-attach-detach": "true" });
    let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1", "annotations": managed } });
    world.testbed.api.create_value(object).unwrap();
}

#[tokio::test(start_paused = true)]
async fn d11_a_node_that_registers_anew_gets_its_report_back_and_counts_as_using_its_volumes_until_it_is_ready() {
    let world = settled(json!({})).await;
    uses(&world, "n1", &["v"]);
    delete_node(&world);
    register(&world);
    world.until("it is reported again", |world| reported(world, "n1") == ["v"]).await;
    delete_pod(&world, "web");
    tokio::time::sleep(300 * SECOND).await;
    assert_eq!(attachments(&world), at(&["n1"]), "its list is lost, not empty");
    says(&world, "n1", &json!({ "conditions": [{ "type": "Ready", "status": "True" }] }));
    world.until("it is gone", |world| attachments(world).is_empty()).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d33_what_a_node_has_that_is_deleted_goes_at_once_or_after_six_minutes_if_it_was_in_use() {
    for is_used in [false, true] {
        let world = settled(json!({})).await;
        if is_used {
            uses(&world, "n1", &["v"]);
            world.rest().await;
        }
        tokio::time::sleep(SECOND).await;
        delete_node(&world);
        tokio::time::sleep(SECOND).await;
        assert_eq!(attachments(&world), at(&["n1"]), "its pod is there still");
        delete_pod(&world, "web");
        tokio::time::sleep(350 * SECOND).await;
        assert_eq!(attachments(&world).len(), usize::from(is_used));
        tokio::time::sleep(20 * SECOND).await;
        assert_eq!(attachments(&world), at(&[]));
        world.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn d33_what_was_reported_to_a_node_that_a_list_lacks_counts_as_in_use() {
    let world = settled(json!({})).await;
    let faults = world.testbed.api.faults();
    let held = faults.hold_watches(Matching::any().resource("nodes"));
    uses(&world, "n1", &["v"]);
    delete_node(&world);
    world.testbed.api.compact();
    faults.drop_watches(Matching::any().resource("nodes"), WatchEnd::Cut);
    faults.remove(held);
    tokio::time::sleep(SECOND).await;
    delete_pod(&world, "web");
    tokio::time::sleep(350 * SECOND).await;
    assert_eq!(attachments(&world), at(&["n1"]), "no watch has told that its kubelet used it in the end");
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(attachments(&world), at(&[]));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d25_what_another_writes_into_the_list_at_the_same_time_survives() {
    let world = asking(json!({})).await;
    let patches = Matching::any().verb("patch").resource("nodes").subresource("status");
    let delayed = world.testbed.api.faults().add(Fault::on(patches, Action::DelayBefore(SECOND)).times(1));
    attach(&world);
    world.until("it is under way", |world| world.testbed.api.faults().hits(delayed) == 1).await;
    says(
        &world,
        "n1",
        &json!({ "volumesAttached": [{ "name": "kubernetes.io/aws-ebs/vol-1", "devicePath": "/dev/x" }] }),
    );
    world.until("both are there", |world| reported(world, "n1") == ["kubernetes.io/aws-ebs/vol-1", "v"]).await;
    let node: core::Node = world.testbed.api.get("", "n1").unwrap();
    assert_eq!(node.status.unwrap().volumes_attached.unwrap()[0].device_path, "/dev/x");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d14_what_never_was_attached_goes_with_its_pod_and_lets_the_next_node_have_it() {
    let world = asking(json!({})).await;
    let error = json!({ "status": { "attached": false, "attachError": { "message": "no room" } } });
    let name = id("v").attachment_name("n1");
    world.testbed.api.patch_status::<storage::VolumeAttachment>("", &name, PatchBody::Merge(error)).unwrap();
    pod(&world, "late", "n2", "data");
    world.until("the other waits", |world| events(world).iter().any(|it| it.1 == "late")).await;
    assert_eq!(attachments(&world), at(&["n1"]));
    delete_pod(&world, "web");
    world.until("it moves", |world| (attach(world), reported(world, "n2")).1 == ["v"]).await;
    assert_eq!(attachments(&world), at(&["n2"]));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d20_a_claim_that_is_deleted_by_force_takes_no_volume_from_a_pod() {
    let world = settled(json!({})).await;
    assert!(world.testbed.api.delete::<core::PersistentVolumeClaim>("default", "data").is_ok());
    assert!(world.testbed.api.delete::<core::PersistentVolume>("", "pv-data").is_ok());
    tokio::time::sleep(3600 * SECOND).await;
    assert_eq!((attachments(&world), reported(&world, "n1")), (at(&["n1"]), vec!["v".to_owned()]));
    delete_pod(&world, "web");
    world.until("it goes with its pod", |world| attachments(world).is_empty()).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d30_an_in_tree_volume_of_a_pod_is_attached_by_the_handle_of_the_driver_that_has_taken_it_over() {
    let world = cluster(json!({})).await;
    let volumes = json!([{ "name": "old", "awsElasticBlockStore": { "volumeID": "vol-0123456789abcdef0" } }]);
    let object = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web", "namespace": "default" },
        "spec": { "nodeName": "n1", "volumes": volumes, "containers": [{ "name": "c", "image": "i" }] } });
    world.testbed.api.create_value(object).unwrap();
    world.lead();
    world.until("it is reported", |world| (attach(world), reported(world, "n1")).1 == ["vol-0123456789abcdef0"]).await;
    let id = VolumeId::new("ebs.csi.aws.com", "vol-0123456789abcdef0");
    let held: storage::VolumeAttachment = world.testbed.api.get("", &id.attachment_name("n1")).unwrap();
    let spec = held.spec.source.inline_volume_spec.unwrap();
    assert_eq!(spec.csi.unwrap().volume_handle, id.handle());
    delete_pod(&world, "web");
    world.until("it is gone", |world| attachments(world).is_empty()).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d9_what_is_gone_between_decision_and_deletion_is_not_deleted_twice() {
    let world = settled(json!({})).await;
    let name = id("v").attachment_name("n1");
    let deletes = Matching::any().verb("delete").resource("volumeattachments");
    let delayed = world.testbed.api.faults().add(Fault::on(deletes, Action::DelayBefore(SECOND)).times(1));
    delete_pod(&world, "web");
    world.until("the deletion is under way", |world| world.testbed.api.faults().hits(delayed) == 1).await;
    assert!(world.testbed.api.delete::<storage::VolumeAttachment>("", &name).is_ok());
    pod(&world, "next", "n1", "data");
    world.until("the next pod has it", |world| (attach(world), reported(world, "n1")).1 == ["v"]).await;
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!((attachments(&world), reported(&world, "n1")), (at(&["n1"]), vec!["v".to_owned()]));
    assert_eq!(world.testbed.api.audit().count("delete", "volumeattachments"), 1);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d31_what_a_pod_wants_ends_with_a_list_that_lacks_the_pod() {
    let world = settled(json!({})).await;
    let faults = world.testbed.api.faults();
    let held = faults.hold_watches(Matching::any().resource("pods"));
    delete_pod(&world, "web");
    tokio::time::sleep(300 * SECOND).await;
    assert_eq!(attachments(&world), at(&["n1"]), "the deletion is not known");
    // The history is gone, so that the next watch begins with a list.
    world.testbed.api.compact();
    faults.drop_watches(Matching::any().resource("pods"), WatchEnd::Cut);
    faults.remove(held);
    world.until("it is gone", |world| attachments(world).is_empty()).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_reads_that_its_driver_is_not_registered_on_its_node() {
    let world = cluster(json!({})).await;
    let none = PatchBody::Merge(json!({ "spec": { "drivers": [] } }));
    world.testbed.api.patch::<storage::CSINode>("", "n1", none).unwrap();
    bind(&world, "data", "v", "ReadWriteOnce");
    pod(&world, "web", "n1", "data");
    world.lead();
    world.until("it is told", |world| events(world).len() == 1).await;
    assert_eq!(attachments(&world), at(&["n1"]), "the attacher tries again by itself");
    let expected = "AttachVolume.Attach failed for volume \"pv-data\" : driver other.csi is not registered on node n1: its CSINode \
                does not name the driver";
    assert_eq!(events(&world)[0].2, expected);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_role_fails_if_what_there_is_cannot_be_listed_for_five_minutes() {
    let world = cluster(json!({})).await;
    let lists = Matching::any().verb("list").resource("csinodes");
    world.testbed.api.faults().add(Fault::on(lists, Action::Refuse(Rejection::internal("broken"))));
    bind(&world, "data", "v", "ReadWriteOnce");
    pod(&world, "web", "n1", "data");
    world.lead();
    tokio::time::sleep(290 * SECOND).await;
    assert_eq!(failure(&world), None);
    tokio::time::sleep(20 * SECOND).await;
    assert!(failure(&world).unwrap().starts_with("what there is cannot be listed"));
    assert_eq!(attachments(&world), at(&[]), "I11");
    world.testbed.api.faults().clear();
    world.until("it is asked for", |world| attachments(world) == at(&["n1"])).await;
    assert_eq!(failure(&world), None);
    world.testbed.tear_down().await;
}

/// How often a volume was woken.
fn wakes(world: &Served) -> u64 {
    let series = format!("workqueue_adds_total{{name=\"{}\"}} ", names::QUEUE_VOLUMES);
    let figures = world.context.meter.render();
    figures.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn what_a_node_says_of_a_volume_wakes_that_volume_alone_and_what_it_says_of_itself_wakes_all() {
    let world = cluster(json!({ "resync": "1h" })).await;
    for (claim, handle, name) in [("data", "v", "web"), ("logs", "w", "db")] {
        bind(&world, claim, handle, "ReadWriteOnce");
        pod(&world, name, "n1", claim);
    }
    world.lead();
    world.until("both are reported", |world| (attach(world), reported(world, "n1").len()).1 == 2).await;
    let ready = |status: &str, at: u8| json!({ "conditions": [{ "type": "Ready", "status": status, "lastHeartbeatTime": format!("2026-01-01T00:00:0{at}Z") }] });
    for (status, expected) in [
        (json!({ "volumesInUse": [id("v").name()] }), 1),
        (json!({ "volumesInUse": [id("v").name(), id("w").name()] }), 1),
        (json!({ "volumesInUse": [] }), 2),
        (ready("False", 1), 2),
        (ready("False", 2), 0),
    ] {
        tokio::time::sleep(SECOND).await;
        let before = wakes(&world);
        says(&world, "n1", &status);
        tokio::time::sleep(SECOND).await;
        assert_eq!(wakes(&world) - before, expected, "{status}");
    }
    world.testbed.tear_down().await;
}
