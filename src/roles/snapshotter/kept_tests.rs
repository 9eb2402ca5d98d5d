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
    make_namespace(&world);
    let name = format!("snapshot-{SNAPSHOT_UID}");
    let id = world.testbed.driver.cut_snapshot(&name, VOLUME).unwrap();
    create_copy(&world, &name);
    (world, id)
}

fn has_event(world: &Served, says: &str) -> bool {
    notes(world).iter().any(|note| note.contains(says))
}

#[tokio::test(start_paused = true)]
async fn j9_a_copy_of_a_content_is_neither_cut_nor_deleted_at_the_driver() {
    let (world, id) = world_of_a_copy().await;
    world.lead();
    world.until("an Event says so", |world| has_event(world, "was written for another")).await;
    world.rest().await;
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
        world.lead();
        world.until("it is gone", |world| content(world).is_none()).await;
        assert_eq!((calls(&world, Method::CreateSnapshot), calls(&world, Method::DeleteSnapshot)), (0, 0));
        assert!(world.testbed.driver.state().snapshots().contains_key(&id));
        world.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn j9_a_copy_that_its_user_has_freed_of_the_request_is_taken_as_any_other() {
    let (world, _) = world_of_a_copy().await;
    world.lead();
    world.until("an Event says so", |world| has_event(world, "was written for another")).await;
    let freed = json!({ ANNOTATION_SNAPSHOT_BEING_CREATED: null, ANNOTATION_SNAPSHOTTING: null });
    patch(&world, json!({ "metadata": { "annotations": freed } }));
    world.until("it is asked for", |world| calls(world, Method::CreateSnapshot) > 0).await;
    world.testbed.tear_down().await;
}

/// Somebody strips the finalizer during the call, and brings the content back from a backup of a minute ago.
#[tokio::test(start_paused = true)]
async fn j9_l9_a_copy_of_a_content_that_is_gone_keeps_the_snapshot_of_that_and_does_not_get_it() {
    let world = world_amid_a_call().await;
    remove_by_force(&world);
    create_copy(&world, &format!("snapshot-{SNAPSHOT_UID}"));
    world.testbed.driver.release();
    world.until("it is cut", |world| snapshots(world) == 1).await;
    world.rest().await;
    assert_eq!((calls(&world, Method::CreateSnapshot), calls(&world, Method::DeleteSnapshot)), (1, 0));
    assert_eq!(content(&world).unwrap()["status"], json!(null));
    world.testbed.tear_down().await;
}

const SECOND: &str = "content-2";

/// A content of that name for a snapshot that is there, as an administrator makes it.
fn create_given(world: &Served, name: &str, id: &str) {
    let content = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": name, "finalizers": [FINALIZER_BOUND_CONTENT] },
        "spec": { "driver": world.context.driver.name, "deletionPolicy": "Delete",
            "source": { "snapshotHandle": id },
            "volumeSnapshotRef": { "namespace": "shop", "name": name, "uid": format!("uid-of-{name}") } } });
    world.testbed.api.create_value(content).unwrap();
}

/// As the snapshot-controller does.
fn delete_named(world: &Served, name: &str) {
    let lost = json!({ "metadata": { "annotations": { ANNOTATION_SNAPSHOT_BEING_DELETED: "yes" } } });
    world.testbed.api.patch_object(contents(), "", name, PatchBody::Merge(lost), false).unwrap();
    world.testbed.api.delete_object(contents(), "", name).unwrap();
}

fn is_there(world: &Served, name: &str) -> bool {
    world.testbed.api.object(contents(), "", name).is_some()
}

fn make_namespace(world: &Served) {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
    world.testbed.api.create_value(namespace).unwrap();
}

async fn world_of_a_ready_content() -> Served {
    let world = world(Profile::default()).await;
    world.write_events();
    make_namespace(&world);
    cut(&world);
    world.until("it is ready", is_ready).await;
    world
}

