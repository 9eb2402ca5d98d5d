//! A real control plane for the contenders, and who has sent which request to it.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use csi_control_plane::process::Clock;
use csi_control_plane::sandbox::driver::{Action, Driver, Fault, Listen, Server};
use futures::StreamExt as _;
use http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::accounts;
use crate::contender::NAMESPACE;
use crate::control_plane::{ControlPlane, Extent};
use crate::workload::{Placed, Undo, Workload};

/// Requests of ours at once.
const AT_ONCE: usize = 16;

/// What every contender may do: the union of what they ask for.
const RIGHTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: contender }
rules:
  - { apiGroups: [""], resources: [persistentvolumes], verbs: [get, list, watch, create, patch, update, delete] }
  - { apiGroups: [""], resources: [persistentvolumeclaims], verbs: [get, list, watch, update, patch] }
  - { apiGroups: [""], resources: [nodes, secrets], verbs: [get, list, watch] }
  - { apiGroups: [""], resources: [events], verbs: [get, list, watch, create, update, patch] }
  - { apiGroups: [storage.k8s.io], resources: [csinodes, storageclasses, volumeattributesclasses], verbs: [get, list, watch] }
  - { apiGroups: [storage.k8s.io], resources: [volumeattachments], verbs: [get, list, watch, patch] }
  - { apiGroups: [storage.k8s.io], resources: [volumeattachments/status], verbs: [patch] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: { name: contender, namespace: kube-system }
rules:
  - { apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, watch, list, create, update, patch, delete] }
  - { apiGroups: [storage.k8s.io], resources: [csistoragecapacities], verbs: [get, watch, list, create, update, patch, delete] }
"#;

/// A control plane.
pub(crate) struct Stage {
    control_plane: ControlPlane,
    pub(crate) client: kube::Client,
    kubeconfig: PathBuf,
    /// Our own requests, by verb and resource.
    own: Mutex<BTreeMap<String, f64>>,
}

/// The driver in front of a contender.
pub(crate) struct Backend {
    pub(crate) driver: Driver,
    pub(crate) socket: PathBuf,
    server: Server,
    _folder: TempDir,
}

impl Stage {
    /// Starts one, with what the workload wants to be there.
    pub(crate) async fn set(workload: &dyn Workload) -> Self {
        let control_plane = ControlPlane::start(Extent::Api).await;
        let client = control_plane.client().await;
        let token = accounts::token(&client, NAMESPACE, "contender", RIGHTS).await;
        let kubeconfig = control_plane.kubeconfig("contender", &token);
        let this = Self { control_plane, client, kubeconfig, own: Mutex::default() };
        this.create_all(workload.ground()).await;
        this
    }

    /// Where logs go.
    pub(crate) fn folder(&self) -> &Path {
        &self.control_plane.folder
    }

    /// The contenders' kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The same through another address.
    pub(crate) fn kubeconfig_through(&self, address: std::net::SocketAddr) -> PathBuf {
        self.control_plane.through(&self.kubeconfig, address)
    }

