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
use super::go::{go_map, go_text, go_type};
use super::schema::{ListType, patch_type};
use serde_json::{Map, Value};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Applies a strategic merge patch, which must be an object.
pub(super) fn apply(current: &Value, patch: Map<String, Value>) -> Result<Value, Rejection> {
    let original = current.as_object().cloned().unwrap_or_default();
    Ok(Value::Object(merge_map(original, patch, &[])?))
}

/// Faults without a class in the server's library: the server takes them for its own.
fn fault(why: impl Into<String>) -> Rejection {
    Rejection { code: 500, reason: "", message: why.into(), details: None, retry_after: None }
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> Rejection {
    let (directive, patch) = (go_text(directive), go_map(patch));
    fault(format!("unknown patch type: {directive} in map: {patch}"))
}

fn no_merge_key(patch: &Map<String, Value>, key: &str) -> Rejection {
    fault(format!("map: {} does not contain declared merge key: {key}", go_map(patch)))
}

fn merge_map(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    names: &[&str],
) -> Result<Map<String, Value>, Rejection> {
    match patch.get(PATCH) {
        None => {}
        Some(directive) if directive == "replace" => return Ok(stripped_map(patch)),
        Some(directive) if directive == "delete" => return Ok(Map::new()),
        Some(directive) => return Err(unknown_directive(directive, &patch)),
    }
    if let Some(keep) = patch.remove(RETAIN) {
        let is_kept = |key: &String, keep: &[Value]| keep.iter().any(|it| it == key);
        match keep.as_array() {
            Some(keep) if patch.iter().all(|(key, it)| it.is_null() || key.starts_with('$') || is_kept(key, keep)) => {
                original.retain(|key, _| is_kept(key, keep));
            }
            _ => return Err(Rejection::bad_request("invalid patch format of retainKeys")),
        }
    }
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with('$')).cloned().collect();
    let mut orders = Vec::new();
    for directive in directives {
        let Some(value) = patch.remove(&directive) else { continue };
        if let Some(field) = directive.strip_prefix(DELETE) {
            // Skip members that are no list on either side.
            let values = value.as_array().map_or(&[][..], Vec::as_slice);
            if let Some(items) = original.get_mut(field).and_then(Value::as_array_mut) {
                items.retain(|item| !values.contains(item));
            }
        } else if let Some(field) = directive.strip_prefix(ORDER) {
            let Value::Array(values) = value else {
                return Err(fault(format!("expected a []interface {{}}, but received a {}", go_type(&value))));
            };
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
            let odd = |items: &[Value]| items.iter().any(|item| !item.is_object());
            if odd(&old) || odd(&patch) {
                let (old, patch) = (go_text(&old.into()), go_text(&patch.into()));
                return Err(fault(format!("list element types are not identical: [{old} {patch}]")));
            }
            let (special, plain): (Vec<Value>, Vec<Value>) = patch.into_iter().partition(directs);
            let mut replace = false;
            for item in special.iter().filter_map(Value::as_object) {
                match item.get(PATCH).and_then(Value::as_str) {
                    Some("delete") => {
                        let gone = item.get(key).ok_or_else(|| no_merge_key(item, key))?;
                        old.retain(|held| held.get(key) != Some(gone));
                    }
                    Some("replace") => replace = true,
                    Some("merge") => return Err(fault("merging lists cannot yet be specified in the patch")),
                    _ => return Err(unknown_directive(&item[PATCH], item)),
                }
            }
            if replace {
                return Ok(stripped_list(plain));
            }
            for item in plain {
                merge_item(&mut old, item, key, names)?;
            }
            Ok(ordered(old, &order, &before, names))
        }
    }
}

fn merge_item(items: &mut Vec<Value>, patch: Value, key: &str, names: &[&str]) -> Result<(), Rejection> {
    let Value::Object(patch) = patch else { return Ok(()) };
    let wanted = patch.get(key).cloned().ok_or_else(|| no_merge_key(&patch, key))?;
    match items.iter_mut().find(|item| item.get(key) == Some(&wanted)) {
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

/// The identity of an item: its first key, or the item itself.
fn identity(item: &Value, names: &[&str]) -> Value {
    match patch_type(names) {
        ListType::Map(keys) => keys.first().and_then(|key| item.get(key)).cloned().unwrap_or(Value::Null),
        _ => item.clone(),
    }
}

/// Items that a patch writes must all be in the order that it asks for, and in that order.
fn check_order(patch: Option<&Value>, all: &[Value], names: &[&str]) -> Result<(), Rejection> {
    let items = patch.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut order = all.iter().map(|item| identity(item, names));
    let mut written = items.iter().filter(|item| !directs(item)).map(|item| identity(item, names));
    if written.all(|item| order.any(|it| it == item)) {
        return Ok(());
    }
    let list = |items: &[Value]| go_text(&Value::Array(items.to_vec()));
    Err(fault(format!(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        list(items),
        list(all)
    )))
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
