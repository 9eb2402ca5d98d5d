//! The containers of a pod that the daemon's replaces, and what is known of any container. Pure.

use serde_yaml::Value;

use super::document::{list, string};

/// The daemon's container is called like this, and the volume of its configuration begins so.
pub(super) const CONTAINER: &str = "csi-control-plane";

/// The name of a thing of one of the daemons of a pod.
pub(super) fn numbered(name: &str, number: usize) -> String {
    if number == 1 { name.to_owned() } else { format!("{name}-{number}") }
}

/// How many daemons a pod has.
pub(super) fn daemons(containers: &[Value]) -> usize {
    let is_daemon = |container: &&Value| {
        let rest = string(container, "name").and_then(|name| name.strip_prefix(CONTAINER));
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix('-').is_some_and(|number| number.parse::<usize>().is_ok())
        })
    };
    containers.iter().filter(is_daemon).count()
}

/// A container that is replaced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Old<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// All of it.
    pub(super) value: &'a Value,
    /// Why a command at its end is not needed, if it is not.
    pub(super) at_end: Option<&'static str>,
}

/// A port that a container declares.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Declared<'a> {
    /// The container.
    pub(super) container: &'a str,
    /// The port.
    pub(super) port: u16,
    /// The entry as it is written.
    pub(super) entry: &'a Value,
}

impl<'a> Declared<'a> {
    /// Whether it is a port of TCP, on which the sidecars listen.
    pub(super) fn is_tcp(&self) -> bool {
        string(self.entry, "protocol").is_none_or(|protocol| protocol == "TCP")
    }

    /// Its name.
    pub(super) fn name(&self) -> Option<&'a str> {
        string(self.entry, "name")
    }
}

/// The ports that a container declares.
pub(super) fn declared(container: &Value) -> impl Iterator<Item = Declared<'_>> {
    let name = string(container, "name").unwrap_or_default();
    let port = |entry: &Value| port_number(entry.get("containerPort")?);
    list(container, "ports").filter_map(move |entry| Some(Declared { container: name, port: port(entry)?, entry }))
}

/// The number of a port, also as a text.
pub(super) fn port_number(value: &Value) -> Option<u16> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => u16::try_from(value.as_u64()?).ok(),
    }
}

/// Whether the pod has no network of its own: its ports are the node's.
pub(super) fn uses_host_network(pod: &Value) -> bool {
    pod.get("hostNetwork").and_then(Value::as_bool) == Some(true)
}
