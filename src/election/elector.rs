//! Acquires the Lease, holds it, releases it.
//!
//! ```text
//!        ┌──────────── run: look, wait (watching), write ────────────┐
//!        │                                                                ▼
//!   lost, or deadline passed <──────── hold: renew each retry period (watching)
//!                                         │ told to stop and no TermGuard left
//!                                         ▼
//!                                      release
//! ```

mod waiting;

use std::time::Duration;

use crate::process::watch;
use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::decide::{LeaseAction, LeaseView};
use super::gate::Leadership;
use super::holder_watch::HolderWatch;
use super::lease_client::{LeaseClient, LeaseError};
use super::object_watch::ObjectWatch;
use super::pace::Pace;
use super::publisher::{Access, StatusPublisher};
use super::record::Record;
use super::settings::{LeaseSettings, SettingsError};
use super::status::ElectionView;
use super::term::Term;
use crate::cluster::Outage;
use crate::process::{Clock, Rng};
use crate::telemetry::{Meter, names};

/// Delays are lengthened by up to this share, so that standbys don't move in step.
const JITTER: f64 = 0.2;
/// A conflict usually means that a user edited a label.
const RELEASE_TRIES: u32 = 3;
/// The pause between those attempts, and before a read after a watch broke. A hand-over may depend on it.
const BRIEF: Duration = Duration::from_millis(100);
/// The election did not end as it should.
#[derive(Debug, thiserror::Error)]
pub enum ElectionError {
    /// The Lease could not be released: the next leader has to wait until it expires.
    #[error("the lease was not released")]
    Release(#[source] LeaseError),
}

/// Takes part in the election of one Lease's holder.
pub struct Elector {
    lease: LeaseClient,
    clock: Clock,
    rng: Rng,
    publisher: StatusPublisher,
    slow_path: metrics::Counter,
    origin: Instant,
    lease_view: LeaseView,
    watch: ObjectWatch<Lease>,
    holder_watch: HolderWatch,
    terms: u64,
    /// The last term; its guards may outlive it.
    last: Option<Term>,
}

/// The result of one step towards holding the Lease.
enum Step {
    /// We hold the Lease; the successful request began at this time.
    Held {
        began: Duration,
    },
    /// We know more.
    Looked,
    Outrun(LeaseError),
    Failed(LeaseError),
}

/// Why waiting ended.
#[derive(Clone, Copy)]
enum Woken {
    Due,
    Event,
    WatchBroke,
}

/// How holding ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Lost(&'static str),
    Vacated,
}

/// A term that is lost when its elector stops for any reason.
struct Tenure(Term);

impl Drop for Tenure {
    fn drop(&mut self) {
        self.0.lose();
    }
}

