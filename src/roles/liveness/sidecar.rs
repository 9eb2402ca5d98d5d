//! livenessprobe v2.19: how it is recognised, and what its settings are here.

use crate::config::RoleSection;
use crate::config::changes::{Change, KLOG, changes};
use crate::config::defaults::{OldDefault, defaults};
use crate::config::flags::{Flag, flags};
use crate::config::sidecar::{Advice, Moved, ProbePort, Sidecar, Signs};
use crate::process::duration;

use super::LivenessSection;

/// livenessprobe.
pub const SIDECAR: Sidecar = Sidecar {
    name: "livenessprobe",
    signs: Signs { words: &["livenessprobe", "liveness-probe"], flags: &["probe-timeout"] },
    roles: &[super::NAME],
    flags: FLAGS,
    defaults: DEFAULTS,
    changes: CHANGES,
    probes: &[ProbePort { key: "roles.liveness.listen", usual: Some(super::names::PORT), is_shared: true }],
    advice,
    ..Sidecar::PLAIN
};

/// The kubelet's patience is the probe's, which stays as it is on the driver's container.
fn advice(moved: &Moved<'_>) -> Option<Advice> {
    let section: LivenessSection = RoleSection::read(moved.section).ok()?;
    let LivenessSection { listen, probe_timeout, .. } = section;
    let hasty = moved.probes.iter().find(|probe| probe.port == listen.port() && probe.timeout <= probe_timeout)?;
    let [patience, limit] = [hasty.timeout, probe_timeout].map(duration::format);
    Some(Advice {
        note: format!(
            "the livenessProbe of {} has timeoutSeconds: {} and roles.liveness.probeTimeout is {limit}: the kubelet hangs up after \
             {patience}, so that its Event does not say why the driver is not healthy; set timeoutSeconds to more than {limit}",
            hasty.container,
            hasty.timeout.as_secs(),
        ),
        made_anew: None,
    })
}

/// Its defaults that are, or were, not the daemon's.
const DEFAULTS: &[OldDefault] = defaults! {
    "--probe-timeout", Key("roles.liveness.probeTimeout"),
        [0, 0, Text("1s"), "node-and-health spec A1"], [2, 17, Text("3s"), "node-and-health spec A1"];
};

/// What its versions brought and took away: the change logs of its releases.
const CHANGES: &[Change] = changes! {
    2, 0, &[], &["connection-timeout"];
    2, 1, &["metrics-address", "metrics-path"], &[];
    2, 2, &["http-endpoint"], &[];
    2, 12, &["logging-format"], KLOG;
    2, 16, &["automaxprocs"], &[];
};

/// What it has of its own, and what means another thing for it.
const FLAGS: &[Flag] = flags! {
    "probe-timeout", Time, Key("roles.liveness.probeTimeout"), "same default; connecting and Probe together";
    "health-port", Count, Key("roles.liveness.listen"), "same default; a port is `[::]:PORT`: IPv4 and IPv6, where it was IPv4 alone";
    "http-endpoint", Text, Key("roles.liveness.listen"),
        "of livenessprobe alone; metrics are the daemon's: `diagnostics.listen`, which may be the same address";
};