/// A second content names the snapshot of the first, spelled like this, and the first is deleted: the snapshot stays.
async fn world_of_a_kept_snapshot(spelled: impl Fn(&str) -> String) -> Served {
    let world = world_of_a_ready_content().await;
    let id = content(&world).unwrap()["status"]["snapshotHandle"].as_str().unwrap().to_owned();
    create_given(&world, SECOND, &spelled(&id));
    world.rest().await;
    delete(&world);
    world.until("the first is gone", |world| content(world).is_none()).await;
    world.until("an Event says so", |world| has_event(world, SECOND)).await;
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (0, 1));
    world
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_a_second_content_names_outlives_the_first_and_goes_with_the_second() {
    let world = world_of_a_kept_snapshot(str::to_owned).await;
    delete_named(&world, SECOND);
    world.until("the second is gone", |world| !is_there(world, SECOND)).await;
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (1, 0));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_a_second_content_names_in_other_letters_outlives_the_first() {
    let world = world_of_a_kept_snapshot(str::to_ascii_uppercase).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn two_contents_of_one_snapshot_that_go_together_leave_none() {
    let world = unserved(Profile::default()).await;
    let id = world.testbed.driver.cut_snapshot("theirs", VOLUME).unwrap();
    for name in [CONTENT, SECOND] {
        create_given(&world, name, &id);
        delete_named(&world, name);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.lead();
    world.until("both are gone", |world| [CONTENT, SECOND].iter().all(|name| !is_there(world, name))).await;
    assert_eq!(snapshots(&world), 0);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_lists_the_contents_before_it_deletes_what_a_late_watch_shows_to_be_one_content_s_alone() {
    let world = unserved(Profile::default()).await;
    let id = world.testbed.driver.cut_snapshot("theirs", VOLUME).unwrap();
    create_given(&world, CONTENT, &id);
    delete_named(&world, CONTENT);
    // The cache has the first, and never hears of the second by the watch.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.testbed.api.faults().hold_watches(Matching::any().resource("volumesnapshotcontents"));
    create_given(&world, SECOND, &id);
    world.lead();
    world.until("the first is gone", |world| !is_there(world, CONTENT)).await;
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (0, 1));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn s13_a_policy_that_becomes_retain_at_the_last_moment_counts_though_no_watch_has_shown_it() {
    let world = world_of_a_ready_snapshot().await;
    world.rest().await;
    let refusal = Action::fail(Code::Internal, "in use");
    world.testbed.driver.inject(Fault::on(Method::DeleteSnapshot, refusal).once());
    delete(&world);
    world.until("it was to be deleted", |world| calls(world, Method::DeleteSnapshot) == 1).await;
    world.testbed.api.faults().hold_watches(Matching::any().resource("volumesnapshotcontents"));
    patch(&world, json!({ "spec": { "deletionPolicy": "Retain" } }));
    world.until("it is gone", |world| content(world).is_none()).await;
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (1, 1));
    world.testbed.tear_down().await;
}

/// As a leader leaves it that dies between status and mark; the driver does not know the source volume any more.
#[tokio::test(start_paused = true)]
async fn s42_a_content_with_mark_and_handle_is_deleted_though_the_driver_refuses_to_look_at_its_snapshot() {
    let world = unserved(Profile::default()).await;
    let name = format!("snapshot-{SNAPSHOT_UID}");
    let id = world.testbed.driver.cut_snapshot(&name, VOLUME).unwrap();
    create_begun(&world, &name);
    let status = json!({ "status": { "snapshotHandle": id, "readyToUse": false, "creationTime": 5 } });
    world.testbed.api.patch_object(contents(), "", CONTENT, PatchBody::Merge(status), true).unwrap();
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, Action::fail(Code::Internal, "no such volume")));
    delete(&world);
    world.lead();
    world.until("it is gone", |world| content(world).is_none()).await;
    assert_eq!((calls(&world, Method::CreateSnapshot), calls(&world, Method::DeleteSnapshot)), (0, 1));
    assert_eq!(snapshots(&world), 0);
    world.testbed.tear_down().await;
}

