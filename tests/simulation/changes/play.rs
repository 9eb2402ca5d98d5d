//! A cluster, a driver and daemons that a seed is played with; and its end.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use csi_control_plane::process::Clock;
use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::proto::plugin_capability::volume_expansion;
use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::driver::Profile;
use csi_control_plane::sandbox::network::Network;
use csi_control_plane::sandbox::testbed::TestBed;
use k8s_openapi::jiff::SignedDuration;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::checks::Checks;
use super::happening::Own;
use super::invariants::Rule;
use super::objects::{
    CAPACITY, CLAIMS, CLASSES, COUNT, FOREIGN_CLASS, LEFT_ALONE, NODE, REQUESTED, SECRET, VOLUMES, WANTED, claim,
    claim_name, class, furniture, kind, pod, pod_name, size, volume,
};
use crate::invariants::Invariant;
use crate::stage::{Commit, Stage, caller};
use crate::trace::Trace;
use crate::world::{COMMON_CONFIG, DAEMONS, DRIVER, MARKER, World, text};

/// The largest volume that the driver makes.
const LARGEST: i64 = 32 << 30;
/// A size that the driver calls infeasible.
pub(super) const TOO_LARGE: &str = "40Gi";
/// How long it may take until each claim has what it asks for, once nothing goes wrong any more.
const PATIENCE: u64 = 900;
/// Pods are away for so many seconds of a round at the end: a volume in use may wait for that, and a node for the pods' return.
const ROUND: (u64, u64) = (40, 120);
/// Less than a look at everything, which costs no request either.
const QUIET: Duration = Duration::from_secs(130);

/// The ways in which volumes grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    /// By a call, also while they are in use.
    Online,
    /// By a call, while they are not published.
    Offline,
    /// On nodes alone.
    OnNodes,
}

/// The settings of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn by itself")]
pub(super) struct Setting {
    /// Networks are cut, watches are late, clocks differ, others write to the same objects.
    pub(super) is_rough: bool,
    /// A second daemon waits.
    pub(super) has_standby: bool,
    /// Volumes have a secret.
    pub(super) is_secretive: bool,
    pub(super) growth: Growth,
    /// An attacher works beside the resizer, in the same process.
    pub(super) attaches: bool,
    /// `pairCalls`.
    pub(super) pairs: bool,
    /// `inUseCheck`.
    pub(super) checks_use: bool,
    /// `extraModifyMetadata`.
    pub(super) tells_names: bool,
    pub(super) has_quota: bool,
}

impl Setting {
    /// Every third seed is a plain one.
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0xc1a_0000);
        let growth = match rng.random_range(0..6) {
            0 => Growth::OnNodes,
            1 | 2 => Growth::Offline,
            _ => Growth::Online,
        };
        Self {
            is_rough: !seed.is_multiple_of(3),
            has_standby: rng.random_bool(0.7),
            is_secretive: rng.random_bool(0.3),
            growth,
            attaches: growth == Growth::Offline || rng.random_bool(0.3),
            pairs: rng.random_bool(0.4),
            checks_use: rng.random_bool(0.7),
            tells_names: rng.random_bool(0.2),
            has_quota: rng.random_bool(0.3),
        }
    }

    fn profile(self) -> Profile {
        let mut profile = Profile { name: DRIVER.to_owned(), max_volume_size: LARGEST, ..Profile::with_nodes([NODE]) };
        // A driver that has both calls at once merges them.
        profile.abort_while_pending = !self.pairs;
        let names = ["pvc/name", "pvc/namespace", "pv/name"];
        profile.mutable_parameters.extend(names.map(|name| format!("csi.storage.k8s.io/{name}")));
        match self.growth {
            Growth::Online => {}
            Growth::Offline => profile.expansion = Some(volume_expansion::Type::Offline as i32),
            Growth::OnNodes => {
                profile = profile.without(Rpc::ExpandVolume);
                profile.node_only_expansion = true;
            }
        }
        profile
    }

    fn config(self) -> String {
        let pairs = if self.pairs { "always" } else { "never" };
        let retry = "retry: { initial: 500ms, max: 20s";
        let attacher = if self.attaches {
            format!("\x20 attacher: {{ workers: 3, detachWorkers: 2, {retry} }}, resync: 60s }}\n")
        } else {
            String::new()
        };
        format!(
            "{COMMON_CONFIG}\x20 resizer: {{ workers: 3, {retry}, infeasible: 15s }}, resync: 60s, pairCalls: {pairs}, \
             inUseCheck: {}, extraModifyMetadata: {} }}\n{attacher}",
            self.checks_use, self.tells_names
        )
    }
}

/// A cluster, a driver, and what is drawn.
pub(super) struct Play {
    pub(super) stage: Stage<Own>,
    pub(super) setting: Setting,
    pub(super) checks: Arc<Mutex<Checks>>,
    /// The clock of the cluster.
    clock: Clock,
    trace: Trace,
}

