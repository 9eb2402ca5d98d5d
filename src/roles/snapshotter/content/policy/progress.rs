//! What one attempt at a content has learnt, and what each step's answer means for that. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use crate::cluster::{EventTarget, SecretRef};
use crate::csi::SnapshotLock;
use crate::roles::kit::{HeldLocks, Secret};
use crate::roles::snapshotter::content::record::{ContentError, Found, Operation, Ownership};

/// How a content ended that was removed by force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentEnd {
    /// Its policy was `Delete`.
    Delete,
    /// Its policy was another one.
    Retain,
    /// The API no longer says.
    Unknown,
}

/// Why the operation has failed, or what it waits for.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What failed.
    pub operation: Operation,
    /// Why.
    pub error: ContentError,
    /// Whether the driver says that no snapshot exists, in answer to exactly the request that the content records.
    pub is_final: bool,
    /// Whether the status says it, or need not.
    pub is_recorded: bool,
}

/// Why a snapshot without a content is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Another content names it, or is to get it.
    ToHeir,
    /// The content said `Retain`.
    Retained,
    /// The driver has deleted it.
    Deleted,
    /// The content was given to another node.
    ToOtherNode,
    /// The last policy of its content is not known.
    EndUnknown,
    /// It is a group, and another content needs one of its snapshots.
    MemberNeeded,
    /// It is older than the content, or nobody knows how old it is, or there is a copy of the content: a person may have kept it on
    /// purpose.
    MaybeKept,
}

/// A Warning: the reason of its Event, and the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The reason.
    pub reason: String,
    /// The text.
    pub note: String,
}

/// The content that an attempt is about, for its reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Who {
    /// Its name.
    pub name: String,
    /// The object that users made, with its namespace.
    pub owner: String,
    /// Where its Events go: to the content, and to what users have made.
    pub targets: Vec<EventTarget>,
}

/// What one attempt has learnt. It is dropped with the attempt.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct Progress {
    /// The content.
    pub who: Who,
    /// What is done for it, as the attempt begins.
    pub first_operation: Operation,
    /// When the attempt began.
    pub began: Option<Instant>,
    /// The same moment, for the status.
    pub wall: Timestamp,
    /// The secret that was read, and from where.
    pub secret: Option<(SecretRef, Secret)>,
    /// The source volumes whose turns the attempt has, in their order.
    pub volume_turn: Option<Vec<String>>,
    /// The locks of these volumes, and the places in their lines. The attempt holds them until its call is over.
    pub held: Vec<HeldLocks>,
    /// A look has given way to others that change the volume, and comes back after this pause.
    pub gives_way: Option<Duration>,
    /// The turns of what is deleted.
    pub snapshot_turns: Vec<SnapshotLock>,
    /// The API has shown the content since the attempt began.
    pub is_confirmed: bool,
    /// The API no longer has the content.
    pub is_gone: bool,
    /// The API has the content, and it is another daemon's by now.
    pub is_others: bool,
    /// The contents were listed since the attempt began.
    pub is_listed: bool,
    /// After that list, the cache has every content that is older than this one.
    pub is_caught_up: bool,
    /// How the content ended, where the API's history was read.
    pub end: Option<ContentEnd>,
    /// The contents of all nodes were read.
    pub is_sought: bool,
    /// Kind and name of one of these contents that names the snapshot and is not in the cache of this node.
    pub named_elsewhere: Option<String>,
    /// Who owns the `VolumeSnapshots` of the contents that name snapshots of the group, by the uid of the content.
    pub owners: BTreeMap<String, Ownership>,
    /// The snapshot exists.
    pub found: Option<Found>,
    /// The call that takes the snapshot has brought it, and the content still bears the mark of that call.
    pub is_answered: bool,
    /// The content bore the mark of a call that this term has not made.
    pub is_resumed: bool,
    /// What has failed, or what it waits for. The attempt only records that, and ends.
    pub failure: Option<Failure>,
    /// When it failed.
    pub failed_at: Option<Instant>,
    /// What users are told of it.
    pub warning: Option<Warning>,
    /// They have not read that yet.
    pub is_news: bool,
    /// The pause before the next look at a snapshot that is not ready.
    pub pause: Option<Duration>,
    /// The failure could not be recorded.
    pub is_unrecorded: bool,
    /// `CreateSnapshot` cannot say whether the snapshot is ready: its source volume is gone.
    pub must_look_up: bool,
    /// The status no longer offers the deleted snapshot.
    pub is_cleared: bool,
    /// The driver was asked for snapshots that may be left over.
    pub is_searched: bool,
    /// A status without a handle has got one.
    pub has_cut: bool,
    /// A status has become ready.
    pub has_become_ready: bool,
    /// Since when the snapshot was known to be cut, if that was before.
    pub unready_since: Option<Instant>,
    /// The driver has deleted the snapshot in this attempt.
    pub has_deleted: bool,
}

