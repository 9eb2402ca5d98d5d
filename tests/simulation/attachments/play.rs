//! A cluster, kubelets, an attacher and daemons that a seed is played with; and its end.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use csi_control_plane::process::Clock;
use csi_control_plane::sandbox::driver::Profile;
use csi_control_plane::sandbox::testbed::{API_HOST, TestBed};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::attacher::Attacher;
use super::checks::Checks;
use super::happening::Own;
use super::invariants::Rule;
use super::kubelet::Kubelet;
use super::mutants::Mutant;
use super::objects::{
    ALL, ATTACHMENTS, CLAIMS, Cluster, NODE_COUNT, NODES, PODS, claim_object, drivers, node, node_name,
};
use crate::stage::{Commit, Stage, unasked};
use crate::trace::Trace;
use crate::world::{COMMON_CONFIG, DAEMONS, DRIVER, finalizers, is_deleting};

/// When simulated time begins.
pub(super) const EPOCH: &str = "2026-01-01T00:00:00Z";
/// How long it may take until all is as pods want it, once nothing goes wrong any more: a leader has to find its Lease, the other
/// controller may have been active, and three volumes may have to move one after the other.
const STATED: u64 = 120;
/// The same for pods whose claims lead nowhere: only what lasts for two minutes is told.
const STATED_OF_WAITS: u64 = 150;
/// So long nothing is written then.
const QUIET: Duration = Duration::from_secs(30);

/// The settings of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn by itself")]
pub(crate) struct Setting {
    /// Networks are cut, watches are late, the API compacts.
    pub(crate) is_rough: bool,
    /// A second daemon waits.
    pub(crate) has_standby: bool,
    /// Leaders seldom die, so that what lasts long can come to its end.
    pub(crate) is_steady: bool,
    /// The daemons have the attacher, too. Otherwise the play attaches.
    pub(crate) attaches: bool,
    /// `forceDetachOnTimeout`.
    pub(crate) forces: bool,
    /// `multiAttach: strict`.
    pub(crate) is_strict: bool,
    /// `maxWaitForUnmount`, in seconds.
    pub(crate) wait: u64,
    /// `settle`, in seconds.
    pub(crate) settle: u64,
    /// The other controller is active now and then.
    pub(crate) has_other: bool,
    /// The longest pause of a kubelet between two steps, in milliseconds.
    pub(crate) pace: u64,
}

impl Setting {
    /// Every third seed is a plain one.
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0xa77_0000);
        Self {
            is_rough: !seed.is_multiple_of(3),
            has_standby: rng.random_bool(0.7),
            is_steady: rng.random_bool(0.5),
            attaches: rng.random_bool(0.5),
            forces: rng.random_bool(0.7),
            is_strict: rng.random_bool(0.8),
            wait: 60,
            settle: [0, 1, 10][rng.random_range(0..3)],
            has_other: rng.random_bool(0.2),
            pace: [60, 300, 1500][rng.random_range(0..3)],
        }
    }

    /// How late a daemon may see what there is, with the time that its own requests take.
    pub(super) fn late(self) -> Duration {
        Duration::from_secs(if self.is_rough { 30 } else { 5 })
    }

    /// Whether an exclusive volume may have two attachments, of which its driver attaches one: also because the other controller makes one.
    pub(super) fn may_share(self) -> bool {
        !self.is_strict || self.has_other
    }

    pub(super) fn waits(self) -> Duration {
        Duration::from_secs(self.wait)
    }

    fn config(self) -> String {
        let attacher = "\x20 attacher: { workers: 3, retry: { initial: 500ms, max: 4s }, resync: 60s }\n";
        let multi_attach = if self.is_strict { "strict" } else { "confirmed" };
        let Self { attaches, forces, wait, settle, .. } = self;
        format!(
            "{COMMON_CONFIG}\x20 attachDetach: {{ workers: 3, retry: {{ initial: 500ms, max: 4s }}, resync: 10s, orphanGrace: 10s, \
             settle: {settle}s, maxWaitForUnmount: {wait}s, forceDetachOnTimeout: {forces}, multiAttach: {multi_attach} }}\n{}",
            if attaches { attacher } else { "" }
        )
    }
}

/// A cluster, and what is drawn.
pub(super) struct Play {
    pub(super) stage: Stage<Own>,
    pub(super) setting: Setting,
    pub(super) cluster: Cluster,
    pub(super) kubelets: Vec<Kubelet>,
    pub(super) attacher: Attacher,
    pub(super) checks: Arc<Mutex<Checks>>,
    pub(super) mutant: Option<Mutant>,
    trace: Trace,
}

