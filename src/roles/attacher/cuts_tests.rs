//! Wherever the attacher is cut, the next leader comes to the same end.

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};

use crate::roles::attacher::{REGISTRATION, names};
use crate::roles::kit::cuts::assert_the_same_end;
use crate::roles::kit::served::Served;
use crate::sandbox::api::PatchBody;
use crate::sandbox::driver::Profile;

const VOLUME: &str = "pv-1";
const ATTACHMENT: &str = "csi-1";
const NODE: &str = "node-1";

/// A node, a volume with a secret, and its attachment as it is in `state`.
async fn scene(state: Value) -> Served {
    let profile = Profile { accept_unknown_volumes: true, ..Profile::with_nodes([NODE]) };
    let world = Served::new(&REGISTRATION, &json!({ "resync": "0s" }), profile).await;
    let driver = world.context.driver.name.clone();
    for object in [
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": NODE },
            "spec": { "drivers": [{ "name": driver, "nodeID": NODE, "topologyKeys": [] }] } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys", "namespace": "default" }, "data": {} }),
        json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": VOLUME },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": driver, "volumeHandle": VOLUME,
                    "controllerPublishSecretRef": { "name": "keys", "namespace": "default" } } } }),
        crate::roles::kit::fixtures::merged(
            json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": ATTACHMENT },
                "spec": { "attacher": driver, "nodeName": NODE, "source": { "persistentVolumeName": VOLUME } } }),
            state,
        ),
    ] {
        world.testbed.api.create_value(object).unwrap();
    }
    world
}

fn attachment(world: &Served) -> Option<VolumeAttachment> {
    world.testbed.api.get::<VolumeAttachment>("", ATTACHMENT).ok()
}

/// Finalizers and annotations.
type Marks = (Vec<String>, Vec<(String, String)>);

/// What there is of a volume in the cluster and at the driver.
#[derive(Debug, PartialEq)]
struct End {
    attachment: Option<Marks>,
    volume: Option<Vec<String>>,
    published: Vec<String>,
}

fn end(world: &Served) -> End {
    let volume = world.testbed.api.get::<PersistentVolume>("", VOLUME).ok();
    let shown = |attachment: VolumeAttachment| {
        let annotations = attachment.metadata.annotations.unwrap_or_default().into_iter();
        // A uid is another one in each scene.
        let annotations = annotations.filter(|(name, _)| name != names::ANNOTATION_RECORDED_FOR).collect();
        (attachment.metadata.finalizers.unwrap_or_default(), annotations)
    };
    End {
        attachment: attachment(world).map(shown),
        volume: volume.map(|volume| volume.metadata.finalizers.unwrap_or_default()),
        published: world.testbed.driver.published(VOLUME).into_iter().collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_attach_comes_to_its_end() {
    let is_attached = |world: &Served| attachment(world).and_then(|it| it.status).is_some_and(|it| it.attached);
    assert_the_same_end(async || scene(json!({})).await, |world| is_attached(world).then(|| end(world))).await;
}

#[tokio::test(start_paused = true)]
async fn a_detach_and_the_release_of_its_volume_come_to_their_end() {
    let attached = async || {
        let world = scene(json!({})).await;
        let ours = names::finalizer(&world.context.driver.name);
        let api = &world.testbed.api;
        let mark = |finalizers: &[&str]| {
            json!({ "metadata": { "finalizers": finalizers, "annotations": {
            names::ANNOTATION_NODE_ID: NODE, names::ANNOTATION_VOLUME_HANDLE: VOLUME } } })
        };
        api.patch::<VolumeAttachment>("", ATTACHMENT, PatchBody::Merge(mark(&[&ours]))).unwrap();
        api.patch::<PersistentVolume>("", VOLUME, PatchBody::Merge(mark(&[&ours]))).unwrap();
        world.testbed.driver.attach_behind(VOLUME, NODE);
        api.delete::<VolumeAttachment>("", ATTACHMENT).unwrap();
        api.delete::<PersistentVolume>("", VOLUME).unwrap();
        world
    };
    let is_gone = |world: &Served| (end(world).attachment.is_none() && end(world).volume.is_none()).then(|| end(world));
    assert_the_same_end(attached, is_gone).await;
}
