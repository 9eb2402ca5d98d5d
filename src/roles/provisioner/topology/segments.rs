//! Which places the driver's nodes make: one segment for all nodes at the same place. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::segment::Segment;

/// The places of the driver's nodes, by value. Telling of one node costs no look at the others.
#[derive(Debug, Clone, Default)]
pub struct Segments {
    by_node: BTreeMap<String, Arc<Segment>>,
    nodes_at: BTreeMap<Arc<Segment>, usize>,
}

/// What became of the segments when one node changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// A place that had no node before.
    pub added: Option<Arc<Segment>>,
    /// A place that has no node any more.
    pub removed: Option<Arc<Segment>>,
}

impl Segments {
    /// A node is at `place` now; or, without one, the driver cannot be placed there any more.
    ///
    /// A driver that registers without topology keys is at the empty term: its one segment is everywhere.
    pub fn tell(&mut self, node: &str, place: Option<Segment>) -> Change {
        if self.by_node.get(node).map(AsRef::as_ref) == place.as_ref() {
            return Change::default();
        }
        let mut change = Change::default();
        if let Some(place) = place {
            let held = self.nodes_at.get_key_value(&place).map(|(held, _)| Arc::clone(held));
            let place = held.unwrap_or_else(|| {
                let place = Arc::new(place);
                change.added = Some(Arc::clone(&place));
                place
            });
            *self.nodes_at.entry(Arc::clone(&place)).or_default() += 1;
            change.removed = self.by_node.insert(node.to_owned(), place).and_then(|left| self.leave(left));
        } else {
            change.removed = self.by_node.remove(node).and_then(|left| self.leave(left));
        }
        change
    }

    fn leave(&mut self, place: Arc<Segment>) -> Option<Arc<Segment>> {
        let nodes = self.nodes_at.get_mut(&place)?;
        *nodes -= 1;
        if *nodes > 0 {
            return None;
        }
        self.nodes_at.remove(&place);
        Some(place)
    }

    /// Every segment, in order: what is asked first must not be left to chance.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.nodes_at.keys()
    }

    /// The segment of this very value.
    pub fn find(&self, place: &Segment) -> Option<&Arc<Segment>> {
        self.nodes_at.get_key_value(place).map(|(held, _)| held)
    }

    /// How many segments there are.
    pub fn len(&self) -> usize {
        self.nodes_at.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes_at.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(value: &str) -> Segment {
        Segment::new([("zone", value)])
    }

    fn told(added: Option<&str>, removed: Option<&str>) -> Change {
        Change { added: added.map(|value| Arc::new(zone(value))), removed: removed.map(|value| Arc::new(zone(value))) }
    }

    #[test]
    fn nodes_at_one_place_make_one_segment_r2() {
        let mut segments = Segments::default();
        assert_eq!(segments.tell("n1", Some(zone("z1"))), told(Some("z1"), None));
        assert_eq!(segments.tell("n2", Some(zone("z1"))), Change::default());
        assert_eq!(segments.tell("n2", Some(zone("z1"))), Change::default(), "the same again");
        assert_eq!(segments.len(), 1);
        assert_eq!(segments.tell("n1", None), Change::default(), "another node is still there");
        assert_eq!(segments.tell("n2", None), told(None, Some("z1")));
        assert!(segments.is_empty());
    }

    #[test]
    fn a_node_that_moves_leaves_one_segment_and_makes_another() {
        let mut segments = Segments::default();
        segments.tell("n1", Some(zone("z1")));
        assert_eq!(segments.tell("n1", Some(zone("z2"))), told(Some("z2"), Some("z1")));
        segments.tell("n2", Some(zone("z3")));
        assert_eq!(segments.tell("n1", Some(zone("z3"))), told(None, Some("z2")));
        assert_eq!(segments.find(&zone("z3")).map(AsRef::as_ref), Some(&zone("z3")));
        assert_eq!(segments.find(&zone("z1")), None);
        assert_eq!(segments.len(), 1, "both are there");
    }

    #[test]
    fn a_driver_without_topology_has_one_segment_everywhere() {
        let mut segments = Segments::default();
        let change = segments.tell("n1", Some(Segment::default()));
        assert_eq!(change.added.as_deref(), Some(&Segment::default()));
        assert_eq!(segments.tell("n2", Some(Segment::default())), Change::default());
        assert_eq!(segments.tell("n9", None), Change::default(), "a node that was never placed");
    }
}
