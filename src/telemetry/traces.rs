//! Spans to an OTLP collector over gRPC.
//!
//! Only spans and events of our own modules are exported: the exporter's own transport would otherwise trace itself. If
//! the collector is down, spans are dropped with one warning, and no work is delayed: spans wait in a bounded queue of
//! the SDK's own thread.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig, Identity};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider};
use tonic::metadata::KeyAndValueRef;
use tonic::service::Interceptor;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;
use tracing::{Level, Subscriber, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::registry::LookupSpan;

use super::Meter;
use super::logs::is_ours;
use super::span_queue::{Account, Counted, Watched};
use super::trace_plan::{Export, TraceError};
use super::trace_sending::{Headers, TlsFiles};
use crate::process::{Proxy, Tasks, tunnel};

/// What exports, and the account of what it was given.
#[derive(Debug)]
pub(super) struct Provider {
    pub(super) sdk: SdkTracerProvider,
    account: Account,
    /// Holds the task that tells of drops.
    _tasks: Tasks,
}

/// Builds the exporter and its provider. Needs a runtime, on which the connection lives.
pub(super) fn provider(export: &Export, meter: &Meter) -> Result<Provider, TraceError> {
    let runtime = tokio::runtime::Handle::try_current().map_err(|_| TraceError::NoRuntime)?;
    let sending = &export.sending;
    let mut builder = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(export.endpoint.clone())
        .with_timeout(sending.request_timeout)
        .with_interceptor(carrying(sending.headers.clone()));
    if let Some(proxy) = &export.proxy {
        builder = builder.with_channel(through(proxy, export)?);
    } else if is_https(export) {
        builder = builder.with_tls_config(tls(&sending.tls)?);
    }
    let exporter = builder.build().map_err(TraceError::Exporter)?;
    let account = Account::new(sending.queue, meter);
    let watched = Watched {
        exporter,
        endpoint: export.endpoint.clone(),
        account: account.clone(),
        timeout: sending.batch_timeout,
        runtime,
        failing: AtomicBool::new(false),
    };
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(sending.queue)
        .with_max_export_batch_size(sending.batch)
        .with_scheduled_delay(sending.delay)
        .build();
    let inner = BatchSpanProcessor::new(watched, batches);
    let attributes = export.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let resource = Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attributes(attributes)
        .build();
    let sdk = SdkTracerProvider::builder()
        .with_span_processor(Counted { inner, account: account.clone() })
        .with_sampler(export.sampler.clone())
        .with_resource(resource)
        .build();
    let (tasks, _) = Tasks::new("traces");
    tasks.spawn("drops", account.clone().tell_drops());
    Ok(Provider { sdk, account, _tasks: tasks })
}

fn is_https(export: &Export) -> bool {
    export.endpoint.starts_with("https://")
}

/// The connection to the collector, as the exporter would make it, through a proxy.
fn through(proxy: &Proxy, export: &Export) -> Result<Channel, TraceError> {
    let limit = export.sending.request_timeout;
    let mut endpoint = Endpoint::from_shared(export.endpoint.clone()).map_err(TraceError::Channel)?.timeout(limit);
    if is_https(export) {
        endpoint = endpoint.tls_config(tls(&export.sending.tls)?).map_err(TraceError::Channel)?;
    }
    let (proxy, mut tcp) = (proxy.clone(), HttpConnector::new());
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(limit));
    Ok(endpoint.connect_with_connector_lazy(service_fn(move |collector: Uri| {
        let (proxy, tcp) = (proxy.clone(), tcp.clone());
        async move { tunnel(&proxy, tcp, &collector, limit).await.map(TokioIo::new) }
    })))
}

/// Puts the headers on each request. The exporter reads the variable too, and does not mark the values as secrets: whatever
/// logs requests would show them.
fn carrying(headers: Headers) -> impl Interceptor + Clone + Send + Sync + 'static {
    move |mut request: tonic::Request<()>| {
        for header in headers.0.iter() {
            if let KeyAndValueRef::Ascii(key, value) = header {
                request.metadata_mut().insert(key.clone(), value.clone());
            }
        }
        Ok(request)
    }
}

/// Trusts only the given certificates, or by default the public roots: without this the exporter trusts no certificate.
fn tls(files: &TlsFiles) -> Result<ClientTlsConfig, TraceError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| TraceError::Certificate { path: path.display().to_string(), source })
    };
    let mut config = match &files.roots {
        Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
        None => ClientTlsConfig::new().with_enabled_roots(),
    };
    if let (Some(certificate), Some(key)) = (&files.certificate, &files.key) {
        config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    Ok(config)
}

/// The layer that turns our spans into exported ones.
pub(super) fn layer<S>(provider: &Provider) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    // Spans down to debug, but only events that an operator would read: request bodies belong in the log.
    let ours = filter_fn(|metadata| {
        let level = if metadata.is_span() { Level::DEBUG } else { Level::INFO };
        is_ours(metadata.target()) && *metadata.level() <= level
    });
    tracing_opentelemetry::layer()
        .with_tracer(provider.sdk.tracer(env!("CARGO_PKG_NAME")))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        // A span begins with what is said of it, not when it is entered: until then it can be given the trace of another
        // process. Nothing here asks OpenTelemetry for its own idea of the current span.
        .with_context_activation(false)
        .with_filter(ours.with_max_level_hint(LevelFilter::DEBUG))
}

/// Sends the waiting spans and stops the exporter, within `limit`. Spans that could not be sent are lost, with a
/// warning.
pub(super) async fn shutdown(provider: Provider, limit: Duration) {
    let Provider { sdk, account, _tasks } = provider;
    // The call blocks, and the runtime must go on meanwhile: the exporter's connection lives on it.
    let ended = tokio::task::spawn_blocking(move || sdk.shutdown_with_timeout(limit));
    let reason = match tokio::time::timeout(limit, ended).await {
        Ok(Ok(Ok(()))) => return,
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not done within {limit:?}"),
    };
    warn!(error = reason, waiting = account.waiting(), "the last spans may not have reached the collector");
}
