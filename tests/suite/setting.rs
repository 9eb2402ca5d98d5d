//! The driver as the suite is told of it, and the cluster that the suite runs on.

use std::path::{Path, PathBuf};
use std::process::Command;

use csi_control_plane::proto::plugin_capability::service;
use csi_control_plane::sandbox::driver::Profile;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use serde_json::{Value, json};

use super::host_path;
use super::options::{Controllers, Options};
use crate::node::images;
use crate::node::lab::{CLASS, Lab, NAME, NAMESPACE, Plan, values_of_the_chart};
use crate::programs;

/// A part of the names of specs that are not run, and the reason.
pub(super) const LEFT_OUT: (&str, &str) =
    ("any volume data source", "wants a populator of volumes, whose image is in a registry alone");
/// What matches the names of specs whose class has to bind at once: those that change claims before a pod uses them, and those of many
/// claims without pods.
pub(super) const AT_ONCE: &str =
    "(multiple pods should modify volumes with a different volumeAttributesClass|should provision volumes at scale)";

/// The key of the driver's topology.
const ZONE: &str = "topology.demo.csi.example.com/zone";
/// The zone of each node. Two of one zone, for the specs that move a volume; and another, for those that must not.
const ZONES: [&str; 3] = ["a", "a", "b"];
/// The class that volumes are changed to, and its parameter.
const FASTER: &str = "faster";
pub(super) const FASTER_PARAMETER: &str = "iops";
/// The demo driver's capabilities, in the suite's words.
const CAPABILITIES: [&str; 19] = [
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

/// The Deployment of the controller, and its service account.
pub(super) const ACCOUNT: &str = "demo-csi-control-plane";

/// The driver that the specs are for.
pub(super) enum Driver {
    /// The sandbox's.
    Demo,
    /// csi-driver-host-path, with its program.
    HostPath(PathBuf),
}

impl Driver {
    /// The one that the caller names.
    pub(super) fn given() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
        let program = std::env::var_os("CSI_DRIVER_HOST_PATH").filter(|it| !it.is_empty());
        program.map_or(Self::Demo, |program| Self::HostPath(program.into()))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Demo => NAME,
            Self::HostPath(_) => host_path::NAME,
        }
    }

    /// Whether its volumes are made where the pod is to run. Some specs then need a second run, in which they are not.
    pub(super) fn waits_for_pods(&self) -> bool {
        matches!(self, Self::Demo)
    }

    /// The driver, in the suite's words: with each capability that it has. `at_once`: its volumes are made before there is a pod.
    pub(super) fn description(&self, at_once: bool) -> Value {
        let (capabilities, topology, inline): (&[&str], _, _) = match self {
            Self::Demo => (&CAPABILITIES, ZONE, json!([])),
            Self::HostPath(_) => (&host_path::CAPABILITIES, host_path::TOPOLOGY, json!([{"Shared": true}])),
        };
        let capabilities: serde_json::Map<_, _> =
            capabilities.iter().map(|it| ((*it).to_owned(), true.into())).collect();
        let class = if at_once || !self.waits_for_pods() {
            json!({"FromName": true})
        } else {
            json!({"FromExistingClassName": CLASS})
        };
        json!({
            "StorageClass": class,
            "SnapshotClass": {"FromName": true},
            "GroupSnapshotClass": {"FromName": true},
            "VolumeAttributesClass": {"FromExistingClassName": FASTER},
            "InlineVolumes": inline,
            "DriverInfo": {
                "Name": self.name(),
                "SupportedSizeRange": {"Min": "1Mi"},
                "SupportedFsType": {"": {}},
                "TopologyKeys": [topology],
                "Capabilities": capabilities,
                "StressTestOptions": {"NumPods": 3, "NumRestarts": 3},
                "VolumeSnapshotStressTestOptions": {"NumPods": 3, "NumSnapshots": 3},
                "VolumeModifyStressTestOptions": {"NumPods": 3},
                "VolumeGroupSnapshotStressTestOptions": {"NumPods": 3, "NumSnapshots": 3},
                // What Kubernetes itself expects of csi-driver-host-path: nanoseconds from claim to bound, and claims in a second.
                "PerformanceTestOptions": {"ProvisioningOptions": {
                    "VolumeSize": "1Mi", "Count": 300,
                    "ExpectedMetrics": {"AvgLatency": 120_000_000_000_i64, "Throughput": 0.5}}},
            },
        })
    }

    /// The cluster. `folder` is for images.
    pub(super) fn plan(&self, folder: &Path, options: &Options) -> Plan {
        let mut plan = match self {
            Self::Demo => plan(folder),
            Self::HostPath(program) => host_path::plan(folder, program),
        };
        plan.images.extend(images_of_the_suite(folder));
        if options.controllers != Controllers::Daemon {
            plan.images.extend(images_of_sidecars(folder));
        }
        plan.values = Some(self.values(options.controllers == Controllers::Sidecars));
        plan
    }

    /// The values of the chart, with the daemon or with the Go sidecars.
    pub(super) fn values(&self, has_sidecars: bool) -> Value {
        match self {
            Self::Demo => values(has_sidecars),
            Self::HostPath(_) => host_path::values(has_sidecars),
        }
    }

    /// Nothing is left of the specs: at the driver, and on the nodes.
    pub(super) async fn nothing_is_left(&self, lab: &Lab) {
        match self {
            Self::Demo => lab.nothing_is_left().await,
            Self::HostPath(_) => host_path::nothing_is_left(lab).await,
        }
    }
}

