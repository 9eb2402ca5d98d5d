//! The quota controller: writes into each quota's status its limits, and how much of them the claims of its namespace
//! use.
//!
//! Other kinds are not counted: the status has their limits, without the use.

use serde_json::{Value, json};

use super::{CLAIMS, Cluster, QUOTAS, place};
use crate::api::pure::quota::{self, Amounts};

/// Looks at each quota once.
pub(super) fn pass(cluster: &Cluster) {
    for held in cluster.all(QUOTAS) {
        let hard = held.pointer("/spec/hard").cloned().unwrap_or_else(|| json!({}));
        let mut used: Amounts = quota::amounts(&held, &["spec", "hard"]).into_keys().map(|name| (name, 0)).collect();
        let claims = cluster.all(CLAIMS);
        let of_this =
            |claim: &&std::sync::Arc<Value>| place(claim).0 == place(&held).0 && quota::is_in_scope(&held, claim);
        for claim in claims.iter().filter(of_this) {
            for (name, amount) in quota::usage(claim) {
                if let Some(sum) = used.get_mut(&name) {
                    *sum = sum.saturating_add(amount);
                }
            }
        }
        let status = json!({ "hard": hard, "used": quota::listed(&used) });
        if held.get("status") != Some(&status) {
            cluster.change_status(QUOTAS, &held, &status);
        }
    }
}
