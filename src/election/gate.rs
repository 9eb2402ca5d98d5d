//! Where a role waits for its next term.

use crate::process::watch;
use tokio_util::sync::CancellationToken;

use super::term::{Term, TermGuard};
use crate::process::Clock;

/// Whether this process leads.
#[derive(Debug, Clone)]
pub enum Leadership {
    /// It does not.
    Follower {
        /// The leader, if known.
        leader: Option<String>,
        /// The error of the last request on the Lease, if it failed.
        last_error: Option<String>,
    },
    /// This process leads, for this term.
    Leader(Term),
}

/// Hands out terms, one after another: `while let Some(guard) = gate.next().await { serve(guard.term()) }`.
#[derive(Debug)]
pub struct Gate(watch::Receiver<Leadership>);

impl Gate {
    /// The gate of an elector.
    pub fn new(leadership: watch::Receiver<Leadership>) -> Self {
        Self(leadership)
    }

    /// The gate of a daemon without leader election: open until `stop`.
    pub fn permanent(stop: &CancellationToken, clock: Clock) -> Self {
        Self(watch::channel(Leadership::Leader(Term::permanent(stop, clock))).1)
    }

    /// Waits for a term; returns the current one again if it is not over. `None` if there will be no other term,
    /// because the elector has ended.
    pub async fn next(&mut self) -> Option<TermGuard> {
        loop {
            let guard = match &*self.0.borrow_and_update() {
                Leadership::Leader(term) => term.enter(),
                Leadership::Follower { .. } => None,
            };
            if guard.is_some() {
                return guard;
            }
            self.0.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn term(id: u64) -> Term {
        let clock = Clock::system();
        Term::new(id, clock.now() + Duration::from_secs(10), &CancellationToken::new(), clock)
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_is_served_again_until_it_is_over_and_then_the_next() {
        let (leadership, receiver) = watch::channel(Leadership::Follower { leader: None, last_error: None });
        let mut gate = Gate::new(receiver);
        let first = term(1);
        leadership.send_replace(Leadership::Leader(first.clone()));
        assert_eq!(gate.next().await.unwrap().term().id(), 1);
        assert_eq!(gate.next().await.unwrap().term().id(), 1, "a role that failed is started again");
        first.lose();
        assert!(tokio::time::timeout(Duration::from_secs(1), gate.next()).await.is_err());
        leadership.send_replace(Leadership::Leader(term(2)));
        assert_eq!(gate.next().await.unwrap().term().id(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_gate_closes_with_its_elector() {
        let (leadership, receiver) = watch::channel(Leadership::Follower { leader: None, last_error: None });
        drop(leadership);
        assert!(Gate::new(receiver).next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_election_the_gate_is_open_until_the_stop() {
        let stop = CancellationToken::new();
        let mut gate = Gate::permanent(&stop, Clock::system());
        assert!(gate.next().await.is_some() && gate.next().await.is_some());
        stop.cancel();
        assert!(gate.next().await.is_none());
    }
}
