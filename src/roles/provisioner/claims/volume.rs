//! From the driver's answer to the PersistentVolume. Pure.
//!
//! An answer is checked before anything is made of it: a volume that can't be saved, that is too small, empty where a source
//! was wanted, or out of reach, is deleted again by who asked for it, and the error says so ([`ResponseError::must_delete`]).
//! The claim stays *in background* until that is done: only then is it sure that nothing is left.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::cluster::quantity::format_bytes;
use crate::cluster::{PersistentVolumeClaim, SmolStr};
use crate::proto::{self, CreateVolumeResponse};
use crate::roles::provisioner::names::{
    ANNOTATION_DELETION_SECRET_NAME, ANNOTATION_DELETION_SECRET_NAMESPACE, ANNOTATION_MODIFY_SECRET_NAME,
    ANNOTATION_MODIFY_SECRET_NAMESPACE, ANNOTATION_PROVISIONED_BY, ATTRIBUTE_PROVISIONER_IDENTITY,
    FINALIZER_PROVISIONER,
};

use super::request::Request;
use crate::roles::provisioner::parameters::SecretUse;
use crate::roles::provisioner::parameters::secrets::SecretReference;
use crate::roles::provisioner::topology::{AffinityError, Requirement, Segment, affinity};

/// More than this in a volume's id, attributes and places, and the API refuses the PersistentVolume for its size, on every
/// try: etcd takes 1.5 MiB in all.
const MOST_BYTES: usize = 1 << 20;

/// Which claim a volume is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimIdentity {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its version, as it was when the request was made.
    pub resource_version: String,
}

impl ClaimIdentity {
    /// Of this claim.
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let (meta, text) = (&claim.metadata, |text: Option<&str>| text.unwrap_or_default().to_owned());
        Self {
            namespace: text(meta.namespace.as_deref()),
            name: text(meta.name.as_deref()),
            uid: text(meta.uid.as_deref()),
            resource_version: text(meta.resource_version.as_deref()),
        }
    }
}

/// What the PersistentVolume needs besides the driver's answer. Pinned with the request, since class and claim may be gone when
/// the answer comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumePlan {
    /// Our driver.
    pub driver: String,
    /// The PersistentVolume's name.
    pub name: String,
    /// Whom it is for.
    pub claim: ClaimIdentity,
    /// The claim's access modes, as they stand.
    pub access_modes: Box<[SmolStr]>,
    /// The claim's volume mode.
    pub volume_mode: Option<SmolStr>,
    /// `Delete` or `Retain`.
    pub reclaim_policy: String,
    /// The class's mount options.
    pub mount_options: Vec<String>,
    /// The class.
    pub class: String,
    /// The class of attributes.
    pub attributes_class: Option<String>,
    /// The file system, perhaps empty; `None` for a raw device.
    pub fs_type: Option<String>,
    /// Whether it may only be read.
    pub read_only: bool,
    /// Whether the driver says where volumes can be reached.
    pub topology: bool,
    /// Where the secrets are.
    pub secrets: BTreeMap<SecretUse, SecretReference>,
}

impl VolumePlan {
    /// Whether a volume that nobody wants any more is kept.
    pub fn is_retained(&self) -> bool {
        self.reclaim_policy == "Retain"
    }
}

/// A volume as the driver made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The driver's id.
    pub volume_id: String,
    /// Its size, exactly.
    pub capacity_bytes: i64,
    /// What the driver wants to be told about it.
    pub context: BTreeMap<String, String>,
    /// Where it can be reached; `None`: everywhere.
    pub affinity: Option<Vec<Segment>>,
}