/// The cluster of the demo driver: three nodes in two zones.
fn plan(folder: &Path) -> Plan {
    Plan {
        has_snapshots: true,
        has_attach_detach: true,
        nodes: ZONES.len(),
        images: images::make(folder),
        name: NAME,
        driver: json!({
            "attachRequired": true, "podInfoOnMount": false, "fsGroupPolicy": "File", "storageCapacity": true}),
        profile: Some(profile()),
        values: None,
    }
}

fn values(has_sidecars: bool) -> Value {
    let (roles, beside) = if has_sidecars {
        (json!({"liveness": {}}), sidecars())
    } else {
        let roles = json!({
            "attacher": {}, "resizer": {}, "reconciler": {}, "snapshotter": {}, "liveness": {},
            "provisioner": {"capacity": {"enabled": true, "immediateBinding": true}},
        });
        (roles, Vec::new())
    };
    values_of_the_chart(&roles, &beside)
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

/// The containers of the Go sidecars in the controller's pod.
pub(super) fn sidecars() -> Vec<Value> {
    SIDECARS.iter().map(|(name, arguments)| sidecar(name, &image_of(name), arguments)).collect()
}

fn images_of_sidecars(folder: &Path) -> Vec<PathBuf> {
    let make = |(name, _): &(&str, _)| images::make_with_busybox(folder, Some(name), &[&image_of(name)]);
    SIDECARS.iter().map(make).collect()
}

fn image_of(sidecar: &str) -> String {
    format!("csi-control-plane.invalid/{sidecar}:1")
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
pub(super) async fn complete(lab: &Lab, driver: &Driver, options: &Options) {
    let parameters = json!({FASTER_PARAMETER: "2000"});
    let class = json!({"metadata": {"name": FASTER}, "driverName": driver.name(), "parameters": parameters});
    lab.create::<VolumeAttributesClass>(None, &class).await;
    if options.controllers != Controllers::Daemon {
        // Their rights are none of our claims.
        let binding = json!({
            "metadata": {"name": "sidecars"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]});
        lab.create::<ClusterRoleBinding>(None, &binding).await;
    }
    if options.controllers == Controllers::Sidecars {
        // csi-snapshotter does without groups until its end if it may not list them at its start.
        let deployment = format!("deployment/{ACCOUNT}");
        for step in [&["restart"][..], &["status", "--timeout=2m"]] {
            lab.kubectl(&[&["--namespace", NAMESPACE, "rollout"], step, &[&deployment]].concat()).unwrap();
        }
    }
}
