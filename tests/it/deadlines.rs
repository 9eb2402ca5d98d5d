//! The deadlines of calls to the driver: one for all roles, or one of a role's own.

use std::time::Duration;

use csi_control_plane::sandbox::driver::Method;
use kube::ResourceExt as _;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn an_expansion_may_have_a_deadline_of_its_own() {
    let world = World::supplied(|_| {}).await;
    let config = json!({
        "roles": {"provisioner": {}, "resizer": {"timeout": "62s", "resizeTimeout": "65s", "modifyTimeout": "66s"}},
    });
    let _daemon = world.daemon(config).await;
    let class = world.class("class", json!({"allowVolumeExpansion": true, "reclaimPolicy": "Retain"})).await;
    let claim = world.claim("claim", &class, json!({})).await;
    world.supplied_with(&claim).await;
    world.ask_for(&claim, "2Gi").await;
    let method = Method::ControllerExpandVolume;
    world.driver_until("called", |driver| !driver.calls_of(method).is_empty()).await;
    for call in world.driver().calls_of(method) {
        let limit = call.deadline.unwrap().saturating_sub(call.started);
        assert_eq!((limit + Duration::from_millis(500)).as_secs(), 65, "{call:?}");
    }
}

#[tokio::test]
async fn each_role_has_its_own_deadline_and_without_one_the_common_one() {
    let world = World::supplied(|_| {}).await;
    let config = json!({
        "csi": {"timeout": "61s"},
        "roles": {
            "attacher": {"timeout": "62s"},
            "provisioner": {"timeout": "63s"},
            "reconciler": {"pageTimeout": "64s"},
            "resizer": {"timeout": null, "modifyTimeout": "66s"},
        },
    });
    let _daemon = world.daemon(config).await;
    let class = world.class("class", json!({"allowVolumeExpansion": true, "reclaimPolicy": "Retain"})).await;
    let claim = world.claim("claim", &class, json!({})).await;
    let volume = world.supplied_with(&claim).await.name_any();
    world.attached(&world.attach(&volume, &world.node("node").await).await).await;
    world.ask_for(&claim, "2Gi").await;
    for (method, seconds) in [
        (Method::CreateVolume, 63),
        (Method::ControllerPublishVolume, 62),
        (Method::ControllerExpandVolume, 61),
        (Method::ListVolumes, 64),
    ] {
        world.driver_until("called", |driver| !driver.calls_of(method).is_empty()).await;
        for call in world.driver().calls_of(method) {
            let limit = call.deadline.unwrap().saturating_sub(call.started);
            assert_eq!((limit + Duration::from_millis(500)).as_secs(), seconds, "{call:?}");
        }
    }
}
