//! The contents that the cache of a node's daemon does not have: those of other nodes, and those of no node (snapshotter spec 11).
//!
//! Such a daemon watches only the contents of its own node. Any other content that names the same snapshot keeps it: a content from a
//! backup has no label, and a content with another label is another node's. So all contents are read from the API before each deletion.
//! Deletions that wait at the same time share one list, which began after the last of them had come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Mutex;

use crate::cluster::IdKind;

use crate::roles::snapshotter::content::record::{Content, across::keeps, facts};

/// The contents that keep a snapshot, by the [key](IdKind::key) of its id: uid and name of each.
pub type Keepers = BTreeMap<String, Vec<(String, String)>>;

/// The lists of all contents.
#[derive(Debug, Default)]
pub struct Elsewhere {
    /// How many have begun.
    begun: AtomicU64,
    /// How many deletions wait for one.
    waiting: AtomicUsize,
    /// The last one and its number, as long as a deletion waits for it.
    last: Mutex<Option<(u64, Arc<Keepers>)>>,
}

impl Elsewhere {
    /// The contents of this driver that keep a snapshot, from a list that begins after this call: `list`, or the one that another deletion
    /// begins.
    pub async fn keepers<K: Content, E>(
        &self,
        driver: &str,
        list: impl Future<Output = Result<Vec<K>, E>>,
    ) -> Result<Arc<Keepers>, E> {
        // A list that begins from now on has what exists by now.
        let begun = self.begun.load(Ordering::SeqCst);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut newest = self.last.lock().await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let shared = newest.as_ref().filter(|(number, _)| *number > begun).map(|(_, found)| Arc::clone(found));
        let found = if let Some(found) = shared {
            found
        } else {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let found = Arc::new(keepers_of(&list.await?, driver));
            *newest = Some((number, Arc::clone(&found)));
            found
        };
        if self.waiting.load(Ordering::SeqCst) == 0 {
            *newest = None;
        }
        Ok(found)
    }
}

fn keepers_of<K: Content>(all: &[K], driver: &str) -> Keepers {
    let mut keepers = Keepers::new();
    for content in all.iter().filter(|content| content.driver() == driver && keeps(*content)) {
        if let Some(handle) = facts::handle(content) {
            let (uid, name) = (content.meta().uid.to_string(), content.meta().name.to_string());
            keepers.entry(IdKind::Snapshot.key(driver, handle)).or_default().push((uid, name));
        }
    }
    keepers
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::roles::kit::fixtures::merged;
    use crate::roles::snapshotter::content::record::fixtures::{BDEL, DRIVER, content, cut, given, marked};

    #[test]
    fn every_content_keeps_its_snapshot_but_one_that_has_it_deleted() {
        let dt = json!({ "metadata": { "uid": "b", "name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        let dt_bdel = merged(dt.clone(), json!({ "metadata": { "annotations": { BDEL: "yes" } } }));
        let retain = json!({ "spec": { "deletionPolicy": "Retain" } });
        let copied = json!({ "status": { "snapshotHandle": "snap-1" } });
        for (content, expected, what) in [
            (cut(json!({})), true, "it lives"),
            (given(json!({})), true, "of no node, as a backup brings it back"),
            (cut(dt.clone()), true, "its VolumeSnapshot lives"),
            (cut(dt_bdel.clone()), false, "it has it deleted, too"),
            (cut(merged(dt_bdel.clone(), retain)), true, "it is released"),
            (marked(merged(dt_bdel, copied)), true, "a copy has nothing deleted"),
        ] {
            assert_eq!(keeps(&content), expected, "{what}");
        }
        let foreign = cut(json!({ "spec": { "driver": "other" } }));
        let keepers = keepers_of(&[foreign, content(json!({})), cut(json!({})), given(json!({}))], DRIVER);
        let ids: Vec<&str> = keepers.keys().map(String::as_str).collect();
        assert_eq!(ids, ["old-1", "snap-1"]);
        let spelled = |id: &str| given(json!({ "spec": { "source": { "snapshotHandle": id } } }));
        let keepers = keepers_of(&[spelled("Old-1"), spelled("old-1")], DRIVER);
        assert_eq!(keepers["old-1"].len(), 2, "of one snapshot, however its id is spelled");
    }
}
