//! A cluster and a driver on real sockets, and a clock on every attachment: when it was created, attached, deleted, gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_control_plane::process::{Clock, Rng};
use csi_control_plane::sandbox::api::{Committed, PatchBody};
use csi_control_plane::sandbox::driver::{Method, Profile};
use csi_control_plane::sandbox::testbed::{TestBed, Transport};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::Instant;

/// A daemon's share of the cluster's traffic carries this name.
pub const DAEMON: &str = "bench";
/// No single figure takes as long.
const PATIENCE: Duration = Duration::from_secs(300);

/// The stage and its timeline.
pub struct Cluster {
    pub testbed: TestBed,
    pub folder: TempDir,
    timeline: Arc<Timeline>,
}

#[derive(Default)]
struct Timeline {
    begun: Mutex<BTreeMap<String, Instant>>,
    took: Mutex<(Vec<Duration>, Vec<Duration>)>,
    done: watch::Sender<(usize, usize)>,
}

/// What one phase took.
pub struct Phase {
    pub count: usize,
    pub wall: Duration,
    /// Of each attachment, sorted.
    pub latencies: Vec<Duration>,
    /// The daemon's requests by verb and resource.
    pub requests: BTreeMap<String, usize>,
    /// CPU time in milliseconds of the process that was asked for.
    pub cpu: u64,
}

impl Cluster {
    /// With nodes, and with `attached` attachments that are there and attached already.
    pub async fn with(attached: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ids: Vec<String> = (0..super::NODES).map(super::node_id).collect();
        let profile = Profile::with_nodes(ids.iter().map(String::as_str));
        let ground = Transport::Sockets { folder: folder.path().to_owned() };
        let testbed = TestBed::set_up(ground, profile, Clock::system(), Rng::seeded(1)).await.unwrap();
        for number in 0..super::NODES {
            testbed.api.create_value(super::node(number)).unwrap();
        }
        let cluster = Self { testbed, folder, timeline: Arc::default() };
        cluster.provision(0..attached);
        for number in 0..attached {
            let object = super::attachment(number, 1);
            let status = json!({ "status": object["status"] });
            let (name, mut new) = (super::attachment_name(number), object);
            new["metadata"] = json!({
                "name": name, "finalizers": new["metadata"]["finalizers"], "annotations": new["metadata"]["annotations"],
            });
            let api = &cluster.testbed.api;
            api.create_value(new).unwrap();
            api.patch_status::<VolumeAttachment>("", &name, PatchBody::Merge(status)).unwrap();
            let (volume, node) = (super::handle(number), super::node_id(number));
            cluster.testbed.driver.change_state(|state| state.attach_behind(&volume, &node));
        }
        let timeline = Arc::clone(&cluster.timeline);
        cluster.testbed.api.on_commit(move |committed| timeline.note(committed));
        cluster
    }

