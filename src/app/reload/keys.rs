//! What each key of the configuration affects, and so what must restart when it changes. Pure. [`KEYS`] has every key
//! that is not a role's by its full name: a test compares it with the schema, so that no key is missing. A role's keys
//! affect that role, except those that need a new process according to its registration.

use crate::roles::ROLES;

/// What a changed key affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// The log: at once, nothing restarts.
    Log,
    /// New calls to the driver; nothing restarts.
    Calls,
    /// One role, which waits for its work in flight and restarts. Its Lease and its term continue.
    Role,
    /// Every Lease: the work in flight ends, the Lease is released, and acquired again.
    Leases,
    /// The process. Can't be changed while it runs.
    Process,
}

use Reach::{Calls, Leases, Log, Process};

/// Every key outside the roles.
///
/// Why a key needs a new process: all other parts use the endpoint, the API and the diagnostics port; the format of the
/// log, the exporter of traces and the threads are set up once per process.
pub(super) const KEYS: &[(&str, Reach)] = &[
    ("csi.endpoint", Process),
    ("csi.timeout", Calls),
    ("csi.maxMessageBytes", Calls),
    ("csi.maxLogLength", Calls),
    ("csi.concurrency.adaptive", Calls),
    ("csi.concurrency.min", Calls),
    ("csi.concurrency.max", Calls),
    ("kubernetes.kubeconfig", Process),
    ("kubernetes.maxInFlight", Process),
    ("kubernetes.requestTimeout", Process),
    ("leaderElection.enabled", Leases),
    ("leaderElection.namespace", Leases),
    ("leaderElection.leaseDuration", Leases),
    ("leaderElection.renewDeadline", Leases),
    ("leaderElection.retryPeriod", Leases),
    ("leaderElection.watchHolderPod", Leases),
    ("leaderElection.labels", Leases),
    ("diagnostics.listen", Process),
    ("telemetry.logs.level", Log),
    ("telemetry.logs.format", Process),
    ("telemetry.traces.endpoint", Process),
    ("telemetry.traces.sampleRatio", Process),
    ("runtime.workerThreads", Process),
];

/// What a key affects. An unknown key affects the process.
pub(super) fn reach(key: &str) -> Reach {
    if let Some(role) = role(key) {
        return if needs_process(role, key) { Process } else { Reach::Role };
    }
    KEYS.iter().find(|(known, _)| is_of(key, known)).map_or(Process, |(_, reach)| *reach)
}

/// Whether the role says that this key of its section is read only when a process starts.
fn needs_process(role: &str, key: &str) -> bool {
    let own = key.strip_prefix("roles.").and_then(|rest| rest.strip_prefix(role)?.strip_prefix('.'));
    let registration = ROLES.iter().find(|registration| registration.name == role);
    let fixed = registration.map_or(&[][..], |registration| registration.restart_keys);
    own.is_some_and(|own| fixed.iter().any(|known| is_of(own, known)))
}

/// Whether a key is this one, or is below it, such as a user's label.
fn is_of(key: &str, known: &str) -> bool {
    key.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a running daemon refuses a change of this key, because it is read only when a process starts.
pub fn needs_restart(key: &str) -> bool {
    reach(key) == Process
}

/// The role that a key belongs to.
pub(super) fn role(key: &str) -> Option<&str> {
    key.strip_prefix("roles.")?.split('.').next()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::config::Config;
    use crate::roles::sections;

    /// The paths of all keys that hold a value and no further keys of ours.
    fn leaves(schema: &Value) -> Vec<String> {
        let properties = schema["properties"].as_object().into_iter().flatten();
        properties
            .flat_map(|(name, child)| match leaves(child) {
                below if below.is_empty() => vec![name.clone()],
                below => below.into_iter().map(|key| format!("{name}.{key}")).collect(),
            })
            .collect()
    }

    #[test]
    fn every_key_of_the_schema_has_its_reach_and_no_other_key_has_one() {
        let keys: BTreeSet<String> = leaves(&Config::schema(&sections())).into_iter().collect();
        assert!(keys.len() > 40, "{keys:?}");
        for key in &keys {
            let listed = KEYS.iter().filter(|(known, _)| known == key).count();
            let active = role(key).is_some_and(|name| ROLES.iter().any(|role| role.name == name));
            assert!(listed == 1 || (listed == 0 && active), "say in KEYS what {key} reaches ({listed} times there)");
        }
        for (known, _) in KEYS {
            assert!(keys.contains(*known), "{known} is no key");
        }
        for (role, known) in ROLES.iter().flat_map(|role| role.restart_keys.iter().map(|key| (role.name, key))) {
            assert!(keys.contains(&format!("roles.{role}.{known}")), "{known} is no key of {role}");
        }
    }

    #[test]
    fn the_users_own_keys_reach_what_the_key_above_them_does() {
        for (key, expected) in [
            ("leaderElection.labels.team", Leases),
            ("leaderElection.labels.example.com/team", Leases),
            ("leaderElection.labelsX", Process),
            ("telemetry.logs", Process),
            ("unheard.of", Process),
            ("roles", Process),
            ("roles.attacher", Reach::Role),
            ("roles.attacher.retry.max", Reach::Role),
            ("roles.provisioner.nodeDeployment.enabled", Process),
            ("roles.provisioner.nodeDeployment.baseDelay", Reach::Role),
        ] {
            assert_eq!(reach(key), expected, "{key}");
        }
    }
}
