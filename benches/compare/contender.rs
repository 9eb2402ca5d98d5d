//! Who is measured: a program, how it is started, and for which work.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::arguments::Arguments;
use crate::programs::{self, Program};
use crate::workload::Workload;

/// The namespace of everyone's account and Lease.
pub(crate) const NAMESPACE: &str = "kube-system";

/// Where a contender sits down.
#[derive(Debug, Clone)]
pub(crate) struct Seat<'a> {
    /// For its files and its log.
    pub(crate) folder: &'a Path,
    /// How to reach the API, and as whom.
    pub(crate) kubeconfig: &'a Path,
    /// The driver's socket.
    pub(crate) socket: &'a Path,
    /// Two of a kind share the work by a Lease of 15 s, renewed within 10 s, tried every 5 s: everyone's defaults.
    pub(crate) leader_election: bool,
    /// The sidecars whose work is to be done.
    pub(crate) sidecars: &'static [&'static str],
    /// Tells two of a kind apart: the host name that it sees.
    pub(crate) host: &'a str,
}

/// Who is measured.
pub(crate) trait Contender: Send + Sync {
    /// Its name, fit for a file.
    fn name(&self) -> &'static str;
    /// Whether it does this work.
    fn does(&self, workload: &dyn Workload) -> bool;
    /// Whether it has a limit of requests per second that the work runs into.
    fn is_throttled(&self) -> bool;
    /// Its program.
    fn file(&self) -> PathBuf;
    /// Its arguments at this seat. May write files.
    fn arguments(&self, seat: &Seat<'_>) -> Vec<String>;

    /// Starts it. Its log is of its name and host.
    fn start(&self, seat: &Seat<'_>) -> Program {
        let name = format!("{}-{}", self.name(), seat.host);
        // A host name of its own: sidecars on one host take each other for themselves.
        let script = "hostname \"$0\"; exec \"$@\"";
        let mut arguments: Vec<String> =
            ["--map-root-user", "--uts", "sh", "-c", script, seat.host].map(str::to_owned).to_vec();
        arguments.push(self.file().display().to_string());
        arguments.extend(self.arguments(seat));
        if seat.leader_election {
            return Program::run(seat.folder, &name, Path::new("unshare"), &arguments);
        }
        Program::run(seat.folder, &name, &self.file(), &self.arguments(seat))
    }
}

/// Those that were asked for.
pub(crate) fn all(arguments: &Arguments) -> Vec<Box<dyn Contender>> {
    let go = |program, tuned| -> Box<dyn Contender> { Box::new(Sidecar { program, tuned }) };
    let all: [Box<dyn Contender>; 5] = [
        go("csi-attacher", false),
        go("csi-provisioner", false),
        Box::new(Daemon { binary: arguments.binary.clone() }),
        go("csi-attacher", true),
        go("csi-provisioner", true),
    ];
    all.into_iter().filter(|one| Arguments::wants(&arguments.contenders, one.name())).collect()
}

/// The image's binary at its defaults, with the roles that replace the sidecars. There is nothing to tune.
struct Daemon {
    binary: PathBuf,
}

impl Contender for Daemon {
    fn name(&self) -> &'static str {
        crate::report::US
    }

    fn does(&self, _workload: &dyn Workload) -> bool {
        true
    }

    fn is_throttled(&self) -> bool {
        false
    }

    fn file(&self) -> PathBuf {
        assert!(self.binary.is_file(), "{} is not built: `just compare` does", self.binary.display());
        self.binary.clone()
    }

    fn arguments(&self, seat: &Seat<'_>) -> Vec<String> {
        let mut yaml = String::new();
        writeln!(yaml, "csi: {{ endpoint: {:?} }}", format!("unix://{}", seat.socket.display())).unwrap();
        writeln!(yaml, "kubernetes: {{ kubeconfig: {:?} }}", seat.kubeconfig.display().to_string()).unwrap();
        writeln!(yaml, "leaderElection: {{ namespace: {NAMESPACE} }}").unwrap();
        // As in csi-attacher's default there is no fixed port that two processes would fight for.
        writeln!(yaml, "diagnostics: {{ listen: 127.0.0.1:0 }}").unwrap();
        writeln!(yaml, "roles:").unwrap();
        for sidecar in seat.sidecars {
            let roles = if *sidecar == "csi-attacher" { "  attacher:\n  reconciler:" } else { "  provisioner:" };
            writeln!(yaml, "{roles}").unwrap();
        }
        let path = seat.folder.join(format!("{}-{}.yaml", self.name(), seat.host));
        std::fs::write(&path, yaml).unwrap();
        vec!["run".to_owned(), "--config".to_owned(), path.display().to_string()]
    }
}

/// A Go sidecar, at its defaults or tuned.
struct Sidecar {
    program: &'static str,
    tuned: bool,
}

impl Contender for Sidecar {
    fn name(&self) -> &'static str {
        match (self.program, self.tuned) {
            ("csi-attacher", true) => "csi-attacher-tuned",
            ("csi-provisioner", true) => "csi-provisioner-tuned",
            (program, _) => program,
        }
    }

    fn does(&self, workload: &dyn Workload) -> bool {
        workload.sidecars().contains(&self.program)
    }

    fn is_throttled(&self) -> bool {
        !self.tuned
    }

    fn file(&self) -> PathBuf {
        programs::find(self.program)
    }

    fn arguments(&self, seat: &Seat<'_>) -> Vec<String> {
        let mut arguments = vec![
            format!("--kubeconfig={}", seat.kubeconfig.display()),
            format!("--csi-address={}", seat.socket.display()),
        ];
        if self.tuned {
            let tuned = ["--kube-api-qps=1000", "--kube-api-burst=1000", "--worker-threads=100"];
            arguments.extend(tuned.map(str::to_owned));
        }
        if seat.leader_election {
            arguments.push("--leader-election".to_owned());
            arguments.push(format!("--leader-election-namespace={NAMESPACE}"));
        }
        arguments
    }
}
