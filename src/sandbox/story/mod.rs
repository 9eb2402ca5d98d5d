//! The scripted run: from an empty cluster to a clean stop, each step observed in the API before it is told.

mod backend;
mod narrator;
pub mod objects;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use thiserror::Error;
use tonic::Code;

pub use self::backend::{Backend, BackendError, Own};
pub use self::narrator::{Narrator, NotObserved, Seen};
use super::api::{Api, DirectError};
use super::driver::{Action, Fault, Method};
use super::stage::Daemon;
use crate::cluster::names;

/// The message of the demo driver's failing attach.
const FAILURE: &str = "the storage backend is out of attach slots";
/// The node on which somebody else's driver registers late.
const LATE_NODE: &str = "node-late";
/// How often it fails.
const FAILURES: u32 = 2;

/// The story did not come to its end.
#[derive(Debug, Error)]
pub enum StoryError {
    /// A step was not seen in the API.
    #[error(transparent)]
    NotObserved(#[from] NotObserved),
    /// The API refused an object of the story.
    #[error("the sandbox's API refused the story")]
    Api(#[from] DirectError),
    /// The driver did not play along.
    #[error("the driver did not play along")]
    Backend(#[from] BackendError),
    /// The daemon failed.
    #[error("the daemon ended in an error")]
    Daemon(#[from] crate::app::AppError),
}

/// Everything that the story needs.
#[derive(Debug)]
pub struct Story<'a> {
    /// The cluster.
    pub api: &'a Api,
    /// The driver.
    pub backend: &'a Backend,
    /// Who tells it.
    pub narrator: &'a mut Narrator,
    volumes: Vec<Volume>,
}

/// A volume of the story and where it goes.
#[derive(Debug, Clone)]
struct Volume {
    name: String,
    handle: String,
    node: String,
    node_id: String,
    attachment: String,
}

impl<'a> Story<'a> {
    /// A story that has not begun.
    pub fn new(api: &'a Api, backend: &'a Backend, narrator: &'a mut Narrator) -> Self {
        Self { api, backend, narrator, volumes: Vec::new() }
    }

    /// Creates nodes, claims and volumes: what other parts of Kubernetes would have created.
    pub async fn furnish(&mut self) -> Result<(), StoryError> {
        let driver = self.backend.name();
        let node_ids = self.backend.node_ids();
        for (index, node_id) in node_ids.iter().enumerate() {
            let name = node_name(index);
            self.api.create_value(objects::node(&name))?;
            self.api.create_value(objects::csi_node(&name, &driver, node_id))?;
        }
        for (index, name) in ["pv-orders", "pv-invoices", "pv-archive"].into_iter().enumerate() {
            let handle = self.backend.create(name).await?;
            let claim = self.api.create_value(objects::claim(name))?;
            let claim_uid = claim["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            self.api.create_value(objects::volume(name, &driver, &handle, &claim_uid))?;
            let node = node_name(index % node_ids.len());
            let attachment = objects::attachment_name(&handle, &driver, &node);
            let node_id = node_ids[index % node_ids.len()].clone();
            self.volumes.push(Volume { name: name.to_owned(), handle, node, node_id, attachment });
        }
        self.narrator.step(format_args!("{} node(s), 3 claims and 3 volumes are in the cluster", node_ids.len()));
        Ok(())
    }

    /// Plays it, up to and including the release of the volumes.
    pub async fn play(&mut self) -> Result<(), StoryError> {
        self.see_leader().await?;
        for index in 0..2 {
            self.attach(index)?;
        }
        for index in 0..2 {
            self.see_attached(index).await?;
        }
        self.repair_drift().await?;
        self.fail_and_recover().await?;
        self.detach_all().await?;
        self.release_all().await
    }

    /// Stops the daemon and sees that it handed its Lease back.
    pub async fn stop(&mut self, daemon: Daemon) -> Result<(), StoryError> {
        daemon.stop().await?;
        let lease = names::attacher_lease(&self.backend.name());
        let api = self.api.clone();
        self.observe(&format!("lease {lease} is released"), async || match api.get::<Lease>("kube-system", &lease) {
            Ok(held) if holder(&held).is_none() => Seen::Yes(()),
            Ok(held) => Seen::NotYet(format!("held by {}", holder(&held).unwrap_or_default())),
            Err(error) => Seen::NotYet(error.to_string()),
        })
        .await?;
        self.narrator.step("the daemon stopped cleanly and handed its lease back");
        Ok(())
    }

    /// Brings the cluster into a state worth looking at, for `--keep`: two volumes attached, one that fails.
    pub async fn linger(&mut self) -> Result<(), StoryError> {
        self.volumes.clear();
        let driver = self.backend.name();
        for (index, name) in ["pv-orders-2", "pv-invoices-2"].into_iter().enumerate() {
            let handle = self.backend.create(name).await?;
            let claim = self.api.create_value(objects::claim(name))?;
            let claim_uid = claim["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            self.api.create_value(objects::volume(name, &driver, &handle, &claim_uid))?;
            let node_ids = self.backend.node_ids();
            let node = node_name(index % node_ids.len());
            let attachment = objects::attachment_name(&handle, &driver, &node);
            let node_id = node_ids[index % node_ids.len()].clone();
            self.volumes.push(Volume { name: name.to_owned(), handle, node, node_id, attachment });
            self.attach(index)?;
            self.see_attached(index).await?;
        }
        let missing = objects::attachment("csi-of-a-missing-volume", &driver, "pv-that-does-not-exist", &node_name(0));
        self.api.create_value(missing)?;
        Ok(())
    }

    async fn see_leader(&mut self) -> Result<(), StoryError> {
        let lease = names::attacher_lease(&self.backend.name());
        let api = self.api.clone();
        let leader = self
            .observe(&format!("lease {lease} is taken"), async || match api.get::<Lease>("kube-system", &lease) {
                Ok(held) => holder(&held).map_or_else(|| Seen::NotYet("nobody holds it".into()), Seen::Yes),
                Err(_) => Seen::NotYet("the driver is not discovered yet".into()),
            })
            .await?;
        self.narrator.step(format_args!("driver {} discovered", self.backend.name()));
        self.narrator.step(format_args!("lease {lease} won by {leader}"));
        Ok(())
    }

    fn attach(&mut self, index: usize) -> Result<(), StoryError> {
        let volume = &self.volumes[index];
        let wanted = objects::attachment(&volume.attachment, &self.backend.name(), &volume.name, &volume.node);
        self.api.create_value(wanted)?;
        Ok(())
    }

    async fn see_attached(&mut self, index: usize) -> Result<(), StoryError> {
        let volume = self.volumes[index].clone();
        let (api, backend) = (self.api.clone(), self.backend);
        self.observe(&format!("{} is attached to {}", volume.name, volume.node), async || {
            let status = match api.get::<VolumeAttachment>("", &volume.attachment) {
                Ok(found) => found.status.unwrap_or_default(),
                Err(error) => return Seen::NotYet(error.to_string()),
            };
            if !status.attached || status.attach_error.is_some() {
                let error = status.attach_error.and_then(|error| error.message);
                return Seen::NotYet(error.unwrap_or_else(|| "not attached yet".into()));
            }
            match backend.published(&volume.handle).await {
                Some(nodes) if !nodes.contains(&volume.node_id) => Seen::NotYet("the driver does not say so".into()),
                _ => Seen::Yes(()),
            }
        })
        .await?;
        self.narrator.step(format_args!("{} attached to {}", volume.name, volume.node));
        Ok(())
    }

    async fn repair_drift(&mut self) -> Result<(), StoryError> {
        const WHAT: &str = "a volume detached behind Kubernetes' back is found and attached again";
        if !self.backend.lists() {
            self.narrator.skip(WHAT, "the driver cannot list where its volumes are published");
            return Ok(());
        }
        let volume = self.volumes[0].clone();
        self.backend.detach_behind(&volume.handle, &volume.node_id).await?;
        self.narrator.step(format_args!("{} detached from {} behind Kubernetes' back", volume.name, volume.node));
        let backend = self.backend;
        self.observe(&format!("the reconciler has {} attached again", volume.name), async || {
            match backend.published(&volume.handle).await {
                Some(nodes) if nodes.contains(&volume.node_id) => Seen::Yes(()),
                _ => Seen::NotYet("the driver says that it is detached".into()),
            }
        })
        .await?;
        self.see_attached(0).await?;
        self.narrator.step(WHAT);
        Ok(())
    }

    async fn fail_and_recover(&mut self) -> Result<(), StoryError> {
        let driver = self.backend.name();
        if let Backend::Own(_) = self.backend {
            // Somebody else's driver fails as one does that has not registered on the node yet. A node of its own, because
            // a registration that is taken back may be seen after the attachment that it should fail.
            let volume = &mut self.volumes[2];
            LATE_NODE.clone_into(&mut volume.node);
            volume.attachment = objects::attachment_name(&volume.handle, &driver, LATE_NODE);
        }
        let volume = self.volumes[2].clone();
        match self.backend {
            Backend::Demo(demo) => demo.inject(
                Fault::on(Method::ControllerPublishVolume, Action::fail(Code::ResourceExhausted, FAILURE))
                    .volume(&volume.handle)
                    .times(FAILURES),
            ),
            Backend::Own(_) => {
                self.api.create_value(objects::node(LATE_NODE))?;
            }
        }
        self.attach(2)?;
        let api = self.api.clone();
        let error = self
            .observe(&format!("the failing attach of {} shows its error", volume.name), async || {
                let found = api.get::<VolumeAttachment>("", &volume.attachment);
                match found.ok().and_then(|found| found.status).and_then(|status| status.attach_error) {
                    Some(error) => Seen::Yes(error.message.unwrap_or_default()),
                    None => Seen::NotYet("no error in its status yet".into()),
                }
            })
            .await?;
        self.narrator.step(format_args!("attaching {} failed, and its status says why: {error}", volume.name));
        self.see_event(&volume.name, "VolumeAttachFailed").await?;
        if let Backend::Own(_) = self.backend {
            self.api.create_value(objects::csi_node(LATE_NODE, &driver, &volume.node_id))?;
        }
        self.see_attached(2).await?;
        self.see_event(&volume.name, "VolumeAttachRecovered").await
    }

    /// Sees an event of this reason on the volume's claim: where its user looks.
    async fn see_event(&mut self, volume: &str, reason: &str) -> Result<(), StoryError> {
        let claim = format!("claim-{volume}");
        let api = self.api.clone();
        let note = self
            .observe(&format!("event {reason} on {claim}"), async || {
                let events: Vec<Event> = match api.list("default") {
                    Ok(events) => events,
                    Err(error) => return Seen::NotYet(error.to_string()),
                };
                let found = events.into_iter().find(|event| {
                    event.reason.as_deref() == Some(reason) && event.involved_object.name.as_ref() == Some(&claim)
                });
                found.map_or_else(
                    || Seen::NotYet("no such event yet".into()),
                    |event| Seen::Yes(event.message.unwrap_or_default()),
                )
            })
            .await?;
        self.narrator.step(format_args!("event {reason} on {claim}: {note}"));
        Ok(())
    }

    async fn detach_all(&mut self) -> Result<(), StoryError> {
        for volume in self.volumes.clone() {
            self.api.delete::<VolumeAttachment>("", &volume.attachment)?;
        }
        for volume in self.volumes.clone() {
            let (api, backend) = (self.api.clone(), self.backend);
            self.observe(&format!("{} is detached", volume.name), async || {
                if api.get::<VolumeAttachment>("", &volume.attachment).is_ok() {
                    return Seen::NotYet("its attachment is still there".into());
                }
                match backend.published(&volume.handle).await {
                    Some(nodes) if !nodes.is_empty() => Seen::NotYet(format!("published to {}", nodes.join(", "))),
                    _ => Seen::Yes(()),
                }
            })
            .await?;
            self.narrator.step(format_args!("{} detached from {}", volume.name, volume.node));
        }
        Ok(())
    }

    async fn release_all(&mut self) -> Result<(), StoryError> {
        for volume in self.volumes.clone() {
            self.api.delete::<PersistentVolumeClaim>("default", &format!("claim-{}", volume.name))?;
            self.api.delete::<PersistentVolume>("", &volume.name)?;
            let api = self.api.clone();
            self.observe(&format!("{} is released", volume.name), async || {
                match api.get::<PersistentVolume>("", &volume.name) {
                    Ok(kept) => Seen::NotYet(format!("kept by {}", kept.finalizers().join(", "))),
                    Err(_) => Seen::Yes(()),
                }
            })
            .await?;
            self.backend.delete(&volume.handle).await?;
        }
        self.narrator.step("the volumes are released and gone");
        Ok(())
    }

    async fn observe<T>(&mut self, what: &str, look: impl AsyncFnMut() -> Seen<T>) -> Result<T, NotObserved> {
        let versions = self.api.versions();
        let driver = match self.backend {
            Backend::Demo(driver) => Some(driver.changes()),
            Backend::Own(_) => None,
        };
        let changed = || {
            let (mut versions, mut driver) = (versions.clone(), driver.clone());
            versions.mark_unchanged();
            async move {
                tokio::select! {
                    biased;
                    _ = versions.changed() => {}
                    () = async {
                        match &mut driver {
                            Some(driver) => { let _ = driver.changed().await; }
                            // A driver that tells nothing has to be asked again.
                            None => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
                        }
                    } => {}
                }
            }
        };
        self.narrator.observe(what, changed, look).await
    }
}

fn node_name(index: usize) -> String {
    format!("node-{}", ["a", "b"][index % 2])
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())
}
