//! Decides which changes of the cluster wake which key. Pure.
//!
//! One rule replaces the Go sidecar's update filter: a change wakes an attachment only if *we never make such a change
//! ourselves*. So our own writes of errors, finalizers, annotations and status never wake the key, in any order of the
//! write's answer and the watch's event, and they do not end a back-off (R1, R2, R49).

use crate::cluster::Change;
use crate::cluster::{CsiNode, PersistentVolume, VolumeAttachment};

use super::attachment::{Direction, direction_of};
use super::policy::{Rules, wants_release};
use crate::roles::kit::Wake;

/// What a change of an attachment means for its key.
pub fn attachment_wake(change: &Change<VolumeAttachment>, driver: &str) -> Wake {
    let ours = |object: &VolumeAttachment| object.spec.attacher == driver;
    match (change.old.as_deref(), change.new.as_deref()) {
        (_, None) => Wake::Forget,
        (_, Some(new)) if !ours(new) => Wake::No,
        (None, Some(_)) => Wake::Now,
        (Some(old), Some(new)) if is_turned(old, new) => Wake::Now,
        (Some(_), Some(_)) => Wake::No,
    }
}

/// Whether another client changed the wanted state, or reverted what we recorded.
fn is_turned(old: &VolumeAttachment, new: &VolumeAttachment) -> bool {
    let attached = |object: &VolumeAttachment| object.status.attached;
    old.metadata.uid != new.metadata.uid
        || direction_of(old) != direction_of(new)
        || old.spec != new.spec
        // We write `attached: false` on a wanted attachment only together with the error that explains it.
        || (direction_of(new) == Direction::Attach
            && attached(old)
            && !attached(new)
            && old.status.attach_error == new.status.attach_error)
}

/// The volume whose finalizer may now be removed, because an attachment that named it is gone (of any driver: R8, R24).
pub fn volume_to_release(change: &Change<VolumeAttachment>) -> Option<&str> {
    match (change.old.as_deref(), change.new.as_deref()) {
        (Some(old), None) => old.spec.source.persistent_volume_name.as_deref(),
        // Another object under the same name: the old one may have named another volume.
        (Some(old), Some(new)) if old.metadata.uid != new.metadata.uid => {
            old.spec.source.persistent_volume_name.as_deref()
        }
        _ => None,
    }
}

/// Whether after a change of a volume our finalizer may be removed.
pub fn volume_wake(change: &Change<PersistentVolume>, rules: &Rules) -> Wake {
    match (change.old.as_deref(), change.new.as_deref()) {
        (_, None) => Wake::Forget,
        (old, Some(new)) if wants_release(new, rules) && !old.is_some_and(|old| wants_release(old, rules)) => Wake::Now,
        _ => Wake::No,
    }
}

/// Whether attachments of a volume that could not be attached should be tried now: the volume appeared, was replaced, or
/// its source changed.
pub fn volume_unblocks(change: &Change<PersistentVolume>) -> bool {
    match (change.old.as_deref(), change.new.as_deref()) {
        (None, Some(_)) => true,
        (Some(old), Some(new)) => old.metadata.uid != new.metadata.uid || old.spec != new.spec,
        (_, None) => false,
    }
}

