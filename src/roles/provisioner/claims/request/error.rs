//! Why no request can be built for a claim, and the outcome of such an attempt. Pure.

use thiserror::Error;

use crate::cluster::quantity::QuantityError;

use crate::roles::provisioner::finality::Finality;
use crate::roles::provisioner::parameters::ParameterError;
use crate::roles::provisioner::parameters::secrets::SecretError;
use crate::translation::TranslationError;

/// Why no request can be built for a claim.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// No uid: no server sends that.
    #[error("the claim has no uid")]
    NoUid,
    /// The configuration makes a name that no object can have.
    #[error(
        "the volume's name would be \"{name}\", which no PersistentVolume can have: volumeNamePrefix \"{prefix}\" must not \
         be empty, and must be of a-z, 0-9, - and ., and volumeNameUuidLength must not be 0"
    )]
    VolumeName {
        /// The configured prefix.
        prefix: String,
        /// What it makes.
        name: String,
    },
    /// Another driver's class.
    #[error("StorageClass \"{class}\" belongs to provisioner {provisioner}, and not to {driver}")]
    ForeignClass {
        /// The class.
        class: String,
        /// Whose it is.
        provisioner: String,
        /// Our driver.
        driver: String,
    },
    /// The class belongs to the in-tree plugin that our driver has taken over, and cannot be translated (migration spec 10, row 6).
    #[error("failed to translate storage class")]
    Untranslatable(#[source] TranslationError),
    /// The driver lacks a capability that the claim needs.
    #[error("driver {driver} does not have the capability {capability}, which is needed to {reason}")]
    Capability {
        /// Our driver.
        driver: String,
        /// The capability, by its name in the specification.
        capability: &'static str,
        /// The purpose.
        reason: &'static str,
    },
    /// The claim has a selector, which can select only existing volumes.
    #[error(
        "spec.selector is set: a volume that is yet to be created can't be selected; remove it, or bind to an existing one"
    )]
    Selector,
    /// The size can't be read.
    #[error("spec.resources.requests.storage of the claim can't be used")]
    Size(#[source] QuantityError),
    /// The class's parameters are wrong.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// An access mode that CSI does not have.
    #[error(
        "access mode \"{0}\" is not supported: expected ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod"
    )]
    AccessMode(String),
    /// No mode.
    #[error("spec.accessModes is empty: at least one is needed")]
    NoAccessMode,
    /// The namespace or the name of a secret cannot be determined.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The `VolumeAttributesClass` does not exist.
    #[error("VolumeAttributesClass \"{0}\" not found: create it, or name another in spec.volumeAttributesClassName")]
    AttributesClassMissing(String),
    /// The `VolumeAttributesClass` is for another driver.
    #[error("VolumeAttributesClass \"{name}\" is for driver {found}: expected one for {driver}")]
    AttributesClassDriver {
        /// The `VolumeAttributesClass`.
        name: String,
        /// Whose it is.
        found: String,
        /// Our driver.
        driver: String,
    },
}

impl RequestError {
    /// The outcome of the attempt.
    pub fn finality(&self) -> Finality {
        match self {
            Self::Secret(error) => error.finality(),
            Self::AttributesClassMissing(_) => Finality::NoChange,
            _ => Finality::Finished,
        }
    }

    /// Whether the `VolumeAttributesClass` is the reason.
    pub fn is_of_attributes_class(&self) -> bool {
        matches!(self, Self::AttributesClassMissing(_) | Self::AttributesClassDriver { .. })
    }

    /// A word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoUid | Self::VolumeName { .. } => "VolumeName",
            Self::ForeignClass { .. } => "ForeignClass",
            Self::Untranslatable(_) => "Translation",
            Self::Capability { .. } => "Capability",
            Self::Selector => "Selector",
            Self::Size(_) => "Size",
            Self::Parameters(_) => "Parameters",
            Self::AccessMode(_) | Self::NoAccessMode => "AccessModes",
            Self::Secret(error) => error.label(),
            Self::AttributesClassMissing(_) | Self::AttributesClassDriver { .. } => "AttributesClass",
        }
    }
}
