//! Claims that grow and change their attributes class, in simulated time: users change their minds, the driver and the API fail,
//! daemons die. The invariants are those of resizer spec 14.
//!
//! [`Checks`] is told of each commit and each call, and knows nothing else. Below it histories that break an invariant show that it
//! can fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_control_plane::cluster::quantity::bytes;
use csi_control_plane::process::{Clock, Rng};
use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method, Profile, Violation};
use csi_control_plane::sandbox::network::Network;
use csi_control_plane::sandbox::testbed::{Daemon, TestBed, Transport};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::time::sleep;
use tonic::Code;

use crate::world::{DAEMONS, DRIVER, text};

/// How many seeds an ordinary test run plays.
const SEEDS: u64 = 8;
/// Of the seeds that are asked for, one in so many is played here too: the play of all roles takes the larger part of the time.
const SHARE: u64 = 4;
/// Seeds that found something once: a node that was told again what it had done, because the answer to the write was lost.
const FOUND: [u64; 1] = [35];
const CLAIMS: usize = 4;
const CLASSES: [&str; 3] = ["a", "b", "c"];
const CONFIG: &str = "csi: { timeout: 5s }\n\
    kubernetes: { requestTimeout: 5s }\n\
    leaderElection: { leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s }\n\
    diagnostics: { listen: null }\n\
    roles:\n\
    \x20 resizer: { workers: 3, retry: { initial: 500ms, max: 20s, infeasible: 15s }, resync: 60s }\n";
/// How long it may take until each claim has what it asks for, once nothing goes wrong any more.
const PATIENCE: Duration = Duration::from_secs(600);

const STATE: &str = "/status/allocatedResourceStatuses/storage";
const ALLOCATED: &str = "/status/allocatedResources/storage";
const CAPACITY: &str = "/status/capacity/storage";
const RECORDED: &str = "/spec/capacity/storage";
const CURRENT: &str = "/status/currentVolumeAttributesClassName";
const TARGET: &str = "/status/modifyVolumeStatus/targetVolumeAttributesClassName";

fn size(object: &Value, pointer: &str) -> i64 {
    bytes(text(object, pointer)).unwrap_or_default()
}

fn handle(claim: usize) -> String {
    format!("handle-{claim}")
}

/// What must hold, checked at each commit and each call.
#[derive(Default)]
struct Checks {
    /// Claims and volumes by their names.
    objects: BTreeMap<String, Value>,
    /// The attributes that each volume has.
    attributes: BTreeMap<String, String>,
    broken: Vec<String>,
}

impl Checks {
    fn violate(&mut self, invariant: &str, what: impl std::fmt::Display) {
        self.broken.push(format!("{invariant}: {what}"));
    }

    fn object(&self, name: &str) -> Value {
        self.objects.get(name).cloned().unwrap_or_default()
    }

    fn committed(&mut self, plural: &str, new: &Value) {
        let name = text(new, "/metadata/name").to_owned();
        let old = self.object(&name);
        match plural {
            "persistentvolumes" if size(new, RECORDED) < size(&old, RECORDED) => {
                self.violate("I5", format_args!("the size of {name} sinks"));
            }
            "persistentvolumeclaims" => self.claim_committed(&name, &old, new),
            _ => {}
        }
        if plural.starts_with("persistentvolume") {
            self.objects.insert(name, new.clone());
        }
    }

    fn claim_committed(&mut self, name: &str, old: &Value, new: &Value) {
        let volume = self.object(text(new, "/spec/volumeName"));
        if size(new, CAPACITY) < size(old, CAPACITY) {
            self.violate("I5", format_args!("what {name} has sinks"));
        }
        if size(new, CAPACITY) > size(&volume, RECORDED) {
            self.violate("I5", format_args!("{name} has more than its volume"));
        }
        let turned = |to: &str| text(new, STATE) == to && text(old, STATE) != to;
        if turned("NodeResizePending") && size(&volume, RECORDED) < size(new, ALLOCATED) {
            self.violate("I6", format_args!("a node is told to reach what the volume of {name} does not say"));
        }
        if text(old, STATE) == "ControllerResizeInProgress"
            && size(new, ALLOCATED) < size(old, ALLOCATED)
            && !has_failed(old)
        {
            self.violate("I4", format_args!("{name} begins less while the last call's outcome is unknown"));
        }
        let class = text(new, CURRENT);
        if class != text(old, CURRENT) {
            let made = self.attributes.get(text(&volume, "/spec/csi/volumeHandle")).cloned();
            if made.as_deref() != Some(class) || text(&volume, "/spec/volumeAttributesClassName") != class {
                self.violate("I7", format_args!("{name} says {class}, and its volume has {made:?}"));
            }
        }
    }

