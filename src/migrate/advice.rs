//! What the user should know of what was written, and do with it. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_yaml::Value;

use crate::app::Plan;
use crate::process::duration;

use super::document::Workload;

/// A call in flight is let end before the Lease is handed over: the pod must live as long.
pub(super) fn grace(timeout: Duration, workload: &Workload, notes: &mut Vec<String>) {
    let grace = workload.pod.get("terminationGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(30);
    if timeout >= Duration::from_secs(grace) {
        notes.push(format!(
            "csi.timeout is {} and the pod's terminationGracePeriodSeconds {grace}: raise it above the timeout, so that a call in \
             flight can end before the Lease is handed over",
            duration::format(timeout)
        ));
    }
}

/// The rights, on these secrets alone if some are named, and what to know of them.
pub(super) fn secrets(plan: &Plan, named: &[(String, String)], notes: &mut Vec<String>) -> String {
    if !plan.reads_every_secret() {
        return plan.manifests.clone();
    }
    if named.is_empty() {
        notes.push(
            "rbac.yaml lets the daemon read every secret of the cluster, for which ones it needs is written in StorageClasses and \
             volumes; --secret NAMESPACE/NAME, once for each, grants those alone"
                .to_owned(),
        );
        return plan.manifests.clone();
    }
    let mut by_namespace: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (namespace, name) in named {
        by_namespace.entry(namespace.clone()).or_default().insert(name.clone());
    }
    let told: Vec<String> = named.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
    notes.push(format!(
        "rbac.yaml lets the daemon read the secrets {} and no others: what names another one fails, and says so",
        told.join(", ")
    ));
    plan.manifests_naming(&by_namespace)
}

/// Without `--image`.
pub(super) fn no_image(image: &str) -> String {
    format!(
        "image: {image}, which nobody has pushed for you: build it, push it to a registry of yours, and give --image"
    )
}

/// `kubectl replace` puts what the file says, and where it says nothing the server's default.
pub(super) fn replicas(workload: &Workload, notes: &mut Vec<String>) {
    if !workload.counts_pods && workload.kind != "DaemonSet" {
        notes.push(
            "the file says no spec.replicas, and `kubectl replace` makes that 1: put in how many there are".to_owned(),
        );
    }
}

/// What to do with the files, in order, and how to go back.
pub(super) fn next(folder: Option<&str>, workload: &Workload, namespace: Option<&str>, driver: &str) -> Vec<String> {
    let Some(folder) = folder else {
        return vec![
            "apply the documents with `kubectl apply -f -` only where `kubectl apply` has put the workload there, too: else the old"
                .to_owned(),
            "sidecars stay beside the daemon. --out DIR writes files for `kubectl replace`, and the way back".to_owned(),
        ];
    };
    let folder = folder.trim_end_matches('/');
    let (kind, name) = (workload.kind.to_lowercase(), &workload.name);
    let place = namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    // A file that names no namespace is put into that of whoever puts it there.
    let own = if workload.namespace.is_none() { &*place } else { "" };
    vec![
        format!("1. diff {folder}/original.yaml {folder}/workload.yaml"),
        format!("   csi-control-plane check --config {folder}/config.yaml --driver-name {driver}"),
        format!("2. kubectl apply -f {folder}/configmap.yaml -f {folder}/rbac.yaml -f {folder}/bindings.yaml"),
        format!("3. kubectl replace --save-config{own} -f {folder}/workload.yaml"),
        "   (`apply` would leave the old sidecars beside the daemon, unless they were put there by `apply`)".to_owned(),
        format!("4. kubectl rollout status{place} {kind}/{name}"),
        "and back, whenever you like".to_owned(),
        format!("   kubectl replace --save-config{own} -f {folder}/original.yaml"),
        format!("   kubectl delete -f {folder}/configmap.yaml -f {folder}/bindings.yaml -f {folder}/rbac.yaml"),
    ]
}
