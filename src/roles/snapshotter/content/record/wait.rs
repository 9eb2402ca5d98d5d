//! What a content waits for, and the words for people. Pure.

use std::time::Duration;

use crate::roles::snapshotter::names::{ANNOTATION_CONTENT_UID, ANNOTATION_SNAPSHOTTING};

use super::kind::Content;

/// What a content waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// The driver: it has just said that the snapshot is not ready.
    NotReady,
    /// The end of the pause before the next look.
    NotDue(Duration),
    /// The snapshot-controller fills the status of a member of a group.
    Member,
    /// It is being deleted, and its `VolumeSnapshot` is not.
    Snapshot,
    /// It is being deleted without our finalizer: nothing would hold it while the driver is called.
    Unprotected,
    /// Its class is of this other driver.
    ForeignClass(String),
    /// It is a copy of another content.
    Copied,
    /// The driver's snapshot with this id was taken before the content was made, and the content bore another writer's mark.
    Earlier(String),
}

impl Wait {
    /// Whether the content is, or may be, a copy.
    pub fn is_for_copy(&self) -> bool {
        matches!(self, Self::Copied | Self::Earlier(_))
    }

    /// What people are told. `driver` is ours.
    pub fn says<K: Content>(&self, driver: &str) -> String {
        let (kind, mark) = (K::KIND, K::NAMES.mark);
        match self {
            Self::NotReady | Self::NotDue(_) => {
                "the snapshot is cut, and the driver has not made it ready to use yet".to_owned()
            }
            Self::Member => {
                "the snapshot-controller has not filled the status of this snapshot of a group yet".to_owned()
            }
            Self::Snapshot => format!(
                "it is being deleted, and waits until its {} is deleted, because that still needs it",
                K::NAMES.owner
            ),
            Self::Unprotected => {
                "it is being deleted without the finalizer of this driver's snapshotter, so that no snapshot is taken"
                    .to_owned()
            }
            Self::ForeignClass(other) => {
                format!(
                    "its class is of driver {other}, and not of {driver}: correct the name of the class in its spec"
                )
            }
            Self::Copied => format!(
                "it is a copy: an annotation on it was written for another {kind}, in this cluster or in another one, whose snapshot may \
                 be in use. Nothing is taken or deleted for it. If it is to be taken as a new one, remove the annotations {mark}, \
                 {ANNOTATION_SNAPSHOTTING} and {ANNOTATION_CONTENT_UID}, as far as it has them; else delete it, which leaves the storage \
                 as it is"
            ),
            Self::Earlier(handle) => format!(
                "another program had marked it as begun, and the driver has the {word} {handle} for it, which was taken before this {kind} \
                 was made: it may be a copy, and the {word} somebody else's. It is neither taken over nor deleted. If this one is to have \
                 it, remove the annotations {mark} and {ANNOTATION_SNAPSHOTTING}; else delete it, which leaves the storage as it is",
                word = K::NAMES.word,
            ),
        }
    }
}
