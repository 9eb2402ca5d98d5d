//! Notes about the written files, and the next steps for the user. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_yaml::Value;

use crate::app::Plan;
use crate::config::Loaded;
use crate::config::sidecar::{HttpProbe, MadeAnew, Moved, Sidecar};
use crate::process::duration;

use super::document::Workload;

/// The keys of a role that are deadlines of calls that change something: these are let end. A look-up is not.
const DEADLINES: [&str; 4] = ["timeout", "callTimeout", "resizeTimeout", "modifyTimeout"];

/// A call in flight is let end before the Lease is handed over: the pod must live as long.
pub(super) fn grace(loaded: &Loaded, workload: &Workload, notes: &mut Vec<String>) {
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
        notes.push(format!(
            "{key} is {} and the pod's terminationGracePeriodSeconds {grace}: raise it above the timeout, so that a call in flight can end before the Lease is released",
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
    notes.push(format!(
        "rbac.yaml lets the daemon read the secrets {} and no others: an object that names another secret gets an error",
        told.join(", ")
    ));
    plan.manifests_naming(&by_namespace)
}

/// Without `--image`.
pub(super) fn no_image(image: &str) -> String {
    format!("image: {image} is in no public registry: build it, push it to your registry, and give --image")
}

/// `kubectl replace` puts what the file says, and where it says nothing the server's default.
pub(super) fn replicas(workload: &Workload, notes: &mut Vec<String>) {
    if !workload.counts_pods && workload.kind != "DaemonSet" {
        notes.push(
            "the file has no spec.replicas, and `kubectl replace` sets it to 1: write the current number of replicas into the file".to_owned(),
        );
    }
}

/// What the tables of the replaced sidecars say of this workload: notes, and objects that a sidecar must make anew after the way
/// back.
pub(super) fn of_sidecars(
    sidecars: &[&'static Sidecar],
    loaded: &Loaded,
    workload: &Workload,
    probes: &[HttpProbe],
    notes: &mut Vec<String>,
) -> Vec<MadeAnew> {
    let advice = |sidecar: &&'static Sidecar| {
        let section = loaded.roles.get(sidecar.roles.first()?)?;
        (sidecar.advice)(&Moved { kind: &workload.kind, section, probes })
    };
    let mut made_anew = Vec::new();
    for advice in sidecars.iter().filter_map(advice) {
        notes.push(advice.note);
        made_anew.extend(advice.made_anew);
    }
    made_anew
}

/// Whether the old pods must end before the new ones begin, and the other way round on the way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// A Lease keeps old and new apart, or the update itself does.
    ByItself,
    /// The user must do it.
    First,
}

impl Stopped {
    /// `without`: the sidecars that hold no Lease.
    pub(super) fn of(without: &[&str], workload: &Workload, notes: &mut Vec<String>) -> Self {
        if without.is_empty() {
            return Self::ByItself;
        }
        let (names, hold) = (without.join(" and "), if without.len() == 1 { "holds" } else { "hold" });
        let kind = &workload.kind;
        if workload.ends_before_it_begins {
            notes.push(format!(
                "{names} {hold} no Lease of the daemon: this {kind} ends its old pod before it starts the new one, so both never \
                 work at the same time"
            ));
            return Self::ByItself;
        }
        notes.push(format!(
            "{names} {hold} no Lease of the daemon, so nothing keeps the old pods and the new ones apart: stop the old pods first, as \
             the steps say, and the new ones before you go back"
        ));
        Self::First
    }
}

/// The commands that end all pods of the workload.
fn stop(workload: &Workload, place: &str) -> Vec<String> {
    let (kind, name) = (workload.kind.to_lowercase(), &workload.name);
    let end = if kind == "daemonset" {
        // A DaemonSet has no number of pods: a label that no node has leaves none. `replace` removes it again.
        format!(
            "kubectl patch{place} {kind}/{name} --patch \
             '{{\"spec\":{{\"template\":{{\"spec\":{{\"nodeSelector\":{{\"csi-control-plane.io/none\":\"none\"}}}}}}}}}}'"
        )
    } else {
        format!("kubectl scale{place} {kind}/{name} --replicas=0")
    };
    let wait = match &workload.selector {
        Some(labels) => format!("kubectl wait{place} pod --for=delete --selector={labels} --timeout=10m"),
        None => format!("kubectl get{place} pods --watch, until the pods of {name} are gone"),
    };
    vec![end, wait]
}

/// What to do with the files, in order, and how to go back. `made_anew`: what the sidecars have to make anew then.
pub(super) fn next(
    folder: Option<&str>,
    workload: &Workload,
    namespace: Option<&str>,
    driver: Option<&str>,
    stopped: Stopped,
    made_anew: &[MadeAnew],
) -> Vec<String> {
    let place = namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    let stop = if stopped == Stopped::First { stop(workload, &place) } else { Vec::new() };
    let Some(folder) = folder else {
        let mut steps: Vec<String> = stop;
        steps.push(
            "use `kubectl apply -f -` only if the workload was created by `kubectl apply`, too: otherwise the old"
                .to_owned(),
        );
        steps.push(
            "sidecars stay beside the daemon. --out DIR writes files for `kubectl replace` and for the way back"
                .to_owned(),
        );
        return steps;
    };
    let folder = folder.trim_end_matches('/');
    let (kind, name) = (workload.kind.to_lowercase(), &workload.name);
    // `kubectl` puts an object that names no namespace into the namespace of its own configuration.
    let own = if workload.namespace.is_none() { &*place } else { "" };
    let named = driver.map(|driver| format!(" --driver-name {driver}")).unwrap_or_default();
    let mut steps = vec![
        format!("1. diff {folder}/original.yaml {folder}/workload.yaml"),
        format!("   csi-control-plane check --config {folder}/config.yaml{named}"),
        format!("2. kubectl apply -f {folder}/configmap.yaml -f {folder}/rbac.yaml -f {folder}/bindings.yaml"),
    ];
    for (at, command) in stop.iter().enumerate() {
        steps.push(format!("{} {command}", if at == 0 { "3." } else { "  " }));
    }
    let number = if stop.is_empty() { 3 } else { 4 };
    steps.push(format!("{number}. kubectl replace --save-config{own} -f {folder}/workload.yaml"));
    steps.push("   (`apply` would keep the old sidecars, unless `apply` created them)".to_owned());
    steps.push(format!("{}. kubectl rollout status{place} {kind}/{name}", number + 1));
    steps.push("to go back, at any time".to_owned());
    steps.extend(stop.iter().map(|command| format!("   {command}")));
    steps.push(format!("   kubectl replace --save-config{own} -f {folder}/original.yaml"));
    steps.push(format!("   kubectl delete -f {folder}/configmap.yaml -f {folder}/bindings.yaml -f {folder}/rbac.yaml"));
    if !made_anew.is_empty() {
        steps.push(format!("   kubectl rollout status{place} {kind}/{name}"));
    }
    for (MadeAnew { resource, label }, driver) in made_anew.iter().filter_map(|one| driver.map(|driver| (one, driver)))
    {
        steps.push(format!("   kubectl delete {resource}{place} -l {label}={driver}"));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::super::{Wanted, migrate};

    /// A workload of this kind with a csi-provisioner that has these arguments besides.
    fn report(kind: &str, arguments: &str) -> super::super::Report {
        let text = format!(
            "kind: {kind}\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  replicas: 1\n  template:\n    spec:\n      containers:\n      \
             - name: csi-provisioner\n        image: x/csi-provisioner:v6\n        args: [--csi-address=/csi/s{arguments}]\n"
        );
        let manifests = vec![crate::migrate::Manifest { name: "d.yaml".to_owned(), text }];
        let wanted = Wanted { manifests, driver: Some("disk.example.com".to_owned()), ..Wanted::default() };
        let (printed, told) = (migrate(&wanted), migrate(&Wanted { folder: Some("m".to_owned()), ..wanted }));
        assert!(told.files.is_some(), "{}", told.report.faults_text());
        assert_eq!(printed.report.notes, told.report.notes, "with files and without");
        told.report
    }

    #[test]
    fn capacity_objects_that_csi_provisioner_would_not_get_back_are_told_of() {
        let level = |level: &str| format!(", --enable-capacity, --capacity-ownerref-level={level}");
        let [nobody, pod, one, two] = ["-1", "0", "1", "2"].map(level);
        for (kind, arguments, expected) in [
            ("Deployment", ", --enable-capacity", true),
            ("Deployment", one.as_str(), true),
            ("Deployment", two.as_str(), false),
            ("Deployment", pod.as_str(), false),
            ("Deployment", nobody.as_str(), false),
            ("Deployment", ", --capacity-ownerref-level=1", false),
            ("Deployment", "", false),
            ("StatefulSet", one.as_str(), false),
            ("DaemonSet", one.as_str(), false),
        ] {
            let report = report(kind, arguments);
            let notes = report.notes.iter().filter(|note| note.contains("--capacity-ownerref-level")).count();
            assert_eq!(notes, usize::from(expected), "{kind}{arguments}: {:#?}", report.notes);
            let delete =
                "   kubectl delete csistoragecapacities -n n -l csi.storage.k8s.io/drivername=disk.example.com";
            let (last, before) = report.next.split_last().unwrap();
            assert_eq!(last == delete, expected, "{kind}{arguments}: {:#?}", report.next);
            assert!(!before.iter().any(|step| step.contains("csistoragecapacities")), "only at the very end");
        }
    }
}
