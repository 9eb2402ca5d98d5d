//! What the driver's answer says of a group (snapshotter spec 10). Pure.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use crate::cluster::GroupMember;
use crate::proto::{Snapshot, VolumeGroupSnapshot};
use crate::roles::snapshotter::content::record::found::{is_time, nanoseconds, size};
use crate::roles::snapshotter::content::record::{Found, InvalidSnapshot, Odd};

/// Reads an answer about snapshots of the volumes `asked`. A time that is missing is the answer's own for the group, and none for its
/// snapshots. Snapshots that cannot be told apart, or were not asked for, are not stored as members; the group has them all the same, and
/// is not ready to use.
pub(super) fn read(
    group: Option<VolumeGroupSnapshot>,
    asked: &[String],
    now: Timestamp,
) -> Result<Found, InvalidSnapshot> {
    let found = read_given(group.as_ref(), now)?;
    let snapshots = group.map(|group| group.snapshots).unwrap_or_default();
    if let Err(why) = check(&snapshots, asked) {
        let odd = Some(Odd { why, members: ids(&snapshots) });
        return Ok(Found { is_ready: false, odd, ..found });
    }
    let members = snapshots.into_iter().map(|snapshot| member(snapshot, asked)).collect();
    Ok(Found { members, ..found })
}

/// The same for a group that was there before its content, and whose snapshots are known from there.
pub(super) fn read_given(group: Option<&VolumeGroupSnapshot>, now: Timestamp) -> Result<Found, InvalidSnapshot> {
    let group = group.ok_or(InvalidSnapshot::OddAnswer("group_snapshot"))?;
    if group.group_snapshot_id.is_empty() {
        return Err(InvalidSnapshot::OddAnswer("group_snapshot_id"));
    }
    Ok(Found {
        handle: group.group_snapshot_id.clone(),
        creation_time: nanoseconds(group.creation_time, Some(now)).unwrap_or_default(),
        is_dated: group.creation_time.as_ref().is_some_and(is_time),
        is_ready: group.ready_to_use,
        ..Found::default()
    })
}

fn check(snapshots: &[Snapshot], asked: &[String]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for snapshot in snapshots {
        let (id, volume) = (&snapshot.snapshot_id, &snapshot.source_volume_id);
        if id.is_empty() {
            return Err(format!("has a snapshot without snapshot_id, of volume {volume:?}"));
        }
        if asked_for(volume, asked).is_none() {
            return Err(format!("has snapshot {id:?} of volume {volume:?}, which was not asked for"));
        }
        if !seen.insert(id) {
            return Err(format!("has snapshot {id:?} twice"));
        }
    }
    Ok(())
}

/// The ids of all snapshots, or none: a driver refuses to delete a group if the request names only some of them.
fn ids(snapshots: &[Snapshot]) -> Vec<String> {
    let ids: BTreeSet<&String> = snapshots.iter().map(|snapshot| &snapshot.snapshot_id).collect();
    let are_all = ids.len() == snapshots.len() && ids.iter().all(|id| !id.is_empty());
    ids.into_iter().filter(|_| are_all).cloned().collect()
}

/// The volume of the request that this id means. A driver may write the id in upper case or lower case.
fn asked_for<'a>(volume: &str, asked: &'a [String]) -> Option<&'a String> {
    let mut alike = asked.iter().filter(|it| it.eq_ignore_ascii_case(volume));
    let only = alike.next().filter(|_| alike.next().is_none());
    asked.iter().find(|it| *it == volume).or(only)
}

