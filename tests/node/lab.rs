//! A cluster with nodes, and the chart installed on it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use csi_control_plane::sandbox::driver::State;
use futures::stream::BoxStream;
use futures::{StreamExt as _, future};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment};
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::images;
use super::machine::Machine;
use crate::control_plane::{ControlPlane, Extent};
use crate::programs;
use crate::records::{RPCS, Watched};

/// The driver's name.
pub(crate) const NAME: &str = "demo.csi.example.com";
/// The release of the chart, and where it is.
pub(crate) const RELEASE: &str = "demo";
pub(crate) const NAMESPACE: &str = "storage";
/// The chart.
pub(crate) const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/csi-control-plane");
/// The class of its volumes.
pub(crate) const CLASS: &str = "demo";

/// The driver's profile, in its storage.
const PROFILE: &str = "profile.yaml";

/// A cluster that runs.
pub(crate) struct Lab {
    // The nodes go first: a pod has nothing to do without its API server.
    pub(crate) machines: Vec<Machine>,
    pub(crate) cluster: ControlPlane,
    pub(crate) client: Client,
    /// The driver's name.
    name: &'static str,
    // Judged when all that could call and write has ended.
    watched: Option<Watched>,
    /// What its nodes keep, and the driver's storage.
    folder: PathBuf,
}

/// What a cluster has.
pub(crate) struct Plan {
    /// Whether it has the kinds of snapshots, and snapshot-controller.
    pub(crate) has_snapshots: bool,
    /// Whether kube-controller-manager attaches what pods want.
    pub(crate) has_attach_detach: bool,
    /// How many nodes.
    pub(crate) nodes: usize,
    /// The images on each of them, as archives.
    pub(crate) images: Vec<PathBuf>,
    /// The driver's name.
    pub(crate) name: &'static str,
    /// What the cluster is told of the driver: the object's spec.
    pub(crate) driver: Value,
    /// The profile of the demo driver. `None`: it is another driver, which keeps no record of its calls.
    pub(crate) profile: Option<Value>,
    /// The values of the chart. `None`: somebody else installs the driver.
    pub(crate) values: Option<Value>,
}

impl Plan {
    /// Two nodes, and the chart. The images come into this folder.
    pub(crate) fn usual(folder: &Path) -> Self {
        let roles = json!({"attacher": {}, "provisioner": {}, "resizer": {}, "reconciler": {}, "liveness": {}});
        Self {
            has_snapshots: false,
            has_attach_detach: true,
            nodes: 2,
            images: images::make(folder),
            name: NAME,
            driver: json!({"attachRequired": true, "podInfoOnMount": false, "fsGroupPolicy": "File"}),
            profile: Some(json!({})),
            values: Some(values_of_the_chart(&roles, &[])),
        }
    }
}

impl Lab {
    /// Starts a control plane and two nodes, and installs the chart.
    pub(crate) async fn start() -> Self {
        Self::start_as(Plan::usual).await
    }

