//! A claim, parsed once at the border: nobody re-reads its annotations later. Pure.

use std::fmt;
use std::sync::Arc;

use crate::cluster::{ObjectName, PersistentVolumeClaim};
/// What a claim's work is known by. The uid comes with it: a namesake is other work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimKey {
    /// The claim's uid: the name of its volume is made of it.
    pub uid: Arc<str>,
    /// Where the claim is.
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

/// Who is asked to provision a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Our driver.
    Us,
    /// An in-tree plugin, whose claims Kubernetes hands to our driver by CSI migration.
    InTree,
    /// Somebody else, or nobody yet.
    Others,
}

/// What the provisioner reads of a claim.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The key of the work.
    pub key: ClaimKey,
    /// The claim as the API has it.
    pub object: Arc<PersistentVolumeClaim>,
    /// Who is asked to provision it.
    pub owner: Owner,
    /// The class that it wants, the deprecated annotation first.
    pub class: Option<String>,
    /// The node that the scheduler has chosen.
    pub selected_node: Option<String>,
    /// The volume that it is bound to, or is to be.
    pub volume_name: Option<String>,
    /// Somebody wants it gone.
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

/// Who is asked to provision a claim.
pub fn owner_of(object: &PersistentVolumeClaim, driver: &str) -> Owner {
    if object.provisioner() == Some(driver) {
        Owner::Us
    } else if object.migrated_to() == Some(driver) {
        Owner::InTree
    } else {
        Owner::Others
    }
}
