//! JSON Patch as the API server's library (evanphx/json-patch v4) does it.
//!
//! Where it differs from RFC 6902: a `test` of null passes on a *missing* member (controllers rely on it to add the first
//! finalizer), `replace` sets a missing member, a missing member is copied as null, and negative array indices count from the
//! end. An operation that can't be done is 422, a patch that can't be read 400.

use super::super::rejection::Rejection;
use serde_json::Value;

/// The server refuses longer patches.
const MAX_OPERATIONS: usize = 10_000;

/// An operation that cannot be done. The server does not say which.
#[derive(Debug)]
struct Failed;

/// Applies a patch: all operations or none.
pub(super) fn apply(current: &Value, body: &[u8]) -> Result<Value, Rejection> {
    let patch: Value = serde_json::from_slice(body).map_err(|error| Rejection::bad_request(error.to_string()))?;
    let Value::Array(operations) = patch else {
        return Err(Rejection::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(Rejection::request_too_large(MAX_OPERATIONS));
    }
    if let Some(odd) = operations.iter().find(|operation| !operation.is_object()) {
        let why = format!("json: cannot unmarshal {odd} into Go value of type jsonpatch.Operation");
        return Err(Rejection::bad_request(why));
    }
    let mut document = current.clone();
    operations
        .iter()
        .try_for_each(|operation| perform(&mut document, operation))
        .map_err(|Failed| Rejection::unprocessable_patch())?;
    Ok(document)
}

fn perform(document: &mut Value, operation: &Value) -> Result<(), Failed> {
    let word = |key: &str| operation.get(key).and_then(Value::as_str);
    let path = word("path").ok_or(Failed)?;
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match word("op").unwrap_or("") {
        "add" => add(document, path, value()),
        "remove" => remove(document, path).map(drop),
        "replace" => replace(document, path, value()),
        "test" => test(document, path, &value()),
        "copy" => {
            let copied = get(document, word("from").ok_or(Failed)?)?.clone();
            add(document, path, copied)
        }
        "move" => {
            let moved = remove(document, word("from").ok_or(Failed)?)?;
            add(document, path, moved)
        }
        _ => Err(Failed),
    }
}

/// The container of a path, and the path's last token. A path that is empty or has no leading slash has none.
fn parent<'a>(document: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), Failed> {
    let mut tokens: Vec<String> =
        path.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
    let last = tokens.pop().ok_or(Failed)?;
    let mut at = document;
    for token in tokens {
        at = match at {
            Value::Object(map) => map.get_mut(&token).ok_or(Failed)?,
            Value::Array(items) => {
                let i = index(&token, items.len())?;
                items.get_mut(i).ok_or(Failed)?
            }
            _ => return Err(Failed),
        };
    }
    if at.is_object() || at.is_array() { Ok((at, last)) } else { Err(Failed) }
}

/// An existing place in an array; negative ones count from the end.
fn index(token: &str, len: usize) -> Result<usize, Failed> {
    let number: i64 = token.parse().map_err(|_| Failed)?;
    let len = i64::try_from(len).map_err(|_| Failed)?;
    let number = if number < 0 { number + len } else { number };
    if (0..len).contains(&number) { usize::try_from(number).map_err(|_| Failed) } else { Err(Failed) }
}

/// The value at a path; a missing member of an object is null.
fn get<'a>(document: &'a mut Value, path: &str) -> Result<&'a Value, Failed> {
    let (container, key) = parent(document, path)?;
    match container {
        Value::Object(map) => Ok(map.get(&key).unwrap_or(&Value::Null)),
        Value::Array(items) => {
            let i = index(&key, items.len())?;
            items.get(i).ok_or(Failed)
        }
        _ => Err(Failed),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), Failed> {
    let (container, key) = parent(document, path)?;
    match container {
        Value::Object(map) => drop(map.insert(key, value)),
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            // One past the end is a place to insert at.
            let i = index(&key, items.len() + 1)?;
            items.insert(i, value);
        }
        _ => return Err(Failed),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, Failed> {
    let (container, key) = parent(document, path)?;
    match container {
        Value::Object(map) => map.remove(&key).ok_or(Failed),
        Value::Array(items) => {
            let i = index(&key, items.len())?;
            Ok(items.remove(i))
        }
        _ => Err(Failed),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), Failed> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(Failed);
        }
        *document = value;
        return Ok(());
    }
    let (container, key) = parent(document, path)?;
    match container {
        Value::Object(map) => drop(map.insert(key, value)),
        Value::Array(items) => {
            let i = index(&key, items.len())?;
            *items.get_mut(i).ok_or(Failed)? = value;
        }
        _ => return Err(Failed),
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, expected: &Value) -> Result<(), Failed> {
    let equal = if path.is_empty() { document == expected } else { get(document, path)? == expected };
    if equal { Ok(()) } else { Err(Failed) }
}
