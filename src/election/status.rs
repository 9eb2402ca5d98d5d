//! An election as the status page and the health endpoint see it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::process::Clock;

/// How long after its expiry a Lease that we believe to hold makes us unhealthy: csi-lib-utils' tolerance.
const TOLERANCE: Duration = Duration::from_secs(20);

/// The state of an election. Clones share it.
#[derive(Clone)]
pub struct ElectionView(Arc<Shared>);

struct Shared {
    lease: String,
    identity: String,
    lease_duration: Duration,
    clock: Clock,
    known: Mutex<Known>,
}

#[derive(Default)]
pub(super) struct Known {
    pub(super) leader: Option<String>,
    pub(super) term: Option<u64>,
    pub(super) renewed: Option<Instant>,
    pub(super) transitions: i32,
    pub(super) read_error: Option<String>,
    pub(super) write_error: Option<String>,
    pub(super) watch_error: Option<String>,
    pub(super) pod_error: Option<String>,
}

/// A snapshot of an election's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionStatus {
    /// The Lease, `namespace/name`.
    pub lease: String,
    /// Who we are.
    pub identity: String,
    /// Our term, if we lead.
    pub term: Option<u64>,
    /// The leader, if known.
    pub leader: Option<String>,
    /// Time since our last renewal began, if we lead.
    pub renewed_ago: Option<Duration>,
    /// How often the Lease has changed its holder.
    pub transitions: i32,
    /// Why the last request failed, until one succeeds; or why the Lease or its holder's pod can't be watched, until it can.
    pub last_error: Option<String>,
}

/// We seem to lead, but have not renewed for too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lease {lease} was last renewed {renewed_ago:?} ago, and the election did not end the term")]
pub struct Stalled {
    lease: String,
    renewed_ago: Duration,
}

impl ElectionView {
    pub(super) fn new(lease: String, identity: String, lease_duration: Duration, clock: Clock) -> Self {
        let known = Mutex::new(Known::default());
        Self(Arc::new(Shared { lease, identity, lease_duration, clock, known }))
    }

    /// A look.
    pub fn status(&self) -> ElectionStatus {
        let known = self.known();
        ElectionStatus {
            lease: self.0.lease.clone(),
            identity: self.0.identity.clone(),
            term: known.term,
            leader: known.leader.clone(),
            renewed_ago: known.term.and(known.renewed).map(|renewed| self.0.clock.now() - renewed),
            transitions: known.transitions,
            last_error: [&known.read_error, &known.write_error, &known.watch_error, &known.pod_error]
                .into_iter()
                .flatten()
                .next()
                .cloned(),
        }
    }

    /// What the Go sidecars answer on `/healthz/leader-election`: a standby is always healthy; a leader is unhealthy if
    /// its last renewal is older than the lease duration plus 20 s. Its term has ended long before, so this finds an
    /// elector that hangs.
    pub fn health(&self) -> Result<(), Stalled> {
        match self.status().renewed_ago {
            Some(renewed_ago) if renewed_ago > self.0.lease_duration + TOLERANCE => {
                Err(Stalled { lease: self.0.lease.clone(), renewed_ago })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock()
    }
}

impl fmt::Debug for ElectionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ElectionView").field(&self.status()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_leader_that_renewed_too_long_ago_is_unhealthy() {
        let clock = Clock::system();
        let view = ElectionView::new("ns/lease".into(), "me".into(), Duration::from_secs(15), clock);
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert_eq!(view.health(), Ok(()), "a standby is healthy");
        (view.known().term, view.known().renewed) = (Some(1), Some(clock.now()));
        tokio::time::advance(Duration::from_secs(35)).await;
        assert_eq!(view.health(), Ok(()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(view.health().unwrap_err().to_string().starts_with("lease ns/lease was last renewed 35.001s ago"));
        view.known().term = None;
        assert_eq!(view.health(), Ok(()));
    }
}
