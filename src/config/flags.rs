//! What replaces the Go sidecars' flags, for users who migrate. This file has the flags that all sidecars share; each
//! role has a table of its sidecar's own flags. A test compares `docs/flags.md` with the tables. The command `migrate`
//! reads command lines by these tables, and the command line answers people who try an old flag.

/// What replaces a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Now {
    /// The key that replaces it.
    Key(&'static str),
    /// A command of the command line.
    Verb(&'static str),
    /// Nothing, for the given reason.
    Gone,
}

/// The kind of a flag's value. Go's parser needs it: a switch never takes the next argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing, or `=true` or `=false`.
    Switch,
    /// A whole number.
    Count,
    /// A duration.
    Time,
    /// Any text.
    Text,
}

/// One flag.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What stands behind it.
    pub takes: Takes,
    /// What replaces it.
    pub now: Now,
    /// What differs, or why there is nothing.
    pub note: &'static str,
}

impl Flag {
    /// The key that replaces it, if one does.
    pub fn key(&self) -> Option<&'static str> {
        match self.now {
            Now::Key(key) => Some(key),
            Now::Verb(_) | Now::Gone => None,
        }
    }

    /// What differs from the flag, or why there is no key; empty where nothing differs.
    pub fn difference(&self) -> &'static str {
        if self.note.starts_with("same default") && !self.note.contains(';') { "" } else { self.note }
    }
}

/// The level that stands for a sidecar's `--v`. The modules of others stay at `info`: their details are of no use to people who
/// look after volumes.
pub fn level_of(verbosity: i64) -> &'static str {
    match verbosity {
        ..=3 => "info",
        4 => "info,csi_control_plane=debug",
        _ => "info,csi_control_plane=trace",
    }
}

/// A table of flags, a row a flag: its name, what stands behind it, what replaces it, and what differs.
macro_rules! flags {
    ($($name:literal, $takes:ident, $now:ident $(($what:literal))?, $note:literal;)+) => {
        &[$($crate::config::flags::Flag {
            name: $name,
            takes: $crate::config::flags::Takes::$takes,
            now: $crate::config::flags::Now::$now $(($what))?,
            note: $note,
        }),+]
    };
}
pub(crate) use flags;

/// Flags that every sidecar of the table has, or once had, with one meaning.
pub const SHARED: &[Flag] = flags! {
    "csi-address", Text, Key("csi.endpoint"), "also as a bare path";
    "kubeconfig", Text, Key("kubernetes.kubeconfig"), "null also looks at `$KUBECONFIG` and `~/.kube/config`";
    "master", Text, Gone, "a kubeconfig names the server: `kubernetes.kubeconfig`";
    "timeout", Time, Key("csi.timeout"),
        "one RPC of any role; 15s, where sidecars had 10s or 15s. Each role may have its own `timeout`, and a page of ListVolumes has \
         `pageTimeout`";
    "max-grpc-log-length", Count, Key("csi.maxLogLength"), "8192 instead of no limit; no limit is null, not -1";
    "leader-election", Switch, Key("leaderElection.enabled"), "true instead of false";
    "enable-leader-election", Switch, Key("leaderElection.enabled"), "an older name of `leader-election`";
    "leader-election-namespace", Text, Key("leaderElection.namespace"), "same default";
    "leader-election-lease-duration", Time, Key("leaderElection.leaseDuration"), "same default";
    "leader-election-renew-deadline", Time, Key("leaderElection.renewDeadline"), "same default";
    "leader-election-retry-period", Time, Key("leaderElection.retryPeriod"), "same default";
    "leader-election-labels", Text, Key("leaderElection.labels"), "a mapping instead of `key:value,…`";
    "kube-api-qps", Text, Gone,
        "instead, the daemon obeys the server's flow control (429 and Retry-After); `kubernetes.maxInFlight` limits the requests in flight";
    "kube-api-burst", Count, Gone, "see `kube-api-qps`";
    "http-endpoint", Text, Key("diagnostics.listen"),
        "on by default: `[::]:8080`, all addresses of IPv4 and IPv6; the host may not be left out";
    "metrics-address", Text, Key("diagnostics.listen"), "already deprecated in the sidecars";
    "metrics-path", Text, Gone, "always `/metrics`: probes and the status page have fixed paths on the same server too";
    "automaxprocs", Switch, Key("runtime.workerThreads"), "null, the default, follows the container's CPU quota up to 4 cores";
    "version", Switch, Verb("version"), "also as `--version`";
    "v", Count, Key("telemetry.logs.level"), "by name: 2 is `info`, 4 is `debug`, 5 is `trace`";
    "vmodule", Text, Key("telemetry.logs.level"), "`info,csi_control_plane::csi=debug`";
    "logging-format", Text, Key("telemetry.logs.format"), "json instead of text";
    "log-flush-frequency", Time, Gone, "every line is written at once";
    "log-text-split-stream", Switch, Gone, "all lines go to the standard error stream; a collector splits by level";
    "log-json-split-stream", Switch, Gone, "see `log-text-split-stream`";
    "log-text-info-buffer-size", Text, Gone, "every line is written at once";
    "log-json-info-buffer-size", Text, Gone, "every line is written at once";
    "leader-election-identity", Text, Gone,
        "also removed from the sidecars; always generated, because two processes may share everything else";
    "leader-election-type", Text, Gone, "also removed from the sidecars; always a Lease";
    "connection-timeout", Time, Gone, "also removed from the sidecars; the daemon waits for the driver, and says so on its status page";
    "logtostderr", Switch, Gone, "an option of klog; logs go to the standard error stream, in the format of `telemetry.logs.format`";
    "alsologtostderr", Switch, Gone, "see `logtostderr`";
    "stderrthreshold", Text, Gone, "see `logtostderr`";
    "log_backtrace_at", Text, Gone, "see `logtostderr`";
    "log_dir", Text, Gone, "see `logtostderr`";
    "log_file", Text, Gone, "see `logtostderr`";
    "log_file_max_size", Count, Gone, "see `logtostderr`";
    "add_dir_header", Switch, Gone, "see `logtostderr`";
    "skip_headers", Switch, Gone, "see `logtostderr`";
    "skip_log_headers", Switch, Gone, "see `logtostderr`";
    "one_output", Switch, Gone, "see `logtostderr`";
};
