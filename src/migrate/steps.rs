//! What to do with the written files, in order, and how to go back. Pure.

use crate::app::Plan;
use crate::config::sidecar::{MadeAnew, Return};

use super::document::Workload;
use super::elsewhere::{COPY, Elsewhere, USER};
use super::found::Found;
use super::settle::Source;

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

/// What the steps are about.
#[derive(Debug)]
pub(super) struct Steps<'a> {
    pub(super) workload: &'a Workload,
    /// The `ConfigMap` of the daemon's configuration, which no other pods mount.
    pub(super) config_map: &'a str,
    /// Its namespace, if it is known.
    pub(super) namespace: Option<&'a str>,
    /// The driver's name, if it is known.
    pub(super) driver: Option<&'a str>,
    /// The cluster that it serves, if that is another one.
    pub(super) elsewhere: Option<&'a Elsewhere>,
    /// Whether there are rights: kubectl refuses an empty file.
    pub(super) has_rights: bool,
    pub(super) stopped: Stopped,
    /// What is done around the way back, in the order of the sidecars.
    pub(super) returns: Vec<&'static Return>,
    /// What the sidecars must make anew then.
    pub(super) made_anew: Vec<MadeAnew>,
    /// The daemon's Leases that no sidecar has held, and their namespace.
    pub(super) leases: (Vec<String>, Option<String>),
}

/// What the sidecars need on the way back, in their versions.
pub(super) fn returns(sources: &[Source]) -> Vec<&'static Return> {
    let needs = |source: &Source, one: &Return| one.before.is_none_or(|version| source.release.may_be_before(version));
    let all = sources.iter().flat_map(|source| source.sidecar.returns.iter().map(move |one| (source, one)));
    all.filter(|(source, one)| needs(source, one)).map(|(_, one)| one).collect()
}

/// The Leases of the roles whose sidecars hold none.
pub(super) fn leases(found: &Found, plan: &Plan) -> Vec<String> {
    let without = found.without_a_lease();
    let is_without = |source: &&Source| without.contains(&&*source.container);
    let with = found.sources.iter().filter(|source| !is_without(source)).flat_map(|source| source.sidecar.roles);
    let with: Vec<&str> = with.copied().collect();
    let without = found.sources.iter().filter(is_without).flat_map(|source| source.sidecar.roles);
    let without: Vec<&str> = without.copied().filter(|role| !with.contains(role)).collect();
    let lease = |name: &str| plan.roles.iter().find(|role| role.name == name)?.lease.clone();
    let mut leases: Vec<String> = without.into_iter().filter_map(lease).collect();
    leases.sort();
    leases.dedup();
    leases
}

