//! What the driver's answer says of a snapshot (snapshotter spec 5.1, 6.1). Pure.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use crate::proto::Snapshot;
use crate::proto::list_snapshots_response::Entry;
use crate::roles::snapshotter::content::record::found::{is_time, nanoseconds, size};
use crate::roles::snapshotter::content::record::{Found, InvalidSnapshot};

/// Reads an answer. A time that is missing is the answer's own, and a size of nothing is none.
pub(super) fn read(snapshot: Option<Snapshot>, now: Timestamp) -> Result<Found, InvalidSnapshot> {
    let snapshot = snapshot.ok_or(InvalidSnapshot::OddAnswer("snapshot"))?;
    if snapshot.snapshot_id.is_empty() {
        return Err(InvalidSnapshot::OddAnswer("snapshot_id"));
    }
    Ok(Found {
        handle: snapshot.snapshot_id,
        is_dated: snapshot.creation_time.as_ref().is_some_and(is_time),
        creation_time: nanoseconds(snapshot.creation_time, Some(now)).unwrap_or_default(),
        restore_size: size(snapshot.size_bytes),
        is_ready: snapshot.ready_to_use,
        group: Some(snapshot.group_snapshot_id).filter(|group| !group.is_empty()),
        ..Found::default()
    })
}

/// The answer to a question for a snapshot by its id. A driver may spell the id in its own way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Match {
    /// The snapshot.
    pub(super) snapshot: Snapshot,
    /// How many more the driver has named, where none of them has the id that was asked for.
    pub(super) others: usize,
}

impl Match {
    /// It is what was asked for.
    pub(super) fn only(snapshot: Snapshot) -> Self {
        Self { snapshot, others: 0 }
    }
}

/// The snapshots in a list with the filter of one id. No entry so far has just this id.
#[derive(Debug, Default)]
pub(super) struct Listed {
    first: Option<Snapshot>,
    ids: BTreeSet<String>,
}

impl Listed {
    /// Takes a page in. Returns the entry that has just this id.
    pub(super) fn add(&mut self, page: Vec<Entry>, asked: &str) -> Option<Match> {
        for snapshot in page.into_iter().filter_map(|entry| entry.snapshot) {
            if snapshot.snapshot_id == asked {
                return Some(Match::only(snapshot));
            }
            self.ids.insert(snapshot.snapshot_id.clone());
            self.first.get_or_insert(snapshot);
        }
        None
    }

    /// The first entry: the only one is what was asked for, and of several csi-snapshotter takes the first, too.
    pub(super) fn first(self) -> Option<Match> {
        let others = self.ids.len().saturating_sub(1);
        self.first.map(|snapshot| Match { snapshot, others })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "1970-01-01T00:00:09Z".parse().unwrap()
    }

    fn snapshot() -> Snapshot {
        let creation_time = Some(prost_types::Timestamp { seconds: 3, nanos: 7 });
        Snapshot { snapshot_id: "s".into(), size_bytes: 5, creation_time, ready_to_use: true, ..Snapshot::default() }
    }

    #[test]
    fn s43_an_odd_answer_is_an_error_and_nothing_is_made_up() {
        let found = |snapshot| read(snapshot, now());
        assert_eq!(found(None), Err(InvalidSnapshot::OddAnswer("snapshot")));
        let nameless = Snapshot { snapshot_id: String::new(), ..snapshot() };
        assert_eq!(found(Some(nameless)), Err(InvalidSnapshot::OddAnswer("snapshot_id")));
        let dated = found(Some(snapshot())).unwrap();
        assert_eq!((dated.creation_time, dated.is_dated), (3_000_000_007, true));
        for time in [None, Some(prost_types::Timestamp::default())] {
            let timeless = Snapshot { creation_time: time, ..snapshot() };
            let undated = found(Some(timeless)).unwrap();
            assert_eq!((undated.creation_time, undated.is_dated), (9_000_000_000, false), "the time of the answer");
        }
    }

    #[test]
    fn of_a_list_for_one_id_the_entry_with_the_id_counts_else_the_only_one_else_the_first() {
        let entry =
            |id: Option<&str>| Entry { snapshot: id.map(|id| Snapshot { snapshot_id: id.into(), ..snapshot() }) };
        for (pages, expected) in [
            (vec![vec![]], None),
            (vec![vec![None]], None),
            (vec![vec![Some("/RG/S")]], Some(("/RG/S", 0))),
            (vec![vec![None, Some("/RG/S")]], Some(("/RG/S", 0))),
            (vec![vec![Some("")]], Some(("", 0))),
            (vec![vec![Some("/RG/S"), Some("/rg/s")]], Some(("/rg/s", 0))),
            (vec![vec![Some("a"), Some("b")], vec![Some("/rg/s")]], Some(("/rg/s", 0))),
            (vec![vec![Some("a"), Some("b")], vec![Some("c")]], Some(("a", 2))),
            // A driver that repeats its page.
            (vec![vec![Some("/RG/S")], vec![Some("/RG/S")]], Some(("/RG/S", 0))),
        ] {
            let mut listed = Listed::default();
            let mut exact = pages.iter().map(|page| page.iter().map(|id| entry(*id)).collect());
            let found = exact.find_map(|page| listed.add(page, "/rg/s")).or_else(|| listed.first());
            let found = found.as_ref().map(|found| (found.snapshot.snapshot_id.as_str(), found.others));
            assert_eq!(found, expected, "{pages:?}");
        }
    }

    #[test]
    fn s15_a_size_of_nothing_is_none() {
        for (size, expected) in [(5, Some(5)), (0, None), (-1, None)] {
            let found = read(Some(Snapshot { size_bytes: size, ..snapshot() }), now()).unwrap();
            assert_eq!(found.restore_size, expected);
        }
        let grouped = Snapshot { group_snapshot_id: "g".into(), ..snapshot() };
        assert_eq!(read(Some(grouped), now()).unwrap().group.as_deref(), Some("g"));
    }
}
