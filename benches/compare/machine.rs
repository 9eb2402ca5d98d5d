//! What is measured on, and with which binary.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::programs;
use crate::run::Machine;

/// So much of a binary's digest tells it from others: six bytes.
const DIGEST: usize = 6;

/// This machine.
pub(crate) fn this() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_start_matches([':', ' ', '\t']).to_owned()))
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let programs =
        ["kube-apiserver", "csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"].map(|program| {
            let file = programs::find(program);
            let folder = file.parent().and_then(|folder| folder.file_name()).unwrap_or_default();
            let version = folder.to_string_lossy().into_owned();
            let version = version.split('-').find(|part| part.starts_with('v')).unwrap_or("of the path").to_owned();
            format!("{program} {version}")
        });
    Machine {
        cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
        memory_bytes: memory.trim_end_matches(" kB").parse::<u64>().unwrap_or_default() * 1024,
        kernel: read("/proc/sys/kernel/osrelease").split('-').next().unwrap_or_default().trim().to_owned(),
        programs: programs.to_vec(),
    }
}

/// The commit of this checkout; empty outside of one.
pub(crate) fn commit() -> String {
    let mut git = std::process::Command::new("git");
    let output = git.args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "HEAD"]).output();
    let commit = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    commit.map(|commit| String::from_utf8_lossy(&commit).trim().to_owned()).unwrap_or_default()
}

/// The load average of a minute: runnable tasks of the whole machine, ours and everyone else's.
pub(crate) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The beginning of a binary's SHA-256. Where there is no such file, it takes no part.
pub(crate) fn digest(binary: &Path) -> String {
    let Ok(bytes) = fs::read(binary) else { return "none".to_owned() };
    Sha256::digest(bytes).iter().take(DIGEST).fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
