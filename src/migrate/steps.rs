//! What to do with the written files, in order, and how to go back. Pure.

use crate::app::Plan;
use crate::config::Loaded;
use crate::config::sidecar::{MadeAnew, Return};

use super::document::Workload;
use super::elsewhere::{COPY, Elsewhere, USER};
use super::found::Found;
use super::notes::Notes;
use super::rollout::Pods;
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
        let (names, hold) = (without.join(" and "), if without.len() == 1 { "holds" } else { "hold" });
        let kind = &workload.kind;
        if workload.ends_before_it_begins {
            notes.know(format!(
                "{names} {hold} no Lease of the daemon: this {kind} ends its old pod before it starts the new one, so both never \
                 work at the same time"
            ));
            return Self::ByItself;
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
        let Workload { kind, name, selector, rollout, .. } = self.workload;
        let have_ended = !stop.is_empty();
        let pods = Pods { place: &place, kind, name, selector: selector.as_deref(), have_ended };
        let follow = rollout.lines(pods);
        steps.extend(numbered(number + 1, follow.clone()));

        steps.push("to go back, at any time".to_owned());
        if self.number > 1 {
            steps.push(format!(
                "   # this is daemon {} of the pod: go back in the reverse order of the moves, this one first",
                self.number
            ));
        }
        for (one, command) in self.returns.iter().filter_map(|one| Some((one, one.first?))) {
            steps.push(format!("   # {}", one.why));
            steps.push(format!("   {}", self.filled(command)));
        }
        steps.extend(stop.iter().map(|command| format!("   {command}")));
        steps.push(format!("   kubectl replace --save-config{own} -f {folder}/original.yaml"));
        let last: Vec<_> = self.returns.iter().filter_map(|one| Some((one, one.last?))).collect();
        steps.extend(follow.iter().map(|command| format!("   {command}")));
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
#[path = "steps_tests.rs"]
mod tests;