    fn called(&mut self, call: &Call) {
        let handle = call.volume.clone().unwrap_or_default();
        let name = handle.replace("handle", "claim");
        let claim = self.object(&name);
        let asked = call.modify.as_ref().and_then(|modify| modify.mutable_parameters.get("iops")).cloned();
        if call.applied.is_some() {
            if let Some(asked) = asked {
                self.attributes.insert(handle, asked);
            }
            return;
        }
        if call.ended.is_some() {
            return;
        }
        if let Some(expand) = &call.expand {
            let wanted = expand.capacity_range.as_ref().map_or(0, |range| range.required_bytes);
            if wanted != size(&claim, ALLOCATED) {
                self.violate("I2", format_args!("{wanted} bytes are asked for, and {name} does not say so"));
            }
        }
        if let Some(asked) = asked
            && asked != text(&claim, TARGET)
        {
            self.violate("I3", format_args!("{asked} is asked for, and {name} does not say so"));
        }
    }
}

/// Whether a claim says that the last call has ended in a final error.
fn has_failed(claim: &Value) -> bool {
    let conditions = claim.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|it| text(it, "/type") == "ControllerResizeError" && !matches!(text(it, "/reason"), "" | "Retrying"))
}

/// A cluster, a driver, and what is drawn.
struct Play {
    testbed: TestBed,
    checks: Arc<Mutex<Checks>>,
    rng: StdRng,
    daemons: Vec<Option<Daemon>>,
}

fn volume(index: usize) -> Value {
    let mode = if index.is_multiple_of(2) { "Block" } else { "Filesystem" };
    json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("pv-{index}") }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "volumeMode": mode,
        "storageClassName": "grows", "persistentVolumeReclaimPolicy": "Retain",
        "csi": { "driver": DRIVER, "volumeHandle": handle(index) } } })
}

fn claim(index: usize) -> Value {
    let mode = volume(index)["spec"]["volumeMode"].clone();
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": format!("claim-{index}") },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "grows", "volumeName": format!("pv-{index}"),
            "volumeMode": mode, "resources": { "requests": { "storage": "1Gi" } } } })
}

fn pod(index: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": format!("pod-{index}") }, "spec": {
        "nodeName": "node", "containers": [{ "name": "c", "image": "i" }],
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": format!("claim-{index}") } }] } })
}

