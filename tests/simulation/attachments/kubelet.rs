//! A kubelet, as far as the attach/detach controller knows one (attach-detach spec 12): it says in the status of its node which volumes it
//! uses before it reads, live, whether a volume is reported as attached, and then the attachment; and only then it mounts. It says that it
//! does not use a volume any more once that is unmounted. Each of that is a step of its own, and anything may come between two steps.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::checks::Checks;
use super::objects::{
    ATTACHMENTS, CLAIMS, Claim, Cluster, NODES, PODS, Site, VOLUMES, are_bound, attachment_name, claims_of, containers,
    has_statuses, is_attached, is_finished, is_ready, is_running, node, reported, used,
};
use crate::world::{is_deleting, text};

/// How far it is with a volume that is not mounted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A pod wants it.
    Wanted,
    /// The node reported it when it was read, after its use was written.
    Verified,
    /// Its attachment was attached.
    Found,
}

/// One thing that it may do next.
#[derive(Debug)]
enum Step {
    /// Write which volumes it uses, and that its node is ready.
    Write,
    /// Go on with a volume.
    Go(String, Way),
    Unmount(String),
    /// The pod's containers run.
    Run(String),
    /// The pod's containers are stopped.
    Stop(String, String),
    /// The pod has gone.
    Release(String),
}

/// A kubelet.
#[derive(Debug)]
pub(crate) struct Kubelet {
    pub(crate) node: String,
    /// It works, and reaches the API.
    pub(super) is_up: bool,
    /// When it does something next.
    pub(crate) next: Instant,
    /// The longest pause between two steps.
    pub(super) pace: Duration,
    /// The version of the cluster in which it had nothing to do.
    idle: Option<u64>,
    /// It knows what is mounted.
    is_rebuilt: bool,
    ways: Vec<(String, Way)>,
    /// What it has written that it uses.
    written: BTreeSet<String>,
    /// The uids of the pods whose containers it has stopped.
    stopped: BTreeSet<String>,
    /// The volumes of each pod, by its uid: once known they stay known.
    known: BTreeSet<(String, String)>,
}

impl Kubelet {
    pub(crate) fn new(node: String, pace: Duration) -> Self {
        Self {
            node,
            is_up: true,
            next: Instant::now(),
            pace,
            idle: None,
            is_rebuilt: false,
            ways: Vec::new(),
            written: BTreeSet::new(),
            stopped: BTreeSet::new(),
            known: BTreeSet::new(),
        }
    }

    /// Its process begins anew, on a machine that has its mounts still.
    pub(crate) fn restart(&mut self) {
        *self = Self { is_up: self.is_up, ..Self::new(self.node.clone(), self.pace) };
    }

    /// Does one thing, if there is anything to do.
    pub(crate) fn tick(&mut self, cluster: &Cluster, checks: &Mutex<Checks>, rng: &mut StdRng) {
        self.next += Duration::from_millis(5) + self.pace.mul_f64(rng.random_range(0.0..1.0));
        let version = Some(cluster.0.version());
        if self.idle == version {
            return;
        }
        let Some(object) = cluster.get(NODES, &self.node) else { return self.register(cluster) };
        if !self.is_rebuilt {
            (self.is_rebuilt, self.written) = (true, used(&object));
            return;
        }
        let pods: Vec<_> = cluster
            .all(PODS)
            .into_iter()
            .filter(|pod| text(pod, "/spec/nodeName") == self.node)
            .map(|pod| (*pod).clone())
            .collect();
        let wanted = self.wanted(cluster, &pods);
        let mounted = lock(checks).mounted_on(&self.node);
        let steps = self.steps(&object, &pods, &wanted, &mounted);
        if steps.is_empty() {
            self.idle = version;
        } else {
            let step = &steps[rng.random_range(0..steps.len())];
            self.take(step, &wanted, cluster, checks);
        }
    }

    /// Its node is gone: it is registered anew, without a word of what is used.
    fn register(&mut self, cluster: &Cluster) {
        for object in node(&self.node) {
            cluster.create(object);
        }
        self.written = BTreeSet::new();
    }

