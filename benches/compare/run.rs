//! What was measured, and when and on what.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Figures by name, such as `attach.rate`. Units: seconds are `_s`, milliseconds `_ms`, bytes `_bytes`.
pub(crate) type Figures = BTreeMap<String, f64>;

/// What one contender did in one scenario, once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) scenario: String,
    pub(crate) contender: String,
    pub(crate) round: usize,
    /// The occasion that it is of, by its name.
    #[serde(default)]
    pub(crate) occasion: String,
    /// The machine's load average of a minute when it began: what the run before left, and whatever else ran.
    #[serde(default)]
    pub(crate) load: Option<f64>,
    pub(crate) figures: Figures,
}

/// What the runs of one command have in common. It is named by the time at which it began, in UTC.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Occasion {
    pub(crate) command: String,
    /// Which binary ours was: the beginning of its SHA-256.
    pub(crate) binary: String,
    /// The commit of the sources that it was built from: where the comparison ran. Before 2026-11-29 it was not recorded: it is the
    /// newest that was older than the occasion.
    #[serde(default)]
    pub(crate) commit: String,
    pub(crate) machine: Machine,
}

/// What it was measured on. Nothing that names the machine.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// kube-apiserver's and the sidecars', as their folders are called.
    pub(crate) programs: Vec<String>,
}
