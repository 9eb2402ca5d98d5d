//! The pods of the daemons, and their kubelets. A killed daemon is started again in its container, so that it does not wait for the
//! Lease of its last process, or in another pod, so that it does. The end of this process is reported before or long after that: a
//! standby may believe it whenever it comes.

use std::time::Duration;

use csi_control_plane::election::Container;
use csi_control_plane::sandbox::api::PatchBody;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::play::{Play, Step};
use crate::world::LEASE;

/// Where the pods are.
const NAMESPACE: &str = "kube-system";

impl Play {
    /// The container of a daemon, in the pod that it has had since it was last told to stop.
    pub(crate) fn container(&mut self, daemon: usize) -> Container {
        let name = self.world.host(daemon);
        if self.pods[daemon].is_none() {
            let _ = self.api().delete::<Pod>(NAMESPACE, name);
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": NAMESPACE },
                "spec": { "containers": [{ "name": container(daemon), "image": "example.com/none" }] } });
            let created = self.api().create_value(pod).unwrap();
            self.pods[daemon] = created["metadata"]["uid"].as_str().map(str::to_owned);
        }
        Container::named(self.pods[daemon].as_deref().unwrap(), &container(daemon))
    }

    /// The identity under which a daemon leads, if it does.
    pub(crate) fn leads_as(&self, daemon: usize) -> Option<String> {
        let lease = self.api().get::<Lease>(LEASE.0, LEASE.1).ok()?;
        let holder = lease.spec?.holder_identity?;
        let own = format!("_{}_{}_", self.pods[daemon].as_deref()?, container(daemon));
        holder.contains(&own).then_some(holder)
    }

    /// A leader is killed that led under this name. In half of the cases its pod is lost, too: the next process is another pod's, and
    /// the Lease has to expire. In the others the kubelet reports its end, before or after the container is started again.
    pub(crate) fn leader_dies(&mut self, daemon: usize, identity: String, down: Duration) {
        match identity.chars().next_back().and_then(|last| last.to_digit(16)) {
            Some(0..8) => self.pods[daemon] = None,
            Some(8..12) => self.after(down / 2, Step::Report(daemon, identity)),
            _ => self.after(down * 2, Step::Report(daemon, identity)),
        }
    }

    /// The kubelet reports that a process has ended, unless its pod is gone.
    pub(crate) fn report(&self, daemon: usize, identity: &str) {
        if !self.pods[daemon].as_deref().is_some_and(|uid| identity.contains(uid)) {
            return;
        }
        self.trace.note("world", format_args!("the end of {identity} is reported"));
        let last =
            json!({ "terminated": { "exitCode": 137, "message": format!("leader election identity: {identity}") } });
        let state = json!({ "name": container(daemon), "image": "example.com/none", "imageID": "", "ready": false,
            "restartCount": 1, "state": { "running": {} }, "lastState": last });
        let status = PatchBody::Merge(json!({ "status": { "containerStatuses": [state] } }));
        let _ = self.api().patch_status::<Pod>(NAMESPACE, self.world.host(daemon), status);
    }
}

/// Two that go by one name are two containers of one pod.
fn container(daemon: usize) -> String {
    format!("daemon-{daemon}")
}
