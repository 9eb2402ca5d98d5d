//! The part of the report about the configuration file. Pure.

use serde::{Deserialize, Serialize};

use super::shown::Age;

/// The configuration that is in effect, and the one that was refused since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationReport {
    /// The file.
    pub source: String,
    /// For how long it has been in effect.
    #[serde(rename = "inEffectSeconds")]
    pub since: Age,
    /// How often it has changed since the start.
    pub changes: u64,
    /// The keys that the last change changed.
    pub last_changed: Vec<String>,
    /// Why the current file is not in effect; `None`: it is in effect.
    pub refused: Option<RefusedReport>,
}

/// A configuration that is not in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedReport {
    /// In one word.
    pub because: RefusedBecause,
    /// In one sentence.
    pub summary: String,
    /// For how long.
    #[serde(rename = "forSeconds")]
    pub since: Age,
    /// All of its faults.
    pub faults: Vec<FaultReport>,
}

/// Why a configuration is not in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusedBecause {
    /// It is wrong.
    Faults,
    /// It changes keys that need a restart.
    NeedsRestart,
    /// It enables no role.
    NoRole,
    /// The file can't be read.
    Unreadable,
}

impl RefusedBecause {
    /// The name for metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Faults => "faults",
            Self::NeedsRestart => "needsRestart",
            Self::NoRole => "noRole",
            Self::Unreadable => "unreadable",
        }
    }
}

/// One fault of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultReport {
    /// The key, from the top of the file; empty: the whole file.
    pub key: String,
    /// What is there.
    pub found: String,
    /// What is allowed there.
    pub allowed: String,
    /// Where it stands.
    pub origin: Option<String>,
}
