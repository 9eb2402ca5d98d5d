//! Server-side apply: one manager's intent merged into the object, each field's owner kept in `metadata.managedFields`.
//!
//! ```text
//!   intent ─> merge into live ─> prune what this manager no longer wants and nobody else owns
//!                                  │
//!             changed ∩ owned by others?  ── yes, not forced ─> 409 with a cause a field
//!                                  └─ otherwise: the fields are this manager's; forced: theirs alone
//! ```
//!
//! The algorithm is that of structured-merge-diff, over the kinds' list types in `schema.rs`. Other writes are tracked by
//! [`track_update`], so that an apply meets their fields. `null`s in an intent are taken as left out.

use super::super::access::{at, list, set, text};
use super::super::rejection::Rejection;
use super::super::resources::Resource;
use super::super::strict;
use super::fields::{self, Fields};
use super::schema::{ListType, is_atomic_map, key_default, list_type};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Refuses an intent with fields that the kind does not have, whatever the client asks of the validation of fields.
fn all_declared(resource: &Resource, intent: &Value) -> Result<(), Rejection> {
    let unknown = strict::take_unknown(resource, &mut intent.clone());
    let mut faults: Vec<String> =
        unknown.iter().map(|path| format!("{}: field not declared in schema", by_keys(path, intent))).collect();
    let faults = match faults.as_mut_slice() {
        [] => return Ok(()),
        [fault] => std::mem::take(fault),
        several => format!("errors:\n  {}", several.join("\n  ")),
    };
    let (namespace, name) = (text(intent, &["metadata", "namespace"]), text(intent, &["metadata", "name"]));
    let message = format!(
        "failed to create typed patch object ({namespace}/{name}; {}/{}, Kind={}): {faults}",
        resource.group, resource.version, resource.kind
    );
    // The real server forgot to make this one the client's fault.
    Err(Rejection { code: 500, reason: "", message, details: None, retry_after: None })
}

/// A path as apply names it: `.spec.containers[name="a"].imag`.
fn by_keys(path: &str, intent: &Value) -> String {
    let (mut shown, mut names, mut value) = (String::new(), Vec::new(), Some(intent));
    for step in path.split('.') {
        let (name, index) = step.strip_suffix(']').and_then(|it| it.split_once('[')).unzip();
        let name = name.unwrap_or(step);
        names.push(name);
        let _ = write!(shown, ".{name}");
        value = value.and_then(|value| value.get(name));
        let Some(index) = index else { continue };
        value = index.parse::<usize>().ok().and_then(|at| value?.get(at));
        let key = |key: &&str| {
            let found = value.and_then(|item| item.get(*key)).cloned();
            format!("{key}={}", found.unwrap_or_else(|| key_default(key).into()))
        };
        let _ = match list_type(&names) {
            ListType::Map(keys) => write!(shown, "[{}]", keys.iter().map(key).collect::<Vec<_>>().join(",")),
            _ => write!(shown, "[{index}]"),
        };
    }
    shown
}

/// Who writes, where and when: one entry of `managedFields`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Managed<'a> {
    /// The field manager's name.
    pub manager: &'a str,
    /// `status`, or empty for the object itself.
    pub subresource: &'a str,
    /// RFC 3339 time of the write, where it is known.
    pub time: Option<&'a str>,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    manager: String,
    operation: String,
    subresource: String,
    api_version: String,
    time: Option<String>,
    fields: Fields,
}

impl Entry {
    fn read(value: &Value) -> Self {
        Self {
            manager: text(value, &["manager"]).to_owned(),
            operation: text(value, &["operation"]).to_owned(),
            subresource: text(value, &["subresource"]).to_owned(),
            api_version: text(value, &["apiVersion"]).to_owned(),
            time: at(value, &["time"]).and_then(Value::as_str).map(str::to_owned),
            fields: at(value, &["fieldsV1"]).map(fields::from_value).unwrap_or_default(),
        }
    }

    fn to_value(&self) -> Value {
        let mut value = json!({
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields::to_value(&self.fields),
        });
        if let Some(time) = &self.time {
            set(&mut value, "time", time.as_str().into());
        }
        if !self.subresource.is_empty() {
            set(&mut value, "subresource", self.subresource.as_str().into());
        }
        value
    }

