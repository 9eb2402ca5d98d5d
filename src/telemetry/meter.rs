//! The metrics recorder of one daemon.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder as _};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use parking_lot::RwLock;

use super::names::{self, Kind, Metric};

/// Hands out counters, gauges and histograms, and renders them in the Prometheus text format.
#[derive(Clone)]
pub struct Meter {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    counters: Series<Counter>,
    histograms: Series<Histogram>,
}

/// The series that were asked for, by hash: each request and each call counts, and to register a series takes five allocations.
type Series<T> = Arc<RwLock<HashMap<u64, Vec<(Key, T)>>>>;

/// The labels of one series, in the order in which they are rendered.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// Keeps the samples between two folds few: a thousand RPCs a second make five thousand numbers.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

impl Meter {
    /// A recorder that knows the name, help text and buckets of every metric in [`names`].
    pub fn new() -> Self {
        Self::with([])
    }

    /// One that knows these besides.
    pub fn with(metrics: impl IntoIterator<Item = &'static Metric>) -> Self {
        let known: Vec<&Metric> = names::ALL.iter().chain(metrics).collect();
        let mut builder = PrometheusBuilder::new();
        for metric in &known {
            if let Kind::Histogram(buckets) = metric.kind {
                // Without buckets the exporter renders a summary, which no dashboard of the Go sidecars reads. The only
                // error is an empty list, which a test of the catalogue rules out.
                builder = match builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets) {
                    Ok(builder) => builder,
                    Err(_) => PrometheusBuilder::new(),
                };
            }
        }
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        for metric in known {
            let (name, help) = (metric.name.into(), metric.help.into());
            match metric.kind {
                Kind::Counter => recorder.describe_counter(name, None, help),
                Kind::Gauge => recorder.describe_gauge(name, None, help),
                Kind::Histogram(_) => recorder.describe_histogram(name, None, help),
            }
        }
        Self { recorder: Arc::new(recorder), handle, counters: Series::default(), histograms: Series::default() }
    }

    /// The counter of `metric` with these labels.
    pub fn counter(&self, metric: &Metric, labels: Labels<'_>) -> Counter {
        once(&self.counters, metric, labels, |key| self.recorder.register_counter(key, &METADATA))
    }

    /// The gauge of `metric` with these labels.
    pub fn gauge(&self, metric: &Metric, labels: Labels<'_>) -> Gauge {
        self.recorder.register_gauge(&key(metric, labels), &METADATA)
    }

    /// The histogram of `metric` with these labels.
    pub fn histogram(&self, metric: &Metric, labels: Labels<'_>) -> Histogram {
        once(&self.histograms, metric, labels, |key| self.recorder.register_histogram(key, &METADATA))
    }

    /// Everything recorded so far, in the Prometheus text format.
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds histogram samples into their buckets. Must run every few seconds: the exporter otherwise keeps every
    /// sample until the next scrape.
    pub fn run_upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// Runs the upkeep for ever: a task of the daemon.
    pub async fn upkeep(self) {
        let mut ticks = tokio::time::interval(UPKEEP_PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.run_upkeep();
        }
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meter")
    }
}

/// The series of `metric` with these labels, registered once.
fn once<T: Clone>(series: &Series<T>, metric: &Metric, labels: Labels<'_>, register: impl FnOnce(&Key) -> T) -> T {
    let mut hasher = DefaultHasher::new();
    (metric.name, labels).hash(&mut hasher);
    let hash = hasher.finish();
    let is_it = |held: &&(Key, T)| {
        let own = held.0.labels().map(|label| (label.key(), label.value()));
        held.0.name() == metric.name && own.eq(labels.iter().copied())
    };
    let known = series.read();
    if let Some((_, found)) = known.get(&hash).and_then(|held| held.iter().find(is_it)) {
        return found.clone();
    }
    drop(known);
    let key = key(metric, labels);
    let new = register(&key);
    series.write().entry(hash).or_default().push((key, new.clone()));
    new
}

fn key(metric: &Metric, labels: Labels<'_>) -> Key {
    let labels = labels.iter().map(|(name, value)| Label::new(*name, (*value).to_owned()));
    Key::from_parts(metric.name, labels.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_one_however_often_it_is_asked_for_and_another_label_makes_another() {
        let meter = Meter::new();
        let labels = |outcome: &'static str| [("verb", "get"), ("resource", "nodes"), ("outcome", outcome)];
        for outcome in ["ok", "gone", "ok", "ok"] {
            meter.clone().counter(&names::API_REQUESTS, &labels(outcome)).increment(1);
        }
        let text = meter.render();
        for (outcome, count) in [("ok", 3), ("gone", 1)] {
            let series = format!("{{verb=\"get\",resource=\"nodes\",outcome=\"{outcome}\"}} {count}");
            assert!(text.contains(&series), "{text}");
        }
        assert_eq!(meter.counters.read().values().map(Vec::len).sum::<usize>(), 2);
    }

    #[test]
    fn histograms_keep_the_go_sidecars_name_labels_and_buckets() {
        let meter = Meter::new();
        let labels: [(&'static str, &str); 3] = [
            ("driver_name", "demo.csi.example.com"),
            ("method_name", "/csi.v1.Controller/ControllerPublishVolume"),
            ("grpc_status_code", "OK"),
        ];
        meter.histogram(&names::CSI_OPERATIONS, &labels).record(0.2);
        let text = meter.render();
        assert!(
            text.contains(
                "csi_sidecar_operations_seconds_bucket{driver_name=\"demo.csi.example.com\",\
                 method_name=\"/csi.v1.Controller/ControllerPublishVolume\",grpc_status_code=\"OK\",le=\"0.25\"} 1"
            ),
            "{text}"
        );
        assert!(text.contains("le=\"600\"}"), "{text}");
    }

    #[test]
    fn two_meters_share_nothing() {
        let (a, b) = (Meter::new(), Meter::new());
        a.counter(&names::TASK_FAILURES, &[("task", "x")]).increment(1);
        assert!(a.render().contains("task=\"x\"") && !b.render().contains("task=\"x\""));
    }
}
