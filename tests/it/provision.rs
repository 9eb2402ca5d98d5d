//! Claims that become volumes, and volumes that go with their claims. Nothing is left behind, however it ends.

use std::collections::BTreeSet;

use csi_control_plane::cluster::names;
use csi_control_plane::process::Tasks;
use csi_control_plane::sandbox::actors::Actors;
use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method, Profile};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tonic::Code;

use crate::ground::Daemon;
use crate::objects;
use crate::world::{World, until_some};

/// A world with the controllers that claims need beside a provisioner.
struct Shop {
    world: World,
    class: String,
    _tasks: Tasks,
}

impl Shop {
    async fn open() -> Self {
        Self::with(|_| {}, json!({})).await
    }

    /// With a driver and a class that were changed like this.
    async fn with(change: impl FnOnce(&mut Profile), class: Value) -> Self {
        let world = World::with(change).await;
        let (tasks, _) = Tasks::new("shop");
        Actors::of(world.sandbox().stage.api.clone()).start(&tasks);
        let name = world.name("gold");
        let mut object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
            "provisioner": world.driver_name(),
        });
        objects::merge(&mut object, class);
        world.create::<StorageClass>(object).await;
        Self { world, class: name, _tasks: tasks }
    }

    async fn daemon(&self, section: Value) -> Daemon {
        let mut provisioner =
            json!({ "retry": { "initial": "50ms", "max": "400ms", "infeasible": "1s" }, "resync": "0s" });
        objects::merge(&mut provisioner, section);
        self.world.daemon(json!({ "roles": { "provisioner": provisioner } })).await
    }

    async fn claim(&self, short: &str, spec: Value) -> PersistentVolumeClaim {
        let mut object = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": self.world.name(short) },
            "spec": { "storageClassName": self.class, "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } } },
        });
        objects::merge(&mut object["spec"], spec);
        let object: PersistentVolumeClaim = serde_json::from_value(object).unwrap();
        self.world.namespaced().create(&PostParams::default(), &object).await.unwrap()
    }

    async fn patch(&self, claim: &PersistentVolumeClaim, patch: Value) {
        let api = self.world.namespaced::<PersistentVolumeClaim>();
        api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn select(&self, claim: &PersistentVolumeClaim, node: &str) {
        self.patch(claim, json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: node } } })).await;
    }

    async fn until(
        &self,
        claim: &PersistentVolumeClaim,
        what: &str,
        holds: impl Fn(&PersistentVolumeClaim) -> bool,
    ) -> PersistentVolumeClaim {
        let (api, name) = (self.world.namespaced::<PersistentVolumeClaim>(), claim.name_any());
        until_some(api, &name, what, |it: Option<&PersistentVolumeClaim>| it.is_some_and(&holds)).await.unwrap()
    }

    /// Waits until the claim is bound and carries nothing of ours.
    async fn bound(&self, claim: &PersistentVolumeClaim) -> PersistentVolume {
        let claim =
            self.until(claim, "bound, and released by us", |it| phase(it) == "Bound" && !self.is_marked(it)).await;
        let name = claim.spec.unwrap().volume_name.unwrap();
        self.world.all::<PersistentVolume>().get(&name).await.unwrap()
    }

    fn is_marked(&self, claim: &PersistentVolumeClaim) -> bool {
        claim.finalizers().contains(&names::provisioning_finalizer(self.world.driver_name()))
            || claim.annotations().contains_key(names::ANNOTATION_PROVISIONING)
    }

    async fn delete(&self, claim: &PersistentVolumeClaim) {
        let api = self.world.namespaced::<PersistentVolumeClaim>();
        api.delete(&claim.name_any(), &DeleteParams::default()).await.unwrap();
    }

    async fn gone(&self, claim: &PersistentVolumeClaim) {
        let api = self.world.namespaced::<PersistentVolumeClaim>();
        until_some(api, &claim.name_any(), "gone", |it: Option<&PersistentVolumeClaim>| it.is_none()).await;
    }

    fn creates(&self, claim: &PersistentVolumeClaim) -> Vec<Call> {
        self.world.driver().creates_of(&volume_name(claim))
    }

    /// The handles that the driver has, and those that volume objects tell of.
    async fn books(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let api = self.world.all::<PersistentVolume>();
        let told = api.list(&kube::api::ListParams::default()).await.unwrap().items;
        let told = told.into_iter().filter_map(|it| Some(it.spec?.csi?.volume_handle)).collect();
        (self.world.driver().state().volumes().keys().cloned().collect(), told)
    }

    async fn assert_nothing_is_left(&self) {
        assert_eq!(self.books().await, (BTreeSet::new(), BTreeSet::new()));
        assert_eq!(self.world.driver().violations(), []);
    }

    /// The writes of the daemon, but Events and Leases, as `verb plural code`.
    fn written(&self) -> Vec<String> {
        let writes = ["create", "update", "patch", "delete"];
        let audit = self.world.sandbox().stage.api.audit();
        let ours = audit.matching(|it| {
            writes.contains(&it.verb) && !it.user.contains("admin") && !["events", "leases"].contains(&it.resource)
        });
        ours.into_iter().map(|it| format!("{} {} {}", it.verb, it.resource, it.code)).collect()
    }
}

fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.uid().unwrap())
}

fn create(action: Action) -> Fault {
    Fault::on(Method::CreateVolume, action)
}

#[tokio::test]
async fn a_claim_becomes_a_volume_by_three_writes_and_goes_with_it_by_two() {
    let shop = Shop::open().await;
    let _daemon = shop.daemon(json!({})).await;
    let claim = shop.claim("data", json!({})).await;
    let volume = shop.bound(&claim).await;
    assert_eq!(volume.name_any(), volume_name(&claim));
    assert_eq!(
        shop.written(),
        ["patch persistentvolumeclaims 200", "create persistentvolumes 201", "patch persistentvolumeclaims 200"]
    );
    assert_eq!(shop.creates(&claim).len(), 1);
    let finalizers = volume.finalizers();
    assert!(finalizers.iter().any(|it| it == names::FINALIZER_PROVISIONER), "{finalizers:?}");
    assert!(finalizers.contains(&shop.world.finalizer()), "the attacher beside us need not put it on: {finalizers:?}");
    assert_eq!(volume.annotations()[names::ANNOTATION_PROVISIONED_BY], shop.world.driver_name());
    let spec = volume.spec.unwrap();
    assert_eq!(spec.claim_ref.unwrap().uid, claim.uid());
    assert_eq!(spec.storage_class_name.as_deref(), Some(shop.class.as_str()));

    shop.world.sandbox().stage.api.audit().clear();
    shop.delete(&claim).await;
    shop.world.gone::<PersistentVolume>(&volume_name(&claim)).await;
    let ours: Vec<_> = shop.written().into_iter().filter(|it| !it.contains("volumeattachments")).collect();
    let (deletes, patches): (Vec<_>, Vec<_>) = ours.iter().partition(|it| it.starts_with("delete"));
    assert_eq!(deletes, ["delete persistentvolumes 200"]);
    assert!(patches.len() <= 2, "one of ours, one of the attacher's: {patches:?}");
    assert_eq!(shop.world.driver().calls_of(Method::DeleteVolume).len(), 1, "exactly one DeleteVolume");
    shop.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_volume_that_its_class_retains_stays_when_the_claim_goes() {
    let shop = Shop::with(|_| {}, json!({ "reclaimPolicy": "Retain" })).await;
    let _daemon = shop.daemon(json!({})).await;
    let claim = shop.claim("data", json!({})).await;
    let volume = shop.bound(&claim).await;
    shop.delete(&claim).await;
    shop.gone(&claim).await;
    let released = shop
        .world
        .until(&volume.name_any(), "released, without our finalizer", |it: &PersistentVolume| {
            let phase = it.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Released") && !it.finalizers().iter().any(|it| it == names::FINALIZER_PROVISIONER)
        })
        .await;
    assert!(released.metadata.deletion_timestamp.is_none());
    assert!(shop.world.driver().calls_of(Method::DeleteVolume).is_empty());
}

#[tokio::test]
async fn a_claim_for_a_first_consumer_is_provisioned_where_its_node_is() {
    let zone = |zone: &str| [("zone".to_owned(), zone.to_owned())].into();
    let shop = Shop::with(
        |profile| {
            profile.services.insert(2);
            profile.segments = vec![zone("a"), zone("b")];
        },
        json!({ "volumeBindingMode": "WaitForFirstConsumer" }),
    )
    .await;
    let _daemon = shop.daemon(json!({})).await;
    for (node, zone) in [("one", "a"), ("two", "b")] {
        shop.world
            .create::<Node>(json!({ "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": shop.world.name(node), "labels": { "zone": zone } } }))
            .await;
        let drivers = json!([{ "name": shop.world.driver_name(), "nodeID": node, "topologyKeys": ["zone"] }]);
        shop.world.set_drivers(&shop.world.name(node), drivers).await;
    }
    let claim = shop.claim("data", json!({})).await;
    shop.select(&claim, &shop.world.name("two")).await;
    let volume = shop.bound(&claim).await;
    let asked = shop.creates(&claim).remove(0).create.unwrap().accessibility_requirements.unwrap();
    assert_eq!(asked.preferred[0].segments["zone"], "b");
    let affinity = serde_json::to_value(volume.spec.unwrap().node_affinity).unwrap();
    assert_eq!(affinity.pointer("/required/nodeSelectorTerms/0/matchExpressions/0/values"), Some(&json!(["b"])));
}

