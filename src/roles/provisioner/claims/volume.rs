//! The PersistentVolume of a volume that the driver has created. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::cluster::quantity::format_bytes;
use crate::cluster::{InTree, PersistentVolumeClaim, SmolStr};
use crate::roles::provisioner::names::{
    ANNOTATION_DELETION_SECRET_NAME, ANNOTATION_DELETION_SECRET_NAMESPACE, ANNOTATION_MODIFY_SECRET_NAME,
    ANNOTATION_MODIFY_SECRET_NAMESPACE, ANNOTATION_PROVISIONED_BY, ATTRIBUTE_PROVISIONER_IDENTITY,
};

use crate::roles::provisioner::parameters::SecretUse;
use crate::roles::provisioner::parameters::secrets::SecretReference;
use crate::roles::provisioner::topology::Segment;
use crate::translation::{TranslationError, volume_to_in_tree};

/// Which claim a volume is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
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
            name: meta.name.to_string(),
            uid: meta.uid.to_string(),
            resource_version: text(meta.resource_version.as_deref()),
        }
    }
}

/// What the PersistentVolume needs besides the driver's answer. It is part of the request, because the class and the claim may be gone
/// when the driver answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumePlan {
    /// Our driver.
    pub driver: String,
    /// The PersistentVolume's name.
    pub name: String,
    /// The claim that the volume is for.
    pub claim: ClaimIdentity,
    /// The claim's access modes.
    pub access_modes: Box<[SmolStr]>,
    /// The claim's volume mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<SmolStr>,
    /// The class's: `Delete` or `Retain`, or what a later API allows.
    pub reclaim_policy: String,
    /// The class's mount options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mount_options: Vec<String>,
    /// The class.
    pub class: String,
    /// The class of attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes_class: Option<String>,
    /// The file system, perhaps empty; `None` for a raw device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// Whether it may only be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Whether the driver's answers have topology.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub topology: bool,
    /// Whether the class belongs to the in-tree plugin that our driver has taken over: then the PersistentVolume has the plugin's
    /// source.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_tree: bool,
    /// Where the secrets are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<SecretUse, SecretReference>,
}

impl VolumePlan {
    /// Whether a volume that no claim wants any more is retained. Of a policy that is not known no deletion follows.
    pub fn is_retained(&self) -> bool {
        self.reclaim_policy != "Delete"
    }

    /// Which provisioner the PersistentVolume names: our driver, or the in-tree plugin whose class the claim names.
    fn provisioner(&self) -> &str {
        match InTree::of_driver(&self.driver) {
            Some(kind) if self.in_tree => kind.plugin(),
            _ => &self.driver,
        }
    }
}

/// A volume that the driver has created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The driver's id.
    pub volume_id: String,
    /// Its size, exactly.
    pub capacity_bytes: i64,
    /// The volume's attributes, which the driver gets with later calls.
    pub context: BTreeMap<String, String>,
    /// The segments from which it is accessible; `None`: all.
    pub affinity: Option<Vec<Segment>>,
}

/// The PersistentVolume, as it is sent to the API. `identity` is this provisioner's.
///
/// For a class of an in-tree plugin it has the plugin's source and the plugin's name as its provisioner, as the plugin would have
/// stored it, so that everything that knows the plugin's volumes knows this one (migration spec 7, 10). Without what the
/// plugin's source needs in the driver's answer, there is no such PersistentVolume.
pub fn persistent_volume(
    plan: &VolumePlan,
    created: &Created,
    identity: &str,
    finalizers: &[&str],
) -> Result<Value, TranslationError> {
    let volume = csi_persistent_volume(plan, created, identity, finalizers);
    if plan.in_tree { volume_to_in_tree(&volume) } else { Ok(volume) }
}

fn csi_persistent_volume(plan: &VolumePlan, created: &Created, identity: &str, finalizers: &[&str]) -> Value {
    let deletion = plan.secrets.get(&SecretUse::Provisioner);
    // Both always, and empty without a secret: so that a deletion need not ask a class that may have changed.
    let mut annotations = json!({
        ANNOTATION_PROVISIONED_BY: plan.provisioner(),
        ANNOTATION_DELETION_SECRET_NAME: deletion.map_or("", |secret| &secret.name),
        ANNOTATION_DELETION_SECRET_NAMESPACE: deletion.map_or("", |secret| &secret.namespace),
    });
    if let Some(secret) = plan.secrets.get(&SecretUse::ControllerModify) {
        annotations[ANNOTATION_MODIFY_SECRET_NAME] = json!(secret.name);
        annotations[ANNOTATION_MODIFY_SECRET_NAMESPACE] = json!(secret.namespace);
    }

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
        "metadata": { "name": plan.name, "annotations": annotations, "finalizers": finalizers },
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
