//! A real control plane for the contenders, and who has sent which request to it.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_control_plane::process::Clock;
use csi_control_plane::sandbox::driver::{Action, Driver, Fault, Listen, Server};
use futures::StreamExt as _;
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::accounts;
use crate::contender::NAMESPACE;
use crate::control_plane::{ControlPlane, Extent};
use crate::counted::{self, Requests, failed, key};
use crate::kinds;
use crate::workload::{There, Undo, Workload};
use crate::write::{Placed, Write, merge};

/// Without a request for so long, work is over.
const PAUSE: Duration = Duration::from_secs(1);
/// So often it is waited for.
const PAUSES: usize = 60;
/// As many looks in a row at the same number of watches, and none is being opened or closed.
const SAME: usize = 3;

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
  - { apiGroups: [""], resources: [persistentvolumeclaims/status], verbs: [patch] }
  - { apiGroups: [""], resources: [nodes, pods, secrets], verbs: [get, list, watch] }
  - { apiGroups: [""], resources: [nodes/status], verbs: [update, patch] }
  - { apiGroups: [""], resources: [events], verbs: [get, list, watch, create, update, patch] }
  - { apiGroups: [storage.k8s.io], resources: [csidrivers, csinodes, storageclasses, volumeattributesclasses], verbs: [get, list, watch] }
  - { apiGroups: [storage.k8s.io], resources: [volumeattachments], verbs: [get, list, watch, create, patch, delete] }
  - { apiGroups: [storage.k8s.io], resources: [volumeattachments/status], verbs: [patch] }
  - { apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotclasses], verbs: [get, list, watch] }
  - { apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotcontents], verbs: [get, list, watch, update, patch] }
  - { apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotcontents/status], verbs: [update, patch] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: { name: contender, namespace: kube-system }
rules:
  - { apiGroups: [""], resources: [configmaps], verbs: [get, create, patch] }
  - { apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, watch, list, create, update, patch, delete] }
  - { apiGroups: [storage.k8s.io], resources: [csistoragecapacities], verbs: [get, watch, list, create, update, patch, delete] }
"#;

/// A control plane.
pub(crate) struct Stage {
    control_plane: ControlPlane,
    pub(crate) client: kube::Client,
    kubeconfig: PathBuf,
    /// Our own requests, by verb and resource.
    pub(crate) own: Arc<Mutex<Requests>>,
}

/// The driver in front of a contender.
pub(crate) struct Backend {
    pub(crate) driver: Driver,
    /// When the times of its calls begin.
    pub(crate) born: Instant,
    pub(crate) socket: PathBuf,
    server: Server,
    _folder: TempDir,
}

impl Stage {
    /// Starts one, with what the workload wants to be there.
    pub(crate) async fn set(workload: &dyn Workload) -> Self {
        let control_plane = ControlPlane::start_unrecorded(Extent::Api).await;
        let client = control_plane.client().await;
        if workload.has_snapshots() {
            kinds::install(&client).await;
        }
        let token = accounts::token(&client, NAMESPACE, "contender", RIGHTS).await;
        let kubeconfig = control_plane.kubeconfig("contender", &token);
        let this = Self { control_plane, client, kubeconfig, own: Arc::default() };
        this.create_all(workload.ground()).await;
        this
    }

    /// Where logs go.
    pub(crate) fn folder(&self) -> &Path {
        &self.control_plane.folder
    }

    /// A client of ours with the contenders' account.
    pub(crate) async fn client_of_contenders(&self) -> kube::Client {
        let file = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        kube::Client::try_from(config).unwrap()
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
        let (born, driver) = (Clock::system().now(), Driver::new(workload.profile(), Clock::system()));
        if !latency.is_zero() {
            for method in workload.facts().methods {
                driver.inject(Fault::on(method, Action::Delay(latency)));
            }
        }
        let server = Server::start(&driver, Listen::unix(socket.clone(), 0o600)).await.unwrap();
        Backend { driver, born, socket, server, _folder: folder }
    }

    /// Notes a request of our own.
    fn count(&self, key: String) {
        *self.own.lock().unwrap().entry(key).or_default() += 1.0;
    }

    async fn send(&self, key: String, request: Request<Vec<u8>>) -> Value {
        self.count(key);
        self.client.request(request).await.unwrap()
    }

