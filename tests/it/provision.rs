//! Claims that become volumes, and volumes that go with their claims, as far as only a sandbox shows it: what is written, to the
//! request, and that nothing is left behind, however it ends.

use csi_control_plane::cluster::names;
use csi_control_plane::sandbox::driver::{Action, Method};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tonic::Code;

use crate::supplier::create;
use crate::supply::{SELECTED_NODE, ZONE, pool, zoned};
use crate::world::World;

const CLAIM: &str = "PersistentVolumeClaim";

/// A world and a class in it.
async fn shop(class: Value) -> (World, String) {
    let world = World::supplied(|_| {}).await;
    let class = world.class("gold", class).await;
    (world, class)
}

/// The writes of the daemon, but Events and Leases, as `verb plural code`.
fn written(world: &World) -> Vec<String> {
    let writes = ["create", "update", "patch", "delete"];
    let audit = world.sandbox().stage.api.audit();
    let ours = audit.matching(|it| {
        writes.contains(&it.verb) && !it.user.contains("admin") && !["events", "leases"].contains(&it.resource)
    });
    ours.into_iter().map(|it| format!("{} {} {}", it.verb, it.resource, it.code)).collect()
}

#[tokio::test]
async fn a_claim_becomes_a_volume_by_three_writes_and_goes_with_it_by_two() {
    let (world, class) = shop(json!({})).await;
    let _daemon = world.supplier(json!({})).await;
    let claim = world.claim("data", &class, json!({})).await;
    let (uid, name) = (world.claim_uid(&claim).await, world.volume_name(&claim).await);
    let volume = world.supplied_with(&claim).await;
    assert_eq!(volume.name_any(), name);
    assert_eq!(
        written(&world),
        ["patch persistentvolumeclaims 200", "create persistentvolumes 201", "patch persistentvolumeclaims 200"]
    );
    assert_eq!(world.driver().creates_of(&name).len(), 1);
    let finalizers = volume.finalizers();
    assert!(finalizers.iter().any(|it| it == names::FINALIZER_PROVISIONER), "{finalizers:?}");
    assert!(finalizers.contains(&world.finalizer()), "the attacher beside us need not put it on: {finalizers:?}");
    assert_eq!(volume.annotations()[names::ANNOTATION_PROVISIONED_BY], world.driver_name());
    let spec = volume.spec.unwrap();
    assert_eq!(spec.claim_ref.unwrap().uid, Some(uid));
    assert_eq!(spec.storage_class_name, Some(class));

    world.sandbox().stage.api.audit().clear();
    world.delete_claim(&claim).await;
    world.gone::<PersistentVolume>(&name).await;
    let ours: Vec<_> = written(&world).into_iter().filter(|it| !it.contains("volumeattachments")).collect();
    let (deletes, patches): (Vec<_>, Vec<_>) = ours.iter().partition(|it| it.starts_with("delete"));
    assert_eq!(deletes, ["delete persistentvolumes 200"]);
    assert!(patches.len() <= 2, "one of ours, one of the attacher's: {patches:?}");
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 1, "exactly one DeleteVolume");
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_volume_that_its_class_retains_stays_when_the_claim_goes() {
    let (world, class) = shop(json!({ "reclaimPolicy": "Retain" })).await;
    let _daemon = world.supplier(json!({})).await;
    let claim = world.claim("data", &class, json!({})).await;
    let volume = world.supplied_with(&claim).await.name_any();
    world.delete_claim(&claim).await;
    world.claim_gone(&claim).await;
    let released = |it: &PersistentVolume| {
        let phase = it.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Released") && !it.finalizers().iter().any(|it| it == names::FINALIZER_PROVISIONER)
    };
    let released = world.until(&volume, "released, without our finalizer", released).await;
    assert!(released.metadata.deletion_timestamp.is_none());
    assert!(world.driver().calls_of(Method::DeleteVolume).is_empty());
}

