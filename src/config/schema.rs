//! The JSON Schema of the whole file, and what the loader knows of a role's section.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::Config;
use super::needs::{Need, Needs};
use super::sidecar::Sidecar;
use crate::process::{Fault, Faults, Section};

/// A role's section as the loader needs it: without its type.
#[derive(Debug, Clone, Copy)]
pub struct RoleSection {
    /// The block's key below `roles`.
    pub name: &'static str,
    schema: fn(&mut SchemaGenerator) -> Schema,
    complete: fn(&str, Value, &mut Faults) -> Value,
    warnings: Warnings,
    needs: Needs,
    conflicts: Conflicts,
    pub(super) sidecar: Option<&'static Sidecar>,
}

/// Values of a role's complete section that are allowed and probably not intended, also beside the rest of the file.
pub type Warnings = fn(&Value, Rest<'_>) -> Vec<String>;

/// What of a role's complete section can never work beside the rest of the file.
pub type Conflicts = fn(&Value, Rest<'_>, &mut Faults);

/// The rest of the file.
#[derive(Debug, Clone, Copy)]
pub struct Rest<'a> {
    /// The sections of the services.
    pub config: &'a Config,
    /// The sections of the enabled roles, complete.
    pub roles: &'a BTreeMap<&'static str, Value>,
}

impl RoleSection {
    /// The section `T` at `roles.<name>`.
    pub const fn of<T: Section>(name: &'static str) -> Self {
        Self {
            name,
            schema: T::json_schema,
            complete: complete::<T>,
            warnings: |_, _| Vec::new(),
            needs: |_| Vec::new(),
            conflicts: |_, _, _| {},
            sidecar: None,
        }
    }

    /// The same with the sidecar that the role replaces: an unknown key that is the name of its flag is answered with the key.
    #[must_use]
    pub const fn with_sidecar(self, sidecar: Option<&'static Sidecar>) -> Self {
        Self { sidecar, ..self }
    }

    /// The same with warnings.
    #[must_use]
    pub const fn with_warnings(self, warnings: Warnings) -> Self {
        Self { warnings, ..self }
    }

    /// The same with what it needs of the environment.
    #[must_use]
    pub const fn with_needs(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    /// The same with what can never work beside the rest of the file.
    #[must_use]
    pub const fn with_conflicts(self, conflicts: Conflicts) -> Self {
        Self { conflicts, ..self }
    }

    /// What this complete section needs of the environment.
    pub(super) fn needs(&self, section: &Value) -> Vec<Need> {
        (self.needs)(section)
    }

    /// Adds what of this complete section can never work beside the rest of the file.
    pub(super) fn check_beside(&self, section: &Value, rest: Rest<'_>, faults: &mut Faults) {
        let mut own = Faults::below(format!("roles.{}", self.name));
        (self.conflicts)(section, rest, &mut own);
        faults.extend(own);
    }

    /// What is allowed in this complete section, and probably not intended.
    pub(super) fn warnings(&self, section: &Value, rest: Rest<'_>) -> Vec<String> {
        (self.warnings)(section, rest)
    }

    /// Gives a value of [`Loaded::roles`](super::Loaded::roles) its type. It was checked when it was loaded, so this
    /// fails only if `T` is not the type that `name` was registered with.
    pub fn read<T: Section>(value: &Value) -> Result<T, serde_json::Error> {
        T::deserialize(value)
    }

    /// Fills in the defaults and checks the section.
    pub(super) fn complete(&self, value: Value, faults: &mut Faults) -> Value {
        (self.complete)(&format!("roles.{}", self.name), value, faults)
    }
}

fn complete<T: Section>(key: &str, value: Value, faults: &mut Faults) -> Value {
    let section: T = typed(key, value, faults);
    serde_json::to_value(section).unwrap_or_default()
}

/// Gives a section its type and lets it check itself. The shape was checked before; should it still not fit, then that
/// is a fault like any other.
pub(super) fn typed<T: Section>(key: &str, value: Value, faults: &mut Faults) -> T {
    match serde_json::from_value::<T>(value) {
        Ok(section) => {
            let mut own = Faults::below(key);
            section.check(&mut own);
            faults.extend(own);
            section
        }
        Err(error) => {
            let allowed = "what `schema` prints".to_owned();
            faults.push(Fault { key: key.to_owned(), found: error.to_string(), allowed, origin: None });
            T::default()
        }
    }
}

/// Without `$ref`s: editors show the same, and the shape checker needs to know nothing about them.
pub(super) fn schema(roles: &[RoleSection]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut generator = settings.into_generator();
    let mut root = generator.root_schema_for::<Config>().to_value();

    let mut blocks = Map::new();
    for role in roles {
        blocks.insert(role.name.to_owned(), (role.schema)(&mut generator).to_value());
    }
    root["title"] = json!("csi-control-plane");
    root["description"] = json!("The configuration of csi-control-plane.");
    root["properties"]["roles"] = json!({
        "description": "The roles. A role is enabled if its block is present.",
        "type": "object",
        "properties": blocks,
        "additionalProperties": false,
    });
    allow_empty_blocks(&mut root);
    root
}

/// In YAML a block whose keys are all commented out is null; it means its defaults.
fn allow_empty_blocks(schema: &mut Value) {
    let Some(node) = schema.as_object_mut() else { return };
    if node.get("type").is_some_and(|kind| kind == "object") {
        node.insert("type".to_owned(), json!(["object", "null"]));
    }
    if let Some(properties) = node.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(allow_empty_blocks);
    }
}
