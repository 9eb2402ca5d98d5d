//! Waits for the next step of an election, and takes in what the watches show meanwhile.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;

use super::super::holder_watch::Report;
use super::super::lease_client::LeaseError;
use super::super::object_watch::Sighting;
use super::super::settings::LeaseSettings;
use super::{Elector, Woken};
use crate::process::error_chain;

/// What a watch has shown.
enum Seen {
    Lease(Sighting<Lease>),
    Holder(Report),
}

impl Elector {
    /// Waits until `due` or until a watch event.
    pub(super) async fn wait(&mut self, due: Duration) -> Woken {
        let now = self.now();
        if let Some(version) = self.lease_view.version() {
            self.watch.ensure(&self.lease.api, &self.lease.settings.name, version, now);
        }
        let LeaseSettings { identity, name, .. } = &self.lease.settings;
        if !self.holder_watch.follow(self.lease_view.rival(identity), now) {
            self.publisher.pod_error(None);
        }
        // While a watch is closed, the wait ends early to open it again.
        let reopen =
            [self.watch.reopen_at().filter(|_| self.lease_view.version().is_some()), self.holder_watch.reopen_at()];
        let reopen = reopen.into_iter().flatten().min();
        let due = self.instant(reopen.map_or(due, |reopen| due.min(reopen.max(now))));
        let retry = self.jittered(self.settings().retry_period);
        let seen = tokio::select! {
            biased;
            () = tokio::time::sleep_until(due) => return Woken::Due,
            sighting = self.watch.next(retry) => Seen::Lease(sighting),
            report = self.holder_watch.next(name, retry) => Seen::Holder(report),
        };
        match seen {
            Seen::Lease(sighting) => self.saw_lease(sighting),
            Seen::Holder(report) => {
                self.saw_holder(report);
                Woken::Due
            }
        }
    }

    fn saw_lease(&mut self, sighting: Sighting<Lease>) -> Woken {
        let now = self.now();
        let LeaseSettings { identity, lease_duration, name, .. } = &self.lease.settings;
        match sighting {
            Sighting::Object(lease) => self.lease_view.saw_event(*lease, now),
            Sighting::Deleted(lease) => self.lease_view.saw_deleted(&lease, identity, *lease_duration, now),
            Sighting::Over { worked, error } => {
                let error = error.map(|error| LeaseError::new("watch", name, error));
                tracing::debug!(
                    lease = name,
                    worked,
                    error = error.as_ref().map(|e| error_chain(e)),
                    "the watch has ended"
                );
                if let Some(error) = &error {
                    self.lease.count("watch", "leases", error.label());
                }
                // Without a watch we poll. The status page shows why hand-overs are slow.
                self.publisher.watch_error(error.as_ref().filter(|_| !worked));
                return if worked && error.is_some() { Woken::WatchBroke } else { Woken::Due };
            }
        }
        self.publisher.watch_error(None);
        Woken::Event
    }

    fn saw_holder(&mut self, report: Report) {
        let (worked, error) = match report {
            Report::Over { worked, error } => (worked, error),
            Report::Nothing => (true, None),
            Report::Ended(holder) => {
                let lease = &self.lease.settings.name;
                tracing::info!(lease, leader = holder, "the leader's container has ended: taking over");
                self.lease_view.saw_end(&holder);
                (true, None)
            }
        };
        if let Some(error) = &error {
            self.lease.count("watch", "pods", error.label());
            if error.needs_people() {
                self.holder_watch.hold_off(self.now());
            }
        }
        self.publisher.pod_error(error.as_ref().filter(|_| !worked));
    }
}
