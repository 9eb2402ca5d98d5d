//! Volumes from other claims and from snapshots: the checks, the protection of the source, and its release.

use csi_control_plane::proto::volume_content_source::Type as Source;
use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::{Action, Lie, Method};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tonic::Code;

use crate::ground::Daemon;
use crate::objects::config_with;
use crate::supplier::{create, rights, says, slow, supplier, unanswered};
use crate::supply::phase;
use crate::world::wait::asked;
use crate::world::{World, until_some};

const CLAIM: &str = "PersistentVolumeClaim";
pub(crate) const SNAPSHOT: &str = "VolumeSnapshot";

/// A world with snapshots, a class, and a claim of it that has its volume once there is a daemon.
pub(crate) async fn with_source() -> (World, String, String) {
    let world = World::supplied(|_| {}).await;
    world.install_snapshots().await;
    let (class, source) = world.claim_anew("source").await;
    (world, class, source)
}

/// The same with a daemon, its section changed like this, and with the volume.
pub(crate) async fn with_supplied_source(section: Value) -> (World, Daemon, String, String) {
    let (world, class, source) = with_source().await;
    let daemon = world.supplier(section).await;
    world.supplied_with(&source).await;
    (world, daemon, class, source)
}

pub(crate) fn is_held(claim: &PersistentVolumeClaim) -> bool {
    claim.finalizers().iter().any(|it| it == names::FINALIZER_CLONING)
}

/// A claim from a source, for which the driver does not answer. It answers for all others.
async fn unanswered_from(world: &World, class: &str, kind: &str, source: &str) -> String {
    world.driver().inject(unanswered());
    let late = world.claim_from("late", class, kind, source).await;
    world.asked(&late, 1).await;
    let name = world.volume_name(&late).await;
    // At once, so that none of its attempts comes between.
    world.driver().clear_faults();
    world.driver().inject(unanswered().volume(&name));
    late
}

/// A daemon begins a restore of a new snapshot of `source`, gets no answer, and ends. Returns the snapshot and the claim.
pub(crate) async fn begun_restore(world: &World, class: &str, source: &str) -> (String, String) {
    let first = world.daemon_on("first", supplier(json!({}))).await;
    world.supplied_with(source).await;
    let snapshot = world.snapshot("snapshot", source).await;
    world.driver().inject(unanswered());
    let restored = world.claim_from("restored", class, SNAPSHOT, &snapshot).await;
    world.asked(&restored, 1).await;
    first.stop().await.unwrap();
    (snapshot, restored)
}

pub(crate) fn is_snapshot_held(snapshot: &DynamicObject) -> bool {
    snapshot.finalizers().iter().any(|it| it == names::FINALIZER_SNAPSHOT_SOURCE)
}

impl World {
    pub(crate) async fn snapshot_until(&self, name: &str, what: &str, holds: impl Fn(&DynamicObject) -> bool) {
        // The daemon's cache looks for the kind now and then only, if it was not there from the start.
        let api = self.installed_kind(SNAPSHOT);
        asked(what, async || api.get_opt(name).await.unwrap().filter(|it| holds(it)).map(drop)).await;
    }

    async fn snapshot_gone(&self, name: &str) {
        let api = self.installed_kind(SNAPSHOT);
        asked("the snapshot goes", async || api.get_opt(name).await.unwrap().is_none().then_some(())).await;
    }

    /// Removes a snapshot and its content, with all finalizers.
    async fn force_snapshot_away(&self, name: &str) {
        for kind in ["VolumeSnapshotContent", SNAPSHOT] {
            let api = self.installed_kind(kind);
            api.delete(name, &DeleteParams::default()).await.unwrap();
            if api.get_opt(name).await.unwrap().is_some() {
                self.patch_snapshot(kind, name, json!({"metadata": {"finalizers": null}})).await;
            }
        }
        self.snapshot_gone(name).await;
    }

