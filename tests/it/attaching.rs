//! The common parts of the attach/detach controller's scenarios: a daemon with the role, pods on nodes, and what their kubelets say.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::ground::Daemon;
use crate::objects::{self, merge};
use crate::world::World;

/// Who runs the other controller, as the API server knows it.
pub(crate) const OTHER: &str = "kube-controller-manager";

/// The role beside the attacher, in one daemon; `section` is merged into the role's.
pub(crate) fn attach_detach(section: Value) -> Value {
    let mut own = json!({ "settle": "0s" });
    merge(&mut own, section);
    json!({ "roles": { "reconciler": null, "attachDetach": own } })
}

impl World {
    /// A pod on a node that uses a claim. Returns its name and uid.
    pub(crate) async fn pod_on(&self, short: &str, claim: &str, node: &str) -> (String, String) {
        let name = self.name(short);
        let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
        let pod = json!({ "metadata": { "name": name }, "spec": { "nodeName": node, "volumes": volumes,
            "containers": [{ "name": "c", "image": "example.com/none" }] } });
        let made: Pod = self.create_namespaced(pod).await;
        (name, made.uid().unwrap())
    }

    /// The name of a volume in the status of a node.
    pub(crate) fn name_on_node(&self, volume: &str) -> String {
        format!("kubernetes.io/csi/{}^{}", self.driver_name(), self.handle(volume))
    }

    /// What the attachment of a volume to a node is called.
    pub(crate) fn attachment_of(&self, volume: &str, node: &str) -> String {
        objects::attachment_name(&self.handle(volume), self.driver_name(), node)
    }

    /// Says, as its kubelet does, which volumes a node uses.
    pub(crate) async fn uses(&self, node: &str, volumes: &[&str]) {
        let names: Vec<String> = volumes.iter().map(|volume| self.name_on_node(volume)).collect();
        let status = Patch::Merge(json!({ "status": { "volumesInUse": names } }));
        self.all::<Node>().patch_status(node, &PatchParams::default(), &status).await.unwrap();
    }

    /// Waits until a node reports exactly these volumes as attached.
    pub(crate) async fn reports(&self, node: &str, volumes: &[&str]) {
        let wanted: Vec<String> = volumes.iter().map(|volume| self.name_on_node(volume)).collect();
        self.until(node, "its report", |node: &Node| {
            let attached = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
            attached.map(|list| list.iter().map(|it| it.name.clone()).collect::<Vec<_>>()).unwrap_or_default() == wanted
        })
        .await;
    }

    /// Waits until the daemon knows of so many pods, and rests.
    pub(crate) async fn rests_with(&self, daemon: &Daemon, pods: usize) {
        self.shows(daemon, "that it rests", |status| {
            let caches = status["caches"].as_array().unwrap();
            let is_known = caches.iter().any(|it| it["kind"] == "Pod" && it["objects"] == pods);
            is_known && status["workTotal"] == 0
        })
        .await;
    }

    /// Waits until the role takes in changes. What is made sooner it finds at its beginning, and that proves nothing.
    pub(crate) async fn has_begun(&self, daemon: &Daemon) {
        self.shows(daemon, "that the role takes in changes", |status| {
            status["tasks"].as_array().unwrap().iter().any(|task| task == "attachDetach.resync")
        })
        .await;
    }

    /// Waits until the role says that it keeps away, because the other controller has made this attachment.
    pub(crate) async fn keeps_away(&self, daemon: &Daemon, attachment: &str) {
        let says = format!("is active (it wrote volumeattachment {attachment})");
        self.shows(daemon, "that the role keeps away", |status| {
            let mut roles = status["roles"].as_array().unwrap().iter();
            roles.any(|it| it["name"] == "attachDetach" && it["failure"].to_string().contains(&says))
        })
        .await;
    }
}
