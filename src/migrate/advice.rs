//! Notes about the written files. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_yaml::Value;

use crate::app::Plan;
use crate::config::Loaded;
use crate::config::sidecar::{HttpProbe, MadeAnew, Moved, Sidecar};
use crate::process::duration;

use super::document::{Document, Workload};
use super::manifests::Stream;
use super::notes::Notes;

/// The keys of a role that are deadlines of calls that change something: these are let end. A look-up is not.
const DEADLINES: [&str; 4] = ["timeout", "callTimeout", "resizeTimeout", "modifyTimeout"];

/// A call in flight is let end before the Lease is handed over: the pod must live as long.
pub(super) fn grace(loaded: &Loaded, workload: &Workload, leads: bool, notes: &mut Notes) {
    let grace = workload.pod.get("terminationGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(30);
    let of_role = |(role, section): (&&str, &serde_json::Value)| {
        let section = section.clone();
        let role = (*role).to_owned();
        DEADLINES
            .into_iter()
            .filter_map(move |key| Some((duration::parse(section.get(key)?.as_str()?)?, format!("roles.{role}.{key}"))))
    };
    let common = (loaded.config.csi.timeout, "csi.timeout".to_owned());
    let (timeout, key) = loaded.roles.iter().flat_map(of_role).fold(common, Ord::max);
    if timeout >= Duration::from_secs(grace) {
        notes.check(format!(
            "{key} is {} and the pod's terminationGracePeriodSeconds {grace}: raise it above the timeout, so that a call in flight can end{}",
            duration::format(timeout),
            if leads { " before the Lease is released" } else { "" }
        ));
    }
}

/// The rights, on these secrets alone if some are named, and what to know of them.
pub(super) fn secrets(plan: &Plan, named: &[(String, String)], notes: &mut Notes) -> String {
    if !plan.reads_every_secret() {
        return plan.manifests.clone();
    }
    if named.is_empty() {
        notes.check(
            "rbac.yaml lets the daemon read every secret of the cluster, because StorageClasses and volumes, not the workload, name the secrets; --secret NAMESPACE/NAME, once per secret, grants only those"
                .to_owned(),
        );
        return plan.manifests.clone();
    }
    let mut by_namespace: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (namespace, name) in named {
        by_namespace.entry(namespace.clone()).or_default().insert(name.clone());
    }
    let told: Vec<String> = named.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
    notes.know(format!(
        "rbac.yaml lets the daemon read the secrets {} and no others: an object that names another secret gets an error",
        told.join(", ")
    ));
    plan.manifests_naming(&by_namespace)
}

/// What kubectl leaves out of a document without a word.
pub(super) fn repeated(document: &Document, stream: &Stream) -> Vec<String> {
    let told = |(line, key): &(usize, String)| {
        let place = stream.place(*line);
        format!("{place}: the key {key} stands twice in one mapping; kubectl takes the last one, and so does this")
    };
    document.repeated.iter().map(told).collect()
}

/// Without `--image`.
pub(super) fn no_image(image: &str) -> String {
    format!("image: {image} is in no public registry: build it, push it to your registry, and give --image")
}

/// `kubectl replace` puts what the file says, and where it says nothing the server's default.
pub(super) fn replicas(workload: &Workload, notes: &mut Notes) {
    if !workload.counts_pods && workload.kind != "DaemonSet" {
        notes.must(
            "the file has no spec.replicas, and `kubectl replace` sets it to 1: write the current number of replicas into the file".to_owned(),
        );
    }
}

/// What keeps the workload as it is, and will undo the change.
pub(super) fn owner(workload: &Workload) -> Option<String> {
    let owner = workload.owner.as_ref()?;
    Some(format!(
        "{} belongs to {owner}, which puts the sidecars back at its next change: move the change into what it reads",
        workload.title()
    ))
}

/// What the tables of the replaced sidecars say of this workload: notes, and objects that a sidecar must make anew after the way
/// back.
pub(super) fn of_sidecars(
    sidecars: &[&'static Sidecar],
    loaded: &Loaded,
    workload: &Workload,
    probes: &[HttpProbe],
    notes: &mut Notes,
) -> Vec<MadeAnew> {
    let advice = |sidecar: &&'static Sidecar| {
        let section = loaded.roles.get(sidecar.roles.first()?)?;
        (sidecar.advice)(&Moved { kind: &workload.kind, section, probes })
    };
    let mut made_anew = Vec::new();
    for advice in sidecars.iter().filter_map(advice) {
        notes.check(advice.note);
        made_anew.extend(advice.made_anew);
    }
    made_anew
}
