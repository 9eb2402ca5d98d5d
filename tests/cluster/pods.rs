//! The pods of a workload of sidecars, played: what their containers say runs as processes of this machine, beside the demo
//! driver. Everything else is the cluster's: who makes the pods, replaces them, and waits for them.
//!
//! Of the Go sidecars there is one version each, the newest that can be built. A container of an older image runs it with the
//! defaults of its own version, as far as the program still has a flag or a gate for them.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use crate::cluster::sidecar;
use crate::ground::cluster::NAMESPACE;
use crate::program::Program;
use crate::world::World;
use crate::{accounts, programs};

/// The pause between two looks at the pods.
const LOOK: Duration = Duration::from_millis(50);

/// What older versions did without being told, for the newest program: the sidecar, the version that changed it, and what tells
/// it now. Sources: the change logs of the sidecars, as `OldDefault` has them.
///
/// csi-provisioner has no switch left for `HonorPVReclaimPolicy`, which was off before v5.0, and is off then in the daemon that replaces it.
const OLD_DEFAULTS: [(&str, (u32, u32), &str); 7] = [
    ("csi-attacher", (4, 0), "--default-fstype=ext4"),
    ("csi-attacher", (4, 12), "--feature-gates=MutableCSINodeAllocatableCount=false"),
    ("csi-provisioner", (4, 0), "--prevent-volume-mode-conversion=false"),
    ("csi-provisioner", (5, 0), "--feature-gates=Topology=false"),
    ("csi-resizer", (2, 0), "--feature-gates=VolumeAttributesClass=false"),
    ("csi-resizer", (2, 3), "--feature-gates=AnnotateFsResize=false"),
    ("csi-snapshotter", (8, 7), "--feature-gates=CSIVolumeGroupSnapshot=false"),
];

/// Plays the kubelet for the pods of one workload.
pub(crate) struct Kubelet<'a> {
    world: &'a World,
    /// The workload's name, which is its pods' label `app` and their account, too.
    workload: String,
    pods: BTreeMap<String, Played>,
    /// What daemons have said that have ended.
    said: Vec<String>,
}

/// A pod that runs.
struct Played {
    processes: Vec<Process>,
    is_ready: bool,
    is_told_to_end: bool,
}

/// A container that runs.
enum Process {
    Sidecar(programs::Program),
    /// The daemon, by its own rights.
    Daemon(Box<Program>),
}

impl<'a> Kubelet<'a> {
    pub(crate) fn new(world: &'a World, workload: &str) -> Self {
        Self { world, workload: workload.to_owned(), pods: BTreeMap::new(), said: Vec::new() }
    }

