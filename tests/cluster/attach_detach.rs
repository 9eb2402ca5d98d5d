//! The attach/detach controller on a control plane whose own is switched off, and beside it. `tests/it/attach_detach.rs` plays more, without
//! kube-controller-manager.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::attaching::attach_detach;
use crate::control_plane::{ControlPlane, Extent};
use crate::ground::cluster::NAMESPACE;
use crate::ground::{self, Ground};
use crate::world::World;

/// A control plane of its own without the attach/detach controller.
async fn without_the_other() -> World {
    let set = async |profile| {
        let cluster = ControlPlane::start(Extent::WithoutAttachDetach).await;
        Ground::Cluster(ground::cluster::Ground::on(Arc::new(cluster), profile).await)
    };
    World::on(set, |_| {}).await
}

#[tokio::test]
async fn the_pods_of_a_stateful_set_get_their_volumes_where_the_other_controller_is_off() {
    let world = without_the_other().await;
    let daemon = world.daemon(attach_detach(json!({}))).await;
    let node = world.place("node", &[]).await;
    let (claim, volume) = world.monitored("claim").await;
    let (set, labels) = (world.name("set"), json!({ "app": world.name("set") }));
    let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
    let template = json!({ "metadata": { "labels": labels }, "spec": { "volumes": volumes,
        "nodeSelector": { "kubernetes.io/hostname": node }, "containers": [{ "name": "c", "image": "example.com/none" }] } });
    world
        .create_namespaced::<StatefulSet>(
            json!({ "metadata": { "name": set }, "spec": { "serviceName": "none", "replicas": 1,
            "selector": { "matchLabels": labels }, "template": template } }),
        )
        .await;
    let pod = format!("{set}-0");
    let attachment = world.attachment_of(&volume, &node);
    world.attached(&attachment).await;
    world.reports(&node, &[&volume]).await;
    world.uses(&node, &[&volume]).await;
    world.namespaced::<StatefulSet>().delete(&set, &DeleteParams::background()).await.unwrap();
    // Its kubelet has ended it, and unmounts later.
    world.delete_pod(&pod).await;
    world.rests_with(&daemon, 0).await;
    world.attached(&attachment).await;
    world.uses(&node, &[]).await;
    world.gone::<VolumeAttachment>(&attachment).await;
    world.reports(&node, &[]).await;
    assert!(!world.is_published(&volume, &node));
}

#[tokio::test]
async fn nothing_is_written_beside_the_controller_of_kube_controller_manager() {
    let world = World::supplied_alone().await;
    let node = world.place("node", &[]).await;
    // It is at work shortly before the daemon begins.
    let (claim, first) = world.monitored("first").await;
    world.pod_on("first-pod", &claim, &node).await;
    let made = world.attachment_of(&first, &node);
    world.until(&made, "made by the other", |_: &VolumeAttachment| true).await;
    let alone = json!({ "roles": { "attacher": null, "reconciler": null, "attachDetach": {} } });
    let daemon = world.daemon(alone).await;
    world.has_begun(&daemon).await;
    let (claim, second) = world.monitored("second").await;
    world.pod_on("second-pod", &claim, &node).await;
    let made = world.attachment_of(&second, &node);
    world.keeps_away(&daemon, &made).await;
    world.delete_pod(&world.name("first-pod")).await;
    world.rests_with(&daemon, 1).await;
    assert_eq!(world.real().cluster().writes_of(NAMESPACE, &world.name("daemon")), Vec::<String>::new());
    let all = world.all::<VolumeAttachment>().list(&ListParams::default()).await.unwrap();
    assert!(all.iter().any(|it| it.name_any() == made));
    let node = world.all::<Node>().get(&node).await.unwrap();
    assert!(
        node.status.and_then(|status| status.volumes_attached).is_none_or(|list| list.is_empty()),
        "nobody attaches"
    );
}
