//! What can go wrong with a request to the Kubernetes API, classified once. Pure.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::core::Status;

use super::names::ObjectName;
use super::objects::Cached;

/// The longest `Retry-After` that is obeyed. A proxy in front of the API may send an hour or more, but work should not
/// wait longer than its own back-off.
pub(super) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);

/// The verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read all objects of a kind.
    List,
    /// Read the changes of a kind.
    Watch,
    /// Make an object.
    Create,
    /// Change part of an object.
    Patch,
    /// Delete an object.
    Delete,
}

impl Verb {
    /// The verb as RBAC spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// A failure's class. Decisions depend only on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiErrorKind {
    /// Another client wrote in between, or the object exists already (409).
    Conflict,
    /// The patch's own precondition failed: a JSON Patch `test`, the uid, or 412.
    PreconditionFailed,
    /// No such object (404).
    NotFound,
    /// The server no longer has the requested version (410).
    Gone,
    /// The server does not accept the content (400, 413, 415, 422).
    Invalid,
    /// RBAC or admission says no (403).
    Forbidden,
    /// The credentials are not accepted (401).
    Unauthorized,
    /// The server is overloaded (429).
    TooManyRequests,
    /// The server failed (5xx).
    ServerError,
    /// No answer in time: the request may have had its effect.
    Timeout,
    /// The connection could not be made or broke: the request may have had its effect.
    Connection,
    /// An unexpected response.
    Unexpected,
    /// The term ended while the request waited for its slot: nothing was sent.
    NotPermitted,
}

impl ApiErrorKind {
    /// For metrics and events.
    pub fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::PreconditionFailed => "precondition_failed",
            Self::NotFound => "not_found",
            Self::Gone => "gone",
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
            Self::Unauthorized => "unauthorized",
            Self::TooManyRequests => "too_many_requests",
            Self::ServerError => "server_error",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Unexpected => "unexpected",
            Self::NotPermitted => "not_permitted",
        }
    }

    /// Whether the same request may succeed later without any repair.
    ///
    /// A conflict and a failed precondition are not transient: they need a new decision from a newer state.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::TooManyRequests | Self::ServerError | Self::Timeout | Self::Connection)
    }

    /// Whether no answer came: the request may have had its effect, or may have it later.
    pub fn is_unanswered(self) -> bool {
        matches!(self, Self::Timeout | Self::Connection)
    }

    /// Whether the write was computed from an old state, or may have been: read, and decide again. This includes
    /// `Invalid`, because another client's change may have made a patch invalid.
    pub fn is_stale(self) -> bool {
        matches!(self, Self::Conflict | Self::PreconditionFailed | Self::Invalid)
    }

    /// Whether the object does not exist or we may not read it: only people can change that.
    pub fn is_withheld(self) -> bool {
        matches!(self, Self::NotFound | Self::Forbidden)
    }

    /// The class of an error response.
    ///
    /// The server reports a failed `test` of a JSON Patch as a bare 422, without causes and without naming the object;
    /// a validation failure always has causes. A wrong `metadata.uid` fails validation as an immutable field: with our
    /// patches this means another object of the same name.
    pub fn of_status(code: u16, status: Option<&Status>, json_patch: bool) -> Self {
        let causes = status.and_then(|status| status.details.as_ref()).map_or(&[][..], |details| &details.causes);
        match code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            409 => Self::Conflict,
            410 => Self::Gone,
            412 => Self::PreconditionFailed,
            422 if json_patch && causes.is_empty() => Self::PreconditionFailed,
            422 if causes.iter().any(|cause| cause.field == "metadata.uid") => Self::PreconditionFailed,
            400 | 413 | 415 | 422 => Self::Invalid,
            429 => Self::TooManyRequests,
            408 | 504 => Self::Timeout,
            500..=599 => Self::ServerError,
            _ => Self::Unexpected,
        }
    }
}

/// A request that failed. Its text names the verb and the object; its sources say why it failed.
#[derive(Debug, Clone)]
pub struct ApiError {
    pub(super) verb: Verb,
    pub(super) resource: String,
    pub(super) object: ObjectName,
    pub(super) kind: ApiErrorKind,
    pub(super) retry_after: Option<Duration>,
    /// The API did not answer anybody at that time.
    pub(super) in_outage: bool,
    pub(super) cause: Arc<Cause>,
}

/// What a refusal is about, beyond its code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum About {
    /// The request itself; a 403 is about a right.
    #[default]
    Request,
    /// The namespace is being deleted, or is gone: nothing can be created there.
    EndingNamespace,
    /// A quota, a webhook or a policy does not admit the object: no right is missing.
    Admission,
}

/// A cause of the server's answer to a write into a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";
/// What admission says where it refuses with a 403: a quota, a webhook, a `ValidatingAdmissionPolicy`.
const OF_ADMISSION: [&str; 3] = ["exceeded quota", "denied the request", "denied request"];

