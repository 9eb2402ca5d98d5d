//! The view of a claim that a decision is made from.

use crate::cluster::StorageClass;

use super::error::InvalidClaim;
use super::state::ClaimState;
use crate::roles::provisioner::claim::Claim;
use crate::roles::provisioner::sources::status::SourceStatus;

/// What the API's history says of a request whose PersistentVolume may have been stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// No PersistentVolume was ever stored for it.
    NeverStored,
    /// One was stored, though it may be gone.
    Stored,
    /// The history is not complete.
    Unknown,
}

/// What is the same for every claim of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Our driver.
    pub driver: String,
    /// Whether the daemon saves a request in the journal before it calls the driver.
    pub durable: bool,
    /// Whether each node has its own daemon, so that a PersistentVolume of the claim's name may be another node's.
    pub per_node: bool,
}

/// Everything that a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The claim; as it was last seen, if it is gone.
    pub claim: &'a Claim,
    /// Whether the API still has it.
    pub present: bool,
    /// The class that it names.
    pub class: Option<&'a StorageClass>,
    /// What has the name of its volume.
    pub volume: &'a NameStatus,
    /// Whether a PersistentVolume of our driver has the name of its volume, whichever claim it belongs to.
    pub has_volume: bool,
    /// Whether claims and PersistentVolumes were listed in this term.
    pub listed: bool,
    /// The status of its data source, or why the source cannot be used now.
    pub source: &'a Result<SourceStatus, InvalidClaim>,
    /// The `VolumeAttributesClass` that it names, if that was not read yet.
    pub attributes_class: Option<&'a str>,
    /// Which node's daemon serves the claim.
    pub whose: Whose,
    /// Its state in this term.
    pub state: &'a ClaimState,
    /// What this attempt has done so far.
    pub attempt: AttemptFacts,
    /// The term's rules.
    pub rules: &'a Rules,
}

/// Which node's daemon serves the claim. Without node deployment always this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// This daemon serves the claim.
    Ours,
    /// Another node's daemon serves the claim, or the claim has no node yet.
    Anothers,
    /// The same, but our driver has not given its final answer: the daemon deletes the volume that our driver creates.
    GivenAway,
}

/// Which PersistentVolume has the name of the claim's volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameStatus {
    /// None.
    Free,
    /// The claim's own.
    Ours,
    /// The claim's own, whose volume another node's driver has created.
    OtherNode,
    /// Another one, described for users.
    Conflict(String),
}

/// An object that a cache does not have, as the API itself has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lookup<T> {
    /// The API was not asked for it.
    #[default]
    NotAsked,
    /// The API does not have it either.
    Missing,
    /// The API has it.
    Found(T),
}

/// What one attempt has done so far. Nothing of it outlives the attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttemptFacts {
    /// The claim's PersistentVolume has gone, and the API has not shown since that the claim is there and unbound.
    pub is_without_volume: bool,
    /// The journal has confirmed the request.
    pub has_recorded: bool,
    /// What the API says of a class that the cache does not have.
    pub class: Lookup<()>,
    /// The secret was read.
    pub has_secret: bool,
    /// `Some`: no other PersistentVolume has the volume that the driver has created. The value says whether one may have been stored for it
    /// before this check.
    pub checked: Option<bool>,
    /// What the API's history says of a request.
    pub history: Option<Evidence>,
}
