//! livenessprobe v2.19: how it is recognised, and what its settings are here.

use std::time::Duration;

use crate::config::defaults::Version;
use crate::config::flags::Now::Key;
use crate::config::flags::Takes::{Count, Text, Time};
use crate::config::flags::{Flag, flag};
use crate::config::sidecar::{Sidecar, Signs};

/// livenessprobe.
pub const SIDECAR: Sidecar = Sidecar {
    name: "livenessprobe",
    signs: Signs { words: &["livenessprobe", "liveness-probe"], flags: &["probe-timeout"] },
    roles: &[super::NAME],
    flags: FLAGS,
    gates: &[],
    locked_gates: &[],
    timeout: Duration::ZERO,
    defaults: &[],
    // It has no leader election.
    lease_since: Version(0, 0),
    per_node: None,
    advice: |_| None,
};

/// What it has of its own, and what means another thing for it.
const FLAGS: &[Flag] = &[
    flag("probe-timeout", Time, Key("roles.liveness.probeTimeout"), "same default; connecting and Probe together"),
    flag(
        "health-port",
        Count,
        Key("roles.liveness.listen"),
        "same default; a port is `[::]:PORT`: IPv4 and IPv6, where it was IPv4 alone",
    ),
    flag(
        "http-endpoint",
        Text,
        Key("roles.liveness.listen"),
        "of livenessprobe alone; metrics are the daemon's: `diagnostics.listen`, which may be the same address",
    ),
];
