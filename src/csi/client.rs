//! Calls to the driver, each with its deadline, span, trace context, metric, log lines and typed error.
//!
//! Decisions:
//! - A call without a connection fails at once as `Unavailable`, and so does a call whose connection breaks or whose
//!   response can't be decoded: tonic reports these as `Unknown`, `Internal` or `OutOfRange`, which would count as the
//!   driver's final answer. Only a status that the driver has sent is its answer, see [`super::grpc_status`].
//! - We enforce the deadline (by dropping the future, which resets the stream) and also send it to the driver as
//!   `grpc-timeout`.
//! - A call that its caller drops is recorded as `Canceled`, as the Go sidecars record it.
//! - A call of the Controller services waits until the driver may be called ([`super::limiter`]) before any of that begins.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::uri::PathAndQuery;
use opentelemetry::propagation::Injector;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, timeout};
use tonic::client::Grpc;
use tonic::metadata::{MetadataKey, MetadataMap};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::channel::Route;
use super::error::{RpcError, code_name};
use super::grpc_status::{GrpcStatus, StatusTap};
use super::limit::Bounds;
use super::limiter::{CallActivity, Limiters, Pass, Shown};
use super::redact::{Line, Secrets};
use crate::process::{Clock, Permit, Permitted};
use crate::telemetry::{Meter, Propagation, names};

/// The options of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CsiOptions {
    /// The deadline of each call.
    pub timeout: Duration,
    /// The largest accepted response.
    pub max_message_bytes: usize,
    /// Cuts a logged response after so many characters. `None`: never.
    pub max_log_length: Option<usize>,
    /// How the trace is passed to the driver.
    pub propagation: Propagation,
    /// How many calls of one RPC may be in flight at once.
    pub concurrency: Concurrency,
}

/// How many calls of one RPC may be in flight at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// So many always may.
    pub min: u32,
    /// More never may.
    pub max: u32,
}

/// One RPC's names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Method {
    pub(super) service: &'static str,
    pub(super) rpc: &'static str,
    pub(super) name: &'static str,
    pub(super) path: &'static str,
}

impl Method {
    /// Whether the driver works for it: what it says of itself it may be asked at any time.
    fn is_limited(&self) -> bool {
        matches!(self.service, "csi.v1.Controller" | "csi.v1.GroupController") && !self.rpc.ends_with("GetCapabilities")
    }
}

/// A request, with its log output and its secret fields.
pub(super) trait Request: prost::Message + fmt::Debug + 'static {
    fn secrets(&self) -> Option<&HashMap<String, String>>;
}

/// A response, with its log output.
pub(super) trait Response: prost::Message + fmt::Debug + Default + 'static {}
impl<T: prost::Message + fmt::Debug + Default + 'static> Response for T {}

/// Calls the driver. Clones share the connection. A client belongs to one generation of the driver and fails after it.
#[derive(Clone)]
pub struct Client {
    route: Arc<Route>,
    caller: Arc<Caller>,
    /// A deadline of this client's own, instead of the configured one.
    timeout: Option<Duration>,
    /// Checked right before a call is sent.
    permit: Option<Permit>,
    /// Whether the calls are for an in-tree object that was translated.
    is_migrated: bool,
}

/// The shared state of all clients of a process.
pub(super) struct Caller {
    /// The current options: a call uses the options at its start.
    options: RwLock<CsiOptions>,
    driver_name: Mutex<Arc<str>>,
    /// Whether a driver of this name has taken an in-tree plugin over.
    is_successor: OnceLock<fn(&str) -> bool>,
    limiters: Limiters,
    pub(super) meter: Meter,
    pub(super) clock: Clock,
}

/// The metric's label before the driver's name is known.
const UNKNOWN_DRIVER: &str = "unknown-driver";
/// The text of gRPC for Go, which users' runbooks search for.
const DEADLINE_MESSAGE: &str = "context deadline exceeded";
/// Of a call that was never sent.
const NOT_PERMITTED_MESSAGE: &str = "the leadership term ended before it was sent";

impl Caller {
    pub(super) fn new(options: CsiOptions, meter: Meter, clock: Clock) -> Self {
        let driver_name = Mutex::new(UNKNOWN_DRIVER.into());
        Self {
            options: RwLock::new(options),
            driver_name,
            is_successor: OnceLock::new(),
            limiters: Limiters::default(),
            meter,
            clock,
        }
    }

