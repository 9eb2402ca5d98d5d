//! Bodies in the API server's protobuf, which Go clients prefer for the built-in kinds: `kubectl create`, leader election,
//! the Go sidecars' events. Read only: answers are JSON, which every client accepts too.
//!
//! A body is the bytes `k8s\0` and an envelope that names the kind. What its fields are is in `protobuf.fields`, a table that was
//! derived from the published definitions; nothing about a kind is known here.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::resources;

/// The media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The first bytes of every body.
const MAGIC: &[u8] = b"k8s\0";
/// Messages nest no deeper than this.
const DEPTH: usize = 64;

/// A body that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Garbled {
    /// The magic bytes are missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    Prefix,
    /// The bytes break off or are no protobuf.
    #[error("unexpected EOF or malformed field in {0}")]
    Malformed(String),
    /// The envelope names a kind that is not served.
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    Unknown {
        /// As the envelope says.
        api_version: String,
        /// As the envelope says.
        kind: String,
    },
}

/// One field of a message.
struct Field {
    name: &'static str,
    /// Left out when zero.
    omit: bool,
    /// Its members stand in the parent.
    inline: bool,
    shape: Shape,
    of: &'static str,
}

/// How often a field's type is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Once.
    One,
    /// As a list's items.
    List,
    /// As the values of a map from strings.
    Map,
}

/// A value on the wire.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

type Schema = BTreeMap<&'static str, BTreeMap<u64, Field>>;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let lines = include_str!("protobuf.fields").lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split(' ');
            let message = words.next()?;
            Some((message, words.filter_map(field).collect()))
        })
        .collect()
});

fn field(word: &'static str) -> Option<(u64, Field)> {
    let (head, of) = word.split_once(':')?;
    let digits = head.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, rest) = head.split_at(digits);
    let (omit, inline) = (rest.starts_with('?'), rest.starts_with('^'));
    let name = rest.trim_start_matches(['?', '^']);
    let (shape, of) = match (of.strip_prefix('['), of.strip_prefix('{')) {
        (Some(of), _) => (Shape::List, of),
        (_, Some(of)) => (Shape::Map, of),
        _ => (Shape::One, of),
    };
    Some((number.parse().ok()?, Field { name, omit, inline, shape, of }))
}

/// The message of a kind's objects, if the table has it.
pub(super) fn message_of(api_version: &str, kind: &str) -> Option<&'static str> {
    let package = match api_version.split_once('/') {
        Some((group, _)) => group.split('.').next().unwrap_or_default(),
        None => "core",
    };
    SCHEMA.get_key_value(format!("{package}.{kind}").as_str()).map(|(message, _)| *message)
}

/// The shape and the type of a message's member by its JSON name; those of inlined messages are the parent's.
pub(super) fn member(message: &str, name: &str) -> Option<(Shape, &'static str)> {
    let fields = SCHEMA.get(message)?;
    let own = fields.values().find(|field| !field.inline && field.name == name);
    let inlined = || fields.values().filter(|field| field.inline).find_map(|field| member(field.of, name));
    own.map(|field| (field.shape, field.of)).or_else(inlined)
}

/// Whether a type of the table is a message, as opposed to a value that the decoder reads by itself.
pub(super) fn is_message(of: &str) -> bool {
    SCHEMA.contains_key(of)
}

