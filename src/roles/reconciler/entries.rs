//! What is kept of the entries of the driver's lists. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::csi::listing::Page;
use crate::csi::{ListedVolume, PublishedOn, known_bytes};
use crate::process::folded;
use crate::proto::{ListSnapshotsResponse, Snapshot};

use super::orphans::Item;

/// A page of snapshots. CSI has no name of a snapshot.
pub fn snapshots(page: ListSnapshotsResponse) -> Page<Item> {
    let entry = |entry: crate::proto::list_snapshots_response::Entry| {
        let Snapshot { snapshot_id, size_bytes, source_volume_id, creation_time, group_snapshot_id, .. } =
            entry.snapshot?;
        let created = creation_time
            .filter(|time| time.seconds > 0)
            .and_then(|time| Timestamp::new(time.seconds, time.nanos).ok());
        let told = |id: String| Some(id).filter(|id| !id.is_empty());
        let item = Item {
            bytes: known_bytes(size_bytes),
            created,
            source: told(source_volume_id),
            group: told(group_snapshot_id),
            ..Item::of(snapshot_id.clone())
        };
        Some((snapshot_id, item))
    };
    Page { entries: page.entries.into_iter().filter_map(entry).collect(), next_token: page.next_token }
}

/// A volume, as it may turn out to be an orphan.
pub fn item(id: &str, volume: &ListedVolume) -> Item {
    Item { name: volume.name.clone(), bytes: volume.bytes, ..Item::of(id.to_owned()) }
}

/// Adds where the driver has published a volume, by its id and node ids that are [folded]. Of two volumes whose ids differ only in their
/// spelling nothing is known: an attachment's volume may be either.
pub fn publish(volumes: &mut BTreeMap<String, PublishedOn>, id: &str, on: &PublishedOn) {
    let on = match on {
        PublishedOn::Nodes(nodes) => PublishedOn::Nodes(nodes.iter().map(|node| folded(node)).collect()),
        PublishedOn::Unknown => PublishedOn::Unknown,
    };
    volumes.entry(folded(id)).and_modify(|known| *known = PublishedOn::Unknown).or_insert(on);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{ListVolumesResponse, Volume, list_snapshots_response, list_volumes_response};

    fn entry(id: &str, nodes: Option<&[&str]>) -> list_volumes_response::Entry {
        list_volumes_response::Entry {
            volume: Some(Volume { volume_id: id.into(), ..Volume::default() }),
            status: nodes.map(|nodes| list_volumes_response::VolumeStatus {
                published_node_ids: nodes.iter().map(ToString::to_string).collect(),
                ..list_volumes_response::VolumeStatus::default()
            }),
        }
    }

    fn listed(entries: Vec<list_volumes_response::Entry>) -> BTreeMap<String, PublishedOn> {
        let page = ListedVolume::page(ListVolumesResponse { entries, next_token: String::new() });
        let mut volumes = BTreeMap::new();
        page.entries.iter().for_each(|(id, volume)| publish(&mut volumes, id, &volume.on));
        volumes
    }

    #[test]
    fn ids_are_listed_folded_and_nothing_is_known_of_two_that_are_then_the_same() {
        let named = |id: &str, node: &str| entry(id, Some(&[node]));
        let volumes =
            listed(vec![named("/Groups/A", "VM-1"), named("b", "n1"), named("B", "n2"), entry("c", Some(&[]))]);
        assert_eq!(volumes["/groups/a"], PublishedOn::Nodes(["vm-1".to_owned()].into()));
        assert_eq!(volumes["b"], PublishedOn::Unknown);
        assert_eq!(volumes["c"], PublishedOn::Nodes([].into()));
    }

    #[test]
    fn entries_without_a_snapshot_do_no_harm_and_the_next_page_begins_where_the_driver_says() {
        let entries = vec![list_snapshots_response::Entry::default()];
        let page = snapshots(ListSnapshotsResponse { entries, next_token: "t".to_owned() });
        assert_eq!((page.entries, &*page.next_token), (vec![], "t"));
        assert_eq!(listed(vec![entry("a", None)]), BTreeMap::from([("a".to_owned(), PublishedOn::Unknown)]));
    }

    #[test]
    fn a_snapshot_tells_its_size_its_age_its_volume_and_its_group() {
        let page = |snapshot| {
            let entry = list_snapshots_response::Entry { snapshot: Some(snapshot) };
            let mut page = snapshots(ListSnapshotsResponse { entries: vec![entry], ..Default::default() });
            page.entries.remove(0)
        };
        let whole = Snapshot {
            size_bytes: 7,
            snapshot_id: "s".into(),
            source_volume_id: "v".into(),
            creation_time: Some(prost_types::Timestamp { seconds: 60, nanos: 0 }),
            ready_to_use: true,
            group_snapshot_id: "g".into(),
            ..Snapshot::default()
        };
        let expected = Item {
            handle: "s".into(),
            name: None,
            bytes: Some(7),
            created: Some("1970-01-01T00:01:00Z".parse().unwrap()),
            source: Some("v".into()),
            group: Some("g".into()),
        };
        assert_eq!(page(whole), ("s".to_owned(), expected));
        let bare = Snapshot {
            snapshot_id: "s".into(),
            creation_time: Some(prost_types::Timestamp::default()),
            ..Snapshot::default()
        };
        assert_eq!(page(bare), ("s".to_owned(), Item::of("s".to_owned())));
    }
}