    /// What is in a collection.
    pub(crate) async fn list(&self, collection: &str, query: &str) -> Value {
        let request = Request::get(format!("{collection}{query}")).body(Vec::new()).unwrap();
        self.send(key("LIST", collection, ""), request).await
    }

    /// Creates an object. Returns it as the server has it.
    pub(crate) async fn create(&self, placed: Placed) -> Value {
        self.send(key("POST", placed.collection, ""), placed.request()).await
    }

    /// Creates objects, several at once.
    pub(crate) async fn create_all(&self, objects: impl IntoIterator<Item = Placed>) {
        at_once(objects.into_iter().map(|object| async move { drop(self.create(object).await) })).await;
    }

    /// Puts what is there before the objects of these numbers.
    pub(crate) async fn before(&self, workload: &dyn Workload, numbers: std::ops::Range<usize>) {
        at_once(numbers.flat_map(|number| workload.before(number)).map(|there| self.put(there))).await;
    }

    /// Puts something there, with its status.
    async fn put(&self, there: There) {
        let phase = json!({ "phase": "Bound" });
        match there {
            There::Object(placed, status) => {
                let collection = placed.collection;
                let object = self.create(placed).await;
                if let Some(status) = status {
                    self.set_status(collection, &object, &status).await;
                }
            }
            There::Bound { claim, mut volume } => {
                let (claims, volumes) = (claim.collection, volume.collection);
                let claim = self.create(claim).await;
                for key in ["namespace", "name", "uid", "resourceVersion"] {
                    volume.object["spec"]["claimRef"][key] = claim["metadata"][key].clone();
                }
                let spec = volume.object["spec"].clone();
                let volume = self.create(volume).await;
                self.set_status(volumes, &volume, &phase).await;
                let mut status = phase;
                status["capacity"] = spec["capacity"].clone();
                status["accessModes"] = spec["accessModes"].clone();
                self.set_status(claims, &claim, &status).await;
            }
        }
    }

    async fn set_status(&self, collection: &str, object: &Value, status: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.merge(collection, name, "/status", &json!({ "status": status })).await;
    }

    /// Has the objects of these numbers done, and tells of each that is asked for.
    pub(crate) async fn begin(&self, workload: &dyn Workload, numbers: std::ops::Range<usize>, tell: impl Fn(usize)) {
        let tell = &tell;
        at_once(numbers.map(|number| async move {
            for write in workload.begin(number) {
                match write {
                    Write::Create(placed) => drop(self.create(placed).await),
                    Write::Merge(collection, name, sub, patch) => self.merge(collection, &name, sub, &patch).await,
                }
            }
            tell(number);
        }))
        .await;
    }

    /// Has the object of a number done.
    pub(crate) async fn begin_one(&self, workload: &dyn Workload, number: usize) {
        self.begin(workload, number..number + 1, |_| ()).await;
    }

    /// Merges into an object or its status, if the object is there.
    pub(crate) async fn merge(&self, collection: &str, name: &str, sub: &str, patch: &Value) {
        self.if_there(key("PATCH", collection, sub), merge(collection, name, sub, patch)).await;
    }

    /// Deletes an object, if it is there. No kubelet would end a pod that is given time.
    async fn delete(&self, collection: &str, name: &str) {
        let request = Request::delete(format!("{collection}/{name}?gracePeriodSeconds=0")).body(Vec::new()).unwrap();
        self.if_there(key("DELETE", collection, ""), request).await;
    }

    /// Sends a request about an object that a contender may have finished with meanwhile.
    async fn if_there(&self, key: String, request: Request<Vec<u8>>) {
        if_there(&self.client, &self.own, key, request).await;
    }

    /// Asks for an object of the workload to be undone: its name, and that of what was made of it.
    pub(crate) async fn undo(&self, workload: &dyn Workload, (name, made): &(String, String)) {
        self.perform(workload.undo(name, made)).await;
    }

    /// Has objects that are not done left alone, several at once.
    pub(crate) async fn give_up_all(&self, workload: &dyn Workload, objects: &[(String, String)]) {
        at_once(objects.iter().map(|(name, made)| self.perform(workload.give_up(name, made)))).await;
    }

