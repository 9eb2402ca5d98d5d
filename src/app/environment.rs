//! The environment of a daemon: real sockets and clocks, or simulated ones.

use std::collections::BTreeMap;

use crate::build;
use crate::cluster::ClusterAccess;
use crate::diagnostics::Door;
use crate::process::{Clock, Dial, Proxies, Rng};
use crate::roles::Instance;
use crate::telemetry::{LogSettings, Meter, TelemetrySection, TelemetrySettings, TelemetryState, TraceSettings};

use super::reload::Configuration;

/// Where nothing says in which namespace we run.
pub(super) const DEFAULT_NAMESPACE: &str = "default";

/// Everything outside the process that the daemon uses, as values.
#[derive(Debug)]
pub struct Environment {
    /// Time.
    pub clock: Clock,
    /// Chance.
    pub rng: Rng,
    /// Figures.
    pub meter: Meter,
    /// How to reach the Kubernetes API.
    pub cluster: ClusterAccess,
    /// The proxies that the environment names.
    pub proxies: Proxies,
    /// How to reach the driver.
    pub driver: Dial,
    /// The driver's address, for people.
    pub endpoint: String,
    /// Where this process runs. Its namespace has the Leases, unless the configuration names another.
    pub instance: Instance,
    /// Where diagnostics are served, if anywhere.
    pub diagnostics: Option<Door>,
    /// The state of logs and traces.
    pub telemetry: TelemetryState,
    /// The source of the configuration, if the daemon watches it for changes.
    pub configuration: Option<Configuration>,
}

impl Environment {
    /// Where we run: `POD_NAME`, `NODE_NAME`, and what the other two functions find. The container is not looked for.
    pub fn instance(variables: &BTreeMap<String, String>) -> Instance {
        let told = |key: &str| variables.get(key).filter(|value| !value.is_empty()).cloned();
        Instance {
            host: Self::host_name(variables),
            namespace: Self::pod_namespace(variables),
            leases: Some(Self::lease_namespace(variables)),
            pod: told("POD_NAME"),
            node: told("NODE_NAME"),
            container: None,
        }
    }

    /// The namespace of the pod that we run in: `POD_NAMESPACE`, else `NAMESPACE`, which csi-provisioner reads for its capacity
    /// objects, else the service account's.
    pub fn pod_namespace(variables: &BTreeMap<String, String>) -> Option<String> {
        Self::told_namespace(variables).or_else(account_namespace)
    }

    /// The namespace of our Leases, unless the configuration names one: `POD_NAMESPACE`, else the service account's, else
    /// `default`. csi-lib-utils has the same rule, so a Go sidecar and we compete for the same Lease. It knows neither
    /// `NAMESPACE` nor the namespace of a kubeconfig's context.
    pub fn lease_namespace(variables: &BTreeMap<String, String>) -> String {
        let told = variables.get("POD_NAMESPACE").and_then(|namespace| trimmed(namespace));
        told.or_else(account_namespace).unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())
    }

    /// The same without the service account, because `check` may run in another pod, for example of a CI pipeline.
    pub fn told_namespace(variables: &BTreeMap<String, String>) -> Option<String> {
        ["POD_NAMESPACE", "NAMESPACE"].iter().find_map(|key| variables.get(*key).and_then(|found| trimmed(found)))
    }

    /// The host name: the pod's in a cluster.
    pub fn host_name(variables: &BTreeMap<String, String>) -> String {
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .or_else(|| variables.get("HOSTNAME").cloned())
            .map(|host| host.trim().to_owned())
            .filter(|host| !host.is_empty())
            .unwrap_or_else(|| "unknown-host".to_owned())
    }
}

/// The namespace of the service account that is mounted in our pod.
fn account_namespace() -> Option<String> {
    const FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
    std::fs::read_to_string(FILE).ok().as_deref().and_then(trimmed)
}

fn trimmed(namespace: &str) -> Option<String> {
    Some(namespace.trim().to_owned()).filter(|namespace| !namespace.is_empty())
}

/// What the configuration says of logs and traces, for [`crate::telemetry::Telemetry::install`].
pub fn telemetry_settings(section: &TelemetrySection, host: &str) -> TelemetrySettings {
    TelemetrySettings {
        logs: LogSettings { level: section.logs.level.clone(), format: section.logs.format },
        traces: TraceSettings {
            endpoint: section.traces.endpoint.clone(),
            sample_ratio: section.traces.sample_ratio,
            version: build::VERSION.to_owned(),
            instance: host.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What csi-lib-utils and csi-provisioner read.
    #[test]
    fn the_leases_are_where_the_go_sidecars_have_them_and_the_rest_is_in_the_pods_namespace() {
        type Variables = &'static [(&'static str, &'static str)];
        let cases: [(Variables, Option<&str>, Option<&str>); 6] = [
            (&[], None, None),
            (&[("POD_NAMESPACE", "storage")], Some("storage"), Some("storage")),
            (&[("POD_NAMESPACE", " storage\n")], Some("storage"), Some("storage")),
            (&[("NAMESPACE", "capacity")], Some("capacity"), None),
            (&[("POD_NAMESPACE", "storage"), ("NAMESPACE", "capacity")], Some("storage"), Some("storage")),
            (&[("POD_NAMESPACE", ""), ("NAMESPACE", "capacity")], Some("capacity"), None),
        ];
        let account = account_namespace();
        for (variables, namespace, leases) in cases {
            let variables = variables.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let instance = Environment::instance(&variables);
            assert_eq!(instance.namespace.as_deref(), namespace.or(account.as_deref()), "{variables:?}");
            let leases = leases.or(account.as_deref()).unwrap_or("default");
            assert_eq!(instance.leases.as_deref(), Some(leases), "{variables:?}");
        }
    }
}
