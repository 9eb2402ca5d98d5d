//! Why a claim's source can't be used, what it waits for, and how the claim stands. Pure.

use thiserror::Error;

use crate::cluster::quantity::QuantityError;
use crate::roles::provisioner::names::ANNOTATION_ALLOW_MODE_CHANGE;

use super::SNAPSHOT_GROUP;
use crate::roles::provisioner::claims::finality::Finality;

/// What a change to would let the claim go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// The claim itself, or its class.
    Claim,
    /// The snapshot.
    Snapshot,
    /// The snapshot's content: it is not watched.
    Content,
    /// The claim that is cloned.
    Source,
    /// The source's volume: its changes are not looked through for claims that are made from it.
    Volume,
    /// A grant in the source's namespace: they are not watched.
    Grant,
}

impl WaitsFor {
    /// Whether a change there wakes the claim. Where it does not, the claim has to look again by itself.
    pub fn wakes(self) -> bool {
        match self {
            Self::Claim | Self::Snapshot | Self::Source => true,
            Self::Content | Self::Volume | Self::Grant => false,
        }
    }
}

/// Why there is no content source.
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
    /// No name.
    #[error("the data source of kind {0} has no name")]
    NoName(String),
    /// A snapshot of the core group.
    #[error("the data source VolumeSnapshot \"{0}\" needs apiGroup {SNAPSHOT_GROUP}")]
    WrongGroup(String),
    /// Another namespace, which the configuration does not allow.
    #[error(
        "dataSourceRef names namespace \"{0}\", but data sources of other namespaces are disabled: set crossNamespaceSources, \
         or use a source of the claim's namespace"
    )]
    CrossNamespaceOff(String),
    /// Another namespace, which has not agreed.
    #[error(
        "access to {kind} {namespace}/{name} is denied: no ReferenceGrant in namespace {namespace} allows \
         PersistentVolumeClaims of namespace {from} to refer to it"
    )]
    NotGranted {
        /// What is referred to.
        kind: String,
        /// Where it is.
        namespace: String,
        /// Its name.
        name: String,
        /// Where the claim is.
        from: String,
    },
    /// A source, or what it points to, is not as it must be.
    // The first words are those of external-provisioner.
    #[error("error getting handle for DataSource Type {kind} by Name {name}: {object} {problem}")]
    Object {
        /// The source's kind.
        kind: &'static str,
        /// The source's name.
        name: String,
        /// What, by kind and name.
        object: String,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// What is wrong with a source, or with what it points to.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    /// It is not there.
    #[error("not found")]
    Missing,
    /// It is going.
    #[error("is being deleted: a new volume can't be made from it any more")]
    Deleting,
    /// A field has not been filled yet.
    #[error("has no {0} yet")]
    Lacks(&'static str),
    /// A field says something else than it must.
    #[error("has {field} {found}: expected {expected}")]
    Differs {
        /// Which field.
        field: &'static str,
        /// What it says.
        found: String,
        /// What it should say.
        expected: String,
    },
    /// The claim wants less than is there.
    #[error("has {size} bytes ({field}), and the claim requests only {requested}: request at least as much")]
    TooLarge {
        /// The source's size.
        size: i64,
        /// Where that is said.
        field: &'static str,
        /// What the claim requests.
        requested: i64,
    },
    /// Its size can't be read.
    #[error("has an unreadable {field}: {error}")]
    Size {
        /// Which field.
        field: &'static str,
        /// Why.
        error: QuantityError,
    },
    /// The mode would change.
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
    /// How the claim stands: a mistake in it is final; all else may come, and was not asked of the driver.
    pub fn finality(&self) -> Finality {
        match &*self.fault {
            SourceFault::NoName(_) | SourceFault::WrongGroup(_) | SourceFault::CrossNamespaceOff(_) => {
                Finality::Finished
            }
            SourceFault::NotGranted { .. } | SourceFault::Object { .. } => Finality::NoChange,
        }
    }

    /// What a change to would let the claim go on.
    pub fn waits_for(&self) -> WaitsFor {
        self.waits_for
    }

    /// A word for metrics.
    pub fn label(&self) -> &'static str {
        "DataSource"
    }
}
