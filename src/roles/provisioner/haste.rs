//! Which claims go first: those whose volume object is not stored yet.
//!
//! A claim costs three writes, and somebody waits for the first two: our mark, and the volume object. The third takes the
//! mark off again, for which nobody waits. In a burst it would compete with other claims' first two, so it gives way to
//! them, for a while: the mark may stay for as long as it likes, but a claim with it can't be deleted.

use std::sync::Arc;
use std::time::Duration;

use crate::process::watch;

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

    /// Waits until no claim is on its way, or for `at_most`.
    pub async fn is_over(&self, at_most: Duration) {
        let mut counts = self.0.subscribe();
        // Neither the end of the patience nor that of the sender, which lives as long as `self`, is an error.
        let _ = tokio::time::timeout(at_most, counts.wait_for(|count| *count == 0)).await;
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
    use futures::FutureExt as _;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn what_can_wait_waits_for_the_last_claim_and_not_for_ever() {
        let haste = Arc::new(Haste::default());
        assert!(haste.is_over(PATIENCE).now_or_never().is_some(), "there is nothing to give way to");
        let (one, other) = (haste.begin(), haste.begin());
        let mut over = Box::pin(haste.is_over(PATIENCE));
        assert!((&mut over).now_or_never().is_none());
        drop(one);
        assert!((&mut over).now_or_never().is_none());
        drop(other);
        assert!((&mut over).now_or_never().is_some());
        let _third = haste.begin();
        let begun = tokio::time::Instant::now();
        haste.is_over(PATIENCE).await;
        assert_eq!(begun.elapsed(), PATIENCE);
    }
}
