//! The Secret of a volume: a class's templates, resolved for one claim, and the secret of a deletion. Pure: only
//! references, never a secret's text.
//!
//! | template | may use | must become |
//! |---|---|---|
//! | namespace | `${pv.name}` `${pvc.namespace}` | a namespace's name |
//! | name | these and `${pvc.name}` `${pvc.annotations['<key>']}` | an object's name |
//!
//! The namespace's template takes no value that a claim's author chooses freely; otherwise a claim could name any
//! Secret that the daemon may read.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::cluster::{ClaimRef, PackedMap, PersistentVolume};
use crate::roles::kit::templates::{expand, is_label, is_subdomain};
use crate::roles::provisioner::names::{
    ANNOTATION_DELETION_SECRET_NAME, ANNOTATION_DELETION_SECRET_NAMESPACE, ANNOTATION_PROVISIONED_BY,
};

use super::{ParameterError, SecretUse, Template, template};
use crate::roles::provisioner::finality::Finality;

/// The namespace and the name of a Secret.
pub use crate::cluster::SecretRef as SecretReference;

/// Why a Secret cannot be named.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SecretError {
    /// The class' keys are wrong.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// A template uses a value that does not exist.
    #[error(
        "the {secret} secret's {field} template \"{template}\" has unknown tokens: {}; known are {}",
        quoted(.unknown), known_tokens(field)
    )]
    UnknownTokens {
        /// The secret's use.
        secret: &'static str,
        /// `name` or `namespace`.
        field: &'static str,
        /// The template.
        template: String,
        /// The missing value.
        unknown: BTreeSet<String>,
    },
    /// A template's result is no valid name.
    #[error(
        "the {secret} secret's {field} \"{value}\" (from the template \"{template}\") is not valid: {}",
        rule(field)
    )]
    InvalidName {
        /// The secret's use.
        secret: &'static str,
        /// `name` or `namespace`.
        field: &'static str,
        /// The template.
        template: String,
        /// Its result.
        value: String,
    },
    /// The volume's annotations hold no valid name.
    #[error(
        "the {field} \"{value}\" of the volume's deletion secret, from its annotations, is not valid: {}",
        rule(field)
    )]
    InvalidAnnotation {
        /// `name` or `namespace`.
        field: &'static str,
        /// The annotation's value.
        value: String,
    },
    /// The volume's annotations, or its class and `claimRef`, name a namespace that the configuration does not allow.
    #[error(
        "the volume's deletion secret {namespace}/{name} is in a namespace that deletionSecretNamespaces does not allow: \
         allow it, or correct the volume's annotations"
    )]
    ForbiddenNamespace {
        /// The secret's namespace.
        namespace: String,
        /// The secret's name.
        name: String,
    },
}

fn quoted(all: &BTreeSet<String>) -> String {
    all.iter().map(|token| format!("\"{token}\"")).collect::<Vec<_>>().join(", ")
}

fn known_tokens(field: &str) -> &'static str {
    if field == NAMESPACE {
        "${pv.name} and ${pvc.namespace}"
    } else {
        "${pv.name}, ${pvc.name}, ${pvc.namespace} and ${pvc.annotations['key']} for each annotation that the claim has"
    }
}

fn rule(field: &str) -> &'static str {
    if field == NAMESPACE {
        "at most 63 of a-z, 0-9 and -, beginning and ending with a letter or a digit"
    } else {
        "at most 253 of a-z, 0-9, - and ., each part between dots beginning and ending with a letter or a digit"
    }
}

const NAMESPACE: &str = "namespace";
const NAME: &str = "name";

impl SecretError {
    /// The driver was not called: an edit of the claim or of the class may bring what is missing.
    pub fn finality(&self) -> Finality {
        Finality::NoChange
    }

    /// The label for metrics.
    pub fn label(&self) -> &'static str {
        "SecretReference"
    }
}

/// The volume and the claim whose secret it is.
#[derive(Debug, Clone, Copy)]
pub struct SecretOwner<'a> {
    /// The PersistentVolume's name.
    pub volume: &'a str,
    /// The claim's namespace.
    pub namespace: &'a str,
    /// The claim's name.
    pub claim: &'a str,
    /// The claim's annotations. None, if only a volume's `claimRef` is left of the claim.
    pub annotations: Option<&'a PackedMap>,
}

impl<'a> SecretOwner<'a> {
    fn of_claim_ref(volume: &'a str, claim: &'a ClaimRef) -> Self {
        Self { volume, namespace: &claim.namespace, claim: &claim.name, annotations: None }
    }

