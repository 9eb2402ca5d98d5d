//! Wherever the snapshotter is cut, the next leader comes to the same end.

use super::*;
use crate::roles::kit::cuts::assert_the_same_end;
use crate::roles::kit::fixtures::merged;

/// A cluster whose driver is never in a hurry, with a secret for the calls.
async fn scene(profile: Profile, faults: &[Fault]) -> Served {
    let section = json!({ "resync": "0s", "retry": { "initial": "100ms", "max": "1s", "infeasible": "1s" },
        "readyCheck": { "initial": "1s", "max": "2s" } });
    let world = unserved_with(profile, &section).await;
    for fault in faults {
        world.testbed.driver.inject(fault.clone());
    }
    let keys = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys", "namespace": "default" },
        "data": {} });
    world.testbed.api.create_value(keys).unwrap();
    world
}

/// Where the calls find the secret.
fn with_secret() -> Value {
    json!({ "annotations": { ANNOTATION_SNAPSHOT_SECRET_NAME: "keys",
        ANNOTATION_SNAPSHOT_SECRET_NAMESPACE: "default" } })
}

async fn to_be_cut(profile: Profile, faults: &[Fault]) -> Served {
    let world = scene(profile, faults).await;
    create_with(&world, &json!({ "volumeHandle": VOLUME }), &with_secret());
    world
}

/// A snapshot that an earlier leader has taken.
async fn taken(profile: Profile) -> Served {
    let world = to_be_cut(profile, &[]).await;
    world.lead();
    world.until("it is cut", |world| content(world).is_some_and(|it| it["status"]["snapshotHandle"].is_string())).await;
    world.die().await;
    world
}

/// What there is of a content, but for times and uids, and how many snapshots the driver has.
fn end(world: &Served) -> Value {
    let mut stored = content(world).map(|content| (*content).clone()).unwrap_or_default();
    let annotations = stored["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    stored["status"]["creationTime"] = Value::Null;
    json!({ "status": stored["status"], "finalizers": stored["metadata"]["finalizers"],
        "annotations": annotations.keys().collect::<Vec<_>>(), "snapshots": snapshots(world) })
}

/// It is ready, and nothing says any more that the driver was called.
fn once_ready(world: &Served) -> Option<Value> {
    let is_marked = [ANNOTATION_SNAPSHOT_BEING_CREATED, ANNOTATION_SNAPSHOTTING].map(|key| annotation(world, key));
    (is_ready(world) && is_marked == [None, None]).then(|| end(world))
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_comes_to_its_end() {
    for polls in [0, 1] {
        let profile = || Profile { snapshot_ready_polls: polls, ..Profile::default() };
        assert_the_same_end(async || to_be_cut(profile(), &[]).await, once_ready).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_once_comes_to_its_end() {
    for code in [Code::InvalidArgument, Code::Unavailable] {
        let refused = [Fault::on(Method::CreateSnapshot, Action::fail(code, "no")).once()];
        assert_the_same_end(async || to_be_cut(Profile::default(), &refused).await, once_ready).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_was_there_before_its_content_is_found() {
    let given = async || {
        let world = scene(Profile::default(), &[]).await;
        let id = world.testbed.driver.cut_snapshot("old", VOLUME).unwrap();
        create(&world, &json!({ "snapshotHandle": id }));
        world
    };
    assert_the_same_end(given, |world| is_ready(world).then(|| end(world))).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_comes_to_its_end() {
    for (polls, others) in
        [(0, json!({})), (1, json!({})), (0, json!({ "metadata": { "finalizers": ["others/keep"] } }))]
    {
        let profile = || Profile { snapshot_ready_polls: polls, ..Profile::default() };
        let deleted = async || {
            let world = taken(profile()).await;
            if let Some(kept) = others.pointer("/metadata/finalizers/0") {
                let finalizers = json!([FINALIZER_BOUND_CONTENT, kept]);
                patch(&world, merged(others.clone(), json!({ "metadata": { "finalizers": finalizers } })));
            }
            delete(&world);
            world
        };
        let is_over = |world: &Served| {
            let finalizers = content(world).map(|content| content["metadata"]["finalizers"].clone());
            snapshots(world) == 0 && finalizers.is_none_or(|left| left == json!(["others/keep"]))
        };
        assert_the_same_end(deleted, |world| is_over(world).then(|| end(world))).await;
    }
}