    /// Does its work until `work` is done.
    pub(crate) async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        // Boxed: a scenario's own state is large.
        let mut work = Box::pin(work);
        loop {
            if let Ok(done) = tokio::time::timeout(LOOK, &mut work).await {
                return done;
            }
            self.look().await;
        }
    }

    /// Does its work until no pod is about to end: a roll-out is over before that, and the old pods' processes may still lead.
    pub(crate) async fn until_none_ends(&mut self) {
        let pods: Api<Pod> = Api::namespaced(self.world.client(), NAMESPACE);
        let ours = ListParams::default().labels(&format!("app={}", self.workload));
        let rests = async {
            while pods.list(&ours).await.unwrap().iter().any(|pod| pod.meta().deletion_timestamp.is_some()) {
                self.look().await;
                tokio::time::sleep(LOOK).await;
            }
        };
        crate::world::bounded("the end of the old pods", rests).await;
    }

    /// Does its work until no pod is left, and returns what the daemons have said.
    pub(crate) async fn until_all_end(mut self) -> Vec<String> {
        let ended = async {
            while !self.look().await {
                tokio::time::sleep(LOOK).await;
            }
        };
        crate::world::bounded("the end of all pods", ended).await;
        self.said
    }

    /// Starts what must run, ends what must end, and tells which pods are ready. Whether there is no pod.
    async fn look(&mut self) -> bool {
        let pods: Api<Pod> = Api::namespaced(self.world.client(), NAMESPACE);
        let ours = ListParams::default().labels(&format!("app={}", self.workload));
        let there = pods.list(&ours).await.unwrap().items;
        for pod in &there {
            let name = pod.name_any();
            if pod.meta().deletion_timestamp.is_some() {
                if self.has_ended(&name).await {
                    self.pods.remove(&name);
                    pods.delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
                }
                continue;
            }
            if !self.pods.contains_key(&name) {
                let processes = self.start(pod).await;
                self.pods.insert(name.clone(), Played { processes, is_ready: false, is_told_to_end: false });
            }
            let played = self.pods.get_mut(&name).unwrap();
            if played.becomes_ready().await {
                let of = |condition: &str| json!({"type": condition, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
                let conditions = ["Ready", "ContainersReady"].map(of);
                let status = Patch::Strategic(json!({"status": {"phase": "Running", "conditions": conditions}}));
                pods.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
            }
        }
        there.is_empty()
    }

    /// Starts a pod's containers. The driver's is there already.
    async fn start(&self, pod: &Pod) -> Vec<Process> {
        let mut processes = Vec::new();
        let pod = serde_json::to_value(pod).unwrap();
        for container in pod["spec"]["containers"].as_array().unwrap() {
            let image = container["image"].as_str().unwrap();
            let (program, tag) = image.rsplit_once('/').unwrap().1.split_once(':').unwrap();
            match program {
                "driver" => {}
                "csi-control-plane" => processes.push(Process::Daemon(Box::new(self.daemon(&pod, container).await))),
                _ => {
                    let flags = [defaults_of(program, tag), texts(&container["args"])].concat();
                    let name = pod["metadata"]["name"].as_str().unwrap();
                    processes.push(Process::Sidecar(sidecar::start_in(self.world, name, program, &flags)));
                }
            }
        }
        processes
    }

    /// Starts the daemon with the configuration that its pod mounts, its variables, and the rights of the pod's account alone.
    async fn daemon(&self, pod: &Value, container: &Value) -> Program {
        let client = self.world.client();
        let name = pod["metadata"]["name"].as_str().unwrap();
        let mut arguments = texts(&container["args"]);
        for volume in pod["spec"]["volumes"].as_array().unwrap() {
            let Some(map) = volume["configMap"]["name"].as_str() else { continue };
            let mounts = container["volumeMounts"].as_array().unwrap();
            let Some(mount) = mounts.iter().find(|mount| mount["name"] == volume["name"]) else { continue };
            let folder = self.world.real().folder().join(name).join(map);
            std::fs::create_dir_all(&folder).unwrap();
            let map = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE).get(map).await.unwrap();
            for (file, text) in map.data.unwrap() {
                std::fs::write(folder.join(file), text).unwrap();
            }
            for argument in &mut arguments {
                *argument = argument.replace(mount["mountPath"].as_str().unwrap(), folder.to_str().unwrap());
            }
        }
        let account = pod["spec"]["serviceAccountName"].as_str().unwrap();
        let token = accounts::issue(&client, NAMESPACE, account).await;
        let kubeconfig = self.world.real().cluster().kubeconfig(name, &token).display().to_string();
        let of_pod = |variable: &Value| {
            let path = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str()?;
            pod.pointer(&format!("/{}", path.replace('.', "/")))?.as_str()
        };
        let variables = container["env"].as_array().unwrap().iter();
        let mut variables: Vec<(&str, &str)> = variables
            .map(|one| (one["name"].as_str().unwrap(), one["value"].as_str().or_else(|| of_pod(one)).unwrap()))
            .collect();
        // Where a pod has its account's files and a network of its own.
        variables.push(("CSI_CONTROL_PLANE_KUBERNETES__KUBECONFIG", &kubeconfig));
        variables.push(("CSI_CONTROL_PLANE_DIAGNOSTICS__LISTEN", "127.0.0.1:0"));
        Program::start(&arguments, &variables)
    }

    /// Tells a pod's processes to end, once. Whether they have.
    async fn has_ended(&mut self, name: &str) -> bool {
        let Some(played) = self.pods.get_mut(name) else { return true };
        let mut are_alive = false;
        for process in &mut played.processes {
            if !played.is_told_to_end {
                process.end().await;
            }
            are_alive |= process.is_alive();
        }
        played.is_told_to_end = true;
        if !are_alive {
            for process in &mut played.processes {
                if let Process::Daemon(daemon) = process {
                    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());
                    self.said.push(daemon.stderr());
                }
            }
        }
        !are_alive
    }
}

impl Played {
    /// Whether all containers are ready that were not before. One that has ended by itself is a fault.
    async fn becomes_ready(&mut self) -> bool {
        let mut are_ready = true;
        for process in &mut self.processes {
            match process {
                Process::Sidecar(program) => program.check().unwrap(),
                Process::Daemon(daemon) => {
                    assert!(daemon.is_alive(), "{}", daemon.stderr());
                    are_ready &= self.is_ready || daemon.get("/readyz").await.code == 200;
                }
            }
        }
        are_ready && !std::mem::replace(&mut self.is_ready, are_ready)
    }
}

impl Process {
    async fn end(&self) {
        match self {
            Self::Sidecar(program) => program.signal("TERM"),
            Self::Daemon(daemon) => daemon.signal("TERM").await,
        }
    }

    fn is_alive(&mut self) -> bool {
        match self {
            Self::Sidecar(program) => program.check().is_ok(),
            Self::Daemon(daemon) => daemon.is_alive(),
        }
    }
}

/// The flags that give the newest program the defaults of the version of this tag.
fn defaults_of(program: &str, tag: &str) -> Vec<String> {
    let mut numbers = tag.trim_start_matches('v').split('.').map(|number| number.parse::<u32>().unwrap());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    let is_older = |(of, before, _): &&(&str, (u32, u32), &str)| *of == program && version < *before;
    let flags: Vec<&str> = OLD_DEFAULTS.iter().filter(is_older).map(|(.., flag)| *flag).collect();
    // Given twice, the last counts in some of them.
    let (gates, mut rest): (Vec<&str>, Vec<&str>) =
        flags.into_iter().partition(|flag| flag.starts_with("--feature-gates="));
    let gates = gates.iter().map(|flag| flag.trim_start_matches("--feature-gates=")).collect::<Vec<_>>().join(",");
    let gates = (!gates.is_empty()).then(|| format!("--feature-gates={gates}"));
    rest.dedup();
    rest.into_iter().map(str::to_owned).chain(gates).collect()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}
