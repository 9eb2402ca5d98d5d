//! A driver with the Go sidecars, as its project publishes it: `vendor.yaml`, on one node. Its owner moves it over to the daemon and back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, ListParams};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::images;
use super::lab::{Lab, NAME, NAMESPACE, Plan};
use super::observer::{Observer, Seen};
use super::workloads::{BUSY, claim, pod, pod_with_device};
use crate::shell::{Shell, commands};

/// The controller, and the node plugin.
pub(super) const CONTROLLER: &str = "deployment/demo-controller";
pub(super) const PLUGIN: &str = "daemonset/demo-node";
/// Where the registry of the sidecars is.
const SIDECARS: &str = "registry.k8s.io/sig-storage/";
/// The sidecars may do everything: what they need is none of our claims.
const RIGHTS: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sidecars}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: demo-controller, namespace: storage}]
";
/// What a move could leave. Pods and what makes them follow each change of a workload.
const KINDS: &str = "clusterroles,clusterrolebindings,roles,rolebindings,configmaps,leases,serviceaccounts,deployments,daemonsets,\
                     volumeattachments,persistentvolumes,persistentvolumeclaims,csidrivers,csistoragecapacities,csinodes";
/// Pods that write all the time: two to files, one to a device. The last one counts in the device's first block.
const WRITERS: [&str; 3] = ["busy", "busy-too", "device"];
const BUSY_WITH_DEVICE: &str = r#"
n=0
while :; do
    n=$((n + 1))
    echo $n | dd of=/dev/data bs=512 conv=sync,fsync 2>/dev/null && found="$(dd if=/dev/data bs=512 count=1 2>/dev/null | head -n 1)" && [ "$found" = $n ] || { echo "no $n in /dev/data: $found"; exit 1; }
    sleep 0.05
done"#;

/// The driver, in its cluster.
pub(super) struct Vendor {
    pub(super) lab: Lab,
    /// The owner's folder.
    folder: PathBuf,
    /// The volumes of the pods that write.
    volumes: Vec<String>,
    /// The volume that is attached and detached all the time.
    observed: String,
}

impl Vendor {
    /// Installs what `change` makes of the manifest.
    pub(super) async fn install(change: impl Fn(&mut Value)) -> Self {
        let documents = serde_yaml::Deserializer::from_str(include_str!("vendor.yaml"));
        let mut objects: Vec<Value> = documents.map(|one| Value::deserialize(one).unwrap()).collect();
        objects.iter_mut().for_each(change);
        let lab = Lab::start_as(|folder| Plan {
            has_snapshots: false,
            has_attach_detach: true,
            nodes: 1,
            images: [images::make(folder), images_of(&objects, folder)].concat(),
            name: NAME,
            driver: json!({"attachRequired": true, "podInfoOnMount": false, "fsGroupPolicy": "File"}),
            profile: Some(json!({})),
            values: None,
        })
        .await;
        let folder = lab.cluster.folder.join("owner");
        std::fs::create_dir(&folder).unwrap();
        let objects: Vec<String> = objects.iter().map(|object| serde_yaml::to_string(object).unwrap()).collect();
        std::fs::write(folder.join("published.yaml"), objects.join("---\n")).unwrap();
        std::fs::write(folder.join("rights.yaml"), RIGHTS).unwrap();
        let mut vendor = Self { lab, folder, volumes: Vec::new(), observed: String::new() };
        vendor.done("kubectl apply -f rights.yaml -f published.yaml").await;
        for workload in [CONTROLLER, PLUGIN] {
            vendor.done(&format!("kubectl rollout status -n {NAMESPACE} {workload}")).await;
        }
        vendor.lab.kubelets_have_the_driver().await;
        vendor.start_writers().await;
        vendor
    }

    /// The node.
    pub(super) fn node(&self) -> &str {
        &self.lab.machines[0].name
    }

    /// Carries out a line of the owner's shell.
    pub(super) async fn done(&self, line: &str) -> String {
        let shell = Shell { folder: &self.folder, kubeconfig: self.lab.cluster.admin_kubeconfig() };
        shell.run(line).await.unwrap_or_else(|told| panic!("{told}\n{}", self.lab.state()))
    }

    async fn start_writers(&mut self) {
        let node = self.node().to_owned();
        for name in WRITERS {
            let is_device = name == "device";
            let (mode, size) = if is_device { ("Block", "16Mi") } else { ("Filesystem", "1Gi") };
            self.lab.claim(&claim(name, mode, size)).await;
            let wanted = if is_device {
                pod_with_device(name, name, &node, BUSY_WITH_DEVICE)
            } else {
                pod(name, name, &node, BUSY)
            };
            self.lab.start_pod(&wanted).await;
            self.volumes.push(self.lab.volume_of(name).await);
        }
        // No pod uses it: it is made for its first one.
        self.lab.claim(&claim("observed", "Filesystem", "1Gi")).await;
        self.lab.run(&pod("first", "observed", &node, "true")).await;
        self.observed = self.lab.volume_of("observed").await;
        self.lab.detached(&self.observed).await;
    }

    /// How far the pods have come.
    fn counts(&self) -> Vec<u64> {
        let device = "dd if=/dev/data bs=512 count=1 2>/dev/null | head -n 1";
        let of_device = |name: &str| self.lab.exec(name, device).unwrap().trim().parse().unwrap();
        WRITERS.iter().map(|name| if *name == "device" { of_device(name) } else { self.lab.count(name) }).collect()
    }

