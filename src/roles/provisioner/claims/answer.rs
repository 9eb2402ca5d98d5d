//! What a step of an attempt at a claim has brought. Pure.

use crate::cluster::{
    PersistentVolume, PersistentVolumeClaim, ReferenceGrant, SmolStr, StorageClass, VolumeAttributesClass,
    VolumeSnapshot, VolumeSnapshotContent,
};
use crate::csi::{SnapshotLock, VolumeLock};
use crate::roles::kit::Secret;
use crate::roles::kit::telling::Labels;

use super::decide::Ignored;
use super::error::{AttemptError, ClaimReason};
use super::transition::Change;
use super::view::Evidence;
use crate::roles::provisioner::claim::Claim;

/// How an attempt has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The volume exists.
    Provisioned {
        /// The cache shows it.
        is_shown: bool,
        /// So many claims are being provisioned that the writes of their Events would delay them.
        is_burst: bool,
    },
    /// There is nothing to do.
    Ignored(Ignored),
}

/// The outcome of a step.
#[derive(Debug)]
pub struct Answer {
    /// The claim as it was when the step began. `None`: it was gone.
    pub claim: Option<Claim>,
    /// The name of its volume.
    pub volume_name: Option<String>,
    /// What has happened.
    pub happened: Happened,
}

/// What has happened in a step.
#[derive(Debug)]
pub enum Happened {
    /// Nothing that the next view does not show.
    Nothing,
    /// The claim was read. `gone`: the API does not have it.
    ClaimRead {
        /// Whether the API does not have it.
        gone: bool,
    },
    /// A change of the claim's phase.
    Changed(Change),
    /// The request is left alone, because nothing proves that no PersistentVolume was stored for it.
    LeftOver,
    /// The attempt has failed, and the phase of the claim changes, if this says so.
    Failed(Option<Change>, AttemptError),
    /// The journal has confirmed the request.
    Recorded,
    /// The journal was told that the volume may exist whatever error the driver returns.
    DoubtRecorded,
    /// It is the attempt's turn to restore the snapshot.
    Turn(SnapshotLock),
    /// The driver was called.
    Answered {
        /// An Event says that the volume is being created.
        told: bool,
        /// What follows.
        change: Option<Change>,
        /// Why the attempt has failed.
        failure: Option<AttemptError>,
    },
    /// An object behind the content source was read.
    Source(SourceRead),
    /// The class was read, which the cache does not have.
    Class(Option<Box<StorageClass>>),
    /// The class of attributes was read.
    AttributesClass(Box<VolumeAttributesClass>),
    /// The secret was read.
    Secret(Secret),
    /// There is no secret, and the driver is called without. `proves_nothing`: the driver may refuse, without the secret, a volume
    /// that it has created with the secret.
    NoSecret {
        /// Whether no refusal is final.
        proves_nothing: bool,
    },
    /// The PersistentVolume of the volume's name that the API has, and the change that follows.
    Confirmed(Option<Box<PersistentVolume>>, Option<Change>),
    /// No other PersistentVolume has the volume.
    Checked,
    /// PersistentVolumes were listed.
    Listed,
    /// The PersistentVolume of this name, to which the claim is bound, was read. Whether it has the volume.
    Bound(String, bool),
    /// The volume is left to the PersistentVolume of this name.
    Abandoned {
        /// The driver's id of the volume.
        volume_id: String,
        /// The other PersistentVolume.
        other: String,
        /// Whether the claim no longer wants the volume.
        is_unwanted: bool,
    },
    /// The name of the PersistentVolume is taken.
    Taken(AttemptError),
    /// A write to the claim was forbidden in this version of it.
    Refused(Option<SmolStr>, AttemptError),
    /// What the API's history says of the request.
    History(Evidence),
    /// The attempt has come to its end.
    Ended(Ended),
    /// The failure is handled. Its report, if the claim still wants the volume.
    FailureNoted(Option<FailureTold>),
}

/// The report of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureTold {
    /// The labels of its figure: the class, and the kind of the source.
    pub labels: Labels,
    /// The text by which it differs from a repeated one, if an Event tells it.
    pub news: Option<String>,
}

/// What was read, or written, of the content source.
#[derive(Debug)]
pub enum SourceRead {
    /// The grants in its namespace.
    Grants(Vec<ReferenceGrant>),
    /// The snapshot.
    Snapshot(Option<Box<VolumeSnapshot>>),
    /// The content of the snapshot.
    Content(Option<Box<VolumeSnapshotContent>>),
    /// The source claim.
    Claim(Option<Box<PersistentVolumeClaim>>),
    /// The volume of the source claim.
    Volume(Option<Box<PersistentVolume>>),
    /// The source is locked. `is_old`: what was read of it may be old.
    Locked {
        /// The lock.
        lock: VolumeLock,
        /// Whether it must be read again.
        is_old: bool,
    },
    /// It has changed since it was read.
    Outdated,
    /// It is protected, or needs no protection.
    Protected,
    /// The daemon may not protect it, and it is used all the same.
    Unprotected(AttemptError),
}

impl From<Change> for Happened {
    fn from(change: Change) -> Self {
        Self::Changed(change)
    }
}

impl From<SourceRead> for Happened {
    fn from(read: SourceRead) -> Self {
        Self::Source(read)
    }
}

impl Happened {
    /// Why the attempt has failed, if this says so before the attempt ends.
    pub fn failure(&self) -> Option<&AttemptError> {
        match self {
            Self::Failed(_, failure) | Self::Changed(Change::Hopeless { failure, .. }) => Some(failure),
            _ => None,
        }
    }
}

/// The error of a claim whose volume another PersistentVolume has.
pub fn anothers(volume_id: &str, other: &str) -> AttemptError {
    ClaimReason::Anothers { handle: volume_id.to_owned(), other: other.to_owned() }.into()
}
