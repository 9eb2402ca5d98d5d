use crate::actors::snapshot_objects::BEING_DELETED;
use crate::actors::{Actors, Kind, annotation};
use crate::api::{Api, ApiOptions};
use base::process::{Clock, Rng, watch};

use super::*;

const DRIVER: &str = "demo.csi.example.com";

struct Scene {
    api: Api,
    actors: Actors,
}

impl Scene {
    /// A cluster with two bound claims of a shop, and a class.
    fn new(version: &str) -> Self {
        let api = Api::new(ApiOptions::new(Clock::system(), Rng::seeded(1)));
        api.install("snapshot.storage.k8s.io");
        api.install(&format!("groupsnapshot.storage.k8s.io/{version}"));
        let (_, receiver) = watch::channel(SnapshotHabits::default());
        let mut scene = Self { actors: Actors::of(api.clone()).with_snapshots(receiver), api };
        for name in ["a", "b"] {
            let claim = scene.make(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "labels": {"app": "shop"}}, "spec": {"accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "", "volumeName": name}}));
            scene.make(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "csi": {"driver": DRIVER, "volumeHandle": format!("v-{name}")},
                "claimRef": {"namespace": "default", "name": name, "uid": uid(&claim)}}}));
        }
        let api_version = format!("groupsnapshot.storage.k8s.io/{version}");
        scene.make(
            json!({"apiVersion": api_version, "kind": "VolumeGroupSnapshotClass", "metadata": {"name": "class"},
            "driver": DRIVER, "deletionPolicy": "Delete",
            "parameters": {GROUP_SECRETS[0].0: "s", GROUP_SECRETS[1].0: "n"}}),
        );
        scene.make(
            json!({"apiVersion": api_version, "kind": "VolumeGroupSnapshot", "metadata": {"name": "g"}, "spec": {
            "volumeGroupSnapshotClassName": "class", "source": {"selector": {"matchLabels": {"app": "shop"}}}}}),
        );
        scene
    }

    fn make(&mut self, object: Value) -> Arc<Value> {
        let made = self.api.create_value(object).unwrap();
        self.actors.settle();
        made
    }

    fn all(&self, kind: Kind) -> Vec<Arc<Value>> {
        self.actors.cluster.all(kind)
    }

    fn content(&self) -> Arc<Value> {
        self.all(GROUP_CONTENTS).remove(0)
    }

    fn sidecar(&mut self, ready: bool) {
        let info = |name: &str| {
            json!({"volumeHandle": format!("v-{name}"), "snapshotHandle": format!("s-{name}"),
            "creationTime": 5, "readyToUse": ready, "restoreSize": 7})
        };
        let status = json!({"volumeGroupSnapshotHandle": "h", "readyToUse": ready, "creationTime": "2026-01-01T00:00:00Z",
            "volumeSnapshotInfoList": [info("a"), info("b")]});
        self.say(&status);
    }

    fn say(&mut self, status: &Value) {
        let content = self.content();
        assert!(self.actors.cluster.change_status(GROUP_CONTENTS, &content, status));
        self.actors.settle();
    }
}

#[test]
fn a_group_gets_its_content_and_its_members_are_made_and_filled() {
    for version in ["v1", "v1beta2"] {
        let mut scene = Scene::new(version);
        let content = scene.content();
        assert_eq!(content["spec"]["source"]["volumeHandles"], json!(["v-a", "v-b"]));
        assert_eq!(finalizers(&content).collect::<Vec<_>>(), [CONTENT_BOUND]);
        assert_eq!((annotation(&content, GROUP_SECRETS[0].1), scene.all(CONTENTS).len()), (Some("s"), 0));
        scene.sidecar(false);
        let members = scene.all(CONTENTS);
        assert_eq!(members.len(), 2);
        for member in &members {
            assert_eq!((annotation(member, MEMBER), annotation(member, SECRETS[0].1)), (Some("h"), Some("s")));
            assert_eq!(text(member, "/status/volumeGroupSnapshotHandle"), "h");
            assert_eq!(member["status"]["readyToUse"], false);
            assert!(!text(member, "/spec/volumeSnapshotRef/uid").is_empty(), "bound to its snapshot");
        }
        scene.sidecar(true);
        assert_eq!(scene.all(GROUPS)[0]["status"]["readyToUse"], true);
    }
}

