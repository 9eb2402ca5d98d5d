//! Strategic merge patch: as a merge patch, but lists of known objects are merged item by item, and `$` members direct.
//!
//! | directive | meaning |
//! |---|---|
//! | `$patch: replace` | this map (or, as an item, the whole list) replaces what is there |
//! | `$patch: delete` | this map is emptied; as an item: the item with this key goes |
//! | `$retainKeys: [..]` | members of the map that are not listed go |
//! | `$deleteFromPrimitiveList/f: [..]` | these values go from the list `f` |
//! | `$setElementOrder/f: [..]` | the order of the list `f` |

use super::super::rejection::Rejection;
use super::schema::{ListType, patch_type};
use serde_json::{Map, Value};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Applies a strategic merge patch, which must be an object.
pub(super) fn apply(current: &Value, body: &[u8]) -> Result<Value, Rejection> {
    let Value::Object(patch) = super::merge::read(body)? else { return Ok(current.clone()) };
    let original = current.as_object().cloned().unwrap_or_default();
    Ok(Value::Object(merge_map(original, patch, &[])?))
}

fn bad(why: impl Into<String>) -> Rejection {
    Rejection::bad_request(why)
}

fn merge_map(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    names: &[&str],
) -> Result<Map<String, Value>, Rejection> {
    match patch.remove(PATCH) {
        None => {}
        Some(directive) => match directive.as_str() {
            Some("merge") => {}
            Some("replace") => return Ok(stripped_map(patch)),
            Some("delete") => return Ok(Map::new()),
            _ => return Err(bad(format!("Unknown patch type found: {directive}"))),
        },
    }
    if let Some(keep) = patch.remove(RETAIN) {
        let Value::Array(keep) = keep else { return Err(bad("invalid patch format of retainKeys")) };
        if patch.keys().any(|key| !key.starts_with('$') && !keep.iter().any(|it| it == key)) {
            return Err(bad("invalid patch format of retainKeys"));
        }
        original.retain(|key, _| keep.iter().any(|it| it == key));
    }
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with('$')).cloned().collect();
    let mut orders = Vec::new();
    for directive in directives {
        let Some(value) = patch.remove(&directive) else { continue };
        let Value::Array(values) = value else { return Err(bad(format!("{directive} must be a list"))) };
        if let Some(field) = directive.strip_prefix(DELETE) {
            if let Some(items) = original.get_mut(field).and_then(Value::as_array_mut) {
                items.retain(|item| !values.contains(item));
            }
        } else if let Some(field) = directive.strip_prefix(ORDER) {
            check_order(patch.get(field), &values, &[names, &[field]].concat())?;
            let before = original.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
            orders.push((field.to_owned(), values, before));
        }
    }
    for (key, change) in patch {
        let mut names = names.to_vec();
        names.push(&key);
        let merged = match (original.remove(&key), change) {
            (_, Value::Null) => continue,
            (Some(Value::Object(old)), Value::Object(change)) => Value::Object(merge_map(old, change, &names)?),
            (Some(Value::Array(old)), Value::Array(change)) => Value::Array(merge_list(old, change, &names)?),
            // Nothing of its kind is there: the patch is the value, and what it says to do with a value is dropped.
            (None, change) if directs(&change) => continue,
            (_, change) => stripped(change),
        };
        original.insert(key, merged);
    }
    for (field, order, before) in orders {
        let mut names = names.to_vec();
        names.push(&field);
        if let Some(items) = original.get_mut(&field).and_then(Value::as_array_mut) {
            *items = ordered(std::mem::take(items), &order, &before, &names);
        }
    }
    Ok(original)
}

fn merge_list(mut old: Vec<Value>, patch: Vec<Value>, names: &[&str]) -> Result<Vec<Value>, Rejection> {
    let (before, order) = (old.clone(), patch.clone());
    match patch_type(names) {
        ListType::Atomic => Ok(patch.into_iter().map(stripped).collect()),
        ListType::Set => {
            for value in patch {
                if !old.contains(&value) {
                    old.push(value);
                }
            }
            Ok(ordered(old, &order, &before, names))
        }
        ListType::Map(keys) => {
            let key = keys.first().copied().unwrap_or("name");
            if patch.iter().any(|item| item.get(PATCH).is_some_and(|it| it == "replace")) {
                return Ok(stripped_list(patch));
            }
            for item in patch {
                merge_item(&mut old, item, key, names)?;
            }
            Ok(ordered(old, &order, &before, names))
        }
    }
}

