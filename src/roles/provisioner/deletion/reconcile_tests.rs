//! Which secret the driver gets when a volume is deleted: the one that the volume names at that time.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume as Object;
use serde_json::{Value, json};

use crate::roles::kit::served::Served;
use crate::roles::provisioner::REGISTRATION;
use crate::roles::provisioner::names;
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::faults::{Action, Fault, Matching};
use crate::sandbox::api::pure::rejection::Rejection;
use crate::sandbox::driver::{Method, Profile, Secrets};

const VOLUME: &str = "pv-1";
const HANDLE: &str = "vol-1";
/// Longer than the daemon waits for the API.
const LONG: Duration = Duration::from_secs(3600);

/// A driver that demands the right password, one of its volumes that is to be deleted, and the secrets `right` and
/// `wrong`. The volume names this one.
async fn guarded(section: &Value, secret: &str) -> Served {
    let expected = Secrets([("password".to_owned(), "right".to_owned())].into());
    let profile = Profile { provision_secrets: expected, ..Profile::default() };
    let world = Served::new(&REGISTRATION, section, profile).await;
    world.testbed.driver.seed([HANDLE]);
    for name in ["right", "wrong"] {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "data": { "password": if name == "right" { "cmlnaHQ=" } else { "d3Jvbmc=" } } });
        world.testbed.api.create_value(secret).unwrap();
    }
    let driver = &world.context.driver.name;
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": VOLUME, "finalizers": [names::FINALIZER_PROVISIONER],
            "annotations": { names::ANNOTATION_PROVISIONED_BY: driver } },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": driver, "volumeHandle": HANDLE } } });
    world.testbed.api.create_value(volume).unwrap();
    name_secret(&world, secret);
    let released = PatchBody::Merge(json!({ "status": { "phase": "Released" } }));
    world.testbed.api.patch_status::<Object>("", VOLUME, released).unwrap();
    world
}

/// Lets the volume name another secret.
fn name_secret(world: &Served, secret: &str) {
    let annotations = json!({ names::ANNOTATION_DELETION_SECRET_NAME: secret,
        names::ANNOTATION_DELETION_SECRET_NAMESPACE: "default" });
    let patch = PatchBody::Merge(json!({ "metadata": { "annotations": annotations } }));
    world.testbed.api.patch::<Object>("", VOLUME, patch).unwrap();
}

/// Waits until volume and object are gone. Returns for each call whether it had a secret.
async fn calls_until_gone(world: Served) -> Vec<bool> {
    let is_gone = |world: &Served| world.testbed.api.get::<Object>("", VOLUME).is_err();
    world.until("gone", is_gone).await;
    assert!(world.testbed.driver.state().volumes().is_empty());
    let calls = world.testbed.driver.calls_of(Method::DeleteVolume);
    world.testbed.tear_down().await;
    calls.iter().map(|call| call.secrets).collect()
}

#[tokio::test(start_paused = true)]
async fn the_secret_is_the_one_that_the_volume_names_when_its_turn_has_come() {
    for name in [HANDLE, VOLUME] {
        let world = guarded(&json!({}), "wrong").await;
        let turn = world.context.driver.operations.try_acquire(name).unwrap();
        world.lead();
        let waits = |world: &Served| {
            let volumes = world.context.driver.operations.snapshot();
            volumes.iter().any(|volume| volume.volume_id == name && volume.waiting > 0)
        };
        world.until("it waits for its turn", waits).await;
        // And no watch shows it.
        world.testbed.api.faults().hold_watches(Matching::any().resource("persistentvolumes"));
        name_secret(&world, "right");
        drop(turn);
        assert_eq!(calls_until_gone(world).await, [true], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_could_not_be_read_just_now_is_not_done_without() {
    for action in [Action::Refuse(Rejection::too_many_requests(1)), Action::CutBefore, Action::DelayAfter(LONG)] {
        let world = guarded(&json!({ "deleteWithoutSecret": true }), "right").await;
        let on = Matching::any().verb("get").resource("secrets");
        let fault = world.testbed.api.faults().add(Fault::on(on, action.clone()).nth(1));
        world.lead();
        let has_failed = |world: &Served| world.work().iter().any(|item| item.last_error.is_some());
        world.until("told", has_failed).await;
        let told = world.work().into_iter().filter_map(|item| item.last_error).collect::<String>();
        assert!(told.starts_with("cannot load the deletion secret: "), "{told}");
        assert_eq!(world.testbed.api.faults().hits(fault), 1);
        assert_eq!(calls_until_gone(world).await, [true], "{action:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_withheld_is_done_without_only_where_the_configuration_says_so() {
    let world = guarded(&json!({}), "nothing").await;
    world.lead();
    let says = |text: &str| {
        let text = text.to_owned();
        move |world: &Served| {
            world.work().iter().any(|item| item.last_error.as_ref().is_some_and(|error| error.contains(&text)))
        }
    };
    world.until("told, with a way out", says("set deleteWithoutSecret to delete the volume without it")).await;
    assert!(world.testbed.driver.calls_of(Method::DeleteVolume).is_empty());
    world.testbed.tear_down().await;

    let world = guarded(&json!({ "deleteWithoutSecret": true }), "nothing").await;
    // This driver needs no secret to delete.
    world.testbed.driver.change_profile(|profile| profile.provision_secrets = Secrets::default());
    world.lead();
    assert_eq!(calls_until_gone(world).await, [false]);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_becomes_retain_while_the_secret_is_read_counts_though_no_watch_has_shown_it() {
    let world = guarded(&json!({}), "right").await;
    let faults = world.testbed.api.faults();
    let reads = Matching::any().verb("get").resource("secrets");
    let slow = faults.add(Fault::on(reads, Action::DelayBefore(Duration::from_secs(5))));
    world.lead();
    world.until("the secret is being read", |_| faults.hits(slow) == 1).await;
    faults.hold_watches(Matching::any().resource("persistentvolumes"));
    let retain = PatchBody::Merge(json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } }));
    world.testbed.api.patch::<Object>("", VOLUME, retain).unwrap();
    let is_let_go = |world: &Served| {
        let volume = world.testbed.api.get::<Object>("", VOLUME).unwrap();
        volume.metadata.finalizers.unwrap_or_default().is_empty()
    };
    world.until("let go of", is_let_go).await;
    assert!(world.testbed.driver.calls_of(Method::DeleteVolume).is_empty());
    world.testbed.tear_down().await;
}

/// The right to read secrets is gone for a while: the secret is there all the time.
#[tokio::test(start_paused = true)]
async fn a_secret_that_may_not_be_read_is_waited_for_whatever_the_configuration_says() {
    let world = guarded(&json!({ "deleteWithoutSecret": true }), "right").await;
    let forbidden = Action::Refuse(Rejection::forbidden("", "secrets", "right", "no"));
    let fault = world.testbed.api.faults().add(Fault::on(Matching::any().verb("get").resource("secrets"), forbidden));
    world.lead();
    world.until("it was forbidden twice", |world| world.testbed.api.faults().hits(fault) >= 2).await;
    let told = world.work().into_iter().filter_map(|item| item.last_error).collect::<String>();
    assert!(told.contains("give the daemon's service account the right to get it"), "{told}");
    assert!(world.testbed.driver.calls_of(Method::DeleteVolume).is_empty());
    world.testbed.api.faults().remove(fault);
    assert_eq!(calls_until_gone(world).await, [true]);
}
