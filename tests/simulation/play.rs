//! Plays a seed: one runtime, one network, one clock, an API, a driver, two daemons, and everything that happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use csi_control_plane::process::{Clock, Rng};
use csi_control_plane::sandbox::api::Api;
use csi_control_plane::sandbox::api::faults::FaultId;
use csi_control_plane::sandbox::driver::Profile;
use csi_control_plane::sandbox::network::Network;
use csi_control_plane::sandbox::testbed::{API_HOST, DRIVER_HOST, Daemon, TestBed, Transport};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{Instrument as _, info_span};

use crate::happening::{Happening, schedule};
use crate::invariants::Invariant;
use crate::model::Model;
use crate::mutants::Mutant;
use crate::trace::Trace;
use crate::world::{DAEMONS, Scope, World, handle, node_id};
use crate::{calls, commits, drawn, ending, logs};

/// The outcome of a seed.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) scope: Scope,
    pub(crate) fingerprint: u64,
    pub(crate) lines: Vec<String>,
    pub(crate) violations: Vec<(Invariant, String)>,
    /// How much time was simulated.
    pub(crate) simulated: Duration,
    pub(crate) calls: usize,
    pub(crate) writes: u64,
    /// How many claims were made, and how many volumes for them.
    pub(crate) claims: usize,
    pub(crate) volumes: usize,
}

/// Plays one seed on this thread.
pub(crate) fn play(seed: u64, scope: Scope, mutant: Option<Mutant>, listen: logs::Listen) -> Report {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let trace = Trace::new();
        let _listening = logs::listen(listen, &trace);
        let mut play = Play::set(seed, World::of(seed, scope, mutant), trace.clone()).await;
        // Timers alone could not end a run in which time stands still.
        tokio::select! {
            () = play.run() => {}
            () = trace.restless() => {}
        }
        let simulated = trace.age();
        let (claims, volumes) = play.model().supply.counts();
        Report {
            seed,
            scope,
            claims,
            volumes,
            fingerprint: trace.fingerprint(),
            violations: trace.violations(),
            lines: trace.all(),
            simulated,
            calls: play.testbed.driver.calls().len(),
            writes: play.api().version(),
        }
    })
}

/// The acts of a moment.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are a few hundred in a play")]
pub(crate) enum Step {
    Happen(Happening),
    Start(usize),
    Report(usize, String),
    Heal(usize, bool),
    Release(FaultId),
    NodeBack(usize),
    SecretBack(usize),
    ProvisionSecretBack,
    ClassBack(usize),
    RepairJournal,
    DriverCalm,
}

/// A seed being played.
pub(crate) struct Play {
    pub(crate) world: World,
    pub(crate) trace: Trace,
    pub(crate) model: Arc<Mutex<Model>>,
    pub(crate) network: Network,
    pub(crate) testbed: TestBed,
    pub(crate) profile: Profile,
    pub(crate) daemons: Vec<Option<Daemon>>,
    /// The uid of each daemon's pod; `None`: the next start makes one.
    pub(crate) pods: [Option<String>; DAEMONS.len()],
    /// The daemons that had to stop.
    pub(crate) stopping: BTreeSet<usize>,
    /// How often each node was set up anew: its id.
    pub(crate) lives: Vec<u32>,
    /// Attachments to be created again as soon as their namesakes are gone.
    pub(crate) wishes: BTreeSet<(usize, usize)>,
    pub(crate) agenda: BTreeMap<(Duration, u64), Step>,
    steps: u64,
    start: Instant,
    seed: u64,
}

