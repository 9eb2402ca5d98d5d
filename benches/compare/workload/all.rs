//! Volumes that are provisioned and attached and have a snapshot each, among which there is nothing to do: what four sidecars hold
//! and ask for together, each in a process of its own, beside one process with the roles of all.

use std::ops::Range;

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::sandbox::driver::{Driver, Profile};
use serde_json::Value;

use super::{Attach, Both, Facts, Placed, Snapshot, There, Undo, Workload, snapshot};

/// Volumes with everything that four sidecars do for them.
pub(crate) struct All;

impl Workload for All {
    fn facts(&self) -> Facts {
        Facts {
            name: "all",
            sidecars: &["csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"],
            resources: &[
                "configmaps",
                "csidrivers",
                "csinodes",
                "events",
                "leases",
                "nodes",
                "persistentvolumeclaims",
                "persistentvolumes",
                "pods",
                "secrets",
                "storageclasses",
                "volumeattachments",
                "volumeattributesclasses",
                "volumesnapshotclasses",
                "volumesnapshotcontents",
            ],
            leases: &[
                "external-attacher-leader-demo-csi-example-com",
                "demo-csi-example-com",
                "external-resizer-demo-csi-example-com",
                "external-snapshotter-leader-demo-csi-example-com",
            ],
            ..Attach.facts()
        }
    }

    fn has_snapshots(&self) -> bool {
        true
    }

    fn elects_when_idle(&self) -> bool {
        true
    }

    fn suits(&self, kind: &str) -> bool {
        ["idle", "start"].contains(&kind)
    }

    fn undo(&self, name: &str, made: &str) -> Vec<Undo> {
        Attach.undo(name, made)
    }

    fn collections(&self) -> Vec<&'static str> {
        let mut collections = Both.collections();
        collections.push(snapshot::CONTENTS);
        collections
    }

    fn ground(&self) -> Vec<Placed> {
        let mut ground = Both.ground();
        ground.push(snapshot::class());
        ground
    }

    fn before(&self, number: usize) -> Vec<There> {
        Attach.before(number)
    }

    fn object(&self, number: usize) -> Value {
        Attach.object(number)
    }

    fn settled(&self, number: usize) -> Vec<There> {
        let mut all = Both.settled(number);
        all.push(snapshot::settled(number));
        all
    }

    fn profile(&self) -> Profile {
        let mut profile = Both.profile();
        let more = [Rpc::ExpandVolume, Rpc::ModifyVolume, Rpc::CreateDeleteSnapshot, Rpc::ListSnapshots];
        profile.controller.extend(more.map(|rpc| rpc as i32));
        profile.without_groups()
    }

    fn seed(&self, driver: &Driver, numbers: Range<usize>) {
        Attach.seed(driver, numbers);
    }

    fn seed_done(&self, driver: &Driver, numbers: Range<usize>) {
        Both.seed_done(driver, numbers.clone());
        Snapshot { polls: 0 }.seed_done(driver, numbers);
    }
}
