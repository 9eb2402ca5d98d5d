use super::*;
use std::net::SocketAddr;

use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, info_span, trace_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::process::Tasks;
use crate::telemetry::fixtures::Paper;

struct Collector(mpsc::UnboundedSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.0.send(request.into_inner()).unwrap();
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector on loopback and what it receives.
async fn collector(
    tasks: &Tasks,
    stop: CancellationToken,
) -> (SocketAddr, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tasks.spawn("collector", async move {
        tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(Collector(sender)))
            .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
            .await
            .unwrap();
    });
    (address, receiver)
}

fn settings(endpoint: String) -> TelemetrySettings {
    TelemetrySettings {
        logs: LogSettings { level: "info".to_owned(), format: LogFormat::Json },
        traces: TraceSettings {
            endpoint: Some(endpoint),
            sample_ratio: 1.0,
            version: "1.2.3".to_owned(),
            instance: "host_1".to_owned(),
        },
    }
}

fn value(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = &attributes.iter().find(|attribute| attribute.key == key)?.value;
    match value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        other => Some(format!("{other:?}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_spans_reach_a_collector_as_one_trace_and_the_librarys_do_not() {
    let (tasks, _ends) = Tasks::new("test");
    let stop = CancellationToken::new();
    let (address, mut received) = collector(&tasks, stop.clone()).await;
    let environment =
        Environment::from([("OTEL_RESOURCE_ATTRIBUTES".to_owned(), "k8s.pod.name=attacher-0".to_owned())]);
    let paper = Paper::default();
    let settings = settings(format!("http://{address}"));
    let (subscriber, telemetry, _) =
        build(&settings, &environment, (Clock::system(), &Meter::new()), false, paper.clone()).unwrap();
    assert!(telemetry.traces() && telemetry.state().warnings.is_empty());

    let trace = tracing::subscriber::with_default(subscriber, || {
        let attach = info_span!("attach", volume_attachment = "csi-1").entered();
        let publish = info_span!("ControllerPublishVolume", otel.kind = "client", rpc.system = "grpc").entered();
        info!(node = "node-a", "publishing");
        debug!("not for the trace");
        trace_span!("too fine").in_scope(|| ());
        info_span!(target: "h2::codec", "frame").in_scope(|| ());
        let trace = publish.context().span().span_context().trace_id().to_string();
        drop(publish);
        drop(attach);
        trace
    });
    telemetry.shutdown(Duration::from_secs(10)).await;

    let request = received.recv().await.unwrap();
    stop.cancel();
    let resource = request.resource_spans[0].resource.as_ref().unwrap();
    for (key, expected) in [
        ("service.name", "csi-control-plane"),
        ("service.version", "1.2.3"),
        ("service.instance.id", "host_1"),
        ("k8s.pod.name", "attacher-0"),
    ] {
        assert_eq!(value(&resource.attributes, key).as_deref(), Some(expected), "{key}");
    }
    let spans = &request.resource_spans[0].scope_spans[0].spans;
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["ControllerPublishVolume", "attach"]);
    assert_eq!(spans[0].parent_span_id, spans[1].span_id);
    assert_eq!(spans[0].trace_id, spans[1].trace_id);
    assert_eq!(spans[0].kind, 3, "a client span");
    assert_eq!(spans[0].events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["publishing"]);
    assert_eq!(value(&spans[1].attributes, "volume_attachment").as_deref(), Some("csi-1"));

    // The log line carries the same trace, so that one leads to the other.
    let log = paper.text();
    let line: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(line["trace_id"], trace.as_str());
    let id: String = spans[0].trace_id.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    assert_eq!(id, trace);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_collector_costs_nothing_but_its_spans() {
    // Kept, without a listener, so that no other test gets the port.
    let kept = tokio::net::TcpSocket::new_v4().unwrap();
    kept.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = kept.local_addr().unwrap();
    let settings = settings(format!("http://{address}"));
    let (subscriber, telemetry, _) =
        build(&settings, &Environment::new(), (Clock::system(), &Meter::new()), false, std::io::sink).unwrap();
    let done = tracing::subscriber::with_default(subscriber, || {
        (0..5000).filter(|number| info_span!("attach", number).in_scope(|| true)).count()
    });
    assert_eq!(done, 5000);
    let bound = tokio::time::timeout(Duration::from_secs(20), telemetry.shutdown(Duration::from_secs(2)));
    assert!(bound.await.is_ok());
}

#[test]
fn traces_without_a_runtime_are_a_warning() {
    let settings = settings("http://127.0.0.1:1".to_owned());
    let (_, telemetry, export) =
        build(&settings, &Environment::new(), (Clock::system(), &Meter::new()), false, std::io::sink).unwrap();
    assert!(!telemetry.traces() && export.is_none());
    assert_eq!(telemetry.state().warnings, ["no traces are sent: the OTLP exporter needs a running tokio runtime"]);
}
