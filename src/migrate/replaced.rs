//! The containers of a pod that the daemon's replaces, and what is known of any container. Pure.

use serde_yaml::Value;

use super::document::string;

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

/// The ports that a container declares: port, name.
pub(super) fn declared(container: &Value) -> impl Iterator<Item = (u16, Option<&str>)> {
    let entries = container.get("ports").and_then(Value::as_sequence).into_iter().flatten();
    entries.filter_map(|entry| {
        let port = u16::try_from(entry.get("containerPort")?.as_u64()?).ok()?;
        Some((port, string(entry, "name")))
    })
}

/// Whether the pod has no network of its own: its ports are the node's.
pub(super) fn uses_host_network(pod: &Value) -> bool {
    pod.get("hostNetwork").and_then(Value::as_bool) == Some(true)
}
