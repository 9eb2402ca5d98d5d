//! What a term with `nodeWatch` reports of nodes that fail, under paused time.

use k8s_openapi::api::core::v1 as core;
use serde_json::json;

use crate::roles::kit::served::Served;
use crate::sandbox::api::faults::Matching;
use crate::sandbox::api::pure::rejection::Rejection;
use crate::sandbox::api::{self, PatchBody};
use crate::sandbox::driver::Profile;

use super::tests::{SECOND, bind, events, scene};

/// A term that counts a node as failed after a minute, with a claim `c0` of our driver.
async fn watching() -> Served {
    let section = json!({ "nodeWatch": true, "nodeDownAfter": "60s", "listInterval": "10m" });
    let world = scene(Profile::default().with_volume_health(), section, 1).await;
    node(&world, "n1");
    ready(&world, "n1", "True");
    world
}

fn node(world: &Served, name: &str) {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
    world.testbed.api.create_value(node).unwrap();
}

fn ready(world: &Served, node: &str, status: &str) {
    let conditions = json!([{ "type": "Ready", "status": status }]);
    let patch = PatchBody::Merge(json!({ "status": { "conditions": conditions } }));
    world.testbed.api.patch_status::<core::Node>("", node, patch).unwrap();
}

/// A pod that no node has yet, with these claims; `(name, true)`: of a generic ephemeral volume.
fn pod(world: &Served, name: &str, volumes: &[(&str, bool)]) {
    let volume = |(volume, is_ephemeral): &(&str, bool)| {
        if *is_ephemeral {
            let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
            json!({ "name": volume, "ephemeral": { "volumeClaimTemplate": { "spec": spec } } })
        } else {
            json!({ "name": volume, "persistentVolumeClaim": { "claimName": volume } })
        }
    };
    let volumes: Vec<_> = volumes.iter().map(volume).collect();
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [{ "name": "main", "image": "none" }], "volumes": volumes } });
    world.testbed.api.create_value(pod).unwrap();
}

fn schedule(world: &Served, pod: &str, node: &str) {
    let patch = PatchBody::Merge(json!({ "spec": { "nodeName": node } }));
    world.testbed.api.patch::<core::Pod>("default", pod, patch).unwrap();
}

/// The texts of the Events on a claim.
fn texts(world: &Served, claim: &str) -> Vec<String> {
    let mut events: Vec<core::Event> = world.testbed.api.list("default").unwrap();
    events.sort_by_key(|it| it.metadata.resource_version.as_ref().and_then(|version| version.parse::<u64>().ok()));
    let own = events.into_iter().filter(|it| it.involved_object.name.as_deref() == Some(claim));
    own.filter_map(|it| Some(format!("{} {}", it.type_?, it.message?))).collect()
}

#[tokio::test(start_paused = true)]
async fn h23_a_node_that_is_not_ready_for_long_is_told_once_on_each_claim_of_its_pods_and_so_is_its_end() {
    let world = watching().await;
    bind(&world, "b-scratch", "v7");
    pod(&world, "a", &[("c0", false)]);
    pod(&world, "b", &[("c0", false), ("scratch", true)]);
    world.lead();
    // The pods come to their node when the role knows them already.
    tokio::time::sleep(SECOND).await;
    schedule(&world, "a", "n1");
    schedule(&world, "b", "n1");
    ready(&world, "n1", "Unknown");
    tokio::time::sleep(50 * SECOND).await;
    assert_eq!(events(&world), Vec::<String>::new());
    world.until("both are told", |world| events(world).len() == 2).await;
    let failed = "are now on a failed node: n1";
    let text = |pods: &str, claim: &str| {
        format!("Warning Pods: [ {pods} ] consuming PVC: {claim} in namespace: default {failed}")
    };
    assert_eq!(texts(&world, "c0"), [text("a b", "c0")]);
    assert_eq!(texts(&world, "b-scratch"), [text("b", "b-scratch")]);
    // One more claim comes there, and one of another driver.
    bind(&world, "late", "v8");
    pod(&world, "d", &[("late", false), ("c0", false), ("foreign", false)]);
    schedule(&world, "d", "n1");
    world.until("it is told", |world| texts(world, "late") == [text("d", "late")]).await;
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!(events(&world).len(), 3, "once for each claim");
    // Another leader repeats nothing, and tells the end.
    world.die().await;
    world.lead();
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!(events(&world).len(), 3);
    ready(&world, "n1", "True");
    world.until("its end is told", |world| events(world).len() == 6).await;
    assert_eq!(texts(&world, "late")[1..], ["Normal Node: n1 recovered"]);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn h23_a_node_that_is_deleted_has_failed_at_once_and_one_that_is_back_soon_has_not() {
    let world = watching().await;
    node(&world, "n2");
    ready(&world, "n2", "True");
    bind(&world, "c1", "v1");
    for (name, claim, node) in [("a", "c0", "n1"), ("b", "c1", "n2")] {
        pod(&world, name, &[(claim, false)]);
        schedule(&world, name, node);
    }
    world.lead();
    tokio::time::sleep(SECOND).await;
    ready(&world, "n2", "False");
    tokio::time::sleep(50 * SECOND).await;
    ready(&world, "n2", "True");
    world.testbed.api.delete::<core::Node>("", "n1").unwrap();
    world.until("it is told", |world| events(world) == ["NodeFailed c0"]).await;
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!(events(&world).len(), 1);
    // The next leader cannot read at first that it was told, and the node is ready again before it can.
    world.die().await;
    let lists = Matching::any().verb("list").resource("events");
    let refused = api::faults::Action::Refuse(Rejection::too_many_requests(1));
    world.testbed.api.faults().add(api::faults::Fault::on(lists, refused).times(4));
    world.lead();
    node(&world, "n1");
    ready(&world, "n1", "True");
    world.until("its end is told", |world| events(world) == ["NodeFailed c0", "NodeRecovered c0"]).await;
    world.testbed.tear_down().await;
}
