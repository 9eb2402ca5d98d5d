//! The trait of configuration sections.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One folder's part of the configuration file.
///
/// Implementors derive `Serialize`, `Deserialize` (with `rename_all = "camelCase"`, `deny_unknown_fields`, `default`),
/// `JsonSchema` and `Default`. Shape faults (unknown keys, wrong types) are found by the schema; `check` finds the rest.
pub trait Section: Serialize + DeserializeOwned + Default + JsonSchema {
    /// Reports every value that has the right type but is invalid. `faults` knows the section's key path.
    fn check(&self, faults: &mut Faults);
}

/// Faults found in one section or in the whole file: all are collected, none ends the search.
#[derive(Debug, Default)]
pub struct Faults {
    prefix: String,
    found: Vec<Fault>,
}

/// One fault: which key, what was found there, what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The key's full path, such as `roles.attacher.workers`.
    pub key: String,
    /// What was found, as written.
    pub found: String,
    /// What is allowed there.
    pub allowed: String,
    /// Where the value came from: a file, an environment variable, or the built-in default.
    pub origin: Option<String>,
}

impl Faults {
    /// Collects faults below `prefix` (empty: the top of the file).
    pub fn below(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), found: Vec::new() }
    }

    /// Adds a fault at `key`, relative to the prefix.
    pub fn add(&mut self, key: &str, found: impl fmt::Display, allowed: impl fmt::Display) {
        let key = self.path(key);
        self.found.push(Fault { key, found: found.to_string(), allowed: allowed.to_string(), origin: None });
    }

    /// Checks a section that is part of this one, at `key`.
    pub fn nested(&mut self, key: &str, section: &impl Section) {
        let mut inner = Self::below(self.path(key));
        section.check(&mut inner);
        self.extend(inner);
    }

    fn path(&self, key: &str) -> String {
        match (self.prefix.is_empty(), key.is_empty()) {
            (true, _) => key.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}.{key}", self.prefix),
        }
    }

    /// Takes over what a nested collector found.
    pub fn extend(&mut self, other: Self) {
        self.found.extend(other.found);
    }

    /// Adds one complete fault.
    pub fn push(&mut self, fault: Fault) {
        self.found.push(fault);
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// What was found, in the order in which it was.
    pub fn into_vec(self) -> Vec<Fault> {
        self.found
    }
}
