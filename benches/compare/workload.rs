//! What is to be done, many times over: the objects, when one is done, and what the driver was asked.

use std::collections::BTreeMap;
use std::ops::Range;

use csi_control_plane::sandbox::driver::{Driver, Method, Profile};
use serde_json::{Value, json};

use crate::support;

/// An object and the URL of its collection.
pub(crate) struct Placed {
    pub(crate) collection: &'static str,
    pub(crate) object: Value,
}

/// What is to be done, many times over.
pub(crate) trait Workload: Send + Sync {
    /// The sidecar whose work it is.
    fn sidecar(&self) -> &'static str;
    /// What doing and undoing it is called.
    fn verbs(&self) -> [&'static str; 2];
    /// Where an object is created to have it done, watched, and deleted to have it undone.
    fn collection(&self) -> &'static str;
    /// Every collection that holds objects of one time. They are emptied before the next.
    fn collections(&self) -> Vec<&'static str>;
    /// The resources that a contender's requests for it are about.
    fn resources(&self) -> &'static [&'static str];
    /// The Lease that its contenders share.
    fn lease(&self) -> &'static str;

    /// What is there before everything else.
    fn ground(&self) -> Vec<Placed>;
    /// What is there before the object of this number.
    fn before(&self, number: usize) -> Vec<Placed>;
    /// The object of this number.
    fn object(&self, number: usize) -> Value;
    /// The same, done: what is to be merged into its metadata and its status.
    fn done(&self, number: usize) -> (Value, Value);
    /// Whether an object is done.
    fn done_test(&self) -> fn(&Value) -> bool;

    /// The driver.
    fn profile(&self) -> Profile;
    /// The RPCs that do and undo it.
    fn methods(&self) -> [Method; 2];
    /// What the driver has to know before.
    fn seed(&self, driver: &Driver, numbers: Range<usize>);
    /// What it would know if all of these were done.
    fn seed_done(&self, driver: &Driver, numbers: Range<usize>);
}

/// How many calls of this method came beyond one for each volume.
pub(crate) fn duplicates(driver: &Driver, method: Method) -> usize {
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    for call in driver.calls_of(method) {
        *calls.entry(call.volume.unwrap_or_default()).or_default() += 1;
    }
    calls.values().map(|count| count - 1).sum()
}

/// Volumes that are there are attached to nodes and detached.
pub(crate) struct Attach;

const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const NODES: &str = "/apis/storage.k8s.io/v1/csinodes";
const VOLUMES: &str = "/api/v1/persistentvolumes";

impl Workload for Attach {
    fn sidecar(&self) -> &'static str {
        "csi-attacher"
    }

    fn verbs(&self) -> [&'static str; 2] {
        ["attach", "detach"]
    }

    fn collection(&self) -> &'static str {
        ATTACHMENTS
    }

    fn collections(&self) -> Vec<&'static str> {
        vec![ATTACHMENTS, VOLUMES]
    }

    fn resources(&self) -> &'static [&'static str] {
        &["volumeattachments", "persistentvolumes", "csinodes", "events", "secrets"]
    }

    fn lease(&self) -> &'static str {
        "external-attacher-leader-demo-csi-example-com"
    }

    fn ground(&self) -> Vec<Placed> {
        (0..support::NODES).map(|number| Placed { collection: NODES, object: support::node(number) }).collect()
    }

    fn before(&self, number: usize) -> Vec<Placed> {
        let mut object = support::volume(number);
        // As a provisioner leaves it: not yet protected by the attacher.
        object["metadata"] = json!({
            "name": object["metadata"]["name"], "annotations": object["metadata"]["annotations"],
            "finalizers": ["kubernetes.io/pv-protection"],
        });
        vec![Placed { collection: VOLUMES, object }]
    }

    fn object(&self, number: usize) -> Value {
        support::new_attachment(number)
    }

    fn done(&self, number: usize) -> (Value, Value) {
        let object = support::attachment(number, 1);
        let metadata = json!({
            "finalizers": object["metadata"]["finalizers"], "annotations": object["metadata"]["annotations"],
        });
        (metadata, object["status"].clone())
    }

    fn done_test(&self) -> fn(&Value) -> bool {
        |object| object["status"]["attached"] == true
    }

    fn profile(&self) -> Profile {
        let ids: Vec<String> = (0..support::NODES).map(support::node_id).collect();
        Profile::with_nodes(ids.iter().map(String::as_str))
    }

    fn methods(&self) -> [Method; 2] {
        [Method::ControllerPublishVolume, Method::ControllerUnpublishVolume]
    }

    fn seed(&self, driver: &Driver, numbers: Range<usize>) {
        let handles: Vec<String> = numbers.map(support::handle).collect();
        driver.seed(handles.iter().map(String::as_str));
    }

    fn seed_done(&self, driver: &Driver, numbers: Range<usize>) {
        driver.change_state(|state| {
            for number in numbers {
                state.attach_behind(&support::handle(number), &support::node_id(number));
            }
        });
    }
}
