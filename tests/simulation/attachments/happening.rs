//! What happens: pods come, move and go, nodes are lost and come back, people meddle, the API fails, leaders come and go.

use std::time::Duration;

use csi_control_plane::sandbox::api::faults::{Action, Fault, FaultId, Matching, WatchEnd};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::objects::{
    ALL, ATTACHMENTS, CLAIMS, Claim, Cluster, NODE_COUNT, NODES, PODS, VOLUMES, attachment, attachment_of_theirs,
    containers, is_csi, kind, list, node_name, pod,
};
use super::play::Play;
use crate::stage::Undo;
use crate::world::{DAEMONS, is_deleting, text};

/// The pods that there may be.
const POD_COUNT: usize = 9;
/// What late watches are of.
const WATCHED: [&str; 7] = [PODS, PODS, NODES, NODES, ATTACHMENTS, CLAIMS, VOLUMES];

/// The end of a fault of this play alone, or what follows from one.
#[derive(Debug, Clone)]
pub(super) enum Own {
    /// A node is found to be lost.
    Lost(usize),
    /// Its pods are taken from it; `true`: because a person says that it is out of service.
    Evict(usize, bool),
    /// It comes back; `true`: its machine begins anew.
    Back(usize, bool),
    /// A pod is scheduled.
    Schedule(String, usize),
    /// A claim and its volume are there again.
    Supply(&'static str),
    /// A node is managed again.
    Manage(usize),
    /// An attachment that a person has made goes again.
    Take(String),
    /// If it has sent the deletion that is done late, a daemon dies.
    Kill(usize, FaultId),
    /// What a watch has not told by now it never will: its daemon has to list.
    Forget(usize, &'static str, FaultId),
}

impl Play {
    pub(super) async fn undo_what_is_due(&mut self) {
        for undo in self.stage.due() {
            match undo {
                Undo::Heal { daemon, peer } => self.stage.heal(daemon, peer),
                Undo::Release(fault) => self.stage.release(fault),
                Undo::Start => self.start_all().await,
                Undo::Own(own) => self.follow(own),
            }
        }
    }

    fn follow(&mut self, own: Own) {
        match own {
            Own::Lost(node) => {
                let unknown = json!([{ "type": "Ready", "status": "Unknown" }]);
                if !self.kubelets[node].is_up {
                    self.cluster.status(NODES, &node_name(node), &json!({ "conditions": unknown }));
                }
            }
            Own::Evict(node, is_out) if !self.kubelets[node].is_up => {
                if is_out {
                    self.cluster.taint(&node_name(node), true);
                    // That is said of a machine that is off.
                    self.checks().rebooted(&node_name(node));
                }
                let by_force = is_out || self.stage.rng.random_bool(0.7);
                for pod in self.pods_on(node) {
                    if by_force || self.cluster.get(NODES, &node_name(node)).is_none() {
                        self.cluster.remove(PODS, &pod);
                    } else {
                        self.cluster.delete(PODS, &pod);
                    }
                }
            }
            Own::Evict(..) => {}
            Own::Back(node, reboots) => {
                self.cluster.taint(&node_name(node), false);
                self.come_back(node, reboots);
            }
            Own::Schedule(name, node) => {
                let bound = json!({ "spec": { "nodeName": node_name(node) } });
                self.cluster.patch(PODS, &name, bound);
            }
            Own::Supply(claim) => self.cluster.supply(Claim::of(claim).unwrap()),
            Own::Manage(node) => self.cluster.manage(&node_name(node), true),
            Own::Take(name) => self.cluster.delete(ATTACHMENTS, &name),
            Own::Kill(daemon, fault) => {
                let is_sent = self.stage.testbed.api.faults().hits(fault) > 0;
                if let Some(running) = self.stage.daemons[daemon].take_if(|_| is_sent) {
                    running.kill();
                    self.stage.after(0.0, 8.0, Undo::Start);
                }
                self.stage.release(fault);
            }
            Own::Forget(daemon, kind, fault) => {
                self.stage.testbed.api.compact();
                let on = Matching::any().user(DAEMONS[daemon]).resource(kind);
                self.stage.testbed.api.faults().drop_watches(on, WatchEnd::Cut);
                self.stage.release(fault);
            }
        }
    }

    /// A kubelet works again.
    pub(super) fn come_back(&mut self, node: usize, reboots: bool) {
        let kubelet = &mut self.kubelets[node];
        if kubelet.is_up {
            return;
        }
        (kubelet.is_up, kubelet.next) = (true, Instant::now());
        if reboots {
            kubelet.restart();
            self.checks().rebooted(&node_name(node));
        }
    }

    fn pods_on(&self, node: usize) -> Vec<String> {
        let all = self.cluster.all(PODS);
        let here = all.iter().filter(|pod| text(pod, "/spec/nodeName") == node_name(node));
        here.map(|pod| text(pod, "/metadata/name").to_owned()).collect()
    }

    /// Something happens.
    pub(super) async fn happen(&mut self) {
        let kinds = if self.setting.is_rough { 90 } else { 76 };
        match self.stage.rng.random_range(0..kinds) {
            0..24 => self.create_pod(),
            24..39 => self.end_pod(),
            39..43 => self.lose_node(),
            43..45 => {
                let node = self.node();
                self.kubelets[node].restart();
            }
            45..57 => self.fail_api(),
            57..61 if self.setting.is_steady && self.stage.rng.random_bool(0.9) => {}
            57..60 => self.stage.kill(),
            60 => {
                let daemon = self.stage.daemon();
                self.stage.terminate(daemon);
            }
            61 => self.start_all().await,
            62..71 => self.meddle(),
            71..76 => {}
            _ => self.disturb().await,
        }
    }

    fn node(&mut self) -> usize {
        self.stage.rng.random_range(0..NODE_COUNT)
    }

    fn later(&mut self, from: f64, to: f64, own: Own) {
        self.stage.after(from, to, Undo::Own(own));
    }

    /// A pod comes, with one volume or two, on a node or without one at first.
    fn create_pod(&mut self) {
        let name = format!("pod-{}", self.stage.rng.random_range(0..POD_COUNT));
        let (first, second) = (self.claim(), self.claim());
        let claims = if first == second || self.stage.rng.random_bool(0.6) { vec![first] } else { vec![first, second] };
        let node = self.node();
        // The scheduler mostly knows of a node that is lost.
        if !self.kubelets[node].is_up && self.stage.rng.random_bool(0.9) {
            return;
        }
        if self.stage.rng.random_bool(0.8) {
            self.cluster.create(pod(&name, Some(&node_name(node)), &claims));
        } else if self.cluster.create(pod(&name, None, &claims)) {
            self.later(0.0, 4.0, Own::Schedule(name, node));
        }
    }

    fn claim(&mut self) -> &'static str {
        // Most of them want the same.
        let count = if self.stage.rng.random_bool(0.5) { 3 } else { ALL.len() };
        ALL[self.stage.rng.random_range(0..count)].name
    }

    /// A pod is deleted, or has done its work, or is taken away by force.
    fn end_pod(&mut self) {
        let all: Vec<_> = self.cluster.all(PODS).into_iter().filter(|pod| !is_deleting(pod)).collect();
        if all.is_empty() {
            return;
        }
        let pod = &all[self.stage.rng.random_range(0..all.len())];
        let name = text(pod, "/metadata/name");
        match self.stage.rng.random_range(0..10) {
            0 if !text(pod, "/spec/nodeName").is_empty() => {
                let mut status = containers(false);
                status["phase"] = json!("Succeeded");
                self.cluster.status(PODS, name, &status);
            }
            1 | 2 => self.cluster.remove(PODS, name),
            _ if text(pod, "/spec/nodeName").is_empty() => self.cluster.remove(PODS, name),
            _ => self.cluster.delete(PODS, name),
        }
    }

    /// A node is lost: its machine is off, or cut off, or its kubelet is. Its Node object may be deleted, too.
    fn lose_node(&mut self) {
        let node = self.node();
        if !self.kubelets[node].is_up {
            return;
        }
        self.kubelets[node].is_up = false;
        self.later(0.0, 10.0, Own::Lost(node));
        let (is_out, is_long) = (self.stage.rng.random_bool(0.2), self.stage.rng.random_bool(0.5));
        if is_long || self.stage.rng.random_bool(0.5) {
            self.later(2.0, 15.0, Own::Evict(node, is_out));
        }
        if self.stage.rng.random_bool(0.25) {
            self.cluster.delete(NODES, &node_name(node));
            self.cluster.delete("csinodes", &node_name(node));
            self.later(0.0, 10.0, Own::Evict(node, false));
        }
        let reboots = is_out || self.stage.rng.random_bool(0.4);
        let (from, to) = if is_long { (70.0, 140.0) } else { (1.0, 20.0) };
        self.later(from, to, Own::Back(node, reboots));
    }

    fn fail_api(&mut self) {
        let daemon = self.stage.daemon();
        if self.stage.rng.random_bool(0.1) {
            self.delete_late(daemon);
            return;
        }
        let (verb, plural) = [
            ("patch", NODES),
            ("patch", NODES),
            ("get", NODES),
            ("create", ATTACHMENTS),
            ("delete", ATTACHMENTS),
            ("delete", ATTACHMENTS),
            ("get", ATTACHMENTS),
        ][self.stage.rng.random_range(0..7)];
        let action = match self.stage.rng.random_range(0..8) {
            0 => Action::Refuse(Rejection::internal("scripted")),
            1 => Action::RefuseAfter(Rejection::internal("scripted")),
            2 => Action::CutBefore,
            3 => Action::CutAfter,
            4 => Action::Refuse(Rejection::conflict(kind(NODES), "scripted")),
            5 => Action::DelayAfter(self.stage.seconds(0.1, 3.0)),
            6 if verb != "get" => Action::DelayBefore(self.stage.seconds(0.1, 3.0)),
            _ => Action::Refuse(Rejection::too_many_requests(1)),
        };
        // The answer to a read is as old as its delay, and the checks know when it came.
        if verb == "get" && matches!(action, Action::DelayAfter(_)) {
            return;
        }
        let on = Matching::any().user(DAEMONS[daemon]).verb(verb).resource(plural);
        let fault = Fault::on(on, action).times(self.stage.rng.random_range(1..=3));
        self.stage.testbed.api.faults().add(fault);
    }

    /// A deletion is done long after it was sent. Its daemon dies meanwhile.
    fn delete_late(&mut self, daemon: usize) {
        let (delay, name) = (self.stage.seconds(5.0, 30.0), DAEMONS[daemon]);
        let on = Matching::any().user(name).verb("delete").resource(ATTACHMENTS);
        let fault = self.stage.testbed.api.faults().add(Fault::on(on, Action::DelayBefore(delay)).times(1));
        self.checks().is_late(name);
        self.later(2.0, 12.0, Own::Kill(daemon, fault));
    }

    /// People, other drivers and other controllers write.
    fn meddle(&mut self) {
        let node = self.node();
        let name = node_name(node);
        match self.stage.rng.random_range(0..12) {
            0..2 => {
                let held = self.cluster.all(ATTACHMENTS);
                if !held.is_empty() {
                    let held = &held[self.stage.rng.random_range(0..held.len())];
                    self.cluster.delete(ATTACHMENTS, text(held, "/metadata/name"));
                }
            }
            2..5 => {
                let mark = self.stage.rng.random_range(0..3);
                relist(
                    &self.cluster,
                    &name,
                    &json!({ "name": "example.com/volume", "devicePath": format!("/dev/{mark}") }),
                );
            }
            5 => {
                // Its volume never was.
                let stray = format!("csi-stray-{}", self.stage.rng.random_range(0..3));
                self.cluster.create(attachment(&stray, "pv-never", &name));
            }
            6 => {
                let by_hand = format!("by-hand-{}", self.stage.rng.random_range(0..3));
                if self.cluster.create(attachment(&by_hand, "pv-a", &name)) {
                    self.later(1.0, 20.0, Own::Take(by_hand));
                }
            }
            7 => {
                self.cluster.manage(&name, false);
                self.later(1.0, 30.0, Own::Manage(node));
            }
            8 => {
                let claim = self.claim();
                self.cluster.remove(CLAIMS, claim);
                self.later(0.0, 10.0, Own::Supply(claim));
            }
            9 => {
                let claim = self.claim();
                self.cluster.remove(VOLUMES, &format!("pv-{claim}"));
                self.later(0.0, 10.0, Own::Supply(claim));
            }
            10 => self.cluster.supply(Claim::of("late").unwrap()),
            _ if self.setting.has_other => {
                let site = (name, ALL[1].volume().unwrap());
                self.cluster.create(attachment_of_theirs(&site, "pv-b"));
            }
            _ => {}
        }
    }

    /// Something else happens, where it is rough.
    async fn disturb(&mut self) {
        let daemon = self.stage.daemon();
        match self.stage.rng.random_range(0..13) {
            0..2 => drop(self.stage.cut(daemon)),
            2 => self.stage.slow_down(daemon),
            3..7 => self.stage.late_watches(daemon, &WATCHED),
            7 => self.stage.testbed.connections.cut_all(),
            8 => {
                let down = Duration::from_millis(self.stage.rng.random_range(0..5000));
                self.stage.testbed.server.restart(down).await;
            }
            9 => self.stage.testbed.api.compact(),
            _ => {
                let kind = WATCHED[self.stage.rng.random_range(0..WATCHED.len())];
                let on = Matching::any().user(DAEMONS[daemon]).resource(kind);
                let fault = self.stage.testbed.api.faults().hold_watches(on);
                self.later(1.0, 15.0, Own::Forget(daemon, kind, fault));
            }
        }
    }
}

/// Another controller writes its entry into the list of a node.
fn relist(cluster: &Cluster, name: &str, entry: &Value) {
    let Some(node) = cluster.get(NODES, name) else { return };
    let ours = list(&node).into_iter().filter(|it| is_csi(text(it, "/name")));
    let whole: Vec<Value> = [entry.clone()].into_iter().chain(ours).collect();
    cluster.status(NODES, name, &json!({ "volumesAttached": whole }));
}
