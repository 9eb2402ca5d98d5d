//! Where a journal is: the names of its objects, its driver and its node. Pure.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::cluster::ObjectName;
use crate::cluster::names::LABEL_JOURNAL;

/// The segments of a journal. An object is not larger than 512 KiB, so 16 objects hold several thousand entries. A new leader
/// reads all of them at once.
pub const SEGMENTS: usize = 16;

/// The version of the segments' format.
pub(super) const VERSION: &str = "1";

/// The longest name that the API allows for a ConfigMap.
const LONGEST_NAME: usize = 253;
/// The longest stem that leaves room for `-journal-15`.
const LONGEST_STEM: usize = LONGEST_NAME - "-journal-15".len();
/// The hexadecimal digits that replace the end of a stem which is too long.
const DIGITS: usize = 16;

/// Where the segments of a journal are, and which driver and node they belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The namespace of the segments: the daemon's own.
    pub namespace: String,
    /// The beginning of the segments' names: the Lease's name; with node deployment, `-` and the node's name follow.
    pub stem: String,
    /// The driver.
    pub driver: String,
    /// The node, with node deployment.
    pub node: Option<String>,
}

impl Place {
    /// The journal of one node, beside this one of all nodes.
    #[must_use]
    pub fn of_node(&self, node: &str) -> Self {
        Self { stem: format!("{}-{node}", self.stem), node: Some(node.to_owned()), ..self.clone() }
    }

    /// The address of a segment.
    pub fn segment(&self, n: usize) -> ObjectName {
        ObjectName::namespaced(&self.namespace, segment_name(&self.stem, n))
    }

    /// The names of all segments of this stem.
    pub fn names(stem: &str) -> Vec<String> {
        (0..SEGMENTS).map(|n| segment_name(stem, n)).collect()
    }
}

/// Selects the segments of the driver, on all nodes.
pub(super) fn selector(driver: &str) -> String {
    format!("{LABEL_JOURNAL}={driver}")
}

fn segment_name(stem: &str, n: usize) -> String {
    if stem.len() <= LONGEST_STEM {
        return format!("{stem}-journal-{n}");
    }
    let mut digest = String::with_capacity(2 * DIGITS);
    for byte in Sha256::digest(stem).iter().take(DIGITS / 2) {
        // Writing into a String cannot fail.
        let _ = write!(digest, "{byte:02x}");
    }
    // Names of objects are ASCII. A dot before the dash would make an invalid name.
    let kept: String = stem.chars().take(LONGEST_STEM - DIGITS - 1).collect();
    format!("{}-{digest}-journal-{n}", kept.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn place(stem: &str) -> Place {
        Place { namespace: "storage".into(), stem: stem.into(), driver: "demo.csi".into(), node: None }
    }

    #[test]
    fn segments_are_named_after_the_lease() {
        assert_eq!(place("demo-csi").segment(3).to_string(), "storage/demo-csi-journal-3");
        let names = Place::names("demo-csi-node-1.example.com");
        assert_eq!((names.len(), names[15].as_str()), (16, "demo-csi-node-1.example.com-journal-15"));
        assert_eq!(selector("demo.csi"), "csi-control-plane.io/journal=demo.csi");
    }

    #[test]
    fn a_stem_that_is_too_long_is_shortened_to_a_valid_name_of_its_own() {
        let longest = "a".repeat(LONGEST_STEM);
        assert_eq!(Place::names(&longest)[15].len(), LONGEST_NAME);
        let stems = [format!("{longest}a"), format!("{longest}b"), "a.".repeat(200), format!("{}.b", "a".repeat(300))];
        let mut seen = BTreeSet::new();
        for stem in stems {
            for name in Place::names(&stem) {
                assert!(name.len() <= LONGEST_NAME && !name.contains(".-") && !name.contains("--"), "{name}");
                assert!(seen.insert(name));
            }
        }
    }
}