/// An answer that no PersistentVolume can be made of.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResponseError {
    /// Success, and nothing else.
    #[error("the driver answered CreateVolume with success and without a volume: its answer must have one")]
    NoVolume,
    /// A volume that can't be addressed.
    #[error("the driver answered CreateVolume with a volume without an id")]
    NoId,
    /// Too small.
    #[error("the driver created volume {id} with {created} bytes: at least {requested} were requested")]
    TooSmall {
        /// The volume.
        id: String,
        /// Its size.
        created: i64,
        /// The requested size.
        requested: i64,
    },
    /// Not made from its source, as far as the driver says.
    #[error(
        "the driver's answer does not say that volume {0} was made from the requested content source: it would be empty, \
         and the driver may not support content sources"
    )]
    SourceIgnored(String),
    /// Nowhere.
    #[error("volume {id} can't be reached from anywhere")]
    Nowhere {
        /// The volume.
        id: String,
        /// Why.
        source: AffinityError,
    },
    /// Where nobody asked for.
    #[error("the driver created volume {id} in {found}: expected one of {wanted}")]
    Elsewhere {
        /// The volume.
        id: String,
        /// Where it is.
        found: String,
        /// Where it should be.
        wanted: String,
    },
    /// Too much to be saved.
    #[error(
        "the id, attributes and topologies of the created volume have {0} bytes: a PersistentVolume holds {MOST_BYTES} of \
         them at most"
    )]
    TooMuch(usize),
}

impl ResponseError {
    /// Whether there is a volume that must be deleted again, by the answer's id.
    pub fn must_delete(&self) -> bool {
        !matches!(self, Self::NoVolume | Self::NoId)
    }

    /// A word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoVolume => "NoVolume",
            Self::NoId => "NoVolumeId",
            Self::TooSmall { .. } => "VolumeTooSmall",
            Self::SourceIgnored(_) => "ContentSourceIgnored",
            Self::Nowhere { .. } | Self::Elsewhere { .. } => "Topology",
            Self::TooMuch(_) => "VolumeTooMuch",
        }
    }

    /// What is wrong, without what the driver makes anew at each attempt: ids, sizes, places.
    pub fn gist(&self) -> &'static str {
        match self {
            Self::Nowhere { .. } => "nowhere",
            Self::Elsewhere { .. } => "elsewhere",
            _ => self.label(),
        }
    }
}

/// Reads the answer to `request`.
///
/// A content source that is not the requested one is taken: drivers answer with their own spelling of an id.
pub fn check_response(request: &Request, response: &CreateVolumeResponse) -> Result<Created, ResponseError> {
    let volume = response.volume.as_ref().ok_or(ResponseError::NoVolume)?;
    if volume.volume_id.is_empty() {
        return Err(ResponseError::NoId);
    }
    let (id, requested) = (volume.volume_id.clone(), request.required_bytes);
    let capacity_bytes = if volume.capacity_bytes == 0 { requested } else { volume.capacity_bytes };
    if capacity_bytes < requested || capacity_bytes < 0 {
        return Err(ResponseError::TooSmall { id, created: capacity_bytes, requested });
    }
    if request.content_source.is_some() && volume.content_source.is_none() {
        return Err(ResponseError::SourceIgnored(id));
    }
    let size = size_of(volume);
    if size > MOST_BYTES {
        return Err(ResponseError::TooMuch(size));
    }
    let places = if request.plan.topology {
        affinity(&volume.accessible_topology).map_err(|source| ResponseError::Nowhere { id: id.clone(), source })?
    } else {
        None
    };
    if let (Some(wanted), Some(found)) = (&request.requirement, &places)
        && !may_be_reached(wanted, found)
    {
        let (found, wanted) = (listed(found), listed(&wanted.requisite));
        return Err(ResponseError::Elsewhere { id, found, wanted });
    }
    let context = volume.volume_context.clone().into_iter().collect();
    Ok(Created { volume_id: id, capacity_bytes, context, affinity: places })
}

fn size_of(volume: &proto::Volume) -> usize {
    let pairs = |size: usize, (key, value): (&String, &String)| size + key.len() + value.len();
    let places = volume.accessible_topology.iter().flat_map(|topology| &topology.segments);
    volume.volume_id.len() + volume.volume_context.iter().fold(0, pairs) + places.fold(0, pairs)
}

/// Whether some place does not contradict some wanted one. Drivers answer with more keys than they were asked for, with fewer,
/// and with others; only another value for the same key is surely somewhere else.
fn may_be_reached(wanted: &Requirement, found: &[Segment]) -> bool {
    let agree =
        |one: &Segment, other: &Segment| one.pairs().all(|(key, value)| other.get(key).is_none_or(|at| at == value));
    wanted.requisite.is_empty() || found.iter().any(|place| wanted.requisite.iter().any(|term| agree(place, term)))
}

