//! Outages of the Kubernetes API, told once for all roles, Leases and watches.
//!
//! Every client reports here what becomes of its requests: [`Outage::begin`] before the request, and the answer or the
//! failure after it. When the API is lost, the log gets one line, then one for each step of a back-off, and one when the
//! API answers again. During an outage ([`Outage::is_lost`]) the failures of single requests are logged at level debug.
//!
//! A request has failed because of an outage if nothing has answered since it began: no connection, no answer in time,
//! or a proxy that answers for the API (502, 503, 504). A watch that breaks is none: servers and proxies end watches, and
//! the request for the next one shows whether the API is there.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use tower::BoxError;
use tracing::{info, warn};

use crate::process::{FailureLog, error_chain};
use crate::telemetry::{Meter, names};

/// The pause before the second line about an outage. It doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// A request that is given up after less time than this says nothing about the API: its owner has stopped.
const GIVEN_UP: Duration = Duration::from_secs(2);

/// Whether the API answers. Clones share it.
#[derive(Clone, Default)]
pub struct Outage(Arc<Shared>);

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    /// An API that comes and goes with each request gets one line per back-off step, too.
    told: FailureLog,
    metrics: OnceLock<OutageMetrics>,
}

struct OutageMetrics {
    lost: metrics::Gauge,
    outages: metrics::Counter,
}

#[derive(Default)]
struct Known {
    answered: Option<Instant>,
    lost: Option<Lost>,
}

#[derive(Debug, Clone)]
struct Lost {
    since: Instant,
    /// The last failure.
    error: String,
    failures: u64,
    /// Whether the log has told of it.
    is_told: bool,
    next_line: Instant,
    pause: Duration,
}

/// An outage that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutageStatus {
    /// How long the API has not answered.
    pub lost_for: Duration,
    /// Requests that have failed since then.
    pub failures: u64,
    /// Why the last one failed.
    pub error: String,
}

/// What the log is told about a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    /// The outage begins.
    Lost {
        /// Whether the log says so. An API that comes and goes is told by steps.
        is_told: bool,
    },
    Still {
        lost_for: Duration,
        failures: u64,
    },
    /// The outage goes on, and the next line is not due.
    Nothing,
}

/// A request whose outcome is not known yet. If it is dropped after a while, it has had no answer.
pub(super) struct Watched {
    outage: Outage,
    what: String,
    began: Instant,
    is_over: bool,
}

impl Outage {
    /// Shows outages as metrics.
    pub fn measure(&self, meter: &Meter) {
        let lost = meter.gauge(&names::API_LOST, &[]);
        lost.set(0.0);
        let _ = self.0.metrics.set(OutageMetrics { lost, outages: meter.counter(&names::API_OUTAGES, &[]) });
    }

    /// Whether the API does not answer now.
    pub fn is_lost(&self) -> bool {
        self.known().lost.is_some()
    }

    /// What the status page shows of the outage; `None`: the API answers.
    pub fn told(&self, now: Instant) -> Option<OutageStatus> {
        let Lost { since, error, failures, .. } = self.known().lost.clone()?;
        Some(OutageStatus { lost_for: now.saturating_duration_since(since), failures, error })
    }

    /// A request begins.
    pub(super) fn begin(&self, what: String) -> Watched {
        Watched { outage: self.clone(), what, began: Instant::now(), is_over: false }
    }

    fn answered(&self, now: Instant) {
        let ended = {
            let mut known = self.known();
            known.answered = Some(now);
            let ended = known.lost.take();
            // Under the lock, or a failure at the same time could leave the gauge behind.
            if let (Some(_), Some(metrics)) = (&ended, self.0.metrics.get()) {
                metrics.lost.set(0.0);
            }
            ended
        };
        let Some(lost) = ended else { return };
        if lost.is_told {
            let seconds = now.saturating_duration_since(lost.since).as_secs_f64();
            info!(lost_for_seconds = seconds, failures = lost.failures, "the Kubernetes API answers again");
        }
    }

