//! The configuration: one YAML file, with the environment and then the command line on top.
//!
//! ```text
//!   defaults  <  file  <  CSI_CONTROL_PLANE_… variables  <  flags          (figment merges, the later wins)
//!                  │            │                            │
//!                  └─ shape ────┴────────────────────────────┘   each layer against the JSON Schema: unknown keys, wrong types, ranges
//!                       │           a faulty key is noted, with its origin, and taken out
//!                     merge ──> one struct per section ──> Section::check: what has the right type but makes no sense
//!                       │
//!                  Loaded, or Rejected with *every* fault: key, found, allowed, origin
//! ```
//!
//! - A section belongs to the folder that reads it ([`Section`]); this folder only composes them. Roles are handed in as
//!   [`RoleSection`]s and never named here.
//! - A role whose block is present is enabled; an empty block means the defaults. The same holds for other blocks, so a
//!   file in which everything is commented out is valid.
//! - The environment and the file's text are inputs: nothing here reads a variable, and only [`File::read`] reads a file.
//! - Each layer is checked before the merge: so a fault in the file is found even if a variable hides it, and its
//!   origin is known. Figment keeps the origin of merged values. The sandbox lays a file of its own between defaults and file.

pub mod changes;
pub mod defaults;
mod environment;
pub mod flags;
mod layers;
mod manifest;
mod needs;
mod renamed;
mod runtime;
mod schema;
mod shape;
pub mod sidecar;
mod suggest;
mod syntax;
#[cfg(test)]
mod tests;
mod yaml;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::KubernetesSection;
use crate::csi::CsiSection;
use crate::diagnostics::DiagnosticsSection;
use crate::election::LeaderElectionSection;
use crate::process::{Fault, Faults, Section, input};
use crate::telemetry::TelemetrySection;

pub use environment::{FILE_VARIABLE, OddVariable, PREFIX, variables};
pub use needs::{Need, Needs};
pub use runtime::RuntimeSection;
pub use schema::{Conflicts, Rest, RoleSection, Warnings};

/// Every section that is not a role's.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// The connection to the CSI driver.
    pub csi: CsiSection,
    /// The Kubernetes API.
    pub kubernetes: KubernetesSection,
    /// Leader election.
    pub leader_election: LeaderElectionSection,
    /// Probes, metrics and the status page.
    pub diagnostics: DiagnosticsSection,
    /// Logs and traces.
    pub telemetry: TelemetrySection,
    /// The process's own resources.
    pub runtime: RuntimeSection,
}

impl Config {
    /// The JSON Schema (draft 2020-12) of the whole file, with these roles.
    pub fn schema(roles: &[RoleSection]) -> Value {
        schema::schema(roles)
    }
}

/// Where a configuration comes from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// A file below the user's: its values are defaults that the program has for its user, and never the user's fault.
    pub base: Option<File>,
    /// The file; none: only defaults and the environment.
    pub file: Option<File>,
    /// All environment variables; those without our prefix are ignored.
    pub environment: BTreeMap<String, String>,
    /// What flags of the command line set.
    pub flags: Vec<FlagSetting>,
}

/// What a flag of the command line sets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlagSetting {
    /// The flag with its value, as messages call it.
    pub flag: String,
    /// The key.
    pub key: String,
    /// Its value, whose shape is checked like a file's.
    pub value: Value,
}

/// A configuration file's text and the name by which messages call it.
#[derive(Debug, Clone)]
pub struct File {
    /// Its path.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The configuration file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the configuration file {name}")]
pub struct ReadError {
    name: String,
    #[source]
    source: std::io::Error,
}

impl File {
    /// Reads a file; `-` is the standard input. The only I/O of this folder, once, before anything is started.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let name = input::name(path);
        let text = input::read(path).map_err(|source| ReadError { name: name.clone(), source })?;
        Ok(Self { name, text })
    }
}

/// A configuration without a fault.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The sections of the services.
    pub config: Config,
    /// The section of each enabled role, every key filled in. [`RoleSection::read`] gives it its type.
    pub roles: BTreeMap<&'static str, Value>,
    /// Allowed values that are probably not intended.
    pub warnings: Vec<String>,
    /// What the environment lacks for it: here it can never work.
    pub unmet: Vec<Fault>,
}

impl Loaded {
    /// Refuses a configuration that needs what the environment of this process does not have.
    pub fn to_run_here(self) -> Result<Self, Rejected> {
        if self.unmet.is_empty() { Ok(self) } else { Err(Rejected { faults: self.unmet }) }
    }

    /// Refuses a configuration that enables no role: most often its blocks are at a wrong place, or commented out. A running
    /// daemon accepts it, because a role may be added to its file later.
    pub fn with_a_role(self, source: &str, roles: &[RoleSection]) -> Result<Self, Rejected> {
        if !self.roles.is_empty() {
            return Ok(self);
        }
        let names: Vec<_> = roles.iter().map(|role| role.name).collect();
        let fault = Fault {
            key: "roles".to_owned(),
            found: "no role".to_owned(),
            allowed: format!("a block for at least one of {}; --allow-empty if you mean none", names.join(", ")),
            origin: Some(source.to_owned()),
        };
        Err(Rejected { faults: vec![fault] })
    }