/// Reads a body as the JSON that it stands for.
pub fn decode(body: &[u8]) -> Result<Value, Garbled> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Garbled::Prefix)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for (number, value) in fields(envelope, "runtime.Unknown")? {
        match (number, value) {
            (1, Wire::Bytes(meta)) => {
                for (number, value) in fields(meta, "runtime.TypeMeta")? {
                    match (number, value) {
                        (1, Wire::Bytes(text)) => api_version = string(text),
                        (2, Wire::Bytes(text)) => kind = string(text),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let known = kind == "DeleteOptions" || resources::of_kind(&api_version, &kind).is_some();
    let message = if kind == "DeleteOptions" { Some("meta.DeleteOptions") } else { message_of(&api_version, &kind) };
    let Some(message) = message.filter(|_| known) else {
        return Err(Garbled::Unknown { api_version, kind });
    };
    let mut object = self::message(raw, message, DEPTH)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

fn message(bytes: &[u8], name: &'static str, depth: usize) -> Result<Map<String, Value>, Garbled> {
    let mut object = Map::new();
    let (Some(schema), Some(depth)) = (SCHEMA.get(name), depth.checked_sub(1)) else { return Err(malformed(name)) };
    for (number, wire) in fields(bytes, name)? {
        // A field that is newer than the table is dropped, as an older server would.
        let Some(field) = schema.get(&number) else { continue };
        match field.shape {
            Shape::One if field.inline => {
                let Wire::Bytes(bytes) = wire else { return Err(malformed(name)) };
                object.extend(message(bytes, field.of, depth)?);
            }
            Shape::One => {
                let value = value(&wire, field.of, depth)?;
                if !(value.is_null() || (field.omit && is_zero(&value))) {
                    object.insert(field.name.to_owned(), value);
                }
            }
            Shape::List => {
                let value = value(&wire, field.of, depth)?;
                let list = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
                if let Some(list) = list.as_array_mut() {
                    list.push(value);
                }
            }
            Shape::Map => {
                let Wire::Bytes(bytes) = wire else { return Err(malformed(name)) };
                let (mut key, mut entry) = (String::new(), zero(field.of));
                for (number, wire) in fields(bytes, name)? {
                    match (number, &wire) {
                        (1, Wire::Bytes(bytes)) => key = string(bytes),
                        (2, _) => entry = value(&wire, field.of, depth)?,
                        _ => {}
                    }
                }
                let map = object.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                if let Some(map) = map.as_object_mut() {
                    map.insert(key, entry);
                }
            }
        }
    }
    Ok(object)
}

#[expect(clippy::cast_possible_wrap, reason = "protobuf's integers are two's complement in 64 bits")]
fn value(wire: &Wire<'_>, of: &'static str, depth: usize) -> Result<Value, Garbled> {
    Ok(match (of, wire) {
        ("i", Wire::Number(number)) => (*number as i64).into(),
        ("b", Wire::Number(number)) => (*number != 0).into(),
        ("d", Wire::Number(number)) => f64::from_bits(*number).into(),
        ("s", Wire::Bytes(bytes)) => string(bytes).into(),
        ("y", Wire::Bytes(bytes)) => super::base64::encode(bytes).into(),
        ("Quantity", Wire::Bytes(bytes)) => texts(bytes, of)?.into_iter().next().unwrap_or_default().into(),
        ("Time" | "MicroTime", Wire::Bytes(bytes)) => time(bytes, of)?,
        ("FieldsV1" | "RawExtension", Wire::Bytes(bytes)) => {
            let json = texts(bytes, of)?.into_iter().next().unwrap_or_default();
            serde_json::from_str(&json).map_err(|_| malformed(of))?
        }
        ("IntOrString", Wire::Bytes(bytes)) => {
            let (numbers, texts) = (numbers(bytes, of)?, texts(bytes, of)?);
            if numbers.get(&1).copied().unwrap_or_default() == 1 {
                texts.into_iter().next().unwrap_or_default().into()
            } else {
                numbers.get(&2).map_or(0, |number| *number as i64).into()
            }
        }
        (
            "i" | "b" | "d" | "s" | "y" | "Quantity" | "Time" | "MicroTime" | "FieldsV1" | "RawExtension"
            | "IntOrString",
            _,
        )
        | (_, Wire::Number(_)) => return Err(malformed(of)),
        (_, Wire::Bytes(bytes)) => Value::Object(message(bytes, of, depth)?),
    })
}

/// The default of a map's value that the wire leaves out.
fn zero(of: &str) -> Value {
    match of {
        "s" | "y" | "Quantity" => "".into(),
        "i" => 0.into(),
        "b" => false.into(),
        _ => Value::Object(Map::new()),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Null for the zero time, which JSON has as null too.
#[expect(clippy::cast_possible_wrap, reason = "protobuf's integers are two's complement in 64 bits")]
fn time(bytes: &[u8], of: &'static str) -> Result<Value, Garbled> {
    let numbers = numbers(bytes, of)?;
    let part = |number: u64| numbers.get(&number).map(|value| *value as i64);
    let Some(seconds) = part(1) else { return Ok(Value::Null) };
    let nanoseconds = part(2).and_then(|nanoseconds| i32::try_from(nanoseconds).ok()).unwrap_or_default();
    let moment = Timestamp::new(seconds, nanoseconds).map_err(|_| malformed(of))?;
    let format = if of == "Time" { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
    Ok(moment.strftime(format).to_string().into())
}

fn numbers(bytes: &[u8], of: &str) -> Result<BTreeMap<u64, u64>, Garbled> {
    let numbers = fields(bytes, of)?.into_iter().filter_map(|(number, wire)| match wire {
        Wire::Number(value) => Some((number, value)),
        Wire::Bytes(_) => None,
    });
    Ok(numbers.collect())
}

fn texts(bytes: &[u8], of: &str) -> Result<Vec<String>, Garbled> {
    let texts = fields(bytes, of)?.into_iter().filter_map(|(_, wire)| match wire {
        Wire::Bytes(bytes) => Some(string(bytes)),
        Wire::Number(_) => None,
    });
    Ok(texts.collect())
}

/// A message's fields as they come.
fn fields<'a>(mut bytes: &'a [u8], of: &str) -> Result<Vec<(u64, Wire<'a>)>, Garbled> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (field, rest) = next_field(bytes).ok_or_else(|| malformed(of))?;
        found.push(field);
        bytes = rest;
    }
    Ok(found)
}

fn next_field(bytes: &[u8]) -> Option<((u64, Wire<'_>), &[u8])> {
    let (key, bytes) = varint(bytes)?;
    let (wire, rest) = match key & 7 {
        0 => {
            let (number, rest) = varint(bytes)?;
            (Wire::Number(number), rest)
        }
        1 => {
            let (number, rest) = bytes.split_first_chunk::<8>()?;
            (Wire::Number(u64::from_le_bytes(*number)), rest)
        }
        2 => {
            let (length, bytes) = varint(bytes)?;
            let (content, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
            (Wire::Bytes(content), rest)
        }
        5 => {
            let (number, rest) = bytes.split_first_chunk::<4>()?;
            (Wire::Number(u32::from_le_bytes(*number).into()), rest)
        }
        _ => return None,
    };
    Some(((key >> 3, wire), rest))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((number, bytes.get(at + 1..)?));
        }
    }
    None
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn malformed(of: &str) -> Garbled {
    Garbled::Malformed(of.to_owned())
}

#[cfg(test)]
#[path = "protobuf_tests.rs"]
mod tests;
