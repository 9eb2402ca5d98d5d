//! The real controllers around us: a pod that uses a claim is scheduled, its volume attached, and detached when it goes.

use std::sync::Arc;

use csi_control_plane::sandbox::driver::{Method, Node as DriverNode, Profile};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, Extent};
use crate::ground::Ground;
use crate::objects;
use crate::world::until_some;

const DRIVER: &str = "demo.csi.example.com";

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// A node as a kubelet would register it, with the driver on it.
async fn register_node(client: &kube::Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let annotations = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    let labels = json!({"kubernetes.io/hostname": "node-1"});
    let node = json!({"metadata": {"name": "node-1", "annotations": annotations, "labels": labels}});
    create(&nodes, node).await;
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "100"});
    let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
        "lastHeartbeatTime": "2100-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let status = json!({"status": {"capacity": room, "allocatable": room, "conditions": ready}});
    nodes.patch_status("node-1", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    // As the kubelet says when it is up: the controller's taint goes.
    nodes.patch("node-1", &PatchParams::default(), &Patch::Merge(json!({"spec": {"taints": null}}))).await.unwrap();
    let drivers = json!([{"name": DRIVER, "nodeID": "id-1", "topologyKeys": null}]);
    create::<CSINode>(&Api::all(client.clone()), json!({"metadata": {"name": "node-1"}, "spec": {"drivers": drivers}}))
        .await;
}

#[tokio::test]
async fn a_pod_has_its_claim_attached_and_detached_when_it_goes() {
    let cluster = Arc::new(ControlPlane::start(Extent::Controllers).await);
    let ground = Ground::on(cluster, Profile { name: DRIVER.to_owned(), ..Profile::default() }).await;
    ground.driver().change_profile(|profile| {
        profile.nodes.insert("id-1".to_owned(), DriverNode::default());
    });
    ground.driver().seed(["handle-1"]);
    let client = ground.client();
    let _daemon = ground.start("daemon", &objects::config().to_string()).await;
    register_node(&client).await;
    create::<CSIDriver>(
        &Api::all(client.clone()),
        json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": true}}),
    )
    .await;
    let mut volume = objects::volume("pv-1", DRIVER, "handle-1");
    objects::merge(&mut volume, json!({"spec": {"storageClassName": ""}}));
    create::<PersistentVolume>(&Api::all(client.clone()), volume).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let claim = json!({"metadata": {"name": "claim"}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv-1",
        "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}});
    create(&claims, claim).await;
    until_some(claims, "claim", "bound", |claim: Option<&PersistentVolumeClaim>| {
        claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Bound")
    })
    .await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = json!({"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "c", "image": "example.com/none"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]}});
    create(&pods, pod).await;
    let name = objects::attachment_name("handle-1", DRIVER, "node-1");
    let attachments: Api<VolumeAttachment> = Api::all(client.clone());
    until_some(attachments.clone(), &name, "attached", |attachment: Option<&VolumeAttachment>| {
        attachment.and_then(|attachment| attachment.status.as_ref()).is_some_and(|status| status.attached)
    })
    .await;
    assert_eq!(ground.driver().calls_of(Method::ControllerPublishVolume).len(), 1);
    pods.delete("pod", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_some(attachments.clone(), &name, "gone", |attachment: Option<&VolumeAttachment>| attachment.is_none()).await;
    assert_eq!(ground.driver().calls_of(Method::ControllerUnpublishVolume).len(), 1);
    assert_eq!(attachments.list(&ListParams::default()).await.unwrap().items.len(), 0);
}
