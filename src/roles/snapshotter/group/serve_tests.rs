//! What a term does with contents of groups: the requests that it makes, and what is left at the driver.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::fixtures::{BDEL, FIN, GROUP_UID, INTENT, MARK};
use crate::election::Term;
use crate::roles::kit::served::Served;
use crate::roles::snapshotter::REGISTRATION;
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};
use crate::sandbox::api::pure::rejection::Rejection;
use crate::sandbox::api::pure::resources::{self, Resource};
use crate::sandbox::driver::{Action, Fault, Lie, Method, Profile};

#[path = "cuts_tests.rs"]
mod cuts;
#[path = "given_tests.rs"]
mod given;
#[path = "kept_tests.rs"]
mod kept;
#[path = "newest_tests.rs"]
mod newest;
#[path = "odd_tests.rs"]
mod odd;

const GROUP: &str = "groupsnapshot.storage.k8s.io";
const CONTENT: &str = "content-1";
const VOLUMES: [&str; 2] = ["vol-1", "vol-2"];

/// A served term in a cluster whose driver has two volumes, which has the kinds of groups in this version, and a class.
struct World {
    served: Served,
    version: &'static str,
}

async fn served(profile: Profile) -> Served {
    let served = Served::new(&REGISTRATION, &json!({ "readyCheck": { "initial": "1s", "max": "2s" } }), profile).await;
    served.testbed.driver.seed(VOLUMES);
    served.testbed.api.install("snapshot.storage.k8s.io");
    served
}

async fn world_of(profile: Profile, version: &'static str) -> World {
    world_until(profile, version, &CancellationToken::new()).await
}

/// A world whose first term ends with the token.
async fn world_of_a_term() -> (World, CancellationToken) {
    let stop = CancellationToken::new();
    (world_until(Profile::default(), "v1", &stop).await, stop)
}

async fn world_until(profile: Profile, version: &'static str, stop: &CancellationToken) -> World {
    let served = served(profile).await;
    served.testbed.api.install(&format!("{GROUP}/{version}"));
    served.serve(Term::permanent(stop, served.context.clock));
    let world = World { served, version };
    world.make_class();
    world
}

async fn world(profile: Profile) -> World {
    world_of(profile, "v1").await
}

async fn world_of_a_ready_group() -> World {
    let world = world(Profile::default()).await;
    world.cut();
    world.until("it is ready", World::is_ready).await;
    world.settled().await;
    world
}

/// The driver was asked for a group, and answers when it is released.
async fn world_amid_a_call() -> World {
    let world = world(Profile::default()).await;
    world.served.testbed.driver.inject(Fault::on(Method::CreateVolumeGroupSnapshot, Action::Hold).once());
    world.cut();
    world.until("asked", |world| world.calls(Method::CreateVolumeGroupSnapshot) == 1).await;
    world
}

impl World {
    fn make_class(&self) {
        let class = json!({ "apiVersion": format!("{GROUP}/{}", self.version), "kind": "VolumeGroupSnapshotClass",
            "metadata": { "name": "fast" }, "driver": self.served.context.driver.name, "deletionPolicy": "Delete",
            "parameters": { "tier": "1" } });
        self.served.testbed.api.create_value(class).unwrap();
    }

