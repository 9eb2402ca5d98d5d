//! A write that the bench itself sends, in the place of users, of controllers or of a contender.

use http::Request;
use serde_json::{Value, json};

/// An object and the URL of its collection.
pub(crate) struct Placed {
    pub(crate) collection: &'static str,
    pub(crate) object: Value,
}

impl Placed {
    /// Creates it.
    pub(crate) fn request(&self) -> Request<Vec<u8>> {
        let request = Request::post(self.collection).header("content-type", "application/json");
        request.body(self.object.to_string().into_bytes()).unwrap()
    }
}

/// A write.
pub(crate) enum Write {
    /// An object is created.
    Create(Placed),
    /// This is merged into an object or into its status: collection, name, subresource, patch.
    Merge(&'static str, String, &'static str, Value),
}

/// What is written for the object of a number, in this order.
pub(crate) type Writes = fn(usize) -> Vec<Write>;

/// A merge patch of an object or of its subresource.
pub(crate) fn merge(collection: &str, name: &str, sub: &str, patch: &Value) -> Request<Vec<u8>> {
    let request = Request::patch(format!("{collection}/{name}{sub}"));
    request.header("content-type", "application/merge-patch+json").body(patch.to_string().into_bytes()).unwrap()
}

/// A finalizer and an annotation, merged into an object that has none.
pub(crate) fn mark(finalizer: &str, annotation: &str, text: &str) -> Value {
    json!({ "metadata": { "finalizers": [finalizer], "annotations": { (annotation): text } } })
}