/// The outcome of a seed.
pub(super) struct Report {
    pub(super) broken: Vec<(Rule, String)>,
    /// How many attachments were made, and deleted, how many of these by force; and how often a volume was mounted.
    pub(super) counts: [usize; 4],
}

impl Play {
    async fn set(seed: u64, setting: Setting, mutant: Option<Mutant>, trace: Trace) -> Self {
        let clock = Clock::simulated(EPOCH.parse().unwrap());
        let profile = Profile { name: DRIVER.to_owned(), accept_unknown_nodes: true, ..Profile::with_nodes([]) };
        let stage: Stage<Own> = Stage::set(seed, profile, clock, setting.has_standby).await;
        stage.testbed.driver.seed(ALL.iter().map(|claim| claim.handle));
        let began = Instant::now() - stage.testbed.driver.age();
        let checks = Checks::new(setting, stage.testbed.api.audit().clone(), began);
        let checks = Arc::new(Mutex::new(checks));
        listen_to(&stage.testbed, began, &checks, &trace);
        let cluster = Cluster(stage.testbed.api.clone());
        let pace = Duration::from_millis(setting.pace);
        let kubelets = (0..NODE_COUNT).map(|index| Kubelet::new(node_name(index), pace)).collect();
        let attacher = Attacher::new(!setting.attaches, setting.may_share());
        let mut play = Self { stage, setting, cluster, kubelets, attacher, checks, mutant, trace };
        for daemon in DAEMONS {
            let latency = play.stage.seconds(0.0, 0.03);
            play.stage.network.set_latency(daemon, API_HOST, latency);
        }
        for driver in drivers() {
            assert!(play.cluster.create(driver));
        }
        for claim in ALL.iter().filter(|claim| claim.name != "late") {
            play.cluster.supply(claim);
        }
        for index in 0..NODE_COUNT {
            for object in node(&node_name(index)) {
                assert!(play.cluster.create(object));
            }
            // What is no CSI volume is another controller's.
            let theirs = json!([{ "name": "example.com/volume", "devicePath": "/dev/theirs" }]);
            play.cluster.status(NODES, &node_name(index), &json!({ "volumesAttached": theirs }));
        }
        play.infect();
        play.start_all().await;
        play
    }

    /// Breaks the daemons: at first, and again when everything else has healed.
    fn infect(&self) {
        if let Some(mutant) = self.mutant {
            mutant.infect(&self.stage.testbed);
        }
    }

    pub(super) async fn start_all(&mut self) {
        let (sound, mutant) = (self.setting.config(), self.mutant);
        let of = |daemon: usize| match mutant {
            Some(mutant) => (mutant.host(daemon), mutant.of_config(&sound, daemon)),
            None => (DAEMONS[daemon], sound.clone()),
        };
        self.stage.start_all(of).await;
    }

