//! A full list of everything in the middle of work, after a 410: how long it takes, how long it holds up other tasks, and the memory at its
//! peak. Half of the objects are another driver's. Prints a table, and fails beyond its bounds.
//!
//! The objects are made by a server in this process, on a thread of its own, as they are asked for. The caches have one thread, so that
//! nothing else can do the work of a task that is held up.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench fails by panicking and reports by printing")]

mod support;

use std::convert::Infallible;
use std::fs;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::Uri;
use csi_control_plane::cluster::{
    Cache, Cached, Caches, ClientOptions, Clients, ClusterAccess, PersistentVolume, PersistentVolumeClaim,
    Subscription, Viewpoint, VolumeAttachment,
};
use csi_control_plane::process::{Clock, Dial, Rng, Tasks};
use csi_control_plane::telemetry::Meter;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// Volumes of ours, and as many of another driver's, each with a claim and an attachment.
const COUNT: usize = 100_000;
const OTHER: &str = "other.csi.example.com";
/// No task waits for longer because of another one. What is not optimised takes ten times as long.
const LONGEST_STALL: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1_000 } else { 100 });
/// The memory at the peak may be so many times that before, in percent.
const MOST_MEMORY: usize = 150;
const TICK: Duration = Duration::from_millis(1);

/// What the server has.
struct Served {
    count: AtomicUsize,
    version: AtomicU64,
    watches: Mutex<Vec<mpsc::UnboundedSender<Result<String, Infallible>>>>,
}

impl Served {
    /// Ends all watches as a server does that has forgotten their version.
    fn expire(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
        let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired",
            "message": "too old resource version" });
        for watch in self.watches.lock().unwrap().drain(..) {
            let _ = watch.send(Ok(format!("{}\n", json!({ "type": "ERROR", "object": status }))));
        }
    }

    fn page(&self, kind: &str, limit: usize, from: usize) -> String {
        let count = 2 * self.count.load(Ordering::Relaxed);
        let until = (from + limit).min(count);
        let items: Vec<String> = (from..until).map(|number| object(kind, number).to_string()).collect();
        let more = if until < count { until.to_string() } else { String::new() };
        let version = self.version.load(Ordering::Relaxed).to_string();
        let metadata = json!({ "resourceVersion": version, "continue": more });
        let items = items.join(",");
        format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{metadata},"items":[{items}]}}"#)
    }
}

