//! What an in-tree volume becomes: the CSI part of a specification. Pure.

use serde_json::{Map, Value, json};

use crate::cluster::{CsiSource, NodeRequirement, Reach, SecretRef, SmolStr, VolumeSpec};

use super::topology::Terms;

/// The CSI form of an in-tree volume. All that is not here stays as the in-tree volume has it.
#[derive(Debug, Clone, PartialEq)]
pub struct CsiVolume {
    /// `spec.csi` but the Secrets below.
    pub source: CsiSource,
    /// The Secret for staging on a node.
    pub node_stage_secret: Option<SecretRef>,
    /// The Secret for publishing on a node.
    pub node_publish_secret: Option<SecretRef>,
    /// The Secret for an expansion by the controller.
    pub controller_expand_secret: Option<SecretRef>,
    /// The Secret for an expansion on a node.
    pub node_expand_secret: Option<SecretRef>,
    /// The access modes.
    pub access_modes: Box<[SmolStr]>,
    /// The nodes that may use it: the expressions of each required term, in the driver's labels.
    pub node_affinity: Box<[Box<[NodeRequirement]>]>,
}

impl CsiVolume {
    pub(super) fn new(source: CsiSource, access_modes: Box<[SmolStr]>) -> Self {
        Self {
            source,
            node_stage_secret: None,
            node_publish_secret: None,
            controller_expand_secret: None,
            node_expand_secret: None,
            access_modes,
            node_affinity: Box::default(),
        }
    }

    pub(super) fn with_affinity(mut self, terms: Terms) -> Self {
        self.node_affinity = terms.into_iter().map(Vec::into_boxed_slice).collect();
        self
    }

    /// The specification of a PersistentVolume in its CSI form, as a role reads it.
    pub(super) fn spec_of(self, in_tree: &VolumeSpec) -> VolumeSpec {
        let reach =
            self.node_affinity.into_iter().map(|match_expressions| Reach { match_expressions, ..Reach::default() });
        let mut resize = in_tree.resize.clone();
        if let Some(resize) = &mut resize {
            resize.expand_secret = self.controller_expand_secret;
        }
        VolumeSpec {
            csi: Some(Box::new(self.source)),
            access_modes: self.access_modes,
            mount_options: in_tree.mount_options.clone(),
            volume_mode: in_tree.volume_mode.clone(),
            claim_ref: in_tree.claim_ref.clone(),
            reclaim_policy: in_tree.reclaim_policy.clone(),
            storage_class_name: in_tree.storage_class_name.clone(),
            node_affinity: reach.collect(),
            in_tree: None,
            foreign_driver: None,
            foreign_handle: None,
            resize,
            migration: None,
        }
    }

    /// `spec` of a PersistentVolume, as it is written: the source, the access modes, the affinity if there is one.
    pub fn to_spec(&self) -> Value {
        let mut spec = Map::from_iter([("csi".to_owned(), self.csi())]);
        if !self.access_modes.is_empty() {
            spec.insert("accessModes".to_owned(), json!(self.access_modes));
        }
        if !self.node_affinity.is_empty() {
            let terms: Vec<Value> = self.node_affinity.iter().map(|term| selector_term(term)).collect();
            spec.insert("nodeAffinity".to_owned(), json!({ "required": { "nodeSelectorTerms": terms } }));
        }
        Value::Object(spec)
    }

    fn csi(&self) -> Value {
        let source = &self.source;
        let mut csi = Map::from_iter([
            ("driver".to_owned(), json!(source.driver)),
            ("volumeHandle".to_owned(), json!(source.volume_handle)),
        ]);
        let mut set = |field: &str, value: Option<Value>| csi.extend(value.map(|value| (field.to_owned(), value)));
        set("readOnly", source.read_only.then_some(Value::Bool(true)));
        set("fsType", source.fs_type.as_ref().map(|fs_type| json!(fs_type)));
        set("volumeAttributes", (!source.volume_attributes.is_empty()).then(|| json!(source.volume_attributes)));
        for (field, secret) in [
            ("controllerPublishSecretRef", source.controller_publish_secret_ref.as_deref()),
            ("nodeStageSecretRef", self.node_stage_secret.as_ref()),
            ("nodePublishSecretRef", self.node_publish_secret.as_ref()),
            ("controllerExpandSecretRef", self.controller_expand_secret.as_ref()),
            ("nodeExpandSecretRef", self.node_expand_secret.as_ref()),
        ] {
            set(field, secret.map(|secret| json!(secret)));
        }
        Value::Object(csi)
    }
}

/// A required term as it is written.
pub(super) fn selector_term(expressions: &[NodeRequirement]) -> Value {
    if expressions.is_empty() {
        return json!({});
    }
    let expressions: Vec<Value> = expressions
        .iter()
        .map(|expression| {
            let mut written = json!({ "key": expression.key, "operator": expression.operator });
            if !expression.values.is_empty() {
                written["values"] = json!(expression.values);
            }
            written
        })
        .collect();
    json!({ "matchExpressions": expressions })
}
