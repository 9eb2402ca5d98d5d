//! Groups of snapshots where the server has them in one version alone, as with CRDs of other releases of external-snapshotter. No
//! snapshot-controller is there: that of today works with v1 alone.

use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::grouping::{self, DELETED, GROUP_CLASS, GROUP_CONTENT};
use crate::kinds;
use crate::snapshotting::is_ready;
use crate::world::{PATIENCE, World, settled};

const GROUPS: &str = "groupsnapshot.storage.k8s.io";

/// A kind of groups in this version.
fn kind_of(world: &World, version: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(world.client(), &ApiResource::from_gvk(&GroupVersionKind::gvk(GROUPS, version, kind)))
}

/// Makes an object of a kind of groups.
async fn make(world: &World, version: &str, kind: &str, mut object: Value) {
    crate::objects::merge(&mut object, json!({"apiVersion": format!("{GROUPS}/{version}"), "kind": kind}));
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    kind_of(world, version, kind).create(&PostParams::default(), &object).await.unwrap();
}

/// The content of a group of two volumes, as a snapshot-controller of that version makes it.
async fn content_in(world: &World, version: &str) -> (Api<DynamicObject>, String) {
    let (class, content) = (world.name("class"), world.name("content"));
    let handles = ["one", "two"].map(|short| world.name(short));
    world.driver().seed(handles.iter().map(String::as_str));
    let object = json!({"metadata": {"name": class}, "driver": world.driver_name(), "deletionPolicy": "Delete"});
    make(world, version, GROUP_CLASS, object).await;
    let spec = json!({"driver": world.driver_name(), "deletionPolicy": "Delete", "source": {"volumeHandles": handles},
        "volumeGroupSnapshotClassName": class,
        "volumeGroupSnapshotRef": {"namespace": "default", "name": "group", "uid": world.name("uid")}});
    make(world, version, GROUP_CONTENT, json!({"metadata": {"name": content}, "spec": spec})).await;
    (kind_of(world, version, GROUP_CONTENT), content)
}

/// Has a group taken and deleted in the one version that the server has.
async fn taken_and_deleted_in(version: &str, list: &str) {
    let world = World::alone().await;
    world.install_snapshots().await;
    kinds::install_groups_as(&world.client(), version).await;
    let _daemon = world.snapshotter(json!({})).await;
    let (contents, name) = content_in(&world, version).await;
    let content = settled("a ready group", PATIENCE, async || {
        let content = json!(contents.get(&name).await.unwrap());
        if is_ready(&content) && !grouping::is_begun(&content) { Ok(content) } else { Err(format!("{content:#}")) }
    })
    .await;
    assert_eq!(content["status"][list].as_array().unwrap().len(), 2, "{content:#}");
    assert!(world.driver().state().groups().contains_key(grouping::handle_in(&content).unwrap()));
    let deleted = Patch::Merge(json!({"metadata": {"annotations": {DELETED: "yes"}}}));
    contents.patch(&name, &PatchParams::default(), &deleted).await.unwrap();
    contents.delete(&name, &DeleteParams::default()).await.unwrap();
    settled("no group", PATIENCE, async || {
        let left = contents.get_opt(&name).await.unwrap();
        left.map_or(Ok(()), |it| Err(format!("{} is there", it.name_any())))
    })
    .await;
    let deletions = world.group_deletions();
    assert!(world.driver().state().groups().is_empty() && deletions.len() == 1 && deletions[0].members.len() == 2);
}

#[tokio::test]
async fn where_the_server_has_groups_as_v1beta2_alone_they_are_taken_and_deleted() {
    taken_and_deleted_in("v1beta2", "volumeSnapshotInfoList").await;
}

#[tokio::test]
async fn where_the_server_has_groups_as_v1beta1_alone_they_are_taken_and_deleted() {
    taken_and_deleted_in("v1beta1", "volumeSnapshotHandlePairList").await;
}
