//! Volumes of in-tree plugins beside the driver that has taken the plugin over: created, attached, expanded and deleted in their CSI
//! form. Each scenario has a driver of its own, because on a real cluster they run at once and the names are fixed.

use csi_control_plane::proto::volume_content_source::Type as Source;
use csi_control_plane::sandbox::driver::{Method, Secrets};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::supplier::short_times;
use crate::supply::handle_of;
use crate::world::World;

/// The specification of a volume whose plugin's field says which one it is.
fn in_tree(field: &str, source: &Value) -> Value {
    json!({ "csi": null, field: source })
}

/// A claim of 1 GiB that is bound to a volume with this specification. Returns the names of both.
async fn bound(world: &World, mut spec: Value) -> (String, String) {
    let class = world.class("class", json!({ "allowVolumeExpansion": true })).await;
    spec["storageClassName"] = json!(class);
    let volume = world.volume_with("pv", spec).await;
    let claim = world.claim("claim", &class, json!({ "spec": { "volumeName": volume } })).await;
    world.bound(&claim).await;
    (claim, volume)
}

#[tokio::test]
async fn m23_a_volume_is_attached_by_the_driver_that_has_taken_its_plugin_over_and_by_no_other() {
    let world = World::with(|profile| profile.name = "cinder.csi.openstack.org".into()).await;
    let _daemon = world.daemon(json!({})).await;
    let node = world.node("node").await;
    let source = json!({ "volumeID": world.handle(&world.name("pv")), "readOnly": true });
    let volume = world.volume_with("pv", in_tree("cinder", &source)).await;
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
    assert!(world.is_published(&volume, &node));
    let object: PersistentVolume = world.until(&volume, "protected", |_| true).await;
    assert!(object.finalizers().contains(&world.finalizer()), "the in-tree volume has the finalizer");
    world.detached(&attachment).await;
    assert!(!world.is_published(&volume, &node));
    // M4: no annotation says that the volume is migrated, so it does not keep the finalizer.
    world.until(&volume, "released", |it: &PersistentVolume| !it.finalizers().contains(&world.finalizer())).await;

    let foreign = world.volume_with("other", in_tree("awsElasticBlockStore", &json!({ "volumeID": "vol-1" }))).await;
    let attachment = world.attach(&foreign, &node).await;
    world.failed(&attachment, "ebs.csi.aws.com").await;
    let object: PersistentVolume = world.until(&foreign, "seen", |_| true).await;
    assert!(!object.finalizers().contains(&world.finalizer()));
    assert_eq!(world.publishes(&foreign).len(), 0);
    world.detached(&attachment).await;
}

#[tokio::test]
async fn a_volume_of_the_plugin_grows_once_kubernetes_names_the_driver_as_its_resizer() {
    let world = World::supplied(|profile| profile.name = "pxd.portworx.com".into()).await;
    let _daemon = world.resizer(crate::supplier::slow()).await;
    let source = json!({ "volumeID": world.handle(&world.name("pv")) });
    let (claim, volume) = bound(&world, in_tree("portworxVolume", &source)).await;
    // kube-controller-manager's expand controller does that.
    let annotations = json!({ "volume.kubernetes.io/storage-resizer": world.driver_name() });
    world.patch_claim(&claim, json!({ "metadata": { "annotations": annotations } })).await;
    world.ask_for(&claim, "2Gi").await;
    world.expanded_times(1).await;
    assert_eq!(world.expansions()[0].volume.as_deref(), Some(world.handle(&volume).as_str()));
}

#[tokio::test]
async fn m16_a_volume_that_the_plugin_made_is_deleted_by_the_driver_once_its_claim_is_gone() {
    let world = World::supplied(|profile| profile.name = "csi.vsphere.vmware.com".into()).await;
    let _daemon = world.provisioner(json!({})).await;
    let source = json!({ "volumePath": world.handle(&world.name("pv")) });
    let mut spec = in_tree("vsphereVolume", &source);
    spec["persistentVolumeReclaimPolicy"] = json!("Delete");
    let (claim, volume) = bound(&world, spec).await;
    let annotations = json!({ "pv.kubernetes.io/provisioned-by": "kubernetes.io/vsphere-volume",
        "pv.kubernetes.io/migrated-to": world.driver_name() });
    world.merge_patch::<PersistentVolume>(&volume, json!({ "metadata": { "annotations": annotations } })).await;
    world.delete_claim(&claim).await;
    world.gone::<PersistentVolume>(&volume).await;
    let deleted = world.driver().calls_of(Method::DeleteVolume);
    let handles: Vec<_> = deleted.iter().filter_map(|call| call.volume.as_deref()).collect();
    assert_eq!(handles, [world.handle(&volume)]);
}

