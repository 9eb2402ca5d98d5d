//! What tells the contents of independent snapshots from those of groups: everything else about them is the same. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cluster::{Cached, ObjectReference, SnapshotError};
use crate::roles::snapshotter::content::record::Operation;

use super::found::Found;

/// The names and words that a kind of contents has for itself.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// What keeps it until the role has released it (`fin`).
    pub finalizer: &'static str,
    /// The annotation that says that the driver was called (`mark`).
    pub mark: &'static str,
    /// The annotation that says that its owner is being deleted (`bdel`).
    pub lost: &'static str,
    /// The annotations that name the secret of the calls that change something.
    pub secret: (&'static str, &'static str),
    /// The member of the status with the driver's id.
    pub handle: &'static str,
    /// The kind of the object that users make.
    pub owner: &'static str,
    /// The API group of that kind.
    pub group: &'static str,
    /// Whether it is of several volumes.
    pub is_group: bool,
    /// What people call it: the texts are made of this.
    pub word: &'static str,
    /// The same of the content in the texts of look-ups.
    pub looked_up: &'static str,
    /// The resource of its classes.
    pub classes: &'static str,
    /// What begins the reasons of Events.
    pub reason: &'static str,
    /// What the driver is told of the objects' names on request: the owner's name and namespace, and the content's name.
    pub metadata: [&'static str; 3],
    /// The call that takes it.
    pub call: &'static str,
    /// The key of the configuration that says how many digits of the owner's uid its name has.
    pub name_length: &'static str,
    /// What the driver must offer.
    pub capability: &'static str,
    /// The labels of the operations in metrics: create, ready, delete.
    pub operations: [&'static str; 3],
}

impl Names {
    /// The word for metrics.
    pub fn operation(&self, operation: Operation) -> &'static str {
        let [create, ready, delete] = self.operations;
        match operation {
            Operation::Create => create,
            Operation::Ready => ready,
            Operation::Delete => delete,
        }
    }
}

/// What a status says that all contents say.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// Whether volumes can be made from it.
    pub ready: Option<bool>,
    /// What went wrong last.
    pub error: Option<&'a SnapshotError>,
}

/// A content: a snapshot, or a group of them, as its driver sees it.
pub trait Content: Cached {
    /// How it is taken.
    type Class: Class;

    /// Names and words.
    const NAMES: Names;
    /// Whether one that is cut is asked for by its id, so that its request is not needed any more.
    const IS_ASKED_BY_ID: bool;

    /// The driver that holds it.
    fn driver(&self) -> &str;
    /// The object that users made, to which it belongs.
    fn owner(&self) -> &ObjectReference;
    /// What becomes of it at the driver when the object is deleted.
    fn policy(&self) -> &str;
    /// The name of its class.
    fn class_name(&self) -> Option<&str>;
    /// The driver's ids of the volumes that it is taken of.
    fn sources(&self) -> &[String];
    /// The driver's id, if it was there before the object.
    fn given_handle(&self) -> Option<&str>;
    /// The driver's id, as the status says.
    fn stored_handle(&self) -> Option<&str>;
    /// What else the status says; `None`: there is none.
    fn said(&self) -> Option<Said<'_>>;

    /// Whether the snapshot-controller made it for a snapshot of a group.
    fn is_member(&self) -> bool {
        false
    }

    /// The driver's id of the group that it was taken in.
    fn group_handle(&self) -> Option<&str> {
        None
    }

    /// The driver's ids of the snapshots that it consists of.
    fn members(&self) -> Vec<String> {
        Vec::new()
    }

    /// Those of an answer of the driver that the status could not list.
    fn unlisted_members(&self) -> Option<Vec<String>> {
        None
    }

    /// What the status is to say of an answer besides handle and readiness, as far as it does not.
    fn learnt(&self, found: &Found) -> Vec<(&'static str, Value)>;

    /// What the status says besides handle and readiness, and no longer says once it is deleted.
    fn perishable(&self) -> Vec<&'static str>;
}

/// A content by kind and name.
pub fn described<K: Content>(content: &K) -> String {
    format!("{} {}", K::KIND, content.meta().name)
}

/// A class: how contents are taken.
pub trait Class: Cached {
    /// The driver that takes them.
    fn driver(&self) -> &str;
    /// What the driver wants to be told, and which Secrets it needs.
    fn parameters(&self) -> &BTreeMap<String, String>;
}
