//! Reads and writes of single objects: bounded in number and time, counted, traced, and classified once.
//!
//! Nothing here retries. A limit on requests in flight is the only throttle. The server answers 429 if it is
//! overloaded; the error passes that to the queue. Each role has its share of the limit ([`Api::share`]), so that a
//! burst of one role does not delay the requests of another role.

mod deletes;
mod history;
mod lists;
mod urls;

pub use history::History;
pub(super) use urls::url_in_version;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use k8s_openapi::ByteString;
use kube::Resource;
use kube::client::Body;
use kube::core::Status;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;
use tracing::{Instrument as _, Span, field, info_span};

use super::config::KubernetesSection;
use super::error::{About, ApiError, ApiErrorKind, Cause, LONGEST_RETRY_AFTER, Verb};
use super::names::{ObjectName, PROGRAM};
use super::objects::Object;
use super::outage::Outage;
use super::patch::Patch;
use super::route::NoAnswer;
use super::slots::Slots;
use crate::process::{Permit, Permitted};
use crate::telemetry::{Meter, names as metric};

/// The limits of requests: concurrency and time.
#[derive(Debug, Clone)]
pub struct ApiOptions {
    /// Requests in flight.
    pub max_in_flight: usize,
    /// Deadline of one request, counted from when it is sent.
    pub timeout: Duration,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self::from(&KubernetesSection::default())
    }
}

impl From<&KubernetesSection> for ApiOptions {
    fn from(section: &KubernetesSection) -> Self {
        Self { max_in_flight: section.max_in_flight, timeout: section.request_timeout }
    }
}

/// The share for the daemon's own requests, such as its Events.
const OWN_SHARE: &str = "daemon";

/// The client for work requests. Clones share its limits.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
    /// The share that its requests count for.
    share: &'static str,
    /// Checked after a request has got its slot, because the wait for a slot has no limit.
    permit: Option<Permit>,
    /// The version of a kind that has several.
    version: Option<urls::OfKind>,
    outage: Outage,
}

struct Inner {
    client: kube::Client,
    slots: Slots,
    timeout: Duration,
    meter: Meter,
}

/// A Secret's content. Shows its keys, never its values.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretData {
    secret: ObjectName,
    values: BTreeMap<String, Vec<u8>>,
}

/// A Secret holds bytes that no CSI request can carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("secret {secret}: the value of key {key} is not UTF-8 text, which a CSI secret must be")]
pub struct SecretNotText {
    /// The Secret with the value.
    pub secret: ObjectName,
    /// The key, never the value.
    pub key: String,
}

impl SecretData {
    /// The values by key, as a CSI request carries them.
    pub fn into_texts<T: FromIterator<(String, String)>>(self) -> Result<T, SecretNotText> {
        let text = |(key, value)| match String::from_utf8(value) {
            Ok(text) => Ok((key, text)),
            Err(_) => Err(SecretNotText { secret: self.secret.clone(), key }),
        };
        self.values.into_iter().map(text).collect()
    }
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.values.keys().map(|key| (key, "…"))).finish()
    }
}

/// A Secret's wire format.
#[derive(Deserialize)]
struct WireSecret {
    #[serde(default)]
    data: Option<BTreeMap<String, ByteString>>,
}

/// One request: the source for its URL, its metric, its span and its error.
struct Call<'a> {
    verb: Verb,
    /// The plural, with the subresource.
    resource: String,
    object: &'a ObjectName,
    url: String,
    content: Option<(&'static str, Bytes)>,
}

impl Api {
    /// A path over `client`.
    pub fn new(client: kube::Client, options: &ApiOptions, meter: Meter) -> Self {
        let slots = Slots::new(options.max_in_flight);
        let inner = Inner { client, slots, timeout: options.timeout, meter };
        Self { inner: Arc::new(inner), share: OWN_SHARE, permit: None, version: None, outage: Outage::default() }
    }

    /// The same client for the requests of `name`. They get a fair share of the slots while other shares wait, and all
    /// slots otherwise.
    #[must_use]
    pub fn share(&self, name: &'static str) -> Self {
        Self { share: name, ..self.clone() }
    }

    /// Reads an object.
    pub async fn get<K: Object>(&self, name: &ObjectName) -> Result<K, ApiError> {
        self.call(Call {
            verb: Verb::Get,
            resource: K::Kind::plural(&()).into_owned(),
            object: name,
            url: self.object_url::<K::Kind>(name),
            content: None,
        })
        .await
    }

