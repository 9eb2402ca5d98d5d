//! Answers of a driver that is done, and does not say with what: each is told, and leaves nothing that cannot be deleted.

use k8s_openapi::api::core::v1::Event;

use super::*;
use crate::roles::snapshotter::names::ANNOTATION_UNLISTED_MEMBERS;

/// Answers that name the group, what is told of them, and how many of its snapshots they name.
fn named() -> [(Lie, &'static str, usize); 4] {
    [
        (Lie::EmptyMemberId, "without snapshot_id", 0),
        (Lie::SameMemberId, "twice", 0),
        (Lie::MemberOf("stranger".to_owned()), "of volume \\\"stranger\\\", which was not asked for", 2),
        (Lie::MemberOf(String::new()), "of volume \\\"\\\", which was not asked for", 2),
    ]
}

/// A world whose driver lies from now on, and the group that it was asked for.
async fn lying(lie: Lie, says: &str) -> World {
    let world = world(Profile::default()).await;
    for method in [Method::CreateVolumeGroupSnapshot, Method::GetVolumeGroupSnapshot] {
        world.served.testbed.driver.inject(Fault::on(method, Action::Lie(lie.clone())));
    }
    world.cut();
    world.until("it says why", |world| world.error().is_some_and(|error| error.contains(says))).await;
    world
}

#[tokio::test(start_paused = true)]
async fn odd_members_are_told_and_not_listed_and_their_group_is_asked_for_by_its_id() {
    for (lie, says, count) in named() {
        let world = lying(lie, says).await;
        let group = world.served.testbed.driver.state().groups().keys().next().cloned().unwrap();
        let content = world.content().unwrap();
        let status = &content["status"];
        assert_eq!(
            (status["volumeGroupSnapshotHandle"].as_str(), status.get("volumeSnapshotInfoList")),
            (Some(&*group), None)
        );
        assert!(world.annotation(MARK).is_none() && world.annotation(INTENT).is_none(), "the call has its answer");
        let listed = world.annotation(ANNOTATION_UNLISTED_MEMBERS);
        assert_eq!(listed.map_or(0, |list| serde_json::from_str::<Vec<String>>(&list).unwrap().len()), count);
        world.until("it is looked at", |world| world.calls(Method::GetVolumeGroupSnapshot) == 1).await;
        world.served.testbed.driver.clear_faults();
        world.until("the next answer counts", World::is_ready).await;
        world.settled().await;
        assert_eq!(world.content().unwrap()["status"]["volumeSnapshotInfoList"].as_array().unwrap().len(), 2);
        assert_eq!((world.calls(Method::CreateVolumeGroupSnapshot), world.left(), world.error()), (1, (1, 2), None));
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_with_odd_members_is_deleted_by_its_id_and_by_all_that_the_answer_has_named() {
    for (lie, says, count) in named() {
        let world = lying(lie, says).await;
        world.delete();
        world.until("it is gone", |world| world.content().is_none()).await;
        let deletions = world.served.testbed.driver.calls_of(Method::DeleteVolumeGroupSnapshot);
        assert_eq!((deletions.len(), deletions[0].members.len(), world.left()), (1, count, (0, 0)));
        assert_eq!(world.calls(Method::CreateVolumeGroupSnapshot), 1);
        world.end().await;
    }
}

/// One leader gets the answer, and the next one deletes the group.
#[tokio::test(start_paused = true)]
async fn a_group_with_odd_members_is_deleted_by_the_next_leader_as_well() {
    let (world, stop) = world_of_a_term().await;
    let lie = Action::Lie(Lie::MemberOf(String::new()));
    world.served.testbed.driver.inject(Fault::on(Method::CreateVolumeGroupSnapshot, lie));
    world.cut();
    world.until("it says why", |world| world.error().is_some()).await;
    stop.cancel();
    world.until("the term is over", |world| !world.served.is_serving()).await;
    world.delete();
    world.served.lead();
    world.until("it is gone", |world| world.content().is_none()).await;
    let deletions = world.served.testbed.driver.calls_of(Method::DeleteVolumeGroupSnapshot);
    assert_eq!((deletions.len(), deletions[0].members.len(), world.left()), (1, 2, (0, 0)));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn l9_a_group_with_odd_members_whose_content_was_removed_by_force_is_deleted() {
    let world = world(Profile::default()).await;
    let late = Action::DoneButFail { code: Code::DeadlineExceeded, message: "late".to_owned() };
    let odd = Action::Lie(Lie::MemberOf(String::new()));
    for fault in
        [Fault::on(Method::CreateVolumeGroupSnapshot, late).once(), Fault::on(Method::CreateVolumeGroupSnapshot, odd)]
    {
        world.served.testbed.driver.inject(fault);
    }
    world.cut();
    world.until("asked", |world| world.calls(Method::CreateVolumeGroupSnapshot) == 1).await;
    world.patch(json!({ "metadata": { "finalizers": null } }));
    world.served.testbed.api.delete_object(world.contents(), "", CONTENT).unwrap();
    world.until("it is deleted", |world| world.calls(Method::DeleteVolumeGroupSnapshot) == 1).await;
    world.settled().await;
    assert_eq!(world.left(), (0, 0));
    world.end().await;
}

/// Nothing that the driver says could be deleted.
#[tokio::test(start_paused = true)]
async fn a_group_of_which_no_answer_has_the_id_is_asked_for_until_it_is_deleted_and_then_told_of() {
    for (lie, says) in [(Lie::EmptySnapshotId, "has no group_snapshot_id"), (Lie::NoSnapshot, "has no group_snapshot")]
    {
        let world = lying(lie, says).await;
        world.served.write_events();
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
        world.served.testbed.api.create_value(namespace).unwrap();
        let content = world.content().unwrap();
        assert!(content["status"].get("volumeGroupSnapshotHandle").is_none() && world.annotation(MARK).is_some());
        let asked = world.calls(Method::CreateVolumeGroupSnapshot);
        world.until("asked again", |world| world.calls(Method::CreateVolumeGroupSnapshot) > asked).await;
        world.delete();
        world.until("it is gone", |world| world.content().is_none()).await;
        let says_where = |world: &World| {
            let events = world.served.testbed.api.list::<Event>("shop").unwrap();
            let name = format!("groupsnapshot-{GROUP_UID}");
            events
                .iter()
                .any(|it| it.message.as_ref().is_some_and(|note| note.contains(&name) && note.contains("left over")))
        };
        world.until("an Event says where to look", says_where).await;
        assert_eq!((world.calls(Method::DeleteVolumeGroupSnapshot), world.left()), (0, (1, 2)), "no answer has its id");
        world.end().await;
    }
}