impl Steps<'_> {
    /// The lines. Without a folder the files are on the standard output, and there is no way back.
    pub(super) fn lines(&self, folder: Option<&str>) -> Vec<String> {
        if let Some(folder) = folder {
            return self.with_files(folder.trim_end_matches('/'));
        }
        let mut steps = self.stop();
        steps.push(
            "use `kubectl apply -f -` only if the workload was created by `kubectl apply`, too: otherwise the old"
                .to_owned(),
        );
        steps.push(
            "sidecars stay beside the daemon. --out DIR writes files for `kubectl replace` and for the way back"
                .to_owned(),
        );
        steps
    }

    fn place(&self) -> String {
        self.namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default()
    }

    /// The commands that end all pods of the workload, if the user must do it.
    fn stop(&self) -> Vec<String> {
        if self.stopped == Stopped::ByItself {
            return Vec::new();
        }
        let (place, kind, name) = (self.place(), self.workload.kind.to_lowercase(), &self.workload.name);
        let end = if kind == "daemonset" {
            // A DaemonSet has no number of pods: a label that no node has leaves none. `replace` removes it again.
            format!(
                "kubectl patch{place} {kind}/{name} --patch \
                 '{{\"spec\":{{\"template\":{{\"spec\":{{\"nodeSelector\":{{\"csi-control-plane.io/none\":\"none\"}}}}}}}}}}'"
            )
        } else {
            format!("kubectl scale{place} {kind}/{name} --replicas=0")
        };
        let wait = match &self.workload.selector {
            Some(labels) => format!("kubectl wait{place} pod --for=delete --selector={labels} --timeout=10m"),
            None => format!("kubectl get{place} pods --watch, until the pods of {name} are gone"),
        };
        vec![end, wait]
    }

    fn with_files(&self, folder: &str) -> Vec<String> {
        let (place, stop) = (self.place(), self.stop());
        let (kind, name) = (self.workload.kind.to_lowercase(), &self.workload.name);
        // `kubectl` puts an object that names no namespace into the namespace of its own configuration.
        let own = if self.workload.namespace.is_none() { &*place } else { "" };
        let named = self.driver.map(|driver| format!(" --driver-name {driver}")).unwrap_or_default();
        let mut steps = vec![
            format!("1. diff {folder}/original.yaml {folder}/workload.yaml"),
            format!("   csi-control-plane check --config {folder}/config.yaml{named}"),
        ];
        let rights = |verb: &str, files: [&str; 2]| {
            let [one, two] = files.map(|file| format!(" -f {folder}/{file}.yaml"));
            match self.elsewhere {
                _ if !self.has_rights => vec![format!("kubectl {verb} -f {folder}/configmap.yaml")],
                None => vec![format!("kubectl {verb} -f {folder}/configmap.yaml{one}{two}")],
                Some(_) => vec![
                    format!("kubectl {verb} -f {folder}/configmap.yaml"),
                    format!("kubectl --kubeconfig {COPY} {verb}{one}{two}"),
                ],
            }
        };
        let mut apply = rights("apply", ["rbac", "bindings"]);
        if let Some(Elsewhere { kubeconfig, .. }) = self.elsewhere.filter(|_| self.has_rights) {
            let place = format!("# {COPY} is a copy of the file that the pod has at {kubeconfig}");
            let user = format!("# replace {USER} in {folder}/bindings.yaml by this user");
            for line in [user, format!("kubectl --kubeconfig {COPY} auth whoami"), place] {
                apply.insert(1, line);
            }
        }
        steps.extend(numbered(2, apply));
        steps.extend(numbered(3, stop.clone()));
        let number = if stop.is_empty() { 3 } else { 4 };
        steps.push(format!("{number}. kubectl replace --save-config{own} -f {folder}/workload.yaml"));
        steps.push("   (`apply` would keep the old sidecars, unless `apply` created them)".to_owned());
        steps.push(format!("{}. kubectl rollout status{place} {kind}/{name}", number + 1));

        steps.push("to go back, at any time".to_owned());
        for (one, command) in self.returns.iter().filter_map(|one| Some((one, one.first?))) {
            steps.push(format!("   # {}", one.why));
            steps.push(format!("   {}", self.filled(command)));
        }
        steps.extend(stop.iter().map(|command| format!("   {command}")));
        steps.push(format!("   kubectl replace --save-config{own} -f {folder}/original.yaml"));
        let last: Vec<_> = self.returns.iter().filter_map(|one| Some((one, one.last?))).collect();
        steps.push(format!("   kubectl rollout status{place} {kind}/{name}"));
        if stop.is_empty() && !self.workload.ends_before_it_begins {
            // A roll-out is over when the new pods are ready: the old ones may still end calls, and write what came of them.
            steps.push(
                "   # until no pod of the daemon is left: one that ends needs its rights and its journal".to_owned(),
            );
            steps.push(format!(
                "   until kubectl get pods{place} -o json | jq -e 'any(.items[] | select(.status.phase != \"Succeeded\" and .status.phase != \"Failed\").spec.volumes[]?; .configMap.name == \"{}\") | not'; do \
                 sleep 5; done",
                self.config_map
            ));
        }
        steps.extend(rights("delete", ["bindings", "rbac"]).into_iter().map(|command| format!("   {command}")));
        if let (leases @ [_, ..], place) = (&*self.leases.0, &self.leases.1) {
            let there = self.elsewhere.map(|_| format!(" --kubeconfig {COPY}")).unwrap_or_default();
            let place = place.as_ref().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
            steps.push("   # the sidecars hold no Lease: the daemon's stay behind".to_owned());
            steps.push(format!("   kubectl{there} delete lease{place} --ignore-not-found {}", leases.join(" ")));
        }
        for (one, command) in last {
            if one.first.is_none() {
                steps.push(format!("   # {}", one.why));
            }
            steps.push(format!("   {}", self.filled(command)));
        }
        for MadeAnew { resource, label } in &self.made_anew {
            steps.push(format!(
                "   {}",
                self.filled(&format!("kubectl delete {resource}{{place}} -l {label}={{driver}}"))
            ));
        }
        steps
    }

    /// A command with the namespace and the driver's name.
    fn filled(&self, command: &str) -> String {
        let driver = self.driver.unwrap_or("DRIVER");
        let Some(Elsewhere { namespace, .. }) = self.elsewhere else {
            return command.replace("{place}", &self.place()).replace("{driver}", driver);
        };
        let place = namespace.as_ref().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
        let there = command.replace("kubectl ", &format!("kubectl --kubeconfig {COPY} "));
        there.replace("{place}", &place).replace("{driver}", driver)
    }
}

