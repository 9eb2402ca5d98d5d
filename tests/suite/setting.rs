//! The driver as the suite is told of it, and the cluster that the suite runs on.

use std::path::{Path, PathBuf};
use std::process::Command;

use csi_control_plane::proto::plugin_capability::service;
use csi_control_plane::sandbox::driver::Profile;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use serde_json::{Value, json};

use super::options::Options;
use crate::node::images;
use crate::node::lab::{CLASS, Lab, NAME, NAMESPACE, Plan, values_of_the_chart};
use crate::programs;

/// A part of the names of specs that are not run, and the reason.
pub(super) const LEFT_OUT: (&str, &str) =
    ("any volume data source", "wants a populator of volumes, whose image is in a registry alone");
/// A part of the names of specs that change claims before a pod uses them: their class has to bind at once.
pub(super) const AT_ONCE: &str = "multiple pods should modify volumes with a different volumeAttributesClass";

/// The key of the driver's topology.
const ZONE: &str = "topology.demo.csi.example.com/zone";
/// The zone of each node. Two of one zone, for the specs that move a volume; and another, for those that must not.
const ZONES: [&str; 3] = ["a", "a", "b"];
/// The class that volumes are changed to.
const FASTER: &str = "faster";
/// The Go sidecars of a controller.
const SIDECARS: [(&str, &[&str]); 4] = [
    ("csi-attacher", &[]),
    (
        "csi-provisioner",
        &[
            "--enable-capacity",
            "--capacity-for-immediate-binding",
            "--capacity-ownerref-level=2",
            "--extra-create-metadata",
        ],
    ),
    ("csi-resizer", &[]),
    ("csi-snapshotter", &["--extra-create-metadata"]),
];

/// The driver, in the suite's words: with each capability that it has. Its volumes are in a zone: but for specs that need no pod, they
/// are made where the pod is to run.
pub(super) fn description(at_once: bool) -> Value {
    let capabilities = [
        "persistence",
        "block",
        "fsGroup",
        "exec",
        "snapshotDataSource",
        "groupSnapshot",
        "pvcDataSource",
        "multipods",
        "RWX",
        "controllerExpansion",
        "nodeExpansion",
        "offlineExpansion",
        "onlineExpansion",
        "topology",
        "capacity",
        "readWriteOncePod",
        "multiplePVsSameID",
        "capReadOnlyMany",
        // Its volumes are folders: the file system that a pod sees is the node's, and has its size. csi-driver-host-path says the same.
        "FSResizeFromSourceNotSupported",
    ];
    let capabilities: serde_json::Map<_, _> = capabilities.map(|it| (it.to_owned(), true.into())).into_iter().collect();
    let class = if at_once { json!({"FromName": true}) } else { json!({"FromExistingClassName": CLASS}) };
    json!({
        "StorageClass": class,
        "SnapshotClass": {"FromName": true},
        "GroupSnapshotClass": {"FromName": true},
        "VolumeAttributesClass": {"FromExistingClassName": FASTER},
        "DriverInfo": {
            "Name": NAME,
            "SupportedSizeRange": {"Min": "1Mi"},
            "SupportedFsType": {"": {}},
            "TopologyKeys": [ZONE],
            "Capabilities": capabilities,
            "StressTestOptions": {"NumPods": 3, "NumRestarts": 3},
            "VolumeSnapshotStressTestOptions": {"NumPods": 3, "NumSnapshots": 3},
            "VolumeModifyStressTestOptions": {"NumPods": 3},
            "VolumeGroupSnapshotStressTestOptions": {"NumPods": 3, "NumSnapshots": 3},
        },
    })
}

/// The cluster. `folder` is for images.
pub(super) fn plan(folder: &Path, options: &Options) -> Plan {
    let mut all = images::make(folder);
    all.extend(images_of_the_suite(folder));
    let mut beside = Vec::new();
    let mut roles = json!({
        "attacher": {}, "resizer": {}, "reconciler": {}, "snapshotter": {}, "liveness": {},
        "provisioner": {"capacity": {"enabled": true, "immediateBinding": true}},
    });
    if options.sidecars {
        for (name, arguments) in SIDECARS {
            let image = format!("csi-control-plane.invalid/{name}:1");
            all.push(images::make_with_busybox(folder, Some(name), &[&image]));
            beside.push(sidecar(name, &image, arguments));
        }
        roles = json!({"liveness": {}});
    }
    Plan {
        has_snapshots: true,
        nodes: ZONES.len(),
        images: all,
        driver: json!({
            "attachRequired": true, "podInfoOnMount": false, "fsGroupPolicy": "File", "storageCapacity": true}),
        profile: profile(),
        values: Some(values_of_the_chart(&roles, &beside)),
    }
}

/// The driver's profile: its volumes are in a zone, and on each of its nodes.
fn profile() -> Value {
    let zone = |name: &str| json!({ZONE: name});
    let nodes: serde_json::Map<_, _> =
        ZONES.iter().zip(1..).map(|(it, number)| (format!("10.1.0.{number}"), json!({"segments": zone(it)}))).collect();
    let mut services = Profile::default().services;
    services.insert(service::Type::VolumeAccessibilityConstraints as i32);
    json!({"services": services, "nodes": nodes, "segments": [zone("a"), zone("b")]})
}

/// A container of the controller's pod.
fn sidecar(name: &str, image: &str, arguments: &[&str]) -> Value {
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let common = ["--csi-address=/csi/csi.sock", "--leader-election", "--v=4"];
    let arguments = [&common[..], arguments].concat();
    json!({
        "name": name, "image": image, "imagePullPolicy": "Never", "args": arguments,
        "env": [
            {"name": "POD_NAME", "valueFrom": field("metadata.name")},
            {"name": "NAMESPACE", "valueFrom": field("metadata.namespace")},
        ],
        // The driver's socket is root's.
        "securityContext": {"runAsNonRoot": false, "runAsUser": 0},
        "volumeMounts": [{"name": "csi-socket", "mountPath": "/csi"}]})
}

/// The images that the suite's pods name: a shell and its tools, and its own program for everything else.
fn images_of_the_suite(folder: &Path) -> Vec<PathBuf> {
    let told = Command::new(programs::find("e2e.test")).arg("--list-images").output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let of = |names: &[&str]| -> Vec<&str> {
        let is_of = |image: &&str| {
            let name = image.rsplit('/').next().and_then(|it| it.split(':').next()).unwrap_or_default();
            names.contains(&name)
        };
        let found: Vec<&str> = told.lines().map(str::trim).filter(is_of).collect();
        assert!(!found.is_empty(), "the suite names no image of {names:?}: {told}");
        found
    };
    let shells = of(&["busybox", "nginx"]);
    let programs = of(&["agnhost", "pause"]);
    vec![
        images::make_with_busybox(folder, None, &shells),
        images::make_with_dd(folder, &of(&["glibc-dns-testing"])),
        images::make_with_busybox(folder, Some("agnhost"), &programs),
    ]
}

/// What the suite finds in the cluster.
pub(super) async fn complete(lab: &Lab, options: &Options) {
    let class = json!({"metadata": {"name": FASTER}, "driverName": NAME, "parameters": {"iops": "2000"}});
    lab.create::<VolumeAttributesClass>(None, &class).await;
    if options.sidecars {
        // Their rights are none of our claims.
        let account = "demo-csi-control-plane";
        let binding = json!({
            "metadata": {"name": "sidecars"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]});
        lab.create::<ClusterRoleBinding>(None, &binding).await;
    }
}
