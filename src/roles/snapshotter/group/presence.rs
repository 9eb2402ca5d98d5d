//! Whether the cluster has groups of snapshots in a version that this program reads.
//!
//! The caches look for the kinds themselves, each minute. What they cannot see is why they find none: this asks the API once a minute
//! for the versions of the group of kinds, as long as there are none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::{debug, info, warn};

use crate::cluster::VolumeGroupSnapshotContent;
use crate::roles::kit::TermScope;
use crate::roles::snapshotter::content::context::Stores;
use crate::roles::snapshotter::names::GROUP_SNAPSHOTS;

/// As often as the caches look for the kinds.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How late it is noticed that the caches have found them. Nothing is asked for that.
const LOOK_FOR_COMING: Duration = Duration::from_secs(5);
/// The version with another schema, which csi-snapshotter 8.2 and 8.3 had.
const TOO_OLD: &str = "v1beta1";

/// What is known of the kinds of groups.
#[derive(Debug, Default)]
pub(in crate::roles::snapshotter) struct Presence {
    is_too_old: AtomicBool,
}

impl Presence {
    /// Why groups are not served; `None`: they are.
    pub(in crate::roles::snapshotter) fn trouble(&self, stores: &Stores<VolumeGroupSnapshotContent>) -> Option<String> {
        let missing = stores.missing()?;
        Some(if self.is_too_old.load(Ordering::Relaxed) {
            "off: the cluster has them as v1beta1 alone, and v1beta2 or v1 is needed".to_owned()
        } else {
            format!("idle: {missing}")
        })
    }

    /// Follows the kinds, and says in the log when they come and go. `is_back` is called when they have come.
    pub(in crate::roles::snapshotter) async fn follow(
        &self,
        scope: &TermScope,
        stores: &Stores<VolumeGroupSnapshotContent>,
        is_back: impl Fn(),
    ) {
        stores.synced().await;
        let mut told: Option<Option<String>> = None;
        loop {
            if stores.are_absent() {
                match scope.api.use_now() {
                    Ok(api) => match api.versions_of(GROUP_SNAPSHOTS).await {
                        Ok(versions) => self.note(&versions),
                        Err(error) => debug!(%error, "cannot read the versions of groups of snapshots"),
                    },
                    Err(_) => return std::future::pending().await,
                }
            }
            let trouble = self.trouble(stores);
            if told.as_ref() != Some(&trouble) {
                match &trouble {
                    Some(why) if self.is_too_old.load(Ordering::Relaxed) => warn!(why, "groups of snapshots are off"),
                    Some(why) => info!(why, "groups of snapshots are looked for each minute"),
                    None => info!(version = stores.contents.version(), "serving groups of snapshots"),
                }
                if trouble.is_none() && told.is_some() {
                    is_back();
                }
                told = Some(trouble);
            }
            next_look(stores).await;
        }
    }

    fn note(&self, versions: &[String]) {
        let has = |version: &str| versions.iter().any(|served| served == version);
        let is_too_old = has(TOO_OLD) && !has("v1beta2") && !has("v1");
        self.is_too_old.store(is_too_old, Ordering::Relaxed);
    }
}

/// Waits for the next look, or until the kinds have come.
async fn next_look(stores: &Stores<VolumeGroupSnapshotContent>) {
    let (was_absent, mut left) = (stores.are_absent(), LOOK_AGAIN);
    while !left.is_zero() {
        let pause = if was_absent { LOOK_FOR_COMING } else { left };
        tokio::time::sleep(pause).await;
        left = left.saturating_sub(pause);
        if was_absent && !stores.are_absent() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_old_version_alone_is_too_old() {
        for (versions, expected) in [
            (vec!["v1beta1"], true),
            (vec!["v1beta1", "v1beta2"], false),
            (vec!["v1", "v1beta1", "v1beta2"], false),
            (vec![], false),
        ] {
            let presence = Presence::default();
            presence.note(&versions.iter().map(|&version| version.to_owned()).collect::<Vec<_>>());
            assert_eq!(presence.is_too_old.load(Ordering::Relaxed), expected, "{versions:?}");
        }
    }
}
