//! Nodes with what their kubelet and their controllers say of them. Pure.
//!
//! It is a kind of its own, because a watch of it is sent the whole object, several kilobytes with all images of the node, each time
//! that the kubelet writes its status. Who reads labels alone watches [`Node`](super::Node).
//!
//! A health monitor reads whether the node is ready. The rest is an attach/detach controller's:
//! [`Fields::ATTACH`].

use serde::{Deserialize, Deserializer, Serialize};
use smol_str::SmolStr;

use super::{Cached, Fields, IndexName, received, trim_meta};
use crate::cluster::managers::Managers;
use crate::cluster::meta::Meta;
use crate::cluster::moment::Moment;
use crate::cluster::names;

/// A node's state (attach-detach spec 2).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeState {
    /// Name, uid, version and deletion; with [`Fields::ATTACH`] also when it was made, and whether
    /// `kube-controller-manager` manages its list of attached volumes.
    pub metadata: Meta,
    /// The condition `Ready`; unset if the node has none.
    pub ready: Option<NodeReady>,
    /// Whether its kubelet leaves attaching to a controller: [`names::ANNOTATION_CONTROLLER_MANAGED`].
    pub is_managed: bool,
    /// Whether it has the taint [`names::TAINT_OUT_OF_SERVICE`].
    pub is_out_of_service: bool,
    /// The volumes that its kubelet uses, by their names in a Node's status; from a cache only those of CSI drivers.
    pub volumes_in_use: Box<[Box<str>]>,
    /// The volumes that a controller has reported to its kubelet, in the list's order: all of them, because who writes the list must keep
    /// those of others as they are (attach-detach spec 8).
    pub volumes_attached: Box<[AttachedVolume]>,
}

/// Whether a node is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReady {
    /// `True`, `False` or `Unknown`.
    pub status: SmolStr,
    /// Since when.
    pub since: Option<Moment>,
}

received! {
    /// A volume that a controller has reported to the kubelet of its node.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
    pub struct AttachedVolume {
        /// The volume's name in a Node's status.
        pub name: Box<str> = default,
        /// Where the node sees it; empty for a CSI volume.
        pub device_path: Box<str> = default,
    }

    struct Wire {
        metadata: Meta,
        spec: WireSpec = default,
        status: WireStatus = default,
    }

    #[derive(Default)]
    struct WireSpec {
        taints: Vec<WireTaint> = default,
    }

    struct WireTaint {
        key: SmolStr = default,
    }

    #[derive(Default)]
    struct WireStatus {
        conditions: Vec<WireCondition> = default,
        volumes_in_use: Box<[Box<str>]> = default,
        volumes_attached: Box<[AttachedVolume]> = default,
    }

    struct WireCondition {
        #[serde(rename = "type")]
        type_: SmolStr = default,
        status: SmolStr = default,
        last_transition_time: Option<Moment>,
    }
}

impl<'de> Deserialize<'de> for NodeState {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec, status } = Wire::deserialize(from)?;
        let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready");
        Ok(Self {
            is_managed: metadata.annotation(names::ANNOTATION_CONTROLLER_MANAGED).is_some(),
            is_out_of_service: spec.taints.iter().any(|taint| taint.key == names::TAINT_OUT_OF_SERVICE),
            ready: ready.map(|condition| NodeReady { status: condition.status, since: condition.last_transition_time }),
            volumes_in_use: status.volumes_in_use,
            volumes_attached: status.volumes_attached,
            metadata,
        })
    }
}

impl Cached for NodeState {
    // The cache of nodes' metadata has the kind's own name.
    const KIND: &'static str = "Node/status";

    fn trim(&mut self, _driver: &str, fields: Fields) {
        let Meta { creation_timestamp, managers, .. } = self.metadata;
        trim_meta(&mut self.metadata, &[]);
        self.metadata.annotations = None;
        self.metadata.finalizers = None;
        if fields.contains(Fields::ATTACH) {
            let held = std::mem::take(&mut self.volumes_in_use).into_iter();
            self.volumes_in_use = held.filter(|name| name.starts_with(names::CSI_VOLUME)).collect();
            self.metadata.creation_timestamp = creation_timestamp;
            self.metadata.managers = managers.intersection(Managers::VOLUMES_ATTACHED);
        } else {
            let (metadata, ready) = (std::mem::take(&mut self.metadata), self.ready.take());
            *self = Self { metadata, ready, ..Self::default() };
            self.metadata.creation_timestamp = None;
        }
    }

    fn index(&self, _add: &mut dyn FnMut(IndexName, &str)) {}
}
