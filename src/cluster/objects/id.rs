//! Whether two ids of a driver may be of one thing: the only place that decides it. Pure.
//!
//! CSI has ids that only the driver can read. A cloud may ignore letters' case, though, and several objects may spell one volume in
//! several ways: a person who imports it, a cloud that has changed how it writes a resource group, an in-tree source that has no place
//! for a part of the driver's id. To take one volume for two means to delete data that is in use. To take two volumes for one means
//! to keep one too many, and to say so. So a doubt counts as the same, also with a driver that is not known here: ids that differ in
//! nothing but the case of letters are one volume's far more often than two.

use base::InTree;

use crate::process::folded;

/// What an in-tree source or the library that translates it writes for a part of an id that it does not know.
pub const UNSPECIFIED: &str = "UNSPECIFIED";

/// The driver of Azure's containers. It was never part of Kubernetes.
const AZURE_BLOB: &str = "blob.csi.azure.com";

/// How many parts an id of a disk of Google's cloud has at least: `projects/P/zones/Z/disks/D`.
const GCE_PARTS: usize = 6;

/// What an id is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// A volume.
    Volume,
    /// A snapshot, or a group of them.
    Snapshot,
}

impl IdKind {
    /// The key of an id in an index. Ids that [may be the same](Self::may_be_same) have the same key. With the same key they almost
    /// always are: only a disk of Google's cloud is told from another of its name by more than the key.
    pub fn key(self, driver: &str, id: &str) -> String {
        match (self, driver) {
            (Self::Volume, AZURE_BLOB) => azure_share(id),
            (Self::Volume, driver) => match InTree::of_driver(driver) {
                Some(InTree::AzureFile) => azure_share(id),
                Some(InTree::GcePersistentDisk) => gce_disk(id),
                _ => None,
            },
            (Self::Snapshot, _) => None,
        }
        .unwrap_or_else(|| folded(id))
    }

    /// Whether two ids of a driver may be of one volume, or of one snapshot. Reflexive and symmetric; transitive as far as each id
    /// says all of its parts.
    pub fn may_be_same(self, driver: &str, one: &str, other: &str) -> bool {
        self.key(driver, one) == self.key(driver, other)
            && (self == Self::Snapshot || may_be_same_disk(driver, one, other))
    }
}

/// Account and share, or container, of `group#account#share#…`. The name of an account is unique in the whole cloud, so the group says
/// no more, and an in-tree source may lack it. What follows the share differs with who has written the id, not with the share; the
/// driver deletes the share as a whole.
fn azure_share(id: &str) -> Option<String> {
    let mut parts = id.split('#').skip(1);
    let (account, share) = (parts.next()?, parts.next()?);
    Some(folded(&format!("{account}#{share}")))
}

/// The name of a disk of Google's cloud: project and zone may be unknown.
fn gce_disk(id: &str) -> Option<String> {
    folded(id).split('/').nth(GCE_PARTS - 1).map(|disk| format!("disks/{disk}"))
}