    /// Volumes of the API and of the driver.
    pub fn provision(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let mut volume = super::volume(number);
            // As a provisioner leaves it: not yet protected by the attacher.
            volume["metadata"] = json!({
                "name": super::volume_name(number), "finalizers": ["kubernetes.io/pv-protection"],
                "annotations": volume["metadata"]["annotations"],
            });
            self.testbed.api.create_value(volume).unwrap();
            self.testbed.driver.seed([super::handle(number).as_str()]);
        }
    }

    /// Creates these attachments at once, and waits until all are attached.
    pub async fn attach(&self, numbers: std::ops::Range<usize>, process: &str) -> Phase {
        let count = numbers.len();
        self.phase(
            count,
            process,
            |api, number| drop(api.create_value(super::new_attachment(number)).unwrap()),
            numbers,
            |d| d.0,
        )
        .await
    }

    /// Deletes them at once, and waits until all are gone.
    pub async fn detach(&self, numbers: std::ops::Range<usize>, process: &str) -> Phase {
        let count = numbers.len();
        let delete = |api: &csi_control_plane::sandbox::api::Api, number| {
            api.delete::<VolumeAttachment>("", &super::attachment_name(number)).unwrap();
        };
        self.phase(count, process, delete, numbers, |d| d.1).await
    }

    async fn phase(
        &self,
        count: usize,
        process: &str,
        begin: impl Fn(&csi_control_plane::sandbox::api::Api, usize),
        numbers: std::ops::Range<usize>,
        done: impl Fn((usize, usize)) -> usize,
    ) -> Phase {
        let audit = self.testbed.api.audit();
        audit.clear();
        *self.timeline.took.lock().unwrap() = Default::default();
        self.timeline.done.send_replace((0, 0));
        let (start, cpu) = (self.testbed.clock.now(), super::cpu(process));
        for number in numbers {
            begin(&self.testbed.api, number);
            if number % 50 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let mut watched = self.timeline.done.subscribe();
        let all = watched.wait_for(|now| done(*now) >= count);
        tokio::time::timeout(PATIENCE, all).await.unwrap().unwrap();
        let wall = start.elapsed();
        let cpu = super::cpu(process) - cpu;
        let (attached, gone) = std::mem::take(&mut *self.timeline.took.lock().unwrap());
        let mut latencies = if attached.is_empty() { gone } else { attached };
        latencies.sort();
        let mut requests = BTreeMap::new();
        for entry in audit.matching(|entry| entry.user == DAEMON && entry.verb != "watch" && entry.resource != "leases")
        {
            let sub = if entry.subresource.is_empty() { String::new() } else { format!("/{}", entry.subresource) };
            let failed = if entry.code < 300 { String::new() } else { format!(" → {}", entry.code) };
            *requests.entry(format!("{} {}{sub}{failed}", entry.verb, entry.resource)).or_default() += 1;
        }
        Phase { count, wall, latencies, requests, cpu }
    }

    /// How many publish calls came for a volume that had been published before.
    pub fn duplicates(&self) -> usize {
        let mut calls: BTreeMap<String, usize> = BTreeMap::new();
        for call in self.testbed.driver.calls_of(Method::ControllerPublishVolume) {
            *calls.entry(call.volume.clone().unwrap_or_default()).or_default() += 1;
        }
        calls.values().map(|count| count - 1).sum()
    }
}

impl Timeline {
    fn note(&self, committed: &Committed<'_>) {
        if committed.resource.plural != "volumeattachments" {
            return;
        }
        let Some(object) = committed.new.or(committed.old) else { return };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let attached = |object: Option<&Value>| object.is_some_and(|object| object["status"]["attached"] == true);
        let deleting =
            |object: Option<&Value>| object.is_some_and(|object| !object["metadata"]["deletionTimestamp"].is_null());
        let now = Clock::system().now();
        let since_begun = || self.begun.lock().unwrap().get(name).map(|begun| now - *begun).unwrap_or_default();
        let begins = committed.old.is_none() || deleting(committed.new) && !deleting(committed.old);
        if committed.new.is_none() {
            self.took.lock().unwrap().1.push(since_begun());
            self.done.send_modify(|done| done.1 += 1);
        } else if begins {
            self.begun.lock().unwrap().insert(name.to_owned(), now);
        } else if attached(committed.new) && !attached(committed.old) {
            self.took.lock().unwrap().0.push(since_begun());
            self.done.send_modify(|done| done.0 += 1);
        }
    }
}

impl Phase {
    /// To add to.
    pub fn nothing() -> Self {
        Self { count: 0, wall: Duration::ZERO, latencies: Vec::new(), requests: BTreeMap::new(), cpu: 0 }
    }

    /// Another phase after this one.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.wall += other.wall;
        self.cpu += other.cpu;
        self.latencies.extend(other.latencies);
        self.latencies.sort();
        for (what, count) in other.requests {
            *self.requests.entry(what).or_default() += count;
        }
    }

    /// Operations a second.
    pub fn rate(&self) -> f64 {
        f64::from(u32::try_from(self.count).unwrap()) / self.wall.as_secs_f64()
    }

    /// In milliseconds: the time within which `percent` of the operations were done.
    pub fn percentile(&self, percent: usize) -> f64 {
        let index = (self.latencies.len() * percent / 100).min(self.latencies.len() - 1);
        self.latencies[index].as_secs_f64() * 1000.0
    }

    /// CPU milliseconds for each operation.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub fn cpu_each(&self) -> f64 {
        self.cpu as f64 / self.count as f64
    }

    /// The daemon's requests for each operation.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub fn requests_each(&self) -> String {
        let each = |(what, count): (&String, &usize)| format!("{:.2} {what}", *count as f64 / self.count as f64);
        self.requests.iter().map(each).collect::<Vec<_>>().join(", ")
    }
}
