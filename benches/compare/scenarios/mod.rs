//! How a contender is measured at a workload.

mod burst;
mod cut;
mod failover;
mod first;
mod idle;
mod refresh;
mod scale;
mod single;
mod start;

use std::time::Duration;

use futures::future::LocalBoxFuture;
use serde_json::json;

use crate::Figures;
use crate::arguments::Arguments;
use crate::bare::Writer;
use crate::contender::{Contender, Crew, Seat};
use crate::stage::{Backend, Stage};
use crate::timeline::{Limit, Timeline};
use crate::workload::Workload;

/// After so long an object that should be undone is changed once more.
const NUDGE: Duration = Duration::from_secs(10);
/// Nothing that is not the subject of a measurement may take as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A phase without a throttle takes seconds, or minutes with many objects on a busy machine.
const LONG: Duration = Duration::from_secs(15 * 60);
/// Long enough for a throttle to let through whatever is wanted of it.
const FOR_EVER: Duration = Duration::from_secs(3 * 3600);

/// One measurement: of whom, at what, and where.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) workload: &'a dyn Workload,
    pub(crate) contender: &'a dyn Contender,
    /// How often this contender was measured so in this comparison before.
    pub(crate) nth: usize,
}

/// How a contender is measured at a workload.
pub(crate) trait Scenario {
    /// Its name, with what tells it from others of its kind.
    fn name(&self) -> String;

    /// Whether this contender is worth its time.
    fn takes(&self, _workload: &dyn Workload, _contender: &dyn Contender) -> bool {
        true
    }

    /// Whether the bench's own client, which only writes, can do it in a contender's place.
    fn takes_bare(&self) -> bool {
        false
    }

    /// How often each contender is measured in a round.
    fn times(&self) -> usize {
        1
    }

    /// How long one run of it takes, about, in seconds: what `--plan` adds up.
    fn estimate(&self, contender: &dyn Contender) -> f64;

    /// How long [`Scenario::prepare`] takes, about, in seconds.
    fn readying(&self) -> f64 {
        0.0
    }

    /// Makes ready what every run of it needs.
    fn prepare<'a>(&'a self, _stage: &'a Stage, _workload: &'a dyn Workload) -> LocalBoxFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Measures once, and leaves the stage as it was.
    fn run<'a>(&'a self, scene: Scene<'a>) -> LocalBoxFuture<'a, Figures>;
}

/// Those that were asked for, in their order.
pub(crate) fn chosen(arguments: &Arguments, workload: &dyn Workload) -> Vec<Box<dyn Scenario>> {
    let wants = |name| Arguments::wants(&arguments.scenarios, name) && workload.suits(name);
    let mut all: Vec<Box<dyn Scenario>> = Vec::new();
    let slow = Duration::from_millis(200);
    let bursts = [("burst", Duration::ZERO, None), ("slow-burst", slow, None), ("crowded-burst", slow, Some(20))];
    for count in &arguments.counts {
        for (_, latency, most) in bursts.into_iter().filter(|(name, ..)| wants(name)) {
            all.push(Box::new(burst::Burst { count: *count, latency, bound: arguments.bound, most }));
        }
    }
    if wants("single") {
        all.push(Box::new(single::Single { count: 30 }));
    }
    if wants("start") {
        all.push(Box::new(start::Start { count: 5 }));
    }
    if wants("failover") {
        let seed = arguments.seed;
        let signals = ["TERM", "KILL"].map(|signal| failover::Failover { signal, seed });
        all.extend(signals.map(|one| Box::new(one) as Box<dyn Scenario>));
    }
    if wants("cut") {
        all.push(Box::new(cut::Cut { count: 500 }));
    }
    if wants("first-attach") {
        let firsts = arguments.counts.iter().map(|count| first::First { count: *count, bound: arguments.bound });
        all.extend(firsts.map(|first| Box::new(first) as Box<dyn Scenario>));
    }
    if wants("refresh") {
        all.push(Box::new(refresh::Refresh { segments: arguments.segments, bound: arguments.bound }));
    }
    // It takes hours, so it has to be named.
    if arguments.scenarios.iter().any(|name| name == "scale") && wants("scale") {
        let [ours, foreign, nodes, burst] = arguments.scale;
        all.push(Box::new(scale::Scale { ours, foreign, nodes, burst }));
    }
    if wants("idle") {
        all.extend(arguments.idle.iter().map(|count| Box::new(idle::Idle { count: *count }) as Box<dyn Scenario>));
    }
    all
}

