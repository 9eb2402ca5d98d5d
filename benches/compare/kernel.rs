//! What the kernel says of a process.

use std::fs;

/// Memory in RAM: now, and at most so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) now: f64,
    pub(crate) peak: f64,
}

/// The memory of a process, in bytes.
pub(crate) fn memory(process: u32) -> Memory {
    Memory { now: bytes(process, "VmRSS:"), peak: bytes(process, "VmHWM:") }
}

/// The part of it that is the process's own and not mapped from a file: pages of its binary are everyone's who runs the same.
pub(crate) fn anonymous(process: u32) -> f64 {
    bytes(process, "RssAnon:")
}

fn bytes(process: u32, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
}

/// User and system time of a process so far, in milliseconds. The kernel counts nanoseconds and tells ticks of 10 ms.
pub(crate) fn cpu(process: u32) -> f64 {
    crate::support::cpu(&process.to_string()) as f64
}
