//! The environment of a daemon: real sockets and clocks, or simulated ones.

use std::collections::BTreeMap;

use crate::cluster::ClusterAccess;
use crate::diagnostics::Door;
use crate::process::{Clock, Dial, Proxies, Rng, build};
use crate::roles::Instance;
use crate::telemetry::{LogSettings, Meter, TelemetrySection, TelemetrySettings, TelemetryState, TraceSettings};

use super::reload::Configuration;

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
    /// Where we run: `POD_NAME`, `NODE_NAME`, and what the other two functions find.
    pub fn instance(variables: &BTreeMap<String, String>) -> Instance {
        let told = |key: &str| variables.get(key).filter(|value| !value.is_empty()).cloned();
        Instance {
            host: Self::host_name(variables),
            namespace: Self::pod_namespace(variables),
            pod: told("POD_NAME"),
            node: told("NODE_NAME"),
        }
    }

    /// The namespace of the pod that we run in: `POD_NAMESPACE`, else `NAMESPACE`, else the service account's, as the Go
    /// sidecars look it up.
    pub fn pod_namespace(variables: &BTreeMap<String, String>) -> Option<String> {
        const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
        let account = || std::fs::read_to_string(SERVICE_ACCOUNT).ok();
        variable(variables).map(str::to_owned).or_else(account).as_deref().and_then(trimmed)
    }

    /// The same without the service account, because `check` may run in another pod, for example of a CI pipeline.
    pub fn told_namespace(variables: &BTreeMap<String, String>) -> Option<String> {
        variable(variables).and_then(trimmed)
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

fn variable(variables: &BTreeMap<String, String>) -> Option<&str> {
    variables.get("POD_NAMESPACE").or_else(|| variables.get("NAMESPACE")).map(String::as_str)
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