/// A contender at work: its process, its driver, and the clock on its objects.
pub(crate) struct Bout<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) workload: &'a dyn Workload,
    pub(crate) crew: Crew,
    /// In the crew's place: the bench's own client.
    pub(crate) writer: Option<Writer>,
    /// Whether a throttle decides how quick it is.
    pub(crate) is_throttled: bool,
    /// How long a phase may take.
    pub(crate) limit: Limit,
    pub(crate) backend: Backend,
    pub(crate) timeline: Timeline,
}

impl<'a> Bout<'a> {
    /// Starts the contender, with nothing to do. After `bound` a phase is cut, if it is one with a throttle, or the workload one in which
    /// contenders stand still: nobody waits for minutes for what is known after one. Everyone else is waited for.
    pub(crate) async fn begin(scene: Scene<'a>, latency: Duration, bound: Option<Duration>) -> Self {
        let Scene { stage, workload, contender, .. } = scene;
        let backend = stage.driver(workload, latency).await;
        let timeline = timeline(stage, workload).await;
        let seat = seat(stage, &backend, workload);
        let crew = contender.start(&seat);
        let writer = match contender.writes(workload) {
            Some(writes) => Some(Writer::new(stage, writes).await),
            None => None,
        };
        let is_throttled = contender.is_throttled();
        let limit = match bound {
            _ if !is_throttled && !workload.may_stall() => Limit::Patience(LONG),
            Some(bound) => Limit::Cut(bound),
            None => Limit::Patience(FOR_EVER),
        };
        Self { stage, workload, crew, writer, is_throttled, limit, backend, timeline }
    }

    /// Creates the objects of these numbers, and does the work where the bench itself is at it.
    pub(crate) async fn create(&self, numbers: std::ops::Range<usize>) {
        match &self.writer {
            Some(writer) => writer.burst(self.stage, self.workload, numbers).await,
            None => self.stage.begin(self.workload, numbers, |_| ()).await,
        }
    }

    /// Has one object done and undone, so that whatever is done once has been.
    pub(crate) async fn warm_up(&self, number: usize) {
        self.one(number).await;
        self.timeline.clear();
    }

    /// Has one object done, and undone.
    pub(crate) async fn one(&self, number: usize) {
        let name = self.workload.object(number)["metadata"]["name"].as_str().unwrap().to_owned();
        let done = || self.timeline.names_done(true).into_iter().find(|(one, _)| *one == name);
        self.stage.begin_one(self.workload, number).await;
        assert!(self.timeline.until(PATIENCE, |_| done().is_some()).await, "it does not work at all");
        let done = done().unwrap();
        let before = self.timeline.back().len();
        self.stage.undo(self.workload, &done).await;
        // csi-snapshotter that is behind with its watch forgets a deletion until its next resync, unless something changes again.
        for nudge in 0.. {
            if self.timeline.until(NUDGE, |counts| counts.gone > before).await {
                return;
            }
            assert!(NUDGE * nudge < PATIENCE, "nothing is undone");
            let label = json!({ "metadata": { "labels": { "nudge": nudge.to_string() } } });
            self.stage.merge(self.workload.facts().collection, &name, "", &label).await;
        }
    }

    /// CPU time of the contender so far, in milliseconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.crew.cpu()
    }

    /// Stops everything, and leaves the stage empty.
    pub(crate) async fn end(self) {
        self.crew.stop().await;
        self.backend.stop().await;
        self.stage.clear(self.workload).await;
    }
}

/// The clock on the workload's objects.
pub(crate) async fn timeline(stage: &Stage, workload: &dyn Workload) -> Timeline {
    Timeline::of(stage, workload).await
}

/// A seat at the stage, alone.
pub(crate) fn seat<'a>(stage: &'a Stage, backend: &'a Backend, workload: &dyn Workload) -> Seat<'a> {
    let (folder, kubeconfig, socket) = (stage.folder(), stage.kubeconfig(), backend.socket.as_path());
    let (sidecars, capacity) = (workload.facts().sidecars, workload.tells_capacity());
    Seat { folder, kubeconfig, socket, leader_election: false, host: "only", sidecars, capacity }
}
