//! How soon a term notices what the driver has done.

use super::*;

/// Content number `number` of the volume, for a snapshot of its own.
fn cut_number(world: &Served, number: usize) {
    let owner = json!({ "namespace": "shop", "name": format!("snap-{number}"),
        "uid": format!("123e4567-e89b-12d3-a456-{number:012}") });
    let content = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": format!("content-{number}") },
        "spec": { "driver": world.context.driver.name, "deletionPolicy": "Delete", "volumeSnapshotClassName": "fast",
            "source": { "volumeHandle": VOLUME }, "volumeSnapshotRef": owner } });
    world.testbed.api.create_value(content).unwrap();
}

#[tokio::test(start_paused = true)]
async fn s8_a_snapshot_is_looked_at_in_time_though_its_volume_is_never_free() {
    const SNAPSHOTS: usize = 50;
    let (longest, call) = (Duration::from_secs(30), Duration::from_secs(10));
    let section = json!({ "readyCheck": { "initial": "1s", "max": "30s" } });
    let world = unserved_with(Profile { snapshot_ready_polls: 1, ..Profile::default() }, &section).await;
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, Action::Late(call)));
    world.lead();
    // The first is the content that the other helpers look at.
    for number in 1..=SNAPSHOTS {
        cut_number(&world, number);
        if number == 1 {
            world.until("the first is asked for", |world| calls(world, Method::CreateSnapshot) == 1).await;
        }
    }
    world.until("it is cut", |world| content(world).is_some_and(|it| it["status"]["snapshotHandle"].is_string())).await;
    let cut = world.context.clock.now();
    world.until("it is ready", is_ready).await;
    let took = world.context.clock.now().saturating_duration_since(cut);
    assert!(took <= longest + 2 * call + Duration::from_secs(3), "after {took:?}");
    assert!(calls(&world, Method::CreateSnapshot) < SNAPSHOTS / 2, "the others are cut meanwhile");
    world.testbed.tear_down().await;
}
