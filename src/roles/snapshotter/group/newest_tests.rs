//! What external-snapshotter v8.7 has mended for groups, and what it has not.

use super::*;

#[tokio::test(start_paused = true)]
async fn ns18_a_finalizer_that_cannot_be_removed_is_tried_again_and_the_group_is_deleted_once() {
    let world = world_of_a_ready_group().await;
    let on = Matching::any().verb("patch").resource("volumegroupsnapshotcontents");
    let refused = ApiFault::on(on, ApiAction::Refuse(Rejection::internal("scripted"))).times(3);
    let refused = world.served.testbed.api.faults().add(refused);
    let begun = world.served.context.clock.now();
    world.delete();
    world.until("it is gone", |world| world.content().is_none()).await;
    let took = world.served.context.clock.now().saturating_duration_since(begun);
    assert!(took >= Duration::from_secs(1 + 2 + 4), "with a back-off: {took:?}");
    assert_eq!(world.served.testbed.api.faults().hits(refused), 3);
    assert_eq!((world.calls(Method::DeleteVolumeGroupSnapshot), world.left()), (1, (0, 0)));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn ns19_a_group_that_was_there_before_and_is_not_ready_is_looked_at_without_a_write() {
    let world = world(Profile { snapshots_wait: true, ..Profile::default() }).await;
    world.cut();
    let handle = |world: &World| Some(world.content()?["status"]["volumeGroupSnapshotHandle"].as_str()?.to_owned());
    world.until("it is cut", |world| handle(world).is_some()).await;
    let group = handle(&world).unwrap();
    let members: Vec<String> = world.served.testbed.driver.state().members(&group).into_iter().collect();
    world.patch(json!({ "spec": { "deletionPolicy": "Retain" } }));
    world.delete();
    world.until("only the driver has it", |world| world.content().is_none()).await;
    let source = json!({ "volumeGroupSnapshotHandle": group, "volumeSnapshotHandles": members });
    world.create(&json!({ "groupSnapshotHandles": source }));
    world.until("it is looked up", |world| handle(world).is_some()).await;
    let looks = |world: &World| world.calls(Method::GetVolumeGroupSnapshot);
    let first = looks(&world);
    world.until("it is looked at", |world| looks(world) >= first + 2).await;
    world.served.testbed.api.audit().clear();
    let first = looks(&world);
    world.until("it is looked at again and again", |world| looks(world) >= first + 8).await;
    assert_eq!(world.requests(), Vec::<String>::new());
    for member in &members {
        assert!(world.served.testbed.driver.finish_snapshot(member, true));
    }
    world.until("it is ready", World::is_ready).await;
    world.end().await;
}

/// The leader dies between the status that says so and the removal of the mark.
#[tokio::test(start_paused = true)]
async fn s42_ns20_a_ready_group_with_a_mark_that_is_being_deleted_goes_without_a_resync() {
    let (world, stop) = world_of_a_term().await;
    world.cut();
    world.until("it is ready", World::is_ready).await;
    world.settled().await;
    stop.cancel();
    world.until("the term is over", |world| !world.served.is_serving()).await;
    world.patch(json!({ "metadata": { "annotations": { MARK: "yes" } } }));
    world.delete();
    world.served.lead();
    let begun = world.served.context.clock.now();
    world.until("it is gone", |world| world.content().is_none()).await;
    let took = world.served.context.clock.now().saturating_duration_since(begun);
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert_eq!((world.calls(Method::DeleteVolumeGroupSnapshot), world.left()), (1, (0, 0)));
    world.end().await;
}
