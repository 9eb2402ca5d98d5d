//! Volumes that users have kept: set to `Retain`, with claim and PersistentVolume deleted. The data stays whatever the
//! journal still says, and no PersistentVolume comes back.

use std::collections::BTreeMap;

use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tonic::Code;

use crate::ground::Daemon;
use crate::objects::config_with;
use crate::supplier::{create, figure, rights, supplier};
use crate::supply::handle_of;
use crate::world::World;

pub(crate) const LEFT_OVER: &str = "csi_control_plane_journal_left_over";
const FOREIGN: &str = "csi_control_plane_journal_foreign_entries";

/// A claim that has its volume, and what the journal had of it.
pub(crate) struct Made {
    pub(crate) claim: String,
    pub(crate) volume: String,
    handle: String,
    entry: BTreeMap<String, Value>,
}

impl World {
    /// A claim of a class with this policy, which has its volume. Its entry is saved meanwhile, as a backup tool would do it.
    pub(crate) async fn made_and_saved(&self, short: &str, policy: &str) -> Made {
        self.made_while(short, policy, || {}).await
    }

    /// The same. `meanwhile` is called while the driver creates the volume.
    pub(crate) async fn made_while(&self, short: &str, policy: &str, meanwhile: impl FnOnce()) -> Made {
        let class = self.class(&format!("{short}-class"), json!({ "reclaimPolicy": policy })).await;
        self.driver().inject(create(Action::Hold).once());
        let claim = self.claim(short, &class, json!({})).await;
        self.asked(&claim, 1).await;
        let (uid, text) = (self.claim_uid(&claim).await, self.recorded(&claim).await);
        meanwhile();
        self.driver().release();
        let volume = self.supplied_with(&claim).await;
        let handle = handle_of(&volume).unwrap().1.clone();
        Made { claim, volume: volume.name_any(), handle, entry: [(uid, text)].into() }
    }

    /// As a user keeps data: the volume is set to `Retain`, and claim and PersistentVolume are deleted.
    pub(crate) async fn keep(&self, made: &Made) {
        self.begin_to_keep(made).await;
        self.gone::<PersistentVolume>(&made.volume).await;
    }

    /// The same, with a PersistentVolume that is taken away by force.
    pub(crate) async fn keep_by_force(&self, made: &Made) {
        self.begin_to_keep(made).await;
        self.merge_patch::<PersistentVolume>(&made.volume, json!({ "metadata": { "finalizers": null } })).await;
        self.gone::<PersistentVolume>(&made.volume).await;
    }

    async fn begin_to_keep(&self, made: &Made) {
        let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
        self.merge_patch::<PersistentVolume>(&made.volume, retain).await;
        self.delete_claim(&made.claim).await;
        self.claim_gone(&made.claim).await;
        self.all::<PersistentVolume>().delete(&made.volume, &DeleteParams::default()).await.unwrap();
    }

    /// As if the entry had not left the journal yet.
    pub(crate) async fn put_back(&self, made: &Made) {
        self.write_entries(&self.segment(0), &made.entry).await;
    }

    /// The volume exists, the driver was not called for it again, and no PersistentVolume names it.
    pub(crate) async fn is_kept(&self, made: &Made) {
        assert!(self.driver().state().volumes().contains_key(&made.handle), "the data is gone");
        assert_eq!(self.times_asked(&made.claim).await, 1, "it was created a second time");
        assert_eq!(self.driver().calls_of(Method::DeleteVolume).len(), 0);
        assert_eq!(self.all::<PersistentVolume>().get_opt(&made.volume).await.unwrap(), None);
    }

    /// A daemon works: another claim gets its volume.
    pub(crate) async fn works(&self, short: &str) {
        let class = self.class(&format!("{short}-class"), json!({})).await;
        let claim = self.claim(short, &class, json!({})).await;
        self.supplied_with(&claim).await;
    }

    pub(crate) async fn counts(&self, daemon: &Daemon, metric: &str, expected: f64) {
        let labels = [self.driver_name()];
        self.metrics_until(daemon, metric, |text| figure(text, metric, &labels) == Some(expected)).await;
    }
}

#[tokio::test]
async fn j10_a_volume_that_a_user_has_kept_outlives_its_leader() {
    for policy in ["Delete", "Retain"] {
        let (world, first) = World::with_supplier_on("first").await;
        let made = world.made_and_saved("claim", policy).await;
        world.keep(&made).await;
        first.kill();
        // Without this the leader might have removed the entry in time.
        world.put_back(&made).await;
        let _second = world.daemon_on("second", supplier(json!({}))).await;
        world.forgotten(&made.claim).await;
        world.works("next").await;
        world.is_kept(&made).await;
    }
}

