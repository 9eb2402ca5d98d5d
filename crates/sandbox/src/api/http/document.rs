//! Responses that are not objects: discovery, the schema, the version, and the probes.

use axum::body::Body;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::Value;

use super::present::{answer, json_answer, refusal};
use crate::api::pure::discovery::{self, Aggregated};
use crate::api::pure::openapi;
use crate::api::pure::rejection::Rejection;
use crate::api::pure::resources::Resource;

/// Answers a request for a document.
pub(super) fn answer_document(served: &[&'static Resource], head: &Parts) -> Response<Body> {
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return refusal(&Rejection::path_not_found(), None);
    }
    let accept = head.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let segments: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
    if let Some(form) = Aggregated::accepted(accept)
        && let Some(body) = match segments.as_slice() {
            ["api"] => Some(form.core(served)),
            ["apis"] => Some(form.named(served)),
            _ => None,
        }
    {
        let mut response = json_answer(StatusCode::OK, &body);
        if let Ok(media_type) = HeaderValue::from_str(&form.content_type()) {
            response.headers_mut().insert(header::CONTENT_TYPE, media_type);
        }
        return response;
    }
    if segments == ["openapi", "v2"] && accept.contains("protobuf") {
        return answer(StatusCode::OK, openapi::V2_PROTOBUF, openapi::v2_protobuf());
    }
    match document(served, &segments) {
        _ if matches!(segments.as_slice(), ["healthz" | "livez" | "readyz", ..]) => {
            answer(StatusCode::OK, "text/plain; charset=utf-8", "ok")
        }
        Ok(body) => json_answer(StatusCode::OK, &body),
        Err(rejection) => refusal(&rejection, None),
    }
}

fn document(served: &[&'static Resource], segments: &[&str]) -> Result<Value, Rejection> {
    match segments {
        ["version"] => Ok(discovery::version()),
        ["api"] => Ok(discovery::api_versions()),
        ["apis"] => Ok(discovery::api_group_list(served)),
        ["api", version] => discovery::resource_list(served, "", version),
        ["apis", group] => discovery::api_group(served, group),
        ["apis", group, version] => discovery::resource_list(served, group, version),
        ["openapi", "v2"] => Ok(openapi::v2()),
        ["openapi", "v3"] => Ok(openapi::v3_index(served)),
        ["openapi", "v3", "api", version] => openapi::v3_document(served, "", version),
        ["openapi", "v3", "apis", group, version] => openapi::v3_document(served, group, version),
        _ => Err(Rejection::path_not_found()),
    }
}
