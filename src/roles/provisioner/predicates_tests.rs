use serde_json::{Value, json};

use super::*;
use crate::roles::kit::fixtures::{change, packed_claims, packed_volumes};
use crate::roles::provisioner::fixtures::{DRIVER, merged};

fn claim(patch: Value) -> Value {
    let base = json!({
        "metadata": { "namespace": "shop", "name": "data", "uid": "u1",
            "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: DRIVER } },
        "spec": { "storageClassName": "gold", "resources": { "requests": { "storage": "1Gi" } } },
    });
    merged(base, patch)
}

fn annotated(key: &str, value: &str) -> Value {
    claim(json!({ "metadata": { "annotations": { key: value } } }))
}

#[test]
fn only_changes_that_we_never_make_wake_a_claim() {
    let plain = claim(json!({}));
    let on_node = annotated(names::ANNOTATION_SELECTED_NODE, "n1");
    let on_other = annotated(names::ANNOTATION_SELECTED_NODE, "n2");
    let bound = claim(json!({ "spec": { "volumeName": "pv-1" } }));
    let deletion = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    let (deleting, bound_and_deleting) =
        (claim(deletion.clone()), claim(merged(deletion, json!({ "spec": { "volumeName": "pv-1" } }))));
    let larger = claim(json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } }));
    let hinted = annotated("example.com/tier", "gold");
    let foreign = annotated(names::ANNOTATION_STORAGE_PROVISIONER, "other.csi");
    let cases = [
        (None, Some(&plain), Wake::Now, "created"),
        (None, Some(&bound), Wake::No, "bound long ago"),
        (None, Some(&foreign), Wake::No, "another's"),
        (Some(&foreign), Some(&plain), Wake::Now, "handed to us"),
        (Some(&on_node), Some(&plain), Wake::No, "our own reschedule, or the scheduler's: then nothing is to be done"),
        (Some(&plain), Some(&on_node), Wake::Now, "a node was selected"),
        (Some(&on_node), Some(&on_other), Wake::Now, "another node was selected"),
        (Some(&plain), Some(&larger), Wake::Now, "the claim was edited"),
        (Some(&plain), Some(&hinted), Wake::Now, "a template may use any annotation"),
        (Some(&plain), Some(&deleting), Wake::Now, "deleted"),
        (Some(&bound), Some(&bound_and_deleting), Wake::No, "deleted with its volume"),
        (Some(&plain), Some(&bound), Wake::Forget, "bound"),
        (Some(&plain), None, Wake::Forget, "26: gone"),
    ];
    for (old, new, expected, what) in cases {
        assert_eq!(claim_wake(&change(old, new), DRIVER, false, None), expected, "{what}");
    }
    let begun = |old, new| claim_wake(&change(Some(old), new), DRIVER, true, None);
    assert_eq!(begun(&bound, Some(&bound_and_deleting)), Wake::Now, "bound elsewhere, and the driver owes an answer");
    assert_eq!(begun(&plain, Some(&bound)), Wake::Now, "bound while the driver owes an answer");
    assert_eq!(begun(&plain, None), Wake::Forget, "gone");
}

#[test]
fn r38_a_claim_that_another_node_has_had_wakes_when_it_is_nobodys() {
    let plain = claim(json!({}));
    let on = |node: &str| json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: node } } });
    let cases = [
        (claim(on("n2")), &plain, Wake::Now, "its node was full, or is down and somebody has taken it off"),
        (claim(on("n1")), &plain, Wake::No, "our own reschedule"),
    ];
    for (old, new, expected, what) in cases {
        let change = change(Some(&old), Some(new));
        assert_eq!(claim_wake(&change, DRIVER, false, Some("n1")), expected, "{what}");
        assert_eq!(claim_wake(&change, DRIVER, false, None), Wake::No, "{what}: where one daemon has all");
    }
}

/// Kubernetes 1.37 writes this condition when it comes, and with each first and last pod of a claim.
#[test]
fn a_claim_that_is_said_to_be_unused_wakes_neither_itself_nor_its_clones() {
    let bound = json!({ "spec": { "volumeName": "pv-1" }, "status": { "phase": "Bound" } });
    let told = |status: &str| {
        let condition = json!({ "type": "Unused", "status": status });
        claim(merged(bound.clone(), json!({ "status": { "conditions": [condition] } })))
    };
    let (plain, unused, used) = (claim(bound.clone()), told("True"), told("False"));
    for (old, new) in [(&plain, &unused), (&unused, &used), (&used, &unused)] {
        let change = change(Some(old), Some(new));
        assert_eq!(claim_wake(&change, DRIVER, false, None), Wake::No, "{new}");
        assert_eq!(claim_wake(&change, DRIVER, true, None), Wake::No, "{new}: the driver owes an answer");
        assert!(!source_claim_unblocks(&change), "{new}: a clone");
    }
}

