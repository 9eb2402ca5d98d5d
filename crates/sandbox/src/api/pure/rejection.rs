//! The reasons to refuse a request, with the texts of the real API server.
//!
//! Clients match on `reason` and `code`, people on `message`; both are copied from `k8s.io/apimachinery/pkg/api/errors` and
//! `util/validation/field`. A [`Cause`] is one faulty field; an invalid object lists all of them.

use super::resources::{Resource, qualify};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Display;

/// A refused request: everything of a `Status` that differs from one refusal to the next.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejection {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason: `NotFound`, `Conflict`, ...
    pub reason: &'static str,
    /// The text for people.
    pub message: String,
    /// The details: name, group, kind, causes.
    pub details: Option<Value>,
    /// Seconds for the `Retry-After` header.
    pub retry_after: Option<u32>,
}

/// The kinds of faults that a field can have, as `field.ErrorType` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The value is missing.
    Required,
    /// The value is not allowed.
    Invalid,
    /// The value does not have the type that its schema requires.
    TypeInvalid,
    /// The value is not one of the known ones.
    NotSupported,
    /// The value may not be set here.
    Forbidden,
    /// The value is longer than allowed.
    TooLong,
    /// The value occurs twice.
    Duplicate,
    /// The list has too many items.
    TooMany,
}

/// One faulty field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The kind of the fault.
    pub fault: Fault,
    /// The field's path: `spec.source`.
    pub field: String,
    /// The fault in words, with the value where the server shows it.
    pub message: String,
}

/// A value as Go's `%q` or `%v` would show it in a field error.
fn shown(value: &Value) -> String {
    value.to_string()
}

impl Cause {
    fn new(fault: Fault, field: impl Into<String>, message: String) -> Self {
        Self { fault, field: field.into(), message }
    }

    /// `Required value: detail`.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let tail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        Self::new(Fault::Required, field, format!("Required value{tail}"))
    }

    /// `Invalid value: value: detail`.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl Display) -> Self {
        Self::new(Fault::Invalid, field, format!("Invalid value: {}: {detail}", shown(value)))
    }

    /// `Invalid value: detail`: a list or an object is not shown.
    pub fn invalid_whole(field: impl Into<String>, detail: impl Display) -> Self {
        Self::new(Fault::Invalid, field, format!("Invalid value: {detail}"))
    }

    /// `Invalid value: type: detail`, of a value that is not of the type that its schema wants.
    pub fn mistyped(field: impl Into<String>, found: &Value, detail: impl Display) -> Self {
        Self::new(Fault::TypeInvalid, field, format!("Invalid value: {}: {detail}", shown(found)))
    }

    /// Whether the server does not look at the rules of a definition any more.
    pub fn blocks_rules(&self) -> bool {
        matches!(self.fault, Fault::NotSupported | Fault::Required | Fault::TooLong | Fault::TypeInvalid)
    }

    /// `Forbidden: detail`.
    pub fn forbidden(field: impl Into<String>, detail: impl Display) -> Self {
        Self::new(Fault::Forbidden, field, format!("Forbidden: {detail}"))
    }

    /// `Duplicate value: value`.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(Fault::Duplicate, field, format!("Duplicate value: {}", shown(value)))
    }

    /// `Too long: may not be more than N bytes`.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        Self::too_long_in(field, limit, "bytes")
    }

    /// `Too long: may not be more than N units`: what a type declares is counted in characters.
    pub fn too_long_in(field: impl Into<String>, limit: usize, unit: &str) -> Self {
        Self::new(Fault::TooLong, field, format!("Too long: may not be more than {limit} {unit}"))
    }

    /// `Invalid value: null: field is immutable`: where a type declares this, neither value is shown.
    pub fn immutable(field: impl Into<String>) -> Self {
        Self::invalid(field, &Value::Null, "field is immutable")
    }

    /// `Too many: N: must have at most M items`.
    pub fn too_many(field: impl Into<String>, found: usize, most: usize) -> Self {
        Self::new(Fault::TooMany, field, format!("Too many: {found}: must have at most {most} items"))
    }

    /// `Unsupported value: value: supported values: "a", "b"`.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| format!("\"{value}\"")).collect();
        let message = format!("Unsupported value: {}: supported values: {}", shown(value), supported.join(", "));
        Self::new(Fault::NotSupported, field, message)
    }

    fn reason(&self) -> &'static str {
        match self.fault {
            Fault::Required => "FieldValueRequired",
            Fault::Invalid => "FieldValueInvalid",
            Fault::TypeInvalid => "FieldValueTypeInvalid",
            Fault::NotSupported => "FieldValueNotSupported",
            Fault::Forbidden => "FieldValueForbidden",
            Fault::TooLong => "FieldValueTooLong",
            Fault::Duplicate => "FieldValueDuplicate",
            Fault::TooMany => "FieldValueTooMany",
        }
    }

    fn to_value(&self) -> Value {
        json!({ "reason": self.reason(), "message": self.message, "field": self.field })
    }
}

