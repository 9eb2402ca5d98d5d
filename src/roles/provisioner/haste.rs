//! Which claims go first: those whose volume object is not stored yet.
//!
//! A claim costs three writes, and somebody waits for the first two: our mark, and the volume object. The third takes the
//! mark off again, for which nobody waits. In a burst it would compete with other claims' first two, so it gives way to
//! them, for a while: the mark may stay for as long as nobody deletes the claim.

use std::sync::Arc;
use std::time::Duration;

use crate::process::watch;

/// How long the release of a claim gives way to others.
const GIVES_WAY: Duration = Duration::from_secs(30);
/// How often it looks up meanwhile: somebody who deletes the claim waits for its release.
const LOOKS_UP: Duration = Duration::from_secs(1);

/// How many claims are on their way to a volume object.
#[derive(Debug)]
pub struct Haste(watch::Sender<usize>);

/// A claim on its way. Dropped, it is there, or has given up for now.
#[derive(Debug)]
pub struct OnItsWay(Arc<Haste>);

impl Default for Haste {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Haste {
    /// A claim sets out.
    pub fn begin(self: &Arc<Self>) -> OnItsWay {
        // Nobody waits for there to be more.
        self.0.send_if_modified(|count| {
            *count += 1;
            false
        });
        OnItsWay(Arc::clone(self))
    }

    /// Waits until no claim is on its way, for a while; or until whoever waits is not patient any more.
    pub async fn give_way(&self, is_patient: impl Fn() -> bool) {
        let mut counts = self.0.subscribe();
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
        self.0.0.send_if_modified(|count| {
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