#[tokio::test]
async fn m14_m25_r37_r43_s0_a_claim_of_the_plugins_class_gets_a_volume_of_the_plugin() {
    let secrets = Secrets([("password".to_owned(), "hunter2".to_owned())].into());
    let world = World::supplied(|profile| {
        profile.name = "ebs.csi.aws.com".into();
        profile.provision_secrets = secrets;
    })
    .await;
    world.install_snapshots().await;
    let daemon = world.provisioner(json!({})).await;
    let secret = world.name("secret");
    world.secret(&secret, &[("password", b"hunter2")]).await;
    let parameters = json!({ "csi.storage.k8s.io/provisioner-secret-name": secret,
        "csi.storage.k8s.io/provisioner-secret-namespace": "default" });
    let class = world.class("class", json!({ "provisioner": "kubernetes.io/aws-ebs", "parameters": parameters })).await;
    let source = world.claim("source", &class, json!({})).await;
    let volume = world.supplied_with(&source).await;
    assert!(volume.spec.as_ref().is_some_and(|it| it.csi.is_none() && it.aws_elastic_block_store.is_some()));
    assert_eq!(volume.annotations()["pv.kubernetes.io/provisioned-by"], "kubernetes.io/aws-ebs");
    // The PV controller says who serves it; we never do.
    let is_migrated = |it: &PersistentVolume| it.annotations().get("pv.kubernetes.io/migrated-to").is_some();
    world.until(&volume.name_any(), "migrated", is_migrated).await;

    let snapshot = world.snapshot("snapshot", &source).await;
    let (_, handle) = handle_of(&volume).unwrap();
    let from_claim = json!({ "kind": "PersistentVolumeClaim", "name": source });
    let from_snapshot = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot });
    let mut claims = vec![source];
    for (short, from) in [("clone", from_claim), ("restore", from_snapshot)] {
        let claim = world.claim(short, &class, json!({ "spec": { "dataSource": from } })).await;
        let made = world.supplied_with(&claim).await;
        assert!(made.spec.as_ref().is_some_and(|it| it.csi.is_none()), "{short}");
        match world.source_of(&made) {
            Some(Source::Volume(source)) => assert_eq!((short, &source.volume_id), ("clone", &handle)),
            Some(Source::Snapshot(_)) => assert_eq!(short, "restore"),
            None => panic!("{short}: an empty volume"),
        }
        claims.push(claim);
    }
    // A successor finds them, and creates no other.
    daemon.stop().await.unwrap();
    let section = json!({ "roles": { "provisioner": short_times() } });
    let _second = world.daemon_on("second", section).await;
    for claim in claims.iter().rev() {
        world.delete_claim(claim).await;
    }
    world.assert_all_gone(&claims.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(world.driver().calls_of(Method::CreateVolume).len(), 3);
    let deleted = world.driver().calls_of(Method::DeleteVolume);
    assert!(deleted.len() == 3 && deleted.iter().all(|call| call.secrets), "{deleted:#?}");
}

#[tokio::test]
async fn m18_a_volume_that_the_plugin_cannot_have_is_deleted_and_the_claim_says_why() {
    let world = World::supplied(|profile| profile.name = "pd.csi.storage.gke.io".into()).await;
    let class = world.class("class", json!({ "provisioner": "kubernetes.io/gce-pd" })).await;
    let _daemon = world.provisioner(json!({})).await;
    let claim = world.claim("claim", &class, json!({})).await;
    // The demo driver's handles are not those of Google's driver.
    world.claim_told(&claim, "ProvisioningFailed", "can't be stored as a volume of the in-tree plugin").await;
    world.delete_claim(&claim).await;
    world.assert_all_gone(&[&claim]).await;
    let (made, deleted) =
        (world.driver().calls_of(Method::CreateVolume), world.driver().calls_of(Method::DeleteVolume));
    assert!(!made.is_empty() && made.len() <= deleted.len() + 1, "{made:#?} {deleted:#?}");
    assert!(deleted.iter().all(|call| call.volume.as_deref().is_some_and(|id| !id.is_empty())));
}
