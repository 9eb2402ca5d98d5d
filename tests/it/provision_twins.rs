//! A volume of the driver whose handle another PersistentVolume has: it is never deleted while it is in use, whatever
//! happens to its claim or to a PersistentVolume with the same handle.

use std::collections::BTreeMap;

use csi_control_plane::cluster::names;
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::objects;
use crate::supplier::{create, says, slow, supplier};
use crate::supply::{handle_of, phase};
use crate::world::{World, brief};

impl World {
    /// The only volume that the driver has.
    pub(crate) fn only_volume(&self) -> String {
        let state = self.driver().state();
        let [handle] = state.volumes().keys().collect::<Vec<_>>()[..] else { panic!("{:?}", state.volumes()) };
        handle.clone()
    }

    /// A PersistentVolume that people make for a volume of the driver that is there already. Returns its name.
    pub(crate) async fn rescue(&self, short: &str, handle: &str, spec: Value) -> String {
        let name = self.name(short);
        let mut object = objects::volume(&name, self.driver_name(), handle);
        objects::merge(&mut object, json!({ "spec": spec }));
        self.create::<PersistentVolume>(object).await;
        name
    }

    /// A person gives a volume of the driver to another claim than the one that it was made for. Returns the names of its
    /// PersistentVolume and of that claim.
    pub(crate) async fn rescued_for_another(&self, handle: &str, class: &str) -> (String, String) {
        let rescue = self.rescue("manual", handle, kept_for(&self.name("other"), class)).await;
        let other = self.claim("other", class, json!({ "spec": { "volumeName": rescue } })).await;
        self.claim_until(&other, "bound", |it| phase(it) == "Bound").await;
        (rescue, other)
    }

    /// A claim whose volume another one has got is deleted, and the daemon leaves the volume to that one, and says so.
    pub(crate) async fn assert_left_to(&self, rescue: &str, claim: &str, handle: &str) {
        let uid = self.claim_uid(claim).await;
        self.delete_claim(claim).await;
        self.daemon_has_seen("later").await;
        self.driver().clear_faults();
        self.claim_gone(claim).await;
        self.forgotten(claim).await;
        self.assert_untouched(handle);
        let told = |events: &[_]| events.iter().any(|it| says(it, "ProvisioningFailed", rescue));
        self.events_until(&uid, "whose the volume is", told).await;
    }

    /// Two claims whose uids begin with this digit.
    pub(crate) async fn claims_of_one_digit(&self, class: &str) -> (char, [String; 2]) {
        let mut by_digit = BTreeMap::new();
        // Of seventeen uids two begin with the same digit.
        let (digit, pair) = loop {
            let claim = self.claim(&format!("claim-{}", by_digit.len()), class, json!({})).await;
            let digit = self.claim_uid(&claim).await.remove(0);
            if let Some(other) = by_digit.get(&digit) {
                break (digit, [String::clone(other), claim]);
            }
            by_digit.insert(digit, claim);
        };
        for claim in by_digit.values().filter(|claim| !pair.contains(claim)) {
            self.delete_claim(claim).await;
            self.claim_gone(claim).await;
        }
        (digit, pair)
    }

    /// Asserts that the driver has the volume, and was never called to delete one.
    pub(crate) fn assert_untouched(&self, handle: &str) {
        let calls = brief(&self.driver().calls());
        assert_eq!(self.driver().calls_of(Method::DeleteVolume).len(), 0, "{calls:#?}");
        assert!(self.driver().state().volumes().contains_key(handle), "{handle} is gone");
    }
}

/// A volume of a class, to be deleted with its claim.
fn deleted_with_its_claim(class: &str) -> Value {
    json!({ "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class })
}

/// The same, kept for one claim. Without that, the cluster's controller may bind the volume to any claim of the class that waits.
fn kept_for(claim: &str, class: &str) -> Value {
    let mut spec = deleted_with_its_claim(class);
    objects::merge(&mut spec, json!({ "claimRef": { "namespace": "default", "name": claim } }));
    spec
}

/// Waits until an Event on a volume that is kept says so with this text, which names the object that keeps it.
async fn names_its_keeper(world: &World, volume: &PersistentVolume, text: &str) {
    let told = |events: &[_]| events.iter().any(|it| says(it, "VolumeFailedDelete", text));
    world.events_until(&volume.uid().unwrap(), "who else names it", told).await;
}

#[tokio::test]
async fn a_volume_whose_claim_is_bound_to_it_under_another_name_is_not_deleted() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, claim) = world.unanswered_claim(json!({})).await;
    // A user finds it in the storage, and gives it to the claim that waits for it.
    let handle = world.only_volume();
    let rescue = world.rescue("manual", &handle, deleted_with_its_claim(&class)).await;
    world.patch_claim(&claim, json!({ "spec": { "volumeName": rescue } })).await;
    world.claim_until(&claim, "bound", |it| phase(it) == "Bound").await;
    world.daemon_has_seen("later").await;
    world.driver().clear_faults();
    assert_eq!(world.supplied_with(&claim).await.name_any(), rescue);
    world.forgotten(&claim).await;
    world.assert_untouched(&handle);
    world.claim_told(&claim, "ProvisioningFailed", &rescue).await;
    world.assert_nothing_leaked().await;
    world.delete_claim(&claim).await;
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_volume_that_another_claim_has_got_is_not_deleted_with_the_one_it_was_made_for() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, claim) = world.unanswered_claim(json!({})).await;
    let handle = world.only_volume();
    let (rescue, other) = world.rescued_for_another(&handle, &class).await;
    world.assert_left_to(&rescue, &claim, &handle).await;
    world.assert_nothing_leaked().await;
    world.delete_claim(&other).await;
    world.assert_all_gone(&[&other]).await;
}