#[tokio::test]
async fn j8_a_volume_that_is_kept_at_once_goes_after_its_entry() {
    let (world, first) = World::with_supplier_on("first").await;
    let made = world.made_and_saved("claim", "Delete").await;
    world.keep(&made).await;
    assert!(!world.is_recorded(&made.claim).await, "the entry was to go first");
    first.kill();
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.works("next").await;
    world.is_kept(&made).await;
}

#[tokio::test]
async fn j8_while_the_journal_cannot_be_written_a_volume_that_is_kept_waits() {
    let world = World::supplied(|_| {}).await;
    let (host, config) = (world.name("first"), config_with(supplier(json!({}))));
    let first = world.daemon_on("first", supplier(json!({}))).await;
    let (_, claim) = world.asked_claim(create(Action::Hold).once()).await;
    world.ground().grant(&host, &rights(&world, &config, Some(("patch", "configmaps")))).await;
    world.driver().release();
    let volume = world.supplied_with(&claim).await;
    let handle = handle_of(&volume).unwrap().1.clone();
    let made = Made { claim, volume: volume.name_any(), handle, entry: BTreeMap::new() };
    world.begin_to_keep(&made).await;
    let refused = |metrics: &str| {
        figure(metrics, "csi_control_plane_journal_commits_total", &["result=\"refused\""]).is_some_and(|it| it >= 1.0)
    };
    world.metrics_until(&first, "a removal that is refused", refused).await;
    let volume = world.all::<PersistentVolume>().get(&made.volume).await.unwrap();
    assert!(volume.metadata.deletion_timestamp.is_some(), "it waits for its entry");
    first.kill();
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.gone::<PersistentVolume>(&made.volume).await;
    world.forgotten(&made.claim).await;
    world.is_kept(&made).await;
}

#[tokio::test]
async fn j10_a_volume_whose_object_lost_its_finalizer_by_force_is_kept() {
    let (world, first) = World::with_supplier_on("first").await;
    let made = world.made_and_saved("claim", "Delete").await;
    first.kill();
    world.put_back(&made).await;
    world.keep_by_force(&made).await;
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.forgotten(&made.claim).await;
    world.works("next").await;
    world.is_kept(&made).await;
}

#[tokio::test]
async fn j10_a_change_of_the_configuration_deletes_no_volume_that_was_kept() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.daemon(supplier(json!({ "workers": 7 }))).await;
    let made = world.made_and_saved("claim", "Delete").await;
    world.keep(&made).await;
    world.put_back(&made).await;
    daemon.configure(&config_with(supplier(json!({ "workers": 8 }))).to_string());
    let changed = |status: &Value| status["configuration"]["changes"] == 1;
    world.shows(&daemon, "the new configuration", changed).await;
    world.works("next").await;
    world.is_kept(&made).await;
}

#[tokio::test]
async fn j9_an_entry_that_comes_back_is_dropped_while_the_api_knows_its_volume_from_before() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let made = world.made_and_saved("claim", "Delete").await;
    world.keep(&made).await;
    world.forgotten(&made.claim).await;
    world.put_back(&made).await;
    // The next write to the segment finds it.
    world.works("next").await;
    world.forgotten(&made.claim).await;
    world.is_kept(&made).await;
}

#[tokio::test]
async fn j10_an_entry_without_proof_is_reported_and_left_alone_until_a_person_deletes_it() {
    let (world, first) = World::with_supplier_on("first").await;
    let mut made = world.made_and_saved("claim", "Delete").await;
    world.keep(&made).await;
    first.kill();
    // It was recorded later than the API can tell: by a server that was restored from a backup since then.
    for entry in made.entry.values_mut() {
        entry["since"] = json!("18446744073709551615");
    }
    world.put_back(&made).await;
    let daemon = world.daemon_on("second", supplier(json!({}))).await;
    world.counts(&daemon, LEFT_OVER, 1.0).await;
    world.page_names(&daemon, &["Volumes that may be left over", &made.volume, "nothing proves"]).await;
    world.works("next").await;
    world.is_kept(&made).await;
    let uid = world.claim_uid(&made.claim).await;
    world.patch_segment(&world.segment(0), json!({ "data": { uid: null } })).await;
    world.works("last").await;
    world.counts(&daemon, LEFT_OVER, 0.0).await;
    world.is_kept(&made).await;
}