#[tokio::test]
async fn a_claim_for_a_first_consumer_is_provisioned_where_its_node_is() {
    let world = World::supplied(zoned([pool("a", 10), pool("b", 10)])).await;
    let _daemon = world.supplier(json!({})).await;
    let (_one, two) = (world.node_in("one", "a").await, world.node_in("two", "b").await);
    let class = world.waiting_class("gold", json!({})).await;
    let claim = world.claim("data", &class, json!({})).await;
    world.select(&claim, Some(&two)).await;
    let volume = world.supplied_with(&claim).await;
    let asked = world.asked(&claim, 1).await.remove(0).create.unwrap().accessibility_requirements.unwrap();
    assert_eq!(asked.preferred[0].segments[ZONE], "b");
    let affinity = serde_json::to_value(volume.spec.unwrap().node_affinity).unwrap();
    assert_eq!(affinity.pointer("/required/nodeSelectorTerms/0/matchExpressions/0/values"), Some(&json!(["b"])));
}

#[tokio::test]
async fn r56_a_claim_deleted_while_its_volume_is_made_leaves_nothing_behind() {
    let (world, class) = shop(json!({})).await;
    let _daemon = world.supplier(json!({})).await;
    let slow = Action::DoneButFail { code: Code::DeadlineExceeded, message: "slow".into() };
    world.driver().inject(create(slow).times(2));
    let claim = world.claim("data", &class, json!({})).await;
    world.asked(&claim, 1).await;
    world.delete_claim(&claim).await;
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_retry_asks_the_same_byte_by_byte_although_the_class_was_replaced() {
    let (world, class) = shop(json!({ "parameters": { "kind": "fast" } })).await;
    let _daemon = world.supplier(json!({})).await;
    world.driver().inject(create(Action::fail(Code::DeadlineExceeded, "slow")).times(3));
    let claim = world.claim("data", &class, json!({})).await;
    world.asked(&claim, 1).await;
    world.all::<StorageClass>().delete(&class, &DeleteParams::default()).await.unwrap();
    world.supplied_with(&claim).await;
    let asked: Vec<_> = world.asked(&claim, 4).await.into_iter().map(|call| call.create.unwrap()).collect();
    assert_eq!(asked.len(), 4);
    assert!(asked.iter().all(|it| *it == asked[0]), "{asked:#?}");
}

#[tokio::test]
async fn a_final_error_is_told_once_and_leaves_the_claim_unmarked() {
    let (world, class) = shop(json!({})).await;
    let _daemon = world.supplier(json!({})).await;
    world.driver().inject(create(Action::fail(Code::Internal, "no such pool")));
    let claim = world.claim("data", &class, json!({})).await;
    world.asked(&claim, 4).await;
    world.claim_told(&claim, "ProvisioningFailed", "no such pool").await;
    world.claim_until(&claim, "unmarked", |it| !world.is_marked(it)).await;
    world.driver().clear_faults();
    world.supplied_with(&claim).await;
    // Events are written in order: when the next one is there, all that is told of the failure is.
    let told = world.claim_told(&claim, "ProvisioningSucceeded", "").await;
    let failures = told.iter().filter(|it| it.reason.as_deref() == Some("ProvisioningFailed")).count();
    assert_eq!(failures, 1, "{told:#?}");
}

#[tokio::test]
async fn r51_a_node_without_room_is_given_back_to_the_scheduler() {
    let world = World::supplied(zoned([pool("a", 10)])).await;
    let _daemon = world.supplier(json!({})).await;
    let node = world.node_in("one", "a").await;
    let class = world.waiting_class("gold", json!({})).await;
    world.driver().inject(create(Action::fail(Code::ResourceExhausted, "full")).once());
    let claim = world.claim("data", &class, json!({})).await;
    world.select(&claim, Some(&node)).await;
    world.asked(&claim, 1).await;
    let given_back = |it: &PersistentVolumeClaim| !it.annotations().contains_key(SELECTED_NODE) && !world.is_marked(it);
    world.claim_until(&claim, "without node and mark", given_back).await;
    world.select(&claim, Some(&node)).await;
    world.supplied_with(&claim).await;
}

#[tokio::test]
async fn a_successor_resumes_what_the_daemon_before_it_had_begun() {
    let (world, class) = shop(json!({})).await;
    let daemon = world.supplier(json!({})).await;
    world.driver().inject(create(Action::DoneButHang).once());
    let claim = world.claim("data", &class, json!({})).await;
    world.asked(&claim, 1).await;
    daemon.kill();
    world.claim_until(&claim, "still marked", |it| world.is_marked(it)).await;
    world.delete_claim(&claim).await;
    let _daemon = world.supplier(json!({})).await;
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_source_that_is_deleted_while_it_is_cloned_stays_until_its_clone_is_made() {
    let (world, class) = shop(json!({})).await;
    let _daemon = world.supplier(json!({})).await;
    let source = world.claim("source", &class, json!({})).await;
    let original = world.supplied_with(&source).await;
    world.driver().inject(create(Action::fail(Code::DeadlineExceeded, "slow")).times(3));
    let copy = world.claim_from("copy", &class, CLAIM, &source).await;
    world.asked(&copy, 1).await;
    world.delete_claim(&source).await;
    world.supplied_with(&copy).await;
    let asked = world.asked(&copy, 1).await.pop().unwrap().create.unwrap().volume_content_source.unwrap();
    let handle = &original.spec.as_ref().unwrap().csi.as_ref().unwrap().volume_handle;
    assert!(format!("{asked:?}").contains(handle), "{asked:?}");
    world.claim_gone(&source).await;
    world.gone::<PersistentVolume>(&original.name_any()).await;
}

#[tokio::test]
async fn a_source_is_let_go_of_once_its_last_clone_is_made() {
    let (world, class) = shop(json!({})).await;
    let _daemon = world.supplier(json!({})).await;
    let source = world.claim("source", &class, json!({})).await;
    world.supplied_with(&source).await;
    let one = world.claim_from("one", &class, CLAIM, &source).await;
    let two = world.claim_from("two", &class, CLAIM, &source).await;
    world.supplied_with(&one).await;
    world.supplied_with(&two).await;
    let is_protected = |it: &PersistentVolumeClaim| it.finalizers().iter().any(|it| it == names::FINALIZER_CLONING);
    world.claim_until(&source, "let go of", |it| !is_protected(it)).await;
    let protections = world.sandbox().stage.api.audit().matching(|it| {
        it.verb == "patch" && it.body.as_ref().is_some_and(|body| body.to_string().contains(names::FINALIZER_CLONING))
    });
    assert!(protections.len() >= 2, "put on, and taken off");
}

#[tokio::test]
async fn r48_a_volume_that_is_attached_is_deleted_once_it_is_detached_and_nobody_is_warned() {
    let (world, class) = shop(json!({})).await;
    let daemon = world.supplier(json!({})).await;
    let node = world.node("node").await;
    let claim = world.claim("data", &class, json!({})).await;
    let volume = world.supplied_with(&claim).await.name_any();
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
    world.delete_claim(&claim).await;
    let waits = |status: &Value| {
        let tables = status["tables"].as_array().unwrap();
        let table = tables.iter().find(|it| it["title"] == "Volumes that wait to be detached");
        table.is_some_and(|it| it["rows"].as_array().unwrap().iter().any(|row| row[0] == volume))
    };
    world.shows(&daemon, "the volume waits", waits).await;
    assert!(world.driver().calls_of(Method::DeleteVolume).is_empty());
    world.detach(&attachment).await;
    world.gone::<PersistentVolume>(&volume).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 1);
    let events = world.namespaced::<Event>().list(&ListParams::default()).await.unwrap().items;
    assert!(events.iter().all(|it| it.reason.as_deref() != Some("VolumeFailedDelete")), "{events:#?}");
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn without_durable_intent_a_claim_costs_one_write_and_a_deletion_mid_way_still_leaves_nothing() {
    let (world, class) = shop(json!({})).await;
    let _daemon = world.supplier(json!({ "durableIntent": false })).await;
    let claim = world.claim("data", &class, json!({})).await;
    world.supplied_with(&claim).await;
    assert_eq!(written(&world), ["create persistentvolumes 201"]);
    let busy = Action::DoneButFail { code: Code::Unavailable, message: "busy".into() };
    world.driver().inject(create(busy).times(3));
    let other = world.claim("other", &class, json!({})).await;
    let name = world.volume_name(&other).await;
    world.asked(&other, 1).await;
    world.delete_claim(&other).await;
    world.driver_until("asked to the end", |driver| driver.volume_named(&name).is_none()).await;
    world.delete_claim(&claim).await;
    world.assert_all_gone(&[&claim, &other]).await;
}