    /// The same with what a plan says. The plan is told a folder for images.
    pub(crate) async fn start_as(plan: impl FnOnce(&Path) -> Plan) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = super::folder().join(format!("lab-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        let [archives, storage] = ["images", "storage"].map(|name| folder.join(name));
        std::fs::create_dir_all(&archives).unwrap();
        std::fs::create_dir_all(&storage).unwrap();
        let plan = plan(&archives);
        let rpcs = plan.profile.map(|mut profile| {
            profile["record"] = format!("/storage/{RPCS}").into();
            std::fs::write(storage.join(PROFILE), profile.to_string()).unwrap();
            storage.join(RPCS)
        });
        let cluster = ControlPlane::start(Extent::Nodes { has_attach_detach: plan.has_attach_detach }).await;
        if plan.has_snapshots {
            cluster.start_snapshot_controller().await;
        }
        let mut machines = Vec::new();
        for number in 1..=plan.nodes {
            machines.push(Machine::start(&cluster.folder, &folder, number, &plan.images).await);
        }
        let client = cluster.client().await;
        let logs_of = |machine: &Machine| machine.path("/var/log");
        let watched = Watched {
            driver: plan.name.to_owned(),
            takes_pairs: false,
            rpcs,
            cluster: cluster.folder.clone(),
            logs: machines.iter().map(logs_of).chain([storage]).collect(),
        };
        let lab = Self { machines, cluster, client, name: plan.name, watched: Some(watched), folder };
        for machine in &lab.machines {
            let nodes: Api<Node> = Api::all(lab.client.clone());
            lab.until("the node is ready", async || {
                let node = nodes.get_opt(&machine.name).await.unwrap()?;
                let conditions = node.status?.conditions?;
                conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True").then_some(())
            })
            .await;
        }
        let driver = json!({"metadata": {"name": plan.name}, "spec": plan.driver});
        lab.create::<CSIDriver>(None, &driver).await;
        let class = json!({
            "metadata": {"name": CLASS}, "provisioner": plan.name, "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": true});
        lab.create::<StorageClass>(None, &class).await;
        lab.create::<Namespace>(None, &json!({"metadata": {"name": NAMESPACE}})).await;
        if let Some(values) = plan.values {
            lab.install(&values).await;
        }
        lab
    }

    /// Installs the chart, and waits until every pod of it is ready.
    async fn install(&self, of_the_chart: &Value) {
        let values = self.cluster.folder.join("values.json");
        std::fs::write(&values, of_the_chart.to_string()).unwrap();
        let installed = self.helm(&["install", RELEASE, CHART, "--values", values.to_str().unwrap()]);
        installed.unwrap_or_else(|told| panic!("{told}"));
        self.pods_are_ready().await;
        self.kubelets_have_the_driver().await;
    }

    /// Waits until the pods of the controller are ready, and the one of each node, if the chart has any for nodes.
    pub(crate) async fn pods_are_ready(&self) {
        self.controllers_are_ready().await;
        let daemons: Api<DaemonSet> = Api::namespaced(self.client.clone(), NAMESPACE);
        self.until("the pods of the nodes are ready", async || {
            let sets = daemons.list(&ListParams::default()).await.unwrap().items;
            let is_ready = |set: DaemonSet| {
                set.status.is_some_and(|it| usize::try_from(it.number_ready) == Ok(self.machines.len()))
            };
            sets.into_iter().all(is_ready).then_some(())
        })
        .await;
    }

    /// Waits until each node's kubelet has the driver.
    pub(crate) async fn kubelets_have_the_driver(&self) {
        let nodes: Api<CSINode> = Api::all(self.client.clone());
        for machine in &self.machines {
            self.until("the kubelet has the driver", async || {
                let node = nodes.get_opt(&machine.name).await.unwrap()?;
                node.spec.drivers.iter().any(|it| it.name == self.name && it.node_id == machine.name).then_some(())
            })
            .await;
        }
    }

    /// Waits until all pods of the controller are ready.
    pub(crate) async fn controllers_are_ready(&self) {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        self.until("the controller's pods are ready", async || {
            let deployment = deployments.list(&ListParams::default()).await.unwrap().items.pop()?;
            (deployment.status?.ready_replicas == deployment.spec.replicas).then_some(())
        })
        .await;
    }

    /// Runs Helm on the cluster, in the release's namespace.
    pub(crate) fn helm(&self, arguments: &[&str]) -> Result<String, String> {
        self.helm_in(NAMESPACE, arguments)
    }

    pub(crate) fn helm_in(&self, namespace: &str, arguments: &[&str]) -> Result<String, String> {
        let kubeconfig = self.cluster.admin_kubeconfig();
        let more = ["--namespace", namespace, "--kubeconfig", kubeconfig.to_str().unwrap()];
        let mut command = Command::new(programs::find("helm"));
        // Without what the caller has told Helm.
        let output = command.args(arguments).args(more).env_clear().env("HOME", &self.folder).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// Runs kubectl on the cluster.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(programs::find("kubectl"));
        command.arg("--kubeconfig").arg(self.cluster.admin_kubeconfig()).args(arguments).stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// Makes an object from its JSON.
    pub(crate) async fn create<K>(&self, namespace: Option<&str>, object: &Value) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        let mut object = object.clone();
        object["apiVersion"] = K::api_version(&()).into();
        object["kind"] = K::kind(&()).into();
        let address = K::url_path(&(), namespace);
        let object: K = serde_json::from_value(object).unwrap();
        let request =
            kube::core::Request::new(address).create(&PostParams::default(), serde_json::to_vec(&object).unwrap());
        self.client.request(request.unwrap()).await.unwrap_or_else(|error| panic!("{object:#?}: {error}"))
    }

    /// Waits for something of the cluster; in vain, it says how the pods are.
    pub(crate) async fn until<T, F: AsyncFnMut() -> Option<T>>(&self, what: &str, look: F) -> T {
        match crate::program::eventually_some(look).await {
            Some(found) => found,
            None => panic!("waited in vain: {what}\n{}", self.state()),
        }
    }

    /// How the cluster is, for people.
    pub(crate) fn state(&self) -> String {
        let asked: [&[&str]; 4] = [
            &["get", "pods,pvc,pv,volumeattachments,csinodes", "--all-namespaces", "--output=wide"],
            &["get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp"],
            &[
                "logs",
                "--namespace",
                NAMESPACE,
                "--selector=app.kubernetes.io/instance=demo",
                "--all-containers",
                "--prefix",
            ],
            &["describe", "pods", "--all-namespaces"],
        ];
        asked.map(|arguments| self.kubectl(arguments).unwrap_or_else(|told| told)).join("\n")
    }

    /// Who holds a role's Lease.
    pub(crate) async fn holder(&self, role: &str) -> Option<String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let leases = leases.list(&ListParams::default()).await.unwrap().items;
        let is_of_role = |lease: &Lease| lease.metadata.name.as_deref().is_some_and(|it| it.contains(role));
        let lease = leases.into_iter().find(is_of_role)?;
        lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
    }

