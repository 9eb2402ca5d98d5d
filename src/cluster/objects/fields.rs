//! Groups of fields that a cache holds only while a hosted role reads them.
//!
//! A role says which it needs where it asks for the cache. Objects keep such a group behind one pointer, so that it costs
//! the objects of a daemon without that role nothing: the pointer is in what the slimmer metadata has freed.

use std::ops::BitOr;

/// Groups of fields of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fields(u8);

impl Fields {
    /// What each role may rely on, and no more.
    pub const NONE: Self = Self(0);
    /// What a resizer reads of claims and volumes: sizes, attributes classes, states and conditions of both jobs. The size of a volume is
    /// also what the published capacities depend on.
    pub const RESIZE: Self = Self(1);
    /// What an attach/detach controller reads, for all drivers: who controls a claim, which volumes a node has, when pods stop using
    /// theirs, which volume a `PersistentVolume` and an attachment are of, and whether another such controller is active (attach-detach
    /// spec 1, 2).
    pub const ATTACH: Self = Self(2);
    /// What a health monitor reads of claims and pods: the health that was told, and the node (node-and-health spec C4).
    pub const HEALTH: Self = Self(4);
    /// What a translation reads of the in-tree volumes and classes whose successor is our driver (migration spec 11). For any other
    /// driver this is nothing.
    pub const MIGRATION: Self = Self(8);
    /// What the provisioner of a node reads of our claims that have a volume: the node that was selected. A volume that the driver creates
    /// for a claim of another node is not the claim's, also once the claim is bound.
    pub const SELECTED_NODE: Self = Self(16);

    /// Whether all of `other` is among these.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Fields {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
