//! The health of a claim's volume as it was told: [`Fields::HEALTH`](super::Fields::HEALTH). Pure.
//!
//! A health monitor compares it with what the driver says now. A claim that was bound by hand names no provisioner, so each claim
//! with a volume keeps it.

use serde::Serialize;
use smol_str::SmolStr;

use super::received;
use crate::cluster::moment::Moment;

received! {
    /// What was told of a volume's health: `status.healthStatus` of its claim (node-and-health spec C4).
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct ClaimHealth {
        /// What is wrong with it, in the server's order.
        #[serde(rename = "healthConditions")]
        pub conditions: Box<[HealthCondition]> = default,
        /// Since when it is these statuses and reasons.
        pub last_transition_time: Option<Moment>,
    }

    /// Something that is wrong with a volume. Status and reason together occur once.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
    pub struct HealthCondition {
        /// `Degraded`, `Inaccessible` or `DataLoss`.
        pub status: SmolStr = default,
        /// Why, in the driver's word.
        pub reason: SmolStr = default,
        /// Why, for people.
        pub message: Box<str> = default,
    }
}