impl Play {
    async fn set(seed: u64) -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        let profile = Profile { name: DRIVER.to_owned(), ..Profile::default() };
        let ground = Transport::Network(Network::new());
        let testbed = TestBed::set_up(ground, profile, clock, Rng::seeded(seed)).await.unwrap();
        let handles: Vec<String> = (0..CLAIMS).map(handle).collect();
        testbed.driver.seed(handles.iter().map(String::as_str));
        let checks: Arc<Mutex<Checks>> = Arc::default();
        let (by_call, by_commit) = (Arc::clone(&checks), Arc::clone(&checks));
        testbed.driver.on_call(move |call, _| by_call.lock().unwrap().called(call));
        testbed.api.on_commit(move |change| {
            if let Some(new) = change.new {
                by_commit.lock().unwrap().committed(change.resource.plural, new);
            }
        });
        testbed.start_actors();
        let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "grows" },
            "provisioner": DRIVER, "allowVolumeExpansion": true });
        testbed.api.create_value(class).unwrap();
        for name in CLASSES {
            let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
                "metadata": { "name": name }, "driverName": DRIVER, "parameters": { "iops": name } });
            testbed.api.create_value(class).unwrap();
        }
        for index in 0..CLAIMS {
            testbed.api.create_value(volume(index)).unwrap();
            testbed.api.create_value(claim(index)).unwrap();
            // Their nodes finish what the driver leaves to them.
            testbed.api.create_value(pod(index)).unwrap();
        }
        let daemons = DAEMONS.iter().map(|_| None).collect();
        let mut play = Self { testbed, checks, rng: StdRng::seed_from_u64(seed), daemons };
        play.start_all().await;
        play
    }

    async fn start_all(&mut self) {
        for (index, host) in DAEMONS.iter().enumerate() {
            if self.daemons[index].is_none() {
                self.daemons[index] = Some(self.testbed.start(host, CONFIG).await.unwrap());
            }
        }
    }

    fn edit(&self, claim: usize, spec: &Value) {
        let body = PatchBody::Merge(json!({ "spec": spec }));
        // What the API refuses is no wish.
        let _ = self.testbed.api.patch::<PersistentVolumeClaim>("default", &format!("claim-{claim}"), body);
    }

    /// Something happens.
    async fn happen(&mut self) {
        let claim = self.rng.random_range(0..CLAIMS);
        match self.rng.random_range(0..20) {
            0..6 => {
                let wish = format!("{}Mi", self.rng.random_range(1024..6000));
                self.edit(claim, &json!({ "resources": { "requests": { "storage": wish } } }));
            }
            6..11 => {
                let wish = CLASSES[self.rng.random_range(0..CLASSES.len())];
                self.edit(claim, &json!({ "volumeAttributesClassName": wish }));
            }
            11..15 => {
                let fault = self.driver_fault();
                self.testbed.driver.inject(fault);
            }
            15..18 => {
                let fault = self.api_fault();
                self.testbed.api.faults().add(fault);
            }
            18 => {
                let daemon = self.rng.random_range(0..DAEMONS.len());
                if let Some(running) = self.daemons[daemon].take() {
                    running.kill();
                }
            }
            _ => self.start_all().await,
        }
    }

    fn driver_fault(&mut self) -> Fault {
        let jobs = [Method::ControllerExpandVolume, Method::ControllerModifyVolume];
        let code = Code::from_i32(self.rng.random_range(1..=16));
        let message = "scripted".to_owned();
        let action = match self.rng.random_range(0..8) {
            0..4 => Action::Fail { code, message },
            4 => Action::DoneButFail { code: Code::Unavailable, message },
            5 => Action::DoneButHang,
            6 => Action::Late(Duration::from_millis(self.rng.random_range(100..9000))),
            _ => Action::DoneButCrash { down: Duration::from_millis(self.rng.random_range(0..3000)) },
        };
        Fault::on(jobs[self.rng.random_range(0..jobs.len())], action).times(self.rng.random_range(1..=4))
    }

    fn api_fault(&mut self) -> ApiFault {
        let action = match self.rng.random_range(0..5) {
            0 => ApiAction::Refuse(Rejection::internal("scripted")),
            1 => ApiAction::RefuseAfter(Rejection::internal("scripted")),
            2 => ApiAction::CutBefore,
            3 => ApiAction::CutAfter,
            _ => ApiAction::Refuse(Rejection::too_many_requests(1)),
        };
        let kind = ["persistentvolumeclaims", "persistentvolumes"][self.rng.random_range(0..2)];
        let on = Matching::any().user(DAEMONS[self.rng.random_range(0..DAEMONS.len())]).verb("patch").resource(kind);
        ApiFault::on(on, action).times(self.rng.random_range(1..=3))
    }

    /// What the claims still lack.
    fn missing(&self) -> Vec<String> {
        let checks = self.checks.lock().unwrap();
        let lacks = |index: usize| {
            let claim = checks.object(&format!("claim-{index}"));
            let wanted = text(&claim, "/spec/volumeAttributesClassName");
            let is_sized = size(&claim, "/spec/resources/requests/storage") <= size(&claim, CAPACITY)
                && text(&claim, STATE).is_empty();
            let is_classed = text(&claim, CURRENT) == wanted && claim.pointer("/status/modifyVolumeStatus").is_none();
            let is_clean = claim.pointer("/status/conditions").is_none();
            (!is_sized || !is_classed || !is_clean).then(|| format!("claim-{index}: {}", claim["status"]))
        };
        (0..CLAIMS).filter_map(lacks).collect()
    }

    async fn run(&mut self) -> Vec<String> {
        for _ in 0..self.rng.random_range(40..120) {
            sleep(Duration::from_millis(self.rng.random_range(0..3000))).await;
            self.happen().await;
        }
        self.testbed.driver.clear_faults();
        self.testbed.api.faults().clear();
        self.testbed.server.restart(Duration::from_millis(100)).await;
        self.testbed.server.up().await;
        self.start_all().await;
        // A volume that the driver has refused because it is in use waits for its pod to end, and for a node to finish it, another.
        for index in 0..CLAIMS {
            self.testbed.api.delete::<Pod>("default", &format!("pod-{index}")).unwrap();
        }
        sleep(Duration::from_secs(30)).await;
        for index in 0..CLAIMS {
            self.testbed.api.create_value(pod(index)).unwrap();
        }
        let mut waited = Duration::ZERO;
        while !self.missing().is_empty() && waited < PATIENCE {
            sleep(Duration::from_secs(1)).await;
            waited += Duration::from_secs(1);
        }
        let mut broken = self.checks.lock().unwrap().broken.clone();
        broken.extend(self.missing().into_iter().map(|what| format!("I13, I15: it never came to rest: {what}")));
        // What a daemon that was killed has asked for goes on at the driver.
        let own = |it: &Violation| !matches!(it, Violation::Overlap { same_connection: false, .. });
        broken.extend(self.testbed.driver.violations().into_iter().filter(own).map(|it| format!("I1: {it}")));
        broken
    }
}

