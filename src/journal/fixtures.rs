//! A journal's content for tests.

use serde::{Deserialize, Serialize};

use super::format::Content;
use super::place::Place;

/// What a test asks its driver for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    pub(super) volume_name: String,
    pub(super) bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) discarding: Option<String>,
}

impl Content for Asked {
    fn subject(&self) -> String {
        format!("volume {}", self.volume_name)
    }
}

impl Asked {
    pub(super) fn volume(name: &str) -> Self {
        Self { volume_name: format!("pvc-{name}"), bytes: 1 << 30, discarding: None }
    }
}

pub(super) fn place() -> Place {
    Place { namespace: "storage".into(), stem: "demo-csi".into(), driver: "demo.csi".into(), node: None }
}
