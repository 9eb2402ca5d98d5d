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

#[tokio::test]
async fn where_the_server_has_groups_as_v1beta2_alone_they_are_taken_and_deleted() {
    let world = World::alone().await;
    world.install_snapshots().await;
    kinds::install_groups_as(&world.client(), "v1beta2").await;
    let _daemon = world.snapshotter(json!({})).await;
    let (contents, name) = content_in(&world, "v1beta2").await;
    let content = settled("a ready group", PATIENCE, async || {
        let content = json!(contents.get(&name).await.unwrap());
        if is_ready(&content) && !grouping::is_begun(&content) { Ok(content) } else { Err(format!("{content:#}")) }
    })
    .await;
    assert_eq!(content["status"]["volumeSnapshotInfoList"].as_array().unwrap().len(), 2, "{content:#}");
    assert!(world.driver().state().groups().contains_key(grouping::handle_in(&content).unwrap()));
    let deleted = Patch::Merge(json!({"metadata": {"annotations": {DELETED: "yes"}}}));
    contents.patch(&name, &PatchParams::default(), &deleted).await.unwrap();
    contents.delete(&name, &DeleteParams::default()).await.unwrap();
    settled("no group", PATIENCE, async || {
        let left = contents.get_opt(&name).await.unwrap();
        left.map_or(Ok(()), |it| Err(format!("{} is there", it.name_any())))
    })
    .await;
    assert!(world.driver().state().groups().is_empty() && world.group_deletions().len() == 1);
}

/// Another schema: its status lists the members elsewhere, and a server drops what the daemon would write.
#[tokio::test]
async fn where_the_server_has_groups_as_v1beta1_alone_the_page_says_so_and_no_group_is_touched() {
    let world = World::alone().await;
    world.install_snapshots().await;
    kinds::install_groups_as(&world.client(), "v1beta1").await;
    let daemon = world.snapshotter(json!({})).await;
    let (contents, name) = content_in(&world, "v1beta1").await;
    let before = contents.get(&name).await.unwrap().resource_version();
    world.page_names(&daemon, &["off: the cluster has them as v1beta1 alone"]).await;
    // Snapshots are looked up meanwhile.
    let handle = world.cut_behind("before");
    let single = world.content_by_hand("single", json!({ "snapshotHandle": handle }), json!({})).await;
    world.content_until(&single, "ready", is_ready).await;
    assert_eq!(contents.get(&name).await.unwrap().resource_version(), before);
    assert!(world.group_cuts().is_empty());
}