    /// The API's address.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.control_plane.address()
    }

    /// A fresh driver, whose calls of the workload take `latency`.
    pub(crate) async fn driver(&self, workload: &dyn Workload, latency: Duration) -> Backend {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("csi.sock");
        let driver = Driver::new(workload.profile(), Clock::system());
        if !latency.is_zero() {
            for method in workload.methods() {
                driver.inject(Fault::on(method, Action::Delay(latency)));
            }
        }
        let server = Server::start(&driver, Listen::unix(socket.clone(), 0o600)).await.unwrap();
        Backend { driver, socket, server, _folder: folder }
    }

    async fn send(&self, key: String, request: Request<Vec<u8>>) -> Value {
        *self.own.lock().unwrap().entry(key).or_default() += 1.0;
        self.client.request(request).await.unwrap()
    }

    /// Creates an object.
    pub(crate) async fn create(&self, placed: Placed) {
        let Placed { collection, object } = placed;
        let request = Request::post(collection).header("content-type", "application/json");
        self.send(key("POST", collection, ""), request.body(object.to_string().into_bytes()).unwrap()).await;
    }

    /// Creates objects, several at once.
    pub(crate) async fn create_all(&self, objects: impl IntoIterator<Item = Placed>) {
        at_once(objects.into_iter().map(|object| self.create(object))).await;
    }

    /// Creates the objects that are there before those of these numbers.
    pub(crate) async fn before(&self, workload: &dyn Workload, numbers: std::ops::Range<usize>) {
        self.create_all(numbers.flat_map(|number| workload.before(number))).await;
    }

    /// Creates the objects of these numbers.
    pub(crate) async fn begin(&self, workload: &dyn Workload, numbers: std::ops::Range<usize>) {
        let collection = workload.collection();
        self.create_all(numbers.map(|number| Placed { collection, object: workload.object(number) })).await;
    }

    /// Merges into an object or its status.
    pub(crate) async fn merge(&self, collection: &str, name: &str, sub: &str, patch: &Value) {
        let request =
            Request::patch(format!("{collection}/{name}{sub}")).header("content-type", "application/merge-patch+json");
        self.send(key("PATCH", collection, sub), request.body(patch.to_string().into_bytes()).unwrap()).await;
    }

    /// Deletes an object, if it is there.
    async fn delete(&self, collection: &str, name: &str) {
        let request = Request::delete(format!("{collection}/{name}")).body(Vec::new()).unwrap();
        *self.own.lock().unwrap().entry(key("DELETE", collection, "")).or_default() += 1.0;
        match self.client.request::<Value>(request).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{collection}/{name} is not deleted: {error}"),
        }
    }

    /// Asks for an object of the workload to be undone: its name, and that of what was made of it.
    pub(crate) async fn undo(&self, workload: &dyn Workload, (name, made): &(String, String)) {
        for undo in workload.undo(name, made) {
            match undo {
                Undo::Delete(collection, name) => self.delete(collection, &name).await,
                Undo::Status(collection, name, status) => {
                    self.merge(collection, &name, "/status", &json!({ "status": status })).await;
                }
            }
        }
    }

    /// The same for several at once.
    pub(crate) async fn undo_all(&self, workload: &dyn Workload, objects: &[(String, String)]) {
        at_once(objects.iter().map(|object| self.undo(workload, object))).await;
    }

    /// Creates all that there is once the objects of these numbers are done.
    pub(crate) async fn settle(&self, workload: &dyn Workload, numbers: std::ops::Range<usize>) {
        let settled = numbers.flat_map(|number| workload.settled(number));
        at_once(settled.map(|(placed, status)| async move {
            let collection = placed.collection;
            let name = placed.object["metadata"]["name"].as_str().unwrap().to_owned();
            self.create(placed).await;
            if let Some(status) = status {
                self.merge(collection, &name, "/status", &json!({ "status": status })).await;
            }
        }))
        .await;
    }

    /// Empties the workload's collections, whoever's finalizers are in the way, and forgets its Lease.
    pub(crate) async fn clear(&self, workload: &dyn Workload) {
        for collection in workload.collections() {
            let list: Value = self.client.request(Request::get(collection).body(Vec::new()).unwrap()).await.unwrap();
            let objects = list["items"].as_array().cloned().unwrap_or_default();
            at_once(objects.iter().map(|object| async move {
                let name = object["metadata"]["name"].as_str().unwrap();
                if object["metadata"]["deletionTimestamp"].is_null() {
                    self.delete(collection, name).await;
                }
                if object["metadata"]["finalizers"].is_array() {
                    self.merge(collection, name, "", &json!({ "metadata": { "finalizers": null } })).await;
                }
            }))
            .await;
        }
        for lease in workload.leases() {
            // Not everyone has one.
            self.delete(&format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"), lease).await;
        }
    }

    /// Everyone's requests but ours so far, by verb and resource, as the server has counted them.
    pub(crate) async fn requests(&self, resources: &[&str]) -> BTreeMap<String, f64> {
        let mut counted: BTreeMap<String, f64> = BTreeMap::new();
        for sample in self.samples("apiserver_request_total").await {
            let label = |name: &str| sample.0.get(name).map(String::as_str).unwrap_or_default();
            if label("verb") == "WATCH" || !resources.contains(&label("resource")) {
                continue;
            }
            let sub =
                if label("subresource").is_empty() { String::new() } else { format!("/{}", label("subresource")) };
            let failed = if label("code") < "300" { String::new() } else { format!(" → {}", label("code")) };
            let key = format!("{} {}{sub}{failed}", label("verb"), label("resource"));
            *counted.entry(key).or_default() += sample.1;
        }
        for (key, own) in self.own.lock().unwrap().iter() {
            if let Some(count) = counted.get_mut(key) {
                *count -= own;
            }
        }
        counted
    }

    /// How many watches are open.
    pub(crate) async fn watches(&self) -> f64 {
        let samples = self.samples("apiserver_longrunning_requests").await;
        samples
            .iter()
            .filter(|(labels, _)| labels.get("verb").is_some_and(|verb| verb == "WATCH"))
            .map(|(_, n)| n)
            .sum()
    }

    async fn samples(&self, metric: &str) -> Vec<(BTreeMap<String, String>, f64)> {
        let text = self.client.request_text(Request::get("/metrics").body(Vec::new()).unwrap()).await.unwrap();
        let start = format!("{metric}{{");
        text.lines().filter_map(|line| line.strip_prefix(&start)).map(sample).collect()
    }
}

impl Backend {
    /// Stops the driver.
    pub(crate) async fn stop(self) {
        self.server.stop().await;
    }
}

/// Runs all, several at once.
async fn at_once<F: Future<Output = ()>>(all: impl IntoIterator<Item = F>) {
    futures::stream::iter(all).buffer_unordered(AT_ONCE).for_each(|()| async {}).await;
}

/// As the server's metric has it.
fn key(verb: &str, collection: &str, sub: &str) -> String {
    let resource = collection.rsplit('/').next().unwrap_or_default();
    format!("{verb} {resource}{sub}")
}

/// Labels and value of a line of Prometheus' text, behind the `{`. No label that we read has an escape in it.
fn sample(line: &str) -> (BTreeMap<String, String>, f64) {
    let (labels, value) = line.rsplit_once("} ").unwrap();
    let pairs = labels.split("\",").filter_map(|pair| pair.trim_end_matches('"').split_once("=\""));
    (pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(), value.trim().parse().unwrap())
}
