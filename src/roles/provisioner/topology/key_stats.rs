//! Which topology keys the driver's nodes tell, and what people should hear of it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::lookup::sorted;

/// The nodes of a driver, counted by their topology keys. Nodes without keys don't count: they don't vote either
/// ([`vote`](super::vote)).
#[derive(Debug, Default)]
pub struct TopologyKeyStats {
    nodes: BTreeMap<Vec<String>, usize>,
    /// The kinds of keys that people have heard of, in one sentence that said that they differ.
    told: BTreeSet<Vec<String>>,
}

impl TopologyKeyStats {
    /// A node's keys have changed. `None`: it has not, or no longer, the driver.
    pub fn see(&mut self, old: Option<&[String]>, new: Option<&[String]>) {
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

    /// The kinds of keys and how many nodes have each, most first, once: until other kinds come, or all nodes had agreed.
    pub fn news(&mut self) -> Option<String> {
        if self.nodes.len() < 2 {
            self.told.clear();
            return None;
        }
        let kinds: BTreeSet<Vec<String>> = self.nodes.keys().cloned().collect();
        if kinds.is_subset(&self.told) {
            return None;
        }
        self.told.extend(kinds);
        let mut nodes: Vec<(&Vec<String>, &usize)> = self.nodes.iter().collect();
        // As the vote goes: most nodes first, of equally many those whose keys come first by name.
        nodes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let each = nodes.into_iter().map(|(keys, count)| format!("{} on {count}", keys.join("+")));
        Some(each.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Option<Vec<String>> {
        (text != "-").then(|| text.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn nodes_that_disagree_about_keys_are_told_once_until_they_agree_or_others_come() {
        let mut book = TopologyKeyStats::default();
        for (old, new, told) in [
            ("-", "zone", None),
            ("-", "zone", None),
            // Without keys: no opinion.
            ("-", "", None),
            ("-", "rack zone", Some("zone on 2, rack+zone on 1")),
            // The order that a node tells them in is none.
            ("-", "zone rack", None),
            ("zone", "zone", None),
            ("-", "host", Some("rack+zone on 2, zone on 2, host on 1")),
            ("host", "-", None),
            ("-", "host", None),
            ("host", "-", None),
            ("zone rack", "zone", None),
            ("rack zone", "zone", None),
            // They have agreed meanwhile, so that it is news again.
            ("zone", "rack", Some("zone on 3, rack on 1")),
            // Of a node that nobody knew nothing is taken away.
            ("disk", "-", None),
            ("rack", "-", None),
            ("zone", "-", None),
        ] {
            book.see(keys(old).as_deref(), keys(new).as_deref());
            assert_eq!(book.news().as_deref(), told, "{old} -> {new}");
            assert_eq!(book.news(), None, "{old} -> {new}: said again");
        }
    }
}
