//! What the driver is asked, and what is left where it can't be.

use super::*;
use crate::proto::{GetCapacityRequest, Topology};

/// Waits until there is an object for each of so many items, and returns all questions.
async fn questions(world: &World, slots: usize) -> Vec<GetCapacityRequest> {
    world.until("all are told", |world| world.told().len() == slots).await;
    world.testbed.driver.calls_of(Method::GetCapacity).into_iter().map(|call| *call.capacity.clone().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn r17_the_driver_is_asked_with_its_own_parameters_without_capabilities_and_for_the_segment_if_there_is_one() {
    let parameters = json!({ "type": "ssd", "csi.storage.k8s.io/fstype": "xfs",
        "csi.storage.k8s.io/provisioner-secret-name": "s", "csi.storage.k8s.io/provisioner-secret-namespace": "n",
        "csi.storage.k8s.io/node-stage-secret-name": "s", "csi.storage.k8s.io/node-stage-secret-namespace": "n" });
    let class = class("fast", &parameters);
    let expected = |place: Option<&str>| GetCapacityRequest {
        volume_capabilities: Vec::new(),
        parameters: [("type".to_owned(), "ssd".to_owned())].into(),
        accessible_topology: place.map(|zone| Topology { segments: [("zone".to_owned(), zone.to_owned())].into() }),
    };

    let world = World::with(zoned(), std::slice::from_ref(&class)).await;
    world.add_node("n1", Some("z1"));
    world.add_node("n2", Some("z2"));
    let mut asked = questions(&world, 2).await;
    asked.sort_by_key(|question| question.accessible_topology.as_ref().map(|place| place.segments["zone"].clone()));
    assert_eq!(asked, [expected(Some("z1")), expected(Some("z2"))]);
    world.tear_down().await;

    let world = World::with(Profile::default(), &[class]).await;
    world.add_node("n1", None);
    assert_eq!(questions(&world, 1).await, [expected(None)]);
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_class_with_an_unknown_reserved_parameter_is_said_so_and_not_asked_for() {
    let odd = class("odd", &json!({ "csi.storage.k8s.io/unheard-of": "x" }));
    let secret = json!({ "csi.storage.k8s.io/provisioner-secret-name": "s",
        "csi.storage.k8s.io/provisioner-secret-namespace": "n", "type": "ssd" });
    let world = World::with(zoned(), &[odd, class("sound", &secret)]).await;
    world.add_node("n1", Some("z1"));
    world.until("the sound one", |world| world.told() == [at("sound", "z1", "10Ti")]).await;
    world.until("why not the odd one", |world| world.rows()[0][5].contains("unheard-of")).await;
    assert_eq!(world.asked(), 1);
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_cannot_tell_is_not_asked_and_the_page_says_so() {
    let world = World::with(zoned().without(Rpc::GetCapacity), &[class("fast", &json!({}))]).await;
    world.add_node("n1", Some("z1"));
    world.until("the reason", |world| world.rows().iter().any(|row| row[5].contains("GET_CAPACITY"))).await;
    world.pass_polls(2).await;
    assert_eq!((world.asked(), world.objects().len()), (0, 0));
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_told_that_cannot_tell_any_more_stays_and_the_page_says_how_much() {
    let left = |name: &str, zone: &str, driver: &str| {
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
            "metadata": { "name": name, "namespace": SPACE, "labels": { "csi.storage.k8s.io/drivername": driver,
                "csi.storage.k8s.io/managed-by": "external-provisioner" } },
            "storageClassName": "fast", "nodeTopology": { "matchLabels": { "zone": zone } }, "capacity": "1Gi" })
    };
    let objects =
        [class("fast", &json!({})), left("a", "z1", DRIVER), left("b", "z2", DRIVER), left("c", "z1", "other")];
    let world = World::with(zoned().without(Rpc::GetCapacity), &objects).await;
    world.add_node("n1", Some("z1"));
    world.until("how many are left", |world| world.rows().iter().any(|row| row[5].ends_with("as they are: 2"))).await;
    world.pass_polls(2).await;
    assert_eq!((world.asked(), world.writes(), world.objects().len()), (0, [0, 0, 0], 3));
    world.tear_down().await;
}
