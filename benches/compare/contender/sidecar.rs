//! Theirs: a Go sidecar at its defaults or tuned, and the row of them.

use std::path::PathBuf;

use super::{Contender, NAMESPACE, Seat, Share, Start};
use crate::programs;
use crate::report;
use crate::workload::Workload;

/// A Go sidecar, at its defaults or tuned.
pub(super) struct Sidecar {
    pub(super) program: &'static str,
    pub(super) tuned: bool,
}

impl Sidecar {
    fn arguments(&self, seat: &Seat<'_>) -> Vec<String> {
        let mut arguments = vec![
            format!("--kubeconfig={}", seat.kubeconfig.display()),
            format!("--csi-address={}", seat.socket.display()),
        ];
        let mut add = |more: &[&str]| arguments.extend(more.iter().map(ToString::to_string));
        if self.tuned {
            let workers = if self.program == "csi-resizer" { "--workers=100" } else { "--worker-threads=100" };
            add(&["--kube-api-qps=1000", "--kube-api-burst=1000", workers]);
        }
        if seat.capacity {
            add(&["--enable-capacity", "--capacity-ownerref-level=-1", "--capacity-poll-interval=1h"]);
            if self.tuned {
                add(&["--kube-api-capacity-qps=1000", "--kube-api-capacity-burst=1000", "--capacity-threads=100"]);
            }
        }
        if seat.leader_election {
            add(&["--leader-election", &format!("--leader-election-namespace={NAMESPACE}")]);
        }
        arguments
    }
}

impl Contender for Sidecar {
    fn name(&self) -> &'static str {
        match (self.program, self.tuned) {
            ("csi-attacher", true) => report::THEM_TUNED,
            ("csi-provisioner", true) => report::PROVISIONER_TUNED,
            ("csi-resizer", true) => report::RESIZER_TUNED,
            ("csi-snapshotter", true) => report::SNAPSHOTTER_TUNED,
            (program, _) => program,
        }
    }

    fn does(&self, workload: &dyn Workload) -> bool {
        workload.facts().sidecars.contains(&self.program)
    }

    fn is_throttled(&self) -> bool {
        !self.tuned
    }

    fn share(&self) -> Share {
        Share::Part
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![programs::find(self.program)]
    }

    fn processes(&self, seat: &Seat<'_>) -> Vec<Start> {
        vec![Start { name: "", file: programs::find(self.program), arguments: self.arguments(seat) }]
    }
}

/// The sidecars of a workload side by side, as in a driver's pod, tuned.
pub(super) struct Sidecars;

const ROW: [(Sidecar, &str); 4] = [
    (Sidecar { program: "csi-attacher", tuned: true }, "-attacher"),
    (Sidecar { program: "csi-provisioner", tuned: true }, "-provisioner"),
    (Sidecar { program: "csi-resizer", tuned: true }, "-resizer"),
    (Sidecar { program: "csi-snapshotter", tuned: true }, "-snapshotter"),
];

impl Contender for Sidecars {
    fn name(&self) -> &'static str {
        report::SIDECARS_TUNED
    }

    fn does(&self, workload: &dyn Workload) -> bool {
        workload.facts().sidecars.len() > 1
    }

    fn is_throttled(&self) -> bool {
        false
    }

    fn share(&self) -> Share {
        Share::Several
    }

    fn files(&self) -> Vec<PathBuf> {
        ROW.iter().flat_map(|(sidecar, _)| sidecar.files()).collect()
    }

    fn processes(&self, seat: &Seat<'_>) -> Vec<Start> {
        let start = |(sidecar, name): &(Sidecar, &'static str)| Start {
            name,
            file: programs::find(sidecar.program),
            arguments: sidecar.arguments(seat),
        };
        ROW.iter().filter(|(sidecar, _)| seat.sidecars.contains(&sidecar.program)).map(start).collect()
    }
}