    /// Reads an object that may not exist.
    pub async fn get_opt<K: Object>(&self, name: &ObjectName) -> Result<Option<K>, ApiError> {
        match self.get(name).await {
            Err(error) if error.kind() == ApiErrorKind::NotFound => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Creates an object and returns it. `name` is used only for the URL and in errors; the object's own name is in
    /// `object`. `name` may be empty if the object has a `generateName`.
    pub async fn create<K>(&self, name: &ObjectName, object: &Value) -> Result<K, ApiError>
    where
        K: Object,
    {
        self.call(Call {
            verb: Verb::Create,
            resource: K::Kind::plural(&()).into_owned(),
            object: name,
            url: format!("{}?fieldManager={PROGRAM}", self.kind_url::<K::Kind>(name)),
            content: Some(("application/json", self::body(object))),
        })
        .await
    }

    /// Patches an object and returns it.
    pub async fn patch<K>(&self, name: &ObjectName, patch: &Patch) -> Result<K, ApiError>
    where
        K: Object,
    {
        self.call(self.patching::<K::Kind>(name, "", patch)).await
    }

    /// Patches an object's status and returns the object.
    pub async fn patch_status<K>(&self, name: &ObjectName, patch: &Patch) -> Result<K, ApiError>
    where
        K: Object,
    {
        self.call(self.patching::<K::Kind>(name, "/status", patch)).await
    }

    /// Reads a Secret's content. Never cached, never logged.
    pub async fn get_secret(&self, namespace: &str, name: &str) -> Result<SecretData, ApiError> {
        let secret = ObjectName::namespaced(namespace, name);
        let sent: WireSecret = self
            .call(Call {
                verb: Verb::Get,
                resource: "secrets".to_owned(),
                object: &secret,
                url: self.object_url::<k8s_openapi::api::core::v1::Secret>(&secret),
                content: None,
            })
            .await?;
        let values = sent.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
        Ok(SecretData { secret, values })
    }

    /// Makes a core/v1 Event.
    pub async fn create_event(&self, name: &ObjectName, event: &Value) -> Result<(), ApiError> {
        let url = k8s_openapi::api::core::v1::Event::url_path(&(), name.namespace());
        self.call::<IgnoredAny>(Call {
            verb: Verb::Create,
            resource: "events".to_owned(),
            object: name,
            url: format!("{url}?fieldManager={PROGRAM}"),
            content: Some(("application/json", body(event))),
        })
        .await
        .map(|_| ())
    }

    /// Changes a core/v1 Event.
    pub async fn patch_event(&self, name: &ObjectName, patch: &Patch) -> Result<(), ApiError> {
        self.call::<IgnoredAny>(self.patching::<k8s_openapi::api::core::v1::Event>(name, "", patch)).await.map(|_| ())
    }

    async fn call<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T, ApiError> {
        // As text, like lists and watches: another reader would be the code of each kind a second time.
        let parse = |body: &[u8]| {
            let text = std::str::from_utf8(body).map_err(serde::de::Error::custom)?;
            serde_json::from_str(text)
        };
        self.call_for(call, |_| false, parse).await
    }

    /// Makes a call, and reads its answer with `parse` once the answer has ended or the part that has come is `enough`.
    async fn call_for<T>(
        &self,
        call: Call<'_>,
        enough: impl Fn(&[u8]) -> bool,
        parse: impl FnOnce(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Result<T, ApiError> {
        let span = info_span!(
            "kubernetes",
            otel.name = format!("{} {}", call.verb.as_str(), call.resource),
            otel.kind = "client",
            otel.status_code = field::Empty,
            resource = call.resource,
            object = %call.object,
            error = field::Empty,
        );
        let outcome = self.perform(&call, enough, parse).instrument(span.clone()).await;
        let label = outcome.as_ref().map_or_else(|failure| failure.kind.label(), |_| "ok");
        let labels = [("verb", call.verb.as_str()), ("resource", call.resource.as_str()), ("outcome", label)];
        self.inner.meter.counter(&metric::API_REQUESTS, &labels).increment(1);
        outcome.map_err(|failure| {
            Span::record(&span, "error", failure.kind.label());
            Span::record(&span, "otel.status_code", "ERROR");
            ApiError {
                verb: call.verb,
                resource: call.resource,
                object: call.object.clone(),
                kind: failure.kind,
                retry_after: failure.retry_after,
                in_outage: failure.kind.is_transient() && self.outage.is_lost(),
                cause: Arc::new(failure.cause),
            }
        })
    }

    async fn perform<T>(
        &self,
        call: &Call<'_>,
        enough: impl Fn(&[u8]) -> bool,
        parse: impl FnOnce(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Result<T, Failure> {
        // Users write some names into objects: a name like `a/status` or `?watch` would change the URL's meaning.
        if !is_nameable(call) {
            return Err(Failure::of(ApiErrorKind::NotFound, Cause::Unnameable));
        }
        let request =
            request(call).map_err(|error| Failure::of(ApiErrorKind::Unexpected, Cause::Request(error.into())))?;
        let _slot = self.inner.slots.acquire(self.share).await;
        // After a freeze that outlasts the term, all waiting requests wake up at once.
        if self.permit.as_ref().is_some_and(|permit| !permit()) {
            return Err(Failure::of(ApiErrorKind::NotPermitted, Cause::NotPermitted));
        }
        let exchange = async {
            let response =
                self.inner.client.send(request).await.map_err(|error| Failure::transport(error, self.inner.timeout))?;
            let (head, mut rest) = response.into_parts();
            let mut body = Vec::new();
            while let Some(frame) = rest.frame().await {
                let frame = frame.map_err(|error| Failure::transport(error, self.inner.timeout))?;
                body.extend_from_slice(&frame.into_data().unwrap_or_default());
                if enough(&body) {
                    break;
                }
            }
            Ok((head, body))
        };
        let (head, body) = timeout(self.inner.timeout, exchange)
            .await
            .map_err(|_| Failure::of(ApiErrorKind::Timeout, Cause::NoAnswer(self.inner.timeout)))??;
        if head.status.is_success() {
            return parse(&body).map_err(|error| Failure::of(ApiErrorKind::Unexpected, Cause::Answer(error)));
        }
        let json_patch = call.content.as_ref().is_some_and(|(kind, _)| kind.contains("json-patch"));
        Err(Failure::refused(head.status, &head.headers, &body, json_patch))
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("share", &self.share)
            .field("free_slots", &self.inner.slots.free())
            .finish_non_exhaustive()
    }
}

impl Permitted for Api {
    fn permitted(self, permit: Permit) -> Self {
        Self { permit: Some(permit), ..self }
    }
}

/// Whether the namespace and the name of a call are each one path segment. The server has no objects with other names,
/// because its own rule is stricter, and client-go refuses most of them as well.
fn is_nameable(call: &Call<'_>) -> bool {
    let is_part = |text: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@".contains(c);
        !text.is_empty() && text != "." && text != ".." && text.chars().all(is_plain)
    };
    // A list has no name, and the server may choose the name of a created object.
    let is_open = matches!(call.verb, Verb::List | Verb::Watch | Verb::Create) && call.object.name().is_empty();
    (is_open || is_part(call.object.name())) && call.object.namespace().is_none_or(is_part)
}

/// The request body. Values and patches are JSON already, so serialization cannot fail.
fn body(content: &impl Serialize) -> Bytes {
    serde_json::to_vec(content).unwrap_or_default().into()
}

fn request(call: &Call<'_>) -> Result<Request<Body>, http::Error> {
    let method = match call.verb {
        Verb::Get | Verb::List | Verb::Watch => Method::GET,
        Verb::Create => Method::POST,
        Verb::Patch => Method::PATCH,
        Verb::Delete => Method::DELETE,
    };
    let request = Request::builder().method(method).uri(&call.url).header(header::ACCEPT, "application/json");
    match &call.content {
        None => request.body(Body::empty()),
        Some((kind, body)) => request.header(header::CONTENT_TYPE, *kind).body(Body::from(body.clone())),
    }
}

/// A failure without its request.
struct Failure {
    kind: ApiErrorKind,
    retry_after: Option<Duration>,
    cause: Cause,
}

impl Failure {
    fn of(kind: ApiErrorKind, cause: Cause) -> Self {
        Self { kind, retry_after: None, cause }
    }

    fn transport(error: kube::Error, limit: Duration) -> Self {
        match error {
            kube::Error::Service(error) if error.is::<NoAnswer>() => {
                Self::of(ApiErrorKind::Timeout, Cause::NoAnswer(error.downcast::<NoAnswer>().map_or(limit, |no| no.0)))
            }
            kube::Error::Service(error) => Self::of(ApiErrorKind::Connection, Cause::Transport(error)),
            kube::Error::HyperError(error) => Self::of(ApiErrorKind::Connection, Cause::Transport(error.into())),
            error @ kube::Error::Auth(_) => Self::of(ApiErrorKind::Unauthorized, Cause::Transport(error.into())),
            error => Self::of(ApiErrorKind::Connection, Cause::Transport(error.into())),
        }
    }

    fn refused(code: StatusCode, headers: &header::HeaderMap, body: &[u8], json_patch: bool) -> Self {
        let status: Option<Status> = serde_json::from_slice(body).ok();
        let kind = ApiErrorKind::of_status(code.as_u16(), status.as_ref(), json_patch);
        let about = About::of(code.as_u16(), status.as_ref());
        let header = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let detail =
            status.as_ref().and_then(|status| status.details.as_ref()).map(|details| details.retry_after_seconds);
        let seconds = header.or_else(|| detail.map(u64::from)).filter(|seconds| *seconds > 0);
        let (reason, message) = if let Some(status) = status {
            (status.reason, status.message)
        } else {
            // Priority and fairness, proxies and load balancers answer in plain text.
            let text = String::from_utf8_lossy(body);
            let known = code.canonical_reason().unwrap_or("Unknown");
            (known.to_owned(), text.trim().chars().take(200).collect())
        };
        let cause = Cause::Refused { code: code.as_u16(), reason, message, about };
        let retry_after = seconds.map(|seconds| Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER));
        Self { kind, retry_after, cause }
    }
}
