//! What the driver's answer says of a snapshot (snapshotter spec 5.1, 6.1). Pure.

use k8s_openapi::jiff::Timestamp;

use crate::proto::Snapshot;
use crate::roles::snapshotter::content::error::InvalidSnapshot;
use crate::roles::snapshotter::content::found::{Found, is_time, nanoseconds, size};

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
    fn s15_a_size_of_nothing_is_none() {
        for (size, expected) in [(5, Some(5)), (0, None), (-1, None)] {
            let found = read(Some(Snapshot { size_bytes: size, ..snapshot() }), now()).unwrap();
            assert_eq!(found.restore_size, expected);
        }
        let grouped = Snapshot { group_snapshot_id: "g".into(), ..snapshot() };
        assert_eq!(read(Some(grouped), now()).unwrap().group.as_deref(), Some("g"));
    }
}
