//! The `CreateVolume` request, built from a claim and its class. Pure.
//!
//! A request that was sent stays the same until the driver's final answer. The driver knows a volume by its name: it would refuse
//! another request with the same name, or, which is worse, answer it with the volume of the first request.
//!
//! Without source and requirement, [`build`] checks everything that can be wrong with the claim and the class alone, before anything is
//! written for an invalid claim.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::cluster::{PackedMap, PersistentVolumeClaim, SmolStr, StorageClass, VolumeAttributesClass, quantity};
use crate::csi::capabilities::{Capabilities, ControllerRpc};
use crate::proto::volume_capability::access_mode::Mode;
use crate::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use crate::proto::{CapacityRange, CreateVolumeRequest, VolumeCapability};

use super::volume::{ClaimIdentity, VolumePlan};
use crate::roles::kit::templates::is_subdomain;
use crate::roles::provisioner::class::{ClassFault, csi_class, is_in_tree};
use crate::roles::provisioner::parameters::secrets::{self, SecretOwner, SecretReference};
use crate::roles::provisioner::parameters::{self, SecretUse};
use crate::roles::provisioner::sources::source::{ContentSource, Source};
use crate::roles::provisioner::topology::Requirement;

mod error;
mod modes;

pub use error::RequestError;

/// The rule for the names of volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRule {
    /// The text before the claim's uid.
    pub prefix: String,
    /// How many digits of the uid the name has, without dashes; `None`: the whole uid, with its dashes.
    pub uuid_length: Option<usize>,
}

impl NameRule {
    /// The name of the volume, and of its PersistentVolume, of the claim with this uid.
    pub fn volume_name(&self, uid: &str) -> Result<String, RequestError> {
        if uid.is_empty() {
            return Err(RequestError::NoUid);
        }
        let part = match self.uuid_length {
            Some(length) => uid.chars().filter(|c| *c != '-').take(length).collect(),
            None => uid.to_owned(),
        };
        let name = format!("{}-{part}", self.prefix);
        // Checked before the call: no PersistentVolume could be stored for a volume with an invalid name.
        if self.prefix.is_empty() || !is_subdomain(&name) {
            return Err(RequestError::VolumeName { prefix: self.prefix.clone(), name });
        }
        Ok(name)
    }

    /// Whether a volume of this name may have been created for the claim with this uid, whatever prefix and length the rule had then.
    /// Eight digits of a uid tell it from others.
    pub fn may_be_of(&self, name: &str, uid: &str) -> bool {
        let part = name.rsplit('-').next().unwrap_or_default();
        let tells = part.len() >= 8 || !part.is_empty() && self.uuid_length == Some(part.len());
        let begins = || uid.chars().filter(|c| *c != '-').zip(part.chars()).filter(|(own, named)| own == named).count();
        whole_uid(name) == Some(uid)
            || name.strip_prefix(&self.prefix).and_then(|rest| rest.strip_prefix('-')) == Some(uid)
            || tells && begins() == part.len()
    }
}

/// The uid with its dashes at the end of a volume's name, whatever is before it.
pub fn whole_uid(name: &str) -> Option<&str> {
    let (before, uid) = name.split_at_checked(name.len().checked_sub(36)?)?;
    let is_uid = uid.bytes().enumerate().all(|(n, byte)| match n {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    (is_uid && before.ends_with('-')).then_some(uid)
}

/// What is the same for every claim of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one switch of the configuration or of the driver")]
pub struct ProvisionRules {
    /// Our driver.
    pub driver: String,
    /// The names of volumes.
    pub names: NameRule,
    /// The driver has `SINGLE_NODE_MULTI_WRITER`.
    pub multi_writer: bool,
    /// The driver has `VOLUME_ACCESSIBILITY_CONSTRAINTS`, and the configuration does not disable topology.
    pub topology: bool,
    /// The file system for classes that name none; may be empty.
    pub default_fs_type: String,
    /// Whether requests contain the names of the claim and the volume.
    pub extra_create_metadata: bool,
    /// Whether a volume with only the mode `ReadOnlyMany` is marked as read-only.
    pub publish_readonly: bool,
    /// Whether a claim may name a `VolumeAttributesClass`: otherwise the name is ignored.
    pub attributes_classes: bool,
}

impl ProvisionRules {
    /// The `VolumeAttributesClass` that a claim names, if that counts.
    pub fn attributes_class<'a>(&self, claim: &'a PersistentVolumeClaim) -> Option<&'a str> {
        let named = claim.spec.volume_attributes_class_name.as_deref();
        named.filter(|name| self.attributes_classes && !name.is_empty())
    }
}