    /// Removes a claim, with all finalizers.
    async fn force_claim_away(&self, name: &str) {
        self.delete_claim(name).await;
        self.patch_claim(name, json!({"metadata": {"finalizers": null}})).await;
        self.claim_gone(name).await;
    }

    async fn patch_snapshot(&self, kind: &str, name: &str, patch: Value) {
        self.installed_kind(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

#[tokio::test]
async fn r30_a_clone_of_another_class_of_the_driver_has_the_sources_content() {
    let (world, _daemon, class, source) = with_supplied_source(json!({})).await;
    let handle = crate::supply::handle_of(&world.supplied_with(&source).await).unwrap().1;
    let other = world.class("other", json!({"parameters": {"kind": "other"}})).await;
    assert_ne!(class, other);
    let clone = world.claim_from("clone", &other, CLAIM, &source).await;
    let volume = world.supplied_with(&clone).await;
    let (_, made) = crate::supply::handle_of(&volume).unwrap();
    let content = world.driver().state().volumes()[&made].source.clone().unwrap();
    assert!(format!("{content:?}").contains(&handle), "{content:?}");
    world.claim_until(&source, "let go of", |it| !is_held(it)).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn s0_a_source_deleted_while_it_is_cloned_holds_nobody_up() {
    let (world, _daemon, class, source) = with_supplied_source(json!({})).await;
    world.driver().inject(unanswered());
    let clone = world.claim_from("clone", &class, CLAIM, &source).await;
    let before = world.asked(&clone, 1).await.len();
    world.delete_claim(&source).await;
    world.asked(&clone, before + 1).await;
    world.driver().clear_faults();
    world.supplied_with(&clone).await;
    world.claim_gone(&source).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r6_a_snapshot_deleted_while_it_is_restored_is_held_until_the_final_answer() {
    let (world, _daemon, class, source) = with_supplied_source(json!({})).await;
    let snapshot = world.snapshot("snapshot", &source).await;
    world.driver().inject(unanswered());
    let restored = world.claim_from("restored", &class, SNAPSHOT, &snapshot).await;
    let before = world.asked(&restored, 1).await.len();
    world.installed_kind(SNAPSHOT).delete(&snapshot, &DeleteParams::default()).await.unwrap();
    world.asked(&restored, before + 1).await;
    world.snapshot_until(&snapshot, "held", is_snapshot_held).await;
    world.driver().clear_faults();
    world.supplied_with(&restored).await;
    world.snapshot_gone(&snapshot).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_snapshot_that_may_not_be_changed_is_restored_unprotected_and_that_is_told_once() {
    let (counted, _guard) = crate::logs::count("cannot protect the snapshot: restoring it unprotected");
    let (world, _daemon, class, source) = with_supplied_source(json!({})).await;
    let (host, config) = (world.name("daemon"), config_with(supplier(json!({}))));
    let snapshot = world.snapshot("snapshot", &source).await;
    world.ground().grant(&host, &rights(&world, &config, Some(("patch", "volumesnapshots")))).await;
    // Each answer is final, so that each attempt begins anew.
    world.driver().inject(create(Action::fail(Code::Internal, "the shelf is stuck")).times(3));
    let restored = world.claim_from("restored", &class, SNAPSHOT, &snapshot).await;
    let volume = world.supplied_with(&restored).await;
    assert!(matches!(world.source_of(&volume), Some(Source::Snapshot(_))));
    assert_eq!((world.asked(&restored, 4).await.len(), *counted.borrow()), (4, 1));
    let events = world.claim_told(&restored, "SourceUnprotected", "cannot patch volumesnapshots").await;
    let told: Vec<_> = events.iter().filter(|event| says(event, "SourceUnprotected", "")).collect();
    assert!(told.len() == 1 && told[0].type_.as_deref() == Some("Warning"), "{told:#?}");
    assert!(!is_snapshot_held(&world.installed_kind(SNAPSHOT).get(&snapshot).await.unwrap()));
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn s0_r5_the_first_finished_restore_leaves_the_snapshot_protected_for_the_other() {
    let (world, _daemon, class, source) = with_supplied_source(json!({})).await;
    let snapshot = world.snapshot("snapshot", &source).await;
    let late = unanswered_from(&world, &class, SNAPSHOT, &snapshot).await;
    for short in ["first", "second"] {
        let restored = world.claim_from(short, &class, SNAPSHOT, &snapshot).await;
        world.supplied_with(&restored).await;
        let held = world.installed_kind(SNAPSHOT).get(&snapshot).await.unwrap();
        assert!(is_snapshot_held(&held), "{short} has its volume, and {late} has not");
    }
    world.driver().clear_faults();
    world.supplied_with(&late).await;
    world.snapshot_until(&snapshot, "let go of by the last", |it| !is_snapshot_held(it)).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_source_of_two_clones_is_let_go_of_by_the_last() {
    let (world, _daemon, class, source) = with_supplied_source(json!({})).await;
    let late = unanswered_from(&world, &class, CLAIM, &source).await;
    for short in ["first", "second"] {
        let clone = world.claim_from(short, &class, CLAIM, &source).await;
        world.supplied_with(&clone).await;
        assert!(is_held(&world.claim_now(&source).await), "{short} has its volume, and {late} has not");
    }
    // A clone that is given up counts no more either, once the driver has said its last word.
    world.delete_claim(&late).await;
    world.driver().clear_faults();
    world.claim_gone(&late).await;
    world.claim_until(&source, "let go of by the last", |it| !is_held(it)).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r1_a_snapshot_that_was_left_protected_is_let_go_of_when_a_daemon_starts() {
    let (world, class, source) = with_source().await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    world.supplied_with(&source).await;
    let snapshot = world.snapshot("snapshot", &source).await;
    first.stop().await.unwrap();
    let held = json!({"metadata": {"finalizers": [names::FINALIZER_SNAPSHOT_SOURCE, "example.com/another"]}});
    world.patch_snapshot(SNAPSHOT, &snapshot, held).await;
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.snapshot_until(&snapshot, "let go of", |it| it.finalizers() == ["example.com/another"]).await;
    let restored = world.claim_from("restored", &class, SNAPSHOT, &snapshot).await;
    world.supplied_with(&restored).await;
    world.snapshot_until(&snapshot, "let go of", |it| it.finalizers() == ["example.com/another"]).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r1_a_snapshot_that_goes_and_has_lost_its_content_is_found_by_the_sweep_and_let_go_of() {
    // The least that there may be: nothing but the sweep can find it.
    let (world, _daemon, _, source) = with_supplied_source(json!({"snapshotSweepInterval": "1s"})).await;
    let snapshot = world.snapshot("snapshot", &source).await;
    world.installed_kind("VolumeSnapshotContent").delete(&snapshot, &DeleteParams::default()).await.unwrap();
    let held = json!({"metadata": {"finalizers": [names::FINALIZER_SNAPSHOT_SOURCE]}});
    world.patch_snapshot(SNAPSHOT, &snapshot, held).await;
    world.installed_kind(SNAPSHOT).delete(&snapshot, &DeleteParams::default()).await.unwrap();
    world.snapshot_gone(&snapshot).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_claim_that_goes_and_has_lost_its_volume_is_let_go_of() {
    let (world, _, source) = with_source().await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    let volume = world.supplied_with(&source).await.name_any();
    first.stop().await.unwrap();
    let add = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": names::FINALIZER_CLONING}]);
    let claims = world.namespaced::<PersistentVolumeClaim>();
    let patch = Patch::Json::<()>(serde_json::from_value(add).unwrap());
    claims.patch(&source, &PatchParams::default(), &patch).await.unwrap();
    // People throw the object away, and keep the storage. Only on one that goes does nobody put a finalizer again.
    world.all::<PersistentVolume>().delete(&volume, &DeleteParams::default()).await.unwrap();
    world.merge_patch::<PersistentVolume>(&volume, json!({"metadata": {"finalizers": null}})).await;
    world.gone::<PersistentVolume>(&volume).await;
    world.delete_claim(&source).await;
    world.claim_until(&source, "held", |it| it.metadata.deletion_timestamp.is_some() && is_held(it)).await;
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.claim_gone(&source).await;
}

#[tokio::test]
async fn a_snapshot_that_is_taken_away_in_the_middle_of_a_restore_leaves_the_last_word_to_the_driver() {
    let (world, _daemon, class, source) = with_supplied_source(json!({})).await;
    // Its content alone first: the snapshot is still protected, and nothing that protects it names our driver any more.
    let snapshot = world.snapshot("made", &source).await;
    world.driver().inject(unanswered());
    let restored = world.claim_from("restored", &class, SNAPSHOT, &snapshot).await;
    let before = world.asked(&restored, 1).await.len();
    world.installed_kind("VolumeSnapshotContent").delete(&snapshot, &DeleteParams::default()).await.unwrap();
    world.installed_kind(SNAPSHOT).delete(&snapshot, &DeleteParams::default()).await.unwrap();
    world.asked(&restored, before + 1).await;
    world.driver().clear_faults();
    world.supplied_with(&restored).await;
    world.snapshot_gone(&snapshot).await;

    let snapshot = world.snapshot("lost", &source).await;
    world.driver().inject(create(Action::fail(Code::DeadlineExceeded, "slow")));
    let refused = world.claim_from("refused", &class, SNAPSHOT, &snapshot).await;
    let name = world.volume_name(&refused).await;
    world.asked(&refused, 1).await;
    world.force_snapshot_away(&snapshot).await;
    // At once, so that none of its attempts comes between.
    world.driver().clear_faults();
    world.driver().inject(create(Action::fail(Code::NotFound, "no such snapshot")).volume(&name));
    world.claim_told(&refused, "ProvisioningFailed", "no such snapshot").await;
    world.claim_told(&refused, "ProvisioningFailed", &format!("{snapshot} not found")).await;
    assert_eq!(phase(&world.claim_now(&refused).await), "Pending");
    world.delete_claim_and_wait(&refused).await;
    world.forgotten(&refused).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn what_was_begun_of_a_snapshot_that_is_no_more_is_finished_by_a_successor_or_deleted_where_its_claim_goes() {
    for is_deleted in [false, true] {
        let (world, class, source) = with_source().await;
        let (snapshot, restored) = begun_restore(&world, &class, &source).await;
        world.force_snapshot_away(&snapshot).await;
        world.driver().clear_faults();
        let before = world.asked(&restored, 1).await;
        if is_deleted {
            world.delete_claim_and_wait(&restored).await;
        }
        let _second = world.daemon_on("second", supplier(json!({}))).await;
        // The entry has the source of the restore.
        let asked = world.asked(&restored, before.len() + 1).await;
        assert_eq!(asked[before.len()].create, before[0].create);
        if !is_deleted {
            world.supplied_with(&restored).await;
        }
        world.forgotten(&restored).await;
        assert_eq!(world.asked(&restored, 1).await.len(), before.len() + 1);
        world.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn what_was_begun_of_a_claim_that_is_no_more_is_found_and_deleted_when_the_clone_goes() {
    let (world, class, source) = with_source().await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    world.supplied_with(&source).await;
    world.driver().inject(unanswered());
    let clone = world.claim_from("clone", &class, CLAIM, &source).await;
    world.asked(&clone, 1).await;
    first.stop().await.unwrap();
    world.force_claim_away(&source).await;
    // Another has its name: what is made of that one is another volume.
    let again = world.claim("source", &class, json!({})).await;
    world.driver().clear_faults();
    world.delete_claim(&clone).await;
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.claim_gone(&clone).await;
    world.forgotten(&clone).await;
    world.supplied_with(&again).await;
    world.claim_until(&again, "let go of", |it| !is_held(it)).await;
    world.assert_nothing_leaked().await;
}

/// A snapshot of a file system, and a claim of a raw device that is to be made from it.
async fn with_raw_restore(section: Value) -> (World, Daemon, String, String) {
    let (world, daemon, class, source) = with_supplied_source(section).await;
    let snapshot = world.snapshot("snapshot", &source).await;
    let from = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": SNAPSHOT, "name": snapshot});
    let raw = world.claim("raw", &class, json!({"spec": {"volumeMode": "Block", "dataSource": from}})).await;
    (world, daemon, snapshot, raw)
}

#[tokio::test]
async fn r21_a_snapshot_becomes_a_volume_of_another_mode_only_with_leave() {
    let (world, _daemon, snapshot, raw) = with_raw_restore(json!({})).await;
    world.claim_told(&raw, "ProvisioningFailed", "mode").await;
    let name = world.volume_name(&raw).await;
    assert_eq!(world.driver().creates_of(&name).len(), 0);
    let leave = json!({"metadata": {"annotations": {names::ANNOTATION_ALLOW_MODE_CHANGE: "true"}}});
    world.patch_snapshot("VolumeSnapshotContent", &snapshot, leave).await;
    world.supplied_with(&raw).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_snapshot_becomes_a_volume_of_another_mode_without_leave_where_that_is_not_prevented() {
    let (world, _daemon, _, raw) = with_raw_restore(json!({"preventVolumeModeConversion": false})).await;
    let spec = world.supplied_with(&raw).await.spec.unwrap();
    assert_eq!(spec.volume_mode.as_deref(), Some("Block"));
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_source_that_is_not_there_yet_is_waited_for_and_begins_the_work_when_it_comes() {
    let world = World::supplied(|_| {}).await;
    world.install_snapshots().await;
    // This test does not wait for a back-off of five minutes.
    let _daemon = world.supplier(slow()).await;
    let class = world.class("class", json!({})).await;
    let clone = world.claim_from("clone", &class, CLAIM, &world.name("source")).await;
    world.claim_told(&clone, "ProvisioningFailed", &world.name("source")).await;
    let source = world.claim("source", &class, json!({})).await;
    world.supplied_with(&source).await;
    world.supplied_with(&clone).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r54_a_driver_that_ignores_the_source_has_its_volume_deleted() {
    let (world, _daemon, class, source) = with_supplied_source(json!({})).await;
    world.driver().inject(create(Action::Lie(Lie::ForgetSource)).once());
    let clone = world.claim_from("clone", &class, CLAIM, &source).await;
    world.driver_until("the empty one is deleted", |it| it.calls_of(Method::DeleteVolume).len() == 1).await;
    world.supplied_with(&clone).await;
    world.claim_told(&clone, "ProvisioningFailed", "source").await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r46_r47_a_source_that_only_a_populator_knows_makes_no_empty_volume() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    let from = json!({"apiGroup": "example.com", "kind": "Dump", "name": "monday"});
    let claim = world.claim("claim", &class, json!({"spec": {"dataSourceRef": from}})).await;
    let events = world.claim_told(&claim, "Provisioning", "populator").await;
    assert!(!events.iter().any(|event| says(event, "ProvisioningFailed", "")), "{events:#?}");
    let name = world.volume_name(&claim).await;
    assert_eq!(world.driver().creates_of(&name).len(), 0);
    let failed = "controller_persistentvolumeclaim_provision_failed_total";
    assert_eq!(crate::supplier::figure(&world.metrics(&daemon).await, failed, &[&class]), None);
    world.delete_claim(&claim).await;
    until_some(world.namespaced::<PersistentVolumeClaim>(), &claim, "gone", |it| it.is_none()).await;
}
