//! Performs each random event.

use std::time::Duration;

use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults::Matching;
use csi_control_plane::sandbox::driver::Chance;
use csi_control_plane::sandbox::testbed::{API_HOST, DRIVER_HOST};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolume, Secret};
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use serde_json::{Value, json};

use crate::happening::{Direction, Happening};
use crate::play::{Play, Step};
use crate::world::{
    DAEMONS, FOREIGN, LEASE, World, attachment_name, finalizers, foreign_name, handle, is_deleting, node_id, node_name,
    secret_name, text, volume_name,
};

/// How long a request of a daemon may be under way after its trouble has ended.
const AFTERMATH: Duration = Duration::from_secs(10);

impl Play {
    /// Something happens.
    #[expect(clippy::too_many_lines, reason = "one arm for each thing that can happen")]
    pub(crate) async fn happen(&mut self, happening: Happening) {
        self.trace.note("world", format_args!("{happening:?}"));
        match happening {
            Happening::CreateVolume(volume) => self.create(self.world.volume(volume)),
            Happening::DeleteVolume(volume) => drop(self.api().delete::<PersistentVolume>("", &volume_name(volume))),
            Happening::Attach { volume, node, guarded_by_others } => self.attach(volume, node, guarded_by_others),
            Happening::Detach { volume, node } => self.detach(&attachment_name(volume, node)),
            Happening::AttachForeign { volume, node } => self.create(World::foreign_attachment(volume, node)),
            Happening::DetachForeign { volume, node } => self.detach(&foreign_name(volume, node)),
            Happening::NodeChanges { node, away, renamed } => {
                self.set_node(node, &self.world.drivers(None));
                self.lives[node] += u32::from(renamed);
                self.after(away, Step::NodeBack(node));
            }
            Happening::NodeGone { node, away } => {
                let _ = self.api().delete::<CSINode>("", &node_name(node));
                self.wake_node(node);
                self.after(away, Step::NodeBack(node));
            }
            Happening::SecretGone { volume, away } if self.world.volumes[volume].secret => {
                let _ = self.api().delete::<Secret>("kube-system", &secret_name(volume));
                self.after(away, Step::SecretBack(volume));
            }
            Happening::SecretGone { .. } => {}
            Happening::ForeignFinalizer { volume, node, which } => self.toggle_foreign(volume, node, FOREIGN[which]),
            Happening::Label { volume, node } => {
                let label = format!("{:.0}", self.trace.age().as_secs_f64());
                let body = PatchBody::Merge(json!({ "metadata": { "labels": { "touched-at": label } } }));
                match node {
                    Some(node) => drop(self.api().patch::<VolumeAttachment>("", &attachment_name(volume, node), body)),
                    None => drop(self.api().patch::<PersistentVolume>("", &volume_name(volume), body)),
                }
            }
            Happening::UndoRecord { volume, node } => {
                let body = PatchBody::Merge(json!({ "status": { "attached": false, "attachmentMetadata": null } }));
                let _ = self.api().patch_status::<VolumeAttachment>("", &attachment_name(volume, node), body);
            }
            Happening::DetachBehind { volume, node } => self.behind(volume, node, false),
            Happening::AttachBehind { volume, node } => self.behind(volume, node, true),
            Happening::Storage(errand) => self.run_errand(errand),
            Happening::Driver(fault) => self.testbed.driver.inject(fault),
            Happening::DriverChance { rate, lasts } => {
                self.testbed.driver.inject_chance(Chance::honest(self.testbed.rng.clone(), rate));
                self.after(lasts, Step::DriverCalm);
            }
            Happening::DriverClear => self.testbed.driver.clear_faults(),
            Happening::DriverRestart(down) => self.testbed.server.restart(down).await,
            Happening::Capability(number) => {
                self.testbed.driver.change_profile(|profile| {
                    if !profile.controller.remove(&number) {
                        profile.controller.insert(number);
                    }
                });
                self.testbed.server.restart(Duration::from_millis(300)).await;
            }
            Happening::Api(fault) => {
                self.model().trouble(AFTERMATH);
                let _ = self.api().faults().add(fault);
            }
            Happening::ApiClear => self.api().faults().clear(),
            Happening::Compact => self.api().compact(),
            Happening::HoldWatches { daemon, kind, lasts } => {
                let fault = self.api().faults().hold_watches(matching(daemon, kind));
                self.model().trouble(lasts + AFTERMATH);
                self.after(lasts, Step::Release(fault));
            }
            Happening::DelayWatches { daemon, by, lasts } => {
                let fault = self.api().faults().delay_watches(matching(daemon, None), by);
                self.model().trouble(lasts + by + AFTERMATH);
                self.after(lasts, Step::Release(fault));
            }
            Happening::DropWatches { daemon, end } => {
                self.model().trouble(AFTERMATH);
                self.api().faults().drop_watches(matching(daemon, None), end);
            }
            Happening::CutConnections => {
                self.model().trouble(AFTERMATH);
                self.testbed.connections.cut_all();
            }
            Happening::Latency { daemon, latency } => self.network.set_latency(DAEMONS[daemon], API_HOST, latency),
            Happening::Partition { daemon, api, cut, direction, lasts } => {
                let (name, peer) = (DAEMONS[daemon], peer(api));
                self.model().trouble(lasts + AFTERMATH);
                match direction {
                    Direction::Both => self.network.partition(name, peer, cut),
                    Direction::ToDaemon => self.network.partition_one_way(peer, name, cut),
                    Direction::FromDaemon => self.network.partition_one_way(name, peer, cut),
                }
                self.after(lasts, Step::Heal(daemon, api));
            }
            Happening::Reset { daemon, api } => {
                self.model().trouble(AFTERMATH);
                self.network.reset(DAEMONS[daemon], peer(api));
            }
            Happening::Kill { daemon, down } => {
                self.model().trouble(down + AFTERMATH);
                self.network.reset(DAEMONS[daemon], DRIVER_HOST);
                if let Some(running) = self.daemons[daemon].take() {
                    if let Some(identity) = self.leads_as(daemon) {
                        self.leader_dies(daemon, identity, down);
                    }
                    running.kill();
                    self.after(down, Step::Start(daemon));
                }
            }
            Happening::Terminate { daemon, down } => {
                if let Some(running) = &self.daemons[daemon] {
                    running.terminate();
                    self.stopping.insert(daemon);
                    self.pods[daemon] = None;
                    self.after(down, Step::Start(daemon));
                }
            }
            Happening::DeleteLease => {
                self.model().confuse();
                let _ = self.api().delete::<Lease>(LEASE.0, LEASE.1);
            }
            Happening::StealLease => {
                self.model().confuse();
                let body = PatchBody::Merge(json!({ "spec": { "holderIdentity": "thief" } }));
                let _ = self.api().patch::<Lease>(LEASE.0, LEASE.1, body);
            }
        }
    }

