//! `runtime:` in the configuration file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process::{Faults, Section};

/// The most threads by default. The work mostly waits for the driver and the API, which needs no threads, and a
/// container without a CPU limit sees all cores of its node, which may be a hundred.
const MOST_BY_DEFAULT: usize = 4;

/// The process's own resources.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RuntimeSection {
    /// Threads that run tasks. null: the number of cores of the container's CPU quota, at least 2, at most 4.
    // One thread would do for the work, but the trace exporter must make progress while another task is busy.
    #[schemars(range(min = 2, max = 256))]
    pub worker_threads: Option<usize>,
}

impl RuntimeSection {
    /// How many threads to start, on a machine that gives this process `cores`.
    pub fn threads(&self, cores: usize) -> usize {
        self.worker_threads.unwrap_or_else(|| cores.min(MOST_BY_DEFAULT)).max(2)
    }
}

impl Section for RuntimeSection {
    fn check(&self, faults: &mut Faults) {
        if let Some(threads @ 0..2) = self.worker_threads {
            faults.add("workerThreads", threads, "at least 2, or null");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_many_cores_gets_four_threads_unless_more_are_asked_for() {
        let of = |worker_threads, cores| RuntimeSection { worker_threads }.threads(cores);
        assert_eq!([1, 2, 3, 4, 5, 96].map(|cores| of(None, cores)), [2, 2, 3, 4, 4, 4]);
        assert_eq!([2, 8, 96].map(|threads| of(Some(threads), 1)), [2, 8, 96]);
    }
}
