//! Whose turn it is to put a source's finalizer on, or to take it off: one at a time for each source.
//!
//! Whoever takes it off has counted the source's users, and nobody begins to use it meanwhile. A turn is held during requests
//! to the API, which may take as long as their deadline, so that each source has a line of its own, those who wait in it
//! hold no worker, and the end of the term sends them home.

use crate::csi::{VolumeLock, VolumeLocks};
use crate::election::{Term, TermOver};
use crate::process::Clock;
use crate::queue::{Key, Ticket};

use super::protection::SourceKey;

/// One line for each source. The lines are those of volumes, under the sources' names.
#[derive(Debug)]
pub struct SourceTurns(VolumeLocks);

impl SourceTurns {
    /// Nobody has a turn yet.
    pub fn new(clock: Clock) -> Self {
        Self(VolumeLocks::new(clock))
    }

    /// Waits for a source's turn, first come, first served, and not beyond the end of the term.
    pub async fn take<K: Key>(
        &self,
        source: &SourceKey,
        ticket: &mut Ticket<K>,
        term: &Term,
    ) -> Result<VolumeLock, TermOver> {
        let name = source.to_string();
        if let Some(turn) = self.0.try_acquire(&name) {
            return Ok(turn);
        }
        ticket.park(term.unless_over(self.0.acquire(&name))).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::cluster::ObjectName;
    use crate::process::{Rng, Tasks};
    use crate::queue::{Activation, Backoff, Cause, LaneSettings, Outcome, QueueSettings, WorkQueue};
    use crate::roles::provisioner::sources::protection::SourceKind;
    use crate::telemetry::Meter;

    const SECOND: Duration = Duration::from_secs(1);

    fn source(name: &str) -> SourceKey {
        SourceKey { kind: SourceKind::Snapshot, name: ObjectName::namespaced("shop", name) }
    }

    /// A lane of one worker, whose runs take the turn of the source that their key names. `None`: the term was over.
    struct Lane {
        queue: WorkQueue<String>,
        turns: Arc<SourceTurns>,
        done: Arc<Mutex<Vec<(String, bool)>>>,
        stop: CancellationToken,
        _tasks: Tasks,
    }

    fn lane() -> Lane {
        let lanes = vec![LaneSettings { name: "one".to_owned(), workers: 1 }];
        let backoff = Backoff { initial: SECOND, max: SECOND };
        let settings = QueueSettings { name: "claims".to_owned(), lanes, backoff, span: None };
        let queue = WorkQueue::new(settings, &Meter::new(), Clock::system(), Rng::seeded(1));
        let (turns, done) = (Arc::new(SourceTurns::new(Clock::system())), Arc::default());
        let stop = CancellationToken::new();
        let term = Term::permanent(&stop, Clock::system());
        let tasks = Tasks::new("test").0;
        let (served, own): (_, (_, Arc<Mutex<Vec<_>>>)) = (queue.clone(), (Arc::clone(&turns), Arc::clone(&done)));
        let handler = move |mut ticket: Ticket<String>| {
            let ((turns, done), term) = (own.clone(), term.clone());
            async move {
                let key = ticket.key().clone();
                let turn = turns.take(&source(&key[..1]), &mut ticket, &term).await;
                done.lock().unwrap().push((key, turn.is_ok()));
                Outcome::Settled
            }
            .boxed()
        };
        tasks.spawn("queue", async move { served.run(CancellationToken::new(), handler).await });
        Lane { queue, turns, done, stop, _tasks: tasks }
    }

    impl Lane {
        fn add(&self, keys: &[&str]) {
            for key in keys {
                self.queue.add((*key).to_owned(), Activation { cause: Cause::Changed, lane: 0, epoch: 0 });
            }
        }

        async fn done(&self) -> Vec<(String, bool)> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            std::mem::take(&mut *self.done.lock().unwrap())
        }
    }

    fn all(keys: &[&str], got: bool) -> Vec<(String, bool)> {
        keys.iter().map(|key| ((*key).to_owned(), got)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_one_source_holds_up_no_other_and_no_worker() {
        let lane = lane();
        let slow = lane.turns.0.try_acquire(&source("a").to_string()).unwrap();
        lane.add(&["a1", "a2", "b1"]);
        assert_eq!(lane.done().await, all(&["b1"], true));
        drop(slow);
        assert_eq!(lane.done().await, all(&["a1", "a2"], true), "first come, first served");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_term_ends_the_wait() {
        let lane = lane();
        let _slow = lane.turns.0.try_acquire(&source("a").to_string()).unwrap();
        lane.add(&["a1", "a2"]);
        assert_eq!(lane.done().await, []);
        lane.stop.cancel();
        assert_eq!(lane.done().await, all(&["a1", "a2"], false));
    }
}