/// What it means that the call which takes a snapshot has brought none.
#[derive(Debug)]
pub struct NotTaken {
    /// Whether the driver no longer works on it.
    pub is_answer: bool,
    /// Whether a snapshot may be left over.
    pub leaves_doubt: bool,
    /// Whether the cluster still has the content.
    pub exists: bool,
    /// What users are told at once.
    pub warning: Option<Warning>,
}

/// An operation that has failed.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub failure: Failure,
    /// When.
    pub at: Instant,
    /// What users are told.
    pub warning: Option<Warning>,
}

/// What a step has brought.
#[derive(Debug)]
pub enum Answer {
    /// Nothing that the attempt must know: the next view shows it.
    Nothing,
    /// The secret.
    Secret(SecretRef, Secret),
    /// It is the attempt's turn to call the driver for the volumes.
    VolumeTurn(Vec<String>, Vec<HeldLocks>),
    /// At this moment a volume was not free: the look comes back after this pause.
    GaveWay(Instant, Duration),
    /// It is the attempt's turn to delete the snapshots.
    SnapshotTurns(Vec<SnapshotLock>),
    /// The API has shown the content.
    Confirmed,
    /// The API has no such content any more.
    Gone,
    /// The content is another daemon's.
    Others,
    /// The contents were listed.
    Listed,
    /// The cache has every content that is older than this one.
    CaughtUp,
    /// How the content ended.
    End(ContentEnd),
    /// The contents of all nodes were read: this one of them names the snapshot, too.
    Sought(Option<String>),
    /// Whose the `VolumeSnapshot` of the content with this uid is.
    Owner(String, Ownership),
    /// The call that takes the snapshot has brought it. Whether it is of a group.
    Taken(Found, bool),
    /// The snapshot exists.
    Found {
        /// What the driver says of it.
        found: Found,
        /// It is of a group.
        is_grouped: bool,
        /// What users are told of the answer.
        warning: Option<Warning>,
    },
    /// The call that takes the snapshot has brought none.
    Refused(Box<Failed>, NotTaken),
    /// The operation has failed.
    Failed(Box<Failed>),
    /// The snapshot is not ready: the next look comes after this pause.
    NotReady(Box<Failed>, Duration),
    /// The answer is in the status.
    Saved {
        /// It had no handle before.
        is_cut: bool,
        /// It says that the snapshot is ready.
        is_ready: bool,
    },
    /// The marks are gone.
    Unmarked,
    /// The error is in the status.
    Recorded,
    /// The failure could not be recorded.
    Unrecorded,
    /// The driver no longer knows the source volume: ask for the snapshot itself.
    SourceGone,
    /// The status is cleared.
    Cleared,
    /// The driver was asked for what may be left over, and that is named.
    Searched(Option<Warning>),
    /// The driver cannot be asked for what may be left over.
    NotSearched,
    /// The driver has deleted the snapshot.
    Deleted,
    /// The driver deletes the snapshot with its group only.
    Undeletable,
    /// The content is released, and its snapshot kept, as users are told. Whether the content is gone.
    ReleasedKept(Warning, bool),
    /// Nothing is owed for the content, which is gone.
    Abandoned(Left),
}