    pub(super) fn checks(&self) -> MutexGuard<'_, Checks> {
        self.checks.lock().unwrap()
    }

    /// Time passes, and kubelets and attachers work.
    async fn pass(&mut self, lasts: Duration) {
        let until = Instant::now() + lasts;
        loop {
            let up = self.kubelets.iter().filter(|kubelet| kubelet.is_up).map(|kubelet| kubelet.next);
            let next = up.chain([self.attacher.next]).min().unwrap_or(until);
            sleep_until(next.min(until)).await;
            if next >= until {
                return;
            }
            let now = Instant::now();
            for kubelet in self.kubelets.iter_mut().filter(|kubelet| kubelet.is_up && kubelet.next <= now) {
                kubelet.tick(&self.cluster, &self.checks, &mut self.stage.rng);
            }
            if self.attacher.next <= now {
                self.attacher.tick(&self.cluster, &mut self.stage.rng);
            }
        }
    }

    /// Plays it to its end.
    async fn run(mut self) -> Report {
        for _ in 0..self.stage.rng.random_range(120..260) {
            let pause = self.stage.seconds(0.0, if self.setting.is_steady { 2.4 } else { 1.2 });
            self.pass(pause).await;
            self.undo_what_is_due().await;
            self.happen().await;
            if self.is_found_out() {
                return self.report(Vec::new());
            }
        }
        self.heal().await;
        let mut broken = self.converge(STATED, false).await;
        if broken.is_empty() {
            broken = self.converge(STATED_OF_WAITS, true).await;
        }
        self.checks().requested();
        if broken.is_empty() {
            self.stay_quiet().await;
            broken = self.checks().unrest(true);
        }
        self.report(broken)
    }

    /// Whether the checks have found what a mutant breaks.
    fn is_found_out(&self) -> bool {
        let checks = self.checks();
        self.mutant
            .is_some_and(|mutant| mutant.breaks().iter().all(|it| checks.broken.iter().any(|(rule, _)| rule == it)))
    }

    fn report(&self, mut broken: Vec<(Rule, String)>) -> Report {
        let checks = self.checks();
        broken.extend(checks.broken.clone());
        broken.extend(self.stage.panics().into_iter().map(|panic| (Rule::Own, panic)));
        // Things without end at one moment.
        broken.extend(self.trace.violations().into_iter().map(|(_, line)| (Rule::End, line)));
        Report { broken, counts: checks.counts }
    }

    /// Waits until all is as it should be. Returns what is not after so many seconds.
    async fn converge(&mut self, seconds: u64, of_waits: bool) -> Vec<(Rule, String)> {
        for _ in 0..seconds {
            if self.checks().unrest(of_waits).is_empty() {
                break;
            }
            self.pass(Duration::from_secs(1)).await;
            // A daemon that had to stop may have ended only now.
            self.start_all().await;
        }
        self.checks().unrest(of_waits)
    }

    /// Nothing goes wrong any more. What people have made by hand they take away again.
    async fn heal(&mut self) {
        self.stage.end_faults();
        self.stage.restart().await;
        self.attacher.fails = false;
        for held in self.cluster.all(ATTACHMENTS) {
            let name = held["metadata"]["name"].as_str().unwrap_or_default();
            if name.starts_with("by-hand") {
                self.cluster.delete(ATTACHMENTS, name);
            }
        }
        for index in 0..NODE_COUNT {
            self.cluster.manage(&node_name(index), true);
            self.cluster.taint(&node_name(index), false);
            self.come_back(index, false);
        }
        for pod in self.cluster.all(PODS) {
            let is_lost = is_deleting(&pod) && pod.pointer("/spec/nodeName").is_none();
            if is_lost && !finalizers(&pod).is_empty() {
                self.cluster.remove(PODS, pod["metadata"]["name"].as_str().unwrap_or_default());
            }
        }
        for claim in &ALL {
            if claim.name != "late"
                || self.cluster.get(CLAIMS, claim.name).is_some_and(|it| it["status"]["phase"] == "Bound")
            {
                self.cluster.supply(claim);
            } else {
                self.cluster.create(claim_object(claim));
            }
        }
        // What the other controller has done is forgotten by the next term.
        for daemon in &mut self.stage.daemons {
            if let Some(running) = daemon.take() {
                running.kill();
            }
        }
        self.infect();
        self.start_all().await;
    }

    /// Nothing is to be done any more.
    async fn stay_quiet(&mut self) {
        self.pass(QUIET).await;
        let (requests, _) = self.stage.watch(Duration::ZERO, QUIET).await;
        for what in unasked(&requests, &["leases", "events"]) {
            self.checks().violate(Rule::End, what);
        }
    }
}

/// Passes each commit to the checks.
fn listen_to(testbed: &TestBed, began: Instant, checks: &Arc<Mutex<Checks>>, trace: &Trace) {
    let (checks, trace) = (Arc::clone(checks), trace.clone());
    testbed.api.on_commit(move |change| {
        let commit = Commit::of(change, began.elapsed());
        let object = change.new.or(change.old).unwrap_or(&Value::Null);
        let verb = if change.new.is_none() { "removes" } else { "writes" };
        let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let shown = match commit.plural {
            PODS => json!([spec["nodeName"], meta["deletionTimestamp"], status]),
            NODES => json!([meta["uid"], spec["taints"], status]),
            ATTACHMENTS => json!([spec["nodeName"], spec["source"], meta["deletionTimestamp"], status]),
            "events" => json!([object["involvedObject"]["name"], object["reason"], object["message"]]),
            "leases" => return checks.lock().unwrap().committed(&commit),
            _ => json!([meta["uid"], status]),
        };
        trace.note(commit.actor, format_args!("{verb} {} {} {shown}", commit.plural, commit.name));
        checks.lock().unwrap().committed(&commit);
    });
}

/// Plays a seed.
pub(super) async fn play(seed: u64, setting: Setting, mutant: Option<Mutant>, trace: Trace) -> Report {
    Play::set(seed, setting, mutant, trace).await.run().await
}