/// The outcome of a seed.
pub(super) struct Report {
    pub(super) broken: Vec<(Rule, String)>,
    pub(super) grown: usize,
    pub(super) modified: usize,
    pub(super) calls: usize,
}

impl Play {
    async fn set(seed: u64, setting: Setting, trace: Trace) -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        let stage = Stage::set(seed, setting.profile(), clock, setting.has_standby).await;
        let testbed = &stage.testbed;
        let handles: Vec<String> = (0..COUNT).map(|index| format!("handle-{index}")).collect();
        testbed.driver.seed(handles.iter().map(String::as_str).chain(["handle-stray"]));
        let is_node_only = setting.growth == Growth::OnNodes;
        let checks = Checks { is_node_only, pairs: setting.pairs, ..Checks::default() };
        let checks = Arc::new(Mutex::new(checks));
        listen_to(testbed, &stage.network, &checks, &trace);
        testbed.start_actors();
        let mut play = Self { stage, setting, checks, clock, trace };
        play.furnish().await;
        play.start_all().await;
        play
    }

    async fn furnish(&self) {
        let create = |object: Value| drop(self.stage.testbed.api.create_value(object).unwrap());
        create(World::secret(SECRET));
        furniture(self.setting.has_quota).into_iter().for_each(create);
        CLASSES[..3].iter().chain([&FOREIGN_CLASS]).for_each(|name| create(class(name)));
        let names = (0..COUNT).map(|index| index.to_string()).chain(LEFT_ALONE.map(str::to_owned));
        for name in names {
            create(volume(&name, self.setting.is_secretive));
            create(claim(&name));
        }
        (0..COUNT).for_each(|index| create(pod(index)));
        // Claims and volumes are bound meanwhile.
        sleep(Duration::from_secs(2)).await;
        for name in LEFT_ALONE {
            let wish = json!({ "resources": { "requests": { "storage": "3Gi" } }, "volumeAttributesClassName": "a" });
            self.edit(&claim_name(name), &wish);
        }
        let taken = PatchBody::Merge(json!({ "spec": { "claimRef": { "uid": "of-another-claim" } } }));
        self.stage.testbed.api.patch_object(kind("", VOLUMES), "", "pv-stray", taken, false).unwrap();
    }

    /// Changes what a claim asks for.
    pub(super) fn edit(&self, claim: &str, spec: &Value) {
        let body = PatchBody::Merge(json!({ "spec": spec }));
        // A change that the API refuses does not count as requested.
        let _ = self.stage.testbed.api.patch_object(kind("", CLAIMS), "default", claim, body, false);
    }

    /// The clocks of the daemons differ where it is rough.
    async fn start(&mut self, index: usize) {
        let skew = if self.setting.is_rough { self.stage.rng.random_range(-7200..7200) } else { 0 };
        let time = self.clock.wall().checked_add(SignedDuration::from_secs(skew)).unwrap();
        self.stage.testbed.clock = Clock::simulated(time);
        let daemon = self.stage.testbed.start(DAEMONS[index], &self.setting.config()).await.unwrap();
        self.stage.testbed.clock = self.clock;
        self.stage.daemons[index] = Some(daemon);
    }

    pub(super) async fn start_all(&mut self) {
        for index in 0..self.stage.daemons.len() {
            if self.stage.is_away(index) {
                self.start(index).await;
            }
        }
    }

    pub(super) fn checks(&self) -> MutexGuard<'_, Checks> {
        self.checks.lock().unwrap()
    }

    /// A claim as it is stored.
    pub(super) fn claim(&self, index: usize) -> Value {
        self.checks().claims.get(&claim_name(&index.to_string())).cloned().unwrap_or_default()
    }

    /// Makes the classes that are missing.
    fn make_classes(&self) {
        for name in CLASSES {
            // Refused where it is there.
            let _ = self.stage.testbed.api.create_value(class(name));
        }
    }

    fn set_pods(&self, are_there: bool) {
        for index in 0..COUNT {
            let _ = if are_there {
                self.stage.testbed.api.create_value(pod(index)).map(drop)
            } else {
                self.stage.testbed.api.delete_object(kind("", "pods"), "default", &pod_name(index)).map(drop)
            };
        }
    }

    /// Plays it to its end.
    async fn run(mut self) -> Report {
        for _ in 0..self.stage.rng.random_range(40..110) {
            sleep(Duration::from_millis(self.stage.rng.random_range(0..3000))).await;
            self.undo_what_is_due().await;
            self.happen().await;
        }
        self.heal().await;
        for second in 0..PATIENCE {
            if self.checks().unrest().is_empty() {
                break;
            }
            match second % ROUND.1 {
                0 => self.set_pods(false),
                it if it == ROUND.0 => self.set_pods(true),
                _ => {}
            }
            sleep(Duration::from_secs(1)).await;
            // A daemon that had to stop may have ended only now.
            self.start_all().await;
        }
        self.set_pods(true);
        let mut broken = self.checks().unrest();
        let is_at_rest = broken.is_empty();
        self.checks().asked(&self.stage.testbed.api.audit().entries());
        if is_at_rest {
            self.stay_quiet().await;
            broken = self.checks().differences();
        }
        let checks = self.checks();
        broken.extend(checks.broken.clone());
        broken.extend(self.stage.panics().into_iter().map(|panic| (Rule::I1, panic)));
        let of_trace = |invariant| if invariant == Invariant::I10 { Rule::I12 } else { Rule::I14 };
        broken.extend(self.trace.violations().into_iter().map(|(invariant, line)| (of_trace(invariant), line)));
        for daemon in self.stage.daemons.iter().flatten() {
            if daemon.meter.render().contains(MARKER) {
                broken.push((Rule::I12, format!("a metric of {} has a secret's value", daemon.name)));
            }
        }
        let (grown, modified, calls) = (checks.grown, checks.modified, self.stage.testbed.driver.calls().len());
        Report { broken, grown, modified, calls }
    }

    async fn heal(&mut self) {
        self.stage.end_faults();
        self.deaf_for(Duration::ZERO);
        self.stage.restart().await;
        self.make_classes();
        let _ = self.stage.testbed.api.create_value(World::secret(SECRET));
        for index in 0..COUNT {
            let (claim, name) = (self.claim(index), claim_name(&index.to_string()));
            // Requests that cannot be fulfilled are given up.
            if size(&claim, REQUESTED) > LARGEST {
                let less = LARGEST.min(size(&claim, CAPACITY) + (1 << 30));
                self.edit(&name, &json!({ "resources": { "requests": { "storage": less.to_string() } } }));
            }
            if text(&claim, WANTED) == FOREIGN_CLASS {
                self.edit(&name, &json!({ "volumeAttributesClassName": CLASSES[0] }));
            }
        }
        self.start_all().await;
    }

    /// Nothing is to be done any more.
    async fn stay_quiet(&mut self) {
        // The pods are attached again, and the last Events are on their way: those that were repeated are counted each five minutes.
        let (requests, calls) = self.stage.watch(Duration::from_secs(330), QUIET).await;
        self.checks().disturbed(&requests, &calls);
    }
}

