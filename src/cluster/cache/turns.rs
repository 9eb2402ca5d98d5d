//! One write of an object at a time, for all roles of the process.
//!
//! Several roles write the same objects: attacher and provisioner take their finalizers off one PersistentVolume in the same
//! millisecond. Each patch tests what it changes, so that no other program's write is overwritten; of two that were made from the same
//! version, the second would fail and be repeated. Here it waits for the first, and is made from what that has written.
//!
//! Other objects are not affected. A writer holds one turn, waits for nothing but its own request, and passes the answer to the cache
//! before its turn ends. A program in another process takes no turns: the tests of the patch are for that.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::sync::OwnedMutexGuard;

use super::{Cache, locked};
use crate::cluster::names::ObjectName;
use crate::cluster::objects::Cached;

/// The turns of one kind.
#[derive(Default)]
pub(super) struct Turns(Arc<Mutex<BTreeMap<ObjectName, Line>>>);

/// An object that at least one writer has the turn of, or waits for.
#[derive(Default)]
struct Line {
    turn: Arc<tokio::sync::Mutex<()>>,
    writers: usize,
}

/// The turn to write one object. Dropping it ends the turn.
#[must_use = "the turn ends as soon as it is dropped"]
pub struct WriteTurn {
    // Dropped in this order: while the line is known, every later writer waits in it.
    _turn: OwnedMutexGuard<()>,
    place: Place,
}

/// A place in an object's line, left on drop.
struct Place {
    lines: Arc<Mutex<BTreeMap<ObjectName, Line>>>,
    name: ObjectName,
}

impl<K: Cached> Cache<K> {
    /// Waits for the turn to write this object, first come, first served. Dropping the future leaves the line.
    pub async fn write_turn(&self, name: &ObjectName) -> WriteTurn {
        let lines = Arc::clone(&self.0.turns.0);
        let turn = {
            let mut lines = locked(&lines);
            let line = lines.entry(name.clone()).or_default();
            line.writers += 1;
            Arc::clone(&line.turn)
        };
        let place = Place { lines, name: name.clone() };
        WriteTurn { _turn: turn.lock_owned().await, place }
    }

    /// The object that `seen` is an earlier version of, if the cache has a later one.
    pub fn newer(&self, seen: &K) -> Option<Arc<K>> {
        let held = self.get(&ObjectName::of(seen))?;
        let is_newer = held.meta().uid == seen.meta().uid && held.meta().version() > seen.meta().version();
        is_newer.then_some(held)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = locked(&self.lines);
        let Some(line) = lines.get_mut(&self.name) else { return };
        line.writers -= 1;
        if line.writers == 0 {
            lines.remove(&self.name);
        }
    }
}

impl fmt::Debug for WriteTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WriteTurn").field(&self.place.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::cluster::PersistentVolume;

    #[tokio::test]
    async fn writers_of_one_object_go_one_by_one_and_leave_no_trace() {
        let cache = Cache::<PersistentVolume>::new();
        let (one, other) = (ObjectName::cluster("one"), ObjectName::cluster("other"));
        let first = cache.write_turn(&one).await;
        let _elsewhere = cache.write_turn(&other).now_or_never().expect("another object");
        let mut second = Box::pin(cache.write_turn(&one));
        let mut third = Box::pin(cache.write_turn(&one));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        // The second is given up while it waits, and once more when its turn has come already.
        drop(second);
        drop(first);
        let mut fourth = Box::pin(cache.write_turn(&one));
        assert!(fourth.as_mut().now_or_never().is_none(), "the third was there before");
        drop(third);
        drop(fourth.now_or_never().expect("no other has it"));
        let lines = locked(&cache.0.turns.0);
        assert_eq!(lines.keys().collect::<Vec<_>>(), [&other]);
    }
}
