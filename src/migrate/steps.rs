//! What to do with the written files, in order, and how to go back. Pure.

use crate::app::Plan;
use crate::config::Loaded;
use crate::config::sidecar::{MadeAnew, Return};

use super::document::Workload;
use super::elsewhere::{COPY, Elsewhere, USER};
use super::found::Found;
use super::notes::Notes;
use super::report::listed;
use super::rollout::{Pods, Rollout};
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
    pub(super) fn of(without: &[&str], workload: &Workload, notes: &mut Notes) -> Self {
        if without.is_empty() {
            return Self::ByItself;
        }
        let (names, hold) = (listed(without, "and"), if without.len() == 1 { "holds" } else { "hold" });
        let kind = &workload.kind;
        if workload.ends_before_it_begins {
            notes.know(format!(
                "{names} {hold} no Lease of the daemon: this {kind} ends its old pod before it starts the new one, so both never \
                 work at the same time"
            ));
            return Self::ByItself;
        }
        if let Rollout::Partition(first) = workload.rollout {
            notes.must(format!(
                "take spec.updateStrategy.rollingUpdate.partition out of the workload before the move: the pods before number {first} would \
                 begin as they were, beside the daemon"
            ));
        }
        notes.must(format!(
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
    /// Which of the pod's daemons it is, from 1.
    pub(super) number: usize,
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
pub(super) fn returns(sources: &[Source], loaded: &Loaded) -> Vec<&'static Return> {
    let is_off = |source: &Source, key: &str| {
        let section = source.sidecar.roles.first().and_then(|role| loaded.roles.get(role));
        section.and_then(|section| section.get(key)) == Some(&false.into())
    };
    let needs = |source: &Source, one: &Return| {
        one.before.is_none_or(|version| source.release.may_be_before(version))
            && one.unless_off.is_none_or(|key| !is_off(source, key))
    };
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
            let folder = folder.trim_end_matches('/');
            let back = self.back(folder).into_iter().map(|line| format!("   {line}"));
            let head = "to go back, at any time".to_owned();
            return self.there(folder).into_iter().chain([head]).chain(back).collect();
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

    /// The commands that end all pods of the workload, if the user must do it.
    fn stop(&self) -> Vec<String> {
        if self.stopped == Stopped::ByItself {
            return Vec::new();
        }
        let (place, kind, name) = (place(self.namespace), self.workload.kind.to_lowercase(), &self.workload.name);
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

    fn there(&self, folder: &str) -> Vec<String> {
        let named = self.driver.map(|driver| format!(" --driver-name {driver}")).unwrap_or_default();
        let mut steps = vec![
            format!("1. diff {folder}/original.yaml {folder}/workload.yaml"),
            format!("   csi-control-plane check --config {folder}/config.yaml{named}"),
        ];
        let mut apply = self.rights("apply", folder, ["rbac", "bindings"]);
        if let Some(Elsewhere { kubeconfig, .. }) = self.elsewhere.filter(|_| self.has_rights) {
            let place = format!("# {COPY} is a copy of the file that the pod has at {kubeconfig}");
            let user = format!("# replace {USER} in {folder}/bindings.yaml by this user");
            for line in [user, format!("kubectl --kubeconfig {COPY} auth whoami"), place] {
                apply.insert(1, line);
            }
        }
        steps.extend(numbered(2, apply));
        let stop = self.stop();
        let number = if stop.is_empty() { 3 } else { 4 };
        steps.extend(numbered(3, stop));
        steps.push(format!("{number}. {}", self.replace(folder, "workload")));
        steps.push("   (`apply` would keep the old sidecars, unless `apply` created them)".to_owned());
        steps.extend(numbered(number + 1, self.follow(false)));
        steps
    }

    fn back(&self, folder: &str) -> Vec<String> {
        let mut steps = Vec::new();
        if self.number > 1 {
            let number = self.number;
            steps.push(format!(
                "# this is daemon {number} of the pod: go back in the reverse order of the moves, this one first"
            ));
        }
        for (one, command) in self.returns.iter().filter_map(|one| Some((one, one.first?))) {
            steps.push(format!("# {}", one.why));
            steps.push(self.filled(command));
        }
        let stop = self.stop();
        let is_stopped = !stop.is_empty();
        steps.extend(stop);
        steps.push(self.replace(folder, "original"));
        steps.extend(self.follow(true));
        if !is_stopped && !self.workload.ends_before_it_begins {
            // A roll-out is over when the new pods are ready: the old ones may still end calls, and write what came of them.
            steps.push(
                "# until no pod of the daemon is left: one that ends needs its rights and its journal".to_owned(),
            );
            steps.push(format!(
                "until kubectl get pods{} -o json | jq -e 'any(.items[] | select(.status.phase != \"Succeeded\" and .status.phase != \"Failed\").spec.volumes[]?; .configMap.name == \"{}\") | not'; do \
                 sleep 5; done",
                place(self.namespace),
                self.config_map
            ));
        }
        steps.extend(self.rights("delete", folder, ["bindings", "rbac"]));
        if let (leases @ [_, ..], namespace) = (&*self.leases.0, self.leases.1.as_deref()) {
            let there = self.elsewhere.map(|_| format!(" --kubeconfig {COPY}")).unwrap_or_default();
            steps.push("# the sidecars hold no Lease: the daemon's stay behind".to_owned());
            let place = place(namespace);
            steps.push(format!("kubectl{there} delete lease{place} --ignore-not-found {}", leases.join(" ")));
        }
        for (one, command) in self.returns.iter().filter_map(|one| Some((one, one.last?))) {
            if one.first.is_none() {
                steps.push(format!("# {}", one.why));
            }
            steps.push(self.filled(command));
        }
        for MadeAnew { resource, label } in &self.made_anew {
            steps.push(self.filled(&format!("kubectl delete {resource}{{place}} -l {label}={{driver}}")));
        }
        steps
    }

    /// The commands for the rights and the configuration.
    fn rights(&self, verb: &str, folder: &str, files: [&str; 2]) -> Vec<String> {
        let [one, two] = files.map(|file| format!(" -f {folder}/{file}.yaml"));
        match self.elsewhere {
            _ if !self.has_rights => vec![format!("kubectl {verb} -f {folder}/configmap.yaml")],
            None => vec![format!("kubectl {verb} -f {folder}/configmap.yaml{one}{two}")],
            Some(_) => vec![
                format!("kubectl {verb} -f {folder}/configmap.yaml"),
                format!("kubectl --kubeconfig {COPY} {verb}{one}{two}"),
            ],
        }
    }

    fn replace(&self, folder: &str, file: &str) -> String {
        // `kubectl` puts an object that names no namespace into the namespace of its own configuration.
        let own = place(self.namespace.filter(|_| self.workload.namespace.is_none()));
        format!("kubectl replace --save-config{own} -f {folder}/{file}.yaml")
    }

    /// The commands until the pods have followed.
    fn follow(&self, is_back: bool) -> Vec<String> {
        let Workload { kind, name, selector, rollout, .. } = self.workload;
        let (place, have_ended) = (place(self.namespace), self.stopped == Stopped::First);
        rollout.lines(Pods { place: &place, kind, name, selector: selector.as_deref(), have_ended, is_back })
    }

    /// A command with the namespace and the driver's name.
    fn filled(&self, command: &str) -> String {
        let driver = self.driver.unwrap_or("DRIVER");
        let Some(Elsewhere { namespace, .. }) = self.elsewhere else {
            return command.replace("{place}", &place(self.namespace)).replace("{driver}", driver);
        };
        let place = place(namespace.as_deref());
        let there = command.replace("kubectl ", &format!("kubectl --kubeconfig {COPY} "));
        there.replace("{place}", &place).replace("{driver}", driver)
    }
}

/// The option of a namespace.
fn place(namespace: Option<&str>) -> String {
    namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default()
}

/// The lines of a step: its number stands before the first.
fn numbered(number: usize, commands: Vec<String>) -> impl Iterator<Item = String> {
    let mark = move |at: usize| if at == 0 { format!("{number}.") } else { "  ".to_owned() };
    commands.into_iter().enumerate().map(move |(at, command)| format!("{} {command}", mark(at)))
}
#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
