//! The fields of a body that a server drops: those that the kind does not have, and those that the body has twice. Pure.
//!
//! ```text
//!   body ──> in_body  ─┐                                     Ignore: dropped without a word
//!                      ├─> names of fields ─> Directive ───> Warn: a `Warning` header each (also the default)
//!   patch ─> in_patch ─┘                                     Strict: the request is refused
//!   what it makes ──> drop_unknown ─┘
//! ```
//!
//! What a kind has comes from the table of `protobuf` for those that each cluster has, and from their definition for those that were
//! installed. The order and the words are those of the real server: it reads a body of a built-in kind once, with its types, and
//! one of an installed kind twice: for duplicates first, then for what its definition lacks.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::definitions;
use super::patch::{self, PatchKind};
use super::protobuf::{self, Shape};
use super::rejection::Rejection;
use super::resources::Resource;

/// As many faults are named, and no more.
const MOST_FAULTS: usize = 100;

/// What a client wants to hear of dropped fields: the parameter `fieldValidation`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Directive {
    /// Nothing.
    Ignore,
    /// A warning for each.
    #[default]
    Warn,
    /// The request fails.
    Strict,
}

/// The fields that one request has lost, as far as its client wants to hear of them.
#[derive(Debug)]
pub struct Dropped {
    directive: Directive,
    faults: Vec<String>,
}

impl Dropped {
    /// None so far.
    pub fn new(directive: Directive) -> Self {
        Self { directive, faults: Vec::new() }
    }

    /// The warnings for the client.
    pub fn warnings(&self) -> &[String] {
        &self.faults
    }

    /// Looks at the body of a create or update. What cannot be decoded at all is left to the decoder.
    pub fn in_body(&mut self, resource: &Resource, body: &[u8]) -> Result<(), Rejection> {
        if self.directive == Directive::Ignore {
            return Ok(());
        }
        match Type::of(resource) {
            Type::Root(_) => {
                look(Type::Any, body, &mut self.faults);
                if let Ok(mut object) = serde_json::from_slice(body) {
                    drop_unknown(resource, &mut object, &mut self.faults);
                }
            }
            of => look(of, body, &mut self.faults),
        }
        self.verdict(|faults| Rejection::undecodable(resource, faults))
    }

    /// Looks at a patch and at what it makes of an object, from which unknown fields are dropped here. Server-side apply refuses
    /// unknown fields by itself.
    pub fn in_patch(
        &mut self,
        resource: &Resource,
        kind: &PatchKind,
        body: &[u8],
        patched: &mut Value,
    ) -> Result<(), Rejection> {
        if self.directive == Directive::Ignore || matches!(kind, PatchKind::Apply { .. }) {
            return Ok(());
        }
        if *kind == PatchKind::Json {
            look(Type::Operations, body, &mut self.faults);
            for fault in &mut self.faults {
                fault.insert_str(0, "json patch ");
            }
        } else {
            look(Type::Any, body, &mut self.faults);
        }
        // Copied only where it is shown: nearly no patch brings an unknown field.
        let shown = (self.directive == Directive::Strict).then(|| patch::shown(kind, body, patched));
        drop_unknown(resource, patched, &mut self.faults);
        self.verdict(|faults| Rejection::of_patch(&shown.unwrap_or_default(), faults))
    }

    fn verdict(&self, refusal: impl FnOnce(&str) -> Rejection) -> Result<(), Rejection> {
        if self.directive != Directive::Strict || self.faults.is_empty() {
            return Ok(());
        }
        Err(refusal(&format!("strict decoding error: {}", self.faults.join(", "))))
    }
}

/// Drops the fields that the kind does not have, and names them in their order.
pub fn drop_unknown(resource: &Resource, object: &mut Value, faults: &mut Vec<String>) {
    let unknown = take_unknown(resource, object);
    faults.extend(unknown.into_iter().map(|path| format!("unknown field \"{path}\"")));
}

/// Drops the fields that the kind does not have. Their paths: `spec.containers[0].imag`.
pub fn take_unknown(resource: &Resource, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    prune(Type::of(resource), object, "", &mut unknown);
    unknown.sort_unstable();
    unknown
}

