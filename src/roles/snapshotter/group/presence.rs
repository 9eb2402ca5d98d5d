//! Whether the cluster has groups of snapshots, and the right to read them is there: the caches look for both, each minute.

use std::time::Duration;

use tracing::info;

use crate::cluster::VolumeGroupSnapshotContent;
use crate::roles::snapshotter::content::work::Caches;

/// How late it is noticed that the caches have found the kinds, or lost them. Nothing is asked for that.
const LOOK: Duration = Duration::from_secs(5);

/// Why groups are not served; `None`: they are.
pub(in crate::roles::snapshotter) fn trouble(caches: &Caches<VolumeGroupSnapshotContent>) -> Option<String> {
    Some(format!("idle: {}", caches.missing()?))
}

/// Follows the kinds, and says in the log when they come and go. `is_back` is called when they have come.
pub(in crate::roles::snapshotter) async fn follow<F: Future<Output = ()>>(
    caches: &Caches<VolumeGroupSnapshotContent>,
    is_back: impl Fn() -> F,
) {
    caches.synced().await;
    let mut told: Option<Option<String>> = None;
    loop {
        let trouble = trouble(caches);
        if told.as_ref() != Some(&trouble) {
            if let Some(why) = &trouble {
                info!(why, "groups of snapshots are looked for each minute");
            } else {
                info!(version = caches.contents.version(), "serving groups of snapshots");
                if told.is_some() {
                    is_back().await;
                }
            }
            told = Some(trouble);
        }
        tokio::time::sleep(LOOK).await;
    }
}
