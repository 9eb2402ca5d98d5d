//! What the driver's answer changes in the status of a content, as the patches P2 and P5 of snapshotter spec 9. Pure.
//!
//! Each patch names only the members that change. A handle that is stored is never overwritten: the patch tests that there is none.
//! The uid is tested by the patch itself, because a server ignores `metadata.uid` in a merge patch of a custom resource's status.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::cluster::patch::{MESSAGE_LIMIT, add, remove, test, truncate_message};
use crate::cluster::{Patch, SnapshotError};
use crate::roles::kit::report::gist;

use super::{facts, found::Found, kind::Content};

const STATUS: &str = "/status";

/// P2: the status says what was found. `None`: it does.
pub fn filled<K: Content>(content: &K, found: &Found) -> Option<Patch> {
    let (handle, learnt) = (K::NAMES.handle, content.learnt(found));
    let ready = ("readyToUse", json!(found.is_ready));
    let Some(said) = content.said() else {
        let members = [(handle, json!(found.handle))].into_iter().chain(learnt).chain([ready]);
        let whole: Map<String, Value> = members.map(|(name, value)| (name.to_owned(), value)).collect();
        return of_status(content, vec![test(STATUS, &Value::Null), add(STATUS, &Value::Object(whole))]);
    };
    let mut operations = Vec::new();
    if content.stored_handle().is_none() {
        operations.push(test(&member(handle), &Value::Null));
        operations.push(add(&member(handle), &json!(found.handle)));
    }
    let ready = Some(ready).filter(|_| said.ready != Some(found.is_ready));
    operations.extend(learnt.into_iter().chain(ready).map(|(name, value)| add(&member(name), &value)));
    if said.error.is_some() {
        operations.push(remove(&member("error")));
    }
    of_status(content, operations)
}

/// P2 for a failure: the status says why there is no snapshot. `None`: it says so already. Texts that differ only in ids are the same.
pub fn failed<K: Content>(content: &K, message: &str, now: Timestamp) -> Option<Patch> {
    let message = truncate_message(message, MESSAGE_LIMIT);
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let error = json!({ "message": message, "time": time });
    let Some(said) = content.said() else {
        let whole = json!({ "readyToUse": false, "error": error });
        return of_status(content, vec![test(STATUS, &Value::Null), add(STATUS, &whole)]);
    };
    let mut operations = Vec::new();
    if !said.error.is_some_and(|error| says(error, &message)) {
        operations.push(add(&member("error"), &error));
    }
    if said.ready != Some(false) {
        operations.push(add(&member("readyToUse"), &json!(false)));
    }
    of_status(content, operations)
}

fn says(error: &SnapshotError, message: &str) -> bool {
    error.message.as_deref().is_some_and(|told| gist(told) == gist(message))
}

/// P5: the status no longer offers a snapshot that is deleted. `None`: it does not.
pub fn cleared<K: Content>(content: &K) -> Option<Patch> {
    let said = content.said()?;
    let mut operations = Vec::new();
    if let Some(handle) = content.stored_handle() {
        operations.push(test(&member(K::NAMES.handle), &json!(handle)));
        operations.push(remove(&member(K::NAMES.handle)));
    }
    let ready = said.ready.map(|_| "readyToUse");
    operations.extend(ready.into_iter().chain(content.perishable()).map(|name| remove(&member(name))));
    of_status(content, operations)
}

/// Whether the status has to be cleared before the finalizer leaves: if ours is the only one, the object goes with it.
pub fn must_clear<K: Content>(content: &K) -> bool {
    facts::is_kept_by_others(content) && cleared(content).is_some()
}

fn member(name: &str) -> String {
    format!("{STATUS}/{name}")
}

fn of_status<K: Content>(content: &K, mut operations: Vec<Value>) -> Option<Patch> {
    if operations.is_empty() {
        return None;
    }
    operations.insert(0, test("/metadata/uid", &json!(content.meta().uid)));
    Some(Patch::Json(operations))
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