/// Whether two disks of one key differ in no part that both say. An in-tree source has no place for the project.
fn may_be_same_disk(driver: &str, one: &str, other: &str) -> bool {
    let (one, other) = (folded(one), folded(other));
    if InTree::of_driver(driver) != Some(InTree::GcePersistentDisk) || one == other {
        return true;
    }
    let (one, other): (Vec<&str>, Vec<&str>) = (one.split('/').collect(), other.split('/').collect());
    let is_unknown = |part: &str| part.eq_ignore_ascii_case(UNSPECIFIED);
    one.len() == other.len() && one.iter().zip(&other).all(|(a, b)| a == b || is_unknown(a) || is_unknown(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GCE: &str = "pd.csi.storage.gke.io";
    const DISK: &str = "disk.csi.azure.com";
    const FILE: &str = "file.csi.azure.com";

    #[test]
    fn one_volume_may_be_spelled_in_several_ways() {
        let (named, listed) = (
            "/subscriptions/S-1/resourceGroups/MC_RG/providers/Microsoft.Compute/disks/d1",
            "/subscriptions/s-1/resourcegroups/mc_rg/providers/microsoft.compute/disks/d1",
        );
        for (driver, one, other, same) in [
            (DISK, named, listed, true),
            ("renamed.example.com", named, listed, true),
            (DISK, named, &listed.replace("d1", "d2"), false),
            (
                DISK,
                "https://Acct.blob.core.windows.net/vhds/d.vhd",
                "https://acct.blob.core.windows.net/vhds/D.vhd",
                true,
            ),
            (FILE, "Group#account#Share#pv#ns", "group#Account#share#", true),
            (FILE, "#account#share#pv#ns", "group#account#share", true),
            (FILE, "group#account#share#pv#ns", "group#account#other#pv#ns", false),
            (FILE, "group#account#share", "group#other#share", false),
            (FILE, "short", "SHORT", true),
            (FILE, "short", "other", false),
            (AZURE_BLOB, "rg#account#container#uuid#ns", "RG#account#container", true),
            ("demo", "rg#account#container#uuid", "rg#account#container", false),
            (GCE, "projects/UNSPECIFIED/zones/z/disks/d", "projects/p/zones/z/disks/d", true),
            (GCE, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", "projects/p/zones/z/disks/d", true),
            (GCE, "projects/P/zones/z/disks/d", "projects/p/zones/Z/disks/d", true),
            (GCE, "projects/q/zones/z/disks/d", "projects/p/zones/z/disks/d", false),
            (GCE, "projects/UNSPECIFIED/zones/y/disks/d", "projects/p/zones/z/disks/d", false),
            (GCE, "projects/UNSPECIFIED/regions/z/disks/d", "projects/p/zones/z/disks/d", false),
            (GCE, "UNSPECIFIED", "d", false),
            ("ebs.csi.aws.com", "vol-1", "vol-2", false),
            ("csi.vsphere.vmware.com", "[ds] kubevols/A.vmdk", "[ds] kubevols/a.vmdk", true),
            ("demo", "UNSPECIFIED", "v", false),
        ] {
            assert_eq!(IdKind::Volume.may_be_same(driver, one, other), same, "{driver}: {one}, {other}");
            assert_eq!(IdKind::Volume.may_be_same(driver, other, one), same, "{driver}: {other}, {one}");
        }
    }

    #[test]
    fn the_snapshots_of_one_share_are_several() {
        let (one, other) = ("rg#account#share###2026-01-01T00:00:00Z", "rg#account#share###2026-01-02T00:00:00Z");
        assert!(!IdKind::Snapshot.may_be_same(FILE, one, other));
        assert!(IdKind::Snapshot.may_be_same(FILE, one, &one.to_ascii_uppercase()));
    }

    /// Ids of few parts, so that many are the same.
    fn id() -> impl Strategy<Value = (&'static str, String)> {
        let driver = prop_oneof![Just(GCE), Just(DISK), Just(FILE), Just(AZURE_BLOB), Just("demo")];
        let part = prop_oneof![Just("a"), Just("A"), Just("b"), Just(UNSPECIFIED), Just("")];
        let parts = || proptest::collection::vec(part.clone(), 1..4).prop_map(|parts| parts.join("#"));
        let disk = (part.clone(), part.clone(), part.clone());
        let disk = disk.prop_map(|(p, z, d)| format!("projects/{p}/zones/{z}/disks/{d}"));
        (driver, prop_oneof![parts(), disk])
    }

    proptest! {
        #[test]
        fn the_same_is_an_equivalence_as_far_as_all_is_said((driver, a) in id(), (_, b) in id(), (_, c) in id()) {
            for kind in [IdKind::Volume, IdKind::Snapshot] {
                let same = |one: &str, other: &str| kind.may_be_same(driver, one, other);
                prop_assert!(same(&a, &a));
                prop_assert_eq!(same(&a, &b), same(&b, &a));
                prop_assert!(!same(&a, &b) || kind.key(driver, &a) == kind.key(driver, &b));
                let says_all = driver != GCE || ![&a, &b, &c].iter().any(|id| id.contains(UNSPECIFIED));
                if says_all && same(&a, &b) && same(&b, &c) {
                    prop_assert!(same(&a, &c));
                }
            }
        }
    }
}
