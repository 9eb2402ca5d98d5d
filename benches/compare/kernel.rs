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
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let bytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
    };
    Memory { now: bytes("VmRSS:"), peak: bytes("VmHWM:") }
}

/// User and system time of a process so far, in milliseconds. The kernel counts nanoseconds and tells ticks of 10 ms.
pub(crate) fn cpu(process: u32) -> f64 {
    crate::support::cpu(&process.to_string()) as f64
}
