//! Who is measured: programs, how they are started, and for which work.

mod bare;
mod crew;
mod daemon;
mod manager;
mod sidecar;

use std::path::{Path, PathBuf};

pub(crate) use crew::Crew;

use crate::arguments::Arguments;
use crate::programs::Program;
use crate::report;
use crate::workload::Workload;
use crate::write::Writes;
use bare::Bare;
use daemon::Daemon;
use manager::Manager;
use sidecar::{Sidecar, Sidecars};

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
    /// The scheduler is told how much room there is.
    pub(crate) capacity: bool,
    /// Tells two of a kind apart: the host name that it sees.
    pub(crate) host: &'a str,
}

/// How much of the work of several sidecars a contender does, and in how many processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Some of it, in one process.
    Part,
    /// All of it, in one process.
    Whole,
    /// All of it, in a process for each sidecar.
    Several,
}

/// A process of a contender.
pub(crate) struct Start {
    /// What tells it from the contender's others.
    pub(crate) name: &'static str,
    pub(crate) file: PathBuf,
    pub(crate) arguments: Vec<String>,
}

/// Who is measured.
pub(crate) trait Contender: Send + Sync {
    /// Its name, fit for a file.
    fn name(&self) -> &'static str;
    /// Whether it does this work.
    fn does(&self, workload: &dyn Workload) -> bool;
    /// Whether it has a limit of requests per second that the work runs into.
    fn is_throttled(&self) -> bool;
    /// How much of the work of several sidecars it does.
    fn share(&self) -> Share;
    /// Its processes at this seat. May write files.
    fn processes(&self, seat: &Seat<'_>) -> Vec<Start>;
    /// Its programs.
    fn files(&self) -> Vec<PathBuf>;

    /// What it writes itself, where it is no program but the bench's own client.
    fn writes(&self, _workload: &dyn Workload) -> Option<Writes> {
        None
    }

    /// The size of its programs together, in bytes.
    fn size(&self) -> f64 {
        self.files().iter().map(|file| std::fs::metadata(file).unwrap().len() as f64).sum()
    }

    /// Starts it. Its logs are of its name and host.
    fn start(&self, seat: &Seat<'_>) -> Crew {
        Crew::of(self.processes(seat).into_iter().map(|process| run(self.name(), seat, process)).collect())
    }
}

fn run(contender: &str, seat: &Seat<'_>, process: Start) -> Program {
    let name = format!("{contender}-{}{}", seat.host, process.name);
    let mut before: Vec<String> = Vec::new();
    if seat.leader_election {
        // A host name of its own: sidecars on one host take each other for themselves.
        let script = "hostname \"$0\"; exec \"$@\"";
        before.extend(["unshare", "--map-root-user", "--uts", "sh", "-c", script, seat.host].map(str::to_owned));
    }
    // The pod's namespace: where the journal and the capacity objects go.
    before.extend(["env".to_owned(), format!("NAMESPACE={NAMESPACE}"), format!("POD_NAMESPACE={NAMESPACE}")]);
    before.push(process.file.display().to_string());
    before.extend(process.arguments);
    let file = before.remove(0);
    Program::run(seat.folder, &name, Path::new(&file), &before)
}

/// Those that were asked for.
pub(crate) fn all(arguments: &Arguments) -> Vec<Box<dyn Contender>> {
    let go = |program, tuned| -> Box<dyn Contender> { Box::new(Sidecar { program, tuned }) };
    let us = |daemon: fn(PathBuf) -> Daemon| -> Box<dyn Contender> { Box::new(daemon(arguments.binary.clone())) };
    let all: [Box<dyn Contender>; 20] = [
        go("csi-attacher", false),
        go("csi-provisioner", false),
        go("csi-resizer", false),
        go("csi-snapshotter", false),
        us(Daemon::whole),
        go("csi-attacher", true),
        go("csi-provisioner", true),
        go("csi-resizer", true),
        go("csi-snapshotter", true),
        Box::new(Bare(report::BARE)),
        us(Daemon::without_intent),
        Box::new(Bare(report::BARE_WITHOUT_INTENT)),
        us(Daemon::with_attacher),
        us(Daemon::with_attacher_and_reconciler),
        us(Daemon::with_resizer),
        us(Daemon::without_snapshotter),
        us(Daemon::apart),
        Box::new(Sidecars),
        Box::new(Manager { tuned: false }),
        Box::new(Manager { tuned: true }),
    ];
    let before = arguments.before.clone().map(|binary| -> Box<dyn Contender> { Box::new(Daemon::before(binary)) });
    all.into_iter().chain(before).filter(|one| Arguments::wants(&arguments.contenders, one.name())).collect()
}