#[test]
fn a_class_unblocks_when_it_says_something_new() {
    let class = |patch: Value| {
        merged(
            json!({ "metadata": { "name": "gold", "uid": "c1", "resourceVersion": "1" }, "provisioner": DRIVER }),
            patch,
        )
    };
    let plain = class(json!({}));
    let cases = [
        (None, Some(class(json!({}))), true),
        (Some(plain.clone()), Some(class(json!({ "metadata": { "resourceVersion": "2" } }))), false),
        (Some(plain.clone()), Some(class(json!({ "metadata": { "uid": "c2" } }))), true),
        (Some(plain.clone()), Some(class(json!({ "parameters": { "kind": "fast" } }))), true),
        (Some(plain), None, false),
    ];
    for (old, new, expected) in cases {
        assert_eq!(class_unblocks(&change(old.as_ref(), new.as_ref())), expected, "{old:?} -> {new:?}");
    }
}

#[test]
fn a_content_unblocks_restores_when_what_they_read_of_it_changes() {
    let content = |patch: Value| {
        merged(
            json!({ "metadata": { "name": "content", "uid": "u1", "resourceVersion": "1" }, "spec": { "driver": DRIVER,
                "sourceVolumeMode": "Block", "volumeSnapshotRef": { "namespace": "shop", "name": "monday", "uid": "s1" } },
                "status": { "readyToUse": false } }),
            patch,
        )
    };
    let of_status = |status: Value| content(json!({ "status": status }));
    let allowed = json!({ "metadata": { "annotations": { names::ANNOTATION_ALLOW_MODE_CHANGE: "true" } } });
    let plain = content(json!({}));
    let cases = [
        (None, Some(content(json!({}))), true),
        (Some(plain.clone()), Some(content(json!({ "metadata": { "uid": "u2" } }))), true),
        (Some(plain.clone()), Some(of_status(json!({ "readyToUse": true }))), false),
        (Some(plain.clone()), Some(of_status(json!({ "snapshotHandle": "h" }))), true),
        (Some(plain.clone()), Some(content(json!({ "spec": { "volumeSnapshotRef": { "uid": "s2" } } }))), true),
        (Some(plain.clone()), Some(content(json!({ "spec": { "sourceVolumeMode": "Filesystem" } }))), true),
        (Some(plain.clone()), Some(content(allowed)), true),
        (Some(plain), None, true),
    ];
    for (old, new, expected) in cases {
        assert_eq!(content_unblocks(&change(old.as_ref(), new.as_ref())), expected, "{old:?} -> {new:?}");
    }
}

#[test]
fn a_volume_wakes_when_there_is_something_to_do_and_not_at_our_own_deletion_of_it() {
    let rules = deletion::Rules {
        driver: DRIVER.into(),
        finalizer: names::FINALIZER_PROVISIONER,
        attaches: true,
        lacks: None,
        honors_policy: true,
        without_secret: false,
        has_events: true,
    };
    let volume = |phase: &str, patch: Value| {
        let base = json!({
            "metadata": { "name": "pvc-1", "uid": "v1", "finalizers": [names::FINALIZER_PROVISIONER] },
            "spec": { "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": DRIVER, "volumeHandle": "h" } },
            "status": { "phase": phase },
        });
        merged(base, patch)
    };
    let (bound, released) = (volume("Bound", json!({})), volume("Released", json!({})));
    let deleting = volume("Released", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    let bare = volume("Bound", json!({ "metadata": { "finalizers": null } }));
    let note = json!({ "metadata": { "annotations": { names::ANNOTATION_DELETION_SECRET_NAMESPACE: "storage" } } });
    let (noted, bound_and_noted) = (volume("Released", note.clone()), volume("Bound", note));
    let owned = volume("Released", json!({ "spec": { "claimRef": { "namespace": "shop", "name": "data" } } }));
    let cases = [
        (None, Some(&bound), Wake::No, "as it should be"),
        (None, Some(&bare), Wake::Now, "without our finalizer"),
        (Some(&bare), Some(&bound), Wake::No, "our finalizer was put on"),
        (Some(&bound), Some(&released), Wake::Now, "its claim is gone"),
        (None, Some(&released), Wake::Now, "seen first when released"),
        (Some(&released), Some(&noted), Wake::Now, "it names another secret"),
        (Some(&released), Some(&owned), Wake::Now, "it says whose it was"),
        (Some(&bound), Some(&bound_and_noted), Wake::No, "nobody waits for that secret"),
        (Some(&released), Some(&deleting), Wake::No, "our own deletion"),
        (Some(&released), None, Wake::Forget, "gone"),
    ];
    for (old, new, expected, what) in cases {
        assert_eq!(volume_wake(&change(old, new), &rules), expected, "{what}");
    }
    let off = deletion::Rules { honors_policy: false, ..rules };
    let bare_and_released = volume("Released", json!({ "metadata": { "finalizers": null } }));
    for (old, new, expected, what) in [
        (None, Some(&bound), Wake::Now, "its finalizer goes"),
        (Some(&bound), Some(&bare), Wake::No, "it has none any more"),
        (None, Some(&bare_and_released), Wake::Now, "its claim is gone"),
    ] {
        assert_eq!(volume_wake(&change(old, new), &off), expected, "off: {what}");
    }
}

