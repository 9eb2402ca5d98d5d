//! Missing rights are reported, and the work continues when they are granted.

use csi_control_plane::sandbox::api::{Grant, Identity};
use csi_control_plane::sandbox::testbed::{Daemon, TestBed};

use serde_json::Value;

use super::{api, user};
use crate::failures::plan;
use crate::objects;
use crate::rights::without;
use crate::world::World;

/// Gives the daemon what `check` prints for it, without one verb on one resource.
fn admit(world: &World, missing: Option<(&str, &str)>) {
    let roles = without(&plan(world), missing);
    let grants = roles.iter().flat_map(|role| Grant::of_role(role).unwrap()).collect();
    api(world).admit(TestBed::token(&user(world)), Identity::limited(user(world), grants));
}

async fn start(world: &World, missing: Option<(&str, &str)>) -> Daemon {
    world.sandbox().start_with(&user(world), &objects::config().to_string(), &without(&plan(world), missing)).await
}

#[tokio::test]
async fn r7_the_shipped_rights_without_any_update_of_objects_are_enough() {
    let world = World::new().await;
    let daemon = start(&world, None).await;
    let (_, volume, attachment) = world.attached_anew().await;
    world.delete_volume(&volume).await;
    world.detached(&attachment).await;
    world.gone::<k8s_openapi::api::core::v1::PersistentVolume>(&volume).await;
    daemon.stop().await.unwrap();
    let user = user(&world);
    let refused = api(&world).audit().matching(|it| it.user == user && it.code == 403);
    assert_eq!(refused, []);
}

#[tokio::test]
async fn a_missing_right_to_patch_is_told_where_users_look_and_got_over_when_granted() {
    for missing in [("patch", "persistentvolumes"), ("patch", "volumeattachments")] {
        let world = World::new().await;
        let _daemon = start(&world, Some(missing)).await;
        let (node, volume) = (world.node("node").await, world.volume("pv").await);
        let attachment = world.attach(&volume, &node).await;
        let failed = world.failed(&attachment, "forbidden").await;
        let message = failed.status.unwrap().attach_error.unwrap().message.unwrap();
        assert!(
            message.contains(missing.0) && message.contains(missing.1) && message.contains(&user(&world)),
            "{message}"
        );
        assert_eq!(world.publishes(&volume).len(), 0, "never before it is safe");
        admit(&world, None);
        world.attached(&attachment).await;
        world.detached(&attachment).await;
    }
}

#[tokio::test]
async fn a_missing_right_to_write_the_status_shows_on_the_status_page_and_is_got_over_when_granted() {
    let world = World::new().await;
    let daemon = start(&world, Some(("patch", "volumeattachments/status"))).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;
    world.driver_until("a second attempt", |_| world.publishes(&volume).len() > 1).await;
    let status = world.status(&daemon).await.to_string();
    assert!(status.contains("forbidden") && status.contains("volumeattachments/status"), "{status}");
    admit(&world, None);
    world.attached(&attachment).await;
}

#[tokio::test]
async fn a_missing_right_to_list_shows_on_the_status_page_and_is_got_over_when_granted() {
    for plural in ["volumeattachments", "persistentvolumes", "csinodes"] {
        let world = World::new().await;
        let daemon = start(&world, Some(("list", plural))).await;
        let told = |status: &Value| status["caches"].to_string().contains("forbidden");
        world.shows(&daemon, "a cache that says what is forbidden", told).await;
        let (node, volume) = (world.node("node").await, world.volume("pv").await);
        let attachment = world.attach(&volume, &node).await;
        admit(&world, None);
        world.attached(&attachment).await;
    }
}
