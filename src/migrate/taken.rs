//! The ports that a container or a pod has, or names: declared, probed, in its arguments and its variables. Pure.

use std::collections::BTreeSet;

use serde_yaml::Value;

use super::container;
use super::document::{string, strings};
use super::found::Found;

impl Found {
    /// The ports of the containers that are replaced, declared or listened on.
    pub(super) fn ports(&self) -> BTreeSet<(String, u16)> {
        let declared = self.replaced();
        let declared = container::ports(&declared).map(|(name, port, _)| (name.to_owned(), port)).collect::<Vec<_>>();
        let listened = self.sources.iter().flat_map(|source| {
            let listens = source.settings.iter().filter(|setting| setting.key == "diagnostics.listen");
            listens.filter_map(|setting| Some((source.container.clone(), of_text(setting.value.as_str()?)?)))
        });
        declared.into_iter().chain(listened).collect()
    }

    /// The container that stays and declares this port, where the ports of the pod are the node's.
    pub(super) fn declaring_on_node(&self, port: u16) -> Option<&str> {
        let declares = |container: &&Value| container::declared(container).any(|(declared, _)| declared == port);
        let other = self.stays().filter(|_| container::uses_host_network(&self.workload.pod)).find(declares)?;
        string(other, "name")
    }

    /// The ports that the containers that stay have, or name.
    pub(super) fn taken_ports(&self) -> BTreeSet<u16> {
        self.stays().flat_map(of_container).collect()
    }

    /// The ports that the pod has, or names, on its node: all on the host's network, else those that it declares there.
    pub(super) fn node_ports(&self) -> BTreeSet<u16> {
        let lists = ["containers", "initContainers"].map(|key| self.workload.pod.get(key).and_then(Value::as_sequence));
        let containers = lists.into_iter().flatten().flatten();
        if container::uses_host_network(&self.workload.pod) {
            return containers.flat_map(of_container).collect();
        }
        containers.flat_map(on_node).collect()
    }

    /// The containers that stay and have one of these ports in an argument or a variable: they forward to it, as kube-rbac-proxy
    /// does, or ask it.
    pub(super) fn naming(&self, port: u16) -> Vec<&str> {
        let bare = |container: &Value| {
            let mut bare = container.clone();
            for key in ["ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
                if let Some(fields) = bare.as_mapping_mut() {
                    fields.remove(key);
                }
            }
            bare
        };
        let naming = self.stays().filter(|container| of_container(&bare(container)).contains(&port));
        naming.filter_map(|container| string(container, "name")).collect()
    }
}

/// All of them. A number that is no port does no harm: it is not chosen, that is all.
pub(super) fn of_container(container: &Value) -> BTreeSet<u16> {
    let list = |key: &str| container.get(key).and_then(Value::as_sequence).into_iter().flatten();
    let declared = list("ports").flat_map(|entry| ["containerPort", "hostPort"].map(|key| number(entry.get(key)?)));
    let handlers = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| container.get(probe));
    let hooks = ["postStart", "preStop"].map(|hook| container.get("lifecycle")?.get(hook));
    let asked =
        handlers.into_iter().chain(hooks).flatten().flat_map(|handler| {
            ["httpGet", "tcpSocket", "grpc"].map(|action| number(handler.get(action)?.get("port")?))
        });
    let arguments = [strings(container, "command"), strings(container, "args")].concat();
    let named = arguments.iter().map(|argument| of_text(argument));
    let variables = list("env").map(|entry| number(entry.get("value")?).or_else(|| of_text(string(entry, "value")?)));
    declared.chain(asked).chain(named).chain(variables).flatten().filter(|port| *port > 0).collect()
}

/// Those that a container declares on the node.
pub(super) fn on_node(container: &Value) -> BTreeSet<u16> {
    let ports = container.get("ports").and_then(Value::as_sequence).into_iter().flatten();
    ports.filter_map(|entry| number(entry.get("hostPort")?)).filter(|port| *port > 0).collect()
}

/// The number behind the last colon, as in `--upstream=http://127.0.0.1:8080/`, or behind `port=`.
pub(super) fn of_text(text: &str) -> Option<u16> {
    let colon = text.rsplit_once(':').map(|(_, port)| port.trim_end_matches('/'));
    let flag = || text.split_once('=').filter(|(name, _)| name.ends_with("port")).map(|(_, port)| port);
    colon.or_else(flag)?.parse().ok()
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => u16::try_from(value.as_u64()?).ok(),
    }
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
