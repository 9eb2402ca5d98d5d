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
    /// Our mark on claims: a finalizer.
    pub mark: String,
    /// Whether the daemon saves the request on the claim before it calls the driver.
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
    /// Whose claim it is where each node has a daemon of its own.
    pub ownership: Ownership,
    /// Another node's daemon makes the claim's volume, or has made it, while our driver still owes an answer: of what that is,
    /// nothing is kept.
    pub given_away: bool,
    /// The class has changed since what is asked was worked out, and what is asked is in doubt.
    pub is_outdated: bool,
    /// What the term knows of it.
    pub state: &'a ClaimState,
    /// What this attempt has done so far.
    pub attempt: AttemptFacts,
    /// The term's rules.
    pub rules: &'a Rules,
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

/// Whose claim it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Ours: there is one daemon for the cluster, or the claim is for this node.
    Here,
    /// Another node's.
    Elsewhere {
        /// That node may be no more: look again after this long.
        look_again: Option<std::time::Duration>,
    },
    /// Another node's, which may be no more.
    Held,
    /// Of a node that is no more.
    Abandoned,
    /// Another node's, or nobody's, and the wait that comes before anything is done about it has not begun.
    Unwatched,
    /// Nobody's yet: ours if we are the first to take it, and not before this long from now.
    Free {
        /// The rest of the wait.
        wait: std::time::Duration,
        /// Whether this node's driver was asked for its capacity, and has enough or did not say; or could not be asked, because
        /// something is missing.
        has_room: bool,
    },
}

/// What one attempt has done so far. Nothing of it outlives the attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttemptFacts {
    /// The secret was read.
    pub has_secret: bool,
    /// No other PersistentVolume names the volume that the driver has made.
    pub has_checked: bool,
}