    /// Creates an object, unless there is one of its name.
    pub(crate) fn create(&self, object: Value) {
        let _ = self.api().create_value(object);
    }

    /// Asks for an attachment, now or as soon as its namesake is gone.
    pub(crate) fn attach(&mut self, volume: usize, node: usize, guarded_by_others: bool) {
        let mut object = self.world.attachment(volume, node);
        if guarded_by_others {
            object["metadata"]["finalizers"] = json!([FOREIGN[0]]);
        }
        let deleting = self.model().attachments.get(&attachment_name(volume, node)).is_some_and(is_deleting);
        if deleting {
            self.wishes.insert((volume, node));
        } else {
            self.create(object);
        }
    }

    pub(crate) fn detach(&self, name: &str) {
        let _ = self.api().delete::<VolumeAttachment>("", name);
    }

    /// The node is repaired.
    pub(crate) fn node_back(&self, node: usize) {
        let id = node_id(node, self.lives[node]);
        self.node_joins(node);
        self.create(self.world.node(node, Some(&id)));
        self.set_node(node, &self.world.drivers(Some(&id)));
    }

    fn set_node(&self, node: usize, drivers: &Value) {
        let body = PatchBody::Merge(json!({ "spec": { "drivers": drivers } }));
        let _ = self.api().patch::<CSINode>("", &node_name(node), body);
        self.wake_node(node);
    }

    pub(crate) fn wake_node(&self, node: usize) {
        let mut model = self.model();
        let now = model.now();
        let node_name = node_name(node);
        let there = model.attachments.iter().filter(|(_, it)| text(it, "/spec/nodeName") == node_name);
        let there: Vec<String> = there.map(|(name, _)| name.clone()).collect();
        model.woken_at.extend(there.into_iter().map(|name| (name, now)));
        for volume in 0..self.world.volumes.len() {
            model.woken_at.insert(attachment_name(volume, node), now);
        }
    }

    fn toggle_foreign(&self, volume: usize, node: Option<usize>, which: &str) {
        let name = node.map_or_else(|| volume_name(volume), |node| attachment_name(volume, node));
        let object = {
            let model = self.model();
            let held = if node.is_some() { &model.attachments } else { &model.volumes };
            held.get(&name).cloned()
        };
        let Some(object) = object else { return };
        let mut list = finalizers(&object);
        if list.contains(&which) {
            list.retain(|it| *it != which);
        } else if is_deleting(&object) {
            return;
        } else {
            // Sometimes before ours, so that the places in the list shift.
            list.insert(if which == FOREIGN[0] { 0 } else { list.len() }, which);
        }
        let body = PatchBody::Merge(json!({ "metadata": { "finalizers": list } }));
        match node {
            Some(_) => drop(self.api().patch::<VolumeAttachment>("", &name, body)),
            None => drop(self.api().patch::<PersistentVolume>("", &name, body)),
        }
    }

    fn behind(&self, volume: usize, node: usize, attach: bool) {
        let (volume, node) = (handle(volume), node_id(node, self.lives[node]));
        if attach {
            self.testbed.driver.attach_behind(&volume, &node);
        } else {
            self.testbed.driver.detach_behind(&volume, &node);
        }
        let mut model = self.model();
        let tally = model.tallies.entry((volume, node)).or_default();
        tally.published = attach;
        tally.excused |= attach;
        tally.by_hand |= attach;
    }
}

fn peer(api: bool) -> &'static str {
    if api { API_HOST } else { DRIVER_HOST }
}

fn matching(daemon: Option<usize>, kind: Option<&'static str>) -> Matching {
    let on = daemon.map_or_else(Matching::any, |daemon| Matching::any().user(DAEMONS[daemon]));
    match kind {
        Some(kind) => on.resource(kind),
        None => on,
    }
}