    /// Who holds a role's Lease from now on: each write of it, and "" where it was released.
    pub(crate) async fn holders(&self, role: &str) -> BoxStream<'static, String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let all = leases.list(&ListParams::default()).await.unwrap();
        let role = role.to_owned();
        let from = all.metadata.resource_version.unwrap();
        let events = leases.watch(&WatchParams::default(), &from).await.unwrap();
        let holder = move |event: kube::Result<WatchEvent<Lease>>| {
            let (WatchEvent::Added(lease) | WatchEvent::Modified(lease)) = event.unwrap() else { return None };
            lease.metadata.name?.contains(&role).then(|| lease.spec?.holder_identity).flatten()
        };
        events.filter_map(move |event| future::ready(holder(event))).boxed()
    }

    /// The pod of the daemon that has a role's Lease, and its process.
    pub(crate) async fn leader(&self, role: &str) -> (Pod, u32) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let pod = self
            .until("a daemon leads", async || {
                let holder = self.holder(role).await?;
                let pods = pods.list(&ListParams::default()).await.unwrap().items;
                pods.into_iter().find(|pod| pod.metadata.name.as_deref().is_some_and(|name| holder.starts_with(name)))
            })
            .await;
        let process = process_of(pod.metadata.uid.as_deref().unwrap(), "run");
        (pod, process.expect("the daemon's process"))
    }

    /// The processes of the controller's daemons.
    pub(crate) async fn daemons(&self) -> Vec<u32> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let of_controller = ListParams::default().labels("app.kubernetes.io/name=csi-control-plane");
        let pods = pods.list(&of_controller).await.unwrap().items;
        pods.iter().filter_map(|pod| process_of(pod.metadata.uid.as_deref()?, "run")).collect()
    }

    /// What the container of this name said last before its last end.
    pub(crate) async fn last_words(&self, container: &str, pod: &str) -> Option<String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let states = pods.get(pod).await.unwrap().status?.container_statuses?;
        let state = states.into_iter().find(|state| state.name == container)?;
        let ended = [state.state, state.last_state].into_iter().flatten().find_map(|state| state.terminated);
        ended?.message
    }

    /// The driver's pod of the node's plugin on a node, and the driver's process.
    pub(crate) async fn plugin_on(&self, node: &str) -> (Pod, u32) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let of_nodes = ListParams::default().labels("app.kubernetes.io/name=csi-control-plane-node");
        let pods = pods.list(&of_nodes).await.unwrap().items;
        let is_there = |pod: &Pod| pod.spec.as_ref().is_some_and(|it| it.node_name.as_deref() == Some(node));
        let pod = pods.into_iter().find(is_there).expect("a pod of the node's plugin");
        let process = process_of(pod.metadata.uid.as_deref().unwrap(), "demo-driver");
        (pod, process.expect("the driver's process"))
    }

    /// The driver's state, as it keeps it.
    pub(crate) fn storage(&self) -> State {
        serde_yaml::from_str(&std::fs::read_to_string(self.folder.join("storage/state.yaml")).unwrap()).unwrap()
    }

    /// The driver's record of its calls, from this byte on: lines of JSON.
    pub(crate) fn calls(&self, from: u64) -> String {
        let mut record = File::open(self.folder.join("storage").join(RPCS)).unwrap();
        record.seek(SeekFrom::Start(from)).unwrap();
        std::io::read_to_string(record).unwrap()
    }

    /// No volume and no snapshot at the driver, no mount and no device on a node.
    pub(crate) async fn nothing_is_left(&self) {
        self.until("nothing is left at the driver", async || {
            let state = self.storage();
            (state.volumes().is_empty() && state.snapshots().is_empty() && state.groups().is_empty()).then_some(())
        })
        .await;
        self.no_mount_is_left(&self.folder.join("storage/content")).await;
    }

    /// No mount of a volume on a node, and no device of a file in this folder.
    pub(crate) async fn no_mount_is_left(&self, volumes: &Path) {
        for machine in &self.machines {
            let is_ours =
                |path: &String| path.contains("/kubernetes.io~csi/") || path.contains("/plugins/kubernetes.io/csi/");
            self.until("no mount is left", async || (!machine.mounts().iter().any(is_ours)).then_some(())).await;
        }
        let devices = devices_of(volumes);
        assert!(devices.is_empty(), "{devices:?}");
    }

    /// The rules that the records so far break. They are not judged when the lab ends: the controllers are not ours.
    pub(crate) fn broken_rules_of_others(&mut self) -> Vec<String> {
        let Some(watched) = self.watched.take() else { return Vec::new() };
        let broken = watched.faults();
        std::mem::forget(watched);
        broken
    }

    /// The nodes that volumes are attached to, by PersistentVolume.
    pub(crate) async fn attachments(&self) -> BTreeMap<String, String> {
        let attachments: Api<VolumeAttachment> = Api::all(self.client.clone());
        let all = attachments.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter_map(|it| Some((it.spec.source.persistent_volume_name?, it.spec.node_name))).collect()
    }
}