impl Play {
    async fn set(seed: u64, world: World, trace: Trace) -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        let network = Network::new();
        let profile = Profile { accept_unknown_nodes: true, ..Profile::with_nodes([]) };
        let profile = match &world.storage {
            Some(storage) => storage.profile(world.nodes, profile),
            None => profile,
        };
        let ground = Transport::Network(network.clone());
        let testbed = TestBed::set_up(ground, profile.clone(), clock, Rng::seeded(seed)).await.unwrap();
        let handles: Vec<String> = (0..world.volumes.len()).map(handle).collect();
        testbed.driver.seed(handles.iter().map(String::as_str));
        let model = Arc::new(Mutex::new(Model::new(trace.clone(), network.clone(), testbed.api.audit().clone())));
        let (by_call, by_commit) = (model.clone(), model.clone());
        testbed.driver.on_call(move |call, state| calls::on_call(&mut lock(&by_call), call, state));
        testbed.api.on_commit(move |change| commits::on_commit(&mut lock(&by_commit), change));
        if world.storage.is_some() {
            testbed.install_snapshots();
            testbed.start_actors();
        }
        if let Some(mutant) = world.mutant {
            mutant.infect(&testbed);
        }
        let lives = vec![0; world.nodes];
        let daemons = DAEMONS.iter().map(|_| None).collect();
        let (wishes, agenda, start) = (BTreeSet::new(), BTreeMap::new(), Instant::now());
        let stopping = BTreeSet::new();
        Self {
            world,
            trace,
            model,
            network,
            testbed,
            profile,
            daemons,
            pods: Default::default(),
            stopping,
            lives,
            wishes,
            agenda,
            steps: 0,
            start,
            seed,
        }
    }

    pub(crate) fn api(&self) -> &Api {
        &self.testbed.api
    }

    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        lock(&self.model)
    }

    /// Does something after a while.
    pub(crate) fn after(&mut self, wait: Duration, step: Step) {
        self.steps += 1;
        self.agenda.insert((self.start.elapsed() + wait, self.steps), step);
    }

    async fn run(&mut self) {
        self.furnish();
        for node in 0..self.world.nodes {
            self.create(self.world.node(node, Some(&node_id(node, 0))));
        }
        for volume in 0..self.world.volumes.len() {
            self.create(self.world.volume(volume));
            if self.world.volumes[volume].secret {
                self.create(World::secret(volume));
            }
        }
        for daemon in 0..DAEMONS.len() {
            self.start(daemon).await;
        }
        let around_claims = drawn::schedule(self.seed, &self.world);
        for (at, happening) in schedule(self.seed, &self.world).into_iter().chain(around_claims) {
            self.after(at, Step::Happen(happening));
        }
        while let Some(((at, _), step)) = self.agenda.pop_first() {
            sleep_until(self.start + at).await;
            self.look_after();
            if self.trace.is_broken() {
                return;
            }
            self.step(step).await;
        }
        ending::end(self).await;
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Happen(happening) => self.happen(happening).await,
            Step::Start(daemon) => self.start(daemon).await,
            Step::Report(daemon, identity) => self.report(daemon, &identity),
            Step::Heal(daemon, api) => self.heal(daemon, api),
            Step::Release(fault) => self.api().faults().remove(fault),
            Step::NodeBack(node) => self.node_back(node),
            Step::SecretBack(volume) => self.create(World::secret(volume)),
            Step::ProvisionSecretBack => self.create(World::provision_secret()),
            Step::ClassBack(class) => self.class_back(class),
            Step::RepairJournal => self.repair_journal(),
            Step::DriverCalm => self.testbed.driver.clear_faults(),
        }
    }

    /// What the users and the machinery of a cluster do at any time.
    pub(crate) fn look_after(&mut self) {
        for (volume, node) in std::mem::take(&mut self.wishes) {
            self.attach(volume, node, false);
        }
        let mut died = Vec::new();
        for (index, slot) in self.daemons.iter_mut().enumerate() {
            // A daemon that ends by itself: its kubelet starts it again.
            if slot.as_ref().is_some_and(Daemon::has_ended) {
                died.push((index, slot.take()));
            }
        }
        for (index, _) in died.into_iter().filter(|(index, _)| !self.stopping.contains(index)) {
            self.trace.violate(Invariant::I11, format_args!("{} ended by itself", DAEMONS[index]));
        }
    }

    /// Starts a daemon, or the next life of one.
    pub(crate) async fn start(&mut self, index: usize) {
        let name = self.world.host(index);
        self.stopping.remove(&index);
        if let Some(daemon) = self.daemons[index].take()
            && !daemon.has_ended()
        {
            self.trace.note("world", format_args!("{name} took too long to stop: killed"));
            self.network.reset(name, DRIVER_HOST);
            daemon.kill();
        }
        self.trace.note("world", format_args!("{name} starts"));
        let (container, config) = (self.container(index), self.world.config(index));
        let daemon = self.testbed.start_in_container(name, container, &config);
        let daemon = daemon.instrument(info_span!("daemon", name)).await;
        self.daemons[index] = Some(daemon.unwrap());
    }

    /// Heals a link. What its connections held back is lost, as if they had timed out long ago.
    fn heal(&mut self, index: usize, api: bool) {
        let (name, peer) = (DAEMONS[index], if api { API_HOST } else { DRIVER_HOST });
        self.trace.note("world", format_args!("{name} reaches {peer} again"));
        self.network.reset(name, peer);
        self.network.heal(name, peer);
    }

    /// Lets simulated time pass while the cluster goes on.
    pub(crate) async fn pass(&mut self, time: Duration) {
        sleep(time).await;
        self.look_after();
    }
}

fn lock(model: &Mutex<Model>) -> MutexGuard<'_, Model> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}
