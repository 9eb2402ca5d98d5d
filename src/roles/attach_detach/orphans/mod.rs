//! Attachments of unknown volumes: the `PersistentVolume` is gone, and the attachment's name is that of no volume that the role knows.

pub mod policy;
mod reconcile;

pub(super) use self::reconcile::Orphans;
