//! The objects that kubelets, people and the attach/detach controller would create, and the daemons' configuration.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A daemon's configuration with both roles and short times. What the driver is asked has all the time that a test may take: a
/// call that is held is never given up before it is let go. And no busy machine takes the Lease from who can renew it.
pub(crate) fn config() -> Value {
    json!({
        "csi": { "timeout": "60s" },
        "leaderElection": { "leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s" },
        "roles": {
            "attacher": { "retry": { "initial": "50ms", "max": "400ms" }, "resync": "0s" },
            "reconciler": { "interval": "200ms", "pageTimeout": "2s" },
        },
    })
}

/// The configuration of a scenario that waits for a Lease to expire.
pub(crate) fn short_lease() -> Value {
    json!({ "leaderElection": { "leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "500ms" } })
}

/// The same with `overrides` merged in.
pub(crate) fn config_with(overrides: Value) -> Value {
    let mut config = config();
    merge(&mut config, overrides);
    config
}

/// Merges `from` into `into`: null removes.
pub(crate) fn merge(into: &mut Value, from: Value) {
    let Value::Object(from) = from else {
        *into = from;
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in from {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(&key);
        } else {
            merge(&mut into[key], value);
        }
    }
}

/// A volume of a CSI driver.
pub(crate) fn volume(name: &str, driver: &str, handle: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "1Gi" },
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": { "driver": driver, "volumeHandle": handle },
        },
    })
}

/// What the attach/detach controller creates when a pod with the volume is bound to the node.
pub(crate) fn attachment(name: &str, driver: &str, volume: &str, node: &str) -> Value {
    attachment_of(name, driver, node, &json!({ "persistentVolumeName": volume }))
}

/// An attachment of any source.
pub(crate) fn attachment_of(name: &str, driver: &str, node: &str, source: &Value) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": { "name": name },
        "spec": { "attacher": driver, "nodeName": node, "source": source },
    })
}

/// The attachment's name as the attach/detach controller makes it.
pub(crate) fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    let digest = Sha256::digest(format!("{handle}{driver}{node}"));
    digest.iter().fold("csi-".to_owned(), |mut name, byte| {
        write!(name, "{byte:02x}").unwrap();
        name
    })
}
