//! What one decision about a volume is made from: the nodes that have it or want it. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::{Pod, VolumeAttachment};
use crate::roles::attach_detach::config::{AttachDetachSection, MultiAttach};
use crate::roles::attach_detach::guard::Permit;
use crate::roles::attach_detach::memory::{Found, Phase, SiteMemory, Withdrawal};
use crate::roles::attach_detach::volume_id::VolumeId;
use crate::roles::attach_detach::wishes::Wish;
use crate::roles::kit::{AttemptError, NoReason};

use super::gate::{Force, ForceRules, Standing};

/// The settings that a decision about a volume depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// When a volume in use may be detached.
    pub force: ForceRules,
    /// What keeps an exclusive volume from a second node.
    pub multi_attach: MultiAttach,
    /// Whether pods are told by Events.
    pub events: bool,
}

impl Rules {
    /// Those of a section.
    pub fn of(section: &AttachDetachSection) -> Self {
        let force = ForceRules { max_wait: section.max_wait_for_unmount, on_timeout: section.force_detach_on_timeout };
        Self { force, multi_attach: section.multi_attach, events: section.events }
    }
}

/// A volume.
#[derive(Debug, Clone)]
pub struct View {
    /// Which one.
    pub id: VolumeId,
    /// What is known of it; `None`: neither a `PersistentVolume` nor a pod says what it is.
    pub volume: Option<Volume>,
    /// What may be done now.
    pub permit: Permit,
    /// How long it is until something may be detached; zero: it may.
    pub until_detach: Duration,
    /// The settings.
    pub rules: Rules,
    /// The nodes that have it or want it, by name.
    pub sites: BTreeMap<String, Site>,
    /// Whether it has attachments under names that were not computed for it.
    pub has_foreign: bool,
    /// The nodes of which something is remembered.
    pub remembered: BTreeSet<String>,
}

/// What a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The name of its `PersistentVolume`, or the one that it would have.
    pub name: Arc<str>,
    /// Whether one node alone may have it.
    pub is_exclusive: bool,
    /// The uid of its `PersistentVolume`, if it has one.
    pub uid: Box<str>,
}

/// A pod that wants the volume, and how it names it.
#[derive(Debug, Clone, PartialEq)]
pub struct Wisher {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The volume as the pod wants it.
    pub wish: Wish,
}

/// A volume on a node.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact")]
pub struct Site {
    /// Whether the node's volumes are managed by this controller. A node without an object is.
    pub is_managed: bool,
    /// The node as far as its volumes may be taken from it.
    pub standing: Standing,
    /// Whether the node's `CSINode` names the driver: an attacher attaches to no other node.
    pub is_registered: bool,
    /// The pods there that want it, the oldest first.
    pub wishers: Vec<Wisher>,
    /// The object under the name of its attachment.
    pub attachment: Held,
    /// Whether its name is in `volumesAttached`.
    pub is_reported: bool,
    /// Whether the node's status is written at all.
    pub is_written: bool,
    /// What is remembered of it.
    pub memory: SiteMemory,
    /// For how long its phase has lasted.
    pub age: Duration,
    /// How long its deletion waits, because the API has not taken it.
    pub until_retry: Duration,
}

/// The object under the name of an attachment.
#[derive(Debug, Clone, PartialEq)]
pub enum Held {
    /// There is none.
    None,
    /// It was created, and no watch has shown it yet.
    Created,
    /// It is of this volume and node.
    Fits(Arc<VolumeAttachment>),
    /// It is of another volume, driver or node: a clash of hashes, or a forgery.
    Clash(Arc<VolumeAttachment>),
}

/// What the attachment of a volume to a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There is none.
    None,
    /// Its name is taken.
    Clash,
    /// It is not attached.
    Pending,
    /// It is attached.
    Attached,
    /// It is being deleted.
    Deleting,
}

impl Site {
    /// What its attachment is.
    pub fn state(&self) -> State {
        match &self.attachment {
            Held::None => State::None,
            Held::Clash(_) => State::Clash,
            Held::Fits(held) if held.metadata.deletion_timestamp.is_some() => State::Deleting,
            Held::Fits(held) if self.memory.is_deleted && self.memory.uid == held.metadata.uid => State::Deleting,
            Held::Fits(held) if held.status.attached => State::Attached,
            Held::Fits(_) | Held::Created => State::Pending,
        }
    }

    /// The uid of its attachment; empty if there is none of this volume.
    pub fn uid(&self) -> &str {
        match &self.attachment {
            Held::Fits(held) => &held.metadata.uid,
            Held::Created => &self.memory.uid,
            Held::None | Held::Clash(_) => "",
        }
    }