/// Whether attachments to a node that could not be attached should be tried now: our driver appeared on it, or its id
/// changed (the Go sidecar waits out the back-off).
pub fn node_unblocks(change: &Change<CsiNode>, driver: &str) -> bool {
    let id = |node: Option<&CsiNode>| node.and_then(|node| node.node_id(driver)).map(str::to_owned);
    let (old, new) = (id(change.old.as_deref()), id(change.new.as_deref()));
    new.is_some() && old != new
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::roles::attacher::failure::TellingRules;
    use crate::roles::kit::EventsMode;
    use crate::roles::kit::fixtures::{change, merged};

    const DRIVER: &str = "demo.csi.example.com";
    const FINALIZER: &str = "external-attacher/demo-csi-example-com";

    fn attachment(extra: Value) -> Value {
        let object = json!({
            "metadata": { "name": "csi-1", "uid": "u1", "resourceVersion": "1" },
            "spec": { "attacher": DRIVER, "nodeName": "node-1", "source": { "persistentVolumeName": "pv-1" } },
        });
        merged(object, extra)
    }

    #[test]
    fn only_changes_that_we_never_make_wake_an_attachment() {
        let plain = json!({});
        let attached = json!({ "status": { "attached": true } });
        let ours = json!({ "metadata": { "finalizers": [FINALIZER],
            "annotations": { "csi.alpha.kubernetes.io/node-id": "id-1" } } });
        let failed = json!({ "status": { "attached": false, "attachError": { "message": "no" } } });
        let failed_again = json!({ "status": { "attached": false, "attachError": { "message": "still no" } } });
        let deleting = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        let other_uid = json!({ "metadata": { "uid": "u2" } });
        let cases = [
            (None, Some(&plain), Wake::Now, "created"),
            (Some(&plain), None, Wake::Forget, "deleted (R44)"),
            (Some(&plain), Some(&failed), Wake::No, "R1: our own error"),
            (Some(&failed), Some(&failed_again), Wake::No, "R1: our next error"),
            (Some(&plain), Some(&ours), Wake::No, "R49: our own finalizer and annotation"),
            (Some(&plain), Some(&attached), Wake::No, "our own success"),
            (Some(&failed), Some(&deleting), Wake::Now, "deleted by its user"),
            (Some(&plain), Some(&other_uid), Wake::Now, "a namesake (R44)"),
            (Some(&attached), Some(&plain), Wake::Now, "somebody undid our record"),
            (Some(&attached), Some(&failed), Wake::No, "we admit that it could not be attached again"),
        ];
        for (old, new, expected, what) in cases {
            let [old, new] = [old, new].map(|extra| extra.cloned().map(attachment));
            assert_eq!(attachment_wake(&change(old.as_ref(), new.as_ref()), DRIVER), expected, "{what}");
        }
    }

    #[test]
    fn r23_foreign_attachments_are_ignored_but_their_deletion_frees_volumes() {
        let foreign = attachment(json!({ "spec": { "attacher": "other.csi" } }));
        assert_eq!(attachment_wake(&change(None, Some(&foreign)), DRIVER), Wake::No);
        let gone = change(Some(&foreign), None);
        assert_eq!(volume_to_release(&gone), Some("pv-1"));
    }

    #[test]
    fn a_volume_wakes_when_it_becomes_releasable_and_not_at_each_change_after() {
        let rules = Rules {
            driver: DRIVER.into(),
            finalizer: FINALIZER.into(),
            publish_readonly: false,
            multi_writer: false,
            publishes: true,
            default_fs_type: String::new(),
            telling: TellingRules { error_codes: true, events: EventsMode::All },
            longest_pause: Duration::ZERO,
        };
        let kept = json!({ "metadata": { "name": "pv-1", "uid": "v", "finalizers": [FINALIZER] }, "spec": {} });
        let going = merged(kept.clone(), json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
        let cases = [
            (None, Some(&kept), Wake::No),
            (Some(&kept), Some(&going), Wake::Now),
            (None, Some(&going), Wake::Now),
            (Some(&going), Some(&going), Wake::No),
            (Some(&going), None, Wake::Forget),
        ];
        for (old, new, expected) in cases {
            assert_eq!(volume_wake(&change(old, new), &rules), expected, "{old:?} -> {new:?}");
        }
    }

    #[test]
    fn a_node_unblocks_when_our_driver_appears_or_its_id_changes() {
        let node = |drivers: Value| json!({ "metadata": { "name": "node-1" }, "spec": { "drivers": drivers } });
        let without = node(json!([]));
        let with = |id: &str| node(json!([{ "name": DRIVER, "nodeID": id }]));
        let cases = [
            (None, Some(without.clone()), false),
            (Some(without.clone()), Some(with("a")), true),
            (None, Some(with("a")), true),
            (Some(with("a")), Some(with("a")), false),
            // The kubelet of Kubernetes 1.37 may write the status.
            (Some(with("a")), Some(merged(with("a"), json!({ "status": { "storageHealth": [] } }))), false),
            (Some(with("a")), Some(with("b")), true),
            (Some(with("a")), Some(without), false),
        ];
        for (old, new, expected) in cases {
            assert_eq!(node_unblocks(&change(old.as_ref(), new.as_ref()), DRIVER), expected, "{old:?} -> {new:?}");
        }
    }
}
