use serde_json::{Value, json};

use super::*;
use crate::process::Clock;
use crate::roles::kit::Secret;
use crate::roles::provisioner::fixtures::{DRIVER, merged};
use crate::roles::provisioner::names;
use crate::roles::provisioner::volume::keeps;

const FIN: &str = names::FINALIZER_PROVISIONER;

fn volume(patch: Value) -> PersistentVolume {
    let base = json!({
        "metadata": { "name": "pvc-1", "uid": "u1", "finalizers": [FIN],
            "annotations": { names::ANNOTATION_PROVISIONED_BY: DRIVER } },
        "spec": { "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": DRIVER, "volumeHandle": "vol-1" } },
        "status": { "phase": "Released" },
    });
    serde_json::from_value(merged(base, patch)).unwrap()
}

fn rules() -> Rules {
    Rules {
        driver: DRIVER.into(),
        finalizer: FIN,
        attaches: true,
        lacks: None,
        honors_policy: true,
        without_secret: false,
        has_events: true,
    }
}

fn place() -> SecretRef {
    SecretRef { name: "keys".to_owned(), namespace: "ns".to_owned() }
}

/// A volume that is deleted at once, except for `patch`.
fn ready(patch: Value) -> (View, Progress) {
    let (volume, now) = (volume(patch), Clock::system().now());
    let view = View {
        rules: Arc::new(rules()),
        handle: handle_of(&volume, DRIVER),
        attachments: 0,
        kept_by: None,
        is_here: true,
        is_listed: true,
        is_ahead: false,
        is_forgotten: true,
        secret: Ok(DeletionSecret::At(place())),
        is_deleted: false,
        has_waited: false,
        phase_age: None,
        now,
        volume: Arc::new(volume),
    };
    let secret = Some((place(), Secret::default()));
    (view, Progress { secret, ..Progress::new(now, true, false) })
}

/// The step for it, with another change.
fn step_of(patch: Value, change: impl FnOnce(&mut View, &mut Progress)) -> Next<Step> {
    let (mut view, mut progress) = ready(patch);
    change(&mut view, &mut progress);
    next_step(&view, &progress)
}

fn step(patch: Value) -> Next<Step> {
    step_of(patch, |_, _| {})
}

fn delete() -> Next<Step> {
    Next::Do(Step::Delete("vol-1".to_owned()))
}

fn wait(attachments: usize) -> Next<Step> {
    Next::Do(Step::Wait(Waiting { volume: "pvc-1".to_owned(), attachments }))
}

fn manual() -> Keeper {
    Keeper { name: "pv-manual".to_owned(), spelled: None }
}

fn shared() -> Next<Step> {
    let (handle, other) = ("vol-1".to_owned(), "pv-manual".to_owned());
    Next::Do(Step::Refuse(DeleteReason::Shared { handle, other, spelled: None }))
}

fn deleting() -> Value {
    json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })
}

#[test]
fn whose_volume_it_is_is_said_by_who_made_it_or_else_by_its_source() {
    let by = |who: Value| json!({ "metadata": { "annotations": who } });
    let cases = [
        (json!({}), true, "made by us"),
        (by(json!({ names::ANNOTATION_PROVISIONED_BY: "other" })), false, "made by another"),
        (by(json!({ names::ANNOTATION_PROVISIONED_BY: null })), true, "static, with our source (R61)"),
        (
            both(by(json!({ names::ANNOTATION_PROVISIONED_BY: null })), json!({ "spec": { "csi": null } })),
            false,
            "static, and nobody's",
        ),
        (
            by(json!({ names::ANNOTATION_PROVISIONED_BY: "kubernetes.io/x", names::ANNOTATION_MIGRATED_TO: DRIVER })),
            true,
            "migrated to us",
        ),
        (
            by(json!({ names::ANNOTATION_PROVISIONED_BY: "kubernetes.io/aws-ebs" })),
            false,
            "made by another driver's plugin",
        ),
    ];
    for (patch, expected, what) in cases {
        assert_eq!(is_ours(&volume(patch), DRIVER), expected, "{what}");
    }
}

#[test]
fn a_volume_of_the_plugin_that_our_driver_has_taken_over_is_ours_but_not_one_that_nobody_made() {
    let aws = "ebs.csi.aws.com";
    let in_tree = |made_by: Value| {
        let annotations = json!({ "metadata": { "annotations": { names::ANNOTATION_PROVISIONED_BY: made_by } } });
        volume(both(annotations, json!({ "spec": { "csi": null, "awsElasticBlockStore": { "volumeID": "vol-1" } } })))
    };
    assert!(is_ours(&in_tree(json!("kubernetes.io/aws-ebs")), aws));
    assert!(!is_ours(&in_tree(json!("kubernetes.io/cinder")), aws));
    assert!(!is_ours(&in_tree(Value::Null), aws), "static: kube-controller-manager never says that it is migrated");
}

