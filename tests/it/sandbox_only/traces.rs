//! One trace per attach and per change of a claim: its API requests and its RPC are children of it, and the driver learns of it.

use std::sync::{Arc, Mutex};

use csi_control_plane::sandbox::driver::{Action, Method};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use serde_json::json;
use tonic::Code;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::logs;
use crate::resizing::{expanding, modifying, resizer};
use crate::world::World;

#[derive(Debug, Clone, Default)]
struct Exported(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Exported {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

/// Traces of the daemon, for as long as the guard lives.
fn traced() -> (Exported, DefaultGuard) {
    let exported = Exported::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
    let filter = tracing_subscriber::filter::Targets::new().with_target("csi_control_plane", tracing::Level::INFO);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    (exported, logs::listen(tracing_subscriber::registry().with(filter).with(layer)))
}

impl Exported {
    /// The span with these attributes, of which there is one, and the names of its children in their order.
    fn one(&self, attributes: &[(&str, &str)]) -> (SpanData, Vec<String>) {
        let spans = self.0.lock().unwrap().clone();
        let has = |span: &SpanData, key: &str, value: &str| {
            span.attributes.iter().any(|it| it.key.as_str() == key && it.value.as_str() == value)
        };
        let is_it = |span: &&SpanData| attributes.iter().all(|(key, value)| has(span, key, value));
        let roots: Vec<&SpanData> = spans.iter().filter(is_it).collect();
        assert_eq!(roots.len(), 1, "one span of {attributes:?}: {spans:#?}");
        let root = roots[0].clone();
        let trace = root.span_context.trace_id();
        let mut others: Vec<&SpanData> =
            spans.iter().filter(|it| it.span_context.trace_id() == trace && !is_it(it)).collect();
        others.sort_by_key(|span| span.start_time);
        for span in &others {
            assert_eq!(span.parent_span_id, root.span_context.span_id(), "{} is a child", span.name);
        }
        (root, others.iter().map(|span| span.name.to_string()).collect())
    }
}

#[tokio::test]
async fn an_attach_is_one_trace_that_goes_on_in_the_driver() {
    let (exported, _guard) = traced();
    let (world, daemon) = World::with_daemon(json!({ "roles": { "reconciler": null } })).await;
    let (_, volume, attachment) = world.attached_anew().await;
    daemon.stop().await.unwrap();

    let (root, names) = exported.one(&[("volume_attachment", &attachment)]);
    let count = |part: &str| names.iter().filter(|name| name.contains(part)).count();
    assert_eq!(count("ControllerPublishVolume"), 1, "{names:?}");
    assert!(count("persistentvolumes") >= 1 && count("volumeattachments") >= 2, "{names:?}");
    let (received, trace) = (world.publishes(&volume)[0].traceparent.clone().unwrap(), root.span_context.trace_id());
    assert!(received.starts_with(&format!("00-{trace}-")), "{received} of {trace}");
}

#[tokio::test]
async fn a_change_of_a_claim_is_one_trace_from_the_wish_to_the_last_write_with_the_retries_in_between() {
    let (exported, _guard) = traced();
    let world = World::supplied(|_| {}).await;
    let daemon = world.daemon(resizer(json!({ "retry": { "initial": "20ms" } }))).await;
    let (claim, _) = world.sizable_device("claim").await;
    let class = world.attributes("gold", "100").await;
    for fault in [expanding(Action::fail(Code::Internal, "no")), modifying(Action::fail(Code::Internal, "no"))] {
        world.driver().inject(fault.once());
    }
    world.ask_for(&claim, "2Gi").await;
    world.sized(&claim, "2Gi").await;
    world.ask_for_class(&claim, &class).await;
    world.classed(&claim, &class).await;
    daemon.stop().await.unwrap();

    for (operation, method) in [("expand", Method::ControllerExpandVolume), ("modify", Method::ControllerModifyVolume)]
    {
        let name = format!("default/{claim}");
        let (root, names) = exported.one(&[("persistent_volume_claim", &name), ("operation", operation)]);
        let calls: Vec<_> = world.driver().calls_of(method);
        // Of all writes the driver's part comes after the first, and before the last.
        let parts: Vec<&str> = names
            .iter()
            .filter_map(|name| {
                ["persistentvolumeclaims", "persistentvolumes", "Controller"]
                    .into_iter()
                    .find(|part| name.contains(part))
            })
            .collect();
        assert_eq!(parts.first(), Some(&"persistentvolumeclaims"), "the mark: {names:?}");
        assert_eq!(parts.last(), Some(&"persistentvolumeclaims"), "the result: {names:?}");
        assert_eq!(parts.iter().filter(|part| **part == "Controller").count(), calls.len(), "{names:?}");
        assert!(calls.len() == 2 && parts.contains(&"persistentvolumes"), "{names:?}");
        let trace = root.span_context.trace_id();
        for call in calls {
            let received = call.traceparent.clone().unwrap();
            assert!(received.starts_with(&format!("00-{trace}-")), "{operation}: {received} of {trace}");
        }
    }
}
