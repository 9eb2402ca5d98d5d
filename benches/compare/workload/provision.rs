//! Claims become volumes, at once and wherever, and are deleted again: csi-provisioner's work.
//!
//! The bench plays the PersistentVolume controller, the same for everyone: a claim is created with the annotation that asks for
//! a provisioner, is never bound, and is undone by deleting it and calling its volume Released. The real controller would bind
//! and release with requests and a pace of its own, which would be measured with everyone's.

use std::ops::Range;

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::{Driver, Method, Profile};
use serde_json::{Value, json};

use super::attach::VOLUMES;
use super::{Facts, Moment, Placed, There, Undo, Workload};
use crate::write::{Write, Writes};
use crate::{report, support};

pub(super) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(super) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
/// Where a client that only writes keeps its journal. The daemon's own is another.
const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const JOURNAL: &str = "bare-journal";
/// How many claims share a write to it: as many as come while the daemon's writes are under way.
const BATCH: usize = 50;
/// A batch is done with when so many others have begun: more are never under way.
const BATCHES: usize = 4;

/// Claims become volumes, and are deleted.
pub(crate) struct Provision;

/// The claim of a number.
pub(super) fn claim(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": format!("data-{number}"), "namespace": "default",
            "annotations": { "volume.kubernetes.io/storage-provisioner": support::DRIVER },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "standard",
            "resources": { "requests": { "storage": "1Gi" } },
        },
    })
}

/// The class of all of them.
pub(super) fn class() -> Placed {
    let object = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "standard" },
        "provisioner": support::DRIVER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
    });
    Placed { collection: CLASSES, object }
}

/// A driver that makes, deletes, publishes and unpublishes volumes, has room for all, and does nothing else.
pub(super) fn profile(base: Profile) -> Profile {
    let controller = [Rpc::CreateDeleteVolume as i32, Rpc::PublishUnpublishVolume as i32].into_iter().collect();
    Profile { controller, capacity: i64::MAX, ..base }
}

impl Workload for Provision {
    fn facts(&self) -> Facts {
        Facts {
            name: "provision",
            sidecars: &["csi-provisioner"],
            verbs: ["provision", "delete"],
            collection: CLAIMS,
            watched: &[CLAIMS, VOLUMES],
            reading: |object, is_gone| {
                if object["kind"] == "PersistentVolumeClaim" {
                    return (object["metadata"]["name"].as_str().unwrap().to_owned(), vec![Moment::Begun]);
                }
                let is_deleted = !object["metadata"]["deletionTimestamp"].is_null();
                let mut moments = vec![Moment::Done];
                if object["status"]["phase"] == "Released" || is_deleted {
                    moments.push(Moment::Deleted);
                }
                if is_gone {
                    moments.push(Moment::Gone);
                }
                (object["spec"]["claimRef"]["name"].as_str().unwrap_or_default().to_owned(), moments)
            },
            resources: &[
                "configmaps",
                "persistentvolumeclaims",
                "persistentvolumes",
                "storageclasses",
                "volumeattachments",
                "csidrivers",
                "csinodes",
                "nodes",
                "events",
                "secrets",
            ],
            leases: &["demo-csi-example-com"],
            methods: [Method::CreateVolume, Method::DeleteVolume],
        }
    }

    fn suits(&self, kind: &str) -> bool {
        ["burst", "single", "start"].contains(&kind)
    }

    fn undo(&self, name: &str, made: &str) -> Vec<Undo> {
        let mut undo = vec![Undo::Delete(CLAIMS, name.to_owned())];
        if !made.is_empty() {
            let released = json!({ "status": { "phase": "Released" } });
            undo.push(Undo::Merge(VOLUMES, made.to_owned(), "/status", released));
        }
        undo
    }

    fn collections(&self) -> Vec<&'static str> {
        vec![CLAIMS, VOLUMES]
    }

    fn ground(&self) -> Vec<Placed> {
        let metadata = json!({ "name": JOURNAL, "namespace": "kube-system" });
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
        vec![class(), Placed { collection: CONFIG_MAPS, object }]
    }

    fn before(&self, _number: usize) -> Vec<There> {
        Vec::new()
    }

    fn object(&self, number: usize) -> Value {
        claim(number)
    }

    fn settled(&self, number: usize) -> Vec<There> {
        settled(number)
    }

    fn bare(&self) -> &'static [(&'static str, Writes)] {
        fn volume(number: usize) -> Write {
            Write::Create(made(number))
        }
        &[
            (report::BARE_WITHOUT_INTENT, |number| vec![volume(number)]),
            (report::BARE, |number| {
                let first = number.is_multiple_of(BATCH).then(|| record(number));
                first.into_iter().chain([volume(number)]).collect()
            }),
        ]
    }

    fn profile(&self) -> Profile {
        profile(Profile::default())
    }

    fn seed(&self, _driver: &Driver, _numbers: Range<usize>) {}

    fn seed_done(&self, driver: &Driver, numbers: Range<usize>) {
        let handles: Vec<String> = numbers.map(support::handle).collect();
        driver.seed(handles.iter().map(String::as_str));
    }
}

/// What the daemon writes to its journal for the batch that begins with this number, and what it removes with that.
fn record(number: usize) -> Write {
    let entry = |number: usize| {
        let (name, uid) = (format!("data-{number}"), format!("{number:08}-0000-4000-8000-000000000000"));
        let volume = json!({ "driver": support::DRIVER, "name": format!("pvc-{uid}"), "class": "standard",
            "classUid": "00000000-0000-4000-8000-000000000000", "reclaimPolicy": "Delete", "accessModes": ["ReadWriteOnce"],
            "claim": { "namespace": "default", "name": name, "uid": uid, "resourceVersion": "1000000" } });
        let request = json!({ "volumeName": format!("pvc-{uid}"), "requiredBytes": 1 << 30,
            "modes": ["SINGLE_NODE_WRITER"], "persistentVolume": volume });
        (uid, json!({ "at": "2026-01-01T00:00:00.000Z", "request": request }).to_string())
    };
    let recorded = (number..number + BATCH).map(entry).map(|(uid, text)| (uid, Value::from(text)));
    let done = number.checked_sub(BATCHES * BATCH).into_iter().flat_map(|first| first..first + BATCH);
    let removed = done.map(|number| (entry(number).0, Value::Null));
    let data: serde_json::Map<String, Value> = recorded.chain(removed).collect();
    Write::Merge(CONFIG_MAPS, JOURNAL.to_owned(), "", json!({ "data": data }))
}

/// A claim and a volume that are bound to each other.
pub(super) fn settled(number: usize) -> Vec<There> {
    vec![There::Bound { claim: bound_claim(number), volume: made(number) }]
}

/// The claim of a number, bound to the volume of that number.
pub(super) fn bound_claim(number: usize) -> Placed {
    let mut object = claim(number);
    object["spec"]["volumeName"] = support::volume_name(number).into();
    object["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes".into();
    Placed { collection: CLAIMS, object }
}

/// The volume that was made for a claim.
fn made(number: usize) -> Placed {
    let mut object = support::volume(number);
    object["metadata"] = json!({
        "name": object["metadata"]["name"], "annotations": object["metadata"]["annotations"],
        "finalizers": ["kubernetes.io/pv-protection", names::FINALIZER_PROVISIONER, support::FINALIZER],
    });
    Placed { collection: VOLUMES, object }
}
