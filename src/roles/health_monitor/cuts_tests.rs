//! Wherever the health monitor is cut, the next leader comes to the same end.

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use crate::roles::health_monitor::REGISTRATION;
use crate::roles::kit::cuts::assert_the_same_end;
use crate::roles::kit::served::Served;
use crate::sandbox::api::PatchBody;
use crate::sandbox::driver::Profile;

/// A claim with this status, and its volume, which is as `wrong` says.
async fn scene(report: &str, status: Value, wrong: &[(i32, &'static str, &'static str)]) -> Served {
    let profile = Profile::default().with_volume_health();
    let world = Served::new(&REGISTRATION, &json!({ "listInterval": "1h", "report": report }), profile).await;
    let (driver, api) = (world.context.driver.name.clone(), &world.testbed.api);
    api.keep_volume_health();
    world.testbed.driver.seed(["v"]);
    world.testbed.driver.set_health("v", wrong.iter().copied());
    let size = json!({ "storage": "1Gi" });
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": "default" },
        "spec": { "volumeName": "pv-1", "accessModes": ["ReadWriteOnce"], "resources": { "requests": size } } });
    let uid = api.create_value(claim).unwrap()["metadata"]["uid"].clone();
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-1" },
        "spec": { "capacity": size, "accessModes": ["ReadWriteOnce"],
            "claimRef": { "namespace": "default", "name": "data", "uid": uid },
            "csi": { "driver": driver, "volumeHandle": "v" } } });
    api.create_value(volume).unwrap();
    let bound = |health: Value| PatchBody::Merge(json!({ "status": { "phase": "Bound", "healthStatus": health } }));
    api.patch_status::<PersistentVolume>("", "pv-1", PatchBody::Merge(json!({ "status": { "phase": "Bound" } })))
        .unwrap();
    api.patch_status::<PersistentVolumeClaim>("default", "data", bound(status)).unwrap();
    world.write_events();
    world
}

/// What the claim says, and the reasons of its Events.
fn end(world: &Served) -> (Value, Vec<String>) {
    let claim: PersistentVolumeClaim = world.testbed.api.get("default", "data").unwrap();
    let conditions = claim.status.and_then(|it| it.health_status).and_then(|it| it.health_conditions);
    let events: Vec<Event> = world.testbed.api.list("default").unwrap();
    let reasons = events.into_iter().filter_map(|it| it.reason).collect::<std::collections::BTreeSet<_>>();
    (serde_json::to_value(conditions).unwrap(), reasons.into_iter().collect())
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_comes_into_the_status_and_into_events() {
    let scene = async || scene("both", Value::Null, &[(1, "Slow", "one path"), (3, "Torn", "block 7")]).await;
    let is_told = |world: &Served| {
        let (status, events) = end(world);
        (status.is_array() && events == ["VolumeConditionAbnormal"]).then_some((status, events))
    };
    assert_the_same_end(scene, is_told).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_wrong_leaves_the_status() {
    let held = json!({ "healthConditions": [{ "status": "Degraded", "reason": "Slow", "message": "one path" }] });
    let scene = async || scene("auto", held.clone(), &[]).await;
    assert_the_same_end(scene, |world| Some(end(world)).filter(|(status, _)| status.is_null())).await;
}