impl Answer {
    /// What users are told at once.
    pub fn warning(&self) -> Option<&Warning> {
        match self {
            Self::Found { warning, .. } | Self::Searched(warning) => warning.as_ref(),
            Self::Refused(_, refusal) => refusal.warning.as_ref(),
            Self::ReleasedKept(warning, _) => Some(warning),
            _ => None,
        }
    }
}

impl Progress {
    /// What has failed, or is done.
    pub fn operation(&self) -> Operation {
        self.failure.as_ref().map_or(self.first_operation, |failure| failure.operation)
    }

    /// Whether an answer of the driver is still to be recorded. The answer to a look may get lost.
    pub fn has_answer(&self) -> bool {
        self.is_answered || self.has_deleted || self.failure.is_some()
    }

    /// Whether the attempt decides by what it has read from the API, or only records a failure.
    pub fn keeps_changes(&self) -> bool {
        self.failure.is_some() || self.is_gone || self.is_others || self.named_elsewhere.is_some()
    }

    /// What an answer means.
    pub fn apply(&mut self, answer: Answer) {
        match answer {
            Answer::Nothing => {}
            Answer::Secret(place, secret) => self.secret = Some((place, secret)),
            Answer::VolumeTurn(volumes, held) => (self.volume_turn, self.held) = (Some(volumes), held),
            Answer::GaveWay(_, pause) => self.gives_way = Some(pause),
            Answer::SnapshotTurns(turns) => self.snapshot_turns = turns,
            Answer::Confirmed => self.is_confirmed = true,
            Answer::Gone => self.is_gone = true,
            Answer::Others => self.is_others = true,
            Answer::Listed => self.is_listed = true,
            Answer::CaughtUp => self.is_caught_up = true,
            Answer::End(end) => self.end = Some(end),
            Answer::Sought(named) => (self.is_sought, self.named_elsewhere) = (true, named),
            Answer::Owner(content, whose) => {
                self.owners.insert(content, whose);
            }
            Answer::Taken(found, _) => {
                (self.found, self.is_answered) = (Some(found), true);
                self.end_turn();
            }
            Answer::Found { found, .. } => {
                self.found = Some(found);
                self.end_turn();
            }
            Answer::Refused(failed, _) | Answer::Failed(failed) => self.failed(*failed),
            Answer::NotReady(failed, pause) => {
                self.pause = Some(pause);
                self.failed(*failed);
            }
            Answer::Saved { is_cut, is_ready } => {
                self.has_cut |= is_cut;
                self.has_become_ready |= is_ready;
            }
            Answer::Unmarked | Answer::Abandoned(_) => self.is_answered = false,
            Answer::Recorded => {
                if let Some(failure) = &mut self.failure {
                    failure.is_recorded = true;
                }
            }
            Answer::Unrecorded => self.is_unrecorded = true,
            Answer::SourceGone => {
                self.must_look_up = true;
                self.end_turn();
            }
            Answer::Cleared => self.is_cleared = true,
            Answer::Searched(_) | Answer::NotSearched => self.is_searched = true,
            Answer::Deleted => {
                self.has_deleted = true;
                self.snapshot_turns.clear();
            }
            Answer::Undeletable => self.snapshot_turns.clear(),
            Answer::ReleasedKept(_, is_gone) => self.is_gone |= is_gone,
        }
    }

    fn failed(&mut self, failed: Failed) {
        let Failed { failure, at, warning } = failed;
        (self.failure, self.failed_at, self.warning) = (Some(failure), Some(at), warning);
        self.end_turn();
        self.snapshot_turns.clear();
    }

    /// The call is over, or is not made.
    fn end_turn(&mut self) {
        self.volume_turn = None;
        self.held.clear();
    }
}