#[tokio::test]
async fn a_volume_that_another_claim_has_got_is_not_stored_for_the_one_it_was_made_for() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, claim) = world.unanswered_claim(json!({})).await;
    let (name, handle) = (world.volume_name(&claim).await, world.only_volume());
    let (rescue, other) = world.rescued_for_another(&handle, &class).await;
    // The daemon has seen it when it has protected it.
    let is_protected = |it: &PersistentVolume| it.finalizers().iter().any(|it| it == names::FINALIZER_PROVISIONER);
    world.until(&rescue, "protected", is_protected).await;
    world.driver().clear_faults();
    world.claim_told(&claim, "ProvisioningFailed", &rescue).await;
    assert!(world.all::<PersistentVolume>().get_opt(&name).await.unwrap().is_none(), "two objects of one volume");
    assert_ne!(phase(&world.claim_now(&claim).await), "Bound");
    // Once it is gone, the claim gets a volume of its own.
    world.delete_claim(&other).await;
    world.gone::<PersistentVolume>(&rescue).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 1);
    let (_, own) = handle_of(&world.supplied_with(&claim).await).unwrap();
    assert_ne!(own, handle);
    world.assert_nothing_leaked().await;
    world.delete_claim(&claim).await;
    world.assert_all_gone(&[&claim, &other]).await;
}

#[tokio::test]
async fn a_claim_whose_name_for_the_driver_is_taken_by_another_does_not_take_its_volume_along() {
    let world = World::supplied(|_| {}).await;
    let class = world.class("class", json!({})).await;
    let (digit, pair) = world.claims_of_one_digit(&class).await;
    world.driver().inject(create(Action::Hold));
    let prefix = world.name("v");
    let short = json!({ "volumeNamePrefix": prefix, "volumeNameUuidLength": 1 });
    let daemon = world.supplier(short).await;
    let name = format!("{prefix}-{digit}");
    world.driver_until("asked for the first", |driver| driver.creates_of(&name).len() == 1).await;
    // The driver would answer the second with the volume of the first.
    world.shows(&daemon, "the second waits for the name", |status| waits_for_name(status, &name)).await;
    world.driver().release();
    let volume = world.until(&name, "bound", |it: &PersistentVolume| is_in(it, "Bound")).await;
    world.driver().clear_faults();
    let owner = volume.spec.and_then(|spec| spec.claim_ref?.name);
    let [one, other] = pair;
    let (winner, loser) = if owner.as_ref() == Some(&one) { (one, other) } else { (other, one) };
    world.claim_told(&loser, "ProvisioningFailed", &name).await;
    let handle = world.only_volume();
    world.delete_claim_and_wait(&loser).await;
    world.forgotten(&loser).await;
    world.assert_untouched(&handle);
    world.assert_nothing_leaked().await;
    world.delete_claim(&winner).await;
    world.assert_all_gone(&[&winner]).await;
}

/// Whether a claim waits for another one of the same volume name.
fn waits_for_name(status: &Value, volume: &str) -> bool {
    let mut work = status["work"].as_array().unwrap().iter();
    let text = format!("volume \"{volume}\" is provisioned for claim");
    work.any(|item| item["lastError"].as_str().is_some_and(|it| it.contains(&text)))
}

fn is_in(volume: &PersistentVolume, phase: &str) -> bool {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
}

/// Deletes the object that keeps a volume. The volume goes at once, although its retry is far away, and by one call.
async fn goes_after(world: &World, keeper: &str, volume: &PersistentVolume, claim: &str) {
    world.all::<PersistentVolume>().delete(keeper, &DeleteParams::default()).await.unwrap();
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 1);
    world.assert_all_gone(&[claim]).await;
}

