//! What a term never deletes at the driver, and never takes: snapshots that people may have kept, or that others need.

use super::*;

/// A copy of a content: it has another uid, and the request of the one that it was copied from.
fn create_copy(world: &Served, name: &str) {
    let annotations = begun_as(world, "the uid of the original", name);
    let metadata = json!({ "finalizers": [FINALIZER_BOUND_CONTENT], "annotations": annotations });
    create_with(world, &json!({ "volumeHandle": VOLUME }), &metadata);
}

/// The snapshot of the original is there, in this cluster's storage or in the one that another cluster shares with it.
async fn world_of_a_copy() -> (Served, String) {
    let world = unserved(Profile::default()).await;
    world.write_events();
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
    world.testbed.api.create_value(namespace).unwrap();
    let name = format!("snapshot-{SNAPSHOT_UID}");
    let id = world.testbed.driver.cut_snapshot(&name, VOLUME).unwrap();
    create_copy(&world, &name);
    (world, id)
}

fn begin(world: &Served) {
    world.serve(Term::permanent(&CancellationToken::new(), world.context.clock));
}

fn has_event(world: &Served, says: &str) -> bool {
    notes(world).iter().any(|note| note.contains(says))
}

#[tokio::test(start_paused = true)]
async fn j9_a_copy_of_a_content_is_neither_cut_nor_deleted_at_the_driver() {
    let (world, id) = world_of_a_copy().await;
    begin(&world);
    world.until("an Event says so", |world| has_event(world, "was written for another")).await;
    settled(&world).await;
    assert_eq!(calls(&world, Method::CreateSnapshot), 0);
    delete(&world);
    world.until("it is gone", |world| content(world).is_none()).await;
    world.until("an Event says so", |world| has_event(world, "is kept")).await;
    assert_eq!((calls(&world, Method::CreateSnapshot), calls(&world, Method::DeleteSnapshot)), (0, 0));
    assert!(world.testbed.driver.state().snapshots().contains_key(&id));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn j9_a_copy_with_the_status_of_its_original_has_nothing_deleted_either() {
    for is_ready in [false, true] {
        let (world, id) = world_of_a_copy().await;
        let status = json!({ "snapshotHandle": id, "readyToUse": is_ready, "creationTime": 5 });
        let patched = PatchBody::Merge(json!({ "status": status }));
        world.testbed.api.patch_object(contents(), "", CONTENT, patched, true).unwrap();
        delete(&world);
        begin(&world);
        world.until("it is gone", |world| content(world).is_none()).await;
        assert_eq!((calls(&world, Method::CreateSnapshot), calls(&world, Method::DeleteSnapshot)), (0, 0));
        assert!(world.testbed.driver.state().snapshots().contains_key(&id));
        world.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn j9_a_copy_that_its_user_has_freed_of_the_request_gets_a_snapshot_of_its_own() {
    let (world, _) = world_of_a_copy().await;
    begin(&world);
    world.until("an Event says so", |world| has_event(world, "was written for another")).await;
    let freed = json!({ ANNOTATION_SNAPSHOT_BEING_CREATED: null, ANNOTATION_SNAPSHOTTING: null });
    patch(&world, json!({ "metadata": { "annotations": freed } }));
    world.until("it is ready", is_ready).await;
    world.testbed.tear_down().await;
}

/// Somebody strips the finalizer during the call, and brings the content back from a backup of a minute ago.
#[tokio::test(start_paused = true)]
async fn j9_l9_a_copy_of_a_content_that_is_gone_keeps_the_snapshot_of_that_and_does_not_get_it() {
    let world = world(Profile::default()).await;
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, Action::Hold).once());
    cut(&world);
    world.until("asked", |world| calls(world, Method::CreateSnapshot) == 1).await;
    remove_by_force(&world);
    create_copy(&world, &format!("snapshot-{SNAPSHOT_UID}"));
    world.testbed.driver.release();
    world.until("it is cut", |world| snapshots(world) == 1).await;
    settled(&world).await;
    assert_eq!((calls(&world, Method::CreateSnapshot), calls(&world, Method::DeleteSnapshot)), (1, 0));
    assert_eq!(content(&world).unwrap()["status"], json!(null));
    world.testbed.tear_down().await;
}
