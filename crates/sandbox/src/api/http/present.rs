//! Formats objects: complete, as metadata, as table rows; single or in a list.

use std::borrow::Cow;
use std::sync::Arc;

use http::{Response, StatusCode, header};
use serde::Serialize;
use serde::ser::{SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::{Value, json};

use super::Body;
use super::accept::View;
use crate::api::pure::patch::merged;
use crate::api::pure::rejection::Rejection;
use crate::api::pure::resources::Resource;
use crate::api::pure::table::{self, Include, partial};
use crate::api::store::Listed;

/// How to present the objects of one request.
#[derive(Debug, Clone)]
pub(super) struct Presenter {
    pub(super) view: View,
    pub(super) resource: &'static Resource,
    /// The part of its object that a row carries.
    pub(super) include: Include,
    /// Whether a table says its columns: in a watch, only the first does.
    pub(super) headers: bool,
    pub(super) now: jiff::Timestamp,
    /// The patch that a fault applies to each object first.
    pub(super) with: Option<Arc<Value>>,
}

impl Presenter {
    /// One object.
    pub(super) fn one(&self, object: &Value) -> Value {
        let changed = self.with.as_ref().map(|with| merged(object, with));
        let object = changed.as_ref().unwrap_or(object);
        match self.view {
            View::Full => object.clone(),
            View::Metadata => partial(object),
            View::Table => {
                let version = object.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
                self.table(std::iter::once(object), &json!({ "resourceVersion": version }))
            }
        }
    }

    /// A page of a list.
    pub(super) fn many(&self, listed: &Listed) -> Response<Body> {
        let objects: Cow<'_, [Arc<Value>]> = match &self.with {
            None => Cow::Borrowed(&listed.objects),
            Some(with) => listed.objects.iter().map(|object| Arc::new(merged(object, with))).collect(),
        };
        let mut meta = json!({"resourceVersion": listed.version.to_string()});
        if let Some(next) = &listed.next {
            meta["continue"] = next.as_str().into();
        }
        if self.resource.optional && listed.next.is_none() {
            // Lists of what was installed are built by hand in the real server too, and leave nothing out.
            meta["continue"] = "".into();
        }
        if let Some(remaining) = listed.remaining {
            meta["remainingItemCount"] = remaining.into();
        }
        match self.view {
            View::Full => {
                let (kind, version) = (self.resource.list_kind, self.resource.api_version());
                let typed = self.resource.optional;
                json_answer(
                    StatusCode::OK,
                    &ListBody { kind, version, meta, items: Items { objects: &objects, typed } },
                )
            }
            View::Metadata => {
                let items: Vec<Value> = objects.iter().map(|object| partial(object)).collect();
                let body = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                                  "metadata": meta, "items": items});
                json_answer(StatusCode::OK, &body)
            }
            View::Table => json_answer(StatusCode::OK, &self.table(objects.iter().map(AsRef::as_ref), &meta)),
        }
    }

    fn table<'a>(&self, objects: impl IntoIterator<Item = &'a Value>, meta: &Value) -> Value {
        table::render(self.resource, objects, meta, self.now, self.include, self.headers)
    }
}

/// A list, written without copying its objects. As in the real server's typed lists, items don't repeat their kind.
struct ListBody<'a> {
    kind: &'static str,
    version: String,
    meta: Value,
    items: Items<'a>,
}

/// The items, and whether each names its kind: items of installed kinds do.
struct Items<'a> {
    objects: &'a [Arc<Value>],
    typed: bool,
}

struct Item<'a>(&'a Value);

impl Serialize for ListBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("kind", self.kind)?;
        map.serialize_entry("apiVersion", &self.version)?;
        map.serialize_entry("metadata", &self.meta)?;
        map.serialize_entry("items", &self.items)?;
        map.end()
    }
}

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.objects.len()))?;
        for object in self.objects {
            if self.typed { list.serialize_element(object.as_ref())? } else { list.serialize_element(&Item(object))? }
        }
        list.end()
    }
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members = self.0.as_object().into_iter().flatten();
        serializer.collect_map(members.filter(|(member, _)| !matches!(member.as_str(), "kind" | "apiVersion")))
    }
}

/// JSON with its type.
pub(super) fn json_answer(code: StatusCode, body: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(body) {
        Ok(bytes) => answer(code, "application/json", bytes),
        // Values always serialise; if one does not, the client must not take the answer for complete.
        Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
    }
}

/// Bytes of some type.
pub(super) fn answer(code: StatusCode, media_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, http::HeaderValue::from_static("no-cache, private"));
    response
}

/// A refusal, as a `Status`.
pub(super) fn refusal(rejection: &Rejection, next: Option<&str>) -> Response<Body> {
    if rejection.code == 404 && rejection.reason.is_empty() {
        return answer(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", rejection.message.clone());
    }
    let mut status = rejection.to_status();
    if let Some(next) = next {
        status["metadata"]["continue"] = next.into();
    }
    let code = StatusCode::from_u16(rejection.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_answer(code, &status);
    if let Some(seconds) = rejection.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
