//! Plays a scenario: one runtime, one network, one clock, an API, a driver, and daemons that die one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use csi_control_plane::process::{Clock, Rng};
use csi_control_plane::sandbox::actors::SnapshotHabits;
use csi_control_plane::sandbox::driver::Profile;
use csi_control_plane::sandbox::network::{Cut, Network};
use csi_control_plane::sandbox::testbed::{API_HOST, DRIVER_HOST, Daemon, TestBed, Transport};
use jiff::Timestamp;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{Instrument as _, info_span};

use super::attachments::{self, Yard};
use super::boundary::{Boundary, LATENCY};
use super::scenario::Scenario;
use super::verdict;
use super::world::{World, config, snapshot_config};
use crate::invariants::Invariant;
use crate::logs::{self, Listen};
use crate::trace::Trace;

/// When simulated time begins.
const EPOCH: &str = "2026-01-01T00:00:00Z";
/// Everything is at rest after so long without a change.
const REST: Duration = Duration::from_secs(7);
/// A daemon leads, and its watches run, after so long.
const LEADS: Duration = Duration::from_secs(2);
/// How long a lease outlives its holder, with the time that its next holder needs to find out.
const EXPIRES: Duration = Duration::from_secs(5);
/// No rest in so long is none at all.
const PATIENCE: Duration = Duration::from_secs(200);

/// How a daemon comes to its end, and who follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Death {
    /// It is killed; a new process begins with nothing but what the API and the driver hold.
    Killed,
    /// It hears and says nothing any more and is killed later; another process has been waiting with full caches.
    Frozen,
    /// It does not reach the API until another that waited has taken over; then it does again, late requests included.
    CutOff,
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Each daemon's exchanges since the scenario's act, in order.
    pub(crate) boundaries: Vec<Vec<Boundary>>,
    /// The violations.
    pub(crate) wrong: Vec<String>,
    pub(crate) lines: Vec<String>,
}

/// Plays a scenario in which daemons die at these times since its beginning.
pub(crate) fn play(scenario: &Scenario, deaths: &[Duration], how: Death, listen: Listen) -> Outcome {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let trace = Trace::new();
        let _listening = logs::listen(listen, &trace);
        let mut play = Play::set(scenario, trace.clone()).await;
        play.run(scenario, deaths, how).await;
        let ends = if deaths.is_empty() { &scenario.undisturbed } else { &scenario.ends };
        let mut wrong: Vec<_> = trace.violations().into_iter().map(|(_, line)| line).collect();
        wrong.extend(verdict::in_the_end(&play.world, ends));
        wrong.extend(play.yard.iter().flat_map(Yard::wrong));
        let boundaries = (0..play.daemons.len()).map(|life| play.boundaries(life)).collect();
        Outcome { boundaries, wrong, lines: trace.all() }
    })
}

struct Play {
    trace: Trace,
    network: Network,
    testbed: TestBed,
    world: World,
    yard: Option<Yard>,
    config: String,
    /// The node that the daemons are on, where each node has one.
    node: Option<&'static str>,
    /// Every life, those that ended as `None`.
    daemons: Vec<Option<Daemon>>,
    start: Instant,
    /// When the scenario's act began.
    acted: Duration,
    /// Counts the writes of processes without the Lease, and the calls to the driver.
    activity: Arc<AtomicU64>,
    /// Whether requests may come that were sent long ago.
    is_late: Arc<AtomicBool>,
}

fn host(life: usize) -> String {
    format!("daemon-{life}")
}

