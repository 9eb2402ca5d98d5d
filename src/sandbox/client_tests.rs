//! Tests the API with kube and the daemon's own clients: HTTP over streams in memory, in paused time.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use http::Uri;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim as WireClaim};
use kube::api::{Api as KubeApi, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::api::faults::{Action, Fault, Matching};
use super::api::{Api, ApiOptions, Connections, serve, tcp_connections};
use crate::cluster::patch::{Condition, Guard, StrategicPatch};
use crate::cluster::{self, ApiErrorKind, ObjectName, PersistentVolumeClaim, VolumeSnapshot};
use crate::process::{BoxedIo, Clock, Rng, Tasks};
use crate::telemetry::Meter;

/// One end of a stream in memory, as a client's connection.
struct Pipe(TokioIo<DuplexStream>);

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl hyper::rt::Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl hyper::rt::Write for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

struct World {
    api: Api,
    client: kube::Client,
    connections: Connections,
    stop: CancellationToken,
    tasks: Tasks,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        let api = Api::new(ApiOptions::new(clock, Rng::seeded(seed)));
        let (sender, receiver) = mpsc::unbounded_channel::<std::io::Result<BoxedIo>>();
        let incoming = futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|connection| (connection, receiver))
        });
        let (connections, stop) = (Connections::default(), CancellationToken::new());
        let (tasks, _) = Tasks::new("world");
        tasks.spawn("api", serve(api.clone(), incoming, connections.clone(), stop.clone()));
        let connector = tower::service_fn(move |_: Uri| {
            let sender = sender.clone();
            Box::pin(async move {
                let (ours, theirs) = tokio::io::duplex(64 * 1024);
                let refused = |_| std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
                sender.send(Ok(Box::new(theirs) as BoxedIo)).map_err(refused)?;
                Ok::<_, std::io::Error>(Pipe(TokioIo::new(ours)))
            })
        });
        let http = HttpClient::builder(TokioExecutor::new()).build::<_, kube::client::Body>(connector);
        let base = tower::util::MapRequest::new(http, |mut request: http::Request<kube::client::Body>| {
            let path = request.uri().path_and_query().map_or("/", |it| it.as_str()).to_owned();
            *request.uri_mut() = format!("http://sandbox{path}").parse().unwrap();
            request
        });
        Self { api, client: kube::Client::new(base, "default"), connections, stop, tasks }
    }

    fn volumes(&self) -> KubeApi<PersistentVolume> {
        KubeApi::all(self.client.clone())
    }

    async fn create(&self, name: &str) -> PersistentVolume {
        let volume = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"], "csi": {"driver": "demo.csi", "volumeHandle": name}}});
        self.volumes().create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn kube_creates_pages_patches_and_deletes() {
    let world = World::new(1);
    for name in ["a", "b", "c"] {
        world.create(name).await;
    }
    let page = world.volumes().list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!((page.items.len(), page.metadata.remaining_item_count), (2, Some(1)));
    let rest = ListParams::default().limit(2).continue_token(page.metadata.continue_.as_deref().unwrap());
    assert_eq!(world.volumes().list(&rest).await.unwrap().items.len(), 1);
    let patch = Patch::Merge(json!({"metadata": {"finalizers": ["a/b"]}}));
    world.volumes().patch("a", &PatchParams::default(), &patch).await.unwrap();
    let deleted = world.volumes().delete("a", &DeleteParams::default()).await.unwrap();
    assert!(deleted.left().unwrap().metadata.deletion_timestamp.is_some());
    let kube::Error::Api(status) = world.volumes().get("nope").await.unwrap_err() else { panic!("no Status") };
    assert_eq!((status.code, status.message.as_str()), (404, "persistentvolumes \"nope\" not found"));
    let details = status.details.unwrap();
    assert_eq!((details.name.as_str(), details.kind.as_str()), ("nope", "persistentvolumes"));
}

/// What a kube watcher sees while the API makes trouble: cut connections, compaction, changes behind its back.
async fn story(seed: u64) -> Vec<String> {
    let world = World::new(seed);
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let (log, api) = (Arc::clone(&lines), world.volumes());
    world.tasks.spawn("watcher", async move {
        let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        while let Some(event) = events.next().await {
            let line = match event {
                Ok(watcher::Event::Apply(it) | watcher::Event::InitApply(it)) => {
                    format!("applied {} {}", it.metadata.name.unwrap(), it.metadata.uid.unwrap())
                }
                Ok(watcher::Event::Delete(it)) => format!("deleted {}", it.metadata.name.unwrap()),
                Ok(watcher::Event::Init) => "init".to_owned(),
                Ok(watcher::Event::InitDone) => "listed".to_owned(),
                Err(_) => "trouble".to_owned(),
            };
            log.lock().unwrap().push(line);
        }
    });
    world.create("a").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.create("b").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let relists = Matching::any().verb("watch");
    world.api.faults().add(Fault::on(relists, Action::CutBefore).times(2));
    world.connections.cut_all();
    world.api.delete::<PersistentVolume>("", "a").unwrap();
    world.api.compact();
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.create("c").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    std::mem::take(&mut *lines.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_kube_watcher_survives_cuts_and_compaction() {
    let lines = story(3).await;
    let told: Vec<&str> =
        lines.iter().map(|line| line.rsplit_once(' ').map_or(line.as_str(), |(head, _)| head)).collect();
    assert_eq!(told.iter().filter(|line| **line == "init").count(), 2, "{lines:?}");
    assert_eq!(told.last(), Some(&"applied c"), "{lines:?}");
    assert!(told.contains(&"trouble"), "{lines:?}");
}

#[test]
fn one_seed_is_one_story() {
    let run = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(story(seed))
    };
    // What repeats differs only in kube's own back-off jitter, which no seed reaches: the events are the same.
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[tokio::test(start_paused = true)]
async fn a_stopping_server_ends_its_watches_and_comes_to_rest() {
    let world = World::new(1);
    let mut events = world.volumes().watch(&kube::api::WatchParams::default(), "0").await.unwrap().boxed();
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.stop.cancel();
    assert!(events.try_next().await.unwrap().is_none());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.tasks.running(), Vec::<String>::new());
}

#[tokio::test]
async fn a_socket_serves_what_a_pipe_does() {
    let clock = Clock::system();
    let api = Api::new(ApiOptions::new(clock, Rng::seeded(1)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    let (tasks, _) = Tasks::new("test");
    let incoming = tcp_connections(listener);
    tasks.spawn("api", serve(api.clone(), incoming, Connections::default(), CancellationToken::new()));
    let client = kube::Client::try_from(config).unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().minor, "37");
    let maps: KubeApi<ConfigMap> = KubeApi::namespaced(client, "default");
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "cm"}, "data": {"a": "b"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    assert_eq!(api.get::<ConfigMap>("default", "cm").unwrap().data, map.data);
}

/// A claim of two writers: another's condition outlives all of ours, and what a patch was decided from must still hold.
#[tokio::test(start_paused = true)]
async fn our_strategic_patches_merge_conditions_and_spare_what_has_changed() {
    let world = World::new(1);
    let api = cluster::Api::new(world.client.clone(), &cluster::ApiOptions::default(), Meter::new());
    let name = ObjectName::namespaced("default", "a");
    let body = json!({"metadata": {"name": "a"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let made: PersistentVolumeClaim = api.create(&name, &body).await.unwrap();
    let condition = |type_, reason| Condition { type_, status: "True", reason, ..Condition::default() };
    let seen = async || {
        let claims: KubeApi<WireClaim> = KubeApi::namespaced(world.client.clone(), "default");
        let claim = claims.get("a").await.unwrap();
        let conditions = claim.status.and_then(|status| status.conditions).unwrap_or_default();
        let told = conditions.into_iter().map(|it| (it.type_, it.reason.unwrap_or_default()));
        (told.collect::<Vec<_>>(), claim.metadata.annotations.unwrap_or_default().len())
    };
    let of = |claim: &PersistentVolumeClaim, guard| StrategicPatch::of(&claim.metadata, guard);
    let write = async |patch: StrategicPatch| {
        api.patch_status::<PersistentVolumeClaim>(&name, &patch.into_patch().unwrap()).await
    };

    let theirs = write(of(&made, Guard::Uid).set_condition(&condition("Theirs", "x"))).await.unwrap();
    let mark = of(&theirs, Guard::Version)
        .set(&["metadata", "annotations", "example.com/a"], "1")
        .set_condition(&condition("Resizing", "Begun"))
        .remove_condition("NodeResizeError");
    let begun = write(mark.clone()).await.unwrap();
    let told = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect::<Vec<(String, String)>>()
    };
    assert_eq!(seen().await, (told(&[("Resizing", "Begun"), ("Theirs", "x")]), 1));
    let again = write(of(&begun, Guard::Uid).set_condition(&condition("Resizing", ""))).await.unwrap();
    assert_eq!(seen().await.0, told(&[("Resizing", ""), ("Theirs", "x")]), "a reason that is empty is removed");

    // A decision from an old version, or about an older object of the name, is not written.
    assert_eq!(write(mark).await.unwrap_err().kind(), ApiErrorKind::Conflict);
    let mut namesake = again.metadata.clone();
    namesake.uid = "another".into();
    let other = StrategicPatch::of(&namesake, Guard::Uid).remove_condition("Theirs");
    assert_eq!(write(other.clone()).await.unwrap_err().kind(), ApiErrorKind::PreconditionFailed);
    let main = api.patch::<PersistentVolumeClaim>(&name, &other.into_patch().unwrap()).await;
    assert_eq!(main.unwrap_err().kind(), ApiErrorKind::PreconditionFailed);

    let end = of(&again, Guard::Version)
        .remove(&["metadata", "annotations", "example.com/a"])
        .remove_condition("Resizing")
        .remove_condition("ControllerResizeError");
    write(end).await.unwrap();
    assert_eq!(seen().await, (told(&[("Theirs", "x")]), 0));

    world.api.install("snapshot.storage.k8s.io");
    let snapshot = StrategicPatch::of(&made.metadata, Guard::Uid).remove_condition("Ready").into_patch().unwrap();
    let refused = api.patch_status::<VolumeSnapshot>(&name, &snapshot).await.unwrap_err();
    assert_eq!(refused.kind(), ApiErrorKind::Invalid, "a custom resource has no merge keys");
    world.stop.cancel();
}