    fn failed(&self, began: Instant, now: Instant, error: &str) {
        let line = {
            let mut known = self.known();
            let line = known.failed(began, now, error.to_owned(), || self.0.told.warns("lost", now).is_some());
            if let (Some(Line::Lost { .. }), Some(metrics)) = (&line, self.0.metrics.get()) {
                metrics.lost.set(1.0);
                metrics.outages.increment(1);
            }
            line
        };
        let Some(line) = line else { return };
        match line {
            Line::Lost { is_told: true } => warn!(error, "the Kubernetes API does not answer"),
            Line::Still { lost_for, failures } => {
                let seconds = lost_for.as_secs_f64();
                warn!(lost_for_seconds = seconds, failures, error, "the Kubernetes API still does not answer");
            }
            Line::Lost { is_told: false } | Line::Nothing => {}
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// `None`: the API has answered another request meanwhile, so that this failure is no outage.
    fn failed(
        &mut self,
        began: Instant,
        now: Instant,
        error: String,
        is_worth_a_line: impl FnOnce() -> bool,
    ) -> Option<Line> {
        if self.answered.is_some_and(|answered| answered > began) {
            return None;
        }
        let Some(lost) = &mut self.lost else {
            let is_told = is_worth_a_line();
            let (failures, pause) = (1, FIRST_PAUSE);
            self.lost = Some(Lost { since: now, error, failures, is_told, next_line: now + pause, pause });
            return Some(Line::Lost { is_told });
        };
        lost.failures += 1;
        lost.error = error;
        if now < lost.next_line {
            return Some(Line::Nothing);
        }
        lost.pause = (lost.pause * 2).min(LONGEST_PAUSE);
        (lost.next_line, lost.is_told) = (now + lost.pause, true);
        Some(Line::Still { lost_for: now.saturating_duration_since(lost.since), failures: lost.failures })
    }
}

impl Watched {
    /// The API, or a proxy before it, has answered.
    pub(super) fn answered(mut self, status: StatusCode) {
        self.is_over = true;
        if matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT) {
            self.outage.failed(self.began, Instant::now(), &format!("{}: {status}", self.what));
        } else {
            self.outage.answered(Instant::now());
        }
    }

    /// There was no answer.
    pub(super) fn failed(mut self, error: &BoxError) {
        self.is_over = true;
        self.outage.failed(self.began, Instant::now(), &format!("{}: {}", self.what, error_chain(error.as_ref())));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let (now, what) = (Instant::now(), &self.what);
        let waited = now.saturating_duration_since(self.began);
        if !self.is_over && waited >= GIVEN_UP {
            self.outage.failed(self.began, now, &format!("{what}: no answer within {waited:?}"));
        }
    }
}

impl fmt::Debug for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outage").field("lost", &self.known().lost).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn refused() -> BoxError {
        std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_a_line_when_it_begins_and_one_for_each_step_however_many_requests_fail() {
        let (begin, mut known) = (Instant::now(), Known::default());
        let mut lines = Vec::new();
        for tenth in 0..1000_u32 {
            for _ in 0..7 {
                let at = begin + S / 10 * tenth;
                if let Some(line) =
                    known.failed(at, at, "refused".into(), || true).filter(|line| *line != Line::Nothing)
                {
                    lines.push((tenth, line));
                }
            }
        }
        let told: Vec<u32> = lines.iter().map(|(tenth, _)| *tenth).collect();
        assert_eq!(told, [0, 20, 60, 140, 300, 620]);
        assert_eq!(lines[0].1, Line::Lost { is_told: true });
        assert_eq!(lines[1].1, Line::Still { lost_for: 2 * S, failures: 7 * 20 + 1 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_no_outage_if_another_request_was_answered_since_it_began() {
        let outage = Outage::default();
        let slow = outage.begin("GET /slow".into());
        tokio::time::advance(S).await;
        outage.begin("GET /quick".into()).answered(StatusCode::CONFLICT);
        tokio::time::advance(S).await;
        slow.failed(&refused());
        assert!(!outage.is_lost());
        outage.begin("GET /x".into()).failed(&refused());
        assert!(outage.is_lost());
        outage.begin("GET /x".into()).answered(StatusCode::SERVICE_UNAVAILABLE);
        tokio::time::advance(3 * S).await;
        let told = outage.told(Instant::now()).unwrap();
        let error = "GET /x: 503 Service Unavailable".to_owned();
        assert_eq!(told, OutageStatus { lost_for: 3 * S, failures: 2, error });
        outage.begin("GET /x".into()).answered(StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!((outage.is_lost(), outage.told(Instant::now())), (false, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_has_had_no_answer_unless_its_owner_has_stopped() {
        let outage = Outage::default();
        let brief = outage.begin("GET /x".into());
        tokio::time::advance(S).await;
        drop(brief);
        assert!(!outage.is_lost());
        let long = outage.begin("PUT /lease".into());
        tokio::time::advance(5 * S).await;
        drop(long);
        assert_eq!(outage.told(Instant::now()).unwrap().error, "PUT /lease: no answer within 5s");
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_count_outages_and_show_the_one_that_lasts() {
        let (outage, meter) = (Outage::default(), Meter::new());
        outage.measure(&meter);
        for lost in [1, 2] {
            for _ in 0..3 {
                outage.begin("GET /x".into()).failed(&refused());
            }
            let shown = meter.render();
            assert!(shown.contains("csi_control_plane_api_lost 1\n"), "{shown}");
            assert!(shown.contains(&format!("csi_control_plane_api_outages_total {lost}\n")), "{shown}");
            tokio::time::advance(S).await;
            outage.begin("GET /x".into()).answered(StatusCode::OK);
            assert!(meter.render().contains("csi_control_plane_api_lost 0\n"));
        }
    }
}
