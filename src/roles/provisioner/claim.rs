//! A claim, parsed once: no other code reads its annotations. Pure.

use std::fmt;
use std::sync::Arc;

use crate::cluster::{ObjectName, PersistentVolumeClaim};

/// The key of a claim's work. It has the uid, because another claim may get the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimKey {
    /// The claim's uid, which is part of its volume's name.
    pub uid: Arc<str>,
    /// The claim's namespace and name.
    pub name: ObjectName,
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl ClaimKey {
    /// The key of a claim.
    pub fn of(object: &PersistentVolumeClaim) -> Self {
        Self { uid: (*object.metadata.uid).into(), name: ObjectName::of(object) }
    }
}

/// Which provisioner the claim names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Our driver, also where Kubernetes has handed a claim of an in-tree plugin to it (migration spec 10, row 5).
    Us,
    /// Another provisioner, or none yet.
    Others,
}

/// What the provisioner reads of a claim.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The key of the work.
    pub key: ClaimKey,
    /// The API's object.
    pub object: Arc<PersistentVolumeClaim>,
    /// Which provisioner it names.
    pub owner: Owner,
    /// The class that it names; the deprecated annotation takes precedence.
    pub class: Option<String>,
    /// The node that the scheduler has selected.
    pub selected_node: Option<String>,
    /// The PersistentVolume that it is bound to, or that it requests.
    pub volume_name: Option<String>,
    /// It is being deleted.
    pub deleting: bool,
}

impl Claim {
    /// Parses the API's object.
    pub fn parse(object: Arc<PersistentVolumeClaim>, driver: &str) -> Self {
        let metadata = &object.metadata;
        let filled = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        Self {
            key: ClaimKey::of(&object),
            owner: owner_of(&object, driver),
            class: filled(object.class_name()),
            selected_node: filled(object.selected_node()),
            volume_name: filled(object.spec.volume_name.as_deref()),
            deleting: metadata.deletion_timestamp.is_some(),
            object,
        }
    }
}

/// Which provisioner a claim names.
pub fn owner_of(object: &PersistentVolumeClaim, driver: &str) -> Owner {
    let is_ours = object.provisioner() == Some(driver) || object.migrated_to() == Some(driver);
    if is_ours { Owner::Us } else { Owner::Others }
}
