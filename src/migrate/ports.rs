//! The port of the daemon's diagnostics, which must be free in the pod, or on the node if the pod uses the host's network. Pure.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::json;
use serde_yaml::{Mapping, Value};

use crate::config::sidecar::ProbePort;

use super::document::{Workload, list, string};
use super::found::Found;
use super::notes::{Notes, Weight};
use super::replaced::{Declared, uses_host_network};
use super::report::listed;
use super::settle::Chosen;
use super::taken::Naming;

/// The key.
const KEY: &str = "diagnostics.listen";
/// The ports for pods on the host's network: below those that Linux and Kubernetes hand out (30000 and more), and few programs'.
const ON_HOST: std::ops::Range<u16> = 18000..19000;

/// Where the default port of a workload comes from: its driver, and its namespace, kind and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    driver: String,
    workload: [String; 3],
}

impl Origin {
    /// That of a workload; `namespace` is the one of workloads that name none.
    pub(super) fn of(driver: &str, found: &Found, namespace: Option<&str>) -> Self {
        let Workload { namespace: own, kind, name, .. } = &found.workload;
        let namespace = own.as_deref().or(namespace).unwrap_or_default().to_owned();
        Self { driver: driver.to_owned(), workload: [namespace, kind.clone(), name.clone()] }
    }

    /// FNV-1a of all: the same number on each machine and in each version.
    fn number(&self) -> u64 {
        let texts = std::iter::once(&self.driver).chain(&self.workload);
        // No name has a byte 255, so that `a` in `bc` is not `ab` in `c`.
        let bytes = texts.flat_map(|text| text.bytes().chain([u8::MAX]));
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }
}

/// A default port for each workload of the manifests, in their order: no two are equal, none is `taken`, and the order of the documents
/// does not matter, so that the next run with these manifests sees the same.
pub(super) fn on_host(origins: &[Origin], taken: &BTreeSet<u16>) -> Vec<u16> {
    let mut order: Vec<usize> = (0..origins.len()).collect();
    order.sort_by_key(|index| &origins[*index]);
    let (mut taken, mut ports) = (taken.clone(), vec![0; origins.len()]);
    let range = ON_HOST.end - ON_HOST.start;
    for index in order {
        let first = u16::try_from(origins[index].number() % u64::from(range)).unwrap_or_default();
        let mut in_turn = (0..range).map(|next| ON_HOST.start + (first + next) % range);
        // None is left: the system gives any.
        ports[index] = in_turn.find(|port| taken.insert(*port)).unwrap_or(0);
    }
    ports
}

/// The ports of the daemon's container.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ports {
    /// Where it listens.
    pub(super) listen: SocketAddr,
    /// The ports that it declares.
    pub(super) declared: Vec<Value>,
    /// The ports that nothing listens on any more.
    pub(super) closed: Vec<Closed>,
}

impl Ports {
    /// The name of the port where the daemon listens, if its container declares one.
    pub(super) fn name(&self) -> Option<&str> {
        let is_own =
            |entry: &&Value| entry.get("containerPort").and_then(Value::as_u64) == Some(self.listen.port().into());
        self.declared.iter().find(is_own).and_then(|entry| string(entry, "name"))
    }
}

/// A port of a sidecar that nothing listens on any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Closed {
    /// The sidecar's container.
    pub(super) container: String,
    /// The port.
    pub(super) port: u16,
    /// Its name, if the container declared it.
    pub(super) name: Option<String>,
}

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        write!(f, "port {}{name} of {}", self.port, self.container)
    }
}

/// The address of the diagnostics, and what the container declares; `default` is the port on the host's network where nothing else says
/// one.
pub(super) fn diagnostics(chosen: &mut Vec<Chosen>, found: &Found, default: u16, notes: &mut Notes) -> Ports {
    let probes = of_probes(chosen, found);
    let told = chosen.iter().find(|one| one.key == KEY).and_then(|one| one.value.as_str()?.parse().ok());
    let address = told.unwrap_or_else(|| {
        let (address, because) = free(&probes, found, default);
        if address.port() != 8080 {
            chosen.push(Chosen { key: KEY.to_owned(), value: json!(address.to_string()), because: because.clone() });
        }
        if uses_host_network(&found.workload.pod) {
            if let Some(told) = crowding(found) {
                // A roll-out of a DaemonSet stands still for ever, and one of a Deployment until there is such a node.
                notes.add(if found.workload.kind == "DaemonSet" { Weight::MustDo } else { Weight::Check }, told);
            }
            let reach = if address.ip().is_loopback() && address.port() == default {
                format!(
                    ". As before, nothing of the pod listens to other machines: for metrics and the status page from elsewhere set \
                     {KEY} to [::]:{default}, and take `host` out of the probes"
                )
            } else {
                String::new()
            };
            notes.know(format!(
                "the pod uses the host's network: the daemon listens on {address} of the node, {because}{reach}"
            ));
        }
        address
    });
    let is_served = |port: u16| port == address.port() || probes.iter().any(|(_, at)| at.port() == port);
    let entries = found.declared();
    let name = |port: u16| entries.iter().find(|it| it.port == port && it.is_tcp()).and_then(Declared::name);
    let closed = found.listened().into_iter().filter(|(_, port)| !is_served(*port));
    let closed = closed.map(|(container, port)| Closed { container, port, name: name(port).map(str::to_owned) });
    let closed: Vec<Closed> = closed.collect();
    for Closed { container, port, .. } in &closed {
        for Naming { container: other, text, asks } in found.naming(*port) {
            let instead = format!("port {} instead, where the daemon answers for all", address.port());
            if asks {
                notes.must(format!(
                    "{other} names port {port} of {container} in `{text}`, which is closed: let it name {instead}"
                ));
            } else {
                notes.check(format!(
                    "{other} names port {port} of {container} in `{text}`, which is closed: if it asks {container} there, let it name \
                     {instead}"
                ));
            }
        }
    }
    if !closed.is_empty() {
        let shown: Vec<String> = closed.iter().map(Closed::to_string).collect();
        notes.check(format!(
            "{} {} closed: the metrics of all are at port {} now, also for Services, monitors and NetworkPolicies that these files do not have",
            listed(&shown, "and"),
            if closed.len() == 1 { "is" } else { "are" },
            address.port()
        ));
    }
    let declared = declared(found, address.port(), &closed, notes);
    Ports { listen: address, declared, closed }
}

