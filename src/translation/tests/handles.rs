//! Repair of handles: migration spec 9.

use crate::translation::repair_handle;

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