    fn contents(&self) -> &'static Resource {
        resources::of_kind(&format!("{GROUP}/{}", self.version), "VolumeGroupSnapshotContent").unwrap()
    }

    fn create(&self, source: &Value) {
        let content = json!({ "apiVersion": format!("{GROUP}/{}", self.version), "kind": "VolumeGroupSnapshotContent",
            "metadata": { "name": CONTENT },
            "spec": { "driver": self.served.context.driver.name, "deletionPolicy": "Delete",
                "volumeGroupSnapshotClassName": "fast", "source": source,
                "volumeGroupSnapshotRef": { "namespace": "shop", "name": "all", "uid": GROUP_UID } } });
        self.served.testbed.api.create_value(content).unwrap();
    }

    fn cut(&self) {
        self.create(&json!({ "volumeHandles": VOLUMES }));
    }

    fn content(&self) -> Option<Arc<Value>> {
        self.served.testbed.api.object(self.contents(), "", CONTENT)
    }

    fn patch(&self, patch: Value) {
        self.served.testbed.api.patch_object(self.contents(), "", CONTENT, PatchBody::Merge(patch), false).unwrap();
    }

    /// As the snapshot-controller does.
    fn delete(&self) {
        self.patch(json!({ "metadata": { "annotations": { BDEL: "yes" } } }));
        self.served.testbed.api.delete_object(self.contents(), "", CONTENT).unwrap();
    }

    fn is_ready(&self) -> bool {
        self.content().is_some_and(|content| content["status"]["readyToUse"] == true)
    }

    fn annotation(&self, key: &str) -> Option<String> {
        self.content()?["metadata"]["annotations"][key].as_str().map(str::to_owned)
    }

    fn error(&self) -> Option<String> {
        self.content()?["status"]["error"]["message"].as_str().map(str::to_owned)
    }

    fn calls(&self, method: Method) -> usize {
        self.served.testbed.driver.calls_of(method).len()
    }

    /// How many groups and snapshots the driver has.
    fn left(&self) -> (usize, usize) {
        let state = self.served.testbed.driver.state();
        (state.groups().len(), state.snapshots().len())
    }

    fn requests(&self) -> Vec<String> {
        let audit = self.served.testbed.api.audit();
        let asked = audit.matching(|entry| entry.resource == "volumegroupsnapshotcontents" && entry.name == CONTENT);
        asked.iter().map(|entry| format!("{} {}", entry.verb, entry.subresource).trim().to_owned()).collect()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        self.served.until(what, |_| holds(self)).await;
    }

    async fn settled(&self) {
        self.served.rest().await;
    }

    async fn end(self) {
        assert_eq!(self.served.testbed.driver.violations(), []);
        self.served.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn s22_s23_a_group_costs_three_writes_and_its_deletion_one_in_any_version() {
    for (version, list) in [
        ("v1", "volumeSnapshotInfoList"),
        ("v1beta2", "volumeSnapshotInfoList"),
        ("v1beta1", "volumeSnapshotHandlePairList"),
    ] {
        let world = world_of(Profile::default(), version).await;
        world.cut();
        world.until("it is ready", World::is_ready).await;
        world.settled().await;
        assert_eq!(world.requests(), ["patch", "patch status", "patch"]);
        assert_eq!((world.calls(Method::CreateVolumeGroupSnapshot), world.left()), (1, (1, 2)));
        let stored = world.content().unwrap();
        assert_eq!(stored["metadata"]["finalizers"], json!([FIN]));
        assert!(world.annotation(MARK).is_none() && world.annotation(INTENT).is_none());
        assert_eq!(stored["status"][list].as_array().unwrap().len(), 2);
        world.served.testbed.api.audit().clear();
        world.delete();
        world.until("it is gone", |world| world.content().is_none()).await;
        assert_eq!(world.requests(), ["get", "patch"]);
        let deletions = world.served.testbed.driver.calls_of(Method::DeleteVolumeGroupSnapshot);
        assert_eq!((deletions.len(), deletions[0].members.len(), world.left()), (1, 2, (0, 0)));
        assert_eq!(world.calls(Method::DeleteSnapshot), 0);
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn s24_ns17_a_group_that_is_not_ready_is_asked_for_by_its_id_without_a_request_to_the_api() {
    let world = world(Profile { snapshot_ready_polls: 12, ..Profile::default() }).await;
    world.cut();
    world.until("it is ready", World::is_ready).await;
    world.settled().await;
    assert_eq!(world.requests(), ["patch", "patch status", "patch", "patch status"]);
    assert_eq!(world.calls(Method::CreateVolumeGroupSnapshot), 1);
    assert_eq!(world.calls(Method::GetVolumeGroupSnapshot), 12, "as often as it takes");
    let members = world.content().unwrap()["status"]["volumeSnapshotInfoList"].clone();
    assert!(members.as_array().unwrap().iter().all(|member| member["readyToUse"] == true), "S51");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn s24_a_group_that_fails_over_and_over_is_asked_for_ever_less_often() {
    let world = world(Profile::default()).await;
    let refusal = Action::fail(Code::FailedPrecondition, "no room");
    world.served.testbed.driver.inject(Fault::on(Method::CreateVolumeGroupSnapshot, refusal).times(5));
    world.cut();
    world.until("it says why", |world| world.error().is_some()).await;
    assert_eq!(
        world.error().unwrap(),
        "Failed to create group snapshot: failed to take group snapshot of the volumes [vol-1 vol-2]: \"rpc error: code = \
         FailedPrecondition desc = no room\"",
        "S25"
    );
    world.until("it is ready", World::is_ready).await;
    world.settled().await;
    assert_eq!(world.error(), None);
    let calls = world.served.testbed.driver.calls_of(Method::CreateVolumeGroupSnapshot);
    let gaps: Vec<u64> =
        calls.windows(2).map(|pair| pair[1].started.saturating_sub(pair[0].started).as_secs()).collect();
    assert!(gaps.len() == 5 && gaps.iter().enumerate().all(|(k, gap)| *gap >= 1 << k), "{gaps:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn l2_s55_a_mark_that_is_wiped_during_the_call_comes_back_and_the_deletion_survives() {
    let world = world_amid_a_call().await;
    world.patch(json!({ "metadata": { "annotations": { MARK: null, INTENT: null, BDEL: "yes" } } }));
    world.until("the mark is back while the call hangs", |world| world.annotation(MARK).is_some()).await;
    assert!(world.annotation(BDEL).is_some(), "S55");
    world.served.testbed.api.delete_object(world.contents(), "", CONTENT).unwrap();
    world.served.testbed.driver.release();
    world.until("it is gone", |world| world.content().is_none()).await;
    assert_eq!((world.calls(Method::CreateVolumeGroupSnapshot), world.left()), (1, (0, 0)));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn l9_a_group_whose_content_was_removed_by_force_is_deleted() {
    let world = world_amid_a_call().await;
    world.patch(json!({ "metadata": { "finalizers": null } }));
    world.served.testbed.api.delete_object(world.contents(), "", CONTENT).unwrap();
    assert!(world.content().is_none());
    world.served.testbed.driver.release();
    world.until("it is deleted", |world| world.calls(Method::DeleteVolumeGroupSnapshot) == 1).await;
    world.settled().await;
    assert_eq!(world.left(), (0, 0));
    world.end().await;
}

/// The content is a copy from the time when the group was taken, which its user has kept since.
#[tokio::test(start_paused = true)]
async fn a_group_that_is_older_than_the_content_that_asks_for_it_is_kept_when_that_is_removed_by_force() {
    let world = world_of_a_ready_group().await;
    world.patch(json!({ "spec": { "deletionPolicy": "Retain" } }));
    world.delete();
    world.until("it is gone", |world| world.content().is_none()).await;
    world.settled().await;
    assert_eq!(world.left(), (1, 2), "its user keeps it");
    let calls = world.calls(Method::CreateVolumeGroupSnapshot);
    let (late, old) = (Action::Late(Duration::from_secs(100)), Action::Lie(Lie::CreationTime(1_000_000_000, 0)));
    world.served.testbed.driver.inject(Fault::on(Method::CreateVolumeGroupSnapshot, late).once());
    world.served.testbed.driver.inject(Fault::on(Method::CreateVolumeGroupSnapshot, old));
    world.cut();
    world.until("asked", |world| world.calls(Method::CreateVolumeGroupSnapshot) > calls).await;
    world.patch(json!({ "metadata": { "finalizers": null } }));
    world.served.testbed.api.delete_object(world.contents(), "", CONTENT).unwrap();
    world.until("asked again", |world| world.calls(Method::CreateVolumeGroupSnapshot) > calls + 1).await;
    world.settled().await;
    assert_eq!((world.calls(Method::DeleteVolumeGroupSnapshot), world.left()), (0, (1, 2)));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn s1_a_call_without_an_answer_is_repeated_before_the_deletion() {
    let world = world(Profile::default()).await;
    let late = Action::Late(Duration::from_secs(100));
    world.served.testbed.driver.inject(Fault::on(Method::CreateVolumeGroupSnapshot, late).once());
    world.cut();
    world.until("asked", |world| world.calls(Method::CreateVolumeGroupSnapshot) == 1).await;
    world.delete();
    world.until("it is gone", |world| world.content().is_none()).await;
    assert!(world.calls(Method::CreateVolumeGroupSnapshot) > 1);
    assert_eq!(world.left(), (0, 0));
    world.end().await;
}

/// A world with a group that was taken, whose content lists no members.
async fn world_without_members() -> World {
    let world = world(Profile::default()).await;
    let lie = Action::Lie(Lie::OmitMembers);
    world.served.testbed.driver.inject(Fault::on(Method::CreateVolumeGroupSnapshot, lie).once());
    world.cut();
    world.until("it is ready", World::is_ready).await;
    world.settled().await;
    world
}

#[tokio::test(start_paused = true)]
async fn s26_a_group_without_known_members_is_deleted_by_its_id_alone() {
    let world = world_without_members().await;
    world.delete();
    world.until("it is gone", |world| world.content().is_none()).await;
    assert_eq!(world.left(), (0, 0));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn s2_a_group_that_is_being_deleted_is_released_with_the_refusal_and_nothing_is_asked_any_more() {
    let world = world(Profile::default()).await;
    let fault = |code, message| Fault::on(Method::CreateVolumeGroupSnapshot, Action::fail(code, message));
    world.served.testbed.driver.inject(fault(Code::DeadlineExceeded, "slow").once());
    world.served.testbed.driver.inject(fault(Code::Internal, "no such pool"));
    world.cut();
    world.until("it is told", |world| world.error().is_some()).await;
    world.delete();
    world.served.testbed.api.audit().clear();
    world.until("it is gone", |world| world.content().is_none()).await;
    world.settled().await;
    assert_eq!(world.requests(), ["patch"]);
    let calls = [Method::CreateVolumeGroupSnapshot, Method::DeleteVolumeGroupSnapshot].map(|it| world.calls(it));
    assert_eq!((calls, world.left()), ([2, 0], (0, 0)));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_groups_is_told_of_once_and_not_asked() {
    let world = world(Profile::default().without_groups()).await;
    world.cut();
    world.until("it says why", |world| world.error().is_some()).await;
    world.settled().await;
    assert!(world.error().unwrap().contains("CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT"));
    assert!(world.annotation(MARK).is_none());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn s35_ns16_kinds_that_come_later_are_served_within_a_minute_and_hold_nothing_up_before() {
    let served = served(Profile::default()).await;
    served.lead();
    let driver = served.context.driver.name.clone();
    for object in [
        json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": { "name": "fast" },
            "driver": driver, "deletionPolicy": "Delete" }),
        json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": { "name": "single" }, "spec": { "driver": driver, "deletionPolicy": "Delete",
                "volumeSnapshotClassName": "fast", "source": { "volumeHandle": "vol-1" },
                "volumeSnapshotRef": { "namespace": "shop", "name": "one", "uid": GROUP_UID } } }),
    ] {
        served.testbed.api.create_value(object).unwrap();
    }
    let single = resources::of_kind("snapshot.storage.k8s.io/v1", "VolumeSnapshotContent").unwrap();
    let is_cut = |served: &Served| {
        let content = served.testbed.api.object(single, "", "single");
        content.is_some_and(|content| content["status"]["readyToUse"] == true)
    };
    served.until("a snapshot is taken", is_cut).await;
    let world = World { served, version: "v1beta2" };
    world.served.testbed.api.install(&format!("{GROUP}/v1beta2"));
    world.make_class();
    world.cut();
    world.until("it is ready", World::is_ready).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn s35_ns21_without_the_right_to_read_the_classes_groups_are_left_as_they_are_until_it_is_granted() {
    let served = served(Profile::default()).await;
    let on = Matching::any().verb("list").resource("volumegroupsnapshotclasses");
    let forbidden = Rejection::forbidden(GROUP, "volumegroupsnapshotclasses", "", "no");
    let faults = served.testbed.api.faults();
    let refused = faults.add(ApiFault::on(on, ApiAction::Refuse(forbidden)));
    served.testbed.api.install(&format!("{GROUP}/v1"));
    served.lead();
    let world = World { served, version: "v1" };
    world.make_class();
    world.cut();
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert_eq!(world.requests(), Vec::<String>::new(), "nothing is written, no finalizer and no error");
    assert_eq!(world.calls(Method::CreateVolumeGroupSnapshot), 0);
    world.served.testbed.api.faults().remove(refused);
    let granted = world.served.context.clock.now();
    world.until("it is ready", World::is_ready).await;
    let took = world.served.context.clock.now().saturating_duration_since(granted);
    assert!(took < Duration::from_secs(75), "{took:?}");
    world.end().await;
}