    /// How calls that begin now are made.
    pub(super) fn options(&self) -> CsiOptions {
        *self.options.read()
    }

    /// How calls are made from here on.
    pub(super) fn set_options(&self, options: CsiOptions) {
        *self.options.write() = options;
    }

    /// What the metric says from here on.
    pub(super) fn note_driver_name(&self, name: &str) {
        *self.driver_name.lock() = name.into();
    }

    /// Which drivers have taken an in-tree plugin over. The first answer counts.
    pub(super) fn know_successors(&self, is_successor: fn(&str) -> bool) {
        let _ = self.is_successor.set(is_successor);
    }

    /// Whether the metric has the driver's name.
    pub(super) fn knows_driver_name(&self) -> bool {
        *self.driver_label() != *UNKNOWN_DRIVER
    }

    /// The RPCs that are limited, or whose calls wait.
    pub(super) fn activity(&self) -> Vec<CallActivity> {
        self.limiters.activity()
    }

    /// Waits until this RPC may be called. `None`: it always may.
    async fn pass(&self, method: Method, Concurrency { min, max }: Concurrency) -> Option<Pass> {
        if !method.is_limited() {
            return None;
        }
        let bounds = Bounds { min, max };
        let shown = Shown { driver: self.driver_label(), meter: self.meter.clone() };
        Some(self.limiters.of(method.path, bounds, self.clock).pass(bounds, &shown).await)
    }

    fn driver_label(&self) -> Arc<str> {
        Arc::clone(&self.driver_name.lock())
    }
}

impl Client {
    pub(super) fn new(route: Arc<Route>, caller: Arc<Caller>) -> Self {
        Self { route, caller, timeout: None, permit: None, is_migrated: false }
    }

    pub(super) fn route(&self) -> &Arc<Route> {
        &self.route
    }

    /// The path of `ControllerPublishVolume`, as an [`RpcError`] names it.
    pub const PUBLISH: &'static str = "/csi.v1.Controller/ControllerPublishVolume";

    /// The same client with another deadline for each call.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self.clone() }
    }

    /// The same client; with a deadline of its own for each call, if there is one.
    #[must_use]
    pub fn with_own_timeout(&self, timeout: Option<Duration>) -> Self {
        timeout.map_or_else(|| self.clone(), |timeout| self.with_timeout(timeout))
    }

    /// The same client for calls for an in-tree object that was translated, if `is_migrated`: the metric says so (migration spec 11).
    #[must_use]
    pub fn for_migrated(&self, is_migrated: bool) -> Self {
        Self { is_migrated, ..self.clone() }
    }

    pub(super) async fn call<Q: Request, R: Response>(&self, method: Method, request: Q) -> Result<R, RpcError> {
        let mut options = self.caller.options();
        options.timeout = self.timeout.unwrap_or(options.timeout);
        let pass = self.caller.pass(method, options.concurrency).await;
        let span = info_span!(
            "csi_rpc",
            otel.name = method.name,
            otel.kind = "client",
            otel.status_code = Empty,
            otel.status_description = Empty,
            rpc.system = "grpc",
            rpc.service = method.service,
            rpc.method = method.rpc,
            rpc.grpc.status_code = Empty,
        );
        let mut observation = Observation::begin(&self.caller, method, self.is_migrated, span.clone());
        let driver_status = GrpcStatus::default();
        async {
            debug!(method = method.path, request = %Line::whole(&request), "rpc request");
            let secrets = Secrets::of(request.secrets());
            let answer: Result<R, RpcError> = self
                .send(method, request, options, &observation, &driver_status)
                .await
                .map_err(|(code, message)| RpcError { method: method.path, code, message: secrets.strip(&message) });
            observation.end(&answer);
            if let Some(pass) = pass {
                pass.end(observation.code, driver_status.code(), options.timeout);
            }
            let limit = options.max_log_length;
            match &answer {
                Ok(response) => {
                    debug!(method = method.path, code = "OK", response = %Line::cut(response, limit), "rpc response");
                }
                Err(error) => {
                    let message = Line::cut(&error.message, limit);
                    debug!(method = method.path, code = error.label(), error = %message, "rpc response");
                }
            }
            answer
        }
        .instrument(span)
        .await
    }

    async fn send<Q: Request, R: Response>(
        &self,
        method: Method,
        request: Q,
        options: CsiOptions,
        observation: &Observation,
        driver_status: &GrpcStatus,
    ) -> Result<R, (Code, String)> {
        let channel = self.route.channel().map_err(|why| (Code::Unavailable, why.to_string()))?;
        let mut request = tonic::Request::new(request);
        request.set_timeout(options.timeout);
        options.propagation.inject(&observation.span.context(), &mut Headers(request.metadata_mut()));
        let mut grpc = Grpc::new(StatusTap::new(channel, driver_status.clone()))
            .max_decoding_message_size(options.max_message_bytes);
        let exchange = async {
            grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
            if self.permit.as_ref().is_some_and(|permit| !permit()) {
                return Ok(None);
            }
            grpc.unary(request, PathAndQuery::from_static(method.path), ProstCodec::<Q, R>::default()).await.map(Some)
        };
        match timeout(options.timeout, exchange).await {
            Ok(Ok(Some(response))) => Ok(response.into_inner()),
            Ok(Ok(None)) => Err((Code::Cancelled, NOT_PERMITTED_MESSAGE.to_owned())),
            Ok(Err(status)) => Err(refusal(&status, driver_status.code(), observation.elapsed(), options.timeout)),
            Err(_) => Err((Code::DeadlineExceeded, DEADLINE_MESSAGE.to_owned())),
        }
    }
}

