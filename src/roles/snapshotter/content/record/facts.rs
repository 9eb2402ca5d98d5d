//! What a content says of itself, in the words of snapshotter spec 0. Pure.

use crate::roles::snapshotter::names;

use super::kind::{Class, Content};

/// What becomes of the snapshot when the content is deleted.
const DELETE: &str = "Delete";

/// Whether the driver was called for it, and its final answer is not recorded (`mark`).
pub fn has_mark<K: Content>(content: &K) -> bool {
    content.meta().annotation(K::NAMES.mark).is_some()
}

/// Whether our request stands on it.
pub fn has_intent<K: Content>(content: &K) -> bool {
    content.meta().annotation(names::ANNOTATION_SNAPSHOTTING).is_some()
}

/// Whether the object of its user is being deleted (`bdel`).
pub fn has_lost_owner<K: Content>(content: &K) -> bool {
    content.meta().annotation(K::NAMES.lost).is_some()
}

/// Whether it stays until the role has released it (`fin`).
pub fn is_protected<K: Content>(content: &K) -> bool {
    content.meta().has_finalizer(K::NAMES.finalizer)
}

/// Whether it is being deleted (`dt`).
pub fn is_deleting<K: Content>(content: &K) -> bool {
    content.meta().deletion_timestamp.is_some()
}

/// Whether volumes can be made from it.
pub fn is_ready<K: Content>(content: &K) -> bool {
    content.said().is_some_and(|said| said.ready == Some(true))
}

/// Whether it belongs to no object of a user.
pub fn is_unbound<K: Content>(content: &K) -> bool {
    content.owner().uid.is_empty()
}

/// The driver's id of the group that it was taken in, as its status says.
pub fn group_handle<K: Content>(content: &K) -> Option<&str> {
    filled(content.group_handle())
}

/// The driver's id, as its status says.
pub fn stored_handle<K: Content>(content: &K) -> Option<&str> {
    filled(content.stored_handle())
}

/// The driver's id of what was there before it.
pub fn given_handle<K: Content>(content: &K) -> Option<&str> {
    filled(content.given_handle())
}

/// The driver's id, wherever it is known from.
pub fn handle<K: Content>(content: &K) -> Option<&str> {
    stored_handle(content).or_else(|| given_handle(content))
}

/// Whether it is taken of volumes.
pub fn has_sources<K: Content>(content: &K) -> bool {
    !content.sources().is_empty() && content.sources().iter().all(|volume| !volume.is_empty())
}

/// Whether it is deleted at the driver, too.
pub fn is_policy_delete<K: Content>(content: &K) -> bool {
    content.policy() == DELETE
}

/// Whether the driver's snapshot is to be deleted with it. A member goes with its group, and `Retain` keeps all.
pub fn takes_snapshot_along<K: Content>(content: &K) -> bool {
    is_policy_delete(content) && group_handle(content).is_none() && !content.is_member()
}

/// Whether another finalizer than ours keeps it.
pub fn is_kept_by_others<K: Content>(content: &K) -> bool {
    content.meta().finalizers().iter().any(|held| held != K::NAMES.finalizer)
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// The class of a content.
#[derive(Debug, PartialEq)]
pub enum ClassView<'a, C> {
    /// The content names none.
    Unnamed,
    /// The cluster has none of this name.
    Missing(&'a str),
    /// It is not known, and why: the cluster does not have the kind, does not let us read it, or fails at it.
    Unread(&'a str, &'a str),
    /// Another driver's.
    Foreign(&'a C),
    /// Our driver's.
    Ours(&'a C),
}

impl<C> Clone for ClassView<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for ClassView<'_, C> {}

impl<'a, C: Class> ClassView<'a, C> {
    /// The class that `content` names, where the cache has `class` under that name.
    pub fn of(content: &'a impl Content<Class = C>, class: Option<&'a C>, driver: &str) -> Self {
        match (filled(content.class_name()), class) {
            (None, _) => Self::Unnamed,
            (Some(name), None) => Self::Missing(name),
            (Some(_), Some(class)) if class.driver() == driver => Self::Ours(class),
            (Some(_), Some(class)) => Self::Foreign(class),
        }
    }
}