    async fn perform(&self, undo: Vec<Undo>) {
        for undo in undo {
            match undo {
                Undo::Delete(collection, name) => self.delete(collection, &name).await,
                Undo::Merge(collection, name, sub, patch) => self.merge(collection, &name, sub, &patch).await,
            }
        }
    }

    /// The same for several at once.
    pub(crate) async fn undo_all(&self, workload: &dyn Workload, objects: &[(String, String)]) {
        at_once(objects.iter().map(|object| self.undo(workload, object))).await;
    }

    /// Creates all that there is once the objects of these numbers are done.
    pub(crate) async fn settle(&self, workload: &dyn Workload, numbers: std::ops::Range<usize>) {
        at_once(numbers.flat_map(|number| workload.settled(number)).map(|there| self.put(there))).await;
    }

    /// The same for another driver.
    pub(crate) async fn settle_for(&self, driver: &str, workload: &dyn Workload, numbers: std::ops::Range<usize>) {
        let there = numbers.flat_map(|number| workload.settled(number)).map(|there| there.of(driver));
        at_once(there.map(|there| self.put(there))).await;
    }

    /// Empties the workload's collections, whoever's finalizers are in the way, and forgets its Lease.
    pub(crate) async fn clear(&self, workload: &dyn Workload) {
        for collection in workload.collections() {
            let list = self.list(collection, "").await;
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
        for lease in workload.facts().leases {
            // Not everyone has one.
            self.delete(&format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"), lease).await;
        }
    }

    /// Everyone's requests but ours so far, by verb and resource, as the server has counted them.
    async fn requests(&self, workload: &dyn Workload) -> Requests {
        let everyone = counted::requests(&self.metrics().await, workload.facts().resources);
        counted::others(everyone, &self.own.lock().unwrap())
    }

    /// The same now, or once there are no more for a while.
    pub(crate) async fn requests_so_far(&self, workload: &dyn Workload, is_over: bool) -> Requests {
        let mut requests = self.requests(workload).await;
        for _ in 0..if is_over { PAUSES } else { 0 } {
            tokio::time::sleep(PAUSE).await;
            let now = self.requests(workload).await;
            if now == requests {
                break;
            }
            requests = now;
        }
        requests
    }

    /// How often each Warning was told that is still kept: by the uid of its Event.
    pub(crate) async fn warnings(&self) -> BTreeMap<String, f64> {
        let list = self.list("/api/v1/events", "?fieldSelector=type%3DWarning").await;
        let events = list["items"].as_array().into_iter().flatten();
        let times = |event: &Value| {
            (event["metadata"]["uid"].as_str().unwrap().to_owned(), event["count"].as_f64().unwrap_or(1.0))
        };
        events.map(times).collect()
    }

    /// How many watches are open, once whoever stopped has closed its own and whoever started has opened them.
    pub(crate) async fn watches(&self) -> f64 {
        let mut seen = Vec::new();
        for _ in 0..PAUSES {
            seen.push(counted::watches(&self.metrics().await));
            if seen.len() >= SAME && seen[seen.len() - SAME..].iter().all(|count| Some(count) == seen.last()) {
                return seen[seen.len() - 1];
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("the number of open watches does not come to rest: {seen:?}")
    }

    async fn metrics(&self) -> String {
        self.client.request_text(Request::get("/metrics").body(Vec::new()).unwrap()).await.unwrap()
    }
}

impl Backend {
    /// Stops the driver.
    pub(crate) async fn stop(self) {
        self.server.stop().await;
    }
}

/// Sends a request of ours about an object that may be gone, and counts it.
pub(crate) async fn if_there(client: &kube::Client, own: &Mutex<Requests>, key: String, request: Request<Vec<u8>>) {
    let path = request.uri().path().to_owned();
    let key = match client.request::<Value>(request).await {
        Ok(_) => key,
        Err(kube::Error::Api(status)) if status.code == 404 => failed(&key, status.code),
        Err(error) => panic!("{path}: {error}"),
    };
    *own.lock().unwrap().entry(key).or_default() += 1.0;
}

/// Runs all, several at once.
async fn at_once<F: Future<Output = ()>>(all: impl IntoIterator<Item = F>) {
    futures::stream::iter(all).buffer_unordered(AT_ONCE).for_each(|()| async {}).await;
}