    /// What each pod's containers and mounts are, and how often the kubelet has asked the driver to make one or to take one away.
    async fn kept(&self) -> (Vec<Vec<(i32, String)>>, Vec<(String, String)>, BTreeMap<String, u64>) {
        let mut lives = Vec::new();
        for name in WRITERS {
            lives.push(self.lab.lives(name).await);
        }
        let mut mounts = self.lab.machines[0].numbered_mounts();
        mounts.retain(|(_, path)| self.volumes.iter().any(|volume| path.contains(volume)));
        (lives, mounts, self.calls_of_the_kubelet())
    }

    /// The kubelet's own figure: the requests that mount, by method.
    fn calls_of_the_kubelet(&self) -> BTreeMap<String, u64> {
        let address = format!("/api/v1/nodes/{}/proxy/metrics", self.node());
        let told = self.lab.kubectl(&["get", "--raw", &address]).unwrap();
        let mut calls = BTreeMap::new();
        for line in told.lines().filter(|line| line.starts_with("csi_operations_seconds_count{") && line.contains(NAME))
        {
            let method = line.split_once("method_name=\"").unwrap().1.split('"').next().unwrap();
            let count: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            if ["Stage", "Unstage", "Publish", "Unpublish"]
                .iter()
                .any(|it| method.ends_with(&format!("/Node{it}Volume")))
            {
                *calls.entry(method.to_owned()).or_default() += count;
            }
        }
        calls
    }

    /// The steps of `migrate` for a workload, there and back. Its manifest is what the cluster has, in this file.
    pub(super) async fn steps(&self, manifest: &str, workload: &str) -> (Vec<String>, Vec<String>) {
        let (_, name) = workload.split_once('/').unwrap();
        let line = format!(
            "csi-control-plane migrate -f {manifest} -f csidriver.yaml --workload {workload} --image {} --out moved-{name}",
            images::DAEMON
        );
        commands(&self.done(&line).await)
    }

    /// Carries steps out, and looks on: no pod may notice anything.
    ///
    /// It is over when so many Leases have got another holder.
    pub(super) async fn carry_out(&self, what: &str, steps: &[String], leases: usize) -> Seen {
        let (kept, counts) = (self.kept().await, self.counts());
        let is_mounted = |method: &str| kept.2.get(&format!("/csi.v1.Node/{method}")).is_some_and(|count| *count > 2);
        assert!(is_mounted("NodeStageVolume") && is_mounted("NodePublishVolume"), "{:?}", kept.2);
        assert!(kept.1.len() > 2, "{:?}", kept.1);
        let attachments: Api<VolumeAttachment> = Api::all(self.lab.client.clone());
        let attachments = attachments.list(&ListParams::default()).await.unwrap().items;
        assert_eq!(attachments.len(), WRITERS.len());
        let observer = Observer::start(&self.lab.client, self.node(), attachments, self.observed.clone());
        for step in steps {
            let begun = std::time::Instant::now();
            self.done(step).await;
            let took = begun.elapsed().as_secs_f64();
            if took >= 1.0 {
                println!("{what}: {took:.1} s: {}", step.split(" -o json").next().unwrap_or(step));
            }
        }
        self.lab.kubelets_have_the_driver().await;
        self.lab.until("the Leases are taken", async || (observer.takeovers() >= leases).then_some(())).await;
        let seen = observer.end().await;
        let (longest, median) = seen.longest_and_median();
        println!(
            "{what}: {} times attached or detached, {:.0} ms each, {:.1} s at most; the driver was not registered for {:.1} s",
            seen.attempts.len(),
            median.as_secs_f64() * 1000.0,
            longest.as_secs_f64(),
            seen.unregistered.as_secs_f64()
        );
        assert_eq!(seen.wrong, Vec::<String>::new(), "{what}");
        self.lab
            .until("the pods count on", async || {
                let now = self.counts();
                now.iter().zip(&counts).all(|(now, before)| now > before).then_some(())
            })
            .await;
        assert_eq!(self.kept().await, kept, "{what}: no pod's container, mount or device was touched");
        seen
    }

    /// The names of the objects that could be left over.
    pub(super) async fn objects(&self) -> BTreeSet<String> {
        let told = self.done(&format!("kubectl get {KINDS} --all-namespaces --output=name")).await;
        told.lines().map(str::to_owned).collect()
    }

    /// A workload's spec, as it is on the server.
    pub(super) async fn spec(&self, workload: &str) -> Value {
        let told = self.done(&format!("kubectl get -n {NAMESPACE} {workload} -o json")).await;
        serde_json::from_str::<Value>(&told).unwrap()["spec"].take()
    }

    /// The pods end, and with them all that they had: each has what it has written.
    pub(super) async fn end_writers(&self) {
        for (name, volume) in WRITERS.iter().zip(&self.volumes) {
            self.lab.remove(name).await;
            self.lab.detached(volume).await;
            if *name != "device" {
                super::upheaval::every_number_is_there(&self.lab, name, self.node()).await;
            }
            self.lab.discard(name).await;
        }
        self.lab.discard("observed").await;
        self.lab.nothing_is_left().await;
    }
}

/// The names of a workload's containers.
pub(super) fn containers(spec: &Value) -> Vec<&str> {
    let containers = spec["template"]["spec"]["containers"].as_array().unwrap();
    containers.iter().map(|container| container["name"].as_str().unwrap()).collect()
}

/// The images of the sidecars that these objects name, each with the program of its name.
fn images_of(objects: &[Value], folder: &Path) -> Vec<PathBuf> {
    let containers = objects.iter().filter_map(|object| object["spec"]["template"]["spec"]["containers"].as_array());
    let names = containers.flatten().filter_map(|container| container["image"].as_str());
    let sidecars = names.filter_map(|image| Some((image, image.strip_prefix(SIDECARS)?.split(':').next()?)));
    sidecars.map(|(image, program)| images::make_with_busybox(folder, Some(program), &[image])).collect()
}
