//! Environment variables that set keys: `CSI_CONTROL_PLANE_LEADER_ELECTION__LEASE_DURATION` is
//! `leaderElection.leaseDuration`.
//!
//! `__` goes one level down, `_` begins the next word. A variable with the prefix that names no key is a fault, like an
//! unknown key in the file; with three exceptions. [`FILE_VARIABLE`] names the file itself. [`COMMIT_VARIABLE`] tells a build
//! its commit, and a pipeline that builds may also run `check`. And Kubernetes puts variables for every Service into every pod: a Service called `csi-control-plane` (or `csi-control-plane-metrics`) would
//! otherwise keep the daemon from starting.
//!
//! A whole block can be given too, as YAML: `CSI_CONTROL_PLANE_LEADER_ELECTION__LABELS={example.com/team: storage}` is the
//! way to a label whose name no variable could have.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde_json::{Map, Value};

use super::shape;
use super::yaml::{self, Tree};

/// What our variables begin with.
pub const PREFIX: &str = "CSI_CONTROL_PLANE_";

/// The variable that may name the configuration file, where no argument does.
pub const FILE_VARIABLE: &str = "CSI_CONTROL_PLANE_CONFIG";

/// The variable by which `build.rs` is told the commit.
const COMMIT_VARIABLE: &str = "CSI_CONTROL_PLANE_COMMIT";

/// One of our variables holds what is no text.
#[derive(Debug, thiserror::Error)]
#[error("the variable {name} is no UTF-8: {shown}")]
pub struct OddVariable {
    name: String,
    shown: String,
}

/// The environment as texts. Of the variables that are none only ours are refused: the others have their own readers.
pub fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> Result<BTreeMap<String, String>, OddVariable> {
    all.map(|(name, value)| {
        let (name, shown) = (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned());
        if name.starts_with(PREFIX) && value.to_str().is_none() {
            return Err(OddVariable { name, shown });
        }
        Ok((name, shown))
    })
    .collect()
}

/// A variable of ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Variable<'a> {
    pub(super) name: &'a str,
    /// The key that it sets.
    pub(super) path: Vec<String>,
    text: &'a str,
}

/// Reads a variable; `None` if it is not meant for us.
pub(super) fn variable<'a>(name: &'a str, text: &'a str) -> Option<Variable<'a>> {
    let rest = name.strip_prefix(PREFIX)?;
    if name == FILE_VARIABLE || name == COMMIT_VARIABLE || is_service_link(rest, text) {
        return None;
    }
    Some(Variable { name, path: rest.split("__").map(camel_case).collect(), text })
}

impl Variable<'_> {
    /// The layer that this variable is: a tree with one leaf.
    pub(super) fn tree(&self, schema: &Value) -> Tree {
        let Tree { value, mut unusual } = self.leaf(shape::at(schema, &self.path));
        let paths = unusual.duplicates.iter_mut().chain(unusual.wide.iter_mut().map(|(path, _)| path));
        paths.for_each(|path| drop(path.splice(..0, self.path.iter().cloned())));
        let above = |value, key: &String| Value::Object(Map::from_iter([(key.clone(), value)]));
        Tree { value: self.path.iter().rev().fold(value, above), unusual }
    }

    /// The variable of the key with these words, if the underscores are at other places: `…_CSI__TIMEOUT` for `…_CSI_TIMEOUT`. None
    /// for a variable that names a key: what is wrong is below it, in its text.
    pub(super) fn meant(&self, schema: &Value) -> Option<String> {
        if shape::at(schema, &self.path).is_some() {
            return None;
        }
        find(schema, &self.path.concat().to_lowercase()).map(|words| format!("{PREFIX}{}", words.join("__")))
    }

    /// The text as the key's type: a text stays what it is (`123` too), anything else is read as YAML.
    fn leaf(&self, schema: Option<&Value>) -> Tree {
        let text = || Tree { value: Value::String(self.text.to_owned()), ..Tree::default() };
        match schema {
            Some(schema) if shape::allows(schema, "string") => {
                let null = shape::allows(schema, "null") && (self.text.is_empty() || self.text == "null");
                if null { Tree::default() } else { text() }
            }
            _ => yaml::parse(self.text).unwrap_or_else(|_| text()),
        }
    }
}

