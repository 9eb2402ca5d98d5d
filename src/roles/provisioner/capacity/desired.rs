//! Which capacities the scheduler needs: of each class in each segment. Pure.
//!
//! Slots are equal by value, so that the queue merges them. (Since 6.0, the Go sidecar's work items hold a pointer to a copy of
//! the segment. No item equals another one: none are merged, and each trigger adds one more item that fails and is tried again for
//! ever.)

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::cluster::StorageClass;
use crate::roles::provisioner::class::{csi_class, is_served};
use crate::roles::provisioner::topology::{Segment, Segments};

/// A class in a segment: what one `CSIStorageCapacity` object is about, and the queue's key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The class's name.
    pub class: Arc<str>,
    /// The segment. The empty one is everywhere.
    pub segment: Arc<Segment>,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.class, self.segment)
    }
}

/// Which classes need capacities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassFilter {
    /// Our driver.
    pub driver: String,
    /// Whether also those that bind immediately, for whose volumes the scheduler does not choose a node.
    pub immediate: bool,
}

impl ClassFilter {
    /// Whether the class needs capacities.
    pub fn matches(&self, class: &StorageClass) -> bool {
        is_served(class, &self.driver) && (self.immediate || class.waits_for_consumer())
    }
}

/// The classes and the segments. Each change returns the slots to refresh.
#[derive(Debug)]
pub struct Desired {
    filter: ClassFilter,
    classes: BTreeMap<Arc<str>, Arc<StorageClass>>,
    segments: Segments,
}

impl Desired {
    /// Without classes and segments.
    pub fn new(filter: ClassFilter) -> Self {
        Self { filter, classes: BTreeMap::new(), segments: Segments::default() }
    }

    /// A class was created or changed, or deleted if there is none.
    pub fn class_changed(&mut self, name: &str, class: Option<&Arc<StorageClass>>) -> Vec<Slot> {
        let (name, held): (Arc<str>, _) = match self.classes.get_key_value(name) {
            Some((name, held)) => (Arc::clone(name), Some(held)),
            None => (name.into(), None),
        };
        let class = class.filter(|class| self.filter.matches(class)).and_then(|class| self.translated(class));
        match (held, class) {
            (None, None) => return Vec::new(),
            (Some(held), Some(class)) if asks_the_same(held, &class) => return Vec::new(),
            (_, Some(class)) => self.classes.insert(Arc::clone(&name), class),
            (Some(_), None) => self.classes.remove(&name),
        };
        self.of_class(&name)
    }

    /// The class in our driver's words: the driver is asked with the parameters that a volume of the class gets. One that cannot be
    /// translated gets no volume, so the scheduler needs no capacity of it.
    fn translated(&self, class: &Arc<StorageClass>) -> Option<Arc<StorageClass>> {
        match csi_class(class, &self.filter.driver).ok()? {
            Cow::Borrowed(_) => Some(Arc::clone(class)),
            Cow::Owned(translated) => Some(Arc::new(translated)),
        }
    }

    /// The driver is in `segment` on this node now, or in no segment any more.
    pub fn node_changed(&mut self, node: &str, segment: Option<Segment>) -> Vec<Slot> {
        let change = self.segments.set(node, segment);
        change.added.iter().chain(&change.removed).flat_map(|segment| self.at(segment)).collect()
    }

    /// The class, if the slot is wanted.
    pub fn wants(&self, slot: &Slot) -> Option<&Arc<StorageClass>> {
        self.segments.find(&slot.segment)?;
        self.classes.get(&slot.class)
    }

    /// Every wanted slot.
    pub fn all(&self) -> impl Iterator<Item = Slot> {
        self.classes.keys().flat_map(|class| self.of_class(class))
    }

    /// How many slots are wanted.
    pub fn len(&self) -> usize {
        self.classes.len() * self.segments.len()
    }

    /// Whether no slot is wanted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slots of a class, in every segment.
    pub fn of_class(&self, class: &str) -> Vec<Slot> {
        let class = self.classes.get_key_value(class).map_or_else(|| class.into(), |(class, _)| Arc::clone(class));
        self.segments.iter().map(|segment| Slot { class: Arc::clone(&class), segment: Arc::clone(segment) }).collect()
    }

    /// The slots that a volume of the class may take its storage from which does not say where it is. If the driver is in one place
    /// alone, that is every class there: they may share its storage. Otherwise it is the class in every segment: every class in every
    /// segment could be thousands of calls for each volume, and the poll comes.
    pub fn anywhere(&self, class: &str) -> Vec<Slot> {
        let mut segments = self.segments.iter();
        match (segments.next(), segments.next()) {
            (Some(only), None) => self.at(only),
            _ => self.of_class(class),
        }
    }

    /// Every class in the segments that a volume of this topology takes its storage from. If a driver gives a volume other keys
    /// than its nodes, these are the segments that contain the volume's, and those within it.
    pub fn touched_by(&self, topology: &[Segment]) -> Vec<Slot> {
        let touched = |touching: &Segment| match self.segments.find(touching) {
            Some(segment) => vec![Arc::clone(segment)],
            None => self
                .segments
                .iter()
                .filter(|segment| touching.is_subset_of(segment) || segment.is_subset_of(touching))
                .cloned()
                .collect(),
        };
        let mut segments: Vec<Arc<Segment>> = topology.iter().flat_map(touched).collect();
        segments.sort_unstable();
        segments.dedup();
        segments.iter().flat_map(|segment| self.at(segment)).collect()
    }

    fn at(&self, segment: &Arc<Segment>) -> Vec<Slot> {
        self.classes.keys().map(|class| Slot { class: Arc::clone(class), segment: Arc::clone(segment) }).collect()
    }
}