impl About {
    /// What the server's answer says of itself.
    pub(super) fn of(code: u16, status: Option<&Status>) -> Self {
        let Some(status) = status else { return Self::Request };
        let details = status.details.as_ref();
        let is_terminating =
            || details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == NAMESPACE_TERMINATING));
        match code {
            403 if is_terminating() => Self::EndingNamespace,
            403 if OF_ADMISSION.iter().any(|text| status.message.contains(text)) => Self::Admission,
            404 if details.is_some_and(|details| details.kind == "namespaces") => Self::EndingNamespace,
            _ => Self::Request,
        }
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    #[error("{message} ({code} {reason})")]
    Refused { code: u16, reason: String, message: String, about: About },
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    #[error(transparent)]
    Transport(Box<dyn Error + Send + Sync>),
    #[error("the answer is not what was asked for")]
    Answer(#[source] serde_json::Error),
    #[error("nothing can have that name: in a path it would be read as something else")]
    Unnameable,
    #[error("the leadership term ended before it was sent")]
    NotPermitted,
    #[error(
        "it is at version {read} there, and this process has read version {held}: the API's storage was restored from a backup. Restart \
         all controllers of the cluster, as Kubernetes recommends; meanwhile all objects of this kind are listed again"
    )]
    WentBack { read: u128, held: u128 },
    #[error("the request cannot be put into words")]
    Request(#[source] Box<dyn Error + Send + Sync>),
}

impl ApiError {
    /// A failed patch of `object`, for tests of what depends on the class alone.
    #[cfg(test)]
    pub(crate) fn for_test(kind: ApiErrorKind, object: ObjectName) -> Self {
        let cause = Arc::new(Cause::NoAnswer(Duration::ZERO));
        let resource = "tests".to_owned();
        Self { verb: Verb::Patch, resource, object, kind, retry_after: None, in_outage: false, cause }
    }

    /// The API has answered with an older version of an object than it has before.
    pub(crate) fn went_back<K: Cached>(object: ObjectName, read: u128, held: u128) -> Self {
        let cause = Arc::new(Cause::WentBack { read, held });
        let resource = <K::Kind as kube::Resource>::plural(&()).into_owned();
        let kind = ApiErrorKind::Unexpected;
        Self { verb: Verb::Get, resource, object, kind, retry_after: None, in_outage: false, cause }
    }

    /// The class of the failure.
    pub fn kind(&self) -> ApiErrorKind {
        self.kind
    }

    /// For metrics and events.
    pub fn label(&self) -> &'static str {
        self.kind.label()
    }

    /// The object of the request. For a list its name is empty.
    pub fn object(&self) -> &ObjectName {
        &self.object
    }

    /// How long the server asked us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether nothing can be created in the namespace any more, because it is being deleted or is gone.
    pub fn is_of_ending_namespace(&self) -> bool {
        self.about() == About::EndingNamespace
    }

    fn about(&self) -> About {
        if let Cause::Refused { about, .. } = self.cause.as_ref() { *about } else { About::Request }
    }

    /// Whether the same request may succeed later without anything being repaired.
    pub fn is_transient(&self) -> bool {
        self.kind.is_transient()
    }

    /// Whether the request failed because the API did not answer at all. The outage has its own lines in the log, so this
    /// error is logged at level debug.
    pub fn is_of_outage(&self) -> bool {
        self.in_outage
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, resource) = (self.verb.as_str(), &self.resource);
        write!(f, "cannot {verb} {resource}")?;
        // A list has no single object, and a create may leave the name to the server.
        match (self.object.namespace(), self.object.name()) {
            (None, "") => {}
            (Some(namespace), "") => write!(f, " in namespace \"{namespace}\"")?,
            _ => write!(f, " \"{}\"", self.object)?,
        }
        if self.kind == ApiErrorKind::Forbidden && self.about() == About::Request {
            write!(f, " (is \"{verb}\" on \"{resource}\" granted to this service account?)")?;
        }
        Ok(())
    }
}

