//! What the journals of nodes that are gone may have left over: for the status page and the metric.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::diagnostics::Cell;
use crate::journal::{self, LostEntry};
use crate::roles::provisioner::claims::entry::Entry;
use crate::roles::provisioner::journal::left_row;
use crate::telemetry::{Meter, TermGauge, names};

/// What may be left over on nodes that are gone, by node.
#[derive(Debug)]
pub struct LostNodes {
    entries: Mutex<BTreeMap<String, Vec<LostEntry<Entry>>>>,
    gauge: TermGauge,
}

impl LostNodes {
    /// Nothing is known yet.
    pub fn new(meter: &Meter, driver: &str) -> Self {
        let gauge = TermGauge::new(meter, &names::JOURNAL_LOST, &[("driver_name", driver)]);
        Self { entries: Mutex::default(), gauge }
    }

    /// Replaces the entries of a node. Returns those that are new.
    pub(super) fn put(&self, node: &str, found: Vec<LostEntry<Entry>>) -> Vec<LostEntry<Entry>> {
        let mut entries = self.entries.lock();
        let known = entries.remove(node).unwrap_or_default();
        let is_new = |entry: &&LostEntry<Entry>| !known.iter().any(|known| known.key == entry.key);
        let new = found.iter().filter(is_new).cloned().collect();
        if !found.is_empty() {
            entries.insert(node.to_owned(), found);
        }
        self.show(&entries);
        new
    }

    /// Forgets the nodes that have no segments any more.
    pub(super) fn retain(&self, nodes: &BTreeSet<String>) {
        let mut entries = self.entries.lock();
        entries.retain(|node, _| nodes.contains(node));
        self.show(&entries);
    }

    fn show(&self, entries: &BTreeMap<String, Vec<LostEntry<Entry>>>) {
        self.gauge.count(entries.values().map(Vec::len).sum());
    }

    /// Whether there are no entries.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.lock().is_empty()
    }

    /// The rows of the table of volumes that may be left over.
    pub fn rows(&self, now: Timestamp) -> Vec<Vec<Cell>> {
        let entries = self.entries.lock();
        let all = entries.iter().flat_map(|(node, entries)| entries.iter().map(move |entry| (node, entry)));
        let row = |(node, LostEntry { segment, key, content }): (&String, &LostEntry<Entry>)| {
            let content = content.as_ref().map(|(at, entry)| (*at, entry));
            let why = format!("its node \"{node}\" is gone, and only the driver there can finish the request");
            left_row(content, now, why, journal::remedy(segment, key))
        };
        all.map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ObjectName;

    #[test]
    fn an_entry_is_new_once_and_is_counted_until_its_node_is_back_or_a_person_has_deleted_it() {
        let meter = Meter::default();
        let lost = LostNodes::new(&meter, "demo");
        let counted = || {
            let text = meter.render();
            let line = text.lines().find(|line| line.starts_with("csi_control_plane_journal_lost_node_entries{"));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).unwrap()
        };
        let entries = |keys: &[&str]| -> Vec<LostEntry<Entry>> {
            let segment = ObjectName::namespaced("storage", "demo-n1-journal-0");
            keys.iter().map(|&key| LostEntry { segment: segment.clone(), key: key.into(), content: None }).collect()
        };
        for (node, found, new, count) in [
            ("n1", entries(&["a"]), entries(&["a"]), 1),
            ("n1", entries(&["a", "b"]), entries(&["b"]), 2),
            ("n2", entries(&["c"]), entries(&["c"]), 3),
            ("n1", entries(&["b"]), entries(&[]), 2),
            ("n2", entries(&[]), entries(&[]), 1),
        ] {
            assert_eq!((lost.put(node, found), counted()), (new, count), "{node}");
        }
        let rows = lost.rows(Timestamp::UNIX_EPOCH);
        let [claim, volume, age, why, remedy] = &rows[0][..] else { panic!("{rows:?}") };
        assert_eq!([claim, volume, age], [&Cell::from(None::<String>); 3], "the value is no entry");
        assert!(format!("{why:?}").contains("its node \\\"n1\\\" is gone"), "{why:?}");
        assert!(format!("{remedy:?}").contains("kubectl -n storage patch configmap demo-n1-journal-0"), "{remedy:?}");
        lost.retain(&BTreeSet::new());
        assert_eq!((lost.is_empty(), counted()), (true, 0));
    }
}
