//! Why a claim's source cannot be used, what the claim waits for, and what that means for the claim. Pure.

use thiserror::Error;

use crate::cluster::quantity::QuantityError;
use crate::roles::provisioner::names::ANNOTATION_ALLOW_MODE_CHANGE;

use super::SNAPSHOT_GROUP;
use crate::roles::provisioner::finality::Finality;

/// The object whose change would let the claim go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// The claim itself, or its class.
    Claim,
    /// The snapshot.
    Snapshot,
    /// The snapshot's content, which is watched only where the snapshotter is hosted, too.
    Content,
    /// The claim that is cloned.
    Source,
    /// The source's volume: its changes wake no claims that are created from it.
    Volume,
    /// A grant in the source's namespace. Grants are not watched.
    Grant,
}

impl WaitsFor {
    /// Whether a change there wakes the claim. Otherwise the claim has to look again by itself.
    pub fn wakes(self) -> bool {
        match self {
            Self::Claim | Self::Snapshot | Self::Source => true,
            Self::Content | Self::Volume | Self::Grant => false,
        }
    }
}

/// Why the source cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{fault}")]
pub struct SourceError {
    // Boxed: an error must not make every answer large.
    pub(super) fault: Box<SourceFault>,
    pub(super) waits_for: WaitsFor,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SourceFault {
    /// It has no name.
    #[error("the data source of kind {0} has no name")]
    NoName(String),
    /// It is a snapshot of the core group.
    #[error("the data source VolumeSnapshot \"{0}\" needs apiGroup {SNAPSHOT_GROUP}")]
    WrongGroup(String),
    /// It is in another namespace, which the configuration does not allow.
    #[error(
        "dataSourceRef names namespace \"{0}\", but data sources of other namespaces are disabled: set crossNamespaceSources, \
         or use a source of the claim's namespace"
    )]
    CrossNamespaceOff(String),
    /// It is in another namespace, which has not granted it.
    #[error(
        "access to {kind} {namespace}/{name} is denied: no ReferenceGrant in namespace {namespace} allows \
         PersistentVolumeClaims of namespace {from} to refer to it"
    )]
    NotGranted {
        /// The source's kind.
        kind: String,
        /// The source's namespace.
        namespace: String,
        /// The source's name.
        name: String,
        /// The claim's namespace.
        from: String,
    },
    /// The source, or an object to which it leads, is not as it must be.
    // The first words are those of external-provisioner.
    #[error("error getting handle for DataSource Type {kind} by Name {name}: {object} {problem}")]
    Object {
        /// The source's kind.
        kind: &'static str,
        /// The source's name.
        name: String,
        /// The object that is at fault, by kind and name.
        object: String,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// What is wrong with a source, or with an object to which it leads.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    /// It does not exist.
    #[error("not found")]
    Missing,
    /// It is being deleted.
    #[error("is being deleted: a new volume can't be made from it any more")]
    Deleting,
    /// A field is not filled yet.
    #[error("has no {0} yet")]
    Lacks(&'static str),
    /// A field has a wrong value.
    #[error("has {field} {found}: expected {expected}")]
    Differs {
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// The expected value.
        expected: String,
    },
    /// The claim requests less than the source's size.
    #[error("has {size} bytes ({field}), and the claim requests only {requested}: request at least as much")]
    TooLarge {
        /// The source's size.
        size: i64,
        /// The field that has the size.
        field: &'static str,
        /// What the claim requests.
        requested: i64,
    },
    /// Its size cannot be read.
    #[error("has an unreadable {field}: {error}")]
    Size {
        /// The field.
        field: &'static str,
        /// Why.
        error: QuantityError,
    },
    /// The volume mode would change.
    #[error(
        "was taken from a volume of mode {from}, and the claim wants {to}: that is only allowed with the annotation \
         {ANNOTATION_ALLOW_MODE_CHANGE}: \"true\" on it"
    )]
    ModeChange {
        /// The source's mode.
        from: String,
        /// The claim's mode.
        to: String,
    },
}

impl SourceError {
    /// What this means for the claim. A mistake in the claim is final. Anything else may change, and the driver was not
    /// called.
    pub fn finality(&self) -> Finality {
        match &*self.fault {
            SourceFault::NoName(_) | SourceFault::WrongGroup(_) | SourceFault::CrossNamespaceOff(_) => {
                Finality::Finished
            }
            SourceFault::NotGranted { .. } | SourceFault::Object { .. } => Finality::NoChange,
        }
    }

    /// The object whose change would let the claim go on.
    pub fn waits_for(&self) -> WaitsFor {
        self.waits_for
    }

    /// The label for metrics.
    pub fn label(&self) -> &'static str {
        "DataSource"
    }
}
