//! Test objects for several roles.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster::{Change, Origin};
pub(crate) use crate::testing::Warnings;

/// `base` with what `patch` says laid over it; null takes away.
pub(crate) fn merged(mut base: Value, patch: Value) -> Value {
    match (&mut base, patch) {
        (Value::Object(held), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    held.remove(&key);
                } else {
                    let below = held.remove(&key).unwrap_or(Value::Null);
                    held.insert(key, merged(below, value));
                }
            }
            base
        }
        (_, patch) => patch,
    }
}

/// What a watch tells when an object is made, changed or deleted.
pub(crate) fn change<K: DeserializeOwned>(old: Option<&Value>, new: Option<&Value>) -> Change<K> {
    let parse = |value: &Value| Arc::new(serde_json::from_value(value.clone()).unwrap());
    Change { old: old.map(parse), new: new.map(parse), origin: Origin::Watch }
}