/// An object, as a server sends it. Every second one is another driver's.
fn object(kind: &str, number: usize) -> Value {
    let is_foreign = number % 2 == 1;
    let mut object = match kind {
        "volumeattachments" => support::attachment(number, 1),
        "persistentvolumes" => support::volume(number),
        _ => support::claim(number),
    };
    let driver = if is_foreign { OTHER } else { support::DRIVER };
    match kind {
        "volumeattachments" => object["spec"]["attacher"] = json!(driver),
        "persistentvolumes" => {
            object["spec"]["csi"]["driver"] = json!(driver);
            object["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] = json!(driver);
        }
        _ => object["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] = json!(driver),
    }
    object
}

#[derive(serde::Deserialize)]
struct Asked {
    watch: Option<bool>,
    limit: Option<usize>,
    r#continue: Option<usize>,
}

async fn answer(State(served): State<Arc<Served>>, uri: Uri, Query(asked): Query<Asked>) -> Body {
    if asked.watch == Some(true) {
        let (sender, receiver) = mpsc::unbounded_channel();
        served.watches.lock().unwrap().push(sender);
        return Body::from_stream(UnboundedReceiverStream::new(receiver));
    }
    let kind = uri.path().rsplit('/').next().unwrap();
    served.page(kind, asked.limit.unwrap_or(usize::MAX / 4), asked.r#continue.unwrap_or_default()).into()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Measures how late a task is that wants to run each millisecond.
async fn tick(latest: Arc<AtomicU64>) {
    let clock = Clock::system();
    loop {
        let due = clock.now() + TICK;
        tokio::time::sleep_until(due).await;
        let late = u64::try_from(due.elapsed().as_micros()).unwrap();
        latest.fetch_max(late, Ordering::Relaxed);
    }
}

/// The caches at work, and how many changes their subscriber was told.
struct Daemon {
    caches: Caches,
    told: Arc<AtomicUsize>,
    latest: Arc<AtomicU64>,
    kept: Vec<(Subscription, Box<dyn Fn() -> usize + Send>)>,
    _tasks: Tasks,
}

impl Daemon {
    async fn start(dial: Dial) -> Self {
        let (tasks, _ends) = Tasks::new("bench");
        let clients = Clients::connect(&ClusterAccess::Endpoint { dial, token: None }, &ClientOptions::default()).await;
        let (caches, told, latest) = (Caches::new(), Arc::default(), Arc::default());
        let kept = vec![
            follow::<VolumeAttachment>(&caches, &told),
            follow::<PersistentVolume>(&caches, &told),
            follow::<PersistentVolumeClaim>(&caches, &told),
        ];
        let (clients, view, meter) = (clients.unwrap(), Viewpoint::of(support::DRIVER), Meter::new());
        caches.start(&clients, &view, &tasks, &meter, Clock::system(), Rng::seeded(1));
        tasks.spawn("tick", tick(Arc::clone(&latest)));
        Self { caches, told, latest, kept, _tasks: tasks }
    }

    /// Waits until each kind was listed so often.
    async fn listed(&self, times: u64) {
        while self.caches.status().iter().any(|status| status.lists < times) {
            sleep(5 * TICK).await;
        }
    }

    fn objects(&self) -> usize {
        self.kept.iter().map(|(_, len)| len()).sum()
    }
}

fn follow<K: Cached>(caches: &Caches, told: &Arc<AtomicUsize>) -> (Subscription, Box<dyn Fn() -> usize + Send>) {
    let cache: Cache<K> = caches.want();
    let told = Arc::clone(told);
    let subscription = cache.subscribe(move |_| {
        told.fetch_add(1, Ordering::Relaxed);
    });
    (subscription, Box::new(move || cache.len()))
}

/// The most memory since the last call, in bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    // 5 resets the peak.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// As many as the arguments say.
fn count() -> usize {
    let given = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    given.unwrap_or_else(|| if support::only_once() { 2_000 } else { COUNT })
}

fn main() {
    let (count, clock) = (count(), Clock::system());
    let served = Arc::new(Served { count: count.into(), version: 7.into(), watches: Mutex::default() });
    let (remote, caches) = (runtime(), runtime());
    let (tasks, _ends) = Tasks::new("server");
    let dial = remote.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let dial = Dial::tcp(listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(Arc::clone(&served));
        tasks.spawn("server", async move { axum::serve(listener, app).await.unwrap() });
        dial
    });
    println!(
        "| {count} volumes of ours and as many of others, with claims and attachments | seconds | longest stall, ms | memory, MB | at its peak |"
    );
    println!("| --- | ---: | ---: | ---: | ---: |");
    let mut faults = Vec::new();
    caches.block_on(async {
        let mut begun = clock.now();
        let (daemon, mut idle) = (Daemon::start(dial).await, 0);
        let cases = [
            ("the first list", count, 6 * count),
            ("after a 410, nothing has changed", count, 0),
            ("after a 410, half are gone", count / 2, 3 * count),
            ("after a 410, they are back", count, 3 * count),
        ];
        for (times, (what, count, changes)) in (1..).zip(cases) {
            served.count.store(count, Ordering::Relaxed);
            if times > 1 {
                begun = clock.now();
                served.expire();
            }
            daemon.listed(times).await;
            let took = begun.elapsed();
            assert_eq!((daemon.objects(), daemon.told.swap(0, Ordering::Relaxed)), (6 * count, changes), "{what}");
            sleep(Duration::from_secs(1)).await;
            let stall = Duration::from_micros(daemon.latest.swap(0, Ordering::Relaxed));
            let (now, most) = (support::resident("self"), peak());
            let megabytes = |bytes: usize| bytes / 1_000_000;
            println!(
                "| {what} | {:.1} | {:.1} | {} | {} |",
                took.as_secs_f64(),
                stall.as_secs_f64() * 1000.0,
                megabytes(now),
                megabytes(most)
            );
            if stall > LONGEST_STALL {
                faults.push(format!("{what}: a task waited for {stall:?}"));
            }
            if times == 2 && most * 100 > idle * MOST_MEMORY {
                faults.push(format!("{what}: {most} bytes of memory, {idle} before"));
            }
            idle = now;
        }
    });
    assert!(faults.is_empty(), "{faults:?}");
    // The server's task never ends.
    remote.shutdown_background();
    caches.shutdown_background();
}