/// The class `Retain` gives the PersistentVolume no finalizer of ours, so nothing holds it up until its entry is gone.
#[tokio::test]
async fn j10_an_entry_that_has_outlived_the_apis_history_is_reported_and_left_alone() {
    for policy in ["Delete", "Retain"] {
        let world = World::supplied_alone().await;
        let first = world.daemon_on("first", supplier(json!({}))).await;
        let made = world.made_and_saved("claim", policy).await;
        world.keep(&made).await;
        first.kill();
        world.put_back(&made).await;
        world.ground().forget().await;
        let second = world.daemon_on("second", supplier(json!({}))).await;
        world.counts(&second, LEFT_OVER, 1.0).await;
        world.page_names(&second, &["Volumes that may be left over", &made.volume, "nothing proves"]).await;
        world.works("next").await;
        world.is_kept(&made).await;
        assert!(world.is_recorded(&made.claim).await, "its entry stays until a person deletes it");
    }
}

#[tokio::test]
async fn j10_an_entry_from_before_the_journal_was_off_deletes_nothing_that_was_kept_meanwhile() {
    let (world, first) = World::with_supplier_on("first").await;
    let made = world.made_and_saved("claim", "Delete").await;
    first.kill();
    world.put_back(&made).await;
    let without = world.daemon_on("without", supplier(json!({ "durableIntent": false }))).await;
    world.keep(&made).await;
    world.works("next").await;
    without.stop().await.unwrap();
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.forgotten(&made.claim).await;
    world.works("last").await;
    world.is_kept(&made).await;
}

/// As a version of the daemon would have written it that does not know these members, before or between.
#[tokio::test]
async fn j9_an_entry_of_a_version_that_names_neither_object_nor_time_is_taken_for_a_copy() {
    let (world, first) = World::with_supplier_on("first").await;
    let mut made = world.made_and_saved("claim", "Delete").await;
    world.keep(&made).await;
    first.kill();
    for member in ["in", "since"] {
        made.entry.values_mut().for_each(|entry| drop(entry.as_object_mut().unwrap().remove(member)));
    }
    world.put_back(&made).await;
    let second = world.daemon_on("second", supplier(json!({}))).await;
    world.counts(&second, FOREIGN, 1.0).await;
    world.page_names(&second, &["it is a copy", &made.volume]).await;
    world.works("next").await;
    world.is_kept(&made).await;
}

#[tokio::test]
async fn j9_a_copy_of_the_journal_is_reported_and_left_alone_in_whichever_cluster() {
    let (world, first) = World::with_supplier_on("first").await;
    let made = world.made_and_saved("claim", "Delete").await;
    world.keep(&made).await;
    first.stop().await.unwrap();
    // The object is deleted and restored from a file: the API gives it another uid, as another cluster does.
    let mut saved: ConfigMap = world.config_maps().get(&world.segment(0)).await.unwrap();
    let texts = made.entry.iter().map(|(uid, entry)| (uid.clone(), entry.to_string()));
    saved.data = Some(texts.collect());
    world.delete_segment(&world.segment(0)).await;
    world.restore_segment(&saved).await;
    let second = world.daemon_on("second", supplier(json!({}))).await;
    world.works("next").await;
    world.counts(&second, FOREIGN, 1.0).await;
    world.page_names(&second, &["it is a copy", &world.segment(0)]).await;
    world.is_kept(&made).await;
    let now = world.config_maps().get(&world.segment(0)).await.unwrap();
    assert_eq!(now.data, saved.data, "it is as it was");
    assert_eq!(world.segments().await.len(), 2, "the new entry is elsewhere");
}

#[tokio::test]
async fn j10_an_old_entry_that_names_a_volume_to_discard_deletes_nothing_that_was_kept() {
    let world = World::supplied(|profile| profile.names_are_ids = true).await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    let class = world.class("class", json!({})).await;
    // The first volume is too small; the second one has the same id.
    world.driver().inject(create(Action::Lie(Lie::Size(5))).once());
    world.driver().inject(Fault::on(Method::DeleteVolume, Action::fail(Code::Unavailable, "not now")));
    let claim = world.claim("claim", &class, json!({})).await;
    let uid = world.claim_uid(&claim).await;
    let discards = |entry: Option<&Value>| entry.is_some_and(|it| it.get("discarding").is_some());
    let entry = world.journal_until("a volume to discard", |it| discards(it.get(&uid))).await;
    world.driver().clear_faults();
    let volume = world.supplied_with(&claim).await;
    let handle = handle_of(&volume).unwrap().1.clone();
    let made = Made { claim, volume: volume.name_any(), handle, entry };
    world.keep(&made).await;
    first.kill();
    world.put_back(&made).await;
    let deletions = world.driver().calls_of(Method::DeleteVolume).len();
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.forgotten(&made.claim).await;
    world.works("next").await;
    assert!(world.driver().state().volumes().contains_key(&made.handle), "the data is gone");
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), deletions);
}
