//! The ports that a container has, or names: declared, probed, in its arguments and its variables. Pure.

use std::collections::BTreeSet;

use serde_yaml::Value;

use super::document::{string, strings};

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
