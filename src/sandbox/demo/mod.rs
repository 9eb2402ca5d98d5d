//! The demo script: from an empty cluster to a clean stop. Each step is observed in the API before it is printed.
//!
//! The demo creates the objects that users create: classes, claims, pods. The daemon and the sandbox's controllers
//! ([`super::actors`]) do the rest, and `sights` observes it.

mod backend;
mod groups;
mod machine;
mod narrator;
pub mod objects;
mod presence;
mod sights;
mod snapshots;
#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::timeout;
use tonic::Code;

pub use self::backend::{Backend, BackendError, Own, Place};
pub use self::machine::Machine;
pub(super) use self::narrator::STEP_TIMEOUT;
pub use self::narrator::{Narrator, NotObserved, Seen};
use super::api::{Api, DirectError, PatchBody};
use super::driver::{Action, Fault, Method};
use super::testbed::Daemon;
use crate::proto::VolumeHealthErrorType;
use crate::roles::ROLES;

/// The name of the daemon of the demo.
pub const DAEMON: &str = "sandbox";
/// The message of the demo driver's failing attach.
const FAILURE: &str = "the storage backend is out of attach slots";
/// What the storage says of a damaged volume: the reason, and words for people.
const DAMAGE: (&str, &str) = ("DiskLost", "one disk of two is lost");
/// The node on which a user's own driver registers late.
const LATE_NODE: &str = "node-late";
/// The number of its failures.
const FAILURES: u32 = 2;

/// What to try by hand: `DRIVER` stands for the driver's name.
const TRY: &str = include_str!("try.yaml");

