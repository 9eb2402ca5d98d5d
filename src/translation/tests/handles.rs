//! Repair of handles: migration spec 9.

use crate::translation::{is_same_volume, repair_handle};

const GCE: &str = "pd.csi.storage.gke.io";
const NODE: &str = "projects/p/zones/us-east1-b/instances/n";

#[test]
fn a_handle_of_gce_is_completed_by_its_nodes_id() {
    for (handle, expected) in [
        ("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", "projects/p/zones/us-east1-b/disks/d"),
        ("projects/UNSPECIFIED/zones/z/disks/d", "projects/p/zones/z/disks/d"),
        ("projects/UNSPECIFIED/regions/UNSPECIFIED/disks/d", "projects/p/regions/us-east1/disks/d"),
        ("projects/UNSPECIFIED/regions/r/disks/d/more", "projects/p/regions/r/disks/d"),
        ("projects/own/zones/UNSPECIFIED/disks/d", "projects/own/zones/UNSPECIFIED/disks/d"),
    ] {
        assert_eq!(repair_handle(GCE, handle, NODE).unwrap(), expected);
    }
}

#[test]
fn what_cannot_be_repaired_is_an_error() {
    let error = |handle: &str, node: &str| repair_handle(GCE, handle, node).unwrap_err().to_string();
    let handle = "projects/UNSPECIFIED/zones/z/disks/d";
    assert_eq!(error("d", NODE), "volume handle has wrong number of elements; got 1, wanted 6 or more");
    assert_eq!(error(handle, "n"), "node handle has wrong number of elements; got 1, wanted 6 or more");
    let odd = "projects/UNSPECIFIED/moons/z/disks/d";
    assert_eq!(error(odd, NODE), "expected volume handle to have zones or regions regionality value, got: moons");
    let regional = "projects/UNSPECIFIED/regions/UNSPECIFIED/disks/d";
    let error = error(regional, "projects/p/zones/odd/instances/n");
    assert!(error.starts_with("failed to get region from zone odd: zone in unexpected format"), "{error}");
}

#[test]
fn m5_no_other_drivers_handle_is_touched() {
    assert_eq!(repair_handle("ebs.csi.aws.com", "vol-1", "").unwrap(), "vol-1");
    let error = repair_handle("demo", "v", NODE).unwrap_err().to_string();
    assert_eq!(error, "could not find In-Tree driver name for CSI plugin demo");
}

#[test]
fn what_an_in_tree_source_cannot_say_makes_no_other_volume() {
    let (file, ebs) = ("file.csi.azure.com", "ebs.csi.aws.com");
    for (driver, one, other, same) in [
        (GCE, "projects/UNSPECIFIED/zones/z/disks/d", "projects/p/zones/z/disks/d", true),
        (GCE, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", "projects/p/zones/z/disks/d", true),
        (GCE, "projects/q/zones/z/disks/d", "projects/p/zones/z/disks/d", false),
        (GCE, "projects/UNSPECIFIED/zones/y/disks/d", "projects/p/zones/z/disks/d", false),
        (GCE, "projects/UNSPECIFIED/regions/z/disks/d", "projects/p/zones/z/disks/d", false),
        (GCE, "UNSPECIFIED", "d", false),
        (file, "group#account#share#pv#ns", "group#account#share#", true),
        (file, "group#account#share#pv#ns", "group#account#other#pv#ns", false),
        (file, "short", "short", false),
        (ebs, "vol-1", "vol-2", false),
        ("demo", "UNSPECIFIED", "v", false),
    ] {
        assert_eq!(is_same_volume(driver, one, other), same, "{driver}: {one}, {other}");
        assert_eq!(is_same_volume(driver, other, one), same, "{driver}: {other}, {one}");
    }
}