/// Whether both versions of a class lead to the same `GetCapacity` request.
fn asks_the_same(held: &StorageClass, now: &StorageClass) -> bool {
    held.metadata.uid == now.metadata.uid && held.parameters == now.parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, binding: Option<&str>, parameter: &str) -> Arc<StorageClass> {
        let mut class = StorageClass { provisioner: "demo".to_owned(), ..StorageClass::default() };
        class.metadata.name = name.into();
        class.volume_binding_mode = binding.map(str::to_owned);
        class.parameters.insert("type".to_owned(), parameter.to_owned());
        Arc::new(class)
    }

    const WAITS: Option<&str> = Some("WaitForFirstConsumer");

    fn desired(immediate: bool) -> Desired {
        Desired::new(ClassFilter { driver: "demo".to_owned(), immediate })
    }

    fn zone(value: &str) -> Segment {
        Segment::new([("zone", value)])
    }

    fn shown(slots: &[Slot]) -> Vec<String> {
        let mut shown: Vec<String> = slots.iter().map(ToString::to_string).collect();
        shown.sort();
        shown
    }

    #[test]
    fn classes_of_our_driver_count_if_the_scheduler_chooses_their_node() {
        for (binding, immediate, expected) in
            [(WAITS, false, 1), (Some("Immediate"), false, 0), (None, false, 0), (None, true, 1)]
        {
            let mut desired = desired(immediate);
            desired.node_changed("n1", Some(zone("z1")));
            assert_eq!(
                desired.class_changed("fast", Some(&class("fast", binding, "ssd"))).len(),
                expected,
                "{binding:?}"
            );
            assert_eq!(desired.len(), expected);
        }
        let mut desired = desired(true);
        let foreign = Arc::new(StorageClass { provisioner: "other".into(), ..StorageClass::default() });
        desired.node_changed("n1", Some(zone("z1")));
        assert_eq!(desired.class_changed("foreign", Some(&foreign)), []);
        assert!(desired.is_empty());
    }

    #[test]
    fn s0_one_event_of_a_class_wakes_each_segment_once_however_many_nodes_it_has() {
        let mut desired = desired(false);
        for node in 0..31 {
            desired.node_changed(&format!("n{node}"), Some(zone("z1")));
        }
        assert_eq!(shown(&desired.class_changed("fast", Some(&class("fast", WAITS, "ssd")))), ["fast at zone=z1"]);
        assert_eq!(desired.class_changed("fast", Some(&class("fast", WAITS, "ssd"))), [], "nothing has changed");
        assert_eq!(desired.class_changed("fast", Some(&class("fast", WAITS, "hdd"))).len(), 1, "its parameters have");
        assert_eq!(shown(&desired.class_changed("fast", None)), ["fast at zone=z1"], "its object must go");
        assert_eq!(desired.class_changed("fast", None), []);
    }

    #[test]
    fn r36_a_segment_that_comes_or_goes_wakes_each_class() {
        let mut desired = desired(false);
        for name in ["fast", "slow"] {
            assert_eq!(desired.class_changed(name, Some(&class(name, WAITS, name))), []);
        }
        assert_eq!(shown(&desired.node_changed("n1", Some(zone("z1")))), ["fast at zone=z1", "slow at zone=z1"]);
        assert_eq!(desired.node_changed("n2", Some(zone("z1"))), []);
        let moved = shown(&desired.node_changed("n2", Some(zone("z2"))));
        assert_eq!(moved, ["fast at zone=z2", "slow at zone=z2"]);
        assert_eq!(shown(&desired.node_changed("n2", None)), moved, "and so do those that must go");
        assert_eq!(desired.all().count(), 2);
        assert!(desired.all().all(|slot| desired.wants(&slot).is_some()));
    }

    #[test]
    fn a_volume_touches_its_own_segment_or_those_within_it() {
        let mut desired = desired(false);
        desired.class_changed("fast", Some(&class("fast", WAITS, "ssd")));
        for (node, zone, rack) in [("n1", "z1", "A"), ("n2", "z1", "B"), ("n3", "z2", "A")] {
            desired.node_changed(node, Some(Segment::new([("zone", zone), ("rack", rack)])));
        }
        let touched = |topology: &[Segment]| shown(&desired.touched_by(topology));
        assert_eq!(touched(&[Segment::new([("zone", "z1"), ("rack", "A")])]), ["fast at rack=A,zone=z1"]);
        assert_eq!(touched(&[zone("z1")]), ["fast at rack=A,zone=z1", "fast at rack=B,zone=z1"]);
        assert_eq!(touched(&[zone("z1"), zone("z1")]).len(), 2, "each once");
        assert_eq!(touched(&[zone("z9")]), Vec::<String>::new());
    }

    #[test]
    fn a_volume_that_does_not_say_where_it_is_touches_its_class_everywhere_and_all_classes_of_an_only_place() {
        let mut desired = desired(false);
        for name in ["fast", "slow"] {
            desired.class_changed(name, Some(&class(name, WAITS, name)));
        }
        assert_eq!(shown(&desired.anywhere("fast")), Vec::<String>::new(), "the driver is nowhere");
        desired.node_changed("n1", Some(Segment::default()));
        assert_eq!(shown(&desired.anywhere("fast")), ["fast at everywhere", "slow at everywhere"]);
        for (node, place) in [("n1", "z1"), ("n2", "z2")] {
            desired.node_changed(node, Some(zone(place)));
        }
        assert_eq!(shown(&desired.anywhere("fast")), ["fast at zone=z1", "fast at zone=z2"]);
    }
}