#[tokio::test]
async fn r56_a_claim_deleted_while_its_volume_is_made_leaves_nothing_behind() {
    let shop = Shop::open().await;
    let _daemon = shop.daemon(json!({})).await;
    shop.world
        .driver()
        .inject(create(Action::DoneButFail { code: Code::DeadlineExceeded, message: "slow".into() }).times(2));
    let claim = shop.claim("data", json!({})).await;
    shop.world.driver_until("a first answer that is not final", |_| !shop.creates(&claim).is_empty()).await;
    shop.delete(&claim).await;
    shop.gone(&claim).await;
    shop.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_retry_asks_the_same_byte_by_byte_although_the_class_was_replaced() {
    let shop = Shop::with(|_| {}, json!({ "parameters": { "kind": "fast" } })).await;
    let _daemon = shop.daemon(json!({})).await;
    shop.world.driver().inject(create(Action::fail(Code::DeadlineExceeded, "slow")).times(3));
    let claim = shop.claim("data", json!({})).await;
    shop.world.driver_until("a first answer that is not final", |_| !shop.creates(&claim).is_empty()).await;
    let classes = shop.world.all::<StorageClass>();
    classes.delete(&shop.class, &DeleteParams::default()).await.unwrap();
    shop.bound(&claim).await;
    let asked: Vec<_> = shop.creates(&claim).into_iter().map(|call| call.create.unwrap()).collect();
    assert_eq!(asked.len(), 4);
    assert!(asked.iter().all(|it| *it == asked[0]), "{asked:#?}");
}

#[tokio::test]
async fn a_final_error_is_told_once_and_leaves_the_claim_unmarked() {
    let shop = Shop::open().await;
    let _daemon = shop.daemon(json!({})).await;
    shop.world.driver().inject(create(Action::fail(Code::Internal, "no such pool")));
    let claim = shop.claim("data", json!({})).await;
    shop.world.driver_until("four attempts", |_| shop.creates(&claim).len() >= 4).await;
    let uid = claim.uid().unwrap();
    let told = |events: &[Event]| events.iter().filter(|it| it.reason.as_deref() == Some("ProvisioningFailed")).count();
    let events = shop.world.events_until(&uid, "the failure", |events| told(events) >= 1).await;
    assert_eq!(told(&events), 1, "{events:#?}");
    shop.until(&claim, "unmarked", |it| !shop.is_marked(it)).await;
    shop.world.driver().clear_faults();
    shop.bound(&claim).await;
    let done = |events: &[Event]| events.iter().any(|it| it.reason.as_deref() == Some("ProvisioningSucceeded"));
    shop.world.events_until(&uid, "the success after it", done).await;
}

#[tokio::test]
async fn r51_a_node_without_room_is_given_back_to_the_scheduler() {
    let shop = Shop::with(
        |profile| {
            profile.services.insert(2);
            profile.segments = vec![[("zone".to_owned(), "a".to_owned())].into()];
        },
        json!({ "volumeBindingMode": "WaitForFirstConsumer" }),
    )
    .await;
    let _daemon = shop.daemon(json!({})).await;
    let node = shop.world.name("one");
    let labels = json!({ "zone": "a" });
    shop.world
        .create::<Node>(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node, "labels": labels } }))
        .await;
    let drivers = json!([{ "name": shop.world.driver_name(), "nodeID": "one", "topologyKeys": ["zone"] }]);
    shop.world.set_drivers(&node, drivers).await;
    shop.world.driver().inject(create(Action::fail(Code::ResourceExhausted, "full")).once());
    let claim = shop.claim("data", json!({})).await;
    shop.select(&claim, &node).await;
    shop.world.driver_until("the answer", |_| shop.creates(&claim).len() == 1).await;
    shop.until(&claim, "without node and mark", |it| {
        !it.annotations().contains_key(names::ANNOTATION_SELECTED_NODE) && !shop.is_marked(it)
    })
    .await;
    shop.select(&claim, &node).await;
    shop.bound(&claim).await;
}

