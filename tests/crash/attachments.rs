//! Volumes that follow pods, with kubelets that mount them: the attach/detach controller and the attacher in one daemon. The checks are
//! those of the simulation (`simulation/attachments`): what is mounted is attached, also while no daemon works, and the next one comes to
//! the same end (attach-detach I1 to I12).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_control_plane::process::Tasks;
use csi_control_plane::sandbox::driver::{Action, Fault, Method, Profile};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Code;

use super::scenario::{End, Scenario};
use super::world::{COMMON_CONFIG, World};
use crate::attachments::checks::Checks;
use crate::attachments::kubelet::Kubelet;
use crate::attachments::objects::{Claim, Cluster, NODES, PODS, drivers, node, node_name, pod};
use crate::attachments::play::Setting;
use crate::stage::Commit;

/// The claims: one for one node, and one for many.
const CLAIMS: [&str; 2] = ["a", "many"];
const BOUND: [(&str, End); 2] = [(CLAIMS[0], End::Bound), (CLAIMS[1], End::Bound)];
/// The pod, and one that wants the same.
const POD: &str = "pod";
const NEXT: &str = "next";
/// The label of a node whose machine is off, and how long it takes until it is on again.
const OFF: &str = "off";
const BACK: Duration = Duration::from_secs(6);
const SETTING: Setting = Setting {
    is_rough: false,
    has_standby: false,
    is_steady: false,
    attaches: true,
    forces: true,
    is_strict: true,
    wait: 60,
    settle: 1,
    has_other: false,
    pace: 40,
};

/// The daemons' configuration.
pub(crate) fn config() -> String {
    COMMON_CONFIG.to_owned()
        + "\x20 attacher: { retry: { initial: 200ms, max: 2s }, resync: 60s }\n\
           \x20 attachDetach: { retry: { initial: 200ms, max: 2s }, resync: 60s, settle: 1s, maxWaitForUnmount: 60s }\n"
}

/// Two nodes with their kubelets, and the checks of what happens there.
pub(crate) struct Yard {
    checks: Arc<Mutex<Checks>>,
    _kubelets: Tasks,
}

impl Yard {
    pub(crate) fn new(world: &World) -> Self {
        let began = Instant::now() - world.driver.age();
        let checks = Arc::new(Mutex::new(Checks::new(SETTING, world.api.audit().clone(), began)));
        world.api.on_commit({
            let checks = Arc::clone(&checks);
            move |change| checks.lock().unwrap().committed(&Commit::of(change, began.elapsed()))
        });
        let cluster = Cluster(world.api.clone());
        for object in drivers().into_iter().chain((0..2).flat_map(|index| node(&node_name(index)))) {
            world.create(object);
        }
        for claim in CLAIMS.into_iter().filter_map(Claim::of) {
            world.driver.seed([claim.handle]);
            cluster.supply(claim);
        }
        let (kubelets, _) = Tasks::new("kubelets");
        for index in 0..2 {
            kubelets.spawn(index, work(index, cluster.clone(), Arc::clone(&checks)));
        }
        Self { checks, _kubelets: kubelets }
    }

    /// What was broken, and what is not as it should be in the end.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.checks.lock().unwrap().faults()
    }
}

/// The work of a kubelet.
async fn work(index: usize, cluster: Cluster, checks: Arc<Mutex<Checks>>) {
    let mut rng = StdRng::seed_from_u64(index as u64);
    let mut kubelet = Kubelet::new(node_name(index), Duration::from_millis(SETTING.pace));
    loop {
        sleep_until(kubelet.next).await;
        let node = cluster.get(NODES, &kubelet.node);
        if node.is_some_and(|node| node["metadata"]["labels"].get(OFF).is_some()) {
            sleep(BACK).await;
            checks.lock().unwrap().rebooted(&kubelet.node);
            kubelet.restart();
            cluster.taint(&kubelet.node, false);
            cluster.patch(NODES, &kubelet.node, json!({ "metadata": { "labels": { OFF: null } } }));
        }
        kubelet.tick(&cluster, &checks, &mut rng);
    }
}

fn come(world: &World, name: &str, node: usize) {
    world.create(pod(name, Some(&node_name(node)), &CLAIMS));
}

fn go(world: &World, name: &str) {
    Cluster(world.api.clone()).delete(PODS, name);
}

/// Another pod wants the same on the other node, and the first one goes.
fn change(world: &World) {
    go(world, POD);
    come(world, NEXT, 1);
}

/// The machine of the first node is off, and a person says so; its pods are taken from it.
fn lose(world: &World) {
    let (cluster, node) = (Cluster(world.api.clone()), node_name(0));
    cluster.patch(NODES, &node, json!({ "metadata": { "labels": { OFF: "yes" } } }));
    cluster.status(NODES, &node, &json!({ "conditions": [{ "type": "Ready", "status": "Unknown" }] }));
    cluster.taint(&node, true);
    cluster.remove(PODS, POD);
}

fn scenario(name: &str, before: Vec<fn(&World)>, act: fn(&World)) -> Scenario {
    let scenario = Scenario::new(name, before, act);
    let profile: fn(&mut Profile) = |profile| profile.accept_unknown_nodes = true;
    Scenario { attaches: true, profile, undisturbed: BOUND.to_vec(), ends: BOUND.to_vec(), ..scenario }
}

/// A pod of two volumes comes.
pub(crate) fn coming() -> Scenario {
    scenario("pod of two volumes", Vec::new(), |world| come(world, POD, 0))
}

/// It goes.
pub(crate) fn going() -> Scenario {
    scenario("pod of two volumes, deletion", vec![|world| come(world, POD, 0)], |world| go(world, POD))
}

/// It goes, and the driver has attached nothing.
pub(crate) fn failing() -> Scenario {
    let come_in_vain: fn(&World) = |world| {
        let fail = Action::fail(Code::Internal, "no path");
        world.driver.inject(Fault::on(Method::ControllerPublishVolume, fail));
        come(world, POD, 0);
    };
    scenario("pod of two volumes that are not attached, deletion", vec![come_in_vain], |world| go(world, POD))
}

/// Every scenario.
pub(crate) fn all() -> Vec<Scenario> {
    let come_first: fn(&World) = |world| come(world, POD, 0);
    let moving = scenario("pod of two volumes, move", vec![come_first], change);
    let lost = scenario("pod of two volumes, lost node", vec![come_first], |world| {
        lose(world);
        come(world, NEXT, 1);
    });
    vec![
        coming().and("deleted meanwhile", |world| go(world, POD), &BOUND),
        coming().and("moved meanwhile", change, &BOUND),
        coming(),
        going().and("wanted again meanwhile", |world| come(world, NEXT, 0), &BOUND),
        going().and("wanted elsewhere meanwhile", |world| come(world, NEXT, 1), &BOUND),
        going(),
        failing(),
        moving.and("moved back meanwhile", |world| go(world, NEXT), &BOUND),
        moving,
        lost,
    ]
}
