//! From any state of the cluster, one attempt per slot brings the objects in line, and a second one has nothing to write.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cluster::{Origin, Patch};
use crate::process::Clock;
use crate::roles::provisioner::topology::Segment;

const DRIVER: &str = "demo";

fn index() -> Index {
    let template = ObjectTemplate { namespace: "kube-system".into(), labels: BTreeMap::default(), owner: None };
    Index::new(ClassFilter { driver: DRIVER.into(), immediate: false }, template)
}

fn change<K>(old: Option<&Arc<K>>, new: Option<&Arc<K>>) -> Change<K> {
    Change { old: old.cloned(), new: new.cloned(), origin: Origin::Watch }
}

fn class(name: &str) -> Arc<StorageClass> {
    let class = json!({ "metadata": { "name": name, "uid": format!("uid-of-{name}") }, "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer" });
    Arc::new(serde_json::from_value(class).unwrap())
}

fn zone(name: &str) -> Segment {
    Segment::new([("zone", name)])
}

fn slot(class: &str, place: &str) -> Slot {
    Slot { class: class.into(), segment: Arc::new(zone(place)) }
}

fn object(name: &str, class: &str, zone: Option<&str>, capacity: &str) -> Arc<CsiStorageCapacity> {
    let topology = zone.map(|zone| json!({ "matchLabels": { "zone": zone } }));
    let object = json!({ "metadata": { "name": name, "namespace": "kube-system", "uid": format!("uid-of-{name}") },
        "storageClassName": class, "nodeTopology": topology, "capacity": capacity });
    Arc::new(serde_json::from_value(object).unwrap())
}

/// An API server that accepts each write and returns the object.
#[derive(Default)]
struct Server {
    made: usize,
}

impl Server {
    fn perform(&mut self, index: &mut Index, write: Write) {
        match write {
            Write::Create(mut body) => {
                self.made += 1;
                let name = format!("csisc-new-{}", self.made);
                body["metadata"]["name"] = json!(name);
                body["metadata"]["uid"] = json!(format!("uid-of-{name}"));
                index.set_object(&Arc::new(serde_json::from_value(body).unwrap()));
            }
            Write::Update(object, Patch::Merge(patch)) => {
                let mut object = object.as_ref().clone();
                if let Some(capacity) = patch["capacity"].as_str() {
                    object.capacity = Some(capacity.into());
                }
                index.set_object(&Arc::new(object));
            }
            Write::Update(..) => panic!("a merge patch is enough"),
            Write::Delete(objects) => objects.iter().for_each(|object| index.remove_object(object)),
        }
    }
}

proptest! {
    #[test]
    fn one_attempt_per_slot_settles_any_state(
        places in proptest::collection::btree_map("n[1-4]", "z[1-3]", 0..4),
        classes in proptest::collection::btree_set("c[1-3]", 0..3),
        objects in proptest::collection::vec(("c[1-4]", proptest::option::of("z[1-4]"), "[12]Gi"), 0..12),
    ) {
        let (mut index, mut server) = (index(), Server::default());
        for (node, place) in &places {
            index.node_changed(node, Some(zone(place)));
        }
        for name in &classes {
            index.class_changed(&change(None, Some(&class(name))));
        }
        for (number, (class, place, capacity)) in objects.iter().enumerate() {
            index.object_changed(&change(None, Some(&object(&format!("o{number}"), class, place.as_deref(), capacity))));
        }
        let capacity = Capacity { available: 1 << 30, maximum_volume_size: None };
        let now = Clock::system().now();
        let mut slots: Vec<Slot> = index.desired().all().chain(index.obsolete()).collect();
        slots.sort();
        for slot in &slots {
            if index.desired().wants(slot).is_some() {
                index.set_capacity(slot, now, capacity);
            }
            for write in index.writes(slot) {
                server.perform(&mut index, write);
            }
            prop_assert_eq!(index.writes(slot), [], "a second attempt at {} has nothing to write", slot);
        }
        let goal = index.desired().len();
        prop_assert_eq!(index.counts(), Counts { goal, current: goal, obsolete: 0 });
        prop_assert_eq!(index.rows(now).len(), goal);
    }
}

