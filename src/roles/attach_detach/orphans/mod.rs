//! Attachments whose volume nobody knows: its `PersistentVolume` is gone, and no name of a volume that is known leads to the attachment.

pub mod policy;
mod reconcile;

pub(super) use self::reconcile::Orphans;
