//! The parts of `OpenAPI` that kubectl requests before it sends anything.
//!
//! kubectl of today looks into `/openapi/v3` whether PATCH of a kind takes the parameter `fieldValidation`; if so it leaves
//! validation to the server. It computes apply's patches from a published schema only where PATCH announces strategic merge
//! patches with one; where it does not, it uses the types compiled into it, which is what we want: our documents name
//! kinds and parameters and no fields. kubectl before 1.26 reads `/openapi/v2` as protobuf and skips validation of kinds that are not in
//! it: so that document is empty but valid.

use super::rejection::Rejection;
use super::resources::{Resource, groups};
use serde_json::{Map, Value, json};

/// The media type in which kubectl wants `/openapi/v2`. It asks with an `@` before `v1.0`, which Go's own parser refuses in an answer.
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const TITLE: &str = "Kubernetes";
const VERSION: &str = "v1.37.0";

/// `/openapi/v2` as JSON.
pub fn v2() -> Value {
    json!({ "swagger": "2.0", "info": { "title": TITLE, "version": VERSION }, "paths": {}, "definitions": {} })
}

/// `/openapi/v2` as gnostic's `openapi.v2.Document` in protobuf: `swagger` = 1, `info` = 2 (`title` = 1, `version` = 2),
/// `paths` = 8.
pub fn v2_protobuf() -> Vec<u8> {
    /// A length-delimited field; all of ours are shorter than 128 bytes, whose length is one byte.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap_or(0) & 0x7f;
        let mut out = vec![number << 3 | 2, length];
        out.extend_from_slice(content);
        out
    }
    let info = [field(1, TITLE.as_bytes()), field(2, VERSION.as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info), field(8, b"")].concat()
}

/// `/openapi/v3`: where each version's document is.
pub fn v3_index(served: &[&'static Resource]) -> Value {
    let mut paths = Map::new();
    for path in ["api/v1".to_owned()]
        .into_iter()
        .chain(groups(served).iter().map(|(group, version)| format!("apis/{group}/{version}")))
    {
        // Clients cache by the hash; ours changes with the version only.
        let url = format!("/openapi/v3/{path}?hash={VERSION}");
        paths.insert(path, json!({ "serverRelativeURL": url }));
    }
    json!({ "paths": paths })
}

/// `/openapi/v3/api/v1` (group empty) and `/openapi/v3/apis/G/V`.
pub fn v3_document(served: &[&'static Resource], group: &str, version: &str) -> Result<Value, Rejection> {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in served.iter().copied().filter(|it| it.group == group && it.version == version) {
        let kind = json!({ "group": group, "version": version, "kind": resource.kind });
        schemas.insert(schema_name(resource), json!({ "type": "object", "x-kubernetes-group-version-kind": [kind] }));
        let base = base_path(resource);
        if resource.can("patch") {
            paths.insert(format!("{base}/{{name}}"), item(resource, &kind));
        }
        paths.insert(base, collection(resource, &kind));
    }
    if paths.is_empty() {
        return Err(Rejection::path_not_found());
    }
    Ok(json!({
        "openapi": "3.0.0",
        "info": { "title": TITLE, "version": VERSION },
        "paths": paths,
        "components": { "schemas": schemas },
    }))
}

fn schema_name(resource: &Resource) -> String {
    let group = if resource.group.is_empty() { "core" } else { resource.group.split('.').next().unwrap_or("") };
    format!("io.k8s.api.{group}.{}.{}", resource.version, resource.kind)
}

fn base_path(resource: &Resource) -> String {
    let root = if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
    let namespace = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    format!("{root}/{}{namespace}/{}", resource.version, resource.plural)
}

fn operation(resource: &Resource, kind: &Value, action: &str, parameters: &[&str]) -> Value {
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string", "uniqueItems": true } }))
        .collect();
    let answer = json!({ "$ref": format!("#/components/schemas/{}", schema_name(resource)) });
    json!({
        "parameters": parameters,
        "responses": { "200": { "description": "OK", "content": { "application/json": { "schema": answer } } } },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
    })
}

const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];

fn collection(resource: &Resource, kind: &Value) -> Value {
    let mut value = json!({ "post": operation(resource, kind, "post", WRITE) });
    if resource.can("list") {
        value["get"] =
            operation(resource, kind, "list", &["limit", "continue", "labelSelector", "fieldSelector", "watch"]);
    }
    value
}

fn item(resource: &Resource, kind: &Value) -> Value {
    let mut patch = operation(resource, kind, "patch", &["dryRun", "fieldManager", "fieldValidation", "force"]);
    // Strategic merge patches are taken but not announced: see the top.
    let schema = json!({ "schema": { "type": "object" } });
    patch["requestBody"] = json!({ "required": true, "content": {
        "application/json-patch+json": schema,
        "application/merge-patch+json": schema,
        "application/apply-patch+yaml": schema,
    }});
    json!({
        "get": operation(resource, kind, "get", &[]),
        "put": operation(resource, kind, "put", WRITE),
        "delete": operation(resource, kind, "delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"]),
        "patch": patch,
    })
}

#[cfg(test)]
mod tests {
    use super::super::resources::served;
    use super::*;

    #[test]
    fn every_stored_kind_announces_server_side_field_validation() {
        let all = served(|_| true);
        for resource in all.iter().copied().filter(|it| it.is_stored()) {
            let document = v3_document(&all, resource.group, resource.version).unwrap();
            let path = format!("{}/{{name}}", base_path(resource));
            let operation = &document["paths"][&path]["patch"];
            assert_eq!(operation["x-kubernetes-group-version-kind"]["kind"], resource.kind);
            assert!(operation["parameters"].as_array().unwrap().iter().any(|it| it["name"] == "fieldValidation"));
            assert!(operation["requestBody"]["content"].get("application/strategic-merge-patch+json").is_none());
        }
        assert_eq!(v3_document(&served(|_| false), "snapshot.storage.k8s.io", "v1").unwrap_err().code, 404);
    }

    #[test]
    fn the_index_names_each_version_once() {
        let index = v3_index(&served(|_| false));
        let paths: Vec<&String> = index["paths"].as_object().unwrap().keys().collect();
        assert_eq!(
            paths,
            [
                "api/v1",
                "apis/apps/v1",
                "apis/authentication.k8s.io/v1",
                "apis/authorization.k8s.io/v1",
                "apis/coordination.k8s.io/v1",
                "apis/storage.k8s.io/v1"
            ]
        );
    }

    #[test]
    fn the_protobuf_document_is_framed_as_gnostic_reads_it() {
        let bytes = v2_protobuf();
        assert_eq!(&bytes[..5], b"\x0a\x032.0");
        assert_eq!(&bytes[5..9], b"\x12\x15\x0a\x0a");
        assert_eq!(&bytes[9..19], b"Kubernetes");
        assert_eq!(&bytes[bytes.len() - 2..], b"\x42\x00");
    }
}
