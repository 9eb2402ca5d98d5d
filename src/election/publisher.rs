//! Publishes whether we lead: to the roles, the status page, the metrics and the log.

use crate::cluster::Outage;
use crate::process::watch;
use tokio::time::Instant;

use super::decide::LeaseView;
use super::gate::Leadership;
use super::lease_client::LeaseError;
use super::settings::LeaseSettings;
use super::status::ElectionView;
use super::term::Term;
use crate::process::{Clock, FailureLog, error_chain};
use crate::telemetry::{Meter, names};

/// Publishes the state of an elector.
pub(super) struct StatusPublisher {
    leadership: watch::Sender<Leadership>,
    view: ElectionView,
    master: metrics::Gauge,
    lease: String,
    identity: String,
    failures: FailureLog,
    clock: Clock,
    has_told_of_pods: bool,
    /// What fails while the API is lost is no news.
    pub(super) outage: Outage,
}

/// Whether a request reads the Lease or writes it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Access {
    Read,
    Write,
}

impl StatusPublisher {
    pub(super) fn new(settings: &LeaseSettings, meter: &Meter, clock: Clock) -> Self {
        let name = format!("{}/{}", settings.namespace, settings.name);
        let master = meter.gauge(&names::LEADER_STATUS, &[("name", &settings.name)]);
        master.set(0.0);
        Self {
            leadership: watch::Sender::new(Leadership::Follower { leader: None, last_error: None }),
            view: ElectionView::new(name, settings.identity.clone(), settings.lease_duration, clock),
            master,
            lease: settings.name.clone(),
            identity: settings.identity.clone(),
            failures: FailureLog::default(),
            clock,
            has_told_of_pods: false,
            outage: Outage::default(),
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    pub(super) fn view(&self) -> ElectionView {
        self.view.clone()
    }

    /// We don't lead; publishes the leader.
    pub(super) fn follow(&self, view: &LeaseView) {
        self.master.set(0.0);
        let holder = view.holder().filter(|holder| *holder != self.identity).map(str::to_owned);
        {
            let mut known = self.view.known();
            (known.term, known.renewed) = (None, None);
            known.transitions = view.lease().map_or(0, |(_, record)| record.transitions);
            if known.leader != holder
                && let Some(leader) = &holder
            {
                tracing::info!(lease = self.lease, leader, "another leads");
            }
            known.leader.clone_from(&holder);
        }
        let last_error = self.view.status().last_error;
        self.leadership.send_if_modified(|leadership| {
            let same = matches!(&*leadership, Leadership::Follower { leader, last_error: error }
                if *leader == holder && *error == last_error);
            if !same {
                *leadership = Leadership::Follower { leader: holder, last_error };
            }
            !same
        });
    }

    /// We lead, by a request that began at `renewed`.
    pub(super) fn lead(&self, view: &LeaseView, term: &Term, renewed: Instant) {
        {
            let mut known = self.view.known();
            (known.term, known.renewed) = (Some(term.id()), Some(renewed));
            known.leader = Some(self.identity.clone());
            known.transitions = view.lease().map_or(0, |(_, record)| record.transitions);
        }
        self.master.set(1.0);
        tracing::info!(lease = self.lease, term = term.id(), "acquired the lease");
        self.leadership.send_replace(Leadership::Leader(term.clone()));
    }

    pub(super) fn renewed(&self, at: Instant) {
        self.view.known().renewed = Some(at);
    }

    /// The Lease was read. An error of a write stays, because it is the reason why nobody leads.
    pub(super) fn read(&self) {
        self.view.known().read_error = None;
    }

    /// The Lease was written, or another holds it: no error is left.
    pub(super) fn written(&self) {
        let mut known = self.view.known();
        (known.read_error, known.write_error) = (None, None);
    }

    /// A request has failed: a warning for the first such failure, and then one for each step of a back-off.
    pub(super) fn failed(&self, access: Access, operation: &str, error: &LeaseError) {
        let is_refused = error.needs_people();
        let (lease, label, error) = (&self.lease, error.label(), error_chain(error));
        let is_news = is_refused || !self.outage.is_lost();
        let gist = format!("{operation} {error}");
        if let Some(left_out) = is_news.then(|| self.failures.warns(&gist, self.clock.now())).flatten() {
            tracing::warn!(lease, operation, label, left_out, error, "a request about the lease failed");
        } else {
            tracing::debug!(lease, operation, label, error, "a request about the lease failed");
        }
        let mut known = self.view.known();
        match access {
            Access::Read => known.read_error = Some(error),
            Access::Write => known.write_error = Some(error),
        }
    }

    /// Why there is no watch, if there is none.
    pub(super) fn watch_error(&self, error: Option<&LeaseError>) {
        self.view.known().watch_error = error.map(|error| error_chain(error));
    }

    /// Why the holder's pod is not watched, if it should be and is not. That the right is missing is told once.
    pub(super) fn pod_error(&mut self, error: Option<&LeaseError>) {
        let text = error.map(|error| error_chain(error));
        if let (Some(error), true) = (&text, error.is_some_and(LeaseError::needs_people))
            && !std::mem::replace(&mut self.has_told_of_pods, true)
        {
            tracing::warn!(
                lease = self.lease,
                error,
                "cannot see whether the leader's container has ended: after a crash of the leader its lease has to expire"
            );
        }
        self.view.known().pod_error = text;
    }
}