    /// The volumes of the pods that it has not stopped.
    fn wanted(&mut self, cluster: &Cluster, pods: &[Value]) -> BTreeSet<String> {
        let uid = |pod: &Value| text(pod, "/metadata/uid").to_owned();
        let lives = |pod: &&Value| {
            let is_stopped = is_deleting(pod) && has_statuses(pod) && !is_running(pod);
            !is_finished(pod) && !is_stopped && !self.stopped.contains(&uid(pod))
        };
        let living: Vec<&Value> = pods.iter().filter(lives).collect();
        let uids: BTreeSet<String> = living.iter().map(|pod| uid(pod)).collect();
        self.known.retain(|(pod, _)| uids.contains(pod));
        for pod in living {
            for claim in claims_of(pod) {
                let (Some(object), Some(known)) = (cluster.get(CLAIMS, claim), Claim::of(claim)) else { continue };
                let Some(volume) = cluster.get(VOLUMES, text(&object, "/spec/volumeName")) else { continue };
                if are_bound(&object, &volume) {
                    self.known.extend(known.volume().map(|volume| (uid(pod), volume)));
                }
            }
        }
        self.known.iter().map(|(_, volume)| volume.clone()).collect()
    }

    fn steps(
        &mut self,
        object: &Value,
        pods: &[Value],
        wanted: &BTreeSet<String>,
        mounted: &BTreeSet<String>,
    ) -> Vec<Step> {
        self.ways.retain(|(volume, _)| wanted.contains(volume) && !mounted.contains(volume));
        for volume in wanted.difference(mounted) {
            if !self.ways.iter().any(|(held, _)| held == volume) {
                self.ways.push((volume.clone(), Way::Wanted));
            }
        }
        let mut steps = Vec::new();
        let uses: BTreeSet<String> = wanted.union(mounted).cloned().collect();
        if uses != self.written || !is_ready(object) {
            steps.push(Step::Write);
        }
        let said = self.ways.iter().filter(|(volume, _)| self.written.contains(volume));
        steps.extend(said.map(|(volume, way)| Step::Go(volume.clone(), *way)));
        steps.extend(mounted.difference(wanted).map(|volume| Step::Unmount(volume.clone())));
        for pod in pods {
            let (name, uid) = (text(pod, "/metadata/name").to_owned(), text(pod, "/metadata/uid"));
            let own = || self.known.iter().filter(|(pod, _)| pod == uid).map(|(_, volume)| volume);
            let is_stopped = is_finished(pod) || self.stopped.contains(uid) || (has_statuses(pod) && !is_running(pod));
            match (is_deleting(pod), is_stopped) {
                (true, false) => steps.push(Step::Stop(name, uid.to_owned())),
                (true, true) => steps.push(Step::Release(name)),
                (false, false) if !has_statuses(pod) && own().all(|volume| mounted.contains(volume)) => {
                    steps.push(Step::Run(name));
                }
                _ => {}
            }
        }
        steps
    }

    fn take(&mut self, step: &Step, wanted: &BTreeSet<String>, cluster: &Cluster, checks: &Mutex<Checks>) {
        match step {
            Step::Write => {
                let mounted = lock(checks).mounted_on(&self.node);
                let uses: BTreeSet<String> = wanted.union(&mounted).cloned().collect();
                let ready = json!([{ "type": "Ready", "status": "True" }]);
                if cluster.status(NODES, &self.node, &json!({ "volumesInUse": uses, "conditions": ready })) {
                    self.written = uses;
                }
            }
            Step::Go(volume, way) => self.go(volume, *way, cluster, checks),
            Step::Unmount(volume) => lock(checks).unmounted(&(self.node.clone(), volume.clone())),
            Step::Run(pod) => drop(cluster.status(PODS, pod, &containers(true))),
            Step::Stop(pod, uid) => {
                self.stopped.insert(uid.clone());
                if cluster.get(PODS, pod).is_some_and(|pod| has_statuses(&pod)) {
                    cluster.status(PODS, pod, &containers(false));
                }
            }
            Step::Release(pod) => drop(cluster.patch(PODS, pod, json!({ "metadata": { "finalizers": null } }))),
        }
    }

    fn go(&mut self, volume: &str, way: Way, cluster: &Cluster, checks: &Mutex<Checks>) {
        let site: Site = (self.node.clone(), volume.to_owned());
        let is_found = || {
            let held = cluster.get(ATTACHMENTS, &attachment_name(&site));
            held.is_some_and(|held| is_attached(&held) && !is_deleting(&held))
        };
        let next = match way {
            Way::Wanted => {
                let is_reported = cluster.get(NODES, &self.node).is_some_and(|node| reported(&node).contains(volume));
                if is_reported { Way::Verified } else { Way::Wanted }
            }
            Way::Verified if is_found() => Way::Found,
            Way::Verified => Way::Verified,
            Way::Found => return lock(checks).mounted(&site),
        };
        for (_, way) in self.ways.iter_mut().filter(|(held, _)| held == volume) {
            *way = next;
        }
    }
}

/// For one look: each write of the kubelet's is told to the checks, too.
fn lock(checks: &Mutex<Checks>) -> MutexGuard<'_, Checks> {
    checks.lock().unwrap()
}
