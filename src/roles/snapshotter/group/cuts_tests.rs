//! Wherever the snapshotter is cut at a group, the next leader comes to the same end.

use super::*;
use crate::roles::kit::cuts::assert_the_same_end;

async fn scene(polls: u32) -> World {
    let served = served(Profile { snapshot_ready_polls: polls, ..Profile::default() }).await;
    served.testbed.api.install(&format!("{GROUP}/v1"));
    let world = World { served, version: "v1" };
    world.make_class();
    world.cut();
    world
}

/// What there is of the content, but for times and uids, and how many snapshots the driver has.
fn end(served: &Served) -> Value {
    let kind = resources::of_kind(&format!("{GROUP}/v1"), "VolumeGroupSnapshotContent").unwrap();
    let mut stored = served.testbed.api.object(kind, "", CONTENT).map(|content| (*content).clone()).unwrap_or_default();
    let annotations = stored["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    stored["status"]["creationTime"] = Value::Null;
    for member in stored["status"]["volumeSnapshotInfoList"].as_array_mut().into_iter().flatten() {
        member["creationTime"] = Value::Null;
    }
    json!({ "status": stored["status"], "finalizers": stored["metadata"]["finalizers"],
        "annotations": annotations.keys().collect::<Vec<_>>(),
        "snapshots": served.testbed.driver.state().snapshots().len() })
}

fn once_ready(served: &Served) -> Option<Value> {
    let end = end(served);
    let is_marked = [MARK, INTENT].iter().any(|key| end["annotations"].as_array().unwrap().contains(&json!(key)));
    (end["status"]["readyToUse"] == true && !is_marked).then_some(end)
}

#[tokio::test(start_paused = true)]
async fn a_group_comes_to_its_end() {
    for polls in [0, 1] {
        assert_the_same_end(async || scene(polls).await.served, once_ready).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_group_comes_to_its_end() {
    let deleted = async || {
        let world = scene(0).await;
        world.served.lead();
        world.served.until("it is ready", |served| once_ready(served).is_some()).await;
        world.served.kill();
        world.served.until("it is dead", |served| !served.is_serving()).await;
        world.delete();
        world.served
    };
    let is_over = |end: &Value| end["finalizers"].is_null() && end["snapshots"] == 0;
    assert_the_same_end(deleted, |served| Some(end(served)).filter(is_over)).await;
}
