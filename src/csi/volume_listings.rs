//! Where the driver's volumes are attached: the last complete `ListVolumes` pass, for all roles.
//!
//! The reconciler only publishes it; each role draws its own conclusions. Times are of the process's clock: a listing
//! from *before* an operation says nothing about its outcome, so each reader compares with `started`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::process::watch;
use tokio::time::Instant;

/// The shared place of the last snapshot. Clones share it; it outlives a driver's restart.
#[derive(Debug, Clone)]
pub struct VolumeListings(Arc<watch::Sender<Option<Arc<VolumeListing>>>>);

/// One complete pass over the driver's volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeListing {
    /// When the first page was requested.
    pub started: Instant,
    /// When the last page was received.
    pub finished: Instant,
    /// The nodes of each listed volume, by its id as [`folded`](crate::process::folded) makes it.
    pub volumes: BTreeMap<String, PublishedOn>,
}

/// The driver's report of where a volume is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishedOn {
    /// The volume was listed without a status: nothing is known.
    Unknown,
    /// On these nodes (CSI node ids, folded), and on no other.
    Nodes(BTreeSet<String>),
}

impl VolumeListings {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// Replaces the last listing.
    pub fn publish(&self, snapshot: VolumeListing) {
        self.0.send_replace(Some(Arc::new(snapshot)));
    }

    /// The last complete pass, if there was one.
    pub fn latest(&self) -> Option<Arc<VolumeListing>> {
        self.0.borrow().clone()
    }

    /// Subscribes to the passes. A slow reader sees only the newest.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<VolumeListing>>> {
        self.0.subscribe()
    }
}

impl Default for VolumeListings {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn readers_see_the_newest_pass() {
        let listings = VolumeListings::new();
        let mut reader = listings.clone().subscribe();
        assert_eq!(listings.latest(), None);
        let now = Instant::now();
        let pass = |number| VolumeListing {
            started: now,
            finished: now + Duration::from_secs(number),
            volumes: BTreeMap::new(),
        };
        (1..=3).for_each(|number| listings.publish(pass(number)));
        reader.changed().await.unwrap();
        assert_eq!(reader.borrow_and_update().as_deref(), Some(&pass(3)));
        assert_eq!(listings.latest().as_deref(), Some(&pass(3)));
    }
}
