//! From any state of the cluster, one attempt per slot brings the objects in line, and a second one has nothing to write.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cluster::{Origin, Patch};
use crate::process::Clock;
use crate::roles::provisioner::capacity::diff::{Capacity, ObjectTemplate, Write};
use crate::roles::provisioner::capacity::policy::View;
use crate::roles::provisioner::capacity::progress::{Answer, Memory, Progress};
use crate::roles::provisioner::topology::Segment;

const DRIVER: &str = "demo";
const GIB: Capacity = Capacity { available: 1 << 30, maximum_volume_size: None };

/// What a term knows of slots.
struct Known {
    index: Index,
    memory: BTreeMap<Slot, Memory>,
    template: Arc<ObjectTemplate>,
}

impl Known {
    fn new() -> Self {
        let template = ObjectTemplate { namespace: "kube-system".into(), labels: BTreeMap::default(), owner: None };
        let index = Index::new(ClassFilter { driver: DRIVER.into(), immediate: false });
        Self { index, memory: BTreeMap::new(), template: Arc::new(template) }
    }

    /// A class in one segment.
    fn with_slot() -> Self {
        let mut known = Self::new();
        known.index.node_changed("n1", Some(zone("z1")));
        known.index.class_changed(&change(None, Some(&class("fast"))));
        known
    }

    fn writes(&self, slot: &Slot) -> Vec<Write> {
        let view = View {
            slot: slot.clone(),
            id: slot.to_string(),
            class: self.index.desired().wants(slot).cloned(),
            template: Arc::clone(&self.template),
            shown: self.index.objects(slot),
            memory: self.memory.get(slot).cloned().unwrap_or_default(),
        };
        view.writes()
    }

    fn answered(&mut self, slot: &Slot, answer: Answer) {
        self.memory.entry(slot.clone()).or_default().apply(&mut Progress::default(), answer);
    }