/// The lines of a step: its number stands before the first.
fn numbered(number: usize, commands: Vec<String>) -> impl Iterator<Item = String> {
    let mark = move |at: usize| if at == 0 { format!("{number}.") } else { "  ".to_owned() };
    commands.into_iter().enumerate().map(move |(at, command)| format!("{} {command}", mark(at)))
}
#[cfg(test)]
mod tests {
    use super::super::{Outcome, Wanted, migrate};

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

    /// The steps on the way back of a csi-provisioner of this image.
    fn back(image: &str, arguments: &str) -> Vec<String> {
        let text = format!(
            "kind: Deployment\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  replicas: 1\n  template:\n    spec:\n      containers:\n      \
             - name: p\n        image: \"x/{image}\"\n        args: [--csi-address=/csi/s{arguments}]\n"
        );
        let manifests = vec![crate::migrate::Manifest { name: "d.yaml".to_owned(), text }];
        let driver = Some("disk.example.com".to_owned());
        let Outcome { report, files } =
            migrate(&Wanted { manifests, driver, folder: Some("m".to_owned()), ..Wanted::default() });
        assert!(files.is_some(), "{}", report.faults_text());
        let begins = report.next.iter().position(|step| step.starts_with("to go back")).unwrap();
        report.next[begins + 1..].iter().map(|step| step.trim().to_owned()).collect()
    }

    #[test]
    fn the_way_back_waits_for_the_journal_and_deletes_its_objects_of_roles_that_have_one() {
        let steps = back("csi-provisioner:v5.0.0", ", --leader-election");
        let expected = [
            "# until the journal is empty: csi-provisioner does not read it, and the volume that the driver is creating for a deleted \
             claim would be leaked",
            "until kubectl get configmap -n n -l csi-control-plane.io/journal=disk.example.com -o json | jq -e '([.items[].data // {} | \
             length] | add // 0) == 0'; do sleep 5; done",
            "kubectl replace --save-config -f m/original.yaml",
            "kubectl rollout status -n n deployment/d",
            "# until no pod of the daemon is left: one that ends needs its rights and its journal",
            "until kubectl get pods -n n -o json | jq -e 'any(.items[] | select(.status.phase != \"Succeeded\" and .status.phase != \"Failed\").spec.volumes[]?; .configMap.name == \"d-csi-control-plane\") | not'; \
             do sleep 5; done",
            "kubectl delete -f m/configmap.yaml -f m/bindings.yaml -f m/rbac.yaml",
            "kubectl get configmap -n n -l csi-control-plane.io/journal=disk.example.com -o json | jq '.items |= map(select((.data // {}) == \
             {}))' | kubectl delete -f - # one with entries stays: move over again, and back later",
        ];
        assert_eq!(steps, expected);
        let label = crate::cluster::names::LABEL_JOURNAL;
        assert!(steps[1].contains(&format!(" {label}=")), "{label}");
        for image in ["csi-attacher:v4.12.0", "csi-resizer:v2.0.0", "csi-snapshotter:v8.7.0"] {
            let steps = back(image, ", --leader-election");
            assert_eq!(steps, expected.map(str::to_owned)[2..7], "{image}");
        }
    }

