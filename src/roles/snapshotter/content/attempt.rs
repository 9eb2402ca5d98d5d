//! What one attempt at a content knows besides the caches, and what each step's outcome means for it. Pure.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use crate::cluster::SecretRef;
use crate::csi::SnapshotLock;
use crate::roles::kit::{HeldLocks, Secret};

use super::error::ContentError;
use super::found::Found;
use super::needed::Ownership;

pub use super::record::operation::Operation;

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

/// Why the operation has failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What failed.
    pub operation: Operation,
    /// Why.
    pub error: ContentError,
    /// Whether the driver says that no snapshot exists, to just what the content records as asked.
    pub is_final: bool,
    /// Whether the status says it, or need not.
    pub is_recorded: bool,
}

/// What one attempt has learnt.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct Progress {
    /// The secret that was read, and from where.
    pub secret: Option<(SecretRef, Secret)>,
    /// The source volumes whose turns the attempt has, in their order.
    pub volume_turn: Option<Vec<String>>,
    /// The places in the lines of these volumes, held until the call is over: the next content that takes a snapshot of one of them comes
    /// behind whoever waits for the volume by then.
    pub lines: HeldLocks,
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
    /// How the content ended, where the API's history was read.
    pub end: Option<ContentEnd>,
    /// The contents of all nodes were read.
    pub is_sought: bool,
    /// Of them one that names the snapshot, by kind and name, and is not in the cache of this node.
    pub named_elsewhere: Option<String>,
    /// Whose the `VolumeSnapshots` are of contents that name snapshots of the group, by the uid of the content.
    pub owners: BTreeMap<String, Ownership>,
    /// The snapshot exists.
    pub found: Option<Found>,
    /// What has failed. The attempt only records it, and ends.
    pub failure: Option<Failure>,
    /// `CreateSnapshot` cannot say whether the snapshot is ready: its source volume is gone.
    pub must_look_up: bool,
    /// The status no longer offers the deleted snapshot.
    pub is_cleared: bool,
    /// The driver was asked for snapshots that may be left over.
    pub is_searched: bool,
}

impl Progress {
    /// The call is over, or is not made.
    fn end_turn(&mut self) {
        self.volume_turn = None;
        self.lines.release();
    }
}

/// What a step has brought.
#[derive(Debug)]
pub enum Done {
    /// Nothing that the attempt must know.
    Nothing,
    /// The secret.
    Secret(SecretRef, Secret),
    /// It is the attempt's turn to call the driver for the volumes, in whose lines it stands.
    VolumeTurn(Vec<String>, HeldLocks),
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
    /// How the content ended.
    End(ContentEnd),
    /// The contents of all nodes were read: this one of them names the snapshot, too.
    Sought(Option<String>),
    /// Whose the `VolumeSnapshot` of the content with this uid is.
    Owner(String, Ownership),
    /// The snapshot exists.
    Found(Found),
    /// The operation has failed.
    Failed(Failure),
    /// The answer is in the status.
    Saved {
        /// It had no handle before.
        is_cut: bool,
        /// It says that the snapshot is ready.
        is_ready: bool,
    },
    /// The error is in the status.
    Recorded,
    /// The driver no longer knows the source volume: ask for the snapshot itself.
    SourceGone,
    /// The status is cleared.
    Cleared,
    /// What may be left over is named.
    Searched,
    /// The driver has deleted the snapshot.
    Deleted,
}

impl Done {
    /// The attempt has failed: it records why, and ends. The mark of an earlier call stays.
    pub fn failed(operation: Operation, error: ContentError) -> Self {
        Self::Failed(Failure { operation, error, is_final: false, is_recorded: false })
    }
}

/// One attempt.
#[derive(Debug)]
pub struct State {
    /// The content's uid.
    pub uid: String,
    /// When the attempt began, by the wall clock.
    pub wall: Timestamp,
    /// The same moment, for pauses.
    pub started: Instant,
    /// Whether a status without a handle has got one.
    pub has_cut: bool,
    /// Whether a status has become ready.
    pub has_become_ready: bool,
    /// Whether the driver has deleted the snapshot in this attempt.
    pub has_deleted: bool,
    /// What it has learnt.
    pub progress: Progress,
}

impl State {
    /// An attempt begins.
    pub fn new(uid: String, (wall, started): (Timestamp, Instant), found: Option<Found>) -> Self {
        let progress = Progress { found, ..Progress::default() };
        Self { uid, wall, started, has_cut: false, has_become_ready: false, has_deleted: false, progress }
    }

    /// Whether the driver has given an answer that is still to be recorded. `is_unanswered`: the mark of the call stands. What a look
    /// has found may get lost.
    pub fn has_answer(&self, is_unanswered: bool) -> bool {
        let has_cut = self.progress.found.is_some() && is_unanswered;
        has_cut || self.has_deleted || self.progress.failure.is_some()
    }

    /// What a step's outcome means.
    pub fn apply(&mut self, done: Done) {
        let progress = &mut self.progress;
        match done {
            Done::Nothing => {}
            Done::Secret(place, secret) => progress.secret = Some((place, secret)),
            Done::VolumeTurn(volumes, lines) => (progress.volume_turn, progress.lines) = (Some(volumes), lines),
            Done::SnapshotTurns(turns) => progress.snapshot_turns = turns,
            Done::Confirmed => progress.is_confirmed = true,
            Done::Gone => progress.is_gone = true,
            Done::Others => progress.is_others = true,
            Done::Listed => progress.is_listed = true,
            Done::End(end) => progress.end = Some(end),
            Done::Sought(named) => (progress.is_sought, progress.named_elsewhere) = (true, named),
            Done::Owner(content, whose) => {
                progress.owners.insert(content, whose);
            }
            // The turns are over with the call.
            Done::Found(found) => {
                progress.found = Some(found);
                progress.end_turn();
            }
            Done::Failed(failure) => {
                progress.failure = Some(failure);
                progress.end_turn();
                progress.snapshot_turns.clear();
            }
            Done::Saved { is_cut, is_ready } => {
                self.has_cut |= is_cut;
                self.has_become_ready |= is_ready;
            }
            Done::Recorded => {
                if let Some(failure) = &mut progress.failure {
                    failure.is_recorded = true;
                }
            }
            Done::SourceGone => {
                progress.must_look_up = true;
                progress.end_turn();
            }
            Done::Cleared => progress.is_cleared = true,
            Done::Searched => progress.is_searched = true,
            Done::Deleted => {
                self.has_deleted = true;
                progress.snapshot_turns.clear();
            }
        }
    }
}
