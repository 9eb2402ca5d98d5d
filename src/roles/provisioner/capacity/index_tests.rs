//! Whatever the world looked like: after one pass it is as wanted, and a second pass finds nothing to do.

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

fn object(name: &str, class: &str, place: Option<&str>, capacity: &str) -> Arc<CsiStorageCapacity> {
    let topology = place.map(|place| json!({ "matchLabels": { "zone": place } }));
    let object = json!({ "metadata": { "name": name, "namespace": "kube-system", "uid": format!("uid-of-{name}") },
        "storageClassName": class, "nodeTopology": topology, "capacity": capacity });
    Arc::new(serde_json::from_value(object).unwrap())
}

/// A server that does what it is told, and tells what it did.
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
                index.hold(&Arc::new(serde_json::from_value(body).unwrap()));
            }
            Write::Update(object, Patch::Merge(patch)) => {
                let mut object = object.as_ref().clone();
                if let Some(capacity) = patch["capacity"].as_str() {
                    object.capacity = Some(capacity.into());
                }
                index.hold(&Arc::new(object));
            }
            Write::Update(..) => panic!("a merge patch is enough"),
            Write::Delete(object) => index.lose(&object),
        }
    }
}

proptest! {
    #[test]
    fn one_pass_settles_whatever_there_was(
        places in proptest::collection::btree_map("n[1-4]", "z[1-3]", 0..4),
        classes in proptest::collection::btree_set("c[1-3]", 0..3),
        objects in proptest::collection::vec(("c[1-4]", proptest::option::of("z[1-4]"), "[12]Gi"), 0..12),
    ) {
        let (mut index, mut server) = (index(), Server::default());
        for (node, place) in &places {
            index.desired.tell_node(node, Some(zone(place)));
        }
        for name in &classes {
            index.tell_class(&change(None, Some(&class(name))));
        }
        for (number, (class, place, capacity)) in objects.iter().enumerate() {
            index.tell_object(&change(None, Some(&object(&format!("o{number}"), class, place.as_deref(), capacity))));
        }
        let room = Capacity { capacity: 1 << 30, largest: None };
        let now = Clock::system().now();
        let mut slots: Vec<Slot> = index.desired.all().chain(index.obsolete()).collect();
        slots.sort();
        for slot in &slots {
            if index.desired.wants(slot).is_some() {
                index.note_room(slot, now, room);
            }
            for write in index.writes(slot) {
                server.perform(&mut index, write);
            }
            prop_assert_eq!(index.writes(slot), [], "a second pass over {} finds nothing to do", slot);
        }
        let goal = index.desired.len();
        prop_assert_eq!(index.counts(), Counts { goal, current: goal, obsolete: 0 });
        prop_assert_eq!(index.rows(now).len(), goal);
    }
}

#[test]
fn what_we_did_ourselves_wakes_nobody_and_what_others_did_does() {
    let mut index = index();
    let (made, wanted) = (object("csisc-1", "fast", Some("z1"), "1Gi"), slot("fast", "z1"));
    index.desired.tell_node("n1", Some(zone("z1")));
    index.tell_class(&change(None, Some(&class("fast"))));
    assert_eq!(index.tell_object(&change(None, Some(&made))), [], "not asked yet, and so in the queue already");
    index.note_room(&wanted, Clock::system().now(), Capacity { capacity: 1 << 30, largest: None });
    assert_eq!(index.tell_object(&change(None, Some(&made))), [], "our own");
    let changed = object("csisc-1", "fast", Some("z1"), "2Gi");
    assert_eq!(
        index.tell_object(&change(Some(&made), Some(&changed))),
        std::slice::from_ref(&wanted),
        "somebody changed it"
    );
    assert_eq!(index.tell_object(&change(Some(&changed), Some(&made))), [], "we put it right");
    assert_eq!(index.tell_object(&change(Some(&made), None)), [wanted], "somebody deleted it");
    let stray = object("csisc-2", "gone", Some("z1"), "1Gi");
    assert_eq!(index.tell_object(&change(None, Some(&stray))), [slot("gone", "z1")], "nobody wants it");
    index.lose(&stray);
    assert_eq!(index.tell_object(&change(Some(&stray), None)), [], "we deleted it");
}

#[test]
fn a_watch_that_is_behind_takes_nothing_back_that_we_have_written_since() {
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
    index.desired.tell_node("n1", Some(zone("z1")));
    index.tell_class(&change(None, Some(&class("fast"))));
    index.note_room(&wanted, Clock::system().now(), Capacity { capacity: 1 << 30, largest: None });
    for answer in [made, changed, latest] {
        index.hold(answer);
    }
    for (old, new) in [(None, made), (Some(made), changed), (Some(changed), latest)] {
        assert_eq!(index.tell_object(&change(old, Some(new))), []);
        assert_eq!(index.objects(&wanted), [Arc::clone(latest)]);
    }
    let mut namesake = made.as_ref().clone();
    namesake.metadata.uid = Some("another".into());
    let namesake = Arc::new(namesake);
    let woken = index.tell_object(&change(Some(latest), Some(&namesake)));
    assert_eq!(index.objects(&wanted), [namesake]);
    assert_eq!(woken, [wanted], "that one says 2Gi");
}

#[test]
fn an_error_stands_beside_the_last_answer_until_the_next() {
    let mut index = index();
    let wanted = slot("fast", "z1");
    index.desired.tell_node("n1", Some(zone("z1")));
    index.tell_class(&change(None, Some(&class("fast"))));
    let now = Clock::system().now();
    index.note_room(&wanted, now, Capacity { capacity: 3, largest: Some(2) });
    index.note_error(&wanted, "offline".into());
    assert_eq!(index.rows(now), [["fast", "zone=z1", "3", "2", "0s", "offline"].map(str::to_owned)]);
    index.note_room(&wanted, now, Capacity { capacity: 3, largest: None });
    assert_eq!(index.rows(now), [["fast", "zone=z1", "3", "", "0s", ""].map(str::to_owned)]);
    index.note_error(&slot("gone", "z1"), "of no interest".into());
    assert_eq!(index.rows(now).len(), 1);
}