/// Everything that a request is built from.
#[derive(Debug, Clone)]
pub struct RequestInput<'a> {
    /// The claim.
    pub claim: &'a PersistentVolumeClaim,
    /// Its class.
    pub class: &'a StorageClass,
    /// The term's rules.
    pub rules: &'a ProvisionRules,
    /// The content source.
    pub source: Option<ContentSource>,
    /// The topology requirement.
    pub requirement: Option<Requirement>,
    /// The `VolumeAttributesClass` that the claim names, if it exists.
    pub attributes_class: Option<&'a VolumeAttributesClass>,
}

/// A `CreateVolume` request without the secrets' values. The journal saves it, and a later term sends the same request, byte by byte.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// The volume's name.
    pub volume_name: String,
    /// The driver's parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// The smallest allowed size.
    pub required_bytes: i64,
    /// One access mode of CSI for each of the claim's, in the claim's order.
    #[serde(with = "modes")]
    pub modes: Vec<Mode>,
    /// The content source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_source: Option<ContentSource>,
    /// The topology requirement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirement: Option<Requirement>,
    /// The parameters of the `VolumeAttributesClass`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mutable_parameters: BTreeMap<String, String>,
    /// The namespace and the name of the secret for the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretReference>,
    /// What the PersistentVolume needs besides the driver's answer.
    #[serde(rename = "persistentVolume")]
    pub plan: VolumePlan,
}

/// The driver's capabilities that a claim needs, each with the purpose.
pub fn needed_capabilities(
    rules: &ProvisionRules,
    claim: &PersistentVolumeClaim,
    source: &Source,
) -> Vec<(ControllerRpc, &'static str)> {
    let mut needed = vec![(ControllerRpc::CreateDeleteVolume, "create a volume")];
    match source {
        Source::Snapshot { .. } => needed.push((ControllerRpc::CreateDeleteSnapshot, "restore a snapshot")),
        Source::Claim { .. } => needed.push((ControllerRpc::CloneVolume, "clone a volume")),
        Source::None | Source::Populator { .. } => {}
    }
    if rules.attributes_class(claim).is_some() {
        needed.push((ControllerRpc::ModifyVolume, "create a volume with a VolumeAttributesClass"));
    }
    needed
}

/// Checks that the driver has the capabilities that a claim needs.
pub fn check_capabilities(
    rules: &ProvisionRules,
    capabilities: &Capabilities,
    claim: &PersistentVolumeClaim,
    source: &Source,
) -> Result<(), RequestError> {
    let lacking = |capability, reason| RequestError::Capability { driver: rules.driver.clone(), capability, reason };
    let needed = needed_capabilities(rules, claim, source);
    if let Some((_, reason)) = needed.first().filter(|_| !capabilities.controller_service()) {
        return Err(lacking("CONTROLLER_SERVICE", reason));
    }
    match needed.into_iter().find(|(rpc, _)| !capabilities.has(*rpc)) {
        Some((rpc, reason)) => Err(lacking(rpc.as_str_name(), reason)),
        None => Ok(()),
    }
}

/// The CSI mode for each access mode, in the claim's order.
pub fn access_modes(modes: &[SmolStr], multi_writer: bool) -> Result<Vec<Mode>, RequestError> {
    if modes.is_empty() {
        return Err(RequestError::NoAccessMode);
    }
    let mode = |mode: &SmolStr| match (mode.as_str(), multi_writer) {
        ("ReadWriteMany", _) => Ok(Mode::MultiNodeMultiWriter),
        ("ReadOnlyMany", _) => Ok(Mode::MultiNodeReaderOnly),
        ("ReadWriteOnce" | "ReadWriteOncePod", false) => Ok(Mode::SingleNodeWriter),
        ("ReadWriteOnce", true) => Ok(Mode::SingleNodeMultiWriter),
        ("ReadWriteOncePod", true) => Ok(Mode::SingleNodeSingleWriter),
        _ => Err(RequestError::AccessMode(mode.to_string())),
    };
    modes.iter().map(mode).collect()
}

/// One capability for each mode: a raw device if `fs_type` is `None`.
pub fn capabilities(modes: &[Mode], fs_type: Option<&str>, mount_options: &[String]) -> Vec<VolumeCapability> {
    let access_type = || match fs_type {
        None => AccessType::Block(BlockVolume {}),
        Some(fs_type) => AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags: mount_options.to_vec(),
            volume_mount_group: String::new(),
        }),
    };
    let capability = |mode: &Mode| VolumeCapability {
        access_mode: Some(AccessMode { mode: (*mode).into() }),
        access_type: Some(access_type()),
    };
    modes.iter().map(capability).collect()
}

