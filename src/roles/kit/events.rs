//! Which Events a role writes, as its section of the configuration says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which Events a role writes about claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EventsMode {
    /// New states only, such as a new failure, and a success after a failure.
    Changes,
    /// Also the start and the success of every attempt, as the Go sidecars do.
    All,
    /// None.
    None,
}
