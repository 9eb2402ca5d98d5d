//! The bench's own client in a contender's place: what the API server lets through.

use std::path::PathBuf;

use super::{Contender, Seat, Share, Start};
use crate::workload::Workload;
use crate::write::Writes;

/// It has no process, and writes what a workload says that is written under its name.
pub(super) struct Bare(pub(super) &'static str);

impl Contender for Bare {
    fn name(&self) -> &'static str {
        self.0
    }

    fn does(&self, workload: &dyn Workload) -> bool {
        self.writes(workload).is_some()
    }

    fn is_throttled(&self) -> bool {
        false
    }

    fn share(&self) -> Share {
        Share::Part
    }

    fn processes(&self, _seat: &Seat<'_>) -> Vec<Start> {
        Vec::new()
    }

    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn writes(&self, workload: &dyn Workload) -> Option<Writes> {
        workload.bare().iter().find(|(whose, _)| *whose == self.0).map(|(_, writes)| *writes)
    }
}