    fn is(&self, who: &Managed, operation: &str) -> bool {
        self.manager == who.manager && self.subresource == who.subresource && self.operation == operation
    }

    /// As conflicts name the owner.
    fn shown(&self) -> String {
        let mut shown = format!("\"{}\"", self.manager);
        if !self.subresource.is_empty() {
            let _ = write!(shown, " with subresource \"{}\"", self.subresource);
        }
        if self.operation == "Update" {
            let _ = write!(shown, " using {}", self.api_version);
            if let Some(time) = &self.time {
                let _ = write!(shown, " at {time}");
            }
        }
        shown
    }
}

fn read_entries(object: &Value) -> Vec<Entry> {
    list(object, &["metadata", "managedFields"]).iter().map(Entry::read).filter(|it| !it.fields.is_empty()).collect()
}

/// Writes the entries in the server's order: applies first, then by time and name.
fn write_entries(object: &mut Value, mut entries: Vec<Entry>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
        return;
    }
    entries.sort_by(|a, b| {
        let key = |it: &Entry| {
            (it.operation.clone(), it.time.clone(), it.manager.clone(), it.api_version.clone(), it.subresource.clone())
        };
        key(a).cmp(&key(b))
    });
    metadata.insert("managedFields".to_owned(), entries.iter().map(Entry::to_value).collect());
}

/// What `live` (or nothing) becomes when `who` applies `body`, which is YAML or JSON.
pub fn apply_configuration(
    resource: &Resource,
    live: Option<&Value>,
    body: &[u8],
    who: Managed,
    force: bool,
) -> Result<Value, Rejection> {
    let intent = read_intent(resource, body, who.subresource)?;
    all_declared(resource, &intent)?;
    let before = live.cloned().unwrap_or_else(|| json!({}));
    let mut after = before.clone();
    merge(&mut after, &intent, &mut Vec::new());

    let mut entries = read_entries(&before);
    if live.is_some() && entries.is_empty() {
        entries.extend(unmanaged(resource, &before, who.time));
    }
    let wanted: Fields = fields::leaves(&intent, false).into_keys().collect();
    let mine = entries.iter().position(|entry| entry.is(&who, "Apply"));
    let previous = mine.map(|i| entries.remove(i));
    if let Some(previous) = &previous {
        prune(&mut after, previous, &wanted, &entries);
    }

    let (old, new) = (fields::leaves(&before, true), fields::leaves(&after, true));
    let changed: Fields =
        new.iter().filter(|(path, value)| old.get(*path) != Some(value)).map(|(path, _)| path.clone()).collect();
    if !force {
        let conflicts: Vec<(String, String)> = entries
            .iter()
            .flat_map(|entry| entry.fields.intersection(&changed).map(|path| (entry.shown(), fields::shown(path))))
            .collect();
        if !conflicts.is_empty() {
            return Err(Rejection::apply_conflict(conflicts));
        }
    }
    disown(&mut entries, |path| changed.contains(path) || !new.contains_key(path));

    let time = match &previous {
        // Nothing new to say: the entry keeps its time, and the write may turn out to be none.
        Some(previous) if previous.fields == wanted && changed.is_empty() => previous.time.clone(),
        _ => who.time.map(str::to_owned),
    };
    let entry = Entry {
        manager: who.manager.to_owned(),
        operation: "Apply".to_owned(),
        subresource: who.subresource.to_owned(),
        api_version: resource.api_version(),
        time,
        fields: wanted,
    };
    if !entry.fields.is_empty() {
        entries.push(entry);
    }
    write_entries(&mut after, entries);
    Ok(after)
}

/// The owner of what an object had before anybody's fields were tracked.
fn unmanaged(resource: &Resource, live: &Value, time: Option<&str>) -> Option<Entry> {
    let fields: Fields = fields::leaves(live, true).into_keys().collect();
    (!fields.is_empty()).then(|| Entry {
        manager: "before-first-apply".to_owned(),
        operation: "Update".to_owned(),
        subresource: String::new(),
        api_version: resource.api_version(),
        time: time.map(str::to_owned),
        fields,
    })
}

