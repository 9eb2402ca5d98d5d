//! The list of volumes that the health monitor shares with the reconciler.

use csi_control_plane::csi::ControllerRpc;
use csi_control_plane::roles::health_monitor::names::{ABNORMAL, NORMAL};
use csi_control_plane::sandbox::driver::Method;
use serde_json::json;

use crate::monitoring::{DEGRADED, count, monitor};
use crate::world::World;

const LIST: Method = Method::ListVolumes;

#[tokio::test]
async fn h21_the_reconciler_and_the_health_monitor_make_one_pass_in_an_interval() {
    let world = World::new().await;
    let (claim, volume) = world.monitored("claim").await;
    let mut both = monitor(json!({ "listInterval": "1s" }));
    both["roles"]["reconciler"] = json!({ "interval": "1s" });
    let daemon = world.daemon(both).await;
    world.ails(&volume, &[DEGRADED]);
    world.told_of(&claim, "something is wrong", |events| count(events, ABNORMAL) == 1).await;
    let begun = world.driver().calls_of(LIST).len();
    world.driver_until("five more passes", |driver| driver.calls_of(LIST).len() >= begun + 5).await;
    let calls = world.driver().calls_of(LIST);
    for pair in calls[begun - 1..].windows(2) {
        let pause = pair[1].started.saturating_sub(pair[0].ended.unwrap());
        assert!(pause.as_millis() >= 900, "{pause:?} between two passes");
    }
    world.ails(&volume, &[]);
    world.told_of(&claim, "all is well again", |events| count(events, NORMAL) == 1).await;
    assert!(world.calls(Method::ControllerGetVolume, &volume).is_empty(), "the list has all");
    daemon.stop().await.unwrap();
    assert_eq!(world.driver().violations(), []);
}

#[tokio::test]
async fn h22_a_driver_that_does_not_list_nodes_has_passes_for_health_alone() {
    let world = World::with_rpc(ControllerRpc::ListVolumesPublishedNodes, false).await;
    let (claim, volume) = world.monitored("claim").await;
    world.ails(&volume, &[DEGRADED]);
    let mut both = monitor(json!({}));
    both["roles"]["reconciler"] = json!({ "interval": "200ms" });
    let daemon = world.daemon(both).await;
    world.told_of(&claim, "something is wrong", |events| count(events, ABNORMAL) == 1).await;
    world.ails(&volume, &[]);
    world.told_of(&claim, "all is well again", |events| count(events, NORMAL) == 1).await;
    let status = world.status(&daemon).await;
    let role = status["roles"].as_array().unwrap().iter().find(|role| role["name"] == "reconciler").unwrap();
    let idle = json!({ "name": "idle", "value": "the driver does not list where its volumes are published" });
    assert_eq!(role["facts"], json!([idle]));
}