    /// Its attachment, once a watch has shown it.
    pub fn attachment(&self) -> Option<&Arc<VolumeAttachment>> {
        if let Held::Fits(held) = &self.attachment { Some(held) } else { None }
    }

    /// Whether a deletion may still be done that is not answered, so that its name must not be reported.
    pub fn may_go(&self) -> bool {
        self.state() == State::Attached && !self.is_reported && !self.memory.is_kept
    }

    /// Whether some pod on the node wants the volume.
    pub fn is_wanted(&self) -> bool {
        !self.wishers.is_empty()
    }

    /// How far its name is withdrawn from the status of the node, if that is not at its end.
    pub fn withdrawal(&self) -> Option<Withdrawal> {
        self.memory.withdrawal.filter(|held| *held != Withdrawal::Ended && *self.memory.uid == *self.uid())
    }

    /// How far it is; `None`: there is nothing to follow.
    pub fn phase(&self) -> Option<Phase> {
        Some(match (self.state(), self.is_wanted()) {
            (State::Deleting, _) => Phase::Deleting,
            (State::None | State::Clash, true) => Phase::Blocked,
            (State::None | State::Clash, false) => return None,
            (State::Attached, true) if self.is_reported || !self.is_written => Phase::Settled,
            (State::Pending | State::Attached, true) => Phase::Attaching,
            (State::Pending | State::Attached, false) => Phase::Unwanted,
        })
    }
}

/// Whose turn it is: the older pod's, and of two of one second that of the smaller uid.
pub fn seniority(wisher: &Wisher) -> (Option<crate::cluster::Moment>, Box<str>) {
    (wisher.pod.metadata.creation_timestamp, wisher.pod.metadata.uid.clone())
}

/// One thing that pods, or people who look at the volume, are told of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct News {
    /// The node.
    pub node: String,
    /// What tells it from what was told before.
    pub key: String,
    /// What it is about.
    pub what: What,
}

/// What news is about.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The volume cannot be attached: by pod, the text.
    AttachFailed(Vec<(Arc<Pod>, String)>),
    /// It is not detached.
    DetachFailed(String),
}

/// One request, or one thing that is remembered or told.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Note how far the volume is on each node.
    Track(BTreeMap<String, Found>),
    /// Ask the writers of these nodes' status to take the name out, and to let it stay out.
    Withdraw(Vec<String>),
    /// Let them put it back.
    Restore(Vec<String>),
    /// Write the attachment to this node, so that a deletion that may still be done is not.
    Keep(String),
    /// Delete the attachment to this node.
    Delete(String, Option<Force>),
    /// A deletion has failed: read whether the attachment is still live.
    ReadAgain(String),
    /// End the attempt, because a deletion has failed.
    Fail(AttemptFailure),
    /// Create the attachment to this node.
    Create(String),
    /// Tell pods.
    Tell(Vec<News>),
    /// Nothing can be done before this time is over.
    Wait(Duration),
}

/// Why a deletion has failed. Two are alike if they read alike.
#[derive(Debug, Clone)]
pub struct AttemptFailure(pub AttemptError<NoReason>);

impl PartialEq for AttemptFailure {
    fn eq(&self, other: &Self) -> bool {
        self.0.message() == other.0.message()
    }
}

/// What a step has brought.
#[derive(Debug)]
pub enum Answer {
    /// What was found, and when it was noted.
    Tracked(BTreeMap<String, Found>, Instant),
    /// Withdrawals were asked, and the writers are awake.
    Withdrawn,
    /// Withdrawals have ended, and the writers are awake.
    Restored,
    /// The attachment to this node is gone or going.
    Deleted(String, Option<Force>),
    /// It is not: the API has refused. It is asked again at this moment.
    NotDeleted(String, AttemptFailure, Instant),
    /// The API did not answer, and may still delete it. It is asked again at this moment.
    Unanswered(String, AttemptFailure, Instant),
    /// The attachment to this node was written.
    Kept(String),
    /// Whether the attachment whose deletion has failed is still live.
    Read(bool),
    /// The attachment to this node, with its uid and version.
    Created(String, Box<str>, Option<u128>),
    /// This was told.
    Told(Vec<News>),
}

/// What one attempt has done so far.
#[derive(Debug, Default)]
pub struct Progress {
    /// The node from which the volume could not be detached, and why.
    pub failed: Option<(String, AttemptFailure)>,
    /// Whether its attachment is live, once that was read.
    pub is_live: Option<bool>,
    /// Whether its name may be put back, and the writer knows.
    pub is_restored: bool,
    /// The nodes whose attachments were written, so that their names may be reported.
    pub kept: Vec<String>,
}
