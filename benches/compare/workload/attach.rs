//! Volumes that are there are attached to nodes and detached: csi-attacher's work.

use std::ops::Range;

use csi_control_plane::cluster::names;
use csi_control_plane::sandbox::driver::{Driver, Method, Profile};
use serde_json::{Value, json};

use super::{Facts, Placed, There, Undo, Workload, life};
use crate::write::{Write, Writes, mark};
use crate::{report, support};

/// Volumes that are there are attached to nodes and detached.
pub(crate) struct Attach;

pub(crate) const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
pub(crate) const NODES: &str = "/apis/storage.k8s.io/v1/csinodes";
pub(super) const VOLUMES: &str = "/api/v1/persistentvolumes";

impl Workload for Attach {
    fn facts(&self) -> Facts {
        Facts {
            name: "attach",
            sidecars: &["csi-attacher"],
            verbs: ["attach", "detach"],
            collection: ATTACHMENTS,
            watched: &[ATTACHMENTS],
            reading: |object, is_gone| life(object, object["status"]["attached"] == true, is_gone),
            resources: &["volumeattachments", "persistentvolumes", "csidrivers", "csinodes", "events", "secrets"],
            leases: &["external-attacher-leader-demo-csi-example-com"],
            methods: [Method::ControllerPublishVolume, Method::ControllerUnpublishVolume],
        }
    }

    fn prefix(&self) -> String {
        // The first workload that there was: its scenarios have the plain names.
        String::new()
    }

    fn suits(&self, kind: &str) -> bool {
        !["first-attach", "refresh"].contains(&kind)
    }

    fn repeats(&self) -> bool {
        // The volume has the attacher's finalizer by then.
        true
    }

    fn undo(&self, name: &str, _made: &str) -> Vec<Undo> {
        vec![Undo::Delete(ATTACHMENTS, name.to_owned())]
    }

    fn collections(&self) -> Vec<&'static str> {
        vec![ATTACHMENTS, VOLUMES]
    }

    fn ground(&self) -> Vec<Placed> {
        (0..support::NODES).map(|number| Placed { collection: NODES, object: support::node(number) }).collect()
    }

    fn before(&self, number: usize) -> Vec<There> {
        let mut object = support::volume(number);
        // As a provisioner leaves it: not yet protected by the attacher.
        object["metadata"] = json!({
            "name": object["metadata"]["name"], "annotations": object["metadata"]["annotations"],
            "finalizers": ["kubernetes.io/pv-protection"],
        });
        vec![There::plain(Placed { collection: VOLUMES, object })]
    }

    fn object(&self, number: usize) -> Value {
        support::new_attachment(number)
    }

    fn settled(&self, number: usize) -> Vec<There> {
        let whole = support::attachment(number, 1);
        let mut object = support::new_attachment(number);
        object["metadata"]["finalizers"] = whole["metadata"]["finalizers"].clone();
        object["metadata"]["annotations"] = whole["metadata"]["annotations"].clone();
        let mut settled = self.before(number);
        settled.push(There::Object(Placed { collection: ATTACHMENTS, object }, Some(whole["status"].clone())));
        settled
    }

    fn bare(&self) -> &'static [(&'static str, Writes)] {
        &[(report::BARE, |number| {
            let name = support::attachment_name(number);
            let marked = mark(support::FINALIZER, names::ANNOTATION_NODE_ID, &support::node_id(number));
            let protected =
                json!({ "metadata": { "finalizers": ["kubernetes.io/pv-protection", support::FINALIZER] } });
            vec![
                Write::Merge(VOLUMES, support::volume_name(number), "", protected),
                Write::Merge(ATTACHMENTS, name.clone(), "", marked),
                Write::Merge(ATTACHMENTS, name, "/status", json!({ "status": { "attached": true } })),
            ]
        })]
    }

    fn profile(&self) -> Profile {
        let ids: Vec<String> = (0..support::NODES).map(support::node_id).collect();
        Profile::with_nodes(ids.iter().map(String::as_str))
    }

    fn seed_done(&self, driver: &Driver, numbers: Range<usize>) {
        driver.change_state(|state| {
            for number in numbers {
                state.attach_behind(&support::handle(number), &support::node_id(number));
            }
        });
    }
}
