//! The steps of both changes, as the policies ask for them. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::time::Instant;

use crate::cluster::{SecretRef, SmolStr};
use crate::csi::RpcError;
use crate::proto::VolumeCapability;
use crate::roles::kit::Op;

use super::error::{
    BEGIN_EXPANSION, BEGIN_MODIFICATION, CANCEL, CLEAN_UP, InvalidChange, RECORD_CLASS, RECORD_DONE, RECORD_MODIFIED,
    RECORD_NODE, RECORD_REFUSAL, RECORD_SIZE, RECORD_UNUSABLE, Wait,
};

/// The next thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing: the volume is as the claim asks, or it is not ours.
    Settled,
    /// Nothing until something else has happened.
    Wait(Wait),
    /// Read the secret.
    ReadSecret(SecretRef),
    /// Ask the API for a class that the cache lacks.
    LookUp(String),
    /// Read the claim from the API, because the cache may be old.
    Confirm,
    /// `ControllerExpandVolume`.
    Expand(Box<Expand>),
    /// For a driver that only expands on nodes: go on without a call.
    LeaveToNode(i64),
    /// `ControllerModifyVolume`.
    Modify(Box<Modify>),
    /// Write.
    Write(Write),
    /// Wait for the other change's write, which will have this one in it.
    Meet(Write, Offer),
    /// Write, and what the other change offers with it.
    WriteBoth(Write, Offer),
    /// The node has begun or finished meanwhile: the write to the claim took effect, although its answer was lost.
    NodeHasBegun,
    /// Drop the driver's answer, because another writer has begun another change meanwhile.
    DropAnswer,
    /// The driver has refused, and nothing is left to be recorded.
    Fail(RpcError),
    /// Give up this attempt.
    Refuse(InvalidChange),
}

impl Step {
    /// Whether nobody else may change the volume meanwhile.
    pub fn is_locked(&self) -> bool {
        match self {
            Self::Write(write) => *write != Write::RemoveNote,
            Self::Confirm | Self::Expand(_) | Self::Modify(_) | Self::Meet(..) | Self::WriteBoth(..) => true,
            _ => false,
        }
    }
}

/// The request of an expansion, without the secret.
#[derive(Debug, Clone, PartialEq)]
pub struct Expand {
    /// The volume's handle.
    pub volume_id: String,
    /// The requested size.
    pub size: i64,
    /// The volume's capability: its access mode and type.
    pub capability: VolumeCapability,
}

/// The request of a modification, without the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modify {
    /// The class.
    pub class: String,
    /// The volume's handle.
    pub volume_id: String,
    /// The parameters.
    pub parameters: BTreeMap<String, String>,
}

/// One write. Each has a precondition.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// The claim's status says that the expansion has begun.
    BeginExpansion(Begin),
    /// The PersistentVolume has the size.
    Size {
        /// The size.
        size: i64,
        /// The size that the claim had before, if the annotation is needed.
        before: Option<i64>,
    },
    /// The claim's status says that its node has to act.
    LeftToNode {
        /// For a driver that only expands on nodes, the size that was begun, if the claim's status does not have it yet.
        begun: Option<i64>,
        /// How often a node that has failed was asked by then.
        retries: Option<NodeRetries>,
    },
    /// The claim's status has the new size.
    Expanded(i64),
    /// The PersistentVolume no longer has the annotation with the size before a finished expansion.
    RemoveNote,
    /// The claim's status says that the modification to this class has begun.
    BeginModification(String),
    /// The PersistentVolume has the class.
    Class(String),
    /// The claim's status has the class.
    Modified(String),
    /// The claim's status says that its class is missing.
    Pending,
    /// The claim's status says that this class is another driver's.
    Foreign(String, InvalidChange),
    /// The condition goes, because the claim no longer names its first class.
    Cancel,
    /// The claim's status says why the driver has refused.
    Refusal,
}

/// What is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The claim's status.
    Claim,
    /// The volume's object.
    Volume,
}

impl Write {
    /// What is written to.
    pub fn place(&self) -> Place {
        if matches!(self, Self::Size { .. } | Self::RemoveNote | Self::Class(_)) { Place::Volume } else { Place::Claim }
    }

    /// Whether it says that a call follows.
    pub fn is_begin(&self) -> bool {
        matches!(self, Self::BeginExpansion(_) | Self::BeginModification(_))
    }

    /// Whether it says how a call has ended.
    pub fn is_result(&self) -> bool {
        matches!(
            self,
            Self::Size { .. }
                | Self::LeftToNode { .. }
                | Self::Expanded(_)
                | Self::Class(_)
                | Self::Modified(_)
                | Self::Refusal
        )
    }

    /// Whether the controller's part of the change is done with it.
    pub fn ends_change(&self) -> bool {
        matches!(self, Self::LeftToNode { .. } | Self::Expanded(_) | Self::Modified(_))
    }

    /// Its words for errors.
    pub fn op(&self) -> Op {
        match self {
            Self::BeginExpansion(_) => BEGIN_EXPANSION,
            Self::Size { .. } => RECORD_SIZE,
            Self::LeftToNode { .. } => RECORD_NODE,
            Self::Expanded(_) => RECORD_DONE,
            Self::RemoveNote => CLEAN_UP,
            Self::BeginModification(_) => BEGIN_MODIFICATION,
            Self::Class(_) => RECORD_CLASS,
            Self::Modified(_) => RECORD_MODIFIED,
            Self::Pending | Self::Foreign(..) => RECORD_UNUSABLE,
            Self::Cancel => CANCEL,
            Self::Refusal => RECORD_REFUSAL,
        }
    }
}

/// What the claim's status says of an expansion before the driver is called (resizer spec 3.3). It has only what differs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one change of the status")]
pub struct Begin {
    /// The requested size, as the user has written it: it becomes A.
    pub allocated: Option<SmolStr>,
    /// St becomes `ControllerResizeInProgress`.
    pub sets_state: bool,
    /// A node may have to act again.
    pub drops_not_required: bool,
    /// The condition `Resizing` appears, or gets the time of a call that repeats one whose refusal the claim tells.
    pub sets_resizing: bool,
    /// The conditions of an earlier expansion.
    pub removes: Vec<&'static str>,
    /// Another size than before.
    pub is_fresh: bool,
}

/// How often a node that has failed at a size was asked to try again, and when it was asked last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeRetries {
    /// The size that the claim requests.
    pub requested: i64,
    /// The size that the claim has.
    pub capacity: i64,
    /// How often.
    pub count: u32,
    /// When last.
    pub last: Instant,
}

/// A write that waits for the other change's, made from one version of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// What it writes to.
    pub place: Place,
    /// The version that it was made from.
    pub version: SmolStr,
    /// The patch.
    pub patch: Value,
}
