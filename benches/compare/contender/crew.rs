//! A contender that runs: one process, or several that are measured as one.

use crate::kernel::{self, Memory};
use crate::programs::Program;

/// A contender that runs.
pub(crate) struct Crew(Vec<Program>);

impl Crew {
    pub(super) fn of(programs: Vec<Program>) -> Self {
        Self(programs)
    }

    /// Memory of all together.
    pub(crate) fn memory(&self) -> Memory {
        let each = self.0.iter().map(|program| kernel::memory(program.id()));
        each.fold(Memory { now: 0.0, peak: 0.0 }, |sum, one| Memory {
            now: sum.now + one.now,
            peak: sum.peak + one.peak,
        })
    }

    /// CPU time of all together so far, in milliseconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.0.iter().map(|program| kernel::cpu(program.id())).sum()
    }

    /// Sends all of them a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        self.0.iter().for_each(|program| program.signal(name));
    }

    /// Stops all.
    pub(crate) async fn stop(self) {
        for program in self.0 {
            program.stop().await;
        }
    }
}
