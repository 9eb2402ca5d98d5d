//! What the figures were measured on. Nothing that names the machine.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::programs;

/// What the figures were measured on.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// kube-apiserver's and the sidecars', as their folders are called.
    pub(crate) programs: Vec<String>,
    /// Runnable tasks of the whole machine when the report was written, ours and everyone else's.
    pub(crate) load: f64,
}

impl Machine {
    /// This one.
    pub(crate) fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_start_matches([':', ' ', '\t']).to_owned()))
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let programs = ["kube-apiserver", "csi-attacher", "csi-provisioner"].map(|program| {
            let file = programs::find(program);
            let folder = file.parent().and_then(|folder| folder.file_name()).unwrap_or_default();
            let version = folder.to_string_lossy().into_owned();
            let version = version.split('-').find(|part| part.starts_with('v')).unwrap_or("of the path").to_owned();
            format!("{program} {version}")
        });
        Self {
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            memory_bytes: memory.trim_end_matches(" kB").parse::<u64>().unwrap_or_default() * 1024,
            kernel: read("/proc/sys/kernel/osrelease").split('-').next().unwrap_or_default().trim().to_owned(),
            programs: programs.to_vec(),
            load: read("/proc/loadavg").split(' ').next().and_then(|text| text.parse().ok()).unwrap_or_default(),
        }
    }
}