/// A few places, and how many more.
fn listed(places: &[Segment]) -> String {
    const SHOWN: usize = 5;
    let mut text = places.iter().take(SHOWN).map(|place| format!("({place})")).collect::<Vec<_>>().join(", ");
    if places.len() > SHOWN {
        text = format!("{text} and {} more", places.len() - SHOWN);
    }
    text
}

/// The PersistentVolume, as it is sent to the API. `identity` is this provisioner's; `finalizers` are put beside ours.
pub fn persistent_volume(plan: &VolumePlan, created: &Created, identity: &str, finalizers: &[&str]) -> Value {
    let deletion = plan.secrets.get(&SecretUse::Provisioner);
    // Both always, and empty without a secret: so that a deletion need not ask a class that may have changed.
    let mut annotations = json!({
        ANNOTATION_PROVISIONED_BY: plan.driver,
        ANNOTATION_DELETION_SECRET_NAME: deletion.map_or("", |secret| &secret.name),
        ANNOTATION_DELETION_SECRET_NAMESPACE: deletion.map_or("", |secret| &secret.namespace),
    });
    if let Some(secret) = plan.secrets.get(&SecretUse::ControllerModify) {
        annotations[ANNOTATION_MODIFY_SECRET_NAME] = json!(secret.name);
        annotations[ANNOTATION_MODIFY_SECRET_NAMESPACE] = json!(secret.namespace);
    }
    let mut held = vec![FINALIZER_PROVISIONER];
    held.extend(finalizers.iter().filter(|one| **one != FINALIZER_PROVISIONER));

    let claim = &plan.claim;
    let mut spec = json!({
        "accessModes": plan.access_modes,
        "capacity": { "storage": format_bytes(created.capacity_bytes) },
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.uid,
            "resourceVersion": claim.resource_version,
        },
        "csi": csi(plan, created, identity),
        "persistentVolumeReclaimPolicy": plan.reclaim_policy,
        "storageClassName": plan.class,
    });
    if !plan.mount_options.is_empty() {
        spec["mountOptions"] = json!(plan.mount_options);
    }
    if let Some(mode) = &plan.volume_mode {
        spec["volumeMode"] = json!(mode);
    }
    if let Some(class) = &plan.attributes_class {
        spec["volumeAttributesClassName"] = json!(class);
    }
    if let Some(places) = &created.affinity {
        let terms: Vec<Value> = places.iter().map(selector_term).collect();
        spec["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": terms } });
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": plan.name, "annotations": annotations, "finalizers": held },
        "spec": spec,
    })
}

fn csi(plan: &VolumePlan, created: &Created, identity: &str) -> Value {
    let mut attributes = BTreeMap::from([(ATTRIBUTE_PROVISIONER_IDENTITY, identity)]);
    attributes.extend(created.context.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    let mut csi = Map::new();
    csi.insert("driver".to_owned(), json!(plan.driver));
    csi.insert("volumeHandle".to_owned(), json!(created.volume_id));
    csi.insert("volumeAttributes".to_owned(), json!(attributes));
    if let Some(fs_type) = plan.fs_type.as_deref().filter(|fs_type| !fs_type.is_empty()) {
        csi.insert("fsType".to_owned(), json!(fs_type));
    }
    if plan.read_only {
        csi.insert("readOnly".to_owned(), json!(true));
    }
    for (secret, field) in [
        (SecretUse::ControllerPublish, "controllerPublishSecretRef"),
        (SecretUse::NodeStage, "nodeStageSecretRef"),
        (SecretUse::NodePublish, "nodePublishSecretRef"),
        (SecretUse::ControllerExpand, "controllerExpandSecretRef"),
        (SecretUse::NodeExpand, "nodeExpandSecretRef"),
    ] {
        if let Some(secret) = plan.secrets.get(&secret) {
            csi.insert(field.to_owned(), json!({ "name": secret.name, "namespace": secret.namespace }));
        }
    }
    Value::Object(csi)
}

fn selector_term(place: &Segment) -> Value {
    let expression = |(key, value): (&str, &str)| json!({ "key": key, "operator": "In", "values": [value] });
    json!({ "matchExpressions": place.pairs().map(expression).collect::<Vec<_>>() })
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