/// The right to read secrets is gone for a while.
#[tokio::test(start_paused = true)]
async fn s18_a_secret_that_may_not_be_read_is_waited_for_also_where_a_deletion_may_go_without_one() {
    let section = json!({ "readyCheck": { "initial": "1s", "max": "2s" }, "deleteWithoutSecret": true });
    let world = unserved_with(Profile::default(), &section).await;
    let id = world.testbed.driver.cut_snapshot("theirs", VOLUME).unwrap();
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "cut" },
        "data": { "password": "aHVudGVyMg==" } });
    world.testbed.api.create_value(secret).unwrap();
    create_given(&world, CONTENT, &id);
    let place = json!({ ANNOTATION_SNAPSHOT_SECRET_NAME: "cut", ANNOTATION_SNAPSHOT_SECRET_NAMESPACE: "default" });
    patch(&world, json!({ "metadata": { "annotations": place } }));
    delete_named(&world, CONTENT);
    let faults = world.testbed.api.faults();
    let refuse =
        |rejection| faults.add(ApiFault::on(Matching::any().resource("secrets"), ApiAction::Refuse(rejection)));
    let forbidden = refuse(Rejection::forbidden("", "secrets", "cut", "no"));
    world.lead();
    world.until("it was forbidden twice", |_| faults.hits(forbidden) >= 2).await;
    let failing = refuse(Rejection::internal("no"));
    faults.remove(forbidden);
    world.until("it has failed twice", |_| faults.hits(failing) >= 2).await;
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (0, 1));
    faults.remove(failing);
    world.until("it is gone", |world| content(world).is_none()).await;
    assert!(world.testbed.driver.calls_of(Method::DeleteSnapshot).iter().all(|call| call.secrets));
    assert_eq!(snapshots(&world), 0);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn s2_what_is_being_deleted_is_released_with_the_refusal_and_nothing_is_asked_any_more() {
    let world = world(Profile::default()).await;
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, Action::fail(Code::DeadlineExceeded, "slow")).once());
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, Action::fail(Code::Internal, "no such pool")));
    cut(&world);
    let is_told = |world: &Served| content(world).is_some_and(|it| it["status"]["error"].is_object());
    world.until("it is told", is_told).await;
    delete(&world);
    world.testbed.api.audit().clear();
    world.until("it is gone", |world| content(world).is_none()).await;
    world.rest().await;
    assert_eq!(requests(&world), ["patch"], "mark, request and finalizer leave together");
    assert_eq!((calls(&world, Method::CreateSnapshot), calls(&world, Method::DeleteSnapshot)), (2, 0));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_content_that_is_given_to_another_node_during_the_call_has_nothing_asked_or_deleted_here_any_more() {
    let section = json!({ "nodeDeployment": { "enabled": true } });
    let world = prepared(Served::on_node(&REGISTRATION, &section, Profile::default(), Some("one")).await);
    world.lead();
    let unanswered = Action::fail(Code::DeadlineExceeded, "slow");
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, unanswered).once());
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, Action::Hold).once());
    let labelled = |node: &str| json!({ "labels": { LABEL_MANAGED_BY: node } });
    create_with(&world, &json!({ "volumeHandle": VOLUME }), &labelled("one"));
    world.until("asked again", |world| calls(world, Method::CreateSnapshot) == 2).await;
    patch(&world, json!({ "metadata": labelled("two") }));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reads = |world: &Served| requests(world).iter().filter(|it| *it == "get").count();
    let before = reads(&world);
    world.testbed.driver.release();
    world.rest().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(reads(&world) <= before + 2, "{:?}", requests(&world));
    assert_eq!((calls(&world, Method::CreateSnapshot), calls(&world, Method::DeleteSnapshot)), (2, 0));
    assert_eq!(snapshots(&world), 1, "its owner is told of it");
    let left = content(&world).unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!([FINALIZER_BOUND_CONTENT]), "{left:#}");
    assert!(annotation(&world, ANNOTATION_SNAPSHOTTING).is_some(), "for the node that it is given to");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn s13_a_policy_that_becomes_delete_at_the_last_moment_counts_though_no_watch_has_shown_it() {
    let world = world_of_a_ready_snapshot().await;
    patch(&world, json!({ "spec": { "deletionPolicy": "Retain" } }));
    world.rest().await;
    let faults = world.testbed.api.faults();
    let on = Matching::any().verb("patch").resource("volumesnapshotcontents");
    let slow = faults.add(ApiFault::on(on, ApiAction::DelayBefore(Duration::from_secs(5))).nth(1));
    delete(&world);
    world.until("it is about to be released", |world| world.testbed.api.faults().hits(slow) == 1).await;
    let held = faults.hold_watches(Matching::any().resource("volumesnapshotcontents"));
    patch(&world, json!({ "spec": { "deletionPolicy": "Delete" } }));
    tokio::time::sleep(Duration::from_secs(6)).await;
    faults.remove(held);
    world.until("it is gone", |world| content(world).is_none()).await;
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (1, 0));
    world.testbed.tear_down().await;
}

/// Its YAML is applied to another cluster with the same storage, or to this one: the API takes the status off, and gives it another uid.
#[tokio::test(start_paused = true)]
async fn j9_a_copy_of_a_content_that_was_ready_is_neither_cut_nor_deleted_at_the_driver() {
    let world = world_of_a_ready_content().await;
    world.rest().await;
    let original = content(&world).unwrap();
    let metadata = json!({ "name": SECOND, "annotations": original["metadata"]["annotations"],
        "finalizers": original["metadata"]["finalizers"] });
    let copy = json!({ "apiVersion": original["apiVersion"], "kind": original["kind"], "metadata": metadata,
        "spec": original["spec"] });
    world.testbed.api.create_value(copy).unwrap();
    world.until("an Event says so", |world| has_event(world, "was written for another")).await;
    world.rest().await;
    delete_named(&world, SECOND);
    world.until("it is gone", |world| !is_there(world, SECOND)).await;
    let asked = (calls(&world, Method::CreateSnapshot), calls(&world, Method::DeleteSnapshot), snapshots(&world));
    assert_eq!(asked, (1, 0, 1), "the original keeps its snapshot");
    delete(&world);
    world.until("it is gone", |world| content(world).is_none()).await;
    assert_eq!(snapshots(&world), 0, "which goes with the original");
    world.testbed.tear_down().await;
}
