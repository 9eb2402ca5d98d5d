//! What a term of the attacher remembers of objects: nothing of those that are gone, in whatever way they went.

use k8s_openapi::api::core::v1::PersistentVolume as Volume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt as _;

use super::*;
use crate::csi::VolumeListing;
use crate::roles::attacher::drift::DriftDetector;
use crate::roles::attacher::progress::Listed;
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::faults::{Action, Fault, Matching, WatchEnd};
use crate::sandbox::driver::Profile;
use crate::sandbox::testbed::harness::RoleHarness;

const VOLUME: &str = "pv-1";
const ATTACHMENT: &str = "csi-1";
const NODE: &str = "node-1";
/// Longer than anything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A term of the attacher, as [`Attacher::serve`] serves it, and what it remembers.
struct Serving {
    harness: RoleHarness,
    cx: Arc<Context>,
}

impl Serving {
    async fn new() -> Self {
        let profile = Profile { accept_unknown_volumes: true, ..Profile::with_nodes([NODE]) };
        let harness = RoleHarness::with(profile).await;
        let caches = &harness.caches;
        let caches = Caches { attachments: caches.want(), volumes: caches.want(), nodes: caches.want() };
        harness.watch();
        caches.synced().await;
        let role = &harness.context;
        let term = Term::permanent(&CancellationToken::new(), role.clock);
        let attacher = Attacher { section: AttacherSection::default(), caches };
        let (cx, queues) = (Arc::new(attacher.context(role, &term)), attacher.queues(role));
        let mut controllers = Controllers::new(NAME, &role.board, &cx.scope);
        cx.stores.follow(&mut controllers);
        controllers.drive(&queues.attachments, "attachments", |_| None, Attachments(Arc::clone(&cx)));
        controllers.drive(&queues.volumes, "volumes", |_| None, Volumes::of(&cx));
        queues.follow(&cx, &mut controllers);
        harness.tasks.spawn("attacher", async move { controllers.serve().await.unwrap() });
        let serving = Self { harness, cx };
        serving.create(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": NODE },
            "spec": { "drivers": [{ "name": serving.cx.rules.driver, "nodeID": NODE, "topologyKeys": [] }] } }));
        serving
    }

    fn create(&self, object: Value) {
        self.harness.testbed.api.create_value(object).unwrap();
    }

    fn create_volume(&self) {
        self.create(json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": VOLUME },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": self.cx.rules.driver, "volumeHandle": VOLUME } } }));
    }

    fn create_attachment(&self) {
        self.create(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": { "name": ATTACHMENT }, "spec": { "attacher": self.cx.rules.driver, "nodeName": NODE,
                "source": { "persistentVolumeName": VOLUME } } }));
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let look = async {
            while !holds(self) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let seen = tokio::time::timeout(PATIENCE, look).await;
        assert!(seen.is_ok(), "never: {what}; {:#?}", self.harness.context.board.report().work);
    }

    /// Attaches the volume, and waits until both objects are remembered. Returns their uids: the attachment's and the volume's.
    async fn attached(&self) -> [String; 2] {
        self.create_volume();
        self.create_attachment();
        let attachment = |serving: &Self| serving.harness.testbed.api.get::<VolumeAttachment>("", ATTACHMENT).unwrap();
        self.until("attached", |serving| attachment(serving).status.is_some_and(|status| status.attached)).await;
        let volume: Volume = self.harness.testbed.api.get("", VOLUME).unwrap();
        let uids = [attachment(self).metadata.uid.unwrap(), volume.metadata.uid.unwrap()];
        assert!(uids.iter().all(|uid| self.knows(uid)), "both were confirmed");
        uids
    }

    /// Whether an object with this uid was confirmed.
    fn knows(&self, uid: &str) -> bool {
        self.cx.stores.attachments.knows(uid) || self.cx.stores.volumes.knows(uid)
    }

    /// How many objects were confirmed.
    fn confirmed(&self) -> usize {
        self.cx.stores.attachments.confirmed() + self.cx.stores.volumes.confirmed()
    }

    /// The driver has listed the volume of this attachment twice without the node.
    fn lose(&self, uid: &str) {
        self.cx.memory.change(uid, |memory| memory.listed = Listed::Lost);
    }

    /// Removes both by force: finalizers and all.
    fn force_away(&self) {
        let (api, bare) =
            (&self.harness.testbed.api, || PatchBody::Merge(json!({ "metadata": { "finalizers": null } })));
        api.patch::<VolumeAttachment>("", ATTACHMENT, bare()).unwrap();
        api.delete::<VolumeAttachment>("", ATTACHMENT).unwrap();
        api.patch::<Volume>("", VOLUME, bare()).unwrap();
        api.delete::<Volume>("", VOLUME).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_an_attachment_and_a_volume_that_were_removed_by_force() {
    let serving = Serving::new().await;
    let [attachment, _] = serving.attached().await;
    serving.lose(&attachment);
    serving.force_away();
    serving.until("forgotten", |serving| serving.confirmed() == 0 && serving.cx.memory.len() == 0).await;
    serving.harness.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_an_attachment_and_a_volume_that_went_in_good_order() {
    let serving = Serving::new().await;
    serving.attached().await;
    let api = &serving.harness.testbed.api;
    api.delete::<VolumeAttachment>("", ATTACHMENT).unwrap();
    api.delete::<Volume>("", VOLUME).unwrap();
    serving.until("the volume is gone", |_| api.get::<Volume>("", VOLUME).is_err()).await;
    serving.until("forgotten", |serving| serving.confirmed() == 0).await;
    serving.harness.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_objects_that_were_removed_by_force_while_an_answer_about_them_was_on_its_way() {
    let serving = Serving::new().await;
    let faults = serving.harness.testbed.api.faults();
    let late = Duration::from_secs(5);
    let held = ["volumeattachments", "persistentvolumes"].map(|kind| {
        let write = Matching::any().verb("patch").resource(kind).subresource("");
        faults.add(Fault::on(write, Action::DelayAfter(late)).nth(1))
    });
    serving.create_volume();
    serving.create_attachment();
    serving.until("both are written", |_| held.iter().all(|fault| faults.hits(*fault) == 1)).await;
    serving.force_away();
    let is_empty = |serving: &Serving| {
        serving.cx.stores.attachments.all().is_empty() && serving.cx.stores.volumes.all().is_empty()
    };
    serving.until("the watch says that they are gone", is_empty).await;
    tokio::time::sleep(2 * late).await;
    assert!(serving.harness.context.board.report().work.is_empty());
    assert_eq!(serving.confirmed(), 0);
    serving.harness.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_objects_whose_namesakes_the_watch_shows_in_their_place() {
    let serving = Serving::new().await;
    let old = serving.attached().await;
    serving.lose(&old[0]);
    // The watch is cut off while they go and come again, and what it missed is known no more: it lists.
    let (api, faults) = (&serving.harness.testbed.api, serving.harness.testbed.api.faults());
    let kinds = ["volumeattachments", "persistentvolumes"].map(|kind| Matching::any().resource(kind));
    let held = kinds.clone().map(|kind| faults.hold_watches(kind));
    serving.force_away();
    serving.create_volume();
    serving.create_attachment();
    api.compact();
    for (kind, held) in kinds.into_iter().zip(held) {
        faults.drop_watches(kind, WatchEnd::Cut);
        faults.remove(held);
    }
    let is_new = |serving: &Serving| serving.cx.stores.volumes.all().iter().all(|it| *it.metadata.uid != *old[1]);
    serving.until("the new volume is seen", is_new).await;
    let knows_old = |serving: &Serving| {
        let is_lost = |uid: &str| serving.cx.memory.read(uid, |memory| memory.listed == Listed::Lost);
        old.iter().any(|uid| serving.knows(uid) || is_lost(uid))
    };
    serving.until("the old ones are forgotten", |serving| !knows_old(serving)).await;
    serving.harness.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_comparison_of_hundreds_of_attachments_with_the_drivers_list_leaves_others_their_turn() {
    const COUNT: usize = 300;
    let harness = RoleHarness::with(Profile::with_nodes([NODE])).await;
    let caches = &harness.caches;
    let caches = Caches { attachments: caches.want(), volumes: caches.want(), nodes: caches.want() };
    harness.watch();
    let role = &harness.context;
    let driver = role.driver.name.clone();
    let create = |object: Value| harness.testbed.api.create_value(object).unwrap();
    create(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": NODE },
        "spec": { "drivers": [{ "name": driver, "nodeID": NODE, "topologyKeys": [] }] } }));
    for number in 0..COUNT {
        let name = format!("pv-{number}");
        create(json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": driver, "volumeHandle": name } } }));
        create(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": name },
            "spec": { "attacher": driver, "nodeName": NODE, "source": { "persistentVolumeName": name } } }));
        let attached = PatchBody::Merge(json!({ "status": { "attached": true } }));
        harness.testbed.api.patch_status::<VolumeAttachment>("", &name, attached).unwrap();
    }
    let attacher = Attacher { section: AttacherSection::default(), caches };
    let term = Term::permanent(&CancellationToken::new(), role.clock);
    let (cx, queues) = (Arc::new(attacher.context(role, &term)), attacher.queues(role));
    while cx.stores.attachments.own().iter().filter(|it| it.status.attached).count() < COUNT {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let now = role.clock.now();
    // The driver lists no volume.
    let listing = VolumeListing { started: now, finished: now, volumes: BTreeMap::new() };
    let (watch, mut detector) = (DriftWatch { cx, queues, begun: now }, DriftDetector::of_term(now));
    let mut comparison = Box::pin(watch.compare(&mut detector, &listing));
    assert!(comparison.as_mut().now_or_never().is_none(), "others have their turn");
    comparison.await;
    assert_eq!(detector.len(), COUNT, "each is a suspect");
    harness.testbed.tear_down().await;
}