    /// The configuration in effect, as a complete file.
    pub fn effective(&self) -> Value {
        let mut all = serde_json::to_value(&self.config).unwrap_or_default();
        all["roles"] = json!(self.roles);
        all
    }
}

/// A configuration with faults: all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// What is wrong, sorted by key.
    pub faults: Vec<Fault>,
}

/// How many faults people are shown. A file of another program has thousands of unknown keys.
const SHOWN: usize = 20;

impl std::error::Error for Rejected {}

impl fmt::Display for Rejected {
    /// One block a fault: people read this in a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.faults.len();
        write!(f, "the configuration has {count} fault{}", if count == 1 { "" } else { "s" })?;
        for Fault { key, found, allowed, origin } in self.faults.iter().take(SHOWN) {
            let key = if key.is_empty() { "(the whole file)" } else { key };
            write!(f, "\n\n  {key}")?;
            if let Some(origin) = origin {
                write!(f, "  ({origin})")?;
            }
            write!(f, "\n    found:   {found}\n    allowed: {allowed}")?;
        }
        match count.saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n\n  and {more} more"),
        }
    }
}

impl Rejected {
    /// The faults for machines: a list of `{key, found, allowed, origin}`.
    pub fn to_json(&self) -> Value {
        self.faults
            .iter()
            .map(|Fault { key, found, allowed, origin }| {
                json!({"key": key, "found": found, "allowed": allowed, "origin": origin})
            })
            .collect()
    }
}

/// Merges the sources and checks the result.
pub fn load(sources: &Sources, roles: &[RoleSection]) -> Result<Loaded, Rejected> {
    let mut faults = Vec::new();
    let mut merged = layers::merge(sources, roles, &mut faults);

    let mut checked = Faults::default();
    let config = Config {
        csi: section("csi", &mut merged, &mut checked),
        kubernetes: section("kubernetes", &mut merged, &mut checked),
        leader_election: section("leaderElection", &mut merged, &mut checked),
        diagnostics: section("diagnostics", &mut merged, &mut checked),
        telemetry: section("telemetry", &mut merged, &mut checked),
        runtime: section("runtime", &mut merged, &mut checked),
    };
    let mut enabled = BTreeMap::new();
    for role in roles {
        if let Some(value) = merged.take(&["roles", role.name]) {
            enabled.insert(role.name, role.complete(value, &mut checked));
        }
    }
    for role in roles {
        let rest = Rest { config: &config, roles: &enabled };
        enabled.get(role.name).into_iter().for_each(|section| role.check_beside(section, rest, &mut checked));
    }
    faults.extend(checked.into_vec().into_iter().map(|fault| merged.trace(fault)));
    if !faults.is_empty() {
        for fault in &mut faults {
            fault.found = without_credentials(&fault.found);
            fault.origin = fault.origin.as_deref().map(without_credentials);
        }
        faults.sort_by(|a, b| a.key.cmp(&b.key));
        return Err(Rejected { faults });
    }
    let warnings = warnings(&config, &enabled, roles);
    let sections = roles.iter().filter_map(|role| Some((role, enabled.get(role.name)?)));
    let unmet = sections
        .flat_map(|(role, section)| needs::unmet(role.name, &role.needs(section), section, &sources.environment));
    let unmet = unmet.map(|fault| merged.trace(fault)).collect();
    Ok(Loaded { config, roles: enabled, warnings, unmet })
}

/// Faults are shown in logs and on the status page, and the part before the @ of an address may be a password.
fn without_credentials(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '`')).unwrap_or(part.len());
        let host = part[..end].rfind('@').map_or(0, |at| at + 1);
        shown.push_str("://");
        shown.push_str(&part[host..]);
    }
    shown
}

fn section<T: Section>(key: &str, merged: &mut layers::Merged, faults: &mut Faults) -> T {
    schema::typed(key, merged.take(&[key]).unwrap_or_else(|| json!({})), faults)
}

fn warnings(config: &Config, enabled: &BTreeMap<&'static str, Value>, roles: &[RoleSection]) -> Vec<String> {
    let mut warnings = Vec::new();
    if enabled.is_empty() {
        let names: Vec<_> = roles.iter().map(|role| role.name).collect();
        warnings.push(format!("no role is enabled, so there is nothing to do; roles are: {}", names.join(", ")));
    }
    if !config.leader_election.enabled {
        warnings.push(
            "leaderElection.enabled is false: nothing keeps a second process from doing the same work".to_owned(),
        );
    }
    if config.diagnostics.listen.is_none() {
        warnings.push("diagnostics.listen is null: no probes, no metrics, no status page".to_owned());
    }
    let rest = Rest { config, roles: enabled };
    for role in roles {
        let section = enabled.get(role.name);
        warnings.extend(section.into_iter().flat_map(|section| role.warnings(section, rest)));
    }
    warnings
}
