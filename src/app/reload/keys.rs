//! What each key of the configuration reaches, and so what must begin anew when it changes. Pure.
//!
//! Every key that is not a role's stands in [`KEYS`] by its full name: a test walks the schema, so that a new key can't be
//! forgotten. A role's keys reach that role, but for those that its registration says need a new process.

use crate::roles::ROLES;

/// How far a changed key reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// The log: at once, nothing begins anew.
    Log,
    /// The calls to the driver that begin from now on; nothing begins anew.
    Calls,
    /// One role, which ends what is in flight and begins anew. Its Lease and its term go on.
    Role,
    /// Every Lease: work in flight ends, the Lease is handed back, and is run for anew.
    Leases,
    /// What the process is built on when it starts. Not to be changed while it runs.
    Process,
}

use Reach::{Calls, Leases, Log, Process};

/// Every key outside the roles.
///
/// Why a key needs a new process: the endpoint, the API and the diagnostics port are what everything else holds on to; the
/// form of the log and the exporter of traces are set up once for a process, and so are its threads.
pub(super) const KEYS: &[(&str, Reach)] = &[
    ("csi.endpoint", Process),
    ("csi.timeout", Calls),
    ("csi.maxMessageBytes", Calls),
    ("csi.maxLogLength", Calls),
    ("kubernetes.kubeconfig", Process),
    ("kubernetes.maxInFlight", Process),
    ("kubernetes.requestTimeout", Process),
    ("leaderElection.enabled", Leases),
    ("leaderElection.namespace", Leases),
    ("leaderElection.leaseDuration", Leases),
    ("leaderElection.renewDeadline", Leases),
    ("leaderElection.retryPeriod", Leases),
    ("leaderElection.labels", Leases),
    ("diagnostics.listen", Process),
    ("telemetry.logs.level", Log),
    ("telemetry.logs.format", Process),
    ("telemetry.traces.endpoint", Process),
    ("telemetry.traces.sampleRatio", Process),
    ("runtime.workerThreads", Process),
];

/// What a key reaches. A key that nobody knows is taken for the worst.
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

/// Whether a key is this one, or stands below it: there the user's own stand, such as labels.
fn is_of(key: &str, known: &str) -> bool {
    key.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a changed key is refused by a daemon that runs: it is read only when a process starts.
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