#[test]
fn members_are_made_of_the_handles_of_the_oldest_version() {
    let mut scene = Scene::new("v1beta1");
    let pair = |name: &str| json!({"volumeHandle": format!("v-{name}"), "snapshotHandle": format!("s-{name}")});
    scene.say(&json!({"volumeGroupSnapshotHandle": "h", "readyToUse": true, "creationTime": "2026-01-01T00:00:00Z",
        "volumeSnapshotHandlePairList": [pair("a"), pair("b")]}));
    let handles: Vec<_> = scene.all(CONTENTS).iter().map(|it| text(it, "/status/snapshotHandle").to_owned()).collect();
    assert_eq!((handles.len(), handles.contains(&"s-a".to_owned())), (2, true), "{handles:?}");
}

#[test]
fn a_deleted_group_takes_its_content_and_its_members_with_it() {
    let mut scene = Scene::new("v1");
    scene.sidecar(true);
    let group = scene.all(GROUPS).remove(0);
    scene.actors.cluster.delete(GROUPS, &group);
    scene.actors.settle();
    let content = scene.content();
    assert!(is_deleting(&content) && annotation(&content, GROUP_BEING_DELETED) == Some("yes"));
    for member in scene.all(CONTENTS) {
        assert!(is_deleting(&member) && annotation(&member, BEING_DELETED) == Some("yes"));
        scene.actors.cluster.let_go(
            CONTENTS,
            &member,
            "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection",
        );
    }
    scene.actors.cluster.let_go(GROUP_CONTENTS, &content, CONTENT_BOUND);
    scene.actors.settle();
    assert!(scene.all(GROUPS).is_empty() && scene.all(SNAPSHOTS).is_empty());
}

#[test]
fn a_group_that_existed_before_is_bound_and_goes_with_its_content_if_the_policy_says_so() {
    for (policy, goes) in [("Delete", true), ("Retain", false)] {
        let mut scene = Scene::new("v1");
        let api_version = "groupsnapshot.storage.k8s.io/v1";
        scene.make(json!({"apiVersion": api_version, "kind": "VolumeGroupSnapshotContent", "metadata": {"name": "given"},
            "spec": {"deletionPolicy": policy, "driver": DRIVER, "volumeGroupSnapshotRef": {"namespace": "default", "name": "h"},
                "source": {"groupSnapshotHandles": {"volumeGroupSnapshotHandle": "old", "volumeSnapshotHandles": ["s"]}}}}));
        let group = scene.make(json!({"apiVersion": api_version, "kind": "VolumeGroupSnapshot",
            "metadata": {"name": "h"}, "spec": {"source": {"volumeGroupSnapshotContentName": "given"}}}));
        let given = |scene: &Scene| scene.actors.cluster.one(GROUP_CONTENTS, "", "given").unwrap();
        let content = given(&scene);
        assert_eq!(text(&content, "/spec/volumeGroupSnapshotRef/uid"), uid(&group));
        assert_eq!(finalizers(&content).collect::<Vec<_>>(), [CONTENT_BOUND]);
        let group = scene.actors.cluster.one(GROUPS, "default", "h").unwrap();
        scene.actors.cluster.delete(GROUPS, &group);
        scene.actors.settle();
        let content = given(&scene);
        assert_eq!((annotation(&content, GROUP_BEING_DELETED), is_deleting(&content)), (Some("yes"), goes));
        assert_eq!(scene.actors.cluster.one(GROUPS, "default", "h").is_some(), goes, "held until its content is gone");
    }
}