/// What a value may hold.
#[derive(Clone, Copy)]
enum Type {
    /// Anything.
    Any,
    /// A value that is read by a decoder of its own, or that has no members.
    Opaque,
    /// An object; the table has the message of its kind.
    Kind(&'static str),
    /// A message of the table.
    Message(&'static str),
    /// A list of a type of the table.
    List(&'static str),
    /// A map of a type of the table.
    Map(&'static str),
    /// What a definition says.
    Defined(&'static Value),
    /// The root of a definition.
    Root(&'static Value),
    /// A JSON patch.
    Operations,
    /// One of its operations.
    Operation,
}

impl Type {
    fn of(resource: &Resource) -> Self {
        if let Some(schema) = definitions::schema(resource) {
            return Self::Root(schema);
        }
        protobuf::message_of(&resource.api_version(), resource.kind).map_or(Self::Any, Self::Kind)
    }

    fn element(of: &'static str) -> Self {
        if protobuf::is_message(of) { Self::Message(of) } else { Self::Opaque }
    }

    /// The type of a member; `None`: there is no such member.
    fn member(self, name: &str) -> Option<Self> {
        match self {
            Self::Any => Some(Self::Any),
            Self::Opaque | Self::List(_) | Self::Operations => Some(Self::Opaque),
            Self::Kind(_) if matches!(name, "apiVersion" | "kind") => Some(Self::Opaque),
            Self::Kind(message) | Self::Message(message) => {
                protobuf::member(message, name).map(|(shape, of)| match shape {
                    Shape::One => Self::element(of),
                    Shape::List => Self::List(of),
                    Shape::Map => Self::Map(of),
                })
            }
            Self::Map(of) => Some(Self::element(of)),
            Self::Root(_) if name == "metadata" => Some(Self::Message("meta.ObjectMeta")),
            Self::Root(schema) | Self::Defined(schema) => {
                match (schema.get("properties"), schema.get("additionalProperties")) {
                    (Some(members), _) => members.get(name).map(Self::Defined),
                    (None, Some(values)) => Some(Self::Defined(values)),
                    (None, None) => Some(Self::Any),
                }
            }
            Self::Operation => matches!(name, "op" | "from" | "path" | "value").then_some(Self::Opaque),
        }
    }

    /// The type of a list's items.
    fn item(self) -> Self {
        match self {
            Self::Any => Self::Any,
            Self::List(of) => Self::element(of),
            Self::Defined(schema) => schema.get("items").map_or(Self::Any, Self::Defined),
            Self::Operations => Self::Operation,
            _ => Self::Opaque,
        }
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn prune(of: Type, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    if matches!(of, Type::Any | Type::Opaque) {
        return;
    }
    match value {
        Value::Object(members) => members.retain(|name, value| {
            let Some(of) = of.member(name) else {
                unknown.push(below(path, name));
                return false;
            };
            if value.is_object() || value.is_array() {
                prune(of, value, &below(path, name), unknown);
            }
            true
        }),
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                prune(of.item(), item, &format!("{path}[{at}]"), unknown);
            }
        }
        _ => {}
    }
}

/// Reads a text once and names what its decoder drops. Where it is no JSON, the decoder says so.
fn look(of: Type, body: &[u8], faults: &mut Vec<String>) {
    let mut reader = serde_json::Deserializer::from_slice(body);
    // The faults are the result.
    let _ = Look { of, path: String::new(), faults }.deserialize(&mut reader);
}

/// A look at one value of a text.
struct Look<'a> {
    of: Type,
    path: String,
    faults: &'a mut Vec<String>,
}

impl Look<'_> {
    fn note(&mut self, what: &str, name: &str) {
        let fault = format!("{what} field \"{}\"", below(&self.path, name));
        if self.faults.len() < MOST_FAULTS && !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if matches!(self.of, Type::Opaque) {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(drop);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut seen: Vec<String> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let Some(of) = self.of.member(&name) else {
                self.note("unknown", &name);
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen.contains(&name) {
                self.note("duplicate", &name);
            }
            map.next_value_seed(Look { of, path: below(&self.path, &name), faults: &mut *self.faults })?;
            seen.push(name);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let of = self.of.item();
        for at in 0_usize.. {
            let path = format!("{}[{at}]", self.path);
            if list.next_element_seed(Look { of, path, faults: &mut *self.faults })?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "strict_tests.rs"]
mod tests;