/// The loop devices of the files in a folder.
fn devices_of(folder: &Path) -> Vec<String> {
    let content = std::fs::read_dir(folder).unwrap().flatten();
    let devices = content.filter(|file| file.path().is_file()).flat_map(|file| {
        let losetup = Command::new("losetup")
            .args(["--noheadings", "--output", "NAME", "--associated"])
            .arg(file.path())
            .output();
        let told = String::from_utf8(losetup.unwrap().stdout).unwrap();
        told.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    devices.collect()
}

/// The process of a pod whose first argument this is. The pod's control group has its UID in its name.
fn process_of(uid: &str, argument: &str) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.into_iter().find(|number| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{number}/{name}")).unwrap_or_default();
        read("cgroup").contains(uid) && read("cmdline").split('\0').nth(1) == Some(argument)
    })
}

/// The pods: two of the controller with these roles, one for each node, each with a driver that has the same storage. Beside the
/// controller's stand these containers.
pub(crate) fn values_of_the_chart(roles: &Value, beside: &[Value]) -> Value {
    let storage = json!({"name": "storage", "hostPath": {"path": "/var/lib/demo-storage", "type": "Directory"}});
    let device = json!({"name": "devices", "hostPath": {"path": "/dev", "type": "Directory"}});
    let kubelet = json!({"name": "kubelet", "hostPath": {"path": "/var/lib/kubelet", "type": "Directory"}});
    let driver = |more: &[&str], mounts: &[Value]| {
        let profile = format!("--profile=/storage/{PROFILE}");
        let arguments = [&["--endpoint=unix:///csi/csi.sock", "--storage=/storage", &profile], more].concat();
        let own = [
            json!({"name": "csi-socket", "mountPath": "/csi"}),
            json!({"name": "storage", "mountPath": "/storage"}),
            json!({"name": "devices", "mountPath": "/dev"}),
        ];
        let mounts = [&own[..], mounts].concat();
        json!({
            "name": "driver", "image": images::DRIVER, "imagePullPolicy": "Never", "args": arguments,
            "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            // It sizes, attaches and mounts devices: privileged, and root whatever the pod is.
            "securityContext": {"privileged": true, "runAsNonRoot": false, "runAsUser": 0},
            "livenessProbe": {
                "httpGet": {"path": "/healthz", "port": 9808}, "periodSeconds": 2, "timeoutSeconds": 5,
                // One that hangs obeys no SIGTERM.
                "terminationGracePeriodSeconds": 1,
            },
            "volumeMounts": mounts,
        })
    };
    let controller = [&[driver(&[], &[])][..], beside].concat();
    let bidirectional =
        json!({"name": "kubelet", "mountPath": "/var/lib/kubelet", "mountPropagation": "Bidirectional"});
    json!({
        "image": images::daemon(),
        "driver": {"name": NAME, "containers": controller, "volumes": [&storage, &device]},
        "config": {"roles": roles},
        "antiAffinity": "required",
        "node": {
            "enabled": true,
            "driver": {
                "containers": [driver(&["--node-id=$(NODE_NAME)"], &[bidirectional])],
                "volumes": [&storage, &device, &kubelet],
            },
        },
    })
}