fn member(snapshot: Snapshot, asked: &[String]) -> GroupMember {
    let volume = asked_for(&snapshot.source_volume_id, asked).cloned();
    GroupMember {
        volume_handle: volume.unwrap_or(snapshot.source_volume_id),
        snapshot_handle: snapshot.snapshot_id,
        creation_time: nanoseconds(snapshot.creation_time, None),
        ready_to_use: Some(snapshot.ready_to_use),
        restore_size: size(snapshot.size_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(id: &str, volume: &str) -> Snapshot {
        Snapshot { snapshot_id: id.into(), source_volume_id: volume.into(), size_bytes: 5, ..Snapshot::default() }
    }

    fn group(snapshots: Vec<Snapshot>) -> VolumeGroupSnapshot {
        let creation_time = Some(prost_types::Timestamp { seconds: 3, nanos: 7 });
        VolumeGroupSnapshot { group_snapshot_id: "g".into(), snapshots, creation_time, ready_to_use: true }
    }

    fn found(snapshots: Vec<Snapshot>) -> Result<Found, InvalidSnapshot> {
        read(Some(group(snapshots)), &["v".into(), "w".into()], "1970-01-01T00:00:09Z".parse().unwrap())
    }

    #[test]
    fn an_answer_says_of_which_volume_each_snapshot_is() {
        let found = found(vec![snapshot("s", "v"), snapshot("t", "w")]).unwrap();
        assert_eq!((found.handle.as_str(), found.creation_time, found.is_ready), ("g", 3_000_000_007, true));
        assert!(found.is_dated);
        let member = &found.members[1];
        assert_eq!((member.volume_handle.as_str(), member.snapshot_handle.as_str()), ("w", "t"));
        assert_eq!((member.creation_time, member.ready_to_use, member.restore_size), (None, Some(false), Some(5)));
    }

    #[test]
    fn s43_an_odd_answer_is_an_error_and_nothing_is_made_up() {
        let now = "1970-01-01T00:00:09Z".parse().unwrap();
        assert_eq!(read(None, &[], now), Err(InvalidSnapshot::OddAnswer("group_snapshot")));
        let nameless = VolumeGroupSnapshot { group_snapshot_id: String::new(), ..group(Vec::new()) };
        assert_eq!(read(Some(nameless), &[], now), Err(InvalidSnapshot::OddAnswer("group_snapshot_id")));
        let timeless = VolumeGroupSnapshot { creation_time: None, ..group(Vec::new()) };
        let undated = read(Some(timeless), &[], now).unwrap();
        assert_eq!((undated.creation_time, undated.is_dated), (9_000_000_000, false), "the time of the answer");
        for (odd, says, ids) in [
            (vec![snapshot("", "v"), snapshot("t", "w")], "without snapshot_id", &[][..]),
            (vec![snapshot("s", "v"), snapshot("s", "w")], "twice", &[]),
            (vec![snapshot("s", "x")], "not asked for", &["s"]),
            (vec![snapshot("s", ""), snapshot("t", "")], "not asked for", &["s", "t"]),
        ] {
            let found = found(odd).unwrap();
            assert_eq!(
                (found.handle.as_str(), found.is_ready, found.members.len()),
                ("g", false, 0),
                "it can be deleted"
            );
            assert_eq!(found.member_ids(), ids);
            let told = found.odd.unwrap().why;
            assert!(told.contains(says), "{told}");
        }
    }

    #[test]
    fn a_volume_keeps_the_id_by_which_it_was_asked_for() {
        for (answered, asked, expected) in [
            ("V", &["v", "w"][..], Some("v")),
            ("v", &["V", "v"], Some("v")),
            ("v", &["V", "w"], Some("V")),
            // Which one is meant?
            ("vOl", &["VOL", "vol"], None),
            ("", &["v"], None),
        ] {
            let asked: Vec<String> = asked.iter().map(|&it| it.to_owned()).collect();
            let found = read(Some(group(vec![snapshot("s", answered)])), &asked, Timestamp::UNIX_EPOCH);
            let members = found.unwrap().members;
            let found = members.first().map(|member| member.volume_handle.as_str());
            assert_eq!(found, expected, "{answered} of {asked:?}");
        }
    }

    #[test]
    fn s26_a_group_with_missing_members_is_a_group() {
        assert_eq!(found(Vec::new()).unwrap().members, []);
    }
}
