//! Contents of snapshots become ready, and are deleted again: csi-snapshotter's work.
//!
//! The bench plays the snapshot-controller, the same for everyone: it creates a content with its finalizer, and to have it deleted
//! marks it and deletes it. The real controller would do so with requests and a pace of its own, on the same cores.

use std::ops::Range;

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::roles::snapshotter::names;
use csi_control_plane::sandbox::driver::{Driver, Method, Profile};
use serde_json::{Value, json};

use super::{Facts, Placed, There, Undo, Workload, life};
use crate::write::{Write, Writes, mark};
use crate::{report, support};

pub(super) const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
const CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
const API: &str = "snapshot.storage.k8s.io/v1";
const CLASS: &str = "snapshots";

/// Contents of snapshots become ready after so many answers that say that they are not, and are deleted.
pub(crate) struct Snapshot {
    pub(crate) polls: u32,
}

fn name(number: usize) -> String {
    format!("snapcontent-{number}")
}

/// The snapshot that the driver has of the volume of a number.
fn snapshot(number: usize) -> String {
    format!("snapshot-of-{number}")
}

/// The class of all of them.
pub(super) fn class() -> Placed {
    let object = json!({ "apiVersion": API, "kind": "VolumeSnapshotClass", "metadata": { "name": CLASS },
        "driver": support::DRIVER, "deletionPolicy": "Delete" });
    Placed { collection: CLASSES, object }
}

fn content(number: usize) -> Value {
    json!({
        "apiVersion": API, "kind": "VolumeSnapshotContent",
        "metadata": { "name": name(number), "finalizers": [names::FINALIZER_BOUND_CONTENT] },
        "spec": {
            "driver": support::DRIVER, "deletionPolicy": "Delete", "volumeSnapshotClassName": CLASS,
            "sourceVolumeMode": "Filesystem", "source": { "volumeHandle": support::handle(number) },
            "volumeSnapshotRef": { "apiVersion": API, "kind": "VolumeSnapshot", "namespace": "default",
                "name": snapshot(number), "uid": format!("{number:08}-0000-4000-8000-000000000000") },
        },
    })
}

fn status(handle: &str) -> Value {
    json!({ "snapshotHandle": handle, "creationTime": 1_767_225_600_000_000_000_i64, "readyToUse": true,
        "restoreSize": 1 << 30 })
}

/// The content of a number whose snapshot is ready.
pub(super) fn settled(number: usize) -> There {
    let content = Placed { collection: CONTENTS, object: content(number) };
    There::Object(content, Some(status(&snapshot(number))))
}

impl Workload for Snapshot {
    fn facts(&self) -> Facts {
        Facts {
            name: if self.polls == 0 { "snapshot" } else { "polled-snapshot" },
            sidecars: &["csi-snapshotter"],
            verbs: ["snapshot", "delete"],
            collection: CONTENTS,
            watched: &[CONTENTS],
            reading: |content, is_gone| life(content, content["status"]["readyToUse"] == true, is_gone),
            resources: &["volumesnapshotcontents", "volumesnapshotclasses", "events", "secrets"],
            leases: &["external-snapshotter-leader-demo-csi-example-com"],
            methods: [Method::CreateSnapshot, Method::DeleteSnapshot],
        }
    }

    fn suits(&self, kind: &str) -> bool {
        kind == "burst" || self.polls == 0 && ["single", "start", "failover", "cut"].contains(&kind)
    }

    /// csi-snapshotter that is behind with its watch when the driver answers waits for its next resync.
    fn may_stall(&self) -> bool {
        self.polls > 0
    }

    fn has_snapshots(&self) -> bool {
        true
    }

    fn undo(&self, name: &str, _made: &str) -> Vec<Undo> {
        let mark = json!({ "metadata": { "annotations": { names::ANNOTATION_SNAPSHOT_BEING_DELETED: names::YES } } });
        vec![Undo::Merge(CONTENTS, name.to_owned(), "", mark), Undo::Delete(CONTENTS, name.to_owned())]
    }

    fn collections(&self) -> Vec<&'static str> {
        vec![CONTENTS]
    }

    fn ground(&self) -> Vec<Placed> {
        vec![class()]
    }

    fn before(&self, _number: usize) -> Vec<There> {
        Vec::new()
    }

    fn object(&self, number: usize) -> Value {
        content(number)
    }

    fn settled(&self, number: usize) -> Vec<There> {
        vec![settled(number)]
    }

    fn bare(&self) -> &'static [(&'static str, Writes)] {
        &[(report::BARE, |number| {
            let finalizer = names::FINALIZER_BOUND_CONTENT;
            let intent = json!({ "name": snapshot(number), "source": support::handle(number) }).to_string();
            let mut begun = mark(finalizer, names::ANNOTATION_SNAPSHOTTING, &intent);
            begun["metadata"]["annotations"][names::ANNOTATION_SNAPSHOT_BEING_CREATED] = names::YES.into();
            let ended = json!({ "metadata": { "annotations": {
                names::ANNOTATION_SNAPSHOT_BEING_CREATED: null, names::ANNOTATION_SNAPSHOTTING: null,
            } } });
            vec![
                Write::Merge(CONTENTS, name(number), "", begun),
                Write::Merge(CONTENTS, name(number), "/status", json!({ "status": status(&snapshot(number)) })),
                Write::Merge(CONTENTS, name(number), "", ended),
            ]
        })]
    }

    fn profile(&self) -> Profile {
        let able = [Rpc::CreateDeleteVolume, Rpc::CreateDeleteSnapshot, Rpc::ListSnapshots];
        let controller = able.into_iter().map(|rpc| rpc as i32).collect();
        Profile { controller, snapshot_ready_polls: self.polls, ..Profile::default() }.without_groups()
    }

    fn seed_done(&self, driver: &Driver, numbers: Range<usize>) {
        self.seed(driver, numbers);
    }
}
