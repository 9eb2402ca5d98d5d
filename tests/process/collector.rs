//! A collector of traces: the official OTLP service over a real socket, with configurable failures.

use std::collections::BTreeMap;
use std::future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use csi_control_plane::process::Tasks;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use super::program::eventually;

/// Its effect on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Takes the spans.
    Takes,
    /// Says that it can't, for now.
    Refuses,
    /// Takes the request and never answers.
    Hangs,
}

/// A span as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty for the first of a trace.
    pub(crate) parent: String,
    /// The traces that it points to.
    pub(crate) links: Vec<String>,
    pub(crate) attributes: BTreeMap<String, String>,
    /// The sender.
    pub(crate) resource: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Book {
    mood: Mood,
    spans: Vec<Seen>,
    requests: usize,
    headers: Vec<BTreeMap<String, String>>,
}

/// A collector that listens.
pub(crate) struct Collector {
    address: SocketAddr,
    scheme: &'static str,
    book: Arc<Mutex<Book>>,
    /// Holds the task that serves.
    _tasks: Tasks,
}

struct Service(Arc<Mutex<Book>>);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mood = {
            let mut book = self.0.lock().unwrap();
            book.requests += 1;
            let headers = request.metadata().clone().into_headers();
            let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            book.headers.push(headers.iter().map(|(key, value)| (key.to_string(), text(value))).collect());
            if book.mood == Mood::Takes {
                book.spans.extend(read(request.into_inner()));
            }
            book.mood
        };
        match mood {
            Mood::Takes => Ok(Response::new(ExportTraceServiceResponse::default())),
            Mood::Refuses => Err(Status::unavailable("not now")),
            Mood::Hangs => future::pending().await,
        }
    }
}

impl Collector {
    /// One that takes what comes.
    pub(crate) async fn open() -> Self {
        Self::with(None).await
    }

    /// The same behind TLS.
    pub(crate) async fn open_with_tls(tls: ServerTlsConfig) -> Self {
        Self::with(Some(tls)).await
    }

    async fn with(tls: Option<ServerTlsConfig>) -> Self {
        let book = Book { mood: Mood::Takes, spans: Vec::new(), requests: 0, headers: Vec::new() };
        let book = Arc::new(Mutex::new(book));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        let service = server.add_service(TraceServiceServer::new(Service(Arc::clone(&book))));
        let (tasks, _) = Tasks::new("collector");
        tasks.spawn("serve", async move {
            service.serve_with_incoming(TcpIncoming::from(listener)).await.unwrap();
        });
        Self { address, scheme, book, _tasks: tasks }
    }

    /// Its address for an exporter.
    pub(crate) fn endpoint(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// From now on.
    pub(crate) fn becomes(&self, mood: Mood) {
        self.book.lock().unwrap().mood = mood;
    }

    /// The number of requests, whatever their outcome.
    pub(crate) fn requests(&self) -> usize {
        self.book.lock().unwrap().requests
    }

    /// The requests' metadata under this key.
    pub(crate) fn header(&self, key: &str) -> Vec<Option<String>> {
        self.book.lock().unwrap().headers.iter().map(|all| all.get(key).cloned()).collect()
    }

    /// The spans that were taken, in their order.
    pub(crate) fn spans(&self) -> Vec<Seen> {
        self.book.lock().unwrap().spans.clone()
    }

    /// Waits for a span.
    pub(crate) async fn span(&self, what: &str, passes: impl Fn(&Seen) -> bool) -> Seen {
        eventually(what, async || self.spans().into_iter().find(&passes)).await
    }
}

fn read(request: ExportTraceServiceRequest) -> Vec<Seen> {
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let mut seen = Vec::new();
    for group in request.resource_spans {
        let resource = group.resource.map(|it| attributes(&it.attributes)).unwrap_or_default();
        for span in group.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            seen.push(Seen {
                name: span.name,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                links: span.links.iter().map(|link| hex(&link.trace_id)).collect(),
                attributes: attributes(&span.attributes),
                resource: resource.clone(),
            });
        }
    }
    seen
}

fn attributes(list: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        other => format!("{other:?}"),
    };
    list.iter().map(|pair| (pair.key.clone(), text(pair))).collect()
}
