//! Pods come with two volumes each, go, and come again: the work of the attach/detach controller of kube-controller-manager, which makes
//! and deletes the VolumeAttachments and reports to each node what is attached to it.
//!
//! Two numbers are a pod: `2n` and `2n + 1` are its volumes, and the even one begins and undoes both. No kubelet uses the volumes. The bench
//! plays the attacher, the same for everyone: it attaches at once.

use std::ops::Range;

use csi_control_plane::sandbox::driver::{Driver, Method, Profile};
use serde_json::{Value, json};

use super::attach::{ATTACHMENTS, VOLUMES};
use super::provision::{CLAIMS, bound_claim};
use super::{Facts, Placed, There, Undo, Workload, life};
use crate::write::{Write, Writes};
use crate::{report, support};

/// Whose work it is.
pub(crate) const MANAGER: &str = "kube-controller-manager";

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";
const NODES: &str = "/api/v1/nodes";
/// Pods are spread over so many nodes.
const NODE_COUNT: usize = 50;

/// Pods with two volumes each.
pub(crate) struct Pods;

fn pod_name(number: usize) -> String {
    format!("pod-{}", number / 2)
}

fn node(number: usize) -> String {
    support::node_name(number / 2 % NODE_COUNT)
}

/// A claim and its volume, which one node may have at a time.
fn bound(number: usize) -> There {
    let mut object = support::volume(number);
    object["metadata"] = json!({ "name": object["metadata"]["name"] });
    There::Bound { claim: bound_claim(number), volume: Placed { collection: VOLUMES, object } }
}

/// A node that is ready and whose kubelet leaves attaching to a controller.
fn ready_node(number: usize) -> There {
    let managed = json!({ "volumes.kubernetes.io/controller-managed-attach-detach": "true" });
    let object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": support::node_name(number), "annotations": managed }, "spec": {},
    });
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    There::Object(Placed { collection: NODES, object }, Some(ready))
}

/// The pod of two numbers.
fn pod(number: usize) -> Value {
    let volume = |number: usize| json!({ "name": format!("data-{number}"), "persistentVolumeClaim": { "claimName": format!("data-{number}") } });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": pod_name(number), "namespace": "default" },
        "spec": {
            "nodeName": node(number), "automountServiceAccountToken": false,
            "containers": [{ "name": "database", "image": "registry.example.com/database:16.2" }],
            "volumes": [volume(number), volume(number + 1)],
        },
    })
}

impl Workload for Pods {
    fn facts(&self) -> Facts {
        Facts {
            name: "pods",
            sidecars: &[MANAGER],
            verbs: ["attach", "detach"],
            collection: ATTACHMENTS,
            watched: &[ATTACHMENTS],
            // By the volume: the attachment's name is a checksum.
            reading: |object, is_gone| {
                let (_, moments) = life(object, object["status"]["attached"] == true, is_gone);
                (object["spec"]["source"]["persistentVolumeName"].as_str().unwrap().to_owned(), moments)
            },
            resources: &[
                "volumeattachments",
                "persistentvolumes",
                "persistentvolumeclaims",
                "pods",
                "nodes",
                "csidrivers",
                "csinodes",
                "events",
            ],
            leases: &[],
            methods: [Method::ControllerPublishVolume, Method::ControllerUnpublishVolume],
        }
    }

    fn suits(&self, kind: &str) -> bool {
        kind == "burst"
    }

    fn repeats(&self) -> bool {
        true
    }

    fn is_attached_here(&self) -> bool {
        true
    }

    fn undo(&self, name: &str, _made: &str) -> Vec<Undo> {
        let number = name.rsplit('-').next().and_then(|digits| usize::from_str_radix(digits, 16).ok()).unwrap();
        if number.is_multiple_of(2) { vec![Undo::Delete(PODS, pod_name(number))] } else { Vec::new() }
    }

    fn collections(&self) -> Vec<&'static str> {
        vec![PODS, ATTACHMENTS, CLAIMS, VOLUMES, NODES]
    }

    fn ground(&self) -> Vec<Placed> {
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": "default" } });
        let driver = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": support::DRIVER },
            "spec": { "attachRequired": true },
        });
        vec![Placed { collection: ACCOUNTS, object: account }, Placed { collection: DRIVERS, object: driver }]
    }

    fn before(&self, number: usize) -> Vec<There> {
        let node = (number < NODE_COUNT).then(|| ready_node(number));
        let volumes = if number.is_multiple_of(2) { vec![bound(number), bound(number + 1)] } else { Vec::new() };
        node.into_iter().chain(volumes).collect()
    }

    fn object(&self, number: usize) -> Value {
        json!({ "metadata": { "name": support::volume_name(number) } })
    }

    fn begin(&self, number: usize) -> Vec<Write> {
        if number.is_multiple_of(2) {
            vec![Write::Create(Placed { collection: PODS, object: pod(number) })]
        } else {
            Vec::new()
        }
    }

    fn settled(&self, _number: usize) -> Vec<There> {
        Vec::new()
    }

    fn bare(&self) -> &'static [(&'static str, Writes)] {
        &[(report::BARE, |number| {
            let mut object = support::new_attachment(number);
            object["spec"]["nodeName"] = node(number).into();
            vec![Write::Create(Placed { collection: ATTACHMENTS, object })]
        })]
    }

    fn profile(&self) -> Profile {
        Profile::default()
    }

    fn seed_done(&self, _driver: &Driver, _numbers: Range<usize>) {}
}
