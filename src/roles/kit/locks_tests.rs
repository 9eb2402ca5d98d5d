//! An attempt that waits for a volume's lock when the term is over: it waits no more, unless the driver has given it an answer that
//! is still to be acted on.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::names;
use crate::csi::VolumeLock;
use crate::election::Term;
use crate::roles::kit::served::Served;
use crate::roles::{Registration, attacher, csi_attacher, provisioner};
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::faults::{self as api, Matching};
use crate::sandbox::driver::{Action, Fault, Lie, Method, Profile};

const VOLUME: &str = "vol-1";
const NODE: &str = "node-1";

/// A volume that is locked by somebody who keeps it, and the end of the term of a role that wants it.
struct Locked {
    world: Served,
    lock: VolumeLock,
    stop: CancellationToken,
}

impl Locked {
    /// `set_up` makes the objects, and says which volume is locked.
    async fn new(registration: &Registration, profile: Profile, set_up: impl FnOnce(&Served, &str) -> String) -> Self {
        let world = Served::new(registration, &json!({}), profile).await;
        let volume = set_up(&world, &world.context.driver.name);
        let lock = world.context.driver.operations.try_acquire(&volume).unwrap();
        let stop = CancellationToken::new();
        world.serve(Term::permanent(&stop, world.context.clock));
        Self { world, lock, stop }
    }

    async fn until_it_is_waited_for(&self) {
        let (name, locks) = (self.lock.volume_id(), &self.world.context.driver.operations);
        let waits = |_: &Served| locks.snapshot().iter().any(|it| it.volume_id == name && it.waiting > 0);
        self.world.until("somebody waits for the lock", waits).await;
    }

    /// Ends the term, and sees that the role ends although the volume is still locked.
    async fn assert_not_waited_for_beyond_the_term(self, method: Method) {
        self.until_it_is_waited_for().await;
        self.stop.cancel();
        self.world.until("the term has ended", |world| !world.is_serving()).await;
        assert_eq!(self.world.testbed.driver.calls_of(method).len(), 0);
        // Nobody is left in the line, and nothing but the one who has the volume holds a lock.
        let activity = self.world.context.driver.operations.snapshot();
        let left: Vec<_> = activity.iter().map(|it| (it.volume_id.as_str(), it.waiting)).collect();
        assert_eq!(left, [(self.lock.volume_id(), 0)]);
        drop(self.lock);
        assert_eq!(self.world.context.driver.operations.snapshot(), []);
        self.world.testbed.tear_down().await;
    }
}

fn create(world: &Served, object: Value) {
    world.testbed.api.create_value(object).unwrap();
}

/// Makes a node, a volume, and its attachment to the node.
fn attachment(world: &Served, driver: &str) {
    let node = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": NODE },
        "spec": { "drivers": [{ "name": driver, "nodeID": NODE, "topologyKeys": [] }] } });
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-1" },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "csi": { "driver": driver, "volumeHandle": VOLUME } } });
    let attachment = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": "csi-1", "finalizers": [csi_attacher::finalizer(driver)] },
        "spec": { "attacher": driver, "nodeName": NODE, "source": { "persistentVolumeName": "pv-1" } } });
    for object in [node, volume, attachment] {
        create(world, object);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attach_and_a_detach_that_wait_for_their_volume_end_with_the_term() {
    for method in [Method::ControllerPublishVolume, Method::ControllerUnpublishVolume] {
        let profile = Profile { accept_unknown_volumes: true, ..Profile::with_nodes([NODE]) };
        let set_up = |world: &Served, driver: &str| {
            attachment(world, driver);
            if method == Method::ControllerUnpublishVolume {
                world.testbed.api.delete::<VolumeAttachment>("", "csi-1").unwrap();
            }
            VOLUME.to_owned()
        };
        let locked = Locked::new(&attacher::REGISTRATION, profile, set_up).await;
        locked.assert_not_waited_for_beyond_the_term(method).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_free_for_others_while_what_the_driver_has_answered_is_recorded() {
    let profile = Profile { accept_unknown_volumes: true, ..Profile::with_nodes([NODE]) };
    let set_up = |world: &Served, driver: &str| {
        attachment(world, driver);
        "another volume".to_owned()
    };
    let locked = Locked::new(&attacher::REGISTRATION, profile, set_up).await;
    let faults = locked.world.testbed.api.faults();
    let status = Matching::any().verb("patch").resource("volumeattachments").subresource("status");
    let held = faults.add(api::Fault::on(status, api::Action::Hold));
    locked.world.until("the status is about to be written", |_| faults.hits(held) == 1).await;
    assert_eq!(locked.world.testbed.driver.calls_of(Method::ControllerPublishVolume).len(), 1);
    assert!(locked.world.context.driver.operations.try_acquire(VOLUME).is_some());
    locked.world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_waits_for_its_volume_ends_with_the_term() {
    // By the driver's id of it, and by the object's name, which may be another volume's id.
    for name in [VOLUME, "pv-1"] {
        let set_up = |world: &Served, driver: &str| {
            create(
                world,
                json!({ "apiVersion": "v1", "kind": "PersistentVolume",
                    "metadata": { "name": "pv-1", "finalizers": [names::FINALIZER_PROVISIONER],
                        "annotations": { names::ANNOTATION_PROVISIONED_BY: driver } },
                    "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                        "persistentVolumeReclaimPolicy": "Delete",
                        "csi": { "driver": driver, "volumeHandle": VOLUME } } }),
            );
            let released = PatchBody::Merge(json!({ "status": { "phase": "Released" } }));
            world.testbed.api.patch_status::<PersistentVolume>("", "pv-1", released).unwrap();
            name.to_owned()
        };
        let locked = Locked::new(&provisioner::REGISTRATION, Profile::default(), set_up).await;
        locked.assert_not_waited_for_beyond_the_term(Method::DeleteVolume).await;
    }
}

/// Makes a claim and its class. Returns the name that the claim's volume gets.
fn claim(world: &Served, driver: &str) -> String {
    create(
        world,
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "gold" },
            "provisioner": driver }),
    );
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "namespace": "default", "name": "claim",
            "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: driver } },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "gold",
            "resources": { "requests": { "storage": "1Gi" } } } });
    create(world, claim);
    let claim: PersistentVolumeClaim = world.testbed.api.get("default", "claim").unwrap();
    format!("pvc-{}", claim.metadata.uid.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_volume_to_be_made_that_waits_for_its_name_ends_with_the_term() {
    let locked = Locked::new(&provisioner::REGISTRATION, Profile::default(), claim).await;
    locked.assert_not_waited_for_beyond_the_term(Method::CreateVolume).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_cannot_be_used_is_waited_for_and_deleted_although_the_term_is_over() {
    // The driver's first.
    let made = "volume-000001";
    let set_up = |world: &Served, driver: &str| {
        world.testbed.driver.inject(Fault::on(Method::CreateVolume, Action::Lie(Lie::Size(5))).once());
        claim(world, driver);
        made.to_owned()
    };
    let locked = Locked::new(&provisioner::REGISTRATION, Profile::default(), set_up).await;
    locked.until_it_is_waited_for().await;
    let driver = locked.world.testbed.driver.clone();
    assert_eq!(driver.state().volumes().keys().collect::<Vec<_>>(), [made]);
    locked.stop.cancel();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(locked.world.is_serving(), "what the driver has answered is still to be acted on");
    drop(locked.lock);
    locked.world.until("the term has ended", |world| !world.is_serving()).await;
    assert!(driver.state().volumes().is_empty());
    assert_eq!(locked.world.context.driver.operations.snapshot(), []);
    locked.world.testbed.tear_down().await;
}