#[tokio::test]
async fn a_released_volume_is_kept_as_long_as_another_object_names_it() {
    let (world, _daemon) = World::with_supplier(slow()).await;
    let (class, claim, volume) = world.supplied_claim().await;
    let (_, handle) = handle_of(&volume).unwrap();
    // Retain, and not bound: that is what a rescue looks like.
    let rescue = world.rescue("manual", &handle, json!({ "storageClassName": class })).await;
    world.delete_claim(&claim).await;
    names_its_keeper(&world, &volume, &rescue).await;
    world.until(&volume.name_any(), "there", |it: &PersistentVolume| is_in(it, "Released")).await;
    world.assert_untouched(&handle);
    goes_after(&world, &rescue, &volume, &claim).await;
}

/// Azure ignores the case of letters (kubernetes#79009), and the driver is handed the id as each object spells it.
#[tokio::test]
async fn a_released_volume_is_kept_as_long_as_another_object_names_it_in_other_letters() {
    let (world, _daemon) = World::with_supplier(slow()).await;
    let (class, claim, volume) = world.supplied_claim().await;
    let (_, handle) = handle_of(&volume).unwrap();
    let spelled = handle.to_ascii_uppercase();
    assert_ne!(spelled, handle);
    let rescue = world.rescue("manual", &spelled, json!({ "storageClassName": class })).await;
    world.delete_claim(&claim).await;
    let text = format!("\"{rescue}\" has the same handle, spelled {spelled}");
    names_its_keeper(&world, &volume, &text).await;
    world.assert_untouched(&handle);
    goes_after(&world, &rescue, &volume, &claim).await;
}

#[tokio::test]
async fn a_volume_that_another_claim_has_got_in_other_letters_is_not_deleted_with_the_one_it_was_made_for() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, claim) = world.unanswered_claim(json!({})).await;
    let handle = world.only_volume();
    let (rescue, _) = world.rescued_for_another(&handle.to_ascii_uppercase(), &class).await;
    world.assert_left_to(&rescue, &claim, &handle).await;
}

#[tokio::test]
async fn two_objects_of_one_volume_that_are_both_to_be_deleted_do_not_wait_for_each_other() {
    let (world, _daemon) = World::with_supplier(slow()).await;
    let (class, claim, volume) = world.supplied_claim().await;
    let (_, handle) = handle_of(&volume).unwrap();
    let twin = world.rescue("twin", &handle, deleted_with_its_claim(&class)).await;
    let other = world.claim("other", &class, json!({ "spec": { "volumeName": twin } })).await;
    world.claim_until(&other, "bound", |it| phase(it) == "Bound").await;
    world.delete_claim(&claim).await;
    names_its_keeper(&world, &volume, &twin).await;
    world.assert_untouched(&handle);
    world.delete_claim(&other).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    world.assert_all_gone(&[&claim, &other]).await;
}

