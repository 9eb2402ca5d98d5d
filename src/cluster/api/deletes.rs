//! Deletions: only of the object that was seen, never of a namesake.

use kube::Resource as _;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{Api, Call, body};
use crate::cluster::error::{ApiError, Verb};
use crate::cluster::meta::Meta;
use crate::cluster::names::ObjectName;
use crate::cluster::objects::Object;

/// The answer to a delete. If the object is gone, the server answers with a Status, or for some kinds with the last
/// state of the object. If the object still exists, the server answers with the object. So only an object with
/// finalizers still exists.
struct Deleted<K>(Option<K>);

impl<'de, K: Object> Deserialize<'de> for Deleted<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let answer = Value::deserialize(from)?;
        let held =
            answer.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        if !held || answer["kind"] == "Status" {
            return Ok(Self(None));
        }
        serde_json::from_value(answer).map(|object| Self(Some(object))).map_err(D::Error::custom)
    }
}

impl Api {
    /// Deletes the object of that name if it has that `uid`; another uid is a conflict. Returns `None` if the object is
    /// gone, or the object if finalizers still keep it.
    pub async fn delete<K: Object>(&self, name: &ObjectName, uid: &str) -> Result<Option<K>, ApiError> {
        self.delete_if(name, &json!({ "uid": uid })).await
    }

    /// The same, and only if nobody has changed the object since it was read as `seen`; a change is a conflict.
    pub async fn delete_unchanged<K: Object>(&self, name: &ObjectName, seen: &Meta) -> Result<Option<K>, ApiError> {
        self.delete_if(name, &json!({ "uid": seen.uid, "resourceVersion": seen.resource_version })).await
    }

    async fn delete_if<K: Object>(&self, name: &ObjectName, preconditions: &Value) -> Result<Option<K>, ApiError> {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions });
        let answer: Deleted<K> = self
            .call(Call {
                verb: Verb::Delete,
                resource: K::Kind::plural(&()).into_owned(),
                object: name,
                url: self.object_url::<K::Kind>(name),
                content: Some(("application/json", body(&options))),
            })
            .await?;
        Ok(answer.0)
    }
}
