//! The ports that a container or a pod has, or names: declared, probed, in its arguments and its variables. Pure.

use std::collections::BTreeSet;

use serde_yaml::Value;

use super::document::{list, string, strings};
use super::found::Found;
use super::replaced::{self, Declared, port_number};
use super::settle::Source;

/// A text with a port in a container that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Naming<'a> {
    /// The container.
    pub(super) container: &'a str,
    /// The argument or the variable.
    pub(super) text: String,
    /// Whether it is an address of this pod that the container asks, as kube-rbac-proxy's upstream is.
    pub(super) asks: bool,
}

impl Found {
    /// The ports on which the sidecars that are replaced listen, each with its container.
    pub(super) fn listened(&self) -> BTreeSet<(String, u16)> {
        let of_source = |source: &Source| {
            let port = |key: &str| of_text(source.setting(key)?.value.as_str()?);
            let probes = source.sidecar.probes.iter().filter_map(|probe| port(probe.key).or(probe.usual));
            let ports: Vec<u16> = port("diagnostics.listen").into_iter().chain(probes).collect();
            ports.into_iter().map(|port| (source.container.clone(), port)).collect::<Vec<_>>()
        };
        self.sources.iter().flat_map(of_source).collect()
    }

    /// The ports that the containers which are replaced declare, in their order. What none of them listens on, another program of the
    /// pod may serve.
    pub(super) fn declared(&self) -> Vec<Declared<'_>> {
        let containers = self.places.iter().filter_map(|place| self.workload.containers().get(*place));
        containers.flat_map(replaced::declared).collect()
    }

    /// The container that stays and declares this port, where the ports of the pod are the node's.
    pub(super) fn declaring_on_node(&self, port: u16) -> Option<&str> {
        let declares = |container: &&Value| replaced::declared(container).any(|it| it.port == port);
        let other = self.stays().filter(|_| replaced::uses_host_network(&self.workload.pod)).find(declares)?;
        string(other, "name")
    }

    /// The ports that the containers that stay have, or name, and those that the sidecars declare without listening on them.
    pub(super) fn taken_ports(&self) -> BTreeSet<u16> {
        let listened = self.listened();
        let is_listened = |port: u16| listened.iter().any(|(_, other)| *other == port);
        let of_others = self.declared().into_iter().map(|declared| declared.port).filter(|port| !is_listened(*port));
        self.stays().flat_map(of_container).chain(of_others).collect()
    }

    /// The ports that the pod has, or names, on its node: all on the host's network, else those that it declares there.
    pub(super) fn node_ports(&self) -> BTreeSet<u16> {
        let containers = self.workload.containers().iter().chain(self.workload.init_containers());
        if replaced::uses_host_network(&self.workload.pod) {
            return containers.flat_map(of_container).collect();
        }
        containers.flat_map(on_node).collect()
    }

    /// The arguments and the variables of containers that stay in which a port stands that they do not listen on themselves: they
    /// forward to it, as kube-rbac-proxy does, or ask it.
    pub(super) fn naming(&self, port: u16) -> Vec<Naming<'_>> {
        let texts = |container: &Value| {
            let variable = |entry: &Value| Some(format!("{}={}", string(entry, "name")?, string(entry, "value")?));
            let arguments = [strings(container, "command"), strings(container, "args")].concat();
            arguments.into_iter().chain(list(container, "env").filter_map(variable)).collect::<Vec<_>>()
        };
        let is_it = |text: &String| {
            let value = text.split_once('=').map(|(_, value)| value);
            (of_text(text) == Some(port) || value.and_then(|value| value.parse().ok()) == Some(port)) && !listens(text)
        };
        self.stays()
            .flat_map(|container| {
                let name = string(container, "name").unwrap_or_default();
                let naming = texts(container).into_iter().filter(is_it);
                naming.map(move |text| Naming { container: name, asks: asks(&text), text }).collect::<Vec<_>>()
            })
            .collect()
    }
}

/// Whether a text is a flag or a variable with the address on which its own program listens.
fn listens(text: &str) -> bool {
    let name = text.split('=').next().unwrap_or(text).to_lowercase();
    ["listen", "bind", "serve"].iter().any(|word| name.contains(word))
}

/// Whether a text is an address of this pod that its program asks.
fn asks(text: &str) -> bool {
    ["://", "upstream", "127.0.0.1", "localhost", "[::1]"].iter().any(|part| text.contains(part))
}

/// All of them. A number that is no port does no harm: it is not chosen, that is all.
pub(super) fn of_container(container: &Value) -> BTreeSet<u16> {
    let declared = list(container, "ports")
        .flat_map(|entry| ["containerPort", "hostPort"].map(|key| port_number(entry.get(key)?)));
    let handlers = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| container.get(probe));
    let hooks = ["postStart", "preStop"].map(|hook| container.get("lifecycle")?.get(hook));
    let asked = handlers.into_iter().chain(hooks).flatten().flat_map(|handler| {
        ["httpGet", "tcpSocket", "grpc"].map(|action| port_number(handler.get(action)?.get("port")?))
    });
    let arguments = [strings(container, "command"), strings(container, "args")].concat();
    let named = arguments.iter().map(|argument| of_text(argument));
    let variables = list(container, "env")
        .map(|entry| port_number(entry.get("value")?).or_else(|| of_text(string(entry, "value")?)));
    declared.chain(asked).chain(named).chain(variables).flatten().filter(|port| *port > 0).collect()
}

/// Those that a container declares on the node.
pub(super) fn on_node(container: &Value) -> BTreeSet<u16> {
    let ports = list(container, "ports");
    ports.filter_map(|entry| port_number(entry.get("hostPort")?)).filter(|port| *port > 0).collect()
}

/// The number behind the last colon, as in `--upstream=http://127.0.0.1:8080/`, or behind `port=`.
pub(super) fn of_text(text: &str) -> Option<u16> {
    let colon = text.rsplit_once(':').map(|(_, port)| port.trim_end_matches('/'));
    let flag = || text.split_once('=').filter(|(name, _)| name.ends_with("port")).map(|(_, port)| port);
    colon.or_else(flag)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_that_names_a_port_counts() {
        for (container, ports) in [
            ("{ports: [{containerPort: 80, hostPort: 81}, {name: x}]}", vec![80, 81]),
            ("{livenessProbe: {httpGet: {port: 82}}, readinessProbe: {tcpSocket: {port: '83'}}}", vec![82, 83]),
            ("{startupProbe: {grpc: {port: 84}}, livenessProbe: {httpGet: {port: healthz}}}", vec![84]),
            ("{lifecycle: {preStop: {httpGet: {port: 85}}}}", vec![85]),
            ("{command: [x, --metrics-port=86], args: [':87', --health-port=88, --timeout=89]}", vec![86, 87, 88]),
            ("{args: ['--upstream=http://127.0.0.1:90/', '--endpoint=unix:///csi.sock']}", vec![90]),
            (
                "{env: [{name: A, value: '91'}, {name: B, value: 'localhost:92'}, {name: C, valueFrom: {}}]}",
                vec![91, 92],
            ),
            ("{ports: [{containerPort: 0}], env: [{name: A, value: '70000'}]}", vec![]),
            ("{}", vec![]),
        ] {
            let value = serde_yaml::from_str(container).unwrap();
            assert_eq!(of_container(&value).into_iter().collect::<Vec<_>>(), ports, "{container}");
        }
    }
}