/// What the kubelet of Kubernetes 1.37 may write into the status of a CSINode.
fn storage_health() -> Value {
    json!({ "status": { "storageHealth": [{ "name": DRIVER }] } })
}

#[test]
fn a_node_unblocks_when_our_driver_comes_goes_or_names_other_keys() {
    let node = |drivers: Value| json!({ "metadata": { "name": "n1" }, "spec": { "drivers": drivers } });
    let with = |keys: &[&str]| node(json!([{ "name": DRIVER, "nodeID": "a", "topologyKeys": keys }]));
    let cases = [
        (None, Some(node(json!([]))), false),
        (Some(node(json!([]))), Some(with(&[])), true),
        (Some(with(&["zone"])), Some(with(&["zone"])), false),
        (Some(with(&["zone"])), Some(merged(with(&["zone"]), storage_health())), false),
        (Some(with(&["zone"])), Some(with(&["zone", "rack"])), true),
        (Some(with(&["zone"])), None, true),
    ];
    for (old, new, expected) in cases {
        assert_eq!(csi_node_unblocks(&change(old.as_ref(), new.as_ref()), DRIVER), expected, "{old:?} -> {new:?}");
    }
}

#[test]
fn a_handle_is_free_when_its_object_is_gone_or_to_be_deleted_itself() {
    let volume = |phase: &str, policy: &str| {
        json!({
            "metadata": { "name": "manual", "uid": "v2" }, "status": { "phase": phase },
            "spec": { "persistentVolumeReclaimPolicy": policy, "csi": { "driver": DRIVER, "volumeHandle": "h" } },
        })
    };
    let (bound, released) = (volume("Bound", "Delete"), volume("Released", "Delete"));
    let kept = volume("Released", "Retain");
    let cases = [
        (None, Some(&bound), None, "new"),
        (Some(&bound), Some(&kept), None, "released, and kept"),
        (Some(&bound), Some(&released), Some("h"), "released, and to be deleted"),
        (Some(&kept), Some(&released), Some("h"), "kept no more"),
        (Some(&kept), None, Some("h"), "gone"),
        (Some(&released), None, None, "it was in nobody's way"),
    ];
    for (old, new, expected, what) in cases {
        assert_eq!(handle_freed(&change(old, new)), expected, "{what}");
    }
}

#[test]
fn the_resync_misses_no_work_by_leaving_packed_objects_out() {
    for driver in [DRIVER, "ebs.csi.aws.com"] {
        let rules = |honors_policy| deletion::Rules {
            driver: driver.to_owned(),
            finalizer: names::FINALIZER_PROVISIONER,
            attaches: true,
            lacks: None,
            honors_policy,
            without_secret: false,
            has_events: true,
        };
        for volume in packed_volumes(driver, names::FINALIZER_PROVISIONER) {
            for rules in [rules(true), rules(false)] {
                assert_eq!(wants_work(&volume, &rules), None, "{volume:?}");
            }
        }
        for claim in packed_claims(driver) {
            assert!(!is_wanted(&claim, driver), "{claim:?}");
            assert!(!claim.metadata.has_finalizer(names::FINALIZER_CLONING), "the sweep of sources looks for it");
        }
    }
}
