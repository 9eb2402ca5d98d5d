//! node-driver-registrar v2.17: how it is recognised, and what its settings are here.

use crate::config::changes::{Change, KLOG, changes};
use crate::config::flags::{Flag, flags};
use crate::config::sidecar::{ProbePort, Sidecar, Signs};

/// node-driver-registrar.
pub const SIDECAR: Sidecar = Sidecar {
    name: "node-driver-registrar",
    signs: Signs { words: &["node-driver-registrar"], flags: &["kubelet-registration-path"] },
    roles: &[super::NAME],
    flags: FLAGS,
    changes: CHANGES,
    at_end: Some(
        "the daemon removes its registration socket itself when it ends, and a driver replaces its own socket when it starts",
    ),
    probes: &[ProbePort { key: "roles.registrar.healthListen", usual: None, is_shared: false }],
    ..Sidecar::PLAIN
};

/// What its versions brought and took away: the change logs of its releases.
const CHANGES: &[Change] = changes! {
    2, 0, &["health-port", "plugin-registration-path"], &[];
    2, 1, &["http-endpoint", "timeout"], &[];
    2, 3, &["mode"], &[];
    2, 4, &["enable-pprof"], &[];
    2, 11, &["logging-format"], KLOG;
    2, 14, &["automaxprocs"], &[];
};

/// What it has of its own, once had, and what means another thing for it.
const FLAGS: &[Flag] = flags! {
    "kubelet-registration-path", Text, Key("roles.registrar.kubeletRegistrationPath"),
        "not required: null follows the convention `/var/lib/kubelet/plugins/<driver>/<socket>`";
    "plugin-registration-path", Text, Key("roles.registrar.directory"), "same default";
    "timeout", Time, Gone, "of node-driver-registrar alone; the driver's answer has `csi.timeout`, a check of the own socket 1s";
    "http-endpoint", Text, Key("roles.registrar.healthListen"),
        "of node-driver-registrar alone: `/healthz` as it was; `/readyz` of `diagnostics.listen` says more";
    "health-port", Count, Key("roles.registrar.healthListen"), "of node-driver-registrar alone; a port is `[::]:PORT`, 0 is null";
    "mode", Text, Gone,
        "an exec probe with `kubelet-registration-probe` always succeeds, and so does the command `registration-probe`; `/livez` and \
         `/readyz` of `diagnostics.listen` ask the socket";
    "enable-pprof", Switch, Gone, "Go's profiler; traces show where time is spent: `telemetry.traces.endpoint`";
};