/// What the daemon's container declares: its own port, and those of the sidecars that do not close. A port that no sidecar listens on
/// may be another program's of the pod, and Services know it by its name.
fn declared(found: &Found, own: u16, closed: &[Closed], notes: &mut Notes) -> Vec<Value> {
    let listened: BTreeSet<u16> = found.listened().into_iter().map(|(_, port)| port).collect();
    let (mut entries, mut names, mut seen) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut all = found.declared();
    all.retain(|it| !(it.is_tcp() && closed.iter().any(|closed| closed.port == it.port)));
    // Its own comes first.
    all.sort_by_key(|it| !(it.is_tcp() && it.port == own));
    let is_declared = all.iter().any(|it| it.is_tcp() && it.port == own);
    if let Some(other) = found.declaring_on_node(own) {
        notes.know(format!(
            "container {other} declares port {own} of the node, so the daemon's does not: the API refuses a pod that declares one twice"
        ));
        all.retain(|it| !(it.is_tcp() && it.port == own));
    } else if !is_declared {
        let name =
            ["http-metrics", "diagnostics"].into_iter().find(|name| all.iter().all(|it| it.name() != Some(name)));
        let entry = [
            ("name".into(), name.unwrap_or("control-plane").into()),
            ("containerPort".into(), own.into()),
            ("protocol".into(), "TCP".into()),
        ];
        entries.push(Mapping::from_iter(entry).into());
    }
    for it in all {
        if !seen.insert((it.port, it.is_tcp())) {
            continue;
        }
        let mut entry = it.entry.clone();
        if let (Some(name), Some(fields)) = (it.name(), entry.as_mapping_mut())
            && !names.insert(name.to_owned())
        {
            notes.check(format!(
                "port {} of {} has no name any more: two ports of one container cannot both be {name}",
                it.port, it.container
            ));
            fields.remove("name");
        }
        entries.push(entry);
        if it.port != own && !(it.is_tcp() && listened.contains(&it.port)) {
            notes.know(format!(
                "port {} is declared by {}, and no flag lets {} listen on it: the daemon's container declares it from now on, for the \
                 program that serves it",
                it.port, it.container, it.container
            ));
        }
    }
    entries
}

/// A declared port is the node's on the host's network, so that a node takes one such pod. Where the pod had no port before, a
/// roll-out that starts the new pod beside the old one may find no node.
fn crowding(found: &Found) -> Option<String> {
    let workload = &found.workload;
    let is_new = workload.containers().iter().all(|container| list(container, "ports").next().is_none());
    let remedy = match &*workload.kind {
        "Deployment" => "so a roll-out needs a node that has none, or spec.strategy.rollingUpdate",
        _ => "so no new pod begins beside the old one: set spec.updateStrategy.rollingUpdate to one",
    };
    (is_new && workload.surges).then(|| {
        format!(
            "the pod declared no port of the node before: from now on each node takes one pod of it, {remedy} with maxSurge: 0 and \
             maxUnavailable: 1"
        )
    })
}

/// Where the roles answer probes.
fn of_probes(chosen: &[Chosen], found: &Found) -> Vec<(&'static ProbePort, SocketAddr)> {
    let ports = found.sources.iter().flat_map(|source| source.sidecar.probes);
    let address = |port: &ProbePort| {
        let told = chosen.iter().find(|one| one.key == port.key).and_then(|one| one.value.as_str()?.parse().ok());
        told.or_else(|| Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port.usual?))))
    };
    ports.filter_map(|port| Some((port, address(port)?))).collect()
}

/// A port that nothing else has, and why this one.
fn free(probes: &[(&ProbePort, SocketAddr)], found: &Found, default: u16) -> (SocketAddr, String) {
    let anywhere = |port: u16| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    if !uses_host_network(&found.workload.pod) {
        let mut taken = found.taken_ports();
        taken.extend(probes.iter().map(|(_, address)| address.port()));
        let port = (8080..8180).find(|port| !taken.contains(port)).unwrap_or(0);
        return (anywhere(port), "port 8080 is in use in this pod".to_owned());
    }
    // A node has each port once, and another driver's pod may have 8080.
    if let Some((port, address)) = probes.iter().find(|(port, _)| port.is_shared) {
        return (*address, format!("together with {}: the node needs no further port", port.key));
    }
    let because = "a port that follows from the names of the driver and of the workload, so that two pods on a node differ: nothing else \
                   on your nodes may have it";
    // A node plugin that listened nowhere, or for itself alone, opens no port of its node to others.
    (SocketAddr::from((Ipv4Addr::LOCALHOST, default)), because.to_owned())
}

#[cfg(test)]
#[path = "ports_tests.rs"]
mod tests;