/// The intent: an object of the resource's kind without what a write to this place can't set.
fn read_intent(resource: &Resource, body: &[u8], subresource: &str) -> Result<Value, Rejection> {
    let parsed: Result<Value, String> = serde_json::from_slice(body)
        .or_else(|_| serde_yaml::from_slice(body))
        .map_err(|error| format!("error decoding YAML: {error}"));
    let mut intent = without_nulls(parsed.map_err(Rejection::bad_request)?);
    let (api_version, kind) = (text(&intent, &["apiVersion"]), text(&intent, &["kind"]));
    if kind != resource.kind || api_version != resource.api_version() {
        let why = format!(
            "the object provided is unrecognized (must be of type {}): apiVersion \"{api_version}\", kind \"{kind}\"",
            resource.kind
        );
        return Err(Rejection::bad_request(why));
    }
    if !list(&intent, &["metadata", "managedFields"]).is_empty() {
        return Err(Rejection::bad_request("metadata.managedFields must be nil"));
    }
    if let Some(map) = intent.as_object_mut() {
        if !map.get("metadata").is_some_and(Value::is_object) {
            map.insert("metadata".to_owned(), json!({}));
        }
        if subresource == "status" {
            map.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
        } else if resource.has_status {
            map.remove("status");
        }
    }
    Ok(intent)
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter().filter(|(_, it)| !it.is_null()).map(|(key, it)| (key, without_nulls(it))).collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

fn merge<'a>(live: &mut Value, intent: &'a Value, names: &mut Vec<&'a str>) {
    match (live, intent) {
        (Value::Object(live), Value::Object(wanted)) if !is_atomic_map(names) => {
            for (key, value) in wanted {
                names.push(key);
                match live.get_mut(key) {
                    Some(old) => merge(old, value, names),
                    None => drop(live.insert(key.clone(), value.clone())),
                }
                names.pop();
            }
        }
        (Value::Array(live), Value::Array(wanted)) if list_type(names) != ListType::Atomic => {
            *live = merge_list(std::mem::take(live), wanted, names);
        }
        (live, intent) => *live = intent.clone(),
    }
}

/// Items of both lists once, shared ones merged: the intent's in its order, the others where the live list has them.
fn merge_list<'a>(live: Vec<Value>, wanted: &'a [Value], names: &mut Vec<&'a str>) -> Vec<Value> {
    let list_type = list_type(names);
    let step = |item: &Value| fields::step(item, list_type);
    let wanted_steps: Vec<String> = wanted.iter().map(step).collect();
    let shared: Vec<String> =
        wanted_steps.iter().filter(|it| live.iter().any(|item| step(item) == **it)).cloned().collect();
    let mut next_shared = shared.iter().peekable();
    let mut old: Vec<(String, Option<Value>)> = live.into_iter().map(|item| (step(&item), Some(item))).collect();
    let (mut out, mut l, mut r) = (Vec::with_capacity(old.len().max(wanted.len())), 0, 0);
    while l < old.len() || r < wanted.len() {
        if let Some((step, item)) = old.get_mut(l) {
            let is_wanted = wanted_steps.contains(step);
            let is_next = wanted_steps.get(r) == Some(step);
            if !is_wanted {
                out.extend(item.take());
                l += 1;
                continue;
            }
            // A shared item whose turn has passed or has not come: it is taken in the intent's order.
            let passed = item.is_none() || r == wanted.len() || next_shared.peek().is_some_and(|it| *it != step);
            if !is_next && passed {
                l += 1;
                continue;
            }
        }
        let (Some(step), Some(item)) = (wanted_steps.get(r), wanted.get(r)) else { break };
        let place = old.iter_mut().position(|(it, item)| it == step && item.is_some());
        let merged = match place.and_then(|i| old.get_mut(i)).and_then(|(_, item)| item.take()) {
            Some(mut before) => {
                merge(&mut before, item, names);
                before
            }
            None => item.clone(),
        };
        out.push(merged);
        if next_shared.peek() == Some(&step) {
            next_shared.next();
        }
        r += 1;
    }
    out
}

