//! Theirs: kube-controller-manager with its attach/detach controller alone, at its defaults or tuned.

use std::path::PathBuf;

use super::{Contender, Seat, Share, Start};
use crate::programs;
use crate::report;
use crate::workload::{MANAGER, Workload};

/// kube-controller-manager.
pub(super) struct Manager {
    pub(super) tuned: bool,
}

impl Contender for Manager {
    fn name(&self) -> &'static str {
        if self.tuned { report::MANAGER_TUNED } else { report::MANAGER }
    }

    fn does(&self, workload: &dyn Workload) -> bool {
        workload.facts().sidecars.contains(&MANAGER)
    }

    fn is_throttled(&self) -> bool {
        !self.tuned
    }

    fn share(&self) -> Share {
        Share::Part
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![programs::find(MANAGER)]
    }

    fn processes(&self, seat: &Seat<'_>) -> Vec<Start> {
        let mut arguments = vec![
            format!("--kubeconfig={}", seat.kubeconfig.display()),
            "--controllers=persistentvolume-attach-detach-controller".to_owned(),
            format!("--leader-elect={}", seat.leader_election),
            "--secure-port=0".to_owned(),
        ];
        if self.tuned {
            arguments.extend(["--kube-api-qps=1000", "--kube-api-burst=1000"].map(str::to_owned));
        }
        vec![Start { name: "", file: programs::find(MANAGER), arguments }]
    }
}