/// Passes each commit and each call to the checks.
fn listen_to(testbed: &TestBed, network: &Network, checks: &Arc<Mutex<Checks>>, trace: &Trace) {
    let (by_call, by_commit) = (Arc::clone(checks), Arc::clone(checks));
    let (network, of_calls, of_commits) = (network.clone(), trace.clone(), trace.clone());
    testbed.driver.on_call(move |call, state| {
        let caller = caller(&network, call);
        if let Some(volume) = &call.volume {
            let (id, method, label) = (call.id, call.method, call.outcome.label());
            let size = call.expand.as_ref().and_then(|it| it.capacity_range.as_ref()).map(|range| range.required_bytes);
            let class = call.modify.as_ref().map(|it| it.mutable_parameters.get("iops").cloned());
            of_calls
                .note(&caller, format_args!("#{id} {method} {volume} {size:?} {class:?} {:?} {label}", call.applied));
        }
        let held = state
            .volumes()
            .iter()
            .map(|(id, it)| (id.clone(), it.capacity, it.mutable.get("iops").cloned().unwrap_or_default()));
        let mut checks = by_call.lock().unwrap();
        checks.holds(held);
        checks.called(call, &caller);
    });
    let began = Instant::now() - testbed.driver.age();
    testbed.api.on_commit(move |change| {
        let object = change.new.or(change.old);
        let commit = Commit::of(change, began.elapsed());
        let object = object.unwrap_or(&Value::Null);
        let verb = if change.new.is_none() { "removes" } else { "writes" };
        let shown = match commit.plural {
            CLAIMS => {
                Some([&object["spec"]["resources"], &object["spec"]["volumeAttributesClassName"], &object["status"]])
            }
            VOLUMES => Some([&object["spec"]["capacity"], &object["spec"]["volumeAttributesClassName"], &Value::Null]),
            "volumeattributesclasses" | "pods" => Some([&Value::Null; 3]),
            _ => None,
        };
        if let Some(shown) = shown {
            of_commits.note(commit.actor, format_args!("{verb} {} {} {shown:?}", commit.plural, commit.name));
        }
        by_commit.lock().unwrap().committed(&commit);
    });
}

/// Plays a seed.
pub(super) async fn play(seed: u64, setting: Setting, trace: Trace) -> Report {
    Play::set(seed, setting, trace).await.run().await
}