/// Removes what the manager applied before, does not apply any more, and no other manager owns.
fn prune(object: &mut Value, previous: &Entry, wanted: &Fields, others: &[Entry]) {
    let kept = |path: &fields::Path| {
        let below = |owned: &Fields| owned.range(path.clone()..).next().is_some_and(|it| it.starts_with(path));
        below(wanted) || others.iter().any(|entry| below(&entry.fields))
    };
    // An item's keys are what it is known by: they go with the item only.
    let is_key = |path: &fields::Path| match path.as_slice() {
        [.., item, member] if item.starts_with("k:") => {
            let keys: Value = serde_json::from_str(&item[2..]).unwrap_or(Value::Null);
            member.strip_prefix("f:").is_some_and(|name| keys.get(name).is_some())
        }
        _ => false,
    };
    // In the set's order an item goes before its members, which are then not found.
    let gone = previous.fields.iter().filter(|path| !kept(path) && !is_key(path));
    for path in gone {
        fields::remove(object, path);
    }
}

/// Takes these fields from all entries; entries left with nothing go.
fn disown(entries: &mut Vec<Entry>, lost: impl Fn(&fields::Path) -> bool) {
    for entry in entries.iter_mut() {
        entry.fields.retain(|path| !lost(path));
    }
    entries.retain(|entry| !entry.fields.is_empty());
}

/// The kind's object with nothing set, as far as Go writes it all the same: nobody owns that.
fn zero(resource: &Resource) -> Value {
    match resource.plural {
        "volumeattachments" => {
            json!({"spec": {"attacher": "", "nodeName": "", "source": {}}, "status": {"attached": false}})
        }
        // The server begins the phase, and the resources are a struct.
        "persistentvolumeclaims" => json!({"spec": {"resources": {}}, "status": {"phase": "Pending"}}),
        _ => json!({}),
    }
}

/// Records in `new` who owns which field after a write that was no apply: what it changed is the writer's, alone.
///
/// A client that sends `managedFields: [{}]` resets them, as with the real server.
pub fn track_update(resource: &Resource, old: Option<&Value>, new: &mut Value, who: Managed) {
    if !new.get("metadata").is_some_and(Value::is_object) {
        set(new, "metadata", Value::Object(Map::new()));
    }
    let sent = at(new, &["metadata", "managedFields"]).and_then(Value::as_array);
    let reset = sent.is_some_and(|entries| entries.len() == 1 && entries.first() == Some(&json!({})));
    if reset {
        write_entries(new, Vec::new());
        return;
    }
    let mut entries = if sent.is_some_and(|entries| !entries.is_empty()) {
        read_entries(new)
    } else {
        old.map(read_entries).unwrap_or_default()
    };
    let before = old.map_or_else(|| fields::leaves(&zero(resource), true), |old| fields::leaves(old, true));
    let after = fields::leaves(new, true);
    let changed: Fields =
        after.iter().filter(|(path, value)| before.get(*path) != Some(value)).map(|(path, _)| path.clone()).collect();
    let gone = |path: &fields::Path| before.contains_key(path) && !after.contains_key(path);
    let mine = entries.iter().position(|entry| entry.is(&who, "Update"));
    let mut owned = mine.map(|i| entries.remove(i));
    disown(&mut entries, |path| changed.contains(path) || gone(path));
    if let Some(entry) = owned.as_mut() {
        entry.fields.retain(|path| !gone(path));
    }
    if !changed.is_empty() {
        let entry = owned.get_or_insert_with(|| Entry {
            manager: who.manager.to_owned(),
            operation: "Update".to_owned(),
            subresource: who.subresource.to_owned(),
            api_version: resource.api_version(),
            time: None,
            fields: Fields::new(),
        });
        entry.fields.extend(changed);
        entry.time = who.time.map(str::to_owned);
    }
    if let Some(entry) = owned.filter(|entry| !entry.fields.is_empty()) {
        entries.push(entry);
    }
    write_entries(new, entries);
}

#[cfg(test)]
mod tests;