/// The error of a status: the driver's answer, or a failure of the connection or of the decoding.
fn refusal(status: &Status, said: Option<Code>, elapsed: Duration, limit: Duration) -> (Code, String) {
    // Both sides enforce the same deadline, and the driver's server may be first.
    if status.code() == Code::Cancelled && elapsed >= limit {
        return (Code::DeadlineExceeded, DEADLINE_MESSAGE.to_owned());
    }
    match (said, status.source()) {
        (Some(code), _) if code != Code::Ok => (code, status.message().to_owned()),
        (_, Some(cause)) => (Code::Unavailable, format!("call broken off: {}", root(cause))),
        (_, None) => (Code::Unavailable, format!("the driver's answer cannot be used: {}", status.message())),
    }
}

/// The innermost source: tonic's and hyper's errors around it only repeat it in other words.
fn root<'a>(mut error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    while let Some(cause) = error.source() {
        error = cause;
    }
    error
}

impl Permitted for Client {
    fn permitted(self, permit: Permit) -> Self {
        Self { permit: Some(permit), ..self }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("driver", &self.caller.driver_label()).finish_non_exhaustive()
    }
}

/// One call's entry in the histogram and on its span, made even if the call is dropped.
struct Observation {
    caller: Arc<Caller>,
    driver: Arc<str>,
    method: Method,
    is_migrated: bool,
    span: Span,
    started: Instant,
    code: Code,
    message: String,
}

impl Observation {
    fn begin(caller: &Arc<Caller>, method: Method, is_migrated: bool, span: Span) -> Self {
        let started = caller.clock.now();
        let message = "the caller went away".to_owned();
        let driver = caller.driver_label();
        Self { caller: Arc::clone(caller), driver, method, is_migrated, span, started, code: Code::Cancelled, message }
    }

    fn elapsed(&self) -> Duration {
        self.caller.clock.now().saturating_duration_since(self.started)
    }

    fn end<R>(&mut self, answer: &Result<R, RpcError>) {
        match answer {
            Ok(_) => self.code = Code::Ok,
            Err(error) => {
                self.code = error.code;
                self.message.clone_from(&error.message);
            }
        }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.span.record("rpc.grpc.status_code", self.code as i32);
        if self.code != Code::Ok {
            self.span.record("otel.status_code", "ERROR");
            self.span.record("otel.status_description", self.message.as_str());
        }
        let is_successor = self.caller.is_successor.get().is_some_and(|is_successor| is_successor(&self.driver));
        let mut labels = vec![
            ("driver_name", &*self.driver),
            ("method_name", self.method.path),
            ("grpc_status_code", code_name(self.code)),
        ];
        // Every series of a driver that has taken a plugin over has the label, and no series of another driver (M6).
        if is_successor {
            labels.push(("migrated", if self.is_migrated { "true" } else { "false" }));
        }
        self.caller.meter.histogram(&names::CSI_OPERATIONS, &labels).record(self.elapsed().as_secs_f64());
    }
}

/// Writes a trace context into gRPC metadata.
struct Headers<'a>(&'a mut MetadataMap);

impl Injector for Headers<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(key), Ok(value)) = (MetadataKey::from_bytes(key.as_bytes()), value.parse()) {
            self.0.insert(key, value);
        }
    }
}