#[tokio::test]
async fn a_volume_that_is_kept_after_its_claim_was_bound_elsewhere_is_no_other_claims_to_have() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (_, claim) = world.unanswered_claim(json!({ "reclaimPolicy": "Retain" })).await;
    let name = world.volume_name(&claim).await;
    world.patch_claim(&claim, json!({ "spec": { "volumeName": world.name("another") } })).await;
    world.daemon_has_seen("later").await;
    world.driver().clear_faults();
    let volume = world.until(&name, "kept", |_: &PersistentVolume| true).await;
    let owner = volume.spec.and_then(|spec| spec.claim_ref).expect("it says whose it was");
    assert_eq!((owner.namespace.as_deref(), owner.name.as_deref()), (Some("default"), Some(claim.as_str())));
    // The controller leaves the claim's name to it, so that it waits for that claim alone.
    let waits = |it: &PersistentVolume| {
        let owner = it.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        owner.is_some_and(|owner| owner.uid.is_none() && owner.name.as_deref() == Some(claim.as_str()))
    };
    world.until(&name, "waiting for its claim", waits).await;
    world.forgotten(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn nothing_is_kept_of_a_volume_that_its_claim_has_got_under_another_name() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, claim) = world.unanswered_claim(json!({ "reclaimPolicy": "Retain" })).await;
    let name = world.volume_name(&claim).await;
    let handle = world.only_volume();
    let rescue = world.rescue("manual", &handle, json!({ "storageClassName": class })).await;
    world.patch_claim(&claim, json!({ "spec": { "volumeName": rescue } })).await;
    world.claim_until(&claim, "bound", |it| phase(it) == "Bound").await;
    world.daemon_has_seen("later").await;
    world.driver().clear_faults();
    world.supplied_with(&claim).await;
    world.forgotten(&claim).await;
    assert!(world.all::<PersistentVolume>().get_opt(&name).await.unwrap().is_none(), "two objects of one volume");
    world.assert_untouched(&handle);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_deletion_that_failed_looks_again_who_else_names_the_volume() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, claim, volume) = world.supplied_claim().await;
    let (_, handle) = handle_of(&volume).unwrap();
    world.driver().inject(Fault::on(Method::DeleteVolume, Action::fail(tonic::Code::Unavailable, "not now")));
    world.delete_claim(&claim).await;
    let told = |events: &[_]| events.iter().any(|it| says(it, "VolumeFailedDelete", "not now"));
    world.events_until(&volume.uid().unwrap(), "a first attempt", told).await;
    let rescue = world.rescue("manual", &handle, json!({ "storageClassName": class })).await;
    let told = |events: &[_]| events.iter().any(|it| says(it, "VolumeFailedDelete", &rescue));
    world.events_until(&volume.uid().unwrap(), "who names it now", told).await;
    world.driver().clear_faults();
    assert!(world.driver().state().volumes().contains_key(&handle));
    world.all::<PersistentVolume>().delete(&rescue, &DeleteParams::default()).await.unwrap();
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_volume_that_was_handed_to_another_claim_is_left_alone_by_a_daemon_that_finds_an_entry_of_the_first() {
    let (world, first) = World::with_supplier_on("first").await;
    let class = world.class("class", json!({})).await;
    // What a volume populator does: a claim of its own gets a volume to fill, and hands it to the claim that people made.
    world.driver().inject(create(Action::Hold).once());
    let prime = world.claim("prime", &class, json!({})).await;
    world.asked(&prime, 1).await;
    let journal = world.journal().await;
    world.driver().release();
    let volume = world.supplied_with(&prime).await;
    let (_, handle) = handle_of(&volume).unwrap();
    first.stop().await.unwrap();
    // As if the daemon had died between storing the volume and removing the entry.
    world.write_entries(&world.segment(0), &journal).await;
    let source = json!({ "apiGroup": "example.com", "kind": "Sample", "name": "it" });
    let target = world.claim("target", &class, json!({ "spec": { "dataSourceRef": source } })).await;
    let uid = world.claim_uid(&target).await;
    let to = json!({ "name": target, "uid": uid, "resourceVersion": null });
    world.merge_patch::<PersistentVolume>(&volume.name_any(), json!({ "spec": { "claimRef": to } })).await;
    world.claim_until(&target, "bound to it", |it| phase(it) == "Bound").await;
    assert_eq!(world.bound(&target).await.uid(), volume.uid());

    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.forgotten(&prime).await;
    world.delete_claim_and_wait(&prime).await;
    world.assert_untouched(&handle);
    assert_eq!(world.driver().calls_of(Method::CreateVolume).len(), 1);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_volume_that_is_attached_under_another_objects_name_is_not_deleted() {
    let (world, daemon) = World::with_supplier(slow()).await;
    let (class, claim, volume) = world.supplied_claim().await;
    let (_, handle) = handle_of(&volume).unwrap();
    let twin = world.rescue("twin", &handle, deleted_with_its_claim(&class)).await;
    let other = world.claim("other", &class, json!({ "spec": { "volumeName": twin } })).await;
    world.claim_until(&other, "bound", |it| phase(it) == "Bound").await;
    // It is never attached, because there is no such node. The object alone says that it is attached, or may be.
    let attachment = world.name("attachment");
    let object = objects::attachment(&attachment, world.driver_name(), &twin, &world.name("node"));
    world.create::<VolumeAttachment>(object).await;
    // Attachments have a watch of their own: whether it is late is another question.
    let sees_it = |status: &Value| {
        status["work"].as_array().is_some_and(|work| work.iter().any(|item| item["key"] == attachment.as_str()))
    };
    world.shows(&daemon, "the attachment is seen", sees_it).await;
    world.delete_claim(&claim).await;
    world.delete_claim(&other).await;
    let name = volume.name_any();
    let waits = |status: &Value| {
        let mut tables = status["tables"].as_array().into_iter().flatten();
        let table = tables.find(|it| it["name"] == "detachingVolumes");
        let rows = table.and_then(|it| it["rows"].as_array()).cloned().unwrap_or_default();
        [&name, &twin].iter().all(|volume| rows.iter().any(|row| row["volume"] == volume.as_str()))
    };
    world.shows(&daemon, "both wait", waits).await;
    world.assert_untouched(&handle);
    world.all::<VolumeAttachment>().delete(&attachment, &DeleteParams::default()).await.unwrap();
    world.assert_all_gone(&[&claim, &other]).await;
}