/// The demo did not come to its end.
#[derive(Debug, Error)]
pub enum StoryError {
    /// A step was not seen in the API.
    #[error(transparent)]
    NotObserved(#[from] NotObserved),
    /// The API refused an object of the demo.
    #[error("the sandbox's API refused the demo")]
    Api(#[from] DirectError),
    /// The driver did not play along.
    #[error("the driver failed")]
    Backend(#[from] BackendError),
    /// The daemon failed.
    #[error("the daemon ended in an error")]
    Daemon(#[from] crate::app::AppError),
}

/// Everything that the demo needs.
#[derive(Debug)]
pub struct Demo<'a> {
    /// The cluster.
    pub api: &'a Api,
    /// The driver.
    pub backend: &'a Backend,
    /// Who tells it.
    pub narrator: &'a mut Narrator,
    /// Where driver and daemon run, if the demo is about that, too.
    machine: Option<&'a Machine>,
}

/// A claim of the demo and what became of it.
#[derive(Debug, Clone)]
struct Volume {
    /// The claim, and the pod that uses it.
    claim: String,
    /// The volume's object.
    name: String,
    /// The volume at the driver.
    handle: String,
}

/// Where a volume is attached.
#[derive(Debug, Clone)]
struct Attached {
    volume: Volume,
    node: String,
    node_id: String,
}

impl Attached {
    fn attachment(&self, driver: &str) -> String {
        objects::attachment_name(&self.volume.handle, driver, &self.node)
    }
}

/// Something to try by hand with a driver of this name.
pub fn manifest_to_try(driver: &str) -> String {
    TRY.replace("DRIVER", driver)
}

impl<'a> Demo<'a> {
    /// A demo that has not begun.
    pub fn new(api: &'a Api, backend: &'a Backend, narrator: &'a mut Narrator) -> Self {
        Self { api, backend, narrator, machine: None }
    }

    /// The same on a machine with a kubelet.
    #[must_use]
    pub fn on(self, machine: &'a Machine) -> Self {
        Self { machine: Some(machine), ..self }
    }

    /// Creates what the driver's installation creates before its pods start: its `CSIDriver` object.
    pub fn announce(api: &Api, backend: &Backend) -> Result<(), StoryError> {
        api.create_value(objects::csi_driver(&backend.name(), backend.tells_room()))?;
        Ok(())
    }

    /// Creates what a cluster has before anybody claims a volume: nodes, the driver's registration, classes.
    pub fn furnish(&mut self) -> Result<(), StoryError> {
        let driver = self.backend.name();
        let places = self.backend.places();
        for (index, place) in places.iter().enumerate() {
            let name = node_name(index);
            self.add_node(&name, place)?;
            self.api.create_value(objects::csi_node(&name, &driver, &place.node_id, &place.segments))?;
        }
        for class in [objects::ON_FIRST_USE, objects::AT_ONCE] {
            self.api.create_value(objects::class(class, &driver))?;
        }
        if self.backend.takes_snapshots() {
            // Long before a snapshot names it: the daemon has seen it by then.
            self.api.create_value(objects::snapshot_class(objects::SNAPSHOTS, &driver))?;
        }
        if self.backend.takes_groups() {
            self.api.create_value(objects::group_class(objects::GROUPS, &driver))?;
        }
        self.narrator.step(format_args!("{} node(s) and 2 storage classes are in the cluster", places.len()));
        Ok(())
    }

    /// Plays it, up to and including the end of the volumes.
    pub async fn play(&mut self) -> Result<(), StoryError> {
        self.see_leaders().await?;
        self.see_room().await?;
        self.see_registered().await?;
        let last = node_name(self.backend.places().len() - 1);
        let orders = self.run("orders", None).await?;
        let invoices = self.run("invoices", Some(&last)).await?;
        self.repair_drift(&orders).await?;
        self.grow(&orders.volume).await?;
        self.modify(&orders.volume).await?;
        self.damage_and_repair(&orders.volume).await?;
        self.snapshot_and_restore(&orders.volume).await?;
        self.snapshot_group_and_delete().await?;
        let archive = self.fail_and_recover().await?;
        self.end([orders, invoices, archive]).await
    }

    /// Stops the daemon and sees that it handed its Leases back.
    pub async fn stop(&mut self, daemon: Daemon) -> Result<(), StoryError> {
        let Ok(stopped) = timeout(self.narrator.step_timeout(), daemon.stop()).await else {
            let error = self.narrator.not_observed("the daemon stops", "it runs".to_owned());
            return Err(error.in_world(sights::world(self.api)).into());
        };
        stopped?;
        self.see_unregistered().await?;
        for lease in self.leases() {
            self.see_released(&lease).await?;
        }
        self.narrator.step("the daemon stopped cleanly and released its leases");
        Ok(())
    }

    /// Brings the cluster into a state worth looking at, for `--keep`: two pods with their volumes and a group of snapshots, an
    /// attachment that fails and a claim that does.
    pub async fn linger(&mut self) -> Result<(), StoryError> {
        let driver = self.backend.name();
        let last = node_name(self.backend.places().len() - 1);
        // First of all, so that the daemon has seen it when a claim names it.
        self.api.create_value(objects::class(objects::WITHOUT_SECRET, &driver))?;
        self.run("orders", None).await?;
        self.run("invoices", Some(&last)).await?;
        if self.backend.takes_groups() {
            self.snapshot_group().await?;
        }
        let missing = objects::attachment("csi-of-a-missing-volume", &driver, "pv-that-does-not-exist", &node_name(0));
        self.api.create_value(missing)?;
        self.api.create_value(objects::claim("reports", objects::WITHOUT_SECRET))?;
        self.see_event("reports", "ProvisioningFailed").await
    }

    /// The Leases that the daemon leads under, in the order of the roles.
    fn leases(&self) -> Vec<String> {
        let driver = self.backend.name();
        let mut leases = Vec::new();
        let served = ROLES.iter().filter_map(|role| role.cluster().filter(|role| role.needs_driver));
        for lease in served.filter_map(|role| (role.lease)(&Value::Null).name(&driver)) {
            if !leases.contains(&lease) {
                leases.push(lease);
            }
        }
        leases
    }

    /// A node whose kubelet works: it removes the taint that every new node has.
    fn add_node(&self, name: &str, place: &Place) -> Result<(), StoryError> {
        self.api.create_value(objects::node(name, &place.segments))?;
        let ready = PatchBody::Merge(json!({ "spec": { "taints": null } }));
        self.api.patch::<k8s_openapi::api::core::v1::Node>("", name, ready)?;
        Ok(())
    }

    /// A claim and its pod, until the volume is attached where the pod is: on this node, or where the scheduler puts it.
    async fn run(&mut self, name: &str, node: Option<&str>) -> Result<Attached, StoryError> {
        self.api.create_value(objects::claim(name, objects::ON_FIRST_USE))?;
        self.api.create_value(objects::pod(name, node))?;
        let volume = self.see_bound(name).await?;
        let node = self.see_scheduled(name).await?;
        self.narrator.step(format_args!("claim {name} provisioned for its pod on {node}: {} is bound", volume.name));
        let attached = self.placed(volume, node);
        self.see_attached(&attached).await?;
        Ok(attached)
    }

    fn placed(&self, volume: Volume, node: String) -> Attached {
        let places = self.backend.places();
        let index = (0..places.len()).find(|index| node_name(*index) == node).unwrap_or_default();
        Attached { volume, node, node_id: places[index].node_id.clone() }
    }

    async fn repair_drift(&mut self, attached: &Attached) -> Result<(), StoryError> {
        const WHAT: &str = "a volume that was detached outside Kubernetes is attached again";
        if !self.backend.lists() {
            self.narrator.skip(WHAT, "the driver cannot list where its volumes are published");
            return Ok(());
        }
        self.backend.detach_behind(&attached.volume.handle, &attached.node_id).await?;
        let (claim, node) = (&attached.volume.claim, &attached.node);
        self.narrator.step(format_args!("{claim} detached from {node} outside Kubernetes"));
        self.see_published(attached).await?;
        self.see_attached(attached).await?;
        self.narrator.step(WHAT);
        Ok(())
    }

    /// Its user asks for a larger volume while a pod uses it.
    async fn grow(&mut self, volume: &Volume) -> Result<(), StoryError> {
        const SIZE: &str = "2Gi";
        let claim = &volume.claim;
        if !self.backend.expands() {
            self.narrator.skip("a claim grows", "the driver cannot expand volumes");
            return Ok(());
        }
        let wish = PatchBody::Merge(json!({ "spec": { "resources": { "requests": { "storage": SIZE } } } }));
        self.api.patch::<PersistentVolumeClaim>("default", claim, wish)?;
        self.see_size(claim, SIZE).await?;
        self.narrator.step(format_args!("claim {claim} asked for {SIZE}, and has it: {} has grown", volume.name));
        Ok(())
    }

    /// Its user asks for other attributes.
    async fn modify(&mut self, volume: &Volume) -> Result<(), StoryError> {
        let (claim, driver) = (&volume.claim, self.backend.name());
        if let Backend::Own(_) = self.backend {
            self.narrator.skip("a claim changes its attributes class", "nobody knows which attributes the driver has");
            return Ok(());
        }
        self.api.create_value(objects::attributes(objects::FASTER, &driver))?;
        let wish = PatchBody::Merge(json!({ "spec": { "volumeAttributesClassName": objects::FASTER } }));
        self.api.patch::<PersistentVolumeClaim>("default", claim, wish)?;
        self.see_attributes(claim, objects::FASTER).await?;
        let name = &volume.name;
        self.narrator.step(format_args!("claim {claim} asked for the class {}, and {name} has it", objects::FASTER));
        Ok(())
    }

    /// The storage loses a part of a volume, and gets it back.
    async fn damage_and_repair(&mut self, volume: &Volume) -> Result<(), StoryError> {
        let claim = &volume.claim;
        let Backend::Demo(driver) = self.backend else {
            self.narrator.skip("a claim says that its volume is not healthy", "nobody damages your storage");
            return Ok(());
        };
        let (reason, message) = DAMAGE;
        driver.set_health(&volume.handle, [(VolumeHealthErrorType::Degraded.into(), reason, message)]);
        self.see_health(claim, &[("Degraded", reason)]).await?;
        self.narrator.step(format_args!("claim {claim} says that its volume is Degraded ({reason}): {message}"));
        driver.set_health(&volume.handle, []);
        self.see_health(claim, &[]).await?;
        self.narrator.step(format_args!("claim {claim} says that its volume is healthy again"));
        Ok(())
    }

    async fn fail_and_recover(&mut self) -> Result<Attached, StoryError> {
        let (name, driver) = ("archive", self.backend.name());
        self.api.create_value(objects::claim(name, objects::AT_ONCE))?;
        let volume = self.see_bound(name).await?;
        self.narrator.step(format_args!("claim {name} provisioned at once: {} is bound", volume.name));
        let place = self.backend.places().swap_remove(0);
        let pinned = match self.backend {
            Backend::Demo(demo) => {
                demo.inject(
                    Fault::on(Method::ControllerPublishVolume, Action::fail(Code::ResourceExhausted, FAILURE))
                        .volume(&volume.handle)
                        .times(FAILURES),
                );
                None
            }
            Backend::Own(_) => {
                // Somebody else's driver fails as one does that has not registered on the node yet. A node of its own, because
                // a registration that is taken back may be seen after the attachment that it should fail.
                self.add_node(LATE_NODE, &place)?;
                Some(LATE_NODE)
            }
        };
        self.api.create_value(objects::pod(name, pinned))?;
        // The volume existed before its pod, so the pod goes where the volume is.
        let node = self.see_scheduled(name).await?;
        let attached = self.placed(volume, node);
        let error = self.see_attach_error(&attached).await?;
        self.narrator.step(format_args!("attaching {name} failed, and its status says why: {error}"));
        self.see_event(name, "VolumeAttachFailed").await?;
        if let Backend::Own(_) = self.backend {
            self.api.create_value(objects::csi_node(LATE_NODE, &driver, &place.node_id, &place.segments))?;
        }
        self.see_attached(&attached).await?;
        self.see_event(name, "VolumeAttachRecovered").await?;
        Ok(attached)
    }

    /// The pods go, and with them the attachments; the claims go, and with them the volumes.
    async fn end(&mut self, all: [Attached; 3]) -> Result<(), StoryError> {
        for attached in &all {
            self.api.delete::<Pod>("default", &attached.volume.claim)?;
        }
        for attached in &all {
            self.see_detached(attached).await?;
            self.narrator.step(format_args!("{} detached from {}", attached.volume.claim, attached.node));
        }
        for attached in &all {
            self.api.delete::<PersistentVolumeClaim>("default", &attached.volume.claim)?;
        }
        for attached in &all {
            self.see_deleted(&attached.volume).await?;
        }
        self.narrator.step("the claims are deleted, and so are their volumes at the driver");
        Ok(())
    }
}

fn node_name(index: usize) -> String {
    format!("node-{}", ["a", "b"][index % 2])
}
