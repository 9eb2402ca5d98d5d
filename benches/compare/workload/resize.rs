//! Bound claims ask for a larger volume, and then for another attributes class: csi-resizer's work.
//!
//! The bench plays the PersistentVolume controller, the same for everyone: it binds claims and volumes to each other before the clock
//! runs. Volumes are raw devices, so that no node has to act: an expansion is done when the claim has its new capacity. Volumes do not
//! shrink, so that what undoes the work elsewhere is here the other half of it: a modification, done when the claim has its class.

use std::ops::Range;

use csi_control_plane::cluster::quantity::bytes;
use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::roles::resizer::names;
use csi_control_plane::sandbox::driver::{Driver, Method, Profile};
use serde_json::{Value, json};

use super::attach::VOLUMES;
use super::provision::{CLAIMS, CLASSES, Provision, bound_claim};
use super::{Facts, Moment, Placed, There, Undo, Workload};
use crate::write::{Write, Writes};
use crate::{report, support};

const ATTRIBUTES_CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
/// The class of attributes that every claim asks for once it has grown.
const GOLD: &str = "gold";
/// What each claim has at first.
const BEFORE: &str = "1Gi";
/// What each claim asks for.
const AFTER: &str = "2Gi";

/// Claims grow, and change their class.
pub(crate) struct Resize;

fn name(number: usize) -> String {
    format!("data-{number}")
}

/// The volume of a claim, a raw device.
fn device(number: usize) -> Placed {
    let mut object = support::volume(number);
    object["metadata"] = json!({
        "name": object["metadata"]["name"], "annotations": object["metadata"]["annotations"],
    });
    object["spec"]["capacity"]["storage"] = BEFORE.into();
    object["spec"]["volumeMode"] = "Block".into();
    object["spec"]["csi"] = json!({ "driver": support::DRIVER, "volumeHandle": support::handle(number) });
    Placed { collection: VOLUMES, object }
}

/// The claim and its volume.
fn bound(number: usize) -> There {
    let mut claim = bound_claim(number);
    claim.object["spec"]["volumeMode"] = "Block".into();
    There::Bound { claim, volume: device(number) }
}

fn size(claim: &Value, pointer: &str) -> i64 {
    claim.pointer(pointer).and_then(Value::as_str).and_then(|text| bytes(text).ok()).unwrap_or_default()
}

impl Workload for Resize {
    fn facts(&self) -> Facts {
        Facts {
            name: "resize",
            sidecars: &["csi-resizer"],
            verbs: ["expand", "modify"],
            collection: CLAIMS,
            watched: &[CLAIMS],
            reading: |claim, is_gone| {
                let mut moments = Vec::new();
                let wanted = size(claim, "/spec/resources/requests/storage");
                if !is_gone && wanted > bytes(BEFORE).unwrap() {
                    moments.push(Moment::Begun);
                    if size(claim, "/status/capacity/storage") >= wanted {
                        moments.push(Moment::Done);
                    }
                }
                let class = &claim["spec"]["volumeAttributesClassName"];
                if !is_gone && class.is_string() {
                    moments.push(Moment::Deleted);
                    if claim["status"]["currentVolumeAttributesClassName"] == *class {
                        moments.push(Moment::Gone);
                    }
                }
                (claim["metadata"]["name"].as_str().unwrap().to_owned(), moments)
            },
            resources: &[
                "persistentvolumeclaims",
                "persistentvolumes",
                "volumeattributesclasses",
                "events",
                "pods",
                "secrets",
            ],
            leases: &["external-resizer-demo-csi-example-com"],
            methods: [Method::ControllerExpandVolume, Method::ControllerModifyVolume],
        }
    }

    fn suits(&self, kind: &str) -> bool {
        ["burst", "single", "start", "failover", "cut", "idle"].contains(&kind)
    }

    fn undo(&self, name: &str, _made: &str) -> Vec<Undo> {
        vec![Undo::Merge(CLAIMS, name.to_owned(), "", json!({ "spec": { "volumeAttributesClassName": GOLD } }))]
    }

    fn give_up(&self, name: &str, _made: &str) -> Vec<Undo> {
        // The API server lets nobody take the wish back.
        vec![Undo::Delete(CLAIMS, name.to_owned())]
    }

    fn collections(&self) -> Vec<&'static str> {
        Provision.collections()
    }

    fn ground(&self) -> Vec<Placed> {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "standard" },
            "provisioner": support::DRIVER, "allowVolumeExpansion": true, "volumeBindingMode": "Immediate",
        });
        let gold = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": { "name": GOLD },
            "driverName": support::DRIVER, "parameters": { "iops": "4000" },
        });
        vec![Placed { collection: CLASSES, object: class }, Placed { collection: ATTRIBUTES_CLASSES, object: gold }]
    }

    fn before(&self, number: usize) -> Vec<There> {
        vec![bound(number)]
    }

    fn object(&self, number: usize) -> Value {
        bound_claim(number).object
    }

    fn begin(&self, number: usize) -> Vec<Write> {
        let wish = json!({ "spec": { "resources": { "requests": { "storage": AFTER } } } });
        vec![Write::Merge(CLAIMS, name(number), "", wish)]
    }

    fn settled(&self, number: usize) -> Vec<There> {
        vec![bound(number)]
    }

    fn bare(&self) -> &'static [(&'static str, Writes)] {
        &[(report::BARE, |number| {
            let begun = json!({ "status": {
                "allocatedResources": { "storage": AFTER },
                "allocatedResourceStatuses": { "storage": names::CONTROLLER_RESIZE_IN_PROGRESS },
                "conditions": [{ "type": names::RESIZING, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            } });
            let done = json!({
                "metadata": { "annotations": { names::ANNOTATION_EXPANSION_NOT_REQUIRED: "true" } },
                "status": { "capacity": { "storage": AFTER }, "allocatedResourceStatuses": null, "conditions": null },
            });
            let grown = json!({ "spec": { "capacity": { "storage": AFTER } } });
            vec![
                Write::Merge(CLAIMS, name(number), "/status", begun),
                Write::Merge(VOLUMES, support::volume_name(number), "", grown),
                Write::Merge(CLAIMS, name(number), "/status", done),
            ]
        })]
    }

    fn profile(&self) -> Profile {
        let able = [Rpc::CreateDeleteVolume, Rpc::ExpandVolume, Rpc::ModifyVolume];
        Profile { controller: able.into_iter().map(|rpc| rpc as i32).collect(), ..Profile::default() }
    }

    fn seed_done(&self, driver: &Driver, numbers: Range<usize>) {
        self.seed(driver, numbers);
    }
}
