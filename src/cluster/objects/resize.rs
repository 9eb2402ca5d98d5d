//! What a resizer reads of claims and volumes beside what every role may: [`Fields::RESIZE`](super::Fields::RESIZE).
//!
//! A claim that was bound by hand names no provisioner, and only its volume says whose it is. So each claim with a volume
//! keeps these fields, and each volume but another driver's.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::health::ClaimHealth;
use super::secret_ref::SecretRef;
use super::{quantity, received, unless_empty};
use smol_str::SmolStr;

/// The conditions of a claim that have to do with its size or its attributes. Others are not held.
const CONDITIONS: [&str; 6] = [
    "Resizing",
    "FileSystemResizePending",
    "ControllerResizeError",
    "NodeResizeError",
    "ModifyingVolume",
    "ModifyVolumeError",
];

/// How far the change of a claim's size, and of its volume's attributes, is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClaimResize {
    /// What the user has, a quantity: `status.capacity.storage`.
    pub capacity: Option<SmolStr>,
    /// What was last begun, a quantity in the words of who began it: `status.allocatedResources.storage`.
    pub allocated: Option<SmolStr>,
    /// How far that is: `status.allocatedResourceStatuses.storage`.
    pub allocated_status: Option<SmolStr>,
    /// The attributes class that the volume has: `status.currentVolumeAttributesClassName`.
    pub current_attributes_class: Option<SmolStr>,
    /// How far the change to another one is.
    pub modify: Option<ModifyStatus>,
    /// The conditions of both jobs, in the server's order.
    pub conditions: Box<[ClaimCondition]>,
}

received! {
    /// How far a change of a volume's attributes is.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct ModifyStatus {
        /// `Pending`, `InProgress` or `Infeasible`.
        pub status: SmolStr = default,
        /// The class that it is changed to; unset while that is missing.
        #[serde(rename = "targetVolumeAttributesClassName", default, deserialize_with = "unless_empty")]
        pub target: Option<SmolStr>,
    }

    /// A condition of a claim.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ClaimCondition {
        /// Which one it is.
        #[serde(rename = "type")]
        pub type_: SmolStr,
        /// `True`, `False` or `Unknown`.
        pub status: SmolStr = default,
        /// Why, in one word.
        pub reason: SmolStr = default,
        /// Why, for people.
        pub message: Box<str> = default,
        /// When somebody last looked.
        pub last_probe_time: Option<Time>,
        /// When the status last changed.
        pub last_transition_time: Option<Time>,
    }
}

/// What a resizer reads of a volume.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VolumeResize {
    /// Its size, a quantity: `spec.capacity.storage`.
    pub capacity: Option<SmolStr>,
    /// Its attributes class: `spec.volumeAttributesClassName`.
    pub attributes_class: Option<SmolStr>,
    /// The Secret for the expansion: `spec.csi.controllerExpandSecretRef`.
    pub expand_secret: Option<SecretRef>,
}

received! {
    /// What there is of one resource; all that matters is storage.
    #[derive(Default)]
    pub(super) struct WireSize {
        #[serde(default, deserialize_with = "quantity")]
        pub(super) storage: Option<SmolStr>,
    }

    #[derive(Default)]
    struct WireState {
        storage: Option<SmolStr>,
    }

    /// A claim's status as it is sent.
    pub(super) struct WireClaimStatus {
        pub(super) phase: Option<SmolStr>,
        capacity: WireSize = default,
        allocated_resources: WireSize = default,
        allocated_resource_statuses: WireState = default,
        #[serde(default, deserialize_with = "unless_empty")]
        current_volume_attributes_class_name: Option<SmolStr>,
        modify_volume_status: Option<ModifyStatus>,
        conditions: Vec<ClaimCondition> = default,
        pub(super) health_status: Option<Box<ClaimHealth>>,
    }
}

impl WireClaimStatus {
    /// What of it is a resizer's.
    pub(super) fn resize(self) -> ClaimResize {
        ClaimResize {
            capacity: self.capacity.storage,
            allocated: self.allocated_resources.storage,
            allocated_status: self.allocated_resource_statuses.storage.filter(|state| !state.is_empty()),
            current_attributes_class: self.current_volume_attributes_class_name,
            modify: self.modify_volume_status,
            conditions: self.conditions.into_iter().filter(|it| CONDITIONS.contains(&it.type_.as_str())).collect(),
        }
    }
}

impl ClaimResize {
    /// The condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&ClaimCondition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}
