//! The cluster around the daemons: its objects, and what its people do with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use csi_control_plane::sandbox::api::pure::resources::{Resource, find};
use csi_control_plane::sandbox::api::{Api, PatchBody};
use csi_control_plane::sandbox::driver::Driver;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The driver's name.
pub(crate) const DRIVER: &str = "demo.csi.example.com";
/// The secret's value: it must not be seen anywhere else.
pub(crate) const MARKER: &str = "hunter2-do-not-tell";
/// The label and topology key of zones.
pub(crate) const ZONE: &str = "zone";
/// The label of the journal's objects.
pub(crate) const JOURNAL: &str = "csi-control-plane.io/journal";
/// Where everything is that has a namespace.
pub(crate) const NAMESPACE: &str = "default";

/// The claim that a scenario is about.
pub(crate) const DATA: &str = "data";
/// The source of its volume.
pub(crate) const SOURCE: &str = "source";

/// The acts of people.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) api: Api,
    pub(crate) driver: Driver,
    /// The handles of the volumes that a user has kept.
    pub(crate) kept: Arc<Mutex<BTreeSet<String>>>,
    /// The handles of the snapshots and groups that a user has kept, and since when.
    pub(crate) kept_cuts: Arc<Mutex<BTreeMap<String, Instant>>>,
}

impl World {
    /// A cluster and a driver of which nobody has kept anything.
    pub(crate) fn new(api: Api, driver: Driver) -> Self {
        Self { api, driver, kept: Arc::default(), kept_cuts: Arc::default() }
    }
}

/// The configuration of every daemon, up to the sections of its roles.
pub(crate) const COMMON_CONFIG: &str = "csi: { timeout: 2s }\n\
    kubernetes: { requestTimeout: 2s }\n\
    leaderElection: { leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 1s }\n\
    diagnostics: { listen: null }\n\
    roles:\n";

/// The daemons' configuration; `section` goes into the provisioner's.
pub(crate) fn config(section: &str) -> String {
    format!(
        "{COMMON_CONFIG}\
         \x20 provisioner:\n\
         \x20   retry: {{ initial: 200ms, max: 2s, infeasible: 2s }}\n\
         \x20   resync: 0s\n\
         \x20   snapshotSweepInterval: 0s\n\
         {section}"
    )
}

/// The same for daemons that take snapshots.
pub(crate) fn snapshot_config() -> String {
    COMMON_CONFIG.to_owned()
        + "\x20 snapshotter:\n\
           \x20   callTimeout: 2s\n\
           \x20   retry: { initial: 200ms, max: 2s, infeasible: 2s }\n\
           \x20   readyCheck: { initial: 200ms, max: 1s }\n\
           \x20   resync: 0s\n"
}

impl World {
    pub(crate) fn create(&self, object: Value) {
        let shown = object.to_string();
        self.api.create_value(object).unwrap_or_else(|error| panic!("{error}: {shown}"));
    }

    /// The class, with these parts besides.
    pub(crate) fn class(&self, parts: Value) {
        let mut class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": { "name": "gold" }, "provisioner": DRIVER });
        merge(&mut class, parts);
        self.create(class);
    }

    pub(crate) fn delete_class(&self) {
        self.api.delete::<StorageClass>("", "gold").unwrap();
    }