    /// The slots that an object's change wakes.
    fn changed(&mut self, change: &Change<CsiStorageCapacity>) -> Vec<Slot> {
        let mut slots = self.index.object_changed(change);
        for slot in &slots {
            self.memory.entry(slot.clone()).or_default().shown(change);
        }
        slots.retain(|slot| !self.writes(slot).is_empty());
        slots
    }
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
    fn perform(&mut self, write: Write) -> Answer {
        match write {
            Write::Create(mut body) => {
                self.made += 1;
                let name = format!("csisc-new-{}", self.made);
                body["metadata"]["name"] = json!(name);
                body["metadata"]["uid"] = json!(format!("uid-of-{name}"));
                Answer::There(Arc::new(serde_json::from_value(body).unwrap()))
            }
            Write::Update(object, Patch::Merge(patch)) => {
                let mut object = object.as_ref().clone();
                if let Some(capacity) = patch["capacity"].as_str() {
                    object.capacity = Some(capacity.into());
                }
                object.metadata.resource_version = Some("1".into());
                Answer::There(Arc::new(object))
            }
            Write::Update(..) => panic!("a merge patch is enough"),
            Write::Delete(object) => Answer::Gone(object),
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
        let (mut known, mut server) = (Known::new(), Server::default());
        for (node, place) in &places {
            known.index.node_changed(node, Some(zone(place)));
        }
        for name in &classes {
            known.index.class_changed(&change(None, Some(&class(name))));
        }
        for (number, (class, place, capacity)) in objects.iter().enumerate() {
            known.changed(&change(None, Some(&object(&format!("o{number}"), class, place.as_deref(), capacity))));
        }
        let now = Clock::system().now();
        let mut slots: Vec<Slot> = known.index.desired().all().chain(known.index.obsolete()).collect();
        slots.sort();
        let mut left = 0;
        for slot in &slots {
            let is_wanted = known.index.desired().wants(slot).is_some();
            if is_wanted {
                known.answered(slot, Answer::Capacity(now, GIB));
            }
            for write in known.writes(slot) {
                known.answered(slot, server.perform(write));
            }
            prop_assert_eq!(known.writes(slot), [], "a second attempt at {} has nothing to write", slot);
            let objects = known.memory.get(slot).map_or(0, |held| held.objects(&known.index.objects(slot)).len());
            prop_assert_eq!(objects, usize::from(is_wanted), "{}", slot);
            left += objects;
        }
        prop_assert_eq!(left, known.index.desired().len());
    }
}

#[test]
fn our_own_writes_wake_no_slot_and_those_of_others_do() {
    let mut known = Known::with_slot();
    let (made, wanted) = (object("csisc-1", "fast", Some("z1"), "1Gi"), slot("fast", "z1"));
    assert_eq!(
        known.changed(&change(None, Some(&made))),
        [],
        "the driver has not answered yet, so the slot is in the queue already"
    );
    known.answered(&wanted, Answer::Capacity(Clock::system().now(), GIB));
    assert_eq!(known.changed(&change(None, Some(&made))), [], "our own write");
    let changed = object("csisc-1", "fast", Some("z1"), "2Gi");
    assert_eq!(
        known.changed(&change(Some(&made), Some(&changed))),
        std::slice::from_ref(&wanted),
        "another client changed it"
    );
    assert_eq!(known.changed(&change(Some(&changed), Some(&made))), [], "we corrected it");
    assert_eq!(known.changed(&change(Some(&made), None)), [wanted], "another client deleted it");
    let (stray, gone) = (object("csisc-2", "gone", Some("z1"), "1Gi"), slot("gone", "z1"));
    assert_eq!(known.changed(&change(None, Some(&stray))), std::slice::from_ref(&gone), "its slot is not wanted");
    known.answered(&gone, Answer::Gone(stray.clone()));
    assert_eq!(known.changed(&change(Some(&stray), None)), [], "we deleted it");
}

#[test]
fn a_late_watch_wakes_no_slot_for_our_earlier_writes() {
    let (mut known, wanted) = (Known::with_slot(), slot("fast", "z1"));
    let versions: Vec<_> = [(7, "2Gi"), (8, "3Gi"), (9, "1Gi")]
        .into_iter()
        .map(|(version, capacity): (u32, &str)| {
            let mut object = object("csisc-1", "fast", Some("z1"), capacity).as_ref().clone();
            object.metadata.resource_version = Some(version.to_string().as_str().into());
            Arc::new(object)
        })
        .collect();
    let [made, changed, latest] = &versions[..] else { panic!("three versions") };
    known.answered(&wanted, Answer::Capacity(Clock::system().now(), GIB));
    for answer in [made, changed, latest] {
        known.answered(&wanted, Answer::There(Arc::clone(answer)));
    }
    for (old, new) in [(None, made), (Some(made), changed), (Some(changed), latest)] {
        assert_eq!(known.changed(&change(old, Some(new))), []);
    }
    assert_eq!(known.index.objects(&wanted), [Arc::clone(latest)]);
    let mut namesake = made.as_ref().clone();
    namesake.metadata.uid = "another".into();
    let namesake = Arc::new(namesake);
    let woken = known.changed(&change(Some(latest), Some(&namesake)));
    assert_eq!(known.index.objects(&wanted), [namesake]);
    assert_eq!(woken, [wanted], "that one says 2Gi");
}

#[test]
fn wanted_and_unwanted_objects_are_counted() {
    let mut known = Known::with_slot();
    assert_eq!(known.index.counts(), Counts { goal: 1, current: 0, obsolete: 0 });
    for (name, class) in [("csisc-1", "fast"), ("csisc-2", "fast"), ("csisc-3", "gone")] {
        known.changed(&change(None, Some(&object(name, class, Some("z1"), "1Gi"))));
    }
    assert_eq!(known.index.counts(), Counts { goal: 1, current: 1, obsolete: 2 });
}