impl Elector {
    /// An elector that has made no request yet.
    pub fn new(
        client: kube::Client,
        settings: LeaseSettings,
        clock: Clock,
        rng: Rng,
        meter: Meter,
    ) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self {
            clock,
            rng,
            publisher: StatusPublisher::new(&settings, &meter, clock),
            slow_path: meter.counter(&names::LEADER_SLOWPATH, &[("name", &settings.name)]),
            origin: clock.now(),
            lease_view: LeaseView::default(),
            watch: ObjectWatch::default(),
            holder_watch: HolderWatch::new(&client, settings.holder_pods.as_deref()),
            terms: 0,
            last: None,
            lease: LeaseClient::new(client, settings, meter),
        })
    }

    /// The same elector. What fails while the API is lost is no news for its log.
    #[must_use]
    pub fn with_outage(mut self, outage: &Outage) -> Self {
        self.publisher.outage = outage.clone();
        self
    }

    /// Whether we lead.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.publisher.subscribe()
    }

    /// For the status page and the health endpoint.
    pub fn view(&self) -> ElectionView {
        self.publisher.view()
    }

    /// Takes part until `stop`. A holder then renews until its [`TermGuard`](super::TermGuard)s are gone, and releases the Lease.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), ElectionError> {
        while let Some(began) = self.run_for_lease(&stop).await {
            match self.hold(began, &stop).await {
                End::Vacated => break,
                End::Lost(reason) => {
                    tracing::warn!(lease = self.settings().name, reason, "lost the lease, the term is over");
                }
            }
        }
        self.leave().await.map_err(ElectionError::Release)
    }

    /// Tries until we hold the Lease; `None` on stop.
    async fn run_for_lease(&mut self, stop: &CancellationToken) -> Option<Duration> {
        let mut poll_at = self.now();
        let mut not_before = poll_at;
        let (mut outrun, mut pace) = (false, Pace::default());
        self.publisher.follow(&self.lease_view);
        loop {
            if stop.is_cancelled() {
                return None;
            }
            let now = self.now();
            let action = self.action(now);
            let due = match action {
                LeaseAction::Wait { until } => until.min(poll_at),
                LeaseAction::Look | LeaseAction::Create | LeaseAction::Write => now,
            };
            let due = due.max(not_before);
            if due > now {
                let woken = tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    woken = self.wait(due) => woken,
                };
                match woken {
                    Woken::Due => {}
                    Woken::Event => poll_at = self.now() + self.jittered(self.settings().retry_period),
                    Woken::WatchBroke => poll_at = poll_at.min(self.now() + self.jittered(BRIEF)),
                }
                self.publisher.follow(&self.lease_view);
                continue;
            }
            let limit = self.settings().retry_period;
            let came_to = if matches!(action, LeaseAction::Create | LeaseAction::Write) {
                // Not cancelled on stop: a write in flight may succeed, and then the Lease must be released.
                self.step(action, limit).await
            } else {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    came_to = self.step(action, limit) => came_to,
                }
            };
            let now = self.now();
            match came_to {
                Step::Held { began } if now < began + self.settings().renew_deadline => return Some(began),
                Step::Held { .. } => {}
                Step::Looked => {
                    poll_at = now + self.jittered(self.settings().retry_period);
                    if matches!(self.action(now), LeaseAction::Wait { .. }) {
                        // Nothing is to be written: what a write has failed of is over.
                        self.publisher.written();
                        outrun = false;
                        pace.reset();
                    }
                }
                Step::Outrun(_) if !outrun => outrun = true,
                // Who loses twice in a row has met something else: a proxy, a webhook, an object that no read shows.
                Step::Outrun(error) | Step::Failed(error) => {
                    not_before = now + self.jittered(pace.failed(&error, self.settings()));
                    poll_at = poll_at.max(not_before);
                }
            }
            self.publisher.follow(&self.lease_view);
        }
    }

    /// Renews the Lease until it is lost or no longer needed.
    async fn hold(&mut self, began: Duration, stop: &CancellationToken) -> End {
        self.terms += 1;
        let tenure = Tenure(Term::new(self.terms, self.deadline(began), stop, self.clock));
        let term = &tenure.0;
        self.last = Some(term.clone());
        self.publisher.lead(&self.lease_view, term, self.instant(began));
        let mut outrun = false;
        let mut renew_at = began + self.settings().retry_period;
        loop {
            if !term.may_write() {
                return End::Lost("the renew deadline has passed");
            }
            if self.lease_view.holder().is_some_and(|holder| holder != self.settings().identity) {
                return End::Lost("another holds it");
            }
            let stopping = stop.is_cancelled();
            if stopping && term.is_vacant() {
                return End::Vacated;
            }
            let now = self.now();
            if renew_at > now {
                let valid_until = term.valid_until().unwrap_or_else(|| self.deadline(now));
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(valid_until) => {}
                    () = stop.cancelled(), if !stopping => {}
                    () = term.vacated(), if stopping => {}
                    woken = self.wait(renew_at) => if self.needs_repair(woken) {
                        renew_at = self.now();
                    },
                }
                continue;
            }
            let left =
                term.valid_until().map_or(Duration::ZERO, |until| until.saturating_duration_since(self.clock.now()));
            let action = self.action(now);
            match self.step(action, left.min(self.settings().renewal_timeout())).await {
                // The renewal came too late: others may have seen the term end.
                Step::Held { .. } if !term.may_write() => {}
                Step::Held { began } => {
                    term.renew(self.deadline(began));
                    self.publisher.renewed(self.instant(began));
                    renew_at = began + self.settings().retry_period;
                    outrun = false;
                }
                Step::Looked => {}
                Step::Outrun(_) if !outrun => {
                    outrun = true;
                    self.slow_path.increment(1);
                }
                Step::Outrun(_) | Step::Failed(_) => renew_at = self.now() + self.jittered(self.settings().pause()),
            }
        }
    }

    /// Releases our Lease on exit, unless a call may still be running: then the Lease has to expire.
    async fn leave(&mut self) -> Result<(), LeaseError> {
        self.publisher.follow(&self.lease_view);
        if self.last.as_ref().is_some_and(|term| !term.is_vacant()) {
            return Ok(());
        }
        // The last write may have succeeded although we got no answer.
        if self.lease_view.is_doubtful()
            && let Ok(seen) = self.lease.look(self.settings().retry_period).await
        {
            self.looked(seen);
        }
        self.release().await
    }

    /// Releases the Lease, so that a standby that watches it can take it at once.
    async fn release(&mut self) -> Result<(), LeaseError> {
        for attempt in 1.. {
            let Some((lease, record)) = self.lease_view.lease() else { return Ok(()) };
            if record.holder.as_deref() != Some(self.settings().identity.as_str()) {
                return Ok(());
            }
            let released = Record::released(record, self.clock.wall());
            let limit = self.settings().retry_period;
            let Err(error) = self.lease.replace(lease, &released, limit).await else {
                tracing::info!(lease = self.settings().name, "released the lease");
                return Ok(());
            };
            if attempt >= RELEASE_TRIES {
                return Err(error);
            }
            self.publisher.failed(Access::Write, "release", &error);
            tokio::time::sleep(self.jittered(BRIEF)).await;
            if let Ok(seen) = self.lease.look(limit).await {
                self.looked(seen);
            }
        }
        Ok(())
    }

    /// Performs an action within `limit`.
    async fn step(&mut self, action: LeaseAction, limit: Duration) -> Step {
        let began = self.now();
        let settings = &self.lease.settings;
        let known = self.lease_view.lease();
        let record = Record::held(
            known.map(|(_, record)| record),
            &settings.identity,
            settings.lease_duration,
            self.clock.wall(),
        );
        let written = match (action, known) {
            (LeaseAction::Write, Some((lease, _))) => self.lease.replace(lease, &record, limit).await,
            (LeaseAction::Create, _) => self.lease.create(&record, limit).await,
            (LeaseAction::Look | LeaseAction::Wait { .. } | LeaseAction::Write, _) => {
                return match self.lease.look(limit).await {
                    Ok(seen) => {
                        self.looked(seen);
                        self.publisher.read();
                        Step::Looked
                    }
                    Err(error) => {
                        self.publisher.failed(Access::Read, "look at", &error);
                        Step::Failed(error)
                    }
                };
            }
        };
        match written {
            Ok(lease) => {
                self.watch.wrote(lease.metadata.resource_version.as_deref());
                self.lease_view.saw(lease, self.now());
                self.publisher.written();
                Step::Held { began }
            }
            Err(error) => {
                self.lease_view.doubt();
                if error.is_outrun() {
                    tracing::debug!(lease = self.settings().name, error = %error, "the lease has changed");
                    return Step::Outrun(error);
                }
                self.publisher.failed(Access::Write, "write", &error);
                Step::Failed(error)
            }
        }
    }

    fn looked(&mut self, seen: Option<Lease>) {
        let now = self.now();
        let LeaseSettings { identity, lease_duration, .. } = &self.lease.settings;
        if let Some(lease) = seen {
            self.watch.compare(lease.metadata.resource_version.as_deref());
            self.lease_view.saw(lease, now);
        } else {
            self.lease_view.saw_none(identity, *lease_duration, now);
        }
    }

    /// Whether we must write our Lease now, because it was deleted or has no holder.
    fn needs_repair(&self, woken: Woken) -> bool {
        matches!(woken, Woken::Event) && self.lease_view.holder().is_none()
    }

    fn action(&self, now: Duration) -> LeaseAction {
        self.lease_view.action(&self.settings().identity, self.settings().lease_duration, now)
    }

    fn settings(&self) -> &LeaseSettings {
        &self.lease.settings
    }

    fn jittered(&self, base: Duration) -> Duration {
        self.rng.jittered(base, JITTER)
    }

    fn now(&self) -> Duration {
        self.clock.now() - self.origin
    }

    fn instant(&self, at: Duration) -> Instant {
        self.origin + at
    }

    /// The end of the right to write after a renewal that began at this time.
    fn deadline(&self, began: Duration) -> Instant {
        self.instant(began) + self.settings().renew_deadline
    }
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector").field("lease", &self.settings().name).finish_non_exhaustive()
    }
}
