//! One trace per attach: its API requests and its RPC are children of it, and the driver learns of it.

use std::sync::{Arc, Mutex};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use serde_json::json;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::logs;
use crate::world::World;

#[derive(Debug, Clone, Default)]
struct Exported(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Exported {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

#[tokio::test]
async fn an_attach_is_one_trace_that_goes_on_in_the_driver() {
    let exported = Exported::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
    let filter = tracing_subscriber::filter::Targets::new().with_target("csi_control_plane", tracing::Level::INFO);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = logs::listen(tracing_subscriber::registry().with(filter).with(layer));
    let world = World::new().await;
    let daemon = world.daemon(json!({ "roles": { "reconciler": null } })).await;
    let (_, volume, attachment) = world.attached_anew().await;
    daemon.stop().await.unwrap();

    let spans = exported.0.lock().unwrap().clone();
    let is_ours = |span: &&SpanData| {
        span.attributes.iter().any(|it| it.key.as_str() == "volume_attachment" && it.value.as_str() == attachment)
    };
    let roots: Vec<&SpanData> = spans.iter().filter(is_ours).collect();
    assert_eq!(roots.len(), 1, "one span for the attachment: {spans:#?}");
    let trace = roots[0].span_context.trace_id();
    let names: Vec<&str> =
        spans.iter().filter(|it| it.span_context.trace_id() == trace).map(|it| it.name.as_ref()).collect();
    let count = |part: &str| names.iter().filter(|name| name.contains(part)).count();
    assert_eq!(count("ControllerPublishVolume"), 1, "{names:?}");
    assert!(count("persistentvolumes") >= 1 && count("volumeattachments") >= 2, "{names:?}");
    for span in spans.iter().filter(|it| it.span_context.trace_id() == trace && !is_ours(it)) {
        assert_eq!(span.parent_span_id, roots[0].span_context.span_id(), "{} is a child", span.name);
    }
    let received = world.publishes(&volume)[0].traceparent.clone().unwrap();
    assert!(received.starts_with(&format!("00-{trace}-")), "{received} of {trace}");
}
