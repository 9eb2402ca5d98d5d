//! Pods of one cluster that serve another, such as the control plane of a hosted cluster: a kubeconfig names it. There are the
//! Leases, the volumes, the journal and the rights; only the workload and its configuration are where the pods run. Pure.

use crate::roles::sidecars::leads;

use super::report::Fault;
use super::settle::{Chosen, Source};

/// How the steps call the user's copy of the kubeconfig.
pub(super) const COPY: &str = "SERVED";
/// The placeholder of the user of the kubeconfig, in the bindings.
pub(super) const USER: &str = "USER";

/// The cluster that is served, if it is not the pods' own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Elsewhere {
    /// The kubeconfig's path in the pod.
    pub(super) kubeconfig: String,
    /// The namespace there of the Leases and of what the daemon keeps; `None`: nothing says it.
    pub(super) namespace: Option<String>,
}

impl Elsewhere {
    /// Where the sidecars have worked; `chosen` holds the namespace of their Leases.
    pub(super) fn of(chosen: &[Chosen]) -> Option<Self> {
        let text = |key: &str| chosen.iter().find(|one| one.key == key)?.value.as_str().map(str::to_owned);
        Some(Self { kubeconfig: text("kubernetes.kubeconfig")?, namespace: text("leaderElection.namespace") })
    }

    /// What must be known of it.
    pub(super) fn note(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or("of the same name");
        format!(
            "the sidecars serve the cluster of {}, not the cluster of their pods: rbac.yaml and bindings.yaml are for that cluster, and \
             bindings.yaml says {USER} for the user of that kubeconfig. Leases and the daemon's own objects are in its namespace \
             {namespace}, which must exist there",
            self.kubeconfig
        )
    }
}

/// Sidecars that work with another cluster than the rest: one daemon serves one.
pub(super) fn disagreement(sources: &[Source]) -> Option<Fault> {
    let path = |source: &Source| source.setting("kubernetes.kubeconfig").map(|flag| flag.given.clone());
    let leading = || sources.iter().filter(|source| leads(source.sidecar));
    let with = leading().find_map(|source| Some((source, path(source)?)));
    let without = leading().find(|source| path(source).is_none());
    let ((with, given), without) = (with?, without?);
    let found = format!("{} {given}, and {} works with the cluster of its pod", with.container, without.container);
    Some(Fault::new("kubernetes.kubeconfig", found, "the same value for all: one daemon serves one cluster"))
}
