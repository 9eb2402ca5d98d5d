//! The queue of spans that wait for the collector, and the counters of their outcomes.
//!
//! ```text
//!   span ends ─> Counted ──room?──> the SDK's batches, a thread of its own ─> Watched ─> collector
//!                   └── no: dropped                                             └── exported | failed
//! ```
//!
//! If the collector is down or slow, spans are lost, but no work is delayed and memory stays bounded: the queue has a
//! limit, no task waits for a place in it, and an export has a deadline. The SDK does not report how many spans it
//! drops when its queue is full, so the places are counted here: a span takes a place when it ends and frees it when
//! its batch is taken out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use metrics::Counter;
use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::Meter;
use super::names;

/// What became of the spans, and how many wait.
#[derive(Clone)]
pub(super) struct Account {
    room: usize,
    waiting: Arc<AtomicUsize>,
    /// Whether spans were dropped since the last accepted batch.
    dropping: Arc<AtomicBool>,
    /// Signals the first dropped span.
    begun: Arc<Notify>,
    exported: Counter,
    failed: Counter,
    dropped: Counter,
}

impl Account {
    pub(super) fn new(room: usize, meter: &Meter) -> Self {
        let counter = |outcome| meter.counter(&names::TRACE_SPANS, &[("outcome", outcome)]);
        Self {
            room,
            waiting: Arc::default(),
            dropping: Arc::default(),
            begun: Arc::default(),
            exported: counter("exported"),
            failed: counter("failed"),
            dropped: counter("dropped"),
        }
    }

    /// How many spans wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Logs when spans begin to be dropped, once until the collector accepts spans again. The counter has the number.
    pub(super) async fn tell_drops(self) {
        loop {
            self.begun.notified().await;
            warn!(room = self.room, "the span queue is full: spans are lost until the collector accepts more");
        }
    }

    /// Takes a place. `false`: there is none.
    fn enter(&self) -> bool {
        let more = |waiting: usize| (waiting < self.room).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// A batch is on its way.
    fn leave(&self, spans: usize) {
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("room", &self.room).field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

/// Lets spans into the SDK's queue while there is room.
#[derive(Debug)]
pub(super) struct Counted<P> {
    pub(super) inner: P,
    pub(super) account: Account,
}

impl<P: SpanProcessor> SpanProcessor for Counted<P> {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.account.enter() {
            return self.inner.on_end(span);
        }
        self.account.dropped.increment(1);
        // Logged by another task: a span may end while locks are held that a log line would need, too.
        if !self.account.dropping.swap(true, Ordering::Relaxed) {
            self.account.begun.notify_one();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// An exporter with a deadline. Its failure is logged once, and its recovery once, because it exports every few
/// seconds.
#[derive(Debug)]
pub(super) struct Watched<E> {
    pub(super) exporter: E,
    pub(super) endpoint: String,
    pub(super) account: Account,
    /// For one batch, retries included.
    pub(super) timeout: Duration,
    /// Where the clock of that deadline runs: the SDK's thread is not of the runtime.
    pub(super) runtime: Handle,
    pub(super) failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.account.leave(spans);
        let bounded = {
            let _inside = self.runtime.enter();
            tokio::time::timeout(self.timeout, self.exporter.export(batch))
        };
        let result = bounded.await.unwrap_or(Err(OTelSdkError::Timeout(self.timeout)));
        let failing = result.is_err();
        let counter = if failing { &self.account.failed } else { &self.account.exported };
        counter.increment(spans as u64);
        if failing != self.failing.swap(failing, Ordering::Relaxed) {
            match &result {
                Ok(()) => info!(endpoint = self.endpoint, "traces reach the collector again"),
                Err(error) => {
                    warn!(endpoint = self.endpoint, %error, "traces do not reach the collector: spans are lost");
                }
            }
        }
        if !failing {
            self.account.dropping.store(false, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider};

    use super::*;

    /// A collector that says when it is asked, and answers when it is let.
    #[derive(Debug)]
    struct Gate {
        asked: Sender<usize>,
        let_go: Mutex<Receiver<bool>>,
    }

    impl SpanExporter for Gate {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.asked.send(batch.len()).unwrap();
            let is_taken = self.let_go.lock().unwrap().recv().unwrap();
            if is_taken { Ok(()) } else { Err(OTelSdkError::InternalFailure("no".to_owned())) }
        }
    }

    fn count(meter: &Meter, outcome: &str) -> usize {
        let line = format!("csi_control_plane_trace_spans_total{{outcome=\"{outcome}\"}} ");
        meter.render().lines().find_map(|it| it.strip_prefix(&line)?.parse().ok()).unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn every_span_is_exported_failed_or_dropped_and_no_more_wait_than_there_is_room() {
        const ROOM: usize = 10;
        let meter = Meter::new();
        let account = Account::new(ROOM, &meter);
        let (asked, was_asked) = channel();
        let (go, let_go) = channel();
        let watched = Watched {
            exporter: Gate { asked, let_go: Mutex::new(let_go) },
            endpoint: String::new(),
            account: account.clone(),
            timeout: Duration::from_secs(300),
            runtime: Handle::current(),
            failing: AtomicBool::new(false),
        };
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(ROOM)
            .with_max_export_batch_size(4)
            .with_scheduled_delay(Duration::from_millis(1))
            .build();
        let inner = BatchSpanProcessor::new(watched, batches);
        let provider =
            SdkTracerProvider::builder().with_span_processor(Counted { inner, account: account.clone() }).build();
        let tracer = provider.tracer("test");
        drop(tracer.start("first"));
        assert_eq!(was_asked.recv().unwrap(), 1, "it is on its way, and in nobody's place");
        for _ in 0..1000 {
            drop(tracer.start("more"));
            assert!(account.waiting() <= ROOM);
        }
        assert_eq!((account.waiting(), count(&meter, "dropped")), (ROOM, 1000 - ROOM));
        assert_eq!(count(&meter, "exported") + count(&meter, "failed"), 0);
        // The first is taken, the next batch is refused, the rest is taken.
        go.send(true).unwrap();
        let refused = was_asked.recv().unwrap();
        go.send(false).unwrap();
        for _ in 0..ROOM {
            go.send(true).unwrap();
        }
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(Duration::from_secs(30)));
        ended.await.unwrap().unwrap();
        assert_eq!((count(&meter, "failed"), account.waiting()), (refused, 0));
        assert_eq!(count(&meter, "exported"), 1 + ROOM - refused);
    }
}
