//! The checks that run, and the requests that wait for them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tonic::Code;
use tracing::{info, warn};

use super::config::LivenessSection;
use super::decide::{Admission, Finding, admit, is_news};
use super::metrics;
use crate::process::{error_chain, watch};
use crate::roles::LocalContext;

/// A check that one or more requests wait for. It is dropped with the last of them.
type Check = BoxFuture<'static, Arc<Finding>>;

/// Checks the driver for requests. Clones share the running checks.
#[derive(Clone)]
pub(super) struct Checks(Arc<Inner>);

struct Inner {
    context: LocalContext,
    /// Its limit holds for the checks that begin from now on.
    section: watch::Receiver<LivenessSection>,
    /// The youngest is the last.
    running: Mutex<Vec<WeakShared<Check>>>,
    last: Mutex<Option<(Arc<Finding>, Instant)>>,
}

impl Checks {
    /// None runs yet.
    pub(super) fn new(context: LocalContext, section: watch::Receiver<LivenessSection>) -> Self {
        Self(Arc::new(Inner { context, section, running: Mutex::default(), last: Mutex::default() }))
    }

    /// The answer to a request that arrives now.
    pub(super) async fn answer(&self) -> Arc<Finding> {
        self.begin_or_join().await
    }

    /// The last finding and its age.
    pub(super) fn last(&self) -> Option<(Arc<Finding>, Duration)> {
        let last = self.0.last.lock().clone();
        last.map(|(finding, at)| (finding, self.0.context.clock.now().saturating_duration_since(at)))
    }

    fn begin_or_join(&self) -> Shared<Check> {
        let mut running = self.0.running.lock();
        // An answer that is there already is of an earlier moment: nobody may join it.
        running.retain(|check| check.upgrade().is_some_and(|check| check.peek().is_none()));
        let youngest = running.last().and_then(WeakShared::upgrade);
        if let (Admission::Join, Some(youngest)) = (admit(running.len()), youngest) {
            return youngest;
        }
        // Counted from the request's arrival, not from its first turn.
        let arrived = self.0.context.clock.now();
        let limit = self.0.section.borrow().probe_timeout;
        let checks = self.clone();
        let check = async move { checks.check(arrived, limit).await }.boxed().shared();
        running.extend(check.downgrade());
        check
    }

    async fn check(&self, arrived: Instant, limit: Duration) -> Arc<Finding> {
        let context = &self.0.context;
        let finding = Arc::new(look(context, arrived, limit).await);
        let now = context.clock.now();
        let took = now.saturating_duration_since(arrived);
        context.meter.histogram(&metrics::CHECK_DURATION, &[("result", finding.label())]).record(took.as_secs_f64());
        context.meter.gauge(&metrics::DRIVER_HEALTHY, &[]).set(if finding.is_healthy() { 1.0 } else { 0.0 });
        let before = {
            let mut last = self.0.last.lock();
            last.replace((Arc::clone(&finding), now))
        };
        if is_news(before.as_ref().map(|(finding, _)| &**finding), &finding) {
            if finding.is_healthy() {
                info!("the driver is healthy");
            } else {
                warn!(reason = finding.body(), "the driver is not healthy");
            }
        }
        finding
    }
}

/// Connects to the driver and asks it, within `limit` from `arrived`.
async fn look(context: &LocalContext, arrived: Instant, limit: Duration) -> Finding {
    let deadline = arrived + limit;
    let left = || deadline.saturating_duration_since(context.clock.now());
    let link = match context.driver.connect(left()).await {
        Ok(link) => link,
        Err(error) => {
            return Finding::NoConnection { endpoint: context.endpoint.clone(), error: error_chain(&error) };
        }
    };
    // The call's own limit is the same; this one holds even if the call's was rounded up.
    match timeout_at(deadline, link.probe(left())).await {
        Ok(Ok(true)) => Finding::Ready,
        Ok(Ok(false)) => Finding::NotReady,
        // The driver's own error with this code comes before the time is over.
        Ok(Err(error)) if error.code == Code::DeadlineExceeded && left().is_zero() => Finding::NoAnswer(limit),
        Ok(Err(error)) => Finding::Failed(error.to_string()),
        Err(_) => Finding::NoAnswer(limit),
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checks")
    }
}