    fn token(&self, field: &str, token: &str) -> Option<&'a str> {
        match token {
            "pv.name" => Some(self.volume),
            "pvc.namespace" => Some(self.namespace),
            "pvc.name" if field == NAME => Some(self.claim),
            _ if field == NAME => {
                let key = token.strip_prefix("pvc.annotations['")?.strip_suffix("']")?;
                self.annotations?.get(key)
            }
            _ => None,
        }
    }
}

/// The secret that the class names for `owner`. `None`: the class names none.
pub fn resolve(
    parameters: &BTreeMap<String, String>,
    secret: SecretUse,
    owner: SecretOwner<'_>,
) -> Result<Option<SecretReference>, SecretError> {
    let Some(Template { namespace, name }) = template(parameters, secret)? else { return Ok(None) };
    let namespace = fill(secret, NAMESPACE, namespace, owner)?;
    let name = fill(secret, NAME, name, owner)?;
    Ok(Some(SecretReference { name, namespace }))
}

fn fill(secret: SecretUse, field: &'static str, template: &str, owner: SecretOwner<'_>) -> Result<String, SecretError> {
    let mut unknown = BTreeSet::new();
    let value = expand(template, |token| {
        owner.token(field, token).unwrap_or_else(|| {
            unknown.insert(token.to_owned());
            ""
        })
    });
    let (secret, template) = (secret.label(), template.to_owned());
    if !unknown.is_empty() {
        return Err(SecretError::UnknownTokens { secret, field, template, unknown });
    }
    let is_valid = if field == NAMESPACE { is_label(&value) } else { is_subdomain(&value) };
    if is_valid { Ok(value) } else { Err(SecretError::InvalidName { secret, field, template, value }) }
}

/// The secret for a volume's deletion, and how certain it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeletionSecret {
    /// The volume's annotations or its class name it.
    At(SecretReference),
    /// None is needed.
    None,
    /// Our driver's provisioner created the volume before there were such annotations, and its class is gone, or names
    /// nobody. The Go sidecar then deletes without a secret.
    Unknown(&'static str),
}

/// Finds the secret for a volume's deletion: the annotations name it, or else the class does, while it exists.
/// `namespaces`: where the secret may be; if empty, anywhere.
///
/// A missing secret matters only if a provisioner of `driver` created the volume and may have used one. A volume that
/// people created names any class, most often one that never existed.
pub fn for_deletion(
    volume: &PersistentVolume,
    class: Option<&BTreeMap<String, String>>,
    namespaces: &[String],
    driver: &str,
) -> Result<DeletionSecret, SecretError> {
    let annotation = |key: &str| volume.metadata.annotation(key);
    let is_made_by_us = annotation(ANNOTATION_PROVISIONED_BY) == Some(driver);
    let missing = |why| if is_made_by_us { DeletionSecret::Unknown(why) } else { DeletionSecret::None };
    let noted = annotation(ANNOTATION_DELETION_SECRET_NAME).zip(annotation(ANNOTATION_DELETION_SECRET_NAMESPACE));
    if let Some((name, namespace)) = noted {
        // An editor left one of the two empty: they name no Secret.
        if name.is_empty() || namespace.is_empty() {
            return Ok(DeletionSecret::None);
        }
        for (field, value, is_valid) in [(NAMESPACE, namespace, is_label(namespace)), (NAME, name, is_subdomain(name))]
        {
            if !is_valid {
                return Err(SecretError::InvalidAnnotation { field, value: value.to_owned() });
            }
        }
        return allowed(SecretReference { name: name.to_owned(), namespace: namespace.to_owned() }, namespaces);
    }
    if volume.spec.storage_class_name.as_deref().is_none_or(str::is_empty) {
        return Ok(DeletionSecret::None);
    }
    let Some(parameters) = class else {
        return Ok(missing("it has no deletion annotations, and its storage class is gone"));
    };
    if template(parameters, SecretUse::Provisioner)?.is_none() {
        return Ok(DeletionSecret::None);
    }
    let Some(claim) = volume.spec.claim_ref.as_deref() else {
        return Ok(missing("it has no deletion annotations and no claimRef"));
    };
    let name = &volume.metadata.name;
    let found = resolve(parameters, SecretUse::Provisioner, SecretOwner::of_claim_ref(name, claim))?;
    found.map_or(Ok(DeletionSecret::None), |reference| allowed(reference, namespaces))
}

/// The secret, if it is in one of these namespaces; if there are none, anywhere. The rule also covers a class's
/// namespace, because a user who may edit the volume can remove its annotations and write another namespace into its
/// `claimRef`.
fn allowed(reference: SecretReference, namespaces: &[String]) -> Result<DeletionSecret, SecretError> {
    if namespaces.is_empty() || namespaces.contains(&reference.namespace) {
        return Ok(DeletionSecret::At(reference));
    }
    let SecretReference { name, namespace } = reference;
    Err(SecretError::ForbiddenNamespace { namespace, name })
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
