use serde_json::{Value, json};

use super::*;
use crate::roles::provisioner::fixtures::{DRIVER, merged};

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

fn done() -> Done {
    Done { relisted: true, ..Done::default() }
}

fn step(patch: Value, attachments: usize, done: Done) -> Step {
    step_of(patch, |view| (view.attachments, view.done) = (attachments, done))
}

fn rules() -> Rules {
    Rules { driver: DRIVER.into(), finalizer: FIN, attaches: true, honors_policy: true }
}

/// The step for a volume that could be deleted at once, except for `patch` and `change`.
fn step_of(patch: Value, change: impl FnOnce(&mut View<'_>)) -> Step {
    step_by(&rules(), patch, change)
}

/// The same by other rules.
fn step_by(rules: &Rules, patch: Value, change: impl FnOnce(&mut View<'_>)) -> Step {
    let volume = volume(patch);
    let mut view = View {
        volume: &volume,
        has_handle: volume.spec.csi.is_some(),
        attachments: 0,
        kept_by: None,
        is_here: true,
        done: done(),
        held: true,
        fresh: true,
        forgotten: true,
        has_secret: true,
        rules,
    };
    change(&mut view);
    next_step(&view)
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
        (both(bare.clone(), phase("Bound")), Step::Protect, "added: it may be older than the finalizer, or static"),
        (phase("Bound"), Step::Settled, "there already"),
        (both(bare.clone(), phase("Available")), Step::Settled, "not bound"),
        (both(both(bare.clone(), phase("Bound")), deleting()), Step::Settled, "too late"),
        (both(retain.clone(), phase("Bound")), Step::Release, "kept by its class"),
        (retain.clone(), Step::Release, "kept, and released"),
        (both(retain.clone(), deleting()), Step::Release, "kept, and being deleted"),
        (both(retain, bare), Step::Settled, "nothing of ours on it"),
    ];
    for (patch, expected, what) in cases {
        assert_eq!(step(patch, 0, done()), expected, "{what}");
    }
}

/// csi-provisioner with the gate `HonorPVReclaimPolicy` off: `handleProtectionFinalizer` and `shouldDelete` of its library.
#[test]
fn without_the_promise_of_the_policy_no_volume_has_the_finalizer_and_a_deleted_object_leaves_its_volume() {
    let rules = Rules { honors_policy: false, ..rules() };
    let bare = json!({ "metadata": { "finalizers": null } });
    let phase = |phase: &str| json!({ "status": { "phase": phase } });
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    let cases = [
        (both(bare.clone(), phase("Bound")), true, Step::Settled, "none is added"),
        (phase("Bound"), true, Step::Release, "it came with another setting"),
        (json!({}), true, Step::Release, "before it is deleted, too"),
        (deleting(), true, Step::Release, "its object was deleted first: the volume stays"),
        (both(bare.clone(), deleting()), true, Step::Settled, "the same, without the finalizer"),
        (bare.clone(), true, Step::Delete, "its claim is gone"),
        (retain.clone(), true, Step::Release, "kept"),
        (both(retain, bare), true, Step::Settled, "kept, and nothing of ours on it"),
        (phase("Bound"), false, Step::Release, "of another node, which may never come back"),
    ];
    for (patch, is_here, expected, what) in cases {
        let found = step_by(&rules, patch, |view| view.is_here = is_here);
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn of_another_nodes_volumes_only_those_that_are_kept_are_let_go_of() {
    let elsewhere = |patch: Value| step_of(patch, |view| view.is_here = false);
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    let bare = json!({ "metadata": { "finalizers": null }, "status": { "phase": "Bound" } });
    let cases = [
        (json!({}), Step::Ignore, "to be deleted there"),
        (bare.clone(), Step::Ignore, "to be protected there"),
        (retain.clone(), Step::Release, "kept, and its node may never come back"),
        (both(retain.clone(), deleting()), Step::Release, "kept, and being deleted"),
        (both(retain, bare), Step::Ignore, "nothing of ours on it"),
    ];
    for (patch, expected, what) in cases {
        assert_eq!(elsewhere(patch), expected, "{what}");
    }
}

#[test]
fn a_volume_of_a_policy_or_phase_that_is_not_known_is_kept() {
    for policy in ["Retain", "Recycle", "delete", "New", ""] {
        let found = step(json!({ "spec": { "persistentVolumeReclaimPolicy": policy } }), 0, done());
        assert!(!matches!(found, Step::Delete), "{policy}: {found:?}");
    }
    for phase in ["released", "New", "", "Pending"] {
        let found = step(json!({ "status": { "phase": phase } }), 0, done());
        assert_eq!(found, Step::Settled, "{phase}");
        let unprotected = json!({ "metadata": { "finalizers": null }, "status": { "phase": phase } });
        assert_eq!(step(unprotected, 0, done()), Step::Settled, "{phase}: only Bound is protected");
    }
}

#[test]
fn only_released_volumes_are_deleted() {
    let phase = |phase: Value| json!({ "status": { "phase": phase } });
    let cases = [
        (json!({}), Step::Delete),
        (deleting(), Step::Delete),
        (phase(json!("Failed")), Step::Settled),
        (phase(json!("Available")), Step::Settled),
        (phase(json!("Bound")), Step::Settled),
        (both(deleting(), json!({ "metadata": { "finalizers": ["kubernetes.io/pv-protection"] } })), Step::Settled),
        (json!({ "metadata": { "finalizers": null } }), Step::Delete),
        (json!({ "spec": { "csi": null } }), Step::NotCsi),
    ];
    for (patch, expected) in cases {
        assert_eq!(step(patch.clone(), 0, done()), expected, "{patch}");
    }
}

#[test]
fn r48_what_is_attached_waits_and_is_no_error() {
    assert_eq!(step(json!({}), 2, done()), Step::WaitForDetach(2), "48");
    assert_eq!(
        step(json!({}), 0, Done { relisted: false, ..done() }),
        Step::Relist,
        "a new leader's watches may be behind"
    );
    assert_eq!(step(json!({}), 2, Done { deleted: true, ..done() }), Step::Remove, "too late to wait");
}

#[test]
fn what_another_object_names_is_not_deleted_unless_that_goes_too() {
    let next = |patch: Value, attachments, done| {
        step_of(patch, |view| {
            (view.attachments, view.done, view.kept_by) = (attachments, done, Some("pv-manual"));
        })
    };
    assert_eq!(next(json!({}), 0, done()), Step::Shared("pv-manual".into()));
    assert_eq!(next(json!({}), 0, Done { relisted: false, ..done() }), Step::Relist, "it may be gone by now");
    assert_eq!(next(json!({}), 1, done()), Step::WaitForDetach(1));
    assert_eq!(next(json!({}), 0, Done { deleted: true, ..done() }), Step::Remove, "too late");
    let phase = |phase: &str| json!({ "status": { "phase": phase } });
    assert_eq!(next(phase("Bound"), 0, done()), Step::Settled);

    let policy = |policy: &str| json!({ "spec": { "persistentVolumeReclaimPolicy": policy } });
    assert!(!keeps(&volume(json!({}))), "it is deleted itself");
    for other in [phase("Bound"), phase("Available"), phase("Failed"), policy("Retain")] {
        assert!(keeps(&volume(other.clone())), "{other}");
    }
}

/// Sets up one obstacle to the deletion.
type Obstacle = fn(&mut View<'_>);

#[test]
fn the_secret_is_looked_for_when_nothing_else_is_in_the_way() {
    let cases: [(Obstacle, Step, &str); 7] = [
        (|_| {}, Step::ReadSecret, "it is all that is missing"),
        (|view| view.is_here = false, Step::Ignore, "another node's to delete, and its secret to read"),
        (|view| view.attachments = 1, Step::WaitForDetach(1), "it may take days"),
        (|view| view.done.relisted = false, Step::Relist, "it may be attached"),
        (|view| view.kept_by = Some("pv-manual"), Step::Shared("pv-manual".into()), "it is kept"),
        (|view| view.held = false, Step::Hold, "it may name another secret once it is its turn"),
        (|view| view.fresh = false, Step::Confirm, "it may name another secret already"),
    ];
    for (change, expected, what) in cases {
        let next = step_of(json!({}), |view| {
            view.has_secret = false;
            change(view);
        });
        assert_eq!(next, expected, "{what}");
    }
}

#[test]
fn an_old_view_is_confirmed_while_the_volume_is_held_and_by_nothing_else() {
    let cases: [(Obstacle, Step, &str); 8] = [
        (|_| {}, Step::Confirm, "it is held"),
        (|view| view.held = false, Step::Hold, "whoever has it may change what would be confirmed"),
        (|view| (view.held, view.fresh) = (false, true), Step::Hold, "the view may be old once it is its turn"),
        (|view| view.done.relisted = false, Step::Relist, "attachments are not among what is confirmed"),
        (|view| view.kept_by = Some("pv-manual"), Step::Shared("pv-manual".into()), "nothing is to be deleted"),
        (|view| view.attachments = 1, Step::WaitForDetach(1), "not yet"),
        (|view| view.done.deleted = true, Step::Remove, "too late to ask"),
        (|view| view.fresh = true, Step::Delete, "it is confirmed"),
    ];
    for (change, expected, what) in cases {
        let next = step_of(json!({}), |view| {
            view.fresh = false;
            change(view);
        });
        assert_eq!(next, expected, "{what}");
    }
    let stale = |patch: Value| step_of(patch, |view| (view.held, view.fresh) = (false, false));
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    assert_eq!(stale(retain), Step::Release, "only the driver's part cannot be taken back");
    assert_eq!(stale(json!({ "status": { "phase": "Bound" } })), Step::Settled);
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
    let deleted = Done { deleted: true, ..done() };
    assert_eq!(step(json!({}), 0, deleted), Step::Remove);
    assert_eq!(step(deleting(), 0, deleted), Step::Release, "15");
    let foreign = json!({ "metadata": { "finalizers": ["kubernetes.io/pv-protection"] } });
    assert_eq!(step(both(deleting(), foreign), 0, deleted), Step::Settled);
    assert_eq!(step(json!({}), 0, Done { gone: true, ..deleted }), Step::Settled);
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    assert_eq!(step(retain, 0, deleted), Step::Remove, "the volume is gone, whatever the object says by now");
}
