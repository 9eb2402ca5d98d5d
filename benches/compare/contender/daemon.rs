//! Ours: the image's binary at its defaults, but for leader election where it is alone, as for everyone. There is nothing to tune.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{Contender, NAMESPACE, Seat, Share, Start};
use crate::report;
use crate::workload::{MANAGER, Workload};

const ATTACH_DETACH: &[&str] = &["attachDetach"];
const ATTACHER: &[&str] = &["attacher"];
const ATTACHER_AND_RECONCILER: &[&str] = &["attacher", "reconciler"];
const PROVISIONER: &[&str] = &["provisioner"];
const RESIZER: &[&str] = &["resizer"];
const SNAPSHOTTER: &[&str] = &["snapshotter"];
const ALL_BUT_SNAPSHOTTER: &[&str] = &["attacher", "reconciler", "provisioner", "resizer"];

/// The image's binary.
pub(super) struct Daemon {
    binary: PathBuf,
    name: &'static str,
    /// The roles of each process. Empty: one, with the roles that replace the sidecars of the workload.
    processes: &'static [(&'static str, &'static [&'static str])],
    /// What is about to be asked of the driver is written down on the claim first.
    durable_intent: bool,
    share: Share,
    /// The one workload that it is there for.
    only: Option<&'static str>,
}

impl Daemon {
    /// With the roles that replace the sidecars.
    pub(super) fn whole(binary: PathBuf) -> Self {
        Self { binary, name: report::US, processes: &[], durable_intent: true, share: Share::Whole, only: None }
    }

    /// Another build of the same, for a comparison of a change with what was there before.
    pub(super) fn before(binary: PathBuf) -> Self {
        Self { name: report::US_BEFORE, ..Self::whole(binary) }
    }

    /// With as little durability as csi-provisioner.
    pub(super) fn without_intent(binary: PathBuf) -> Self {
        let (name, only) = (report::US_WITHOUT_INTENT, Some("provision"));
        Self { name, durable_intent: false, only, ..Self::whole(binary) }
    }

    /// With one role of three.
    pub(super) fn with_attacher(binary: PathBuf) -> Self {
        Self::of(binary, report::US_ATTACHER, &[("", ATTACHER)], Share::Part)
    }

    /// With two of three.
    pub(super) fn with_attacher_and_reconciler(binary: PathBuf) -> Self {
        Self::of(binary, report::US_ATTACHER_RECONCILER, &[("", ATTACHER_AND_RECONCILER)], Share::Part)
    }

    /// With the resizer beside the roles that replace the sidecars.
    pub(super) fn with_resizer(binary: PathBuf) -> Self {
        Self::of(binary, report::US_WITH_RESIZER, &[("", ALL_BUT_SNAPSHOTTER)], Share::Part)
    }

    /// With every role but the snapshotter.
    pub(super) fn without_snapshotter(binary: PathBuf) -> Self {
        let of = Self::of(binary, report::US_WITHOUT_SNAPSHOTTER, &[("", ALL_BUT_SNAPSHOTTER)], Share::Part);
        Self { only: Some("all"), ..of }
    }

    /// As two processes, neither of which knows what the other does.
    pub(super) fn apart(binary: PathBuf) -> Self {
        let processes = &[("-attacher", ATTACHER_AND_RECONCILER), ("-provisioner", PROVISIONER)];
        Self::of(binary, report::US_APART, processes, Share::Several)
    }

    fn of(
        binary: PathBuf,
        name: &'static str,
        processes: &'static [(&'static str, &'static [&'static str])],
        share: Share,
    ) -> Self {
        Self { name, processes, share, only: Some("both"), ..Self::whole(binary) }
    }

    fn section(&self, role: &str, seat: &Seat<'_>) -> String {
        let mut keys = Vec::new();
        if role == "provisioner" && !self.durable_intent {
            keys.push("durableIntent: false");
        }
        if role == "provisioner" && seat.capacity {
            // What is measured is begun by a start, and no poll comes in between.
            keys.push("capacity: { enabled: true, ownerLevel: -1, pollInterval: 1h }");
        }
        format!("  {role}: {{ {} }}\n", keys.join(", "))
    }

    fn process(&self, name: &'static str, roles: &[&str], seat: &Seat<'_>) -> Start {
        let mut yaml = String::new();
        writeln!(yaml, "csi: {{ endpoint: {:?} }}", format!("unix://{}", seat.socket.display())).unwrap();
        writeln!(yaml, "kubernetes: {{ kubeconfig: {:?} }}", seat.kubeconfig.display().to_string()).unwrap();
        // As everyone's: only where two share the work. Its namespace is the capacity objects', too.
        let elects = seat.leader_election;
        writeln!(yaml, "leaderElection: {{ enabled: {elects}, namespace: {NAMESPACE} }}").unwrap();
        // As in csi-attacher's default there is no fixed port that two processes would fight for.
        writeln!(yaml, "diagnostics: {{ listen: 127.0.0.1:0 }}").unwrap();
        writeln!(yaml, "roles:").unwrap();
        yaml.extend(roles.iter().map(|role| self.section(role, seat)));
        let path = seat.folder.join(format!("{}-{}{name}.yaml", self.name, seat.host));
        std::fs::write(&path, yaml).unwrap();
        let arguments = vec!["run".to_owned(), "--config".to_owned(), path.display().to_string()];
        Start { name, file: self.binary.clone(), arguments }
    }
}

impl Contender for Daemon {
    fn name(&self) -> &'static str {
        self.name
    }

    fn does(&self, workload: &dyn Workload) -> bool {
        self.only.is_none_or(|only| only == workload.facts().name)
    }

    fn is_throttled(&self) -> bool {
        false
    }

    fn share(&self) -> Share {
        self.share
    }

    fn files(&self) -> Vec<PathBuf> {
        assert!(self.binary.is_file(), "{} is not built: `just compare` does", self.binary.display());
        vec![self.binary.clone()]
    }

    fn processes(&self, seat: &Seat<'_>) -> Vec<Start> {
        self.files();
        if self.processes.is_empty() {
            let of = |sidecar: &&str| match *sidecar {
                "csi-attacher" => ATTACHER_AND_RECONCILER,
                "csi-resizer" => RESIZER,
                "csi-snapshotter" => SNAPSHOTTER,
                MANAGER => ATTACH_DETACH,
                _ => PROVISIONER,
            };
            let roles: Vec<&str> = seat.sidecars.iter().flat_map(of).copied().collect();
            return vec![self.process("", &roles, seat)];
        }
        self.processes.iter().map(|(name, roles)| self.process(name, roles, seat)).collect()
    }
}
