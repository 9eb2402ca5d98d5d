//! The process's own metrics, with the names that every Prometheus client library uses.
//!
//! Read from `/proc` at each scrape and rendered as text of our own: the recorder's counters hold whole numbers, and
//! CPU seconds are a fraction. Without `/proc` these metrics are absent, and the scrape still succeeds.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::Meter;

/// Clock ticks a second in `/proc`: `USER_HZ`, which Linux has fixed at 100 for every platform that Kubernetes runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// What is known about the process; what could not be read is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessFigures {
    /// User and system CPU time.
    pub cpu_seconds: Option<f64>,
    /// Memory in RAM.
    pub resident_bytes: Option<u64>,
    /// Address space.
    pub virtual_bytes: Option<u64>,
    /// File descriptors in use.
    pub open_fds: Option<u64>,
    /// File descriptors allowed (the soft limit); `None` also when unlimited.
    pub max_fds: Option<u64>,
    /// Start, in seconds since the Unix epoch.
    pub start_seconds: Option<f64>,
    /// Threads.
    pub threads: Option<u64>,
}

/// Everything that `/metrics` answers: the daemon's figures, then the process's.
pub fn exposition(meter: &Meter) -> String {
    let mut text = meter.render();
    ProcessFigures::read(Path::new("/proc")).render(&mut text);
    text
}

impl ProcessFigures {
    /// Reads the figures of this process below `proc`.
    pub fn read(proc: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(proc.join(path)).unwrap_or_default();
        let open = fs::read_dir(proc.join("self/fd")).map(Iterator::count).ok();
        Self {
            // Reading the folder takes a descriptor itself, which is not one of ours.
            open_fds: open.and_then(|count| u64::try_from(count.saturating_sub(1)).ok()),
            ..Self::parse(&text("self/stat"), &text("self/status"), &text("self/limits"), &text("stat"))
        }
    }

    /// Parses `/proc/self/stat`, `/proc/self/status`, `/proc/self/limits` and `/proc/stat`.
    fn parse(stat: &str, status: &str, limits: &str, system: &str) -> Self {
        // The command name, in parentheses, may itself hold spaces and parentheses. The first field after it is number 3.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        let ticks = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<f64>().ok());
        let line = |text: &'_ str, key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)).map(|rest| rest.trim().to_owned())
        };
        let kilobytes = |key: &str| {
            let value = line(status, key)?;
            value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        let boot = line(system, "btime ").and_then(|value| value.parse::<f64>().ok());
        Self {
            cpu_seconds: ticks(14).zip(ticks(15)).map(|(user, kernel)| (user + kernel) / TICKS_PER_SECOND),
            resident_bytes: kilobytes("VmRSS:"),
            virtual_bytes: kilobytes("VmSize:"),
            open_fds: None,
            max_fds: line(limits, "Max open files")
                .and_then(|value| value.split_whitespace().next().and_then(|soft| soft.parse().ok())),
            start_seconds: boot.zip(ticks(22)).map(|(boot, start)| boot + start / TICKS_PER_SECOND),
            threads: line(status, "Threads:").and_then(|value| value.parse().ok()),
        }
    }

    /// Appends the figures in the Prometheus text format.
    fn render(&self, out: &mut String) {
        let mut add = |name: &str, kind: &str, help: &str, value: Option<String>| {
            if let Some(value) = value {
                // Writing to a String cannot fail.
                let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n");
            }
        };
        let whole = |value: Option<u64>| value.map(|value| value.to_string());
        let seconds = |value: Option<f64>| value.map(|value| format!("{value:.2}"));
        add(
            "process_cpu_seconds_total",
            "counter",
            "Total user and system CPU time spent in seconds.",
            seconds(self.cpu_seconds),
        );
        add("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", whole(self.resident_bytes));
        add("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", whole(self.virtual_bytes));
        add("process_open_fds", "gauge", "Number of open file descriptors.", whole(self.open_fds));
        add("process_max_fds", "gauge", "Maximum number of open file descriptors.", whole(self.max_fds));
        add(
            "process_start_time_seconds",
            "gauge",
            "Start time of the process since unix epoch in seconds.",
            seconds(self.start_seconds),
        );
        add("process_threads", "gauge", "Number of OS threads in the process.", whole(self.threads));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "4242 (csi (control) plane) S 1 4242 4242 0 -1 4194560 5125 0 12 0 731 219 0 0 20 0 9 0 \
                        884100 172834816 3310 18446744073709551615 1 1 0 0 0 0 0 4096 17475 0 0 0 17 1 0 0 0 0 0";
    const STATUS: &str = "Name:\tcsi\nVmPeak:\t  170000 kB\nVmSize:\t  168784 kB\nVmRSS:\t   13240 kB\nThreads:\t9\n";
    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
                          Max processes             95000                95000                processes \n\
                          Max open files            1024                 524288               files     \n";
    const SYSTEM: &str = "cpu  1 2 3\nbtime 1790000000\nprocesses 7\n";

    #[test]
    fn figures_are_parsed_even_with_parentheses_in_the_command_name() {
        let figures = ProcessFigures::parse(STAT, STATUS, LIMITS, SYSTEM);
        assert_eq!(
            figures,
            ProcessFigures {
                cpu_seconds: Some(9.5),
                resident_bytes: Some(13_557_760),
                virtual_bytes: Some(172_834_816),
                open_fds: None,
                max_fds: Some(1024),
                start_seconds: Some(1_790_008_841.0),
                threads: Some(9),
            }
        );
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let unlimited = LIMITS.replace("1024  ", "unlimited");
        let figures = ProcessFigures::parse("garbage", "VmRSS: many kB", &unlimited, "");
        assert_eq!(figures, ProcessFigures::default());
        let mut text = String::new();
        figures.render(&mut text);
        assert_eq!(text, "");
    }

    #[test]
    fn cpu_seconds_keep_their_fraction() {
        let mut text = String::new();
        ProcessFigures { cpu_seconds: Some(0.07), ..ProcessFigures::default() }.render(&mut text);
        assert!(text.contains("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 0.07\n"), "{text}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_all_figures() {
        let text = exposition(&Meter::new());
        for name in
            ["cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds", "threads"]
        {
            assert!(text.contains(&format!("\nprocess_{name} ")), "{name} in {text}");
        }
    }
}