/// The words of the key whose path is `text` without its separators.
fn find(schema: &Value, text: &str) -> Option<Vec<String>> {
    schema["properties"].as_object()?.iter().find_map(|(key, child)| {
        let rest = text.strip_prefix(key.to_lowercase().as_str())?;
        let below = if rest.is_empty() { Vec::new() } else { find(child, rest)? };
        Some(std::iter::once(upper_case(key)).chain(below).collect())
    })
}

fn upper_case(key: &str) -> String {
    let letters = key.chars().flat_map(|c| [c.is_ascii_uppercase().then_some('_'), Some(c.to_ascii_uppercase())]);
    letters.flatten().collect()
}

fn camel_case(segment: &str) -> String {
    let mut words = segment.split('_').filter(|word| !word.is_empty());
    let mut key = words.next().unwrap_or_default().to_lowercase();
    for word in words {
        let mut letters = word.chars();
        key.extend(letters.next());
        key.push_str(&letters.as_str().to_lowercase());
    }
    key
}

/// Whether Kubernetes made this variable for a Service (`enableServiceLinks`).
fn is_service_link(rest: &str, text: &str) -> bool {
    // A Service's name has no two hyphens where our keys have two underscores.
    if rest.contains("__") {
        return false;
    }
    let ends = |suffix: &str| rest == suffix || rest.ends_with(&format!("_{suffix}"));
    let names_port = |marker: &str| rest.starts_with(marker) || rest.contains(&format!("_{marker}"));
    let address = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| text.starts_with(scheme));
    ends("SERVICE_HOST")
        || ends("SERVICE_PORT")
        || names_port("SERVICE_PORT_")
        || ends("PORT") && address
        || rest.rsplit_once("PORT_").is_some_and(|(before, port)| {
            let mut parts = port.split('_');
            let number = parts.next().is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()));
            let protocol = matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"));
            let detail = matches!(parts.next(), None | Some("PROTO" | "PORT" | "ADDR"));
            number && protocol && detail && (before.is_empty() || before.ends_with('_'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_key_paths() {
        for (name, path) in [
            ("CSI_CONTROL_PLANE_LEADER_ELECTION__LEASE_DURATION", "leaderElection.leaseDuration"),
            ("CSI_CONTROL_PLANE_ROLES__ATTACHER__RETRY__MAX", "roles.attacher.retry.max"),
            ("CSI_CONTROL_PLANE_ROLES__ATTACHER__DEFAULT_FS_TYPE", "roles.attacher.defaultFsType"),
            ("CSI_CONTROL_PLANE_CSI", "csi"),
            ("CSI_CONTROL_PLANE_DIAGNOSTICS__PORT", "diagnostics.port"),
            // With an address as its value this would be a Service's.
            ("CSI_CONTROL_PLANE_PORT", "port"),
        ] {
            assert_eq!(variable(name, "x").map(|v| v.path.join(".")).as_deref(), Some(path), "{name}");
        }
    }

    #[test]
    fn variables_that_are_not_for_us_are_ignored() {
        for (name, text) in [
            ("PATH", "/bin"),
            ("CSI_CONTROL_PLANE", "x"),
            ("CSI_CONTROL_PLANE_CONFIG", "/etc/config.yaml"),
            ("CSI_CONTROL_PLANE_COMMIT", "0a1b2c"),
            ("CSI_CONTROL_PLANE_SERVICE_HOST", "10.0.0.1"),
            ("CSI_CONTROL_PLANE_SERVICE_PORT", "8080"),
            ("CSI_CONTROL_PLANE_SERVICE_PORT_METRICS", "8080"),
            ("CSI_CONTROL_PLANE_PORT", "tcp://10.0.0.1:8080"),
            ("CSI_CONTROL_PLANE_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
            ("CSI_CONTROL_PLANE_PORT_8080_TCP_PROTO", "tcp"),
            ("CSI_CONTROL_PLANE_PORT_8080_TCP_PORT", "8080"),
            ("CSI_CONTROL_PLANE_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("CSI_CONTROL_PLANE_METRICS_SERVICE_HOST", "10.0.0.1"),
            ("CSI_CONTROL_PLANE_METRICS_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ] {
            assert_eq!(variable(name, text), None, "{name}");
        }
    }
}