/// `details` of a refusal about one object; the real server leaves empty members out.
fn about(group: &str, kind: &str, name: &str) -> Map<String, Value> {
    let members = [("name", name), ("group", group), ("kind", kind)];
    members.into_iter().filter(|(_, value)| !value.is_empty()).map(|(k, v)| (k.to_owned(), v.into())).collect()
}

/// `[a, b]`, or `a` alone: how Go shows an aggregate, each distinct message once.
fn aggregate(messages: impl Iterator<Item = String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for message in messages {
        if !distinct.contains(&message) {
            distinct.push(message);
        }
    }
    if distinct.len() == 1 { distinct.remove(0) } else { format!("[{}]", distinct.join(", ")) }
}

impl Rejection {
    fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, retry_after: None }
    }

    fn on(code: u16, reason: &'static str, resource: &Resource, name: &str, message: String) -> Self {
        let details = Value::Object(about(resource.group, resource.plural, name));
        Self { details: Some(details), ..Self::plain(code, reason, message) }
    }

    /// The object is not there.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::on(404, "NotFound", resource, name, format!("{} \"{name}\" not found", resource.qualified()))
    }

    /// The path names nothing that this server has.
    pub fn path_not_found() -> Self {
        let message = "the server could not find the requested resource";
        Self { details: Some(json!({})), ..Self::plain(404, "NotFound", message) }
    }

    /// The path names no group and version that this server has: said by what stands before all groups, in plain text.
    pub fn group_not_found() -> Self {
        Self::plain(404, "", "404 page not found\n")
    }

    /// An object of this name exists.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::on(409, "AlreadyExists", resource, name, format!("{} \"{name}\" already exists", resource.qualified()))
    }

    /// A write that can't be done on what is stored, for this reason.
    pub fn cannot_fulfil(resource: &Resource, name: &str, why: impl Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::on(409, "Conflict", resource, name, message)
    }

    /// The resourceVersion in the request is not the stored one.
    pub fn conflict(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::cannot_fulfil(resource, name, why)
    }

    /// The uid in an update (PUT) is another object's. The key is where etcd would hold the object.
    pub fn uid_precondition(resource: &Resource, namespace: &str, name: &str, wanted: &str, found: &str) -> Self {
        let parts: Vec<&str> = [resource.plural, namespace, name].into_iter().filter(|part| !part.is_empty()).collect();
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
            parts.join("/"),
        );
        Self::cannot_fulfil(resource, name, why)
    }

    /// `preconditions.uid` of a delete names another object. (The real server says the kind here, not the resource.)
    pub fn delete_uid_precondition(resource: &Resource, name: &str, wanted: &str, found: &str) -> Self {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({found}). The object might have been \
             deleted and then recreated"
        );
        Self::delete_precondition(resource, name, &why)
    }

    /// `preconditions.resourceVersion` of a delete is not the stored one.
    pub fn delete_version_precondition(resource: &Resource, name: &str, wanted: &str, found: &str) -> Self {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({found}). The \
             object might have been modified"
        );
        Self::delete_precondition(resource, name, &why)
    }

    fn delete_precondition(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified_kind());
        let details = Value::Object(about(resource.group, resource.kind, name));
        Self { details: Some(details), ..Self::plain(409, "Conflict", message) }
    }

    /// Server-side apply met fields of other managers: one cause each.
    pub fn apply_conflict(causes: Vec<(String, String)>) -> Self {
        let message = match causes.as_slice() {
            [(manager, field)] => format!("Apply failed with 1 conflict: conflict with {manager}: {field}"),
            several => {
                let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
                for (manager, field) in several {
                    groups.entry(manager).or_default().push(format!("- {field}"));
                }
                let lines: Vec<String> = groups
                    .into_iter()
                    .map(|(manager, fields)| format!("conflicts with {manager}:\n{}", fields.join("\n")))
                    .collect();
                format!("Apply failed with {} conflicts: {}", several.len(), lines.join("\n"))
            }
        };
        let causes: Vec<Value> = causes
            .into_iter()
            .map(|(manager, field)| {
                let message = format!("conflict with {manager}");
                json!({ "reason": "FieldManagerConflict", "message": message, "field": field })
            })
            .collect();
        Self { details: Some(json!({ "causes": causes })), ..Self::plain(409, "Conflict", message) }
    }

    /// The object breaks its kind's rules, in all these fields.
    pub fn invalid(resource: &Resource, name: &str, causes: &[Cause]) -> Self {
        let list = aggregate(causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)));
        let message = format!("{} \"{name}\" is invalid: {list}", resource.qualified_kind());
        let mut details = about(resource.group, resource.kind, name);
        details.insert("causes".to_owned(), causes.iter().map(Cause::to_value).collect());
        Self { details: Some(Value::Object(details)), ..Self::plain(422, "Invalid", message) }
    }

    /// A patch that can't be applied to what is stored: a failed `test`, a missing path.
    pub fn unprocessable_patch() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self { details: Some(json!({})), ..Self::plain(422, "Invalid", message) }
    }

    /// The same refusal, of what a patch makes of an object: the server then shows all of it as a faulty field `patch`.
    #[must_use]
    pub fn of_a_patch(self, patched: &Value) -> Self {
        let why = self.message.split_once(": ").map_or(self.message.as_str(), |(_, why)| why);
        Self::of_patch(&patched.to_string(), why)
    }

    /// What a patch makes of an object is refused; `shown` is the patch as the server shows it.
    pub fn of_patch(shown: &str, why: &str) -> Self {
        let cause = Cause::invalid("patch", &shown.into(), why);
        let message = format!(" \"\" is invalid: patch: {}", cause.message);
        Self { details: Some(json!({ "causes": [cause.to_value()] })), ..Self::plain(422, "Invalid", message) }
    }

    /// The requested version has been compacted away.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::plain(410, "Expired", message)
    }

    /// A watch from a version that has been compacted away; `oldest` is the first one still known.
    pub fn too_old(requested: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {requested} ({oldest})"))
    }

    /// The requested version existed once and never will again.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::plain(410, "Gone", message)
    }

    /// The request can't be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(400, "BadRequest", message)
    }

    /// The body's JSON has a member of the wrong type; worded as the decoder does it.
    pub fn undecodable(resource: &Resource, detail: impl Display) -> Self {
        Self::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {detail}",
            resource.kind, resource.version, resource.kind
        ))
    }

    /// The authorizer says no, of an object or of what no object is (all empty).
    pub fn forbidden(group: &str, plural: &str, name: &str, why: impl Display) -> Self {
        let subject = match (plural, name) {
            ("", _) => String::new(),
            (_, "") => format!("{} is ", qualify(plural, group)),
            _ => format!("{} \"{name}\" is ", qualify(plural, group)),
        };
        let details = Some(Value::Object(about(group, plural, name)));
        Self { details, ..Self::plain(403, "Forbidden", format!("{subject}forbidden: {why}")) }
    }

    /// The request is allowed for this user but not for this object.
    pub fn forbidden_because(resource: &Resource, name: &str, why: impl Display) -> Self {
        Self::forbidden(resource.group, resource.plural, name, why)
    }

    /// The token is unknown, or no longer valid.
    pub fn unauthorized() -> Self {
        Self::plain(401, "Unauthorized", "Unauthorized")
    }

    /// Priority and fairness says: later.
    pub fn too_many_requests(seconds: u32) -> Self {
        let details = Some(json!({ "retryAfterSeconds": seconds }));
        let message = "Too many requests, please try again later.";
        Self { details, retry_after: Some(seconds), ..Self::plain(429, "TooManyRequests", message) }
    }

    /// A body of a type that can't be read.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::plain(415, "UnsupportedMediaType", message)
    }

    /// A patch of a type that isn't one: refused by the router, which words it its own way.
    pub fn unsupported_patch_type() -> Self {
        Self { details: Some(json!({})), ..Self::plain(415, "UnsupportedMediaType", "415: Unsupported Media Type") }
    }

    /// Strategic merge patches need the type of an object, which the server doesn't have of a kind that was installed.
    pub fn unsupported_patch_of_installed() -> Self {
        let message = "the body of the request was in an unknown format - accepted media types include: \
                       application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        Self::plain(415, "UnsupportedMediaType", message)
    }

    /// Nothing that the client accepts can be sent: refused by the router, too.
    pub fn not_acceptable(offered: &[&str]) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", offered.join(", "));
        Self { details: Some(json!({})), ..Self::plain(406, "NotAcceptable", message) }
    }

    /// This verb does not exist for this resource.
    pub fn method_not_allowed(resource: &Resource, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind \"{}\"", resource.qualified());
        Self::on(405, "MethodNotAllowed", resource, "", message)
    }

    /// The client asks for a version that this server has not reached.
    pub fn too_large_resource_version(requested: u64, current: u64) -> Self {
        let cause = json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let details = Some(json!({ "causes": [cause], "retryAfterSeconds": 1 }));
        Self { details, retry_after: Some(1), ..Self::plain(504, "Timeout", message) }
    }

    /// A body above the size limit.
    pub fn request_too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::plain(413, "RequestEntityTooLarge", message)
    }

    /// The server is overloaded or stopping.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::plain(503, "ServiceUnavailable", message)
    }

    /// The server's own fault.
    pub fn internal(detail: impl Display) -> Self {
        let detail = detail.to_string();
        let message = format!("Internal error occurred: {detail}");
        Self {
            details: Some(json!({ "causes": [{ "message": detail }] })),
            ..Self::plain(500, "InternalError", message)
        }
    }

    /// The `Status` that is sent as the body, and as the object of a watch's ERROR event.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if let Some(details) = &self.details {
            super::access::set(&mut status, "details", details.clone());
        }
        if self.reason.is_empty()
            && let Some(status) = status.as_object_mut()
        {
            status.remove("reason");
        }
        status
    }
}

#[cfg(test)]
mod tests;
