//! A Kubernetes API that knows Leases and pods only, over real HTTP on in-memory streams, for the tests of this folder. Each
//! client reaches it through a [`Site`] of its own, whose network can be cut, slowed down or made to lose answers.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{Method, Request, Response, StatusCode};
use futures::{StreamExt as _, stream};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::process::{Rng, Tasks, watch};
use crate::testing::mem_listener;

/// Version, type of event, object.
type Happened = (u64, &'static str, Value);

#[derive(Default)]
struct Store {
    version: u64,
    leases: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    /// The events of each object. The key says whether the object is a pod, and its name.
    history: BTreeMap<(bool, String), Vec<Happened>>,
    requests: Vec<String>,
    forbid_watch: bool,
    forbid_pods: bool,
    /// The delay of each event in a watch of a pod.
    pods_lag: Duration,
    has_no_namespace: bool,
}

#[derive(Clone)]
pub(super) struct FakeApi {
    store: Arc<Mutex<Store>>,
    changed: watch::Sender<u64>,
    tasks: Tasks,
    dial: mpsc::UnboundedSender<DuplexStream>,
}

/// One client's network.
#[derive(Clone)]
pub(super) struct Site {
    cut: watch::Sender<bool>,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    /// The longest delay of a request, and of an answer.
    pub(super) latency: Duration,
    /// The share of answers that never arrive.
    pub(super) lose: f64,
}

impl FakeApi {
    pub(super) fn start() -> Self {
        let (tasks, _ends) = Tasks::new("fake-api");
        let (dial, listener) = mem_listener();
        let api = Self { store: Arc::default(), changed: watch::Sender::new(0), tasks, dial };
        let shared = (Arc::clone(&api.store), api.changed.clone());
        let router = Router::new().fallback(answer).with_state(shared);
        api.tasks.spawn("serve", async move {
            let _ = axum::serve(listener, router).await;
        });
        api
    }

    pub(super) fn client(&self, site: &Site, rng: &Rng) -> kube::Client {
        let (api, site, rng) = (self.clone(), site.clone(), rng.clone());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (api, site, rng) = (api.clone(), site.clone(), rng.clone());
            async move {
                let faults = *site.faults.lock().unwrap();
                let mut cut = site.cut.subscribe();
                if *cut.borrow_and_update() {
                    return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
                }
                tokio::time::sleep(faults.latency.mul_f64(rng.fraction())).await;
                let (ours, theirs) = tokio::io::duplex(64 * 1024);
                let _ = api.dial.send(theirs);
                let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(ours)).await?;
                api.tasks.spawn("connection", async move {
                    tokio::select! {
                        biased;
                        _ = cut.wait_for(|cut| *cut) => {}
                        _ = connection => {}
                    }
                });
                let answer = sender.send_request(request).await?;
                tokio::time::sleep(faults.latency.mul_f64(rng.fraction())).await;
                if rng.fraction() < faults.lose {
                    return futures::future::pending().await;
                }
                Ok::<_, tower::BoxError>(answer)
            }
        });
        kube::Client::new(service, "default")
    }

    pub(super) fn forbid_watch(&self) {
        self.store.lock().unwrap().forbid_watch = true;
    }

    /// Refuses to watch pods, as a server does without the right.
    pub(super) fn forbid_pods(&self, is_forbidden: bool) {
        self.store.lock().unwrap().forbid_pods = is_forbidden;
    }

    /// Delays the watches of pods, as a watch cache that is behind.
    pub(super) fn pods_lag(&self, lag: Duration) {
        self.store.lock().unwrap().pods_lag = lag;
    }

    /// Writes the status of a pod, as a kubelet does. Makes the pod if there is none.
    pub(super) fn report(&self, name: &str, uid: &str, status: &Value) {
        let mut store = self.store.lock().unwrap();
        let known = store.pods.get(name).is_some_and(|pod| pod["metadata"]["uid"] == uid);
        let mut pod =
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "uid": uid}, "status": status});
        store.record(if known { "MODIFIED" } else { "ADDED" }, &mut pod);
        store.pods.insert(name.to_owned(), pod);
        self.changed.send_replace(store.version);
    }

    /// Removes a pod without its kubelet, as `kubectl delete pod --force` does.
    pub(super) fn force_delete(&self, name: &str) {
        let mut store = self.store.lock().unwrap();
        if let Some(mut pod) = store.pods.remove(name) {
            store.record("DELETED", &mut pod);
            self.changed.send_replace(store.version);
        }
    }

    /// Refuses Leases, as a server does that lacks their namespace.
    pub(super) fn has_no_namespace(&self, is_missing: bool) {
        self.store.lock().unwrap().has_no_namespace = is_missing;
    }

    pub(super) fn lease(&self, name: &str) -> Option<Lease> {
        let store = self.store.lock().unwrap();
        store.leases.get(name).map(|lease| serde_json::from_value(lease.clone()).unwrap())
    }

    /// Methods of all requests so far, `WATCH` for a watch, `WATCH pods` for one of a pod.
    pub(super) fn requests(&self) -> Vec<String> {
        self.store.lock().unwrap().requests.clone()
    }

    /// Deletes a Lease, as `kubectl delete lease` does.
    pub(super) fn delete(&self, name: &str) {
        let mut store = self.store.lock().unwrap();
        let mut lease = store.leases.remove(name).unwrap();
        store.record("DELETED", &mut lease);
        self.changed.send_replace(store.version);
    }

    /// Changes a Lease, as `kubectl edit lease` does.
    pub(super) fn edit(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut store = self.store.lock().unwrap();
        let mut lease = store.leases.remove(name).unwrap();
        edit(&mut lease);
        store.record("MODIFIED", &mut lease);
        store.leases.insert(name.to_owned(), lease);
        self.changed.send_replace(store.version);
    }
}