impl Error for ApiError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.cause.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::error_chain;
    use serde_json::json;

    fn error(kind: ApiErrorKind, cause: Cause) -> ApiError {
        ApiError {
            verb: Verb::Patch,
            resource: "persistentvolumes".into(),
            object: ObjectName::cluster("pv-1"),
            kind,
            retry_after: None,
            in_outage: false,
            cause: Arc::new(cause),
        }
    }

    #[test]
    fn every_status_code_has_one_class() {
        use ApiErrorKind as K;
        for (code, json_patch, expected) in [
            (400, false, K::Invalid),
            (401, false, K::Unauthorized),
            (403, true, K::Forbidden),
            (404, true, K::NotFound),
            (408, false, K::Timeout),
            (409, true, K::Conflict),
            (410, false, K::Gone),
            (412, false, K::PreconditionFailed),
            (413, false, K::Invalid),
            (422, true, K::PreconditionFailed),
            (422, false, K::Invalid),
            (429, false, K::TooManyRequests),
            (500, false, K::ServerError),
            (503, false, K::ServerError),
            (504, false, K::Timeout),
            (302, false, K::Unexpected),
        ] {
            assert_eq!(K::of_status(code, None, json_patch), expected, "{code}");
        }
    }

    #[test]
    fn a_validation_failure_is_no_failed_test_unless_it_is_the_uid() {
        for (field, expected) in
            [("spec.source", ApiErrorKind::Invalid), ("metadata.uid", ApiErrorKind::PreconditionFailed)]
        {
            let status: Status = serde_json::from_value(json!({ "code": 422, "reason": "Invalid", "details": {
                "causes": [{ "reason": "FieldValueInvalid", "message": "no", "field": field }] } }))
            .unwrap();
            assert_eq!(ApiErrorKind::of_status(422, Some(&status), true), expected, "{field}");
        }
    }

    #[test]
    fn the_text_names_operation_and_object_and_says_each_cause_once() {
        let (reason, message) = ("Conflict".into(), "the object changed".into());
        let refused = Cause::Refused { code: 409, reason, message, about: About::Request };
        assert_eq!(
            error_chain(&error(ApiErrorKind::Conflict, refused)),
            "cannot patch persistentvolumes \"pv-1\": the object changed (409 Conflict)"
        );
        let broken = Cause::Transport(std::io::Error::other("connection reset").into());
        assert_eq!(
            error_chain(&error(ApiErrorKind::Connection, broken)),
            "cannot patch persistentvolumes \"pv-1\": connection reset"
        );
    }

    #[test]
    fn a_list_names_no_object() {
        let of = |verb, object| ApiError {
            verb,
            object,
            ..error(ApiErrorKind::ServerError, Cause::NoAnswer(Duration::ZERO))
        };
        for (verb, object, expected) in [
            (Verb::List, ObjectName::cluster(""), "cannot list persistentvolumes"),
            (Verb::Create, ObjectName::namespaced("shop", ""), "cannot create persistentvolumes in namespace \"shop\""),
            (Verb::Delete, ObjectName::namespaced("shop", "a"), "cannot delete persistentvolumes \"shop/a\""),
        ] {
            assert_eq!(of(verb, object).to_string(), expected);
        }
    }

    #[test]
    fn a_forbidden_request_says_which_right_is_missing() {
        for (about, hint) in [
            (About::Request, " (is \"patch\" on \"persistentvolumes\" granted to this service account?)"),
            (About::EndingNamespace, ""),
            (About::Admission, ""),
        ] {
            let refused = Cause::Refused { code: 403, reason: "Forbidden".into(), message: "no".into(), about };
            let expected = format!("cannot patch persistentvolumes \"pv-1\"{hint}");
            assert_eq!(error(ApiErrorKind::Forbidden, refused).to_string(), expected);
        }
    }

    /// The bodies are those of kube-apiserver 1.36.
    #[test]
    fn a_refusal_says_whether_it_is_about_a_right_or_about_the_namespace_or_admission() {
        let terminating = json!([{ "reason": "NamespaceTerminating", "message": "namespace shop is being terminated",
            "field": "metadata.namespace" }]);
        for (code, message, details, expected) in [
            (
                403,
                "events \"e\" is forbidden: unable to create new content in namespace shop because it is being terminated",
                json!({ "name": "e", "kind": "events", "causes": terminating }),
                About::EndingNamespace,
            ),
            (
                404,
                "namespaces \"shop\" not found",
                json!({ "name": "shop", "kind": "namespaces" }),
                About::EndingNamespace,
            ),
            (404, "events \"e\" not found", json!({ "name": "e", "kind": "events" }), About::Request),
            (
                403,
                "events is forbidden: User \"u\" cannot create resource \"events\" in API group \"\" in the namespace \"shop\"",
                json!({ "kind": "events" }),
                About::Request,
            ),
            (
                403,
                "configmaps \"c\" is forbidden: exceeded quota: objects, requested: count/configmaps=1, used: 5, limited: 5",
                json!({ "name": "c", "kind": "configmaps" }),
                About::Admission,
            ),
            (403, "admission webhook \"w.example.com\" denied the request: no", json!(null), About::Admission),
        ] {
            let status: Status =
                serde_json::from_value(json!({ "code": code, "message": message, "details": details })).unwrap();
            assert_eq!(About::of(code, Some(&status)), expected, "{message}");
        }
    }

    #[test]
    fn only_what_may_pass_by_itself_is_transient() {
        use ApiErrorKind as K;
        for kind in [K::TooManyRequests, K::ServerError, K::Timeout, K::Connection] {
            assert!(kind.is_transient());
        }
        for kind in [K::Conflict, K::PreconditionFailed, K::NotFound, K::Gone, K::Invalid, K::Forbidden, K::Unexpected]
        {
            assert!(!kind.is_transient());
        }
    }
}
