//! Decides what a new configuration means for a running daemon. Pure.
//!
//! All or nothing: a file that changes one key which needs a restart is refused as a whole. So the configuration in
//! effect is always one complete file, never a mixture.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use crate::config::Loaded;
use crate::roles::{needs_cluster, needs_driver};

use super::keys::{self, Reach};

/// The decision about a valid configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::app) enum Verdict {
    /// Nothing: it has the same values.
    Same,
    /// This.
    Apply(Change),
    /// This process can't apply it.
    Refuse(Refusal),
}

/// A change that can be applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::app) struct Change {
    /// The keys that differ.
    pub(in crate::app) keys: BTreeSet<String>,
    /// Whether the log's filter changes.
    pub(in crate::app) log: bool,
    /// Whether the options of calls to the driver change.
    pub(in crate::app) calls: bool,
    /// Roles that begin.
    pub(in crate::app) added: BTreeSet<&'static str>,
    /// Roles that end.
    pub(in crate::app) removed: BTreeSet<&'static str>,
    /// Roles that wait for their work in flight and restart, unless they take over their sections while they are served.
    pub(in crate::app) restarted: BTreeSet<&'static str>,
}

/// Why a valid configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::app) enum Refusal {
    /// These keys are read only when the process starts.
    NeedsRestart(BTreeSet<String>),
    /// No role would be left. This is probably an accident, such as a truncated file; to stop all roles, users stop the
    /// daemon.
    NoRole,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsRestart(keys) => {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                write!(
                    f,
                    "a change of {} needs a restart of the process; nothing of the file was applied",
                    keys.join(", ")
                )
            }
            Self::NoRole => f.write_str("no role would be left; nothing of the file was applied"),
        }
    }
}

/// The roles that each role checked for when it was loaded.
pub(in crate::app) type Dependencies = BTreeMap<&'static str, BTreeSet<&'static str>>;

/// Compares the configuration in effect with the new file.
pub(in crate::app) fn decide(old: &Loaded, new: &Loaded, depends_on: &Dependencies) -> Verdict {
    let mut keys = BTreeSet::new();
    differences(&old.effective(), &new.effective(), &mut String::new(), &mut keys);
    if keys.is_empty() {
        return Verdict::Same;
    }
    // Before the keys that need a restart: a process that is restarted with this file would serve nothing.
    if new.roles.is_empty() {
        return Verdict::Refuse(Refusal::NoRole);
    }
    let reached = |reach| keys.iter().filter(move |key| keys::reach(key) == reach);
    let mut fixed: BTreeSet<String> = reached(Reach::Process).cloned().collect();
    let names = |of: &Loaded| of.roles.keys().copied().collect::<BTreeSet<&'static str>>();
    let (before, after) = (names(old), names(new));
    let added: BTreeSet<_> = after.difference(&before).copied().collect();
    // What the cluster and the driver need is set up once, at the start.
    let needs: [fn(&BTreeSet<&'static str>) -> bool; 2] = [|roles| needs_cluster(roles), |roles| needs_driver(roles)];
    for needs in needs.into_iter().filter(|needs| needs(&after) && !needs(&before)) {
        let first = added.iter().filter(|role| needs(&[**role].into()));
        fixed.extend(first.map(|role| format!("roles.{role}")));
    }
    if !fixed.is_empty() {
        return Verdict::Refuse(Refusal::NeedsRestart(fixed));
    }
    let removed: BTreeSet<_> = before.difference(&after).copied().collect();
    let moved = |role: &&&'static str| {
        let minded = depends_on.get(**role).into_iter().flatten();
        minded.into_iter().any(|other| added.contains(other) || removed.contains(other))
    };
    let changed = |role: &str| reached(Reach::Role).any(|key| keys::role(key) == Some(role));
    let stay = before.intersection(&after);
    let restarted = stay.filter(|role| changed(role) || moved(role)).copied().collect();
    // The Lease groups compare their Lease settings themselves.
    let (log, calls) = (reached(Reach::Log).next().is_some(), reached(Reach::Calls).next().is_some());
    Verdict::Apply(Change { log, calls, added, removed, restarted, keys: keys.clone() })
}

/// Notes the path of every value that is not the same in both. A block that only one has is one path.
fn differences(old: &Value, new: &Value, path: &mut String, found: &mut BTreeSet<String>) {
    if old == new {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        found.insert(path.clone());
        return;
    };
    let length = path.len();
    for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
        match (old.get(key), new.get(key)) {
            (Some(old), Some(new)) => differences(old, new, path, found),
            _ => {
                found.insert(path.clone());
            }
        }
        path.truncate(length);
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
