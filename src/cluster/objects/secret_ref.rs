//! Where a Secret is. Pure.

use serde::{Deserialize, Serialize};

use super::or_default;

/// Where a Secret is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRef {
    /// Its name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// Its namespace.
    #[serde(default, deserialize_with = "or_default")]
    pub namespace: String,
}
