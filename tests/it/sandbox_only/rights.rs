//! Rights that are missing are told, and work goes on when they are granted.

use csi_control_plane::sandbox::api::{Grant, Identity, PolicyRule};
use csi_control_plane::sandbox::stage::{Daemon, Stage};

use serde_json::Value;

use super::{api, user};
use crate::objects;
use crate::world::World;

/// Group, resource, verbs: what the shipped role has for both roles of the daemon.
const RIGHTS: &[(&str, &str, &[&str])] = &[
    ("", "persistentvolumes", &["get", "list", "watch", "patch"]),
    ("", "secrets", &["get"]),
    ("", "events", &["create", "patch"]),
    ("storage.k8s.io", "csinodes", &["get", "list", "watch"]),
    ("storage.k8s.io", "volumeattachments", &["get", "list", "watch", "patch"]),
    ("storage.k8s.io", "volumeattachments/status", &["patch"]),
    ("coordination.k8s.io", "leases", &["get", "list", "watch", "create", "update", "patch"]),
];

/// All rights but one verb on one resource.
fn grants(resource: &str, verb: &str) -> Vec<Grant> {
    let rule = |(group, plural, verbs): &(&str, &str, &[&str])| PolicyRule {
        api_groups: vec![(*group).to_owned()],
        resources: vec![(*plural).to_owned()],
        resource_names: Vec::new(),
        verbs: verbs.iter().filter(|it| (*plural, **it) != (resource, verb)).map(|it| (*it).to_owned()).collect(),
    };
    RIGHTS.iter().map(|right| Grant { namespace: None, rule: rule(right) }).collect()
}

fn admit(world: &World, missing: (&str, &str)) {
    let identity = Identity::limited(user(world), grants(missing.0, missing.1));
    api(world).admit(Stage::token(&user(world)), identity);
}

async fn start(world: &World, missing: (&str, &str)) -> Daemon {
    admit(world, missing);
    let (stage, name) = (&world.sandbox().stage, user(world));
    let dial = stage.driver_dial(&name);
    stage.start_as(&name, &objects::config().to_string(), Stage::token(&name), dial).await.unwrap()
}

#[tokio::test]
async fn r7_the_shipped_rights_without_any_update_of_objects_are_enough() {
    let world = World::new().await;
    let daemon = start(&world, ("", "")).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
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
    for missing in [("persistentvolumes", "patch"), ("volumeattachments", "patch")] {
        let world = World::new().await;
        let _daemon = start(&world, missing).await;
        let (node, volume) = (world.node("node").await, world.volume("pv").await);
        let attachment = world.attach(&volume, &node).await;
        let failed = world.failed(&attachment, "forbidden").await;
        let message = failed.status.unwrap().attach_error.unwrap().message.unwrap();
        assert!(
            message.contains(missing.0) && message.contains("patch") && message.contains(&user(&world)),
            "{message}"
        );
        assert_eq!(world.publishes(&volume).len(), 0, "never before it is safe");
        admit(&world, ("", ""));
        world.attached(&attachment).await;
        world.detached(&attachment).await;
    }
}

#[tokio::test]
async fn a_missing_right_to_write_the_status_shows_on_the_status_page_and_is_got_over_when_granted() {
    let world = World::new().await;
    let daemon = start(&world, ("volumeattachments/status", "patch")).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;
    world.driver_until("a second attempt", |_| world.publishes(&volume).len() > 1).await;
    let status = world.status(&daemon).await.to_string();
    assert!(status.contains("forbidden") && status.contains("volumeattachments/status"), "{status}");
    admit(&world, ("", ""));
    world.attached(&attachment).await;
}

#[tokio::test]
async fn a_missing_right_to_list_shows_on_the_status_page_and_is_got_over_when_granted() {
    for plural in ["volumeattachments", "persistentvolumes", "csinodes"] {
        let world = World::new().await;
        let daemon = start(&world, (plural, "list")).await;
        let told = |status: &Value| status["caches"].to_string().contains("forbidden");
        world.shows(&daemon, "a cache that says what is forbidden", told).await;
        let (node, volume) = (world.node("node").await, world.volume("pv").await);
        let attachment = world.attach(&volume, &node).await;
        admit(&world, ("", ""));
        world.attached(&attachment).await;
    }
}
