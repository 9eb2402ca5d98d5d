//! The segments of the driver's nodes, each once for all its nodes. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::segment::Segment;

/// The segments of the driver's nodes, by value. A change of one node costs no look at the others.
#[derive(Debug, Clone, Default)]
pub struct Segments {
    by_node: BTreeMap<String, Arc<Segment>>,
    nodes_in: BTreeMap<Arc<Segment>, usize>,
}

/// How a change of one node changes the segments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// A segment that had no node before.
    pub added: Option<Arc<Segment>>,
    /// A segment that has no node any more.
    pub removed: Option<Arc<Segment>>,
}

impl Segments {
    /// The driver is in `segment` on this node now, or in no segment any more.
    ///
    /// A driver that registers without topology keys is in the empty segment, which is everywhere.
    pub fn set(&mut self, node: &str, segment: Option<Segment>) -> Change {
        if self.by_node.get(node).map(AsRef::as_ref) == segment.as_ref() {
            return Change::default();
        }
        let mut change = Change::default();
        if let Some(segment) = segment {
            let held = self.nodes_in.get_key_value(&segment).map(|(held, _)| Arc::clone(held));
            let segment = held.unwrap_or_else(|| {
                let segment = Arc::new(segment);
                change.added = Some(Arc::clone(&segment));
                segment
            });
            *self.nodes_in.entry(Arc::clone(&segment)).or_default() += 1;
            change.removed = self.by_node.insert(node.to_owned(), segment).and_then(|left| self.leave(left));
        } else {
            change.removed = self.by_node.remove(node).and_then(|left| self.leave(left));
        }
        change
    }

    /// One node less is in the segment. Returns it if that was the last one.
    fn leave(&mut self, segment: Arc<Segment>) -> Option<Arc<Segment>> {
        let nodes = self.nodes_in.get_mut(&segment)?;
        *nodes -= 1;
        if *nodes > 0 {
            return None;
        }
        self.nodes_in.remove(&segment);
        Some(segment)
    }

    /// Every segment, in order, so that the driver is always asked in the same order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.nodes_in.keys()
    }

    /// The segment that equals this one, if a node is in it.
    pub fn find(&self, segment: &Segment) -> Option<&Arc<Segment>> {
        self.nodes_in.get_key_value(segment).map(|(held, _)| held)
    }

    /// How many segments there are.
    pub fn len(&self) -> usize {
        self.nodes_in.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes_in.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(value: &str) -> Segment {
        Segment::new([("zone", value)])
    }

    fn changed(added: Option<&str>, removed: Option<&str>) -> Change {
        Change { added: added.map(|value| Arc::new(zone(value))), removed: removed.map(|value| Arc::new(zone(value))) }
    }

    #[test]
    fn nodes_at_one_place_make_one_segment_r2() {
        let mut segments = Segments::default();
        assert_eq!(segments.set("n1", Some(zone("z1"))), changed(Some("z1"), None));
        assert_eq!(segments.set("n2", Some(zone("z1"))), Change::default());
        assert_eq!(segments.set("n2", Some(zone("z1"))), Change::default(), "the same again");
        assert_eq!(segments.len(), 1);
        assert_eq!(segments.set("n1", None), Change::default(), "another node is still there");
        assert_eq!(segments.set("n2", None), changed(None, Some("z1")));
        assert!(segments.is_empty());
    }

    #[test]
    fn a_node_that_moves_leaves_one_segment_and_makes_another() {
        let mut segments = Segments::default();
        segments.set("n1", Some(zone("z1")));
        assert_eq!(segments.set("n1", Some(zone("z2"))), changed(Some("z2"), Some("z1")));
        segments.set("n2", Some(zone("z3")));
        assert_eq!(segments.set("n1", Some(zone("z3"))), changed(None, Some("z2")));
        assert_eq!(segments.find(&zone("z3")).map(AsRef::as_ref), Some(&zone("z3")));
        assert_eq!(segments.find(&zone("z1")), None);
        assert_eq!(segments.len(), 1, "both are there");
    }

    #[test]
    fn a_driver_without_topology_has_one_segment_everywhere() {
        let mut segments = Segments::default();
        let change = segments.set("n1", Some(Segment::default()));
        assert_eq!(change.added.as_deref(), Some(&Segment::default()));
        assert_eq!(segments.set("n2", Some(Segment::default())), Change::default());
        assert_eq!(segments.set("n9", None), Change::default(), "a node that never had a segment");
    }
}
