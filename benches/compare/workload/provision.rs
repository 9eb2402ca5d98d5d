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
use super::{Moment, Placed, Reading, Undo, Workload};
use crate::bare::{Write, Writes, mark};
use crate::{report, support};

pub(super) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(super) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

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
    fn name(&self) -> &'static str {
        "provision"
    }

    fn prefix(&self) -> &'static str {
        "provision-"
    }

    fn sidecars(&self) -> &'static [&'static str] {
        &["csi-provisioner"]
    }

    fn suits(&self, kind: &str) -> bool {
        ["burst", "single", "start"].contains(&kind)
    }

    fn verbs(&self) -> [&'static str; 2] {
        ["provision", "delete"]
    }

    fn collection(&self) -> &'static str {
        CLAIMS
    }

    fn watched(&self) -> &'static [&'static str] {
        &[CLAIMS, VOLUMES]
    }

    fn reading(&self) -> Reading {
        |object, is_gone| {
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
        }
    }

    fn undo(&self, name: &str, made: &str) -> Vec<Undo> {
        let mut undo = vec![Undo::Delete(CLAIMS, name.to_owned())];
        if !made.is_empty() {
            undo.push(Undo::Status(VOLUMES, made.to_owned(), json!({ "phase": "Released" })));
        }
        undo
    }

    fn collections(&self) -> Vec<&'static str> {
        vec![CLAIMS, VOLUMES]
    }

    fn resources(&self) -> &'static [&'static str] {
        &[
            "persistentvolumeclaims",
            "persistentvolumes",
            "storageclasses",
            "volumeattachments",
            "csinodes",
            "nodes",
            "events",
            "secrets",
        ]
    }

    fn leases(&self) -> &'static [&'static str] {
        &["demo-csi-example-com"]
    }

    fn ground(&self) -> Vec<Placed> {
        vec![class()]
    }

    fn before(&self, _number: usize) -> Vec<Placed> {
        Vec::new()
    }

    fn object(&self, number: usize) -> Value {
        claim(number)
    }

    fn settled(&self, number: usize) -> Vec<(Placed, Option<Value>)> {
        settled(number)
    }

    fn bare(&self) -> &'static [(&'static str, Writes)] {
        const INTENT: &str = r#"{"v":1,"driver":"demo.csi.example.com","class":{"name":"standard","uid":"00000000-0000-4000-8000-000000000000"},"digest":"0011223344556677"}"#;
        fn volume(number: usize) -> Write {
            Write::Create(made(number))
        }
        &[
            (report::BARE_WITHOUT_INTENT, |number| vec![volume(number)]),
            (report::BARE, |number| {
                let marked = mark(names::FINALIZER_PROVISIONER, names::ANNOTATION_PROVISIONING, INTENT);
                vec![Write::Merge(CLAIMS, format!("data-{number}"), "", marked), volume(number)]
            }),
        ]
    }

    fn profile(&self) -> Profile {
        profile(Profile::default())
    }

    fn methods(&self) -> [Method; 2] {
        [Method::CreateVolume, Method::DeleteVolume]
    }

    fn seed(&self, _driver: &Driver, _numbers: Range<usize>) {}

    fn seed_done(&self, driver: &Driver, numbers: Range<usize>) {
        let handles: Vec<String> = numbers.map(support::handle).collect();
        driver.seed(handles.iter().map(String::as_str));
    }
}

/// A claim and a volume that are bound to each other.
pub(super) fn settled(number: usize) -> Vec<(Placed, Option<Value>)> {
    let mut claim = claim(number);
    claim["spec"]["volumeName"] = support::volume_name(number).into();
    claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes".into();
    let bound = Some(json!({ "phase": "Bound" }));
    vec![(Placed { collection: CLAIMS, object: claim }, bound.clone()), (made(number), bound)]
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
