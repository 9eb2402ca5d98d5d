//! What one decision is made from. Pure.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use crate::cluster::{ObjectName, PersistentVolume, PersistentVolumeClaim, VolumeAttributesClass};

use super::claim::status;
use super::config::ResizerSection;
use super::job::{Job, WorkKey};
use super::progress::{Memory, Pairing};
use super::step::Place;

/// What is the same for every claim of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Our driver.
    pub driver: String,
    /// The role's configuration.
    pub section: ResizerSection,
    /// The driver has `SINGLE_NODE_MULTI_WRITER`.
    pub multi_writer: bool,
    /// The driver can modify volumes.
    pub modifies: bool,
    /// The driver needs both calls of a claim at the same time.
    pub pairs: bool,
}

/// How the driver expands volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expansion {
    /// By a call of the Controller service, and perhaps also of the Node service.
    Controller,
    /// By a call of the Node service alone.
    Node,
    /// It does not.
    None,
    /// The Node service has not answered yet.
    Unknown,
}

/// Whether pods use the claim's volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pods {
    /// No pod uses it, or the driver has not refused it because it is in use.
    None,
    /// The driver has refused the volume while it was in use, and a pod still uses it.
    Some,
    /// The driver has refused the volume, and the pods are not listed yet.
    Unknown,
}

/// A class that a claim names.
#[derive(Debug, Clone)]
pub enum Class {
    /// The cache has it.
    Known(Arc<VolumeAttributesClass>),
    /// The cache has no class of this name.
    Missing,
    /// The cluster does not have the kind, or the daemon may not read it, or the cache is not synced yet.
    Unknown,
}

/// The other change of the claim, where the driver needs both calls at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Partner {
    /// There is work.
    pub is_wanted: bool,
    /// An attempt has the volume's lock.
    pub is_at_work: bool,
    /// How it meets this one.
    pub pairing: Pairing,
}

/// A change of a claim: handles to the cached objects, and what is remembered of it.
#[derive(Debug, Clone)]
pub struct View {
    /// The term's rules.
    pub rules: Arc<Rules>,
    /// Which change.
    pub job: Job,
    /// What the term's memory knows it by.
    pub id: String,
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// Its volume, if the cache holds it.
    pub volume: Option<Arc<PersistentVolume>>,
    /// The handle of the volume, also of one that is served in its CSI form.
    pub handle: Option<String>,
    /// How the driver expands volumes.
    pub expansion: Expansion,
    /// The pods that use it.
    pub pods: Pods,
    /// The class that the claim asks for, S.
    pub wanted: Class,
    /// The class that it is being changed to, T.
    pub begun: Class,
    /// What the term remembers of the change.
    pub memory: Memory,
    /// The other change, where the driver needs both calls at once.
    pub partner: Option<Partner>,
    /// The API has shown the claim during the term.
    pub is_confirmed: bool,
    /// Now, as people write it.
    pub now: Timestamp,
    /// Now, for pauses.
    pub at: Instant,
}

impl View {
    /// The queue's key.
    pub fn key(&self) -> WorkKey {
        WorkKey { claim: self.name(), job: self.job }
    }

    /// The claim's name.
    pub fn name(&self) -> ObjectName {
        ObjectName::of(self.claim.as_ref())
    }

    /// The volume's name.
    pub fn volume_name(&self) -> &str {
        self.claim.spec.volume_name.as_deref().unwrap_or_default()
    }

    /// The name of the class that the claim is being changed to.
    pub fn begun_name(&self) -> Option<&str> {
        status(&self.claim).modify.as_ref()?.target.as_deref()
    }

    /// The version of what is written to.
    pub fn version(&self, place: Place) -> &str {
        let volume = self.volume.as_ref().map(|volume| &volume.metadata);
        let written = if place == Place::Claim { Some(&self.claim.metadata) } else { volume };
        written.and_then(|meta| meta.resource_version.as_deref()).unwrap_or_default()
    }
}
