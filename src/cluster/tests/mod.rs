//! Tests that need a server: a small one that answers as it is told, over in-memory byte streams in paused time.

mod api;
mod caches;
mod clients;
mod credentials;
mod events;
mod fanout;
mod foreign;
mod kinds;
mod kubeconfigs;
mod objects;
mod pages;
mod proxies;
mod subscriptions;
mod tls;
mod unreadable;
mod wire;

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::objects::VolumeAttachment;
use super::{ClientOptions, Clients, ClusterAccess};
use crate::process::{Dial, TaskEnds, Tasks};
use crate::testing::{MemListener, mem_listener};

/// One request as the server saw it.
#[derive(Debug, Clone)]
struct Seen {
    method: String,
    path: String,
    query: String,
    content_type: String,
    accept: String,
    authorization: String,
    connection: usize,
    body: Value,
}

impl Seen {
    fn is_watch(&self) -> bool {
        self.query.contains("watch=true")
    }
}

/// What the server answers.
enum Answer {
    Json(u16, Value),
    Text(u16, &'static str, Vec<(&'static str, &'static str)>),
    Watch(mpsc::UnboundedReceiver<Value>),
    Silence,
}

type Script = Arc<dyn Fn(&Seen) -> Answer + Send + Sync>;

struct Server {
    dial: Dial,
    seen: Arc<Mutex<Vec<Seen>>>,
    _tasks: (Tasks, TaskEnds),
}

impl Server {
    /// A server that asks `script` for each answer.
    fn new(script: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        let (sender, listener) = mem_listener();
        let (tasks, ends) = Tasks::new("server");
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let script: Script = Arc::new(script);
        let log = Arc::clone(&seen);
        let app = axum::Router::new()
            .fallback(move |request: Request| answer(Arc::clone(&script), Arc::clone(&log), request));
        let service = app.into_make_service_with_connect_info::<Connected>();
        tasks.spawn("serve", async move {
            let _ = axum::serve(listener, service).await;
        });
        let dial = Dial::new(move || {
            let sender = sender.clone();
            async move {
                let (ours, theirs) = tokio::io::duplex(64 * 1024);
                sender.send(theirs).map_err(io::Error::other)?;
                Ok(Box::new(ours) as crate::process::BoxedIo)
            }
        });
        Self { dial, seen, _tasks: (tasks, ends) }
    }

    async fn clients(&self) -> Clients {
        let access = ClusterAccess::Endpoint { dial: self.dial.clone(), token: Some("secret-token".into()) };
        Clients::connect(&access, &ClientOptions::default()).await.unwrap()
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

#[derive(Clone)]
struct Connected(usize);

impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, MemListener>> for Connected {
    fn connect_info(stream: axum::serve::IncomingStream<'_, MemListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

async fn answer(script: Script, log: Arc<Mutex<Vec<Seen>>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let connection = head.extensions.get::<axum::extract::ConnectInfo<Connected>>().map_or(0, |info| info.0.0);
    let seen = Seen {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or("").to_owned(),
        content_type: header("content-type"),
        accept: header("accept"),
        authorization: header("authorization"),
        connection,
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    };
    log.lock().unwrap().push(seen.clone());
    match script(&seen) {
        Answer::Json(code, value) => response(code, Body::from(value.to_string())),
        Answer::Text(code, text, headers) => {
            let mut response = response(code, Body::from(text));
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            response
        }
        Answer::Watch(events) => {
            let lines = UnboundedReceiverStream::new(events)
                .map(|event| Ok::<_, Infallible>(Bytes::from(format!("{event}\n"))));
            response(200, Body::from_stream(lines))
        }
        Answer::Silence => std::future::pending().await,
    }
}

fn response(code: u16, body: Body) -> Response {
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message })
}

/// An attachment as the server sends it, of driver `demo`.
fn va(name: &str, uid: &str, version: u64) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": name, "uid": uid, "resourceVersion": version.to_string(), "labels": { "a": "b" } },
        "spec": { "attacher": "demo", "nodeName": "node-1", "source": { "persistentVolumeName": format!("pv-{name}") } },
        "status": { "attached": false },
    })
}

fn attachment(name: &str, uid: &str, version: u64) -> VolumeAttachment {
    serde_json::from_value(va(name, uid, version)).unwrap()
}

fn list(version: u64, items: &[Value]) -> Value {
    json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachmentList",
        "metadata": { "resourceVersion": version.to_string() }, "items": items })
}

/// Lets everything that can happen within `span` of simulated time happen.
async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}
