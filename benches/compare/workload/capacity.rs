//! The scheduler is told how much room a driver has in each of many segments for each of a few classes: csi-provisioner's work with
//! `--enable-capacity`.

use std::ops::Range;

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::proto::plugin_capability::service::Type as Service;
use csi_control_plane::sandbox::driver::{Driver, Method, Profile};
use serde_json::{Value, json};

use super::attach::NODES;
use super::provision::{CLASSES, Provision};
use super::{Facts, Moment, Placed, There, Undo, Workload};
use crate::support;

const CAPACITIES: &str = "/apis/storage.k8s.io/v1/namespaces/kube-system/csistoragecapacities";
const ALL_NODES: &str = "/api/v1/nodes";
const ZONE: &str = "topology.example.com/zone";
/// So many classes have a capacity in each segment.
pub(crate) const CLASS_COUNT: usize = 3;

/// The scheduler is told how much room there is.
pub(crate) struct Capacity {
    /// So many segments, each of one node.
    pub(crate) segments: usize,
}

fn zone(number: usize) -> String {
    format!("zone-{number}")
}

impl Capacity {
    fn node(number: usize) -> [Placed; 2] {
        let name = format!("node-{number:05}");
        let driver = json!({ "name": support::DRIVER, "nodeID": name, "topologyKeys": [ZONE] });
        let registered = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": name },
            "spec": { "drivers": [driver] },
        });
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { ZONE: zone(number) } },
        });
        [Placed { collection: ALL_NODES, object: node }, Placed { collection: NODES, object: registered }]
    }

    fn class(number: usize) -> Placed {
        let object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": format!("class-{number}") },
            "provisioner": support::DRIVER, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
        });
        Placed { collection: CLASSES, object }
    }
}

impl Workload for Capacity {
    fn facts(&self) -> Facts {
        Facts {
            name: "capacity",
            sidecars: Provision.facts().sidecars,
            verbs: ["refresh", "again"],
            collection: CAPACITIES,
            watched: &[CAPACITIES],
            reading: |object, _| {
                // By what it is about: an object that is there twice is done once.
                let place = &object["nodeTopology"]["matchLabels"][ZONE];
                let name =
                    format!("{}/{}", object["storageClassName"].as_str().unwrap(), place.as_str().unwrap_or_default());
                (name, vec![Moment::Begun, Moment::Done])
            },
            resources: &["csistoragecapacities", "storageclasses", "csidrivers", "csinodes", "nodes", "events", "pods"],
            leases: Provision.facts().leases,
            methods: [Method::GetCapacity, Method::GetCapacity],
        }
    }

    fn tells_capacity(&self) -> bool {
        true
    }

    fn size(&self) -> usize {
        self.segments * CLASS_COUNT
    }

    fn suits(&self, kind: &str) -> bool {
        kind == "refresh"
    }

    fn undo(&self, _name: &str, made: &str) -> Vec<Undo> {
        vec![Undo::Delete(CAPACITIES, made.to_owned())]
    }

    fn collections(&self) -> Vec<&'static str> {
        vec![CAPACITIES]
    }

    fn ground(&self) -> Vec<Placed> {
        (0..CLASS_COUNT).map(Self::class).chain((0..self.segments).flat_map(Self::node)).collect()
    }

    fn before(&self, _number: usize) -> Vec<There> {
        Vec::new()
    }

    fn object(&self, _number: usize) -> Value {
        unreachable!("the contender makes them, nobody asks for one")
    }

    fn settled(&self, _number: usize) -> Vec<There> {
        Vec::new()
    }

    fn profile(&self) -> Profile {
        let controller = [Rpc::CreateDeleteVolume as i32, Rpc::GetCapacity as i32].into_iter().collect();
        let segments = (0..self.segments).map(|number| [(ZONE.to_owned(), zone(number))].into()).collect();
        let mut profile = Profile { controller, segments, ..Profile::default() };
        profile.services.insert(Service::VolumeAccessibilityConstraints as i32);
        profile
    }

    fn seed(&self, _driver: &Driver, _numbers: Range<usize>) {}

    fn seed_done(&self, _driver: &Driver, _numbers: Range<usize>) {}
}