    #[test]
    fn leases_that_no_sidecar_has_held_are_deleted_on_the_way_back() {
        let delete = "kubectl delete lease -n n --ignore-not-found";
        for (image, arguments, lease) in [
            ("csi-attacher:v4.12.0", "", Some("external-attacher-leader-disk-example-com")),
            ("csi-attacher:v4.12.0", ", --leader-election", None),
            ("csi-resizer:v2.0.0", "", Some("external-resizer-disk-example-com")),
            ("csi-provisioner:v5.0.0", "", Some("disk-example-com")),
            ("csi-provisioner:v1.6.0", ", --enable-leader-election", Some("disk-example-com")),
        ] {
            let steps = back(image, arguments);
            let found: Vec<&String> = steps.iter().filter(|step| step.starts_with("kubectl delete lease")).collect();
            let expected = lease.map(|lease| format!("{delete} {lease}"));
            assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{image}{arguments}: {steps:#?}");
        }
    }

    #[test]
    fn a_finalizer_that_an_old_provisioner_would_leave_for_ever_is_removed_on_the_way_back() {
        for (tag, expected) in [
            ("v1.6.0", true),
            ("v3.0.0", true),
            ("v3", true),
            ("canary", true),
            ("v3.1.0", false),
            ("v4.0.1", false),
            ("v5.0.0", false),
        ] {
            let steps = back(&format!("csi-provisioner:{tag}"), ", --leader-election");
            let last = steps.last().unwrap();
            let finalizer = crate::cluster::names::FINALIZER_PROVISIONER;
            let removes = last.contains(&format!(".metadata.finalizers -= [\"{finalizer}\"]"));
            assert_eq!(removes, expected, "{tag}: {steps:#?}");
            if removes {
                assert!(last.contains("select((.spec.csi.driver == \"disk.example.com\" or "), "{last}");
                assert!(
                    steps[steps.len() - 2].starts_with("# csi-provisioner before v3.1 never removes"),
                    "{steps:#?}"
                );
            }
        }
    }

    #[test]
    fn what_is_served_elsewhere_gets_its_rights_there() {
        let text = "kind: Deployment\nmetadata: {name: d, namespace: hosting}\nspec:\n  replicas: 1\n  template:\n    spec:\n      \
                    containers:\n      - name: p\n        image: \"x/csi-provisioner:v5.0.0\"\n        args: [--csi-address=/csi/s, \
                    --leader-election, --kubeconfig=/etc/served/kubeconfig, --leader-election-namespace=drivers]\n        env: [{name: \
                    KUBECONFIG, value: /other}, {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]\n";
        let moved = |text: &str| {
            let manifests = vec![crate::migrate::Manifest { name: "d.yaml".to_owned(), text: text.to_owned() }];
            let driver = Some("disk.example.com".to_owned());
            migrate(&Wanted { manifests, driver, folder: Some("m".to_owned()), ..Wanted::default() })
        };
        let Outcome { report, files } = moved(text);
        let files = files.unwrap_or_else(|| panic!("{}", report.faults_text()));
        assert!(files.config.contains("kubeconfig: /etc/served/kubeconfig"), "{}", files.config);
        assert!(files.config_map.contains("  namespace: hosting\n"), "{}", files.config_map);
        let workload: serde_json::Value = serde_yaml::from_str(&files.workload).unwrap();
        let env = workload.pointer("/spec/template/spec/containers/0/env").unwrap().as_array().unwrap();
        let variable = |name: &str| env.iter().find(|one| one["name"] == name);
        assert_eq!(variable("POD_NAMESPACE").unwrap()["value"], "drivers", "the journal is in the served cluster");
        assert_eq!(variable("KUBECONFIG"), None);
        assert!(!files.rbac.contains("hosting") && files.rbac.contains("namespace: drivers"), "{}", files.rbac);
        assert!(files.bindings.contains("kind: User\n    name: USER"), "{}", files.bindings);
        assert!(!files.bindings.contains("ServiceAccount"), "{}", files.bindings);
        let steps: Vec<&str> = report.next.iter().map(|step| step.trim()).collect();
        for expected in [
            "2. kubectl apply -f m/configmap.yaml",
            "# SERVED is a copy of the file that the pod has at /etc/served/kubeconfig",
            "kubectl --kubeconfig SERVED auth whoami",
            "kubectl --kubeconfig SERVED apply -f m/rbac.yaml -f m/bindings.yaml",
            "kubectl delete -f m/configmap.yaml",
            "kubectl --kubeconfig SERVED delete -f m/bindings.yaml -f m/rbac.yaml",
            "until kubectl get pods -n hosting -o json | jq -e 'any(.items[] | select(.status.phase != \"Succeeded\" and .status.phase != \"Failed\").spec.volumes[]?; .configMap.name == \"d-csi-control-plane\") \
             | not'; do sleep 5; done",
            "kubectl --kubeconfig SERVED get configmap -n drivers -l csi-control-plane.io/journal=disk.example.com -o json | jq '.items |= \
             map(select((.data // {}) == {}))' | kubectl --kubeconfig SERVED delete -f - # one with entries stays: move over again, and \
             back later",
        ] {
            assert!(steps.contains(&expected), "{expected} in {steps:#?}");
        }
        assert!(
            report.notes.iter().any(|note| note.contains("its namespace drivers, which must exist there")),
            "{report}"
        );

        let mixed =
            format!("{text}      - {{name: a, image: \"x/csi-attacher:v4.12.0\", args: [--leader-election]}}\n");
        let refused = moved(&mixed);
        assert_eq!(refused.files, None);
        let found = "p --kubeconfig=/etc/served/kubeconfig, and a works with the cluster of its pod";
        assert!(refused.report.faults.iter().any(|fault| fault.found == found), "{}", refused.report.faults_text());
        let masters = moved(&text.replace("--kubeconfig=/etc/served/kubeconfig", "--master=https://api:6443"));
        assert_eq!(masters.files, None, "another API server is never left out");
    }

    #[test]
    fn a_provisioner_that_locks_no_lease_ends_first_whatever_its_tag_says() {
        for (image, arguments, expected) in [
            ("csi-provisioner:v1.6.0", "", true),
            ("csi-provisioner:v1.6.0", ", --leader-election-type=endpoints", true),
            ("csi-provisioner:canary", ", --leader-election-type=endpoints", true),
            ("csi-provisioner:canary", ", --leader-election-type, configmaps", true),
            ("csi-provisioner:v1.6.0", ", --leader-election-type=leases", false),
            ("csi-provisioner:v2.0.0", "", false),
        ] {
            let steps = back(image, &format!(", --enable-leader-election{arguments}"));
            let ends = steps.iter().any(|step| step.starts_with("kubectl scale"));
            assert_eq!(ends, expected, "{image}{arguments}: {steps:#?}");
        }
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
