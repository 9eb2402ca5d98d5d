//! Which Events a role writes, as its section of the configuration says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which Events a role writes about its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EventsMode {
    /// New states only, such as a new failure, and a success after a failure.
    Changes,
    /// Also every attempt. The count of a repeated Event is written within ten seconds.
    All,
    /// None.
    None,
}
