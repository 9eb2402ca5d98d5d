//! Wherever the resizer is cut, the next leader comes to the same end. So does one whose work another program has done before it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};
use tonic::Code;

use crate::roles::kit::cuts::assert_the_same_end;
use crate::roles::kit::fixtures::merged;
use crate::roles::kit::served::Served;
use crate::roles::resizer::{REGISTRATION, names};
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};
use crate::sandbox::driver::{Action, Fault, Method, Profile};

const VOLUME: &str = "pv-1";
const CLAIM: &str = "data";

/// A bound claim of 1Gi that wants 2Gi and a class, with its volume and a secret, and how the driver fails.
async fn scene(mode: &str, section: Value, status: Value, faults: &[Fault]) -> Served {
    let profile = Profile { abort_while_pending: false, ..Profile::default() };
    let short = json!({ "resync": "0s", "retry": { "initial": "100ms", "max": "1s", "infeasible": "1s" } });
    let world = Served::new(&REGISTRATION, &merged(short, section), profile).await;
    let (driver, api) = (world.context.driver.name.clone(), &world.testbed.api);
    world.testbed.driver.seed([VOLUME]);
    for fault in faults {
        world.testbed.driver.inject(fault.clone());
    }
    let size = |size: &str| json!({ "storage": size });
    for object in [
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys", "namespace": "default" }, "data": {} }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": { "name": "gold" },
            "driverName": driver, "parameters": { "iops": "100" } }),
    ] {
        api.create_value(object).unwrap();
    }
    let claim = api.create_value(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": CLAIM, "namespace": "default" },
        "spec": { "volumeName": VOLUME, "volumeMode": mode, "volumeAttributesClassName": "gold",
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": size("2Gi") } } }));
    let uid = claim.unwrap()["metadata"]["uid"].clone();
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": VOLUME },
        "spec": { "capacity": size("1Gi"), "volumeMode": mode, "accessModes": ["ReadWriteOnce"],
            "claimRef": { "namespace": "default", "name": CLAIM, "uid": uid },
            "csi": { "driver": driver, "volumeHandle": VOLUME,
                "controllerExpandSecretRef": { "name": "keys", "namespace": "default" } } } });
    api.create_value(volume).unwrap();
    let bound = merged(json!({ "phase": "Bound", "capacity": size("1Gi") }), status);
    let patch = PatchBody::Merge(json!({ "status": bound }));
    api.patch_status::<PersistentVolumeClaim>("default", CLAIM, patch).unwrap();
    world
}

/// What there is of the claim and its volume, but for times and uids.
fn end(world: &Served) -> Value {
    let claim: PersistentVolumeClaim = world.testbed.api.get("default", CLAIM).unwrap();
    let volume: PersistentVolume = world.testbed.api.get("", VOLUME).unwrap();
    let mut status = serde_json::to_value(claim.status.unwrap()).unwrap();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
        condition["lastProbeTime"] = Value::Null;
    }
    let spec = serde_json::to_value(volume.spec.unwrap()).unwrap();
    let driver = world.testbed.driver.state().volumes()[VOLUME].capacity;
    json!({ "status": status, "annotations": [claim.metadata.annotations, volume.metadata.annotations],
        "size": spec["capacity"], "class": spec["volumeAttributesClassName"], "driver": driver })
}

/// The end, once the claim has its class, and this size or state.
fn once(field: &'static str, value: &'static str) -> impl Fn(&Served) -> Option<Value> {
    move |world| {
        let end = end(world);
        let has_class = end["status"]["currentVolumeAttributesClassName"] == "gold";
        (has_class && end["status"].pointer(field).is_some_and(|it| it == value)).then_some(end)
    }
}

const SIZE: &str = "/capacity/storage";

#[tokio::test(start_paused = true)]
async fn a_size_and_a_class_come_to_their_end_one_after_the_other_and_together() {
    for pairs in ["never", "always"] {
        let scene = async || scene("Block", json!({ "pairCalls": pairs }), json!({}), &[]).await;
        assert_the_same_end(scene, once(SIZE, "2Gi")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_size_that_a_node_has_to_reach_comes_to_the_node() {
    let scene = async || scene("Filesystem", json!({}), json!({}), &[]).await;
    assert_the_same_end(scene, once("/allocatedResourceStatuses/storage", "NodeResizePending")).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_once_comes_to_its_end() {
    let refused = |method, code| Fault::on(method, Action::fail(code, "no")).once();
    let faults = [
        refused(Method::ControllerExpandVolume, Code::OutOfRange),
        refused(Method::ControllerModifyVolume, Code::InvalidArgument),
    ];
    for pairs in ["never", "always"] {
        let scene = async || scene("Block", json!({ "pairCalls": pairs }), json!({}), &faults).await;
        assert_the_same_end(scene, once(SIZE, "2Gi")).await;
    }
}

/// The user has come down from 3Gi. The driver may still be at work on that, so nobody asks for less.
#[tokio::test(start_paused = true)]
async fn i4_a_size_that_may_be_on_its_way_comes_to_its_end_before_a_smaller_one() {
    let begun = json!({ "allocatedResources": { "storage": "3Gi" },
        "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
        "conditions": [{ "type": "Resizing", "status": "True" }] });
    let open = [Fault::on(Method::ControllerExpandVolume, Action::fail(Code::Aborted, "busy")).times(2)];
    let scene = async || scene("Block", json!({}), begun.clone(), &open).await;
    assert_the_same_end(scene, once(SIZE, "3Gi")).await;
}

/// A csi-resizer of 2.3 removes the note from the volumes of every driver.
#[tokio::test(start_paused = true)]
async fn z31_a_note_that_another_program_removes_at_the_same_time_costs_one_write_that_changes_nothing() {
    let caught_up = json!({ "capacity": { "storage": "2Gi" }, "currentVolumeAttributesClassName": "gold" });
    let world = scene("Block", json!({}), caught_up, &[]).await;
    let api = &world.testbed.api;
    let write = |patch: Value| api.patch::<PersistentVolume>("", VOLUME, PatchBody::Merge(patch)).unwrap();
    let annotations = json!({ names::ANNOTATION_PRE_RESIZE_CAPACITY: "1Gi", "example.com/kept": "yes" });
    write(json!({ "metadata": { "annotations": annotations }, "spec": { "capacity": { "storage": "2Gi" } } }));
    let on = Matching::any().verb("patch").resource("persistentvolumes");
    let slow = api.faults().add(ApiFault::on(on, ApiAction::DelayBefore(Duration::from_secs(5))).nth(1));
    world.lead();
    world.until_quietly("it is about to be removed", |world| world.testbed.api.faults().hits(slow) == 1).await;
    let removed = write(json!({ "metadata": { "annotations": { names::ANNOTATION_PRE_RESIZE_CAPACITY: null } } }));
    world.until_quietly("nothing is left to do", |world| world.work().is_empty()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(world.work().is_empty(), "{:?}", world.work());
    assert_eq!(api.audit().count("patch", "persistentvolumes"), 1);
    assert_eq!(
        api.get::<PersistentVolume>("", VOLUME).unwrap().metadata.resource_version,
        removed.metadata.resource_version
    );
    world.testbed.tear_down().await;
}
