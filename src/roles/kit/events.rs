//! Which Events a role writes, as its section of the configuration says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::EventRecorder;
use crate::cluster::rbac::Rule;

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

impl EventsMode {
    /// Whether a role in this mode writes an Event. `is_news` is true for an Event about a new state, and false for one that repeats an
    /// earlier Event.
    pub fn is_due(self, is_news: bool) -> bool {
        self == Self::All || (self == Self::Changes && is_news)
    }

    /// The right that this needs.
    pub fn rule(self) -> Option<Rule> {
        (self != Self::None).then(EventRecorder::rule)
    }
}
