//! `kubernetes:` in the configuration file.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process::{Faults, Section, duration};

/// The address of the Kubernetes API, and the limits of its use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubernetesSection {
    /// Path of a kubeconfig file. null: `$KUBECONFIG` or `~/.kube/config` if there is one, else the pod's account.
    pub kubeconfig: Option<PathBuf>,
    /// How many requests may be in flight at once, without watches and Lease renewals.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_in_flight: usize,
    /// Deadline of one request; watches have none.
    #[serde(with = "duration::Text")]
    pub request_timeout: Duration,
}

impl Default for KubernetesSection {
    fn default() -> Self {
        // In flight: below the 200 mutating requests that a kube-apiserver serves at once for all its clients together.
        Self { kubeconfig: None, max_in_flight: 128, request_timeout: Duration::from_secs(30) }
    }
}

impl Section for KubernetesSection {
    fn check(&self, faults: &mut Faults) {
        if self.kubeconfig.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
            faults.add("kubeconfig", "\"\"", "a path, or null");
        }
        duration::check_some("requestTimeout", self.request_timeout, faults);
    }
}