#[test]
fn our_own_writes_wake_no_slot_and_those_of_others_do() {
    let mut index = index();
    let (made, wanted) = (object("csisc-1", "fast", Some("z1"), "1Gi"), slot("fast", "z1"));
    index.node_changed("n1", Some(zone("z1")));
    index.class_changed(&change(None, Some(&class("fast"))));
    assert_eq!(
        index.object_changed(&change(None, Some(&made))),
        [],
        "the driver has not answered yet, so the slot is in the queue already"
    );
    index.set_capacity(&wanted, Clock::system().now(), Capacity { available: 1 << 30, maximum_volume_size: None });
    assert_eq!(index.object_changed(&change(None, Some(&made))), [], "our own write");
    let changed = object("csisc-1", "fast", Some("z1"), "2Gi");
    assert_eq!(
        index.object_changed(&change(Some(&made), Some(&changed))),
        std::slice::from_ref(&wanted),
        "another client changed it"
    );
    assert_eq!(index.object_changed(&change(Some(&changed), Some(&made))), [], "we corrected it");
    assert_eq!(index.object_changed(&change(Some(&made), None)), [wanted], "another client deleted it");
    let stray = object("csisc-2", "gone", Some("z1"), "1Gi");
    assert_eq!(index.object_changed(&change(None, Some(&stray))), [slot("gone", "z1")], "its slot is not wanted");
    index.remove_object(&stray);
    assert_eq!(index.object_changed(&change(Some(&stray), None)), [], "we deleted it");
}

#[test]
fn a_late_watch_does_not_undo_our_later_writes() {
    let mut index = index();
    let wanted = slot("fast", "z1");
    let versions: Vec<_> = [(7, "2Gi"), (8, "3Gi"), (9, "1Gi")]
        .into_iter()
        .map(|(version, capacity): (u32, &str)| {
            let mut object = object("csisc-1", "fast", Some("z1"), capacity).as_ref().clone();
            object.metadata.resource_version = Some(version.to_string().as_str().into());
            Arc::new(object)
        })
        .collect();
    let [made, changed, latest] = &versions[..] else { panic!("three versions") };
    index.node_changed("n1", Some(zone("z1")));
    index.class_changed(&change(None, Some(&class("fast"))));
    index.set_capacity(&wanted, Clock::system().now(), Capacity { available: 1 << 30, maximum_volume_size: None });
    for answer in [made, changed, latest] {
        index.set_object(answer);
    }
    for (old, new) in [(None, made), (Some(made), changed), (Some(changed), latest)] {
        assert_eq!(index.object_changed(&change(old, Some(new))), []);
        assert_eq!(index.objects(&wanted), [Arc::clone(latest)]);
    }
    let mut namesake = made.as_ref().clone();
    namesake.metadata.uid = "another".into();
    let namesake = Arc::new(namesake);
    let woken = index.object_changed(&change(Some(latest), Some(&namesake)));
    assert_eq!(index.objects(&wanted), [namesake]);
    assert_eq!(woken, [wanted], "that one says 2Gi");
}

#[test]
fn an_error_stands_beside_the_last_answer_until_the_next() {
    let mut index = index();
    let wanted = slot("fast", "z1");
    index.node_changed("n1", Some(zone("z1")));
    index.class_changed(&change(None, Some(&class("fast"))));
    let now = Clock::system().now();
    index.set_capacity(&wanted, now, Capacity { available: 3, maximum_volume_size: Some(2) });
    index.set_error(&wanted, "offline".into());
    let row = |largest: Cell, error: Cell| {
        vec!["fast".into(), "zone=z1".into(), Cell::Number(3), largest, Duration::ZERO.into(), error]
    };
    assert_eq!(index.rows(now), [row(Cell::Number(2), "offline".into())]);
    index.set_capacity(&wanted, now, Capacity { available: 3, maximum_volume_size: None });
    assert_eq!(index.rows(now), [row(Cell::Nothing, Cell::Nothing)]);
    let gone = slot("gone", "z1");
    index.set_error(&gone, "of no interest".into());
    index.set_capacity(&gone, now, Capacity { available: 3, maximum_volume_size: None });
    assert_eq!(index.rows(now).len(), 1);
    assert_eq!(index.readings.len(), 1, "nothing is kept of a slot that is not wanted");
    index.node_changed("n1", None);
    assert_eq!(index.readings.len(), 0);
}