impl Site {
    pub(super) fn new() -> Self {
        Self { cut: watch::Sender::new(false), faults: Arc::default() }
    }

    pub(super) fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }

    pub(super) fn faults(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }
}

impl Store {
    fn record(&mut self, event: &'static str, object: &mut Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let key = (object["kind"] == "Pod", object["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        self.history.entry(key).or_default().push((self.version, event, object.clone()));
    }
}

type Shared = (Arc<Mutex<Store>>, watch::Sender<u64>);

async fn answer(State((store, changed)): State<Shared>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let name = parts.uri.path().split("/leases/").nth(1).unwrap_or_default().to_owned();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let (watching, is_pods) = (query.contains("watch=true"), parts.uri.path().ends_with("/pods"));
    store.lock().unwrap().requests.push(match (watching, is_pods) {
        (true, true) => "WATCH pods".into(),
        (true, false) => "WATCH".into(),
        (false, _) => parts.method.to_string(),
    });
    if watching {
        return watch_events(store, &changed, &query, is_pods);
    }
    let body: Value = serde_json::from_slice(&to_bytes(body, 1 << 20).await.unwrap()).unwrap_or_default();
    let mut store = store.lock().unwrap();
    let result = match parts.method {
        Method::GET => store.leases.get(&name).cloned().ok_or((404, "NotFound")),
        Method::POST if store.has_no_namespace => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                "reason": "NotFound", "message": "namespaces \"storage\" not found",
                "details": {"name": "storage", "kind": "namespaces"}});
            return reply(StatusCode::NOT_FOUND, &status);
        }
        Method::POST => store.create(body),
        Method::PUT => store.replace(&name, body),
        _ => Err((405, "MethodNotAllowed")),
    };
    changed.send_replace(store.version);
    match result {
        Ok(lease) => reply(StatusCode::OK, &lease),
        Err((code, reason)) => refuse(code, reason),
    }
}

impl Store {
    fn create(&mut self, mut lease: Value) -> Result<Value, (u16, &'static str)> {
        let name = lease["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if self.leases.contains_key(&name) {
            return Err((409, "AlreadyExists"));
        }
        lease["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        self.record("ADDED", &mut lease);
        self.leases.insert(name, lease.clone());
        Ok(lease)
    }

    fn replace(&mut self, name: &str, mut lease: Value) -> Result<Value, (u16, &'static str)> {
        let known = self.leases.get(name).ok_or((404, "NotFound"))?;
        if known["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] {
            return Err((409, "Conflict"));
        }
        self.record("MODIFIED", &mut lease);
        self.leases.insert(name.to_owned(), lease.clone());
        Ok(lease)
    }
}

/// The events of a watch. A watch of a pod begins at version 0 and shows every event since: the API server's cache may be that old.
fn watch_events(store: Arc<Mutex<Store>>, changed: &watch::Sender<u64>, query: &str, is_pods: bool) -> Response<Body> {
    let is_forbidden = |store: &Store| if is_pods { store.forbid_pods } else { store.forbid_watch };
    if is_forbidden(&store.lock().unwrap()) {
        return refuse(403, "Forbidden");
    }
    let field = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)).unwrap_or_default().to_owned();
    let from: u64 = field("resourceVersion=").parse().unwrap();
    let name = field("fieldSelector=metadata.name%3D");
    let events = stream::unfold((store, changed.subscribe(), from), move |(store, mut changed, from)| {
        let name = name.clone();
        async move {
            loop {
                let (next, lag) = {
                    let store = store.lock().unwrap();
                    let events = store.history.get(&(is_pods, name.clone())).map_or(&[][..], Vec::as_slice);
                    let newer = events.get(events.partition_point(|(at, ..)| *at <= from));
                    let next = newer.map(|(at, event, object)| (*at, json!({"type": event, "object": object})));
                    (next, if is_pods { store.pods_lag } else { Duration::ZERO })
                };
                if let Some((at, event)) = next {
                    tokio::time::sleep(lag).await;
                    return Some((Ok::<_, io::Error>(format!("{event}\n")), (store, changed, at)));
                }
                changed.changed().await.ok()?;
            }
        }
    });
    Response::new(Body::from_stream(events.boxed()))
}

fn reply(code: StatusCode, body: &Value) -> Response<Body> {
    Response::builder().status(code).body(Body::from(body.to_string())).unwrap()
}

fn refuse(code: u16, reason: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "the fake API refuses"});
    reply(StatusCode::from_u16(code).unwrap(), &status)
}