#[test]
fn claims_that_grow_and_change_come_to_rest_and_break_no_invariant_on_the_way() {
    let count = crate::number("SIMULATION_SEEDS").map_or(SEEDS, |seeds| (seeds / SHARE).max(SEEDS));
    for seed in (0..count).chain(FOUND) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let broken = runtime.block_on(async { Play::set(seed).await.run().await });
        assert!(broken.is_empty(), "seed {seed}: {broken:#?}");
    }
}

/// A claim of 1Gi with a volume of 1Gi, after these changes of the claim's status and the volume's spec.
fn history(changes: &[(&str, Value)]) -> Vec<String> {
    let mut checks = Checks::default();
    let mut objects = BTreeMap::from([("persistentvolumes", volume(0)), ("persistentvolumeclaims", claim(0))]);
    objects.get_mut("persistentvolumeclaims").unwrap()["status"] = json!({ "capacity": { "storage": "1Gi" } });
    for plural in ["persistentvolumes", "persistentvolumeclaims"] {
        checks.committed(plural, &objects[plural]);
    }
    for (plural, patch) in changes {
        let object = objects.get_mut(plural).unwrap();
        for (pointer, value) in patch.as_object().unwrap() {
            let mut place = &mut *object;
            for key in pointer.split('.') {
                place = &mut place[key];
            }
            *place = value.clone();
        }
        checks.committed(plural, object);
    }
    checks.broken.iter().map(|what| what.split(':').next().unwrap().to_owned()).collect()
}

#[test]
fn the_checks_find_out_histories_that_break_an_invariant() {
    const CLAIM: &str = "persistentvolumeclaims";
    const VOLUME: &str = "persistentvolumes";
    let none: [&str; 0] = [];
    let grown = (VOLUME, json!({ "spec.capacity.storage": "2Gi" }));
    let begun = json!({ "status.allocatedResources.storage": "4Gi",
        "status.allocatedResourceStatuses.storage": "ControllerResizeInProgress" });
    let failed = json!({ "status.conditions": [{ "type": "ControllerResizeError", "reason": "Internal" }] });
    let less = json!({ "status.allocatedResources.storage": "2Gi" });
    let pending = json!({ "status.allocatedResources.storage": "2Gi",
        "status.allocatedResourceStatuses.storage": "NodeResizePending" });
    let done = (CLAIM, json!({ "status.capacity.storage": "2Gi" }));
    assert_eq!(history(&[grown.clone(), done.clone()]), none);
    assert_eq!(history(std::slice::from_ref(&done)), ["I5"], "more than the volume has");
    assert_eq!(history(&[grown.clone(), (VOLUME, json!({ "spec.capacity.storage": "1Gi" }))]), ["I5"], "it sinks");
    assert_eq!(history(&[grown.clone(), done, (CLAIM, json!({ "status.capacity.storage": "1Gi" }))]), ["I5"]);
    assert_eq!(history(&[grown, (CLAIM, pending.clone())]), none);
    assert_eq!(history(&[(CLAIM, pending)]), ["I6"], "the volume comes first");
    assert_eq!(history(&[(CLAIM, begun.clone()), (CLAIM, failed), (CLAIM, less.clone())]), none);
    assert_eq!(history(&[(CLAIM, begun), (CLAIM, less)]), ["I4"], "the outcome is unknown");
    assert_eq!(history(&[(CLAIM, json!({ "status.currentVolumeAttributesClassName": "a" }))]), ["I7"]);
}
