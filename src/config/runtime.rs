//! `runtime:` in the configuration file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process::{Faults, Section};

/// The process's own resources.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RuntimeSection {
    /// Threads that run tasks. null: as many as the CPU quota of the container has cores, at least 2.
    // One thread would do for the work, but the trace exporter must make progress while another task is busy.
    #[schemars(range(min = 2, max = 256))]
    pub worker_threads: Option<usize>,
}

impl RuntimeSection {
    /// How many threads to start, on a machine that gives this process `cores`.
    pub fn threads(&self, cores: usize) -> usize {
        self.worker_threads.unwrap_or(cores).max(2)
    }
}

impl Section for RuntimeSection {
    fn check(&self, faults: &mut Faults) {
        if let Some(threads @ 0..2) = self.worker_threads {
            faults.add("workerThreads", threads, "at least 2, or null");
        }
    }
}