#[tokio::test]
async fn a_successor_resumes_what_the_daemon_before_it_had_begun() {
    let shop = Shop::open().await;
    let daemon = shop.daemon(json!({})).await;
    shop.world.driver().inject(create(Action::DoneButHang).once());
    let claim = shop.claim("data", json!({})).await;
    shop.world.driver_until("asked", |_| shop.creates(&claim).len() == 1).await;
    daemon.kill();
    shop.until(&claim, "still marked", |it| shop.is_marked(it)).await;
    shop.delete(&claim).await;
    let _daemon = shop.daemon(json!({})).await;
    shop.gone(&claim).await;
    shop.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_source_that_is_deleted_while_it_is_cloned_stays_until_its_clone_is_made() {
    let shop = Shop::open().await;
    let _daemon = shop.daemon(json!({})).await;
    let source = shop.claim("source", json!({})).await;
    let original = shop.bound(&source).await;
    let clone = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": source.name_any() } });
    shop.world.driver().inject(create(Action::fail(Code::DeadlineExceeded, "slow")).times(3));
    let copy = shop.claim("copy", clone).await;
    shop.world.driver_until("asked for the clone", |_| !shop.creates(&copy).is_empty()).await;
    shop.delete(&source).await;
    shop.bound(&copy).await;
    let asked = shop.creates(&copy).pop().unwrap().create.unwrap().volume_content_source.unwrap();
    let handle = original.spec.unwrap().csi.unwrap().volume_handle;
    assert!(format!("{asked:?}").contains(&handle), "{asked:?}");
    shop.gone(&source).await;
    shop.world.gone::<PersistentVolume>(&volume_name(&source)).await;
}

#[tokio::test]
async fn a_source_is_let_go_of_once_its_last_clone_is_made() {
    let shop = Shop::open().await;
    let _daemon = shop.daemon(json!({})).await;
    let source = shop.claim("source", json!({})).await;
    shop.bound(&source).await;
    let is_protected = |it: &PersistentVolumeClaim| it.finalizers().iter().any(|it| it == names::FINALIZER_CLONING);
    let clone = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": source.name_any() } });
    let (one, two) = (shop.claim("one", clone.clone()).await, shop.claim("two", clone).await);
    shop.bound(&one).await;
    shop.bound(&two).await;
    shop.until(&source, "let go of", |it| !is_protected(it)).await;
    let protections = shop.world.sandbox().stage.api.audit().matching(|it| {
        it.verb == "patch" && it.body.as_ref().is_some_and(|body| body.to_string().contains(names::FINALIZER_CLONING))
    });
    assert!(protections.len() >= 2, "put on, and taken off");
}

#[tokio::test]
async fn r48_a_volume_that_is_attached_is_deleted_once_it_is_detached_and_nobody_is_warned() {
    let shop = Shop::open().await;
    let daemon = shop.daemon(json!({})).await;
    let node = shop.world.node("node").await;
    let claim = shop.claim("data", json!({})).await;
    let volume = shop.bound(&claim).await;
    let attachment = shop.world.attach(&volume.name_any(), &node).await;
    shop.world.attached(&attachment).await;
    shop.delete(&claim).await;
    let waits = |status: &Value| {
        status.to_string().contains("Volumes that wait to be detached")
            && status["tables"]
                .as_array()
                .unwrap()
                .iter()
                .any(|table| table["rows"].as_array().unwrap().iter().any(|row| row[0] == volume.name_any()))
    };
    shop.world.shows(&daemon, "the volume waits", waits).await;
    assert!(shop.world.driver().calls_of(Method::DeleteVolume).is_empty());
    shop.world.detach(&attachment).await;
    shop.world.gone::<PersistentVolume>(&volume.name_any()).await;
    assert_eq!(shop.world.driver().calls_of(Method::DeleteVolume).len(), 1);
    let api = shop.world.namespaced::<Event>();
    let events = api.list(&kube::api::ListParams::default()).await.unwrap().items;
    assert!(events.iter().all(|it| it.reason.as_deref() != Some("VolumeFailedDelete")), "{events:#?}");
    shop.assert_nothing_is_left().await;
}

#[tokio::test]
async fn without_durable_intent_a_claim_costs_one_write_and_a_deletion_mid_way_still_leaves_nothing() {
    let shop = Shop::open().await;
    let _daemon = shop.daemon(json!({ "durableIntent": false })).await;
    let claim = shop.claim("data", json!({})).await;
    shop.bound(&claim).await;
    assert_eq!(shop.written(), ["create persistentvolumes 201"]);
    shop.world
        .driver()
        .inject(create(Action::DoneButFail { code: Code::Unavailable, message: "busy".into() }).times(3));
    let other = shop.claim("other", json!({})).await;
    shop.world.driver_until("a first answer that is not final", |_| !shop.creates(&other).is_empty()).await;
    shop.delete(&other).await;
    shop.world.driver_until("asked to the end", |driver| driver.volume_named(&volume_name(&other)).is_none()).await;
    shop.delete(&claim).await;
    shop.world.gone::<PersistentVolume>(&volume_name(&claim)).await;
    shop.world.driver_until("nothing is left", |driver| driver.state().volumes().is_empty()).await;
}
