//! A data source as an object of the API.

use std::sync::Arc;

use crate::cluster::{Meta, ObjectName, PersistentVolumeClaim, VolumeSnapshot};

use crate::roles::provisioner::sources::protection::SourceKind;
use crate::roles::provisioner::sources::source::bound_content;

/// A data source, as the cache or a read shows it.
#[derive(Debug, Clone)]
pub enum SourceObject {
    /// Another claim.
    Claim(Arc<PersistentVolumeClaim>),
    /// A snapshot.
    Snapshot(Arc<VolumeSnapshot>),
}

impl SourceObject {
    /// Its kind.
    pub fn kind(&self) -> SourceKind {
        match self {
            Self::Claim(_) => SourceKind::Claim,
            Self::Snapshot(_) => SourceKind::Snapshot,
        }
    }

    /// Its metadata.
    pub fn meta(&self) -> &Meta {
        match self {
            Self::Claim(claim) => &claim.metadata,
            Self::Snapshot(snapshot) => &snapshot.metadata,
        }
    }

    /// The volume or the content that it is bound to.
    pub fn bound(&self) -> Option<ObjectName> {
        let bound = match self {
            Self::Claim(claim) => claim.spec.volume_name.as_deref().filter(|name| !name.is_empty()),
            Self::Snapshot(snapshot) => bound_content(snapshot),
        };
        bound.map(ObjectName::cluster)
    }
}
