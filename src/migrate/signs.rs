//! The signs of a driver's name in one workload: its flags, its variables, the folder of its socket. Pure.

use std::collections::BTreeSet;

use super::Wanted;
use super::document::{Workload, string, strings};
use super::expand::Variables;
use super::{sidecars, version};

/// A name that a workload's containers have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sign {
    /// The name.
    pub(super) name: String,
    /// Which field of which container.
    pub(super) from: String,
    /// Whether a flag or a variable gives the name. A folder of that name is somebody's habit.
    pub(super) is_said: bool,
}

/// The signs of all containers of a workload. A name without a dot counts if `known` has it: most such texts are none.
pub(super) fn of(workload: &Workload, wanted: &Wanted, known: &BTreeSet<String>) -> Vec<Sign> {
    let namespace = workload.namespace.as_deref().or(wanted.namespace.as_deref());
    let mut signs = Vec::new();
    for container in workload.containers() {
        let variables = Variables::of(container, namespace);
        let title = format!("container {}", string(container, "name").unwrap_or_default());
        let mut found = |name: Option<&str>, sign: &str, is_said: bool| {
            if let Some(name) = name.filter(|name| is_name(name) || known.contains(*name)) {
                signs.push(Sign { name: name.to_owned(), from: format!("{sign} of {title}"), is_said });
            }
        };
        let arguments = strings(container, "command").into_iter().chain(strings(container, "args"));
        let arguments: Vec<String> =
            arguments.map(|argument| variables.expand(&argument).unwrap_or_default()).collect();
        for (at, argument) in arguments.iter().enumerate() {
            let Some(bare) = argument.strip_prefix('-').map(|rest| rest.trim_start_matches('-')) else { continue };
            let behind = || arguments.get(at + 1).map_or("", String::as_str);
            let (flag, value) = bare.split_once('=').unwrap_or_else(|| (bare, behind()));
            match flag {
                "drivername" | "driver-name" => found(Some(value), "an argument", true),
                "kubelet-registration-path" => {
                    found(folder_of(value), "the folder in --kubelet-registration-path", false);
                }
                _ => {}
            }
        }
        for variable in ["DRIVER_NAME", "CSI_DRIVER_NAME"] {
            found(variables.text(variable), &format!("the variable {variable}"), true);
        }
    }
    signs
}

/// Whether a workload may be a CSI driver's: it has a sidecar, or a container that calls a driver.
pub(super) fn may_be_a_drivers(workload: &Workload) -> bool {
    workload.containers().iter().any(|it| sidecars::recognise(it).is_some() || sidecars::calls_a_driver(it))
}

/// The names of the images of a workload's own programs.
pub(super) fn images(workload: &Workload) -> BTreeSet<&str> {
    let others = workload.containers().iter().filter(|container| sidecars::recognise(container).is_none());
    others
        .filter_map(|container| Some(version::parts(string(container, "image")?).0))
        .filter(|name| !name.is_empty())
        .collect()
}

/// `/var/lib/kubelet/plugins/ebs.csi.aws.com/csi.sock` is in `ebs.csi.aws.com`.
fn folder_of(path: &str) -> Option<&str> {
    path.trim_end_matches('/').rsplit('/').nth(1)
}

/// Whether a text is a driver's name as the CSI specification wants it. Names without a dot exist, but most texts without a
/// dot are none.
fn is_name(text: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.contains('.')
        && text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
        && is_end(text.chars().next())
        && is_end(text.chars().last())
}