    /// A claim of 1 GiB, with these parts in its spec besides.
    pub(crate) fn claim(&self, name: &str, parts: Value) {
        let mut spec = json!({ "storageClassName": "gold", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } });
        merge(&mut spec, parts);
        self.create(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec }));
    }

    /// A claim that is made from another, or from a snapshot.
    pub(crate) fn claim_from(&self, kind: &str) {
        let group = if kind == "VolumeSnapshot" { json!("snapshot.storage.k8s.io") } else { json!(null) };
        let source = json!({ "apiGroup": group, "kind": kind, "name": SOURCE });
        self.claim(DATA, json!({ "dataSource": source }));
    }

    /// As a user keeps data: if the claim has its volume, that is set to `Retain`, and claim and PersistentVolume are deleted. Otherwise the
    /// claim is deleted. `by_force`: the finalizers, too.
    pub(crate) fn keep_data(&self, by_force: bool) {
        let bound = self.claims().into_iter().find(|it| name(it) == DATA && text(it, "/status/phase") == "Bound");
        self.delete_claim(DATA);
        let Some(volume) = bound.as_ref().map(|it| text(it, "/spec/volumeName")) else { return };
        let object = self.volumes().into_iter().find(|it| name(it) == volume).unwrap();
        self.kept.lock().unwrap().insert(text(&object, "/spec/csi/volumeHandle").to_owned());
        let patch = |patch| drop(self.api.patch::<PersistentVolume>("", volume, PatchBody::Merge(patch)).unwrap());
        patch(json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } }));
        let _ = self.api.delete::<PersistentVolume>("", volume);
        if by_force {
            patch(json!({ "metadata": { "finalizers": null } }));
        }
    }

    pub(crate) fn delete_claim(&self, name: &str) {
        let _ = self.api.delete::<PersistentVolumeClaim>(NAMESPACE, name);
    }

    /// A node that has the driver, in a zone.
    pub(crate) fn node(&self, name: &str, zone: &str) {
        self.create(json!({ "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": { ZONE: zone } } }));
        // As the kubelet says when it is up.
        let ready = PatchBody::Merge(json!({ "spec": { "taints": null } }));
        self.api.patch::<Node>("", name, ready).unwrap();
        let entry = json!({ "name": DRIVER, "nodeID": name, "topologyKeys": [ZONE] });
        self.create(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": { "name": name }, "spec": { "drivers": [entry] } }));
    }

    pub(crate) fn delete_node(&self, name: &str) {
        let _ = self.api.delete::<Node>("", name);
        let _ = self.api.delete::<CSINode>("", name);
    }

    /// A pod that uses the claim.
    pub(crate) fn pod(&self) {
        let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": DATA } });
        self.create(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "pod", "namespace": NAMESPACE },
            "spec": { "volumes": [volume], "containers": [{ "name": "c", "image": "example.com/none" }] } }));
    }

    pub(crate) fn delete_pod(&self) {
        let _ = self.api.delete::<Pod>(NAMESPACE, "pod");
    }

    /// The secret that a class may name.
    pub(crate) fn secret(&self) {
        self.create(json!({ "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": NAMESPACE, "name": "access" }, "data": { "password": STANDARD.encode(MARKER) } }));
    }

    /// Binds the claim to a volume that was there before.
    pub(crate) fn bind_elsewhere(&self) {
        self.driver.seed(["spare"]);
        self.create(json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "spare" },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "gold",
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": { "namespace": NAMESPACE, "name": DATA },
                "csi": { "driver": DRIVER, "volumeHandle": "spare" } } }));
        // Refused where the claim has its own volume already.
        let _ = self.api.patch::<PersistentVolumeClaim>(
            NAMESPACE,
            DATA,
            PatchBody::Merge(json!({ "spec": { "volumeName": "spare" } })),
        );
    }

    /// A ready snapshot of the source, as the snapshot controller leaves it.
    pub(crate) fn snapshot(&self) {
        let group = "snapshot.storage.k8s.io";
        let claim = self.claims().into_iter().find(|it| text(it, "/metadata/name") == SOURCE).unwrap();
        let volume = self.volumes().into_iter().find(|it| name(it) == text(&claim, "/spec/volumeName")).unwrap();
        let source = text(&volume, "/spec/csi/volumeHandle").to_owned();
        let handle = self.driver.cut_snapshot(SOURCE, &source).unwrap();
        let api_version = format!("{group}/v1");
        self.create(json!({ "apiVersion": api_version, "kind": "VolumeSnapshot",
            "metadata": { "name": SOURCE, "namespace": NAMESPACE },
            "spec": { "source": { "persistentVolumeClaimName": SOURCE } } }));
        let made = self.snapshots().remove(0);
        self.create(
            json!({ "apiVersion": api_version, "kind": "VolumeSnapshotContent", "metadata": { "name": SOURCE },
            "spec": { "driver": DRIVER, "deletionPolicy": "Delete", "sourceVolumeMode": "Filesystem",
                "source": { "volumeHandle": source },
                "volumeSnapshotRef": { "apiVersion": api_version, "kind": "VolumeSnapshot", "namespace": NAMESPACE,
                    "name": SOURCE, "uid": text(&made, "/metadata/uid") } } }),
        );
        let size = 1_i64 << 30;
        let content = json!({ "readyToUse": true, "restoreSize": size, "snapshotHandle": handle });
        let snapshot =
            json!({ "readyToUse": true, "restoreSize": size.to_string(), "boundVolumeSnapshotContentName": SOURCE });
        for (plural, namespace, status) in
            [("volumesnapshotcontents", "", content), ("volumesnapshots", NAMESPACE, snapshot)]
        {
            let patch = PatchBody::Merge(json!({ "status": status }));
            self.api.patch_object(find(group, "v1", plural).unwrap(), namespace, SOURCE, patch, true).unwrap();
        }
    }

    pub(crate) fn delete_snapshot(&self) {
        let kind = find("snapshot.storage.k8s.io", "v1", "volumesnapshots").unwrap();
        let _ = self.api.delete_object(kind, NAMESPACE, SOURCE);
    }

    pub(crate) fn claims(&self) -> Vec<Value> {
        self.all(find("", "v1", "persistentvolumeclaims").unwrap())
    }

    pub(crate) fn volumes(&self) -> Vec<Value> {
        self.all(find("", "v1", "persistentvolumes").unwrap())
    }

    pub(crate) fn attachments(&self) -> Vec<Value> {
        self.all(find("storage.k8s.io", "v1", "volumeattachments").unwrap())
    }

    pub(crate) fn snapshots(&self) -> Vec<Value> {
        self.all(find("snapshot.storage.k8s.io", "v1", "volumesnapshots").unwrap())
    }

    /// The uids of the claims that have an entry in the journal.
    pub(crate) fn entries(&self) -> Vec<String> {
        let segments = self.all(find("", "v1", "configmaps").unwrap());
        let ours = segments.iter().filter(|it| it["metadata"]["labels"][JOURNAL] == DRIVER);
        ours.flat_map(|it| it["data"].as_object().into_iter().flatten().map(|(uid, _)| uid.clone())).collect()
    }

    pub(crate) fn all(&self, kind: &'static Resource) -> Vec<Value> {
        self.api.objects(kind, "").unwrap().iter().map(|object| object.as_ref().clone()).collect()
    }
}

fn merge(object: &mut Value, parts: Value) {
    match (object, parts) {
        (Value::Object(object), Value::Object(parts)) => {
            for (key, part) in parts {
                merge(object.entry(key).or_insert(Value::Null), part);
            }
        }
        (object, part) => *object = part,
    }
}

/// The text at a path of members, or nothing.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// An object's name.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// An object's finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether an object is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}
