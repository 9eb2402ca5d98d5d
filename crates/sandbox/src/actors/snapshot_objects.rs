//! What the snapshot-controller writes: contents, and the status of snapshots. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{annotation, place, text, uid};

/// Holds a content until the storage is clean.
pub(super) const CONTENT_BOUND: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// Holds a snapshot until its content is gone.
pub(super) const SNAPSHOT_BOUND: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
/// Holds a snapshot that a volume is made from.
pub(super) const SNAPSHOT_SOURCE: &str = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// Holds a claim until its snapshots are ready.
pub(super) const BOUND_CLAIM: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";
/// On a content: its snapshot is deleted.
pub(super) const BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";

/// On a content: the driver's id of the group that its snapshot is a member of.
pub(super) const MEMBER: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";

const DEFAULT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// The keys of a class that name a secret, and the annotations of a content that do.
pub(super) const SECRETS: [(&str, &str); 2] = [
    ("csi.storage.k8s.io/snapshotter-secret-name", "snapshot.storage.kubernetes.io/deletion-secret-name"),
    ("csi.storage.k8s.io/snapshotter-secret-namespace", "snapshot.storage.kubernetes.io/deletion-secret-namespace"),
];

/// Whether a snapshot was reported ready to use.
pub(super) fn is_ready(snapshot: &Value) -> bool {
    snapshot.pointer("/status/readyToUse") == Some(&Value::Bool(true))
}

/// Whether a content names this snapshot: by uid, once it has one.
pub(super) fn is_for(content: &Value, snapshot: &Value) -> bool {
    let named = |field: &str| text(content, &format!("/spec/volumeSnapshotRef/{field}"));
    (named("namespace"), named("name")) == place(snapshot) && [uid(snapshot), ""].contains(&named("uid"))
}

/// The class that a snapshot names, or the only default class of the volume's driver.
pub(super) fn class_for<'a>(classes: &'a [Arc<Value>], snapshot: &Value, volume: &Value) -> Option<&'a Value> {
    let named = text(snapshot, "/spec/volumeSnapshotClassName");
    let fits = |class: &Value| {
        let is_default = annotation(class, DEFAULT_CLASS) == Some("true");
        let is_of_driver = text(class, "/driver") == text(volume, "/spec/csi/driver");
        if named.is_empty() { is_default && is_of_driver } else { place(class).1 == named }
    };
    let mut found = classes.iter().filter(|class| fits(class));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// The content of a snapshot that is to be cut of a volume; none if that is not CSI's.
pub(super) fn content_for(name: &str, snapshot: &Value, volume: &Value, class: &Value) -> Option<Value> {
    let handle = Some(text(volume, "/spec/csi/volumeHandle")).filter(|it| !it.is_empty())?;
    let (namespace, of) = place(snapshot);
    let mut content = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": {"name": name}, "spec": {
            "deletionPolicy": class.get("deletionPolicy"), "driver": class.get("driver"),
            "source": {"volumeHandle": handle}, "volumeSnapshotClassName": place(class).1,
            "volumeSnapshotRef": {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "namespace": namespace, "name": of, "uid": uid(snapshot),
                "resourceVersion": text(snapshot, "/metadata/resourceVersion")}}});
    if let Some(mode) = volume.pointer("/spec/volumeMode") {
        content["spec"]["sourceVolumeMode"] = mode.clone();
    }
    for (key, written) in SECRETS {
        if let Some(template) = class.get("parameters").and_then(|it| it.get(key)?.as_str()) {
            let resolved = template
                .replace("${volumesnapshotcontent.name}", name)
                .replace("${volumesnapshot.namespace}", namespace)
                .replace("${volumesnapshot.name}", of);
            content["metadata"]["annotations"][written] = resolved.into();
        }
    }
    Some(content)
}

/// A snapshot's status, from its content. Null: there is nothing to write.
pub(super) fn copied_status(content: &Value) -> Value {
    let of_content = |member: &str| content.get("status").and_then(|it| it.get(member));
    let time = of_content("creationTime").and_then(Value::as_i64).and_then(|nanoseconds| {
        let time = Timestamp::from_nanosecond(nanoseconds.into()).ok()?;
        Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
    });
    let is_ready = of_content("readyToUse") == Some(&Value::Bool(true));
    json!({
        "boundVolumeSnapshotContentName": place(content).1,
        "creationTime": time,
        "readyToUse": is_ready,
        "restoreSize": of_content("restoreSize").and_then(Value::as_i64).map(|size| size.to_string()),
        "error": of_content("error").filter(|_| !is_ready),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, is_default: bool, driver: &str) -> Arc<Value> {
        Arc::new(json!({"metadata": {"name": name, "annotations": {DEFAULT_CLASS: is_default.to_string()}},
            "driver": driver, "deletionPolicy": "Delete", "parameters": {
                SECRETS[0].0: "of-${volumesnapshot.name}", SECRETS[1].0: "${volumesnapshot.namespace}"}}))
    }

    fn volume() -> Value {
        json!({"spec": {"csi": {"driver": "d", "volumeHandle": "h"}, "volumeMode": "Block"}})
    }

    #[test]
    fn the_default_class_is_the_only_one_of_the_driver() {
        let classes = [class("other", true, "e"), class("plain", false, "d"), class("first", true, "d")];
        let name = |classes: &[Arc<Value>], snapshot: &Value| {
            class_for(classes, snapshot, &volume()).map(|it| place(it).1.to_owned())
        };
        assert_eq!(name(&classes, &json!({})).as_deref(), Some("first"));
        let named = json!({"spec": {"volumeSnapshotClassName": "other"}});
        assert_eq!(name(&classes, &named).as_deref(), Some("other"), "whatever its driver");
        assert_eq!(name(&classes[..2], &json!({})), None);
        let two = [class("first", true, "d"), class("second", true, "d")];
        assert_eq!(name(&two, &json!({})), None);
    }

    #[test]
    fn a_content_has_what_class_and_volume_say() {
        let snapshot = json!({"metadata": {"namespace": "ns", "name": "s", "uid": "u"}});
        let content = content_for("c", &snapshot, &volume(), &class("first", true, "d")).unwrap();
        assert!(is_for(&content, &snapshot));
        assert!(!is_for(&content, &json!({"metadata": {"namespace": "ns", "name": "s", "uid": "v"}})));
        assert_eq!(content["spec"]["sourceVolumeMode"], "Block");
        assert_eq!(content["metadata"]["annotations"], json!({SECRETS[0].1: "of-s", SECRETS[1].1: "ns"}));
        assert_eq!(content_for("c", &snapshot, &json!({"spec": {"nfs": {}}}), &class("first", true, "d")), None);
    }

    #[test]
    fn a_ready_snapshot_is_told_of_no_error() {
        let told = |ready: bool| {
            let status = json!({"readyToUse": ready, "error": {"message": "m"}, "restoreSize": 5,
                "creationTime": 1_000_000_000});
            copied_status(&json!({"metadata": {"name": "c"}, "status": status}))
        };
        assert_eq!((&told(true)["error"], &told(false)["error"]), (&Value::Null, &json!({"message": "m"})));
        assert_eq!(
            (&told(true)["creationTime"], &told(true)["restoreSize"]),
            (&json!("1970-01-01T00:00:01Z"), &json!("5"))
        );
        let bare = copied_status(&json!({"metadata": {"name": "c"}}));
        assert_eq!((&bare["readyToUse"], &bare["creationTime"]), (&json!(false), &Value::Null));
    }
}
