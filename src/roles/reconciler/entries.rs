//! What is kept of the entries of the driver's lists. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::csi::PublishedOn;
use crate::process::folded;
use crate::proto::{ListSnapshotsResponse, ListVolumesResponse, Snapshot, Volume};

use super::orphans::Item;
use crate::roles::kit::listing::Page;

/// The keys of a volume's context under which drivers keep the name that they were given: csi-provisioner's with
/// `extraCreateMetadata`, and the one that most drivers use. CSI itself has no name of a volume that exists.
const NAMES: [&str; 2] = ["csi.storage.k8s.io/pv/name", "name"];

/// A volume: the nodes where it is published, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVolume {
    /// Where it is published.
    pub on: PublishedOn,
    /// What it is.
    pub item: Item,
}

/// A page of volumes. Entries without a volume say nothing, entries without a status say that nothing is known of the nodes (R21,
/// spec 3).
pub fn volumes(page: ListVolumesResponse) -> Page<ListedVolume> {
    let entry = |entry: crate::proto::list_volumes_response::Entry| {
        let Volume { volume_id, capacity_bytes, mut volume_context, .. } = entry.volume?;
        let on = entry
            .status
            .map_or(PublishedOn::Unknown, |status| PublishedOn::Nodes(status.published_node_ids.into_iter().collect()));
        let name = NAMES.iter().find_map(|key| volume_context.remove(*key)).filter(|name| !name.is_empty());
        let item = Item { name, bytes: size(capacity_bytes), ..Item::of(volume_id.clone()) };
        Some((volume_id, ListedVolume { on, item }))
    };
    Page { entries: page.entries.into_iter().filter_map(entry).collect(), next_token: page.next_token }
}

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
            bytes: size(size_bytes),
            created,
            source: told(source_volume_id),
            group: told(group_snapshot_id),
            ..Item::of(snapshot_id.clone())
        };
        Some((snapshot_id, item))
    };
    Page { entries: page.entries.into_iter().filter_map(entry).collect(), next_token: page.next_token }
}

/// 0 stands for a size that the driver does not know. A negative one is no size.
fn size(bytes: i64) -> Option<u64> {
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

/// Where the driver has published its volumes, by ids and node ids that are [folded]. Of two volumes whose ids differ only in their
/// spelling nothing is known: an attachment's volume may be either.
pub fn published<'a>(
    entries: impl IntoIterator<Item = (&'a String, &'a ListedVolume)>,
) -> BTreeMap<String, PublishedOn> {
    let mut volumes = BTreeMap::new();
    for (id, ListedVolume { on, .. }) in entries {
        let on = match on {
            PublishedOn::Nodes(nodes) => PublishedOn::Nodes(nodes.iter().map(|node| folded(node)).collect()),
            PublishedOn::Unknown => PublishedOn::Unknown,
        };
        volumes.entry(folded(id)).and_modify(|known| *known = PublishedOn::Unknown).or_insert(on);
    }
    volumes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{list_snapshots_response, list_volumes_response};

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
        let page = volumes(ListVolumesResponse { entries, next_token: String::new() });
        published(page.entries.iter().map(|(id, volume)| (id, volume)))
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
    fn r21_entries_without_volume_or_status_do_no_harm() {
        let nothing = list_volumes_response::Entry { volume: None, status: None };
        let volumes = listed(vec![nothing, entry("a", None)]);
        assert_eq!(volumes, BTreeMap::from([("a".to_owned(), PublishedOn::Unknown)]));
        let nothing =
            ListSnapshotsResponse { entries: vec![list_snapshots_response::Entry::default()], ..Default::default() };
        assert!(snapshots(nothing).entries.is_empty());
    }

    #[test]
    fn the_next_page_begins_where_the_driver_says() {
        let next_token = "t".to_owned();
        assert_eq!(
            volumes(ListVolumesResponse { next_token: next_token.clone(), ..Default::default() }).next_token,
            "t"
        );
        assert_eq!(snapshots(ListSnapshotsResponse { next_token, ..Default::default() }).next_token, "t");
    }

    #[test]
    fn a_volume_has_the_size_and_the_name_that_the_driver_tells_and_no_other() {
        for (bytes, context, expected) in [
            (5, &[("name", "pvc-1")][..], (Some(5), Some("pvc-1"))),
            (5, &[("csi.storage.k8s.io/pv/name", "pvc-2"), ("name", "other")], (Some(5), Some("pvc-2"))),
            (0, &[("pool", "fast")], (None, None)),
            (-1, &[("name", "")], (None, None)),
        ] {
            let volume_context = context.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let volume = Volume { volume_id: "V".into(), capacity_bytes: bytes, volume_context, ..Volume::default() };
            let entry = list_volumes_response::Entry { volume: Some(volume), status: None };
            let page = volumes(ListVolumesResponse { entries: vec![entry], ..Default::default() });
            let item = &page.entries[0].1.item;
            assert_eq!((item.bytes, item.name.as_deref()), expected, "{bytes} {context:?}");
            assert_eq!((&*page.entries[0].0, &*item.handle), ("V", "V"));
        }
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
