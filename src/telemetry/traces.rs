//! Spans to an OTLP collector over gRPC.
//!
//! Only spans and events of our own modules are exported: the exporter's own transport would otherwise trace itself. A
//! dead collector costs dropped spans and one warning, never work: spans wait in a bounded queue of the SDK's own thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::propagation::{TextMapCompositePropagator, TextMapPropagator};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};
use tracing::{Level, Subscriber, info, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::registry::LookupSpan;

use super::logs::is_ours;
use super::trace_plan::{Export, Propagator, TraceError};

/// Builds the exporter and its provider. Needs a runtime, on which the connection lives.
pub(super) fn provider(export: &Export) -> Result<SdkTracerProvider, TraceError> {
    if tokio::runtime::Handle::try_current().is_err() {
        return Err(TraceError::NoRuntime);
    }
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(export.endpoint.clone())
        .build()
        .map_err(TraceError::Exporter)?;
    let attributes = export.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let resource = Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attributes(attributes)
        .build();
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(Watched { exporter, endpoint: export.endpoint.clone(), failing: AtomicBool::new(false) })
        .with_sampler(export.sampler.clone())
        .with_resource(resource)
        .build())
}

/// The layer that turns our spans into exported ones.
pub(super) fn layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    // Spans down to debug, but only events that an operator would read: request bodies belong in the log.
    let ours = filter_fn(|metadata| {
        let level = if metadata.is_span() { Level::DEBUG } else { Level::INFO };
        is_ours(metadata.target()) && *metadata.level() <= level
    });
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(env!("CARGO_PKG_NAME")))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(ours.with_max_level_hint(LevelFilter::DEBUG))
}

/// Makes the chosen propagators the process's.
pub(super) fn install_propagators(propagators: &[Propagator]) {
    let propagators = propagators.iter().map(|propagator| -> Box<dyn TextMapPropagator + Send + Sync> {
        match propagator {
            Propagator::TraceContext => Box::new(TraceContextPropagator::new()),
            Propagator::Baggage => Box::new(BaggagePropagator::new()),
        }
    });
    global::set_text_map_propagator(TextMapCompositePropagator::new(propagators.collect()));
}

/// Sends what waits and ends the exporter, within `limit`. What could not be sent by then is lost, and said to be.
pub(super) async fn shutdown(provider: SdkTracerProvider, limit: Duration) {
    // The call blocks, and the runtime must go on meanwhile: the exporter's connection lives on it.
    let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(limit));
    let reason = match tokio::time::timeout(limit, ended).await {
        Ok(Ok(Ok(()))) => return,
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not done within {limit:?}"),
    };
    warn!(error = reason, "the last spans may not have reached the collector");
}

/// An exporter whose failure is told once, and its recovery once: a batch goes out every few seconds.
#[derive(Debug)]
struct Watched {
    exporter: SpanExporter,
    endpoint: String,
    failing: AtomicBool,
}

impl opentelemetry_sdk::trace::SpanExporter for Watched {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(batch).await;
        let failing = result.is_err();
        if failing != self.failing.swap(failing, Ordering::Relaxed) {
            match &result {
                Ok(()) => info!(endpoint = self.endpoint, "traces reach the collector again"),
                Err(error) => {
                    warn!(endpoint = self.endpoint, %error, "traces do not reach the collector: spans are lost");
                }
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
