use serde_json::json;

use super::snapshot_objects::{BEING_DELETED, BOUND_CLAIM, CONTENT_BOUND, SNAPSHOT_BOUND, SNAPSHOT_SOURCE};
use super::*;
use crate::api::ApiOptions;
use base::process::{Clock, Rng};

const DRIVER: &str = "demo.csi.example.com";
const BEGUN: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";

struct Scene {
    api: Api,
    actors: Actors,
    habits: watch::Sender<SnapshotHabits>,
}

impl Scene {
    /// A cluster with a claim `a` that has its volume, and a default class of this policy.
    fn new(policy: &str) -> Self {
        let api = Api::new(ApiOptions::new(Clock::system(), Rng::seeded(1)));
        api.install("snapshot.storage.k8s.io");
        let (habits, receiver) = watch::channel(SnapshotHabits::default());
        let actors = Actors::of(api.clone()).with_snapshots(receiver);
        let mut scene = Self { api, actors, habits };
        let claim = scene.make(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "", "volumeName": "pv"}}));
        scene.make(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": DRIVER, "volumeHandle": "v"},
            "claimRef": {"namespace": "default", "name": "a", "uid": uid(&claim)}}}));
        scene.make(json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
            "metadata": {"name": "class",
                "annotations": {"snapshot.storage.kubernetes.io/is-default-class": "true"}},
            "driver": DRIVER, "deletionPolicy": policy}));
        scene
    }

    fn make(&mut self, object: Value) -> Arc<Value> {
        let made = self.api.create_value(object).unwrap();
        self.actors.settle();
        made
    }

    fn snapshot(&mut self, source: &Value) -> String {
        let made = self.make(json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {"name": "s"}, "spec": {"source": source}}));
        format!("snapcontent-{}", uid(&made))
    }

    /// A snapshot of the claim; the name of its content.
    fn cut(&mut self) -> String {
        self.snapshot(&json!({"persistentVolumeClaimName": "a"}))
    }

    fn look(&self, kind: Kind, name: &str) -> Arc<Value> {
        let namespace = if [CLAIMS, SNAPSHOTS].contains(&kind) { "default" } else { "" };
        self.actors.cluster.one(kind, namespace, name).unwrap_or_else(|| Arc::new(Value::Null))
    }

    fn delete(&mut self, kind: Kind, name: &str) {
        let seen = self.look(kind, name);
        self.actors.cluster.delete(kind, &seen);
        self.actors.settle();
    }

    /// The sidecar's write.
    fn sidecar(&mut self, content: &str, metadata: &Value, status: &Value) {
        let seen = self.look(CONTENTS, content);
        assert!(self.actors.cluster.change(CONTENTS, &seen, json!({ "metadata": metadata })));
        let seen = self.look(CONTENTS, content);
        assert!(self.actors.cluster.change_status(CONTENTS, &seen, status));
        self.actors.settle();
    }
}

fn held(object: &Value) -> Vec<&str> {
    finalizers(object).collect()
}

#[test]
fn a_snapshot_gets_class_and_content_and_is_told_what_became_of_it() {
    let mut scene = Scene::new("Delete");
    let name = scene.cut();
    let content = scene.look(CONTENTS, &name);
    assert_eq!(text(&content, "/spec/source/volumeHandle"), "v");
    assert_eq!(held(&content), [CONTENT_BOUND]);
    let snapshot = scene.look(SNAPSHOTS, "s");
    assert_eq!(held(&snapshot), [SNAPSHOT_SOURCE, SNAPSHOT_BOUND]);
    assert_eq!(text(&snapshot, "/spec/volumeSnapshotClassName"), "class");
    assert_eq!(snapshot["status"], json!({"boundVolumeSnapshotContentName": name, "readyToUse": false}));
    assert!(held(&scene.look(CLAIMS, "a")).contains(&BOUND_CLAIM));
    let failed = json!({"readyToUse": false, "error": {"message": "m", "time": "2026-01-01T00:00:00Z"}});
    scene.sidecar(&name, &json!({}), &failed);
    assert_eq!(text(&scene.look(SNAPSHOTS, "s"), "/status/error/message"), "m");
    let ready = json!({"readyToUse": true, "snapshotHandle": "h", "restoreSize": 5, "creationTime": 0, "error": null});
    scene.sidecar(&name, &json!({}), &ready);
    let status = json!({"boundVolumeSnapshotContentName": name, "readyToUse": true, "restoreSize": "5",
        "creationTime": "1970-01-01T00:00:00Z"});
    assert_eq!(scene.look(SNAPSHOTS, "s")["status"], status);
    assert!(!held(&scene.look(CLAIMS, "a")).contains(&BOUND_CLAIM));
}