/// Builds the request.
pub fn build(input: &RequestInput<'_>) -> Result<Request, RequestError> {
    let RequestInput { claim, class, rules, .. } = input;
    let (meta, spec) = (&claim.metadata, &claim.spec);
    let (class_name, in_tree) = (class.metadata.name.to_string(), is_in_tree(class, &rules.driver));
    let class = csi_class(class, &rules.driver).map_err(|fault| match fault {
        ClassFault::Untranslatable(cause) => RequestError::Untranslatable(cause),
        ClassFault::Foreign => {
            let (provisioner, driver) = (class.provisioner.clone(), rules.driver.clone());
            RequestError::ForeignClass { class: class_name.clone(), provisioner, driver }
        }
    })?;
    if spec.has_selector {
        return Err(RequestError::Selector);
    }
    let identity = ClaimIdentity::of(claim);
    let volume_name = rules.names.volume_name(&identity.uid)?;
    let fs_type = parameters::fs_type(&class.parameters, &rules.default_fs_type)?;
    let fs_type = (spec.volume_mode.as_deref() != Some("Block")).then_some(fs_type);
    let modes = access_modes(&spec.access_modes, rules.multi_writer)?;
    let required_bytes = spec.storage.as_deref().map_or(Ok(0), quantity::bytes).map_err(RequestError::Size)?;
    let mut parameters = parameters::for_driver(&class.parameters)?;
    let mutable_parameters = mutable_parameters(input)?;

    let none = PackedMap::default();
    let owner = SecretOwner {
        volume: &volume_name,
        namespace: &identity.namespace,
        claim: &identity.name,
        annotations: Some(meta.annotations.as_ref().unwrap_or(&none)),
    };
    let mut found = BTreeMap::new();
    for secret in SecretUse::ALL {
        if let Some(reference) = secrets::resolve(&class.parameters, secret, owner)? {
            found.insert(secret, reference);
        }
    }
    if rules.extra_create_metadata {
        parameters.insert(parameters::CLAIM_NAME.to_owned(), identity.name.clone());
        parameters.insert(parameters::CLAIM_NAMESPACE.to_owned(), identity.namespace.clone());
        parameters.insert(parameters::VOLUME_NAME.to_owned(), volume_name.clone());
    }
    Ok(Request {
        parameters,
        required_bytes,
        content_source: input.source.clone(),
        requirement: input.requirement.clone(),
        mutable_parameters,
        secret: found.get(&SecretUse::Provisioner).cloned(),
        plan: VolumePlan {
            driver: rules.driver.clone(),
            name: volume_name.clone(),
            claim: identity,
            access_modes: spec.access_modes.clone(),
            volume_mode: spec.volume_mode.clone(),
            reclaim_policy: class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned()),
            mount_options: class.mount_options.clone(),
            class: class_name,
            attributes_class: rules.attributes_class(claim).map(str::to_owned),
            fs_type,
            read_only: rules.publish_readonly && modes == [Mode::MultiNodeReaderOnly],
            topology: rules.topology,
            in_tree,
            secrets: found,
        },
        modes,
        volume_name,
    })
}

fn mutable_parameters(input: &RequestInput<'_>) -> Result<BTreeMap<String, String>, RequestError> {
    let Some(name) = input.rules.attributes_class(input.claim) else { return Ok(BTreeMap::new()) };
    let class = input.attributes_class.ok_or_else(|| RequestError::AttributesClassMissing(name.to_owned()))?;
    if class.driver == input.rules.driver {
        return Ok(class.parameters.clone());
    }
    let (name, found, driver) = (name.to_owned(), class.driver.clone(), input.rules.driver.clone());
    Err(RequestError::AttributesClassDriver { name, found, driver })
}

impl Request {
    /// One capability for each access mode.
    pub fn capabilities(&self) -> Vec<VolumeCapability> {
        capabilities(&self.modes, self.plan.fs_type.as_deref(), &self.plan.mount_options)
    }

    /// The CSI message. The size has no upper limit, because the Go sidecar sends none: a driver may round the size up.
    pub fn to_proto(&self, secrets: HashMap<String, String>) -> CreateVolumeRequest {
        CreateVolumeRequest {
            name: self.volume_name.clone(),
            capacity_range: Some(CapacityRange { required_bytes: self.required_bytes, limit_bytes: 0 }),
            volume_capabilities: self.capabilities(),
            parameters: self.parameters.clone().into_iter().collect(),
            secrets,
            volume_content_source: self.content_source.as_ref().map(ContentSource::to_proto),
            accessibility_requirements: self.requirement.as_ref().map(Requirement::to_proto),
            mutable_parameters: self.mutable_parameters.clone().into_iter().collect(),
        }
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
