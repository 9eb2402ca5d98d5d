//! Which claims go first: those whose volume object is not stored yet.
//!
//! A claim costs three writes, and somebody waits for the first two: our mark, and the volume object. The third takes the
//! mark off again, for which nobody waits. In a burst it would compete with other claims' first two, so it gives way to
//! them, for a while: the mark may stay for as long as nobody deletes the claim.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::process::watch;

/// How long the release of a claim gives way to others.
const GIVES_WAY: Duration = Duration::from_secs(30);
/// How often it looks up meanwhile: somebody who deletes the claim waits for its release.
const LOOKS_UP: Duration = Duration::from_secs(1);
/// How many may give way at once: each is a task that waits, some six kilobytes of memory.
const MOST: usize = 10_000;

/// How many claims are on their way to a volume object, and how many more may wait for them.
#[derive(Debug)]
pub struct Haste {
    coming: watch::Sender<usize>,
    places: Semaphore,
}

/// A claim on its way. Dropped, it is there, or has given up for now.
#[derive(Debug)]
pub struct OnItsWay(Arc<Haste>);

impl Default for Haste {
    fn default() -> Self {
        Self { coming: watch::Sender::new(0), places: Semaphore::new(MOST) }
    }
}

impl Haste {
    /// A claim sets out.
    pub fn begin(self: &Arc<Self>) -> OnItsWay {
        // Nobody waits for there to be more.
        self.coming.send_if_modified(|count| {
            *count += 1;
            false
        });
        OnItsWay(Arc::clone(self))
    }

    /// Waits until no claim is on its way, for a while; or until whoever waits is not patient any more. Not at all where too many
    /// wait already.
    pub async fn give_way(&self, is_patient: impl Fn() -> bool) {
        let Ok(_place) = self.places.try_acquire() else { return };
        let mut counts = self.coming.subscribe();
        let is_over = async {
            loop {
                let is_over = counts.wait_for(|count| *count == 0);
                if tokio::time::timeout(LOOKS_UP, is_over).await.is_ok() || !is_patient() {
                    return;
                }
            }
        };
        // Either way it goes on.
        let _ = tokio::time::timeout(GIVES_WAY, is_over).await;
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        // Whoever waits is woken by the last one only: hundreds wait for hundreds.
        self.0.coming.send_if_modified(|count| {
            *count = count.saturating_sub(1);
            *count == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_can_wait_waits_for_the_last_claim_and_not_for_ever() {
        let haste = Arc::new(Haste::default());
        assert!(haste.give_way(|| true).now_or_never().is_some(), "there is nothing to give way to");
        let (one, other) = (haste.begin(), haste.begin());
        let mut over = Box::pin(haste.give_way(|| true));
        assert!((&mut over).now_or_never().is_none());
        drop(one);
        assert!((&mut over).now_or_never().is_none());
        drop(other);
        assert!((&mut over).now_or_never().is_some());
        let _third = haste.begin();
        let begun = Instant::now();
        haste.give_way(|| true).await;
        assert_eq!(begun.elapsed(), GIVES_WAY);
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_wait_at_once() {
        let haste = Arc::new(Haste::default());
        let one = haste.begin();
        let mut waiting: Vec<_> = (0..MOST).map(|_| Box::pin(haste.give_way(|| true))).collect();
        assert!(waiting.iter_mut().all(|it| it.now_or_never().is_none()));
        assert!(haste.give_way(|| true).now_or_never().is_some(), "there is no place left");
        drop(waiting.pop());
        assert!(haste.give_way(|| true).now_or_never().is_none(), "one has left");
        drop(one);
        assert!(waiting.iter_mut().all(|it| it.now_or_never().is_some()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_for_itself_gives_way_no_longer() {
        let (haste, is_patient) = (Arc::new(Haste::default()), AtomicBool::new(true));
        let _one = haste.begin();
        let begun = Instant::now();
        let impatient = async {
            tokio::time::sleep(LOOKS_UP * 5 / 2).await;
            is_patient.store(false, Ordering::Relaxed);
        };
        futures::join!(haste.give_way(|| is_patient.load(Ordering::Relaxed)), impatient);
        assert_eq!(begun.elapsed(), LOOKS_UP * 3);
    }
}
