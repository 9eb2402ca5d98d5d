//! A term that ends while a write waits for its turn: nothing was sent, which is the failure of no object.

use serde_json::{Value, json};

use crate::cluster::ApiOptions;
use crate::cluster::names::FINALIZER_CLONING;
use crate::election::Term;
use crate::roles::kit::served::Served;
use crate::roles::{Registration, attacher, csi_attacher, provisioner};
use crate::sandbox::driver::Profile;

/// Serves a term that is over before anything can be written, and waits until an attempt has come to its end.
async fn outlast(registration: &Registration, section: Value, objects: impl FnOnce(&str) -> Vec<Value>) -> Served {
    let world = Served::new(registration, &section, Profile::default()).await;
    for object in objects(&world.context.driver.name) {
        world.testbed.api.create_value(object).unwrap();
    }
    world.jam().await;
    world.serve(Term::unattended(world.context.clock, ApiOptions::default().timeout / 2));
    world
}

async fn assert_told_of_nothing(world: Served) {
    // It waits to be repeated. An attempt that the end of the term has interrupted does not count as one.
    let has_ended = |world: &Served| world.work().iter().any(|item| item.next_try.is_some());
    world.until("an attempt that ended", has_ended).await;
    let told: Vec<_> = world.work().into_iter().filter_map(|item| item.last_error).collect();
    assert_eq!(told, Vec::<String>::new());
    assert!(world.work().iter().all(|item| item.attempts == 0), "{:#?}", world.work());
    let figures = world.context.meter.render();
    let retries: Vec<_> = figures.lines().filter(|line| line.starts_with("workqueue_retries_total{")).collect();
    assert!(!retries.is_empty() && retries.iter().all(|line| line.ends_with(" 0")), "{retries:?}");
    let sent = world.testbed.api.audit().matching(|entry| ["create", "patch", "delete"].contains(&entry.verb));
    assert_eq!(sent, []);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_was_to_be_released_after_the_term_has_not_failed() {
    let objects = |driver: &str| {
        let metadata = json!({ "name": "pv-1", "finalizers": [csi_attacher::finalizer(driver)] });
        vec![json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata,
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": driver, "volumeHandle": "vol-1" } } })]
    };
    let world = outlast(&attacher::REGISTRATION, json!({}), objects).await;
    world.testbed.api.delete::<k8s_openapi::api::core::v1::PersistentVolume>("", "pv-1").unwrap();
    assert_told_of_nothing(world).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_was_to_be_let_go_of_after_the_term_has_not_failed() {
    let objects = |_: &str| {
        let metadata = json!({ "name": "source", "finalizers": [FINALIZER_CLONING] });
        vec![json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "",
                "resources": { "requests": { "storage": "1Gi" } } } })]
    };
    let world = outlast(&provisioner::REGISTRATION, json!({ "durableIntent": false }), objects).await;
    assert_told_of_nothing(world).await;
}

#[tokio::test(start_paused = true)]
async fn a_capacity_that_was_to_be_written_after_the_term_has_not_failed() {
    let objects = |driver: &str| {
        vec![
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } }),
            json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": "n1" },
                "spec": { "drivers": [{ "name": driver, "nodeID": "id-1", "topologyKeys": null }] } }),
            json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "fast" },
                "provisioner": driver, "volumeBindingMode": "WaitForFirstConsumer" }),
        ]
    };
    let section = json!({ "durableIntent": false, "capacity": { "enabled": true, "ownerLevel": -1 } });
    let world = outlast(&provisioner::REGISTRATION, section, objects).await;
    assert_told_of_nothing(world).await;
}
