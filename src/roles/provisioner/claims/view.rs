//! What a decision about a claim is made from.

use crate::cluster::StorageClass;

use super::claim::Claim;
use super::error::InvalidClaim;
use super::state::ClaimState;

/// What is the same for every claim of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Our driver.
    pub driver: String,
    /// Whether the journal holds a request before the driver is called.
    pub durable: bool,
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
    /// What stands in the place of its volume.
    pub volume: &'a NameStatus,
    /// Where its content comes from.
    pub source: &'a SourceStatus,
    /// The class of attributes that it names and that was not read yet.
    pub attributes_class: Option<&'a str>,
    /// Whose claim it is.
    pub whose: Whose,
    /// What the term knows of it.
    pub state: &'a ClaimState,
    /// What this attempt has done so far.
    pub attempt: AttemptFacts,
    /// The term's rules.
    pub rules: &'a Rules,
}

/// Whose claim it is. Always ours, but where each node has a daemon of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The claim is for this daemon.
    Ours,
    /// Another node's daemon makes the claim's volume, or nobody has the claim.
    Anothers,
    /// The same, while our driver still owes an answer: of what that is, nothing is kept.
    GivenAway,
}

/// What the cluster has under the name of the claim's volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameStatus {
    /// Nothing.
    Free,
    /// The claim's own volume.
    Ours,
    /// The claim's own volume, which another node's driver has made.
    OtherNode,
    /// Something else, in words.
    Conflict(String),
}

/// How far the claim's content source is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceStatus {
    /// It is empty, or all of it is known and protected.
    Stores,
    /// Something of it must be read or written first.
    Step(SourceStep),
    /// A volume populator fills the volume, and makes it, too.
    Populator(String),
    /// It can't be used as things stand.
    Refused(InvalidClaim),
}

/// One request that a content source needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceStep {
    /// List the grants of a namespace.
    ListGrants(String),
    /// Read the snapshot.
    GetSnapshot,
    /// Read the content behind the snapshot.
    GetContent(String),
    /// Read the source claim.
    GetClaim,
    /// Read the volume behind the source claim.
    GetVolume(String),
    /// Put the finalizer on it that keeps it until we are done.
    Protect,
}

/// What one attempt has done so far. Nothing of it outlives the attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttemptFacts {
    /// The journal has confirmed the request.
    pub has_recorded: bool,
    /// The secret was read.
    pub has_secret: bool,
    /// No other PersistentVolume names the volume that the driver has made.
    pub has_checked: bool,
}
