//! The health of a claim's volume as it was told: [`Fields::HEALTH`](super::Fields::HEALTH). Pure.
//!
//! A health monitor compares it with what the driver says now. A claim that was bound by hand names no provisioner, so each claim
//! with a volume keeps it.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::or_default;
use crate::cluster::moment::Moment;

/// What was told of a volume's health: `status.healthStatus` of its claim (node-and-health spec C4).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimHealth {
    /// What is wrong with it, in the server's order.
    #[serde(rename = "healthConditions", default, deserialize_with = "or_default")]
    pub conditions: Box<[HealthCondition]>,
    /// Since when it is these statuses and reasons.
    pub last_transition_time: Option<Moment>,
}

/// Something that is wrong with a volume. Status and reason together occur once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCondition {
    /// `Degraded`, `Inaccessible` or `DataLoss`.
    #[serde(default, deserialize_with = "or_default")]
    pub status: SmolStr,
    /// Why, in the driver's word.
    #[serde(default, deserialize_with = "or_default")]
    pub reason: SmolStr,
    /// Why, for people.
    #[serde(default, deserialize_with = "or_default")]
    pub message: Box<str>,
}
