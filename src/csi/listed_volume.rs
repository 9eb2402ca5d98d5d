//! What is kept of an entry of `ListVolumes`, for all that is made of one pass. Pure.

use super::listing::Page;
use super::volume_listings::PublishedOn;
use crate::proto::{ListVolumesResponse, Volume, VolumeCondition};

/// The keys of a volume's context under which drivers keep the name that they were given: csi-provisioner's with
/// `extraCreateMetadata`, and the one that most drivers use. CSI itself has no name of a volume that exists.
const NAMES: [&str; 2] = ["csi.storage.k8s.io/pv/name", "name"];

/// A volume, as the driver lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedVolume {
    /// Where it is published.
    pub on: PublishedOn,
    /// How it is, by a driver before CSI 1.13. `None`: nothing is known.
    pub condition: Option<VolumeCondition>,
    /// Its name, if the driver reports one.
    pub name: Option<String>,
    /// Its size in bytes, if the driver knows it.
    pub bytes: Option<u64>,
}

impl ListedVolume {
    /// The volumes of a page. Entries without a volume say nothing, entries without a status say that nothing is known of the nodes
    /// and of the condition (attacher R21, spec 3).
    pub fn page(page: ListVolumesResponse) -> Page<Self> {
        let entry = |entry: crate::proto::list_volumes_response::Entry| {
            let Volume { volume_id, capacity_bytes, mut volume_context, .. } = entry.volume?;
            let (on, condition) = entry.status.map_or((PublishedOn::Unknown, None), |status| {
                (PublishedOn::Nodes(status.published_node_ids.into_iter().collect()), status.volume_condition)
            });
            let name = NAMES.iter().find_map(|key| volume_context.remove(*key)).filter(|name| !name.is_empty());
            Some((volume_id, Self { on, condition, name, bytes: known_bytes(capacity_bytes) }))
        };
        Page { entries: page.entries.into_iter().filter_map(entry).collect(), next_token: page.next_token }
    }
}

/// A size in bytes as drivers report it. 0 stands for one that the driver does not know. A negative one is no size.
pub fn known_bytes(bytes: i64) -> Option<u64> {
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::list_volumes_response::{Entry, VolumeStatus};

    fn page(entries: Vec<Entry>) -> Vec<(String, ListedVolume)> {
        ListedVolume::page(ListVolumesResponse { entries, next_token: String::new() }).entries
    }

    #[test]
    fn r21_entries_without_volume_or_status_do_no_harm() {
        let volume = Some(Volume { volume_id: "a".into(), ..Volume::default() });
        let listed = page(vec![Entry { volume: None, status: None }, Entry { volume, status: None }]);
        let nothing = ListedVolume { on: PublishedOn::Unknown, condition: None, name: None, bytes: None };
        assert_eq!(listed, [("a".to_owned(), nothing)]);
    }

    #[test]
    fn a_condition_is_kept_and_its_absence_is_no_condition() {
        for condition in [
            None,
            Some(VolumeCondition { abnormal: false, message: String::new() }),
            Some(VolumeCondition { abnormal: true, message: "no path".into() }),
        ] {
            let volume = Some(Volume { volume_id: "a".into(), ..Volume::default() });
            let status = Some(VolumeStatus { volume_condition: condition.clone(), ..VolumeStatus::default() });
            let listed = page(vec![Entry { volume, status }]).remove(0).1;
            assert_eq!((listed.condition, listed.on), (condition, PublishedOn::Nodes([].into())));
        }
    }

    #[test]
    fn the_next_page_begins_where_the_driver_says() {
        let response = ListVolumesResponse { next_token: "t".to_owned(), ..Default::default() };
        assert_eq!(ListedVolume::page(response).next_token, "t");
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
            let (id, listed) = page(vec![Entry { volume: Some(volume), status: None }]).remove(0);
            assert_eq!((&*id, listed.bytes, listed.name.as_deref()), ("V", expected.0, expected.1), "{context:?}");
        }
    }
}