#[test]
fn a_deleted_snapshot_marks_and_deletes_its_content_and_waits_for_it() {
    let mut scene = Scene::new("Delete");
    let name = scene.cut();
    scene.delete(SNAPSHOTS, "s");
    let content = scene.look(CONTENTS, &name);
    assert!(is_deleting(&content) && annotation(&content, BEING_DELETED) == Some("yes"));
    assert_eq!(held(&scene.look(SNAPSHOTS, "s")), [SNAPSHOT_BOUND]);
    scene.actors.cluster.let_go(CONTENTS, &content, CONTENT_BOUND);
    scene.actors.settle();
    assert!(scene.look(SNAPSHOTS, "s").is_null());
}

#[test]
fn the_content_of_a_deleted_snapshot_is_only_marked_where_it_is_retained() {
    let mut scene = Scene::new("Retain");
    let name = scene.cut();
    assert_eq!(held(&scene.look(SNAPSHOTS, "s")), [SNAPSHOT_SOURCE]);
    scene.delete(SNAPSHOTS, "s");
    assert!(scene.look(SNAPSHOTS, "s").is_null());
    let content = scene.look(CONTENTS, &name);
    assert!(!is_deleting(&content) && annotation(&content, BEING_DELETED) == Some("yes"));
}

#[test]
fn a_content_made_by_hand_is_bound_to_the_snapshot_that_it_names() {
    let mut scene = Scene::new("Delete");
    scene.make(json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": {"name": "by-hand"}, "spec": {"driver": DRIVER, "deletionPolicy": "Retain",
            "source": {"snapshotHandle": "h"}, "volumeSnapshotRef": {"namespace": "default", "name": "s"}}}));
    assert_eq!(held(&scene.look(CONTENTS, "by-hand")), Vec::<&str>::new(), "nobody has bound it");
    scene.snapshot(&json!({"volumeSnapshotContentName": "by-hand"}));
    let (content, snapshot) = (scene.look(CONTENTS, "by-hand"), scene.look(SNAPSHOTS, "s"));
    assert_eq!(text(&content, "/spec/volumeSnapshotRef/uid"), uid(&snapshot));
    assert_eq!(held(&content), [CONTENT_BOUND]);
    assert_eq!(text(&snapshot, "/status/boundVolumeSnapshotContentName"), "by-hand");
}

#[test]
fn a_stale_cache_wipes_what_others_wrote() {
    for is_stale in [false, true] {
        let mut scene = Scene::new("Delete");
        scene.habits.send_modify(|it| it.finalizer_after = Duration::from_secs(3600));
        let name = scene.cut();
        let ours = json!({"annotations": {BEGUN: "yes"}, "finalizers": ["example.com/theirs"]});
        scene.sidecar(&name, &ours, &json!({}));
        scene.habits.send_modify(|it| (it.is_stale, it.finalizer_after) = (is_stale, Duration::ZERO));
        scene.actors.settle();
        let content = scene.look(CONTENTS, &name);
        let all: &[&str] = if is_stale { &[CONTENT_BOUND] } else { &["example.com/theirs", CONTENT_BOUND] };
        assert_eq!(held(&content), all);
        scene.delete(SNAPSHOTS, "s");
        let content = scene.look(CONTENTS, &name);
        assert_eq!(annotation(&content, BEGUN).is_none(), is_stale);
        assert_eq!(annotation(&content, BEING_DELETED), Some("yes"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_comes_as_late_as_the_habit_says_and_nothing_comes_from_a_controller_that_does_not_work() {
    let mut scene = Scene::new("Delete");
    scene.habits.send_modify(|it| it.works = false);
    let name = scene.cut();
    assert!(scene.look(CONTENTS, &name).is_null());
    scene.habits.send_modify(|it| (it.works, it.finalizer_after) = (true, Duration::from_secs(50)));
    let (tasks, _) = Tasks::new("test");
    let Scene { api, actors, .. } = scene;
    let mut versions = api.versions();
    actors.start(&tasks);
    let contents = resources::find(CONTENTS.0, "v1", CONTENTS.1).unwrap();
    let began = Instant::now();
    loop {
        let content = api.object(contents, "", &name);
        if content.is_some_and(|it| held(&it) == [CONTENT_BOUND]) {
            break;
        }
        versions.changed().await.unwrap();
    }
    assert_eq!(began.elapsed().as_secs(), 50);
}

#[test]
fn a_snapshot_that_a_pending_claim_restores_from_stays() {
    let mut scene = Scene::new("Delete");
    let name = scene.cut();
    scene.make(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "b"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "x",
        "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}}}));
    scene.delete(SNAPSHOTS, "s");
    assert_eq!(annotation(&scene.look(CONTENTS, &name), BEING_DELETED), None);
    scene.delete(CLAIMS, "b");
    assert_eq!(annotation(&scene.look(CONTENTS, &name), BEING_DELETED), Some("yes"));
}

#[test]
fn without_the_kinds_or_their_objects_nothing_happens() {
    let api = Api::new(ApiOptions::new(Clock::system(), Rng::seeded(1)));
    let (_habits, receiver) = watch::channel(SnapshotHabits::default());
    let mut actors = Actors::of(api.clone()).with_snapshots(receiver);
    let before = api.version();
    assert!(actors.settle());
    assert_eq!(api.version(), before);
}