fn both(one: Value, other: Value) -> Value {
    merged(one, other)
}

#[test]
fn our_finalizer_is_on_bound_volumes_that_go_with_their_claims_and_on_no_others() {
    let bare = json!({ "metadata": { "finalizers": null } });
    let phase = |phase: &str| json!({ "status": { "phase": phase } });
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    let cases = [
        (
            both(bare.clone(), phase("Bound")),
            Next::Do(Step::Protect),
            "added: it may be older than the finalizer, or static",
        ),
        (phase("Bound"), Next::Done, "there already"),
        (both(bare.clone(), phase("Available")), Next::Done, "not bound"),
        (both(both(bare.clone(), phase("Bound")), deleting()), Next::Done, "too late"),
        (both(retain.clone(), phase("Bound")), Next::Do(Step::Release), "kept by its class"),
        (retain.clone(), Next::Do(Step::Release), "kept, and released"),
        (both(retain.clone(), deleting()), Next::Do(Step::Release), "kept, and being deleted"),
        (both(retain, bare), Next::Done, "nothing of ours on it"),
    ];
    for (patch, expected, what) in cases {
        assert_eq!(step(patch), expected, "{what}");
    }
}

/// csi-provisioner with the gate `HonorPVReclaimPolicy` off: `handleProtectionFinalizer` and `shouldDelete` of its library.
#[test]
fn without_the_promise_of_the_policy_no_volume_has_the_finalizer_and_a_deleted_object_leaves_its_volume() {
    let rules = Arc::new(Rules { honors_policy: false, ..rules() });
    let bare = json!({ "metadata": { "finalizers": null } });
    let phase = |phase: &str| json!({ "status": { "phase": phase } });
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    let cases = [
        (both(bare.clone(), phase("Bound")), true, Next::Done, "none is added"),
        (phase("Bound"), true, Next::Do(Step::Release), "it came with another setting"),
        (json!({}), true, Next::Do(Step::Release), "before it is deleted, too"),
        (deleting(), true, Next::Do(Step::Release), "its object was deleted first: the volume stays"),
        (both(bare.clone(), deleting()), true, Next::Done, "the same, without the finalizer"),
        (bare.clone(), true, delete(), "its claim is gone"),
        (retain.clone(), true, Next::Do(Step::Release), "kept"),
        (both(retain, bare), true, Next::Done, "kept, and nothing of ours on it"),
        (phase("Bound"), false, Next::Do(Step::Release), "of another node, which may never come back"),
    ];
    for (patch, is_here, expected, what) in cases {
        let found = step_of(patch, |view, _| (view.rules, view.is_here) = (Arc::clone(&rules), is_here));
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn of_another_nodes_volumes_only_those_that_are_kept_are_let_go_of() {
    let elsewhere = |patch: Value| step_of(patch, |view, _| view.is_here = false);
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    let bare = json!({ "metadata": { "finalizers": null }, "status": { "phase": "Bound" } });
    let cases = [
        (json!({}), Next::Done, "to be deleted there"),
        (bare.clone(), Next::Done, "to be protected there"),
        (retain.clone(), Next::Do(Step::Release), "kept, and its node may never come back"),
        (both(retain.clone(), deleting()), Next::Do(Step::Release), "kept, and being deleted"),
        (both(retain, bare), Next::Done, "nothing of ours on it"),
    ];
    for (patch, expected, what) in cases {
        assert_eq!(elsewhere(patch), expected, "{what}");
    }
}

#[test]
fn a_volume_of_a_policy_or_phase_that_is_not_known_is_kept() {
    for policy in ["Retain", "Recycle", "delete", "New", ""] {
        let found = step(json!({ "spec": { "persistentVolumeReclaimPolicy": policy } }));
        assert_ne!(found, delete(), "{policy}");
    }
    for phase in ["released", "New", "", "Pending"] {
        let found = step(json!({ "status": { "phase": phase } }));
        assert_eq!(found, Next::Done, "{phase}");
        let unprotected = json!({ "metadata": { "finalizers": null }, "status": { "phase": phase } });
        assert_eq!(step(unprotected), Next::Done, "{phase}: only Bound is protected");
    }
}

#[test]
fn only_released_volumes_are_deleted() {
    let phase = |phase: Value| json!({ "status": { "phase": phase } });
    let cases = [
        (json!({}), delete()),
        (deleting(), delete()),
        (phase(json!("Failed")), Next::Done),
        (phase(json!("Available")), Next::Done),
        (phase(json!("Bound")), Next::Done),
        (both(deleting(), json!({ "metadata": { "finalizers": ["kubernetes.io/pv-protection"] } })), Next::Done),
        (json!({ "metadata": { "finalizers": null } }), delete()),
        (json!({ "spec": { "csi": null } }), Next::Do(Step::Refuse(DeleteReason::NotCsi))),
    ];
    for (patch, expected) in cases {
        assert_eq!(step(patch.clone()), expected, "{patch}");
    }
}

#[test]
fn r48_what_is_attached_waits_and_is_no_error() {
    let attached = |waits| step_of(json!({}), |view, progress| (view.attachments, progress.waits) = (2, waits));
    assert_eq!(attached(None), wait(2), "48");
    assert_eq!(attached(Some(3)), wait(2), "one is gone meanwhile");
    assert_eq!(attached(Some(2)), Next::Done, "the last one wakes it");
    let unlisted = step_of(json!({}), |view, _| view.is_listed = false);
    assert_eq!(unlisted, Next::Do(Step::List), "a new leader's watches may be behind");
    let ahead = step_of(json!({}), |view, _| view.is_ahead = true);
    assert_eq!(ahead, Next::Do(Step::CatchUp), "another volume with its handle may not be there yet");
    let late = step_of(json!({}), |view, progress| (view.attachments, progress.is_deleted) = (2, true));
    assert_eq!(late, Next::Do(Step::Remove), "too late to wait");
}

#[test]
fn what_another_object_names_is_not_deleted_unless_that_goes_too() {
    let next = |patch: Value, change: Obstacle| {
        step_of(patch, |view, progress| {
            view.kept_by = Some(manual());
            change(view, progress);
        })
    };
    assert_eq!(next(json!({}), |_, _| {}), shared());
    assert_eq!(next(json!({}), |view, _| view.is_listed = false), Next::Do(Step::List), "it may be gone by now");
    assert_eq!(next(json!({}), |view, _| view.attachments = 1), wait(1));
    assert_eq!(next(json!({}), |_, progress| progress.is_deleted = true), Next::Do(Step::Remove), "too late");
    let phase = |phase: &str| json!({ "status": { "phase": phase } });
    assert_eq!(next(phase("Bound"), |_, _| {}), Next::Done);

    let policy = |policy: &str| json!({ "spec": { "persistentVolumeReclaimPolicy": policy } });
    assert!(!keeps(&volume(json!({}))), "it is deleted itself");
    for other in [phase("Bound"), phase("Available"), phase("Failed"), policy("Retain")] {
        assert!(keeps(&volume(other.clone())), "{other}");
    }
}

/// Sets up one obstacle to the deletion.
type Obstacle = fn(&mut View, &mut Progress);

#[test]
fn the_secret_is_looked_for_when_nothing_else_is_in_the_way() {
    let cases: [(Obstacle, Next<Step>, &str); 6] = [
        (|_, _| {}, Next::Do(Step::ReadSecret(place())), "it is all that is missing"),
        (|view, _| view.is_here = false, Next::Done, "another node's to delete, and its secret to read"),
        (|view, _| view.attachments = 1, wait(1), "it may take days"),
        (|view, _| view.is_listed = false, Next::Do(Step::List), "it may be attached"),
        (|view, _| view.kept_by = Some(manual()), shared(), "it is kept"),
        (|_, progress| progress.is_fresh = false, Next::Do(Step::Confirm), "it may name another secret already"),
    ];
    for (change, expected, what) in cases {
        let next = step_of(json!({}), |view, progress| {
            progress.secret = None;
            change(view, progress);
        });
        assert_eq!(next, expected, "{what}");
    }
}

#[test]
fn the_volume_is_deleted_with_the_secret_that_it_names_now_or_where_none_is_needed() {
    let other = SecretRef { name: "other".to_owned(), ..place() };
    let unknown = || Ok(DeletionSecret::Unknown("its class is gone"));
    let error = SecretError::InvalidAnnotation { field: "name", value: "#".to_owned() };
    let refuse = |reason| Next::Do(Step::Refuse(reason));
    let may_lack = |view: &mut View| view.rules = Arc::new(Rules { without_secret: true, ..rules() });
    let next = |secret, change: &dyn Fn(&mut View)| {
        step_of(json!({}), |view, _| {
            view.secret = secret;
            change(view);
        })
    };
    assert_eq!(next(Ok(DeletionSecret::At(other.clone())), &|_| {}), Next::Do(Step::ReadSecret(other)), "another");
    assert_eq!(next(Ok(DeletionSecret::None), &|_| {}), delete());
    assert_eq!(next(unknown(), &|_| {}), refuse(DeleteReason::SecretUnknown("its class is gone")));
    assert_eq!(next(unknown(), &may_lack), delete());
    assert_eq!(next(Err(error.clone()), &may_lack), refuse(error.into()), "people can correct it");
    let capability = "CREATE_DELETE_VOLUME";
    let lacks = |view: &mut View| view.rules = Arc::new(Rules { lacks: Some(capability), ..rules() });
    let driver = DRIVER.to_owned();
    assert_eq!(next(Ok(DeletionSecret::None), &lacks), refuse(DeleteReason::Capability { driver, capability }));
}

#[test]
fn an_old_view_is_confirmed_before_the_call_and_by_nothing_else() {
    let cases: [(Obstacle, Next<Step>, &str); 6] = [
        (|_, _| {}, Next::Do(Step::Confirm), "nothing is in the way"),
        (|view, _| view.is_listed = false, Next::Do(Step::List), "attachments are not among what is confirmed"),
        (|view, _| view.kept_by = Some(manual()), shared(), "nothing is to be deleted"),
        (|view, _| view.attachments = 1, wait(1), "not yet"),
        (|_, progress| progress.is_deleted = true, Next::Do(Step::Remove), "too late to ask"),
        (|_, progress| progress.is_fresh = true, delete(), "it is confirmed"),
    ];
    for (change, expected, what) in cases {
        let next = step_of(json!({}), |view, progress| {
            progress.is_fresh = false;
            change(view, progress);
        });
        assert_eq!(next, expected, "{what}");
    }
    let stale = |patch: Value| step_of(patch, |_, progress| progress.is_fresh = false);
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    assert_eq!(stale(retain), Next::Do(Step::Release), "only the driver's part cannot be taken back");
    assert_eq!(stale(json!({ "status": { "phase": "Bound" } })), Next::Done);
}

#[test]
fn the_cache_is_trusted_only_with_what_was_just_heard() {
    let released =
        |milliseconds| Past { phase_age: Some(SignedDuration::from_millis(milliseconds)), ..Past::default() };
    let now = released(0);
    let cases = [
        (now, true, "just woken"),
        (Past { queued: LONG_IN_QUEUE / 2, ..now }, true, "as old as any view of a watch"),
        (Past { queued: LONG_IN_QUEUE, ..now }, false, "many go at once"),
        (Past { failures: 1, ..now }, false, "it has waited for its back-off"),
        (Past { detached: true, ..now }, false, "it has waited, maybe for days"),
        (released(1_999), true, "the server stamps whole seconds"),
        (released(2_000), false, "the watch was late, and what came after may be later still"),
        (released(-1_000), true, "the server's clock is a little ahead"),
        (released(-1_001), false, "the clocks disagree, so that the age says nothing"),
        (Past::default(), false, "an old server does not say when the volume was released"),
    ];
    for (past, expected, what) in cases {
        assert_eq!(past.is_fresh(), expected, "{what}");
    }
}

#[test]
fn the_driver_is_asked_once_then_the_object_goes_then_our_finalizer() {
    let deleted = |patch: Value| step_of(patch, |_, progress| progress.is_deleted = true);
    assert_eq!(deleted(json!({})), Next::Do(Step::Remove));
    assert_eq!(deleted(deleting()), Next::Do(Step::Release), "15");
    let foreign = json!({ "metadata": { "finalizers": ["kubernetes.io/pv-protection"] } });
    assert_eq!(deleted(both(deleting(), foreign)), Next::Done);
    let gone = |_: &mut View, progress: &mut Progress| (progress.is_deleted, progress.is_gone) = (true, true);
    assert_eq!(step_of(json!({}), gone), Next::Done);
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    assert_eq!(deleted(retain), Next::Do(Step::Remove), "the volume is gone, whatever the object says by now");
    for patch in [json!({}), deleting()] {
        let recorded = step_of(patch, |view, progress| (view.is_forgotten, progress.is_deleted) = (false, true));
        assert_eq!(
            recorded,
            Next::Do(Step::Forget),
            "without the object, the journal's entry would be all that remains"
        );
    }
}
