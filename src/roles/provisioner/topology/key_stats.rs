//! Counts the topology keys of the driver's nodes, and says when to tell that they differ. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::lookup::sorted;

/// Which warnings were logged. Each is logged once per term, and not for each claim.
#[derive(Debug, Default)]
pub struct TopologyWarnings {
    /// The topology keys of the nodes.
    keys: Mutex<TopologyKeyStats>,
    /// Whether the log says that an entry of the journal has no room for all topology segments.
    cut: AtomicBool,
}

impl TopologyWarnings {
    /// How many nodes report which keys.
    pub fn keys(&self) -> MutexGuard<'_, TopologyKeyStats> {
        self.keys.lock()
    }

    /// Whether the log does not say yet that an entry of the journal has no room for all topology segments. `true` once.
    pub fn tell_cut(&self) -> bool {
        !self.cut.swap(true, Ordering::Relaxed)
    }
}

/// The driver's nodes, counted by their topology keys. Nodes without keys do not count.
#[derive(Debug, Default)]
pub struct TopologyKeyStats {
    nodes: BTreeMap<Vec<String>, usize>,
    /// The key sets that warnings have named since all nodes agreed.
    reported: BTreeSet<Vec<String>>,
}

impl TopologyKeyStats {
    /// A node's keys have changed. `None`: the driver is not registered there.
    pub fn update(&mut self, old: Option<&[String]>, new: Option<&[String]>) {
        for keys in old.into_iter().filter(|keys| !keys.is_empty()).map(sorted) {
            if let Some(count) = self.nodes.get_mut(&keys) {
                *count -= 1;
                if *count == 0 {
                    self.nodes.remove(&keys);
                }
            }
        }
        for keys in new.into_iter().filter(|keys| !keys.is_empty()).map(sorted) {
            *self.nodes.entry(keys).or_default() += 1;
        }
    }

    /// The text of a warning that nodes have different keys: each key set with its number of nodes, the largest number first. The same
    /// key sets are reported once, and again only if all nodes have agreed in between.
    pub fn take_warning(&mut self) -> Option<String> {
        if self.nodes.len() < 2 {
            self.reported.clear();
            return None;
        }
        let key_sets: BTreeSet<Vec<String>> = self.nodes.keys().cloned().collect();
        if key_sets.is_subset(&self.reported) {
            return None;
        }
        self.reported.extend(key_sets);
        Some(self.list())
    }

    /// What the status page says while nodes have different keys: then a claim's request has segments of each key set.
    pub fn told(&self) -> Option<String> {
        let sets = self.nodes.len();
        (sets > 1)
            .then(|| format!("nodes of this driver report {sets} different sets of topology keys: {}", self.list()))
    }

    /// Each key set with its number of nodes, the largest number first.
    fn list(&self) -> String {
        let mut nodes: Vec<(&Vec<String>, &usize)> = self.nodes.iter().collect();
        // Most nodes first, then by the names of the keys.
        nodes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let each = nodes.into_iter().map(|(keys, count)| format!("{} on {count}", keys.join("+")));
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Option<Vec<String>> {
        (text != "-").then(|| text.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn nodes_with_different_keys_are_reported_once_until_they_agree_or_other_keys_come() {
        let mut stats = TopologyKeyStats::default();
        for (old, new, warning) in [
            ("-", "zone", None),
            ("-", "zone", None),
            // A node without keys does not count.
            ("-", "", None),
            ("-", "rack zone", Some("zone on 2, rack+zone on 1")),
            // The order of a node's keys does not matter.
            ("-", "zone rack", None),
            ("zone", "zone", None),
            ("-", "host", Some("rack+zone on 2, zone on 2, host on 1")),
            ("host", "-", None),
            ("-", "host", None),
            ("host", "-", None),
            ("zone rack", "zone", None),
            ("rack zone", "zone", None),
            // All nodes have agreed in between, so this is reported again.
            ("zone", "rack", Some("zone on 3, rack on 1")),
            // Removing an unknown node is a no-op.
            ("disk", "-", None),
            ("rack", "-", None),
            ("zone", "-", None),
        ] {
            stats.update(keys(old).as_deref(), keys(new).as_deref());
            assert_eq!(stats.take_warning().as_deref(), warning, "{old} -> {new}");
            assert_eq!(stats.take_warning(), None, "{old} -> {new}: reported again");
            // The page says it for as long as it is so.
            assert_eq!(stats.told().is_some(), stats.nodes.len() > 1, "{old} -> {new}");
            let words = warning.map(|warning| format!("different sets of topology keys: {warning}"));
            assert!(words.is_none_or(|words| stats.told().unwrap().ends_with(&words)), "{old} -> {new}");
        }
    }
}