impl Play {
    async fn set(scenario: &Scenario, trace: Trace) -> Self {
        let start = Instant::now();
        let clock = Clock::simulated(EPOCH.parse().unwrap());
        let network = Network::new();
        let mut profile = Profile::default();
        (scenario.profile)(&mut profile);
        let ground = Transport::Network(network.clone());
        let testbed = TestBed::set_up(ground, profile, clock, Rng::seeded(7)).await.unwrap();
        testbed.install_snapshots();
        if scenario.takes_groups {
            testbed.api.install("groupsnapshot.storage.k8s.io/v1");
        }
        if scenario.takes_snapshots {
            testbed.start_actors_with_snapshots(SnapshotHabits::default());
        } else if !scenario.attaches {
            testbed.start_actors();
        }
        let world = World::new(testbed.api.clone(), testbed.driver.clone());
        let (activity, is_late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        testbed.api.on_commit({
            let (trace, driver) = (trace.clone(), testbed.driver.clone());
            let (activity, is_late) = (activity.clone(), is_late.clone());
            move |change| {
                if change.resource.plural != "leases" {
                    activity.fetch_add(1, Ordering::Relaxed);
                }
                verdict::on_commit(&trace, &driver, is_late.load(Ordering::Relaxed), change);
            }
        });
        testbed.driver.on_call({
            let (trace, world, activity) = (trace.clone(), world.clone(), activity.clone());
            let is_durable = scenario.is_durable();
            move |call, state| {
                if verdict::is_change(call.method) {
                    activity.fetch_add(1, Ordering::Relaxed);
                }
                verdict::on_call(&trace, &world, is_durable, call, state);
            }
        });
        let yard = scenario.attaches.then(|| Yard::new(&world));
        let config = match scenario {
            Scenario { takes_snapshots: true, .. } => snapshot_config(),
            Scenario { attaches: true, .. } => attachments::config(),
            _ => config(&scenario.section),
        };
        let (node, daemons) = (scenario.node, Vec::new());
        Self {
            trace,
            network,
            testbed,
            world,
            yard,
            config,
            node,
            daemons,
            start,
            acted: Duration::ZERO,
            activity,
            is_late,
        }
    }

    async fn run(&mut self, scenario: &Scenario, deaths: &[Duration], how: Death) {
        self.start_daemon().await;
        sleep(LEADS).await;
        if how != Death::Killed {
            self.start_daemon().await;
        }
        for testbed in &scenario.before {
            testbed(&self.world);
            sleep(LEADS).await;
        }
        for fault in (scenario.faults)() {
            self.testbed.driver.inject(fault);
        }
        self.acted = self.start.elapsed();
        (scenario.act)(&self.world);
        for (life, at) in deaths.iter().enumerate() {
            sleep_until(self.start + *at).await;
            self.trace.note("world", format_args!("{} is {how:?}", host(life)));
            let is_first = life == 0;
            match how {
                Death::Killed => {
                    self.kill(life);
                    if is_first {
                        (scenario.meanwhile)(&self.world);
                    }
                    self.start_daemon().await;
                }
                Death::Frozen => {
                    for peer in [API_HOST, DRIVER_HOST] {
                        self.network.partition(&host(life), peer, Cut::Hang);
                    }
                    (scenario.meanwhile)(&self.world);
                    sleep(EXPIRES).await;
                    self.kill(life);
                }
                Death::CutOff => {
                    self.is_late.store(true, Ordering::Relaxed);
                    self.network.partition(&host(life), API_HOST, Cut::Hang);
                    (scenario.meanwhile)(&self.world);
                    sleep(EXPIRES).await;
                    self.network.heal(&host(life), API_HOST);
                }
            }
        }
        self.rest(if deaths.is_empty() { REST } else { EXPIRES + REST }).await;
    }

    fn kill(&mut self, life: usize) {
        self.daemons[life].take().unwrap().kill();
    }

    /// Starts a process with a new name.
    async fn start_daemon(&mut self) {
        let name = host(self.daemons.len());
        for peer in [API_HOST, DRIVER_HOST] {
            self.network.set_latency(&name, peer, LATENCY);
        }
        let starting = async {
            match self.node {
                None => self.testbed.start(&name, &self.config).await,
                Some(node) => self.testbed.start_on(&name, node, &self.config, self.testbed.driver_dial(&name)).await,
            }
        };
        let daemon = starting.instrument(info_span!("daemon", name)).await;
        self.daemons.push(Some(daemon.unwrap()));
    }

    /// Waits until nothing has changed for so long.
    async fn rest(&self, quiet: Duration) {
        let until = Instant::now() + PATIENCE;
        let (mut seen, mut since) = (self.activity.load(Ordering::Relaxed), Instant::now());
        while since.elapsed() < quiet {
            sleep(Duration::from_secs(1)).await;
            let now = self.activity.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            if Instant::now() > until {
                self.trace.violate(Invariant::I11, format_args!("there is none"));
                return;
            }
        }
    }

    /// A daemon's exchanges since the act, in order.
    fn boundaries(&self, life: usize) -> Vec<Boundary> {
        let name = host(life);
        let epoch: Timestamp = EPOCH.parse().unwrap();
        let at = |time: Timestamp| Duration::try_from(time.duration_since(epoch)).unwrap_or_default();
        let requests = self.testbed.api.audit().matching(|entry| entry.user == name);
        let requests = requests.iter().filter_map(|entry| Boundary::of_request(entry, at(entry.time)));
        let number = |connection: u64| usize::try_from(connection).unwrap_or_default();
        let calls = self.testbed.driver.calls();
        let calls = calls
            .iter()
            .filter(|call| self.network.accepted_from(DRIVER_HOST, number(call.connection)).as_ref() == Some(&name))
            .filter_map(|call| Boundary::of_call(call));
        let mut all: Vec<Boundary> = requests.chain(calls).filter(|it| it.at >= self.acted).collect();
        all.sort_by_key(|it| it.at);
        all
    }
}