fn merge_item(items: &mut Vec<Value>, patch: Value, key: &str, names: &[&str]) -> Result<(), Rejection> {
    let Value::Object(patch) = patch else {
        return Err(bad(format!("The order in patch list {} does not match: not a list of objects", names.join("."))));
    };
    let Some(wanted) = patch.get(key).cloned() else {
        return Err(bad(format!("map: {} does not contain declared merge key: {key}", Value::Object(patch))));
    };
    let is_it = |item: &Value| item.get(key) == Some(&wanted);
    match patch.get(PATCH).and_then(Value::as_str) {
        None => {}
        Some("delete") => {
            items.retain(|item| !is_it(item));
            return Ok(());
        }
        Some("merge") => return Err(bad("merging lists cannot yet be specified in the patch")),
        Some(other) => return Err(bad(format!("unknown patch type: {other} in list"))),
    }
    match items.iter_mut().find(|item| is_it(item)) {
        Some(item) => {
            let old = item.as_object().cloned().unwrap_or_default();
            *item = Value::Object(merge_map(old, patch, names)?);
        }
        None => items.push(Value::Object(stripped_map(patch))),
    }
    Ok(())
}

/// A value that is stored as it stands, without directives and nulls.
fn stripped(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(stripped_map(map)),
        Value::Array(items) => Value::Array(stripped_list(items)),
        other => other,
    }
}

fn stripped_list(items: Vec<Value>) -> Vec<Value> {
    items.into_iter().filter(|item| !directs(item)).map(stripped).collect()
}

/// Whether a value is there to say what to do, not what to store.
fn directs(value: &Value) -> bool {
    value.get(PATCH).is_some()
}

fn stripped_map(map: Map<String, Value>) -> Map<String, Value> {
    map.into_iter()
        .filter(|(key, value)| !value.is_null() && !key.starts_with('$') && !directs(value))
        .map(|(key, value)| (key, stripped(value)))
        .collect()
}

/// What an item is known by: its first key, or itself.
fn identity(item: &Value, names: &[&str]) -> Value {
    match patch_type(names) {
        ListType::Map(keys) => keys.first().and_then(|key| item.get(key)).cloned().unwrap_or(Value::Null),
        _ => item.clone(),
    }
}

/// Items that a patch writes must all be in the order that it asks for, and in that order.
fn check_order(patch: Option<&Value>, order: &[Value], names: &[&str]) -> Result<(), Rejection> {
    let items = patch.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut order = order.iter().map(|item| identity(item, names));
    let mut written = items.iter().filter(|item| !directs(item)).map(|item| identity(item, names));
    if written.all(|item| order.any(|it| it == item)) {
        return Ok(());
    }
    let field = names.last().copied().unwrap_or_default();
    Err(bad(format!("The order in patch list of {field} doesn't match $setElementOrder list")))
}

/// Listed items in the order asked for; the others keep their place relative to the listed ones that were there before.
fn ordered(items: Vec<Value>, order: &[Value], before: &[Value], names: &[&str]) -> Vec<Value> {
    let place = |list: &[Value], item: &Value| list.iter().position(|it| identity(it, names) == identity(item, names));
    let (mut listed, rest): (Vec<Value>, Vec<Value>) = items.into_iter().partition(|item| place(order, item).is_some());
    listed.sort_by_key(|item| place(order, item));
    let mut out = Vec::with_capacity(listed.len() + rest.len());
    let (mut listed, mut rest) = (listed.into_iter().peekable(), rest.into_iter().peekable());
    while let (Some(left), Some(right)) = (listed.peek(), rest.peek()) {
        // `None`, a new item, sorts before any old place.
        let next = if place(before, left) < place(before, right) { listed.next() } else { rest.next() };
        out.extend(next);
    }
    out.extend(listed);
    out.extend(rest);
    out
}
