//! A node: `machine.sh` holds its mounts and processes, and containerd and the kubelet run in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::program::eventually;
use crate::programs::{self, Program};

/// Where containerd listens.
const CONTAINERD: &str = "/run/containerd/containerd.sock";

/// A node of the cluster. Dropping it kills all that runs on it, pods included.
pub(crate) struct Machine {
    /// Its name for Kubernetes, which is its address: it needs no lookup.
    pub(crate) name: String,
    number: usize,
    /// Where its programs run: the folder of the control plane, with their logs.
    folder: PathBuf,
    /// The folder whose folders it has as /var/lib, /var/log and /run.
    root: PathBuf,
    holder: Program,
    containerd: Option<Program>,
    kubelet: Option<Program>,
}

/// Starts containerd, which logs into `log`, and waits until all of it has started. It listens before, and a kubelet that asks it then
/// ends.
pub(super) async fn containerd_is_up(log: &Path, start: impl FnOnce() -> Program) -> Program {
    let starts = || fs::read_to_string(log).unwrap_or_default().matches("containerd successfully booted").count();
    let before = starts();
    let containerd = start();
    eventually("containerd has started", async || (starts() > before).then_some(())).await;
    containerd
}

impl Machine {
    /// Starts the node of this number: its kubelet registers it with the cluster whose files are in `folder`. `lab` keeps what nodes
    /// keep.
    pub(crate) async fn start(folder: &Path, lab: &Path, number: usize, images: &[PathBuf]) -> Self {
        let root = lab.join(format!("node-{number}"));
        let holder = hold(folder, &root, number).await;
        let name = format!("10.1.0.{number}");
        let folder = folder.to_owned();
        let mut machine = Self { name, number, folder, root, holder, containerd: None, kubelet: None };
        machine.write_files();
        machine.start_containerd().await;
        for image in images {
            let imported = machine.enter("ctr", &["-n", "k8s.io", "images", "import", image.to_str().unwrap()]);
            assert!(imported.is_ok(), "{imported:?}");
        }
        machine.start_kubelet();
        machine
    }

    /// Where the node has this path.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    async fn start_containerd(&mut self) {
        let config = format!("--config=containerd-{}.toml", self.number);
        let log = self.folder.join(format!("containerd-{}.log", self.number));
        self.containerd = Some(containerd_is_up(&log, || self.run("containerd", &[&config])).await);
    }

    /// Starts the kubelet.
    pub(crate) fn start_kubelet(&mut self) {
        let config = format!("--config=kubelet-{}.json", self.number);
        let (name, address) = (format!("--hostname-override={}", self.name), format!("--node-ip={}", self.name));
        self.kubelet = Some(self.run("kubelet", &[&config, "--kubeconfig=admin.kubeconfig", &name, &address]));
    }

    /// Kills the kubelet alone: its pods run on.
    pub(crate) fn kill_kubelet(&mut self) {
        kill(&self.kubelet.take().expect("a kubelet"));
    }

    /// Kills containerd alone, and starts it again: its containers run on.
    pub(crate) async fn restart_containerd(&mut self) {
        kill(&self.containerd.take().expect("containerd"));
        let _ = fs::remove_file(self.path(CONTAINERD));
        self.start_containerd().await;
    }

    /// Loses the machine: all that runs on it is gone at once, and its mounts with it.
    pub(crate) fn lose(&mut self) {
        signal("KILL", self.first_process());
        (self.kubelet, self.containerd) = (None, None);
    }

    /// Starts the lost machine again. It has what it kept on its disk, and nothing of its /run.
    pub(crate) async fn come_back(&mut self) {
        fs::remove_dir_all(self.path("/run")).unwrap();
        self.holder = hold(&self.folder, &self.root, self.number).await;
        self.start_containerd().await;
        self.start_kubelet();
    }

    /// Its mounts, as its own processes see them: one path each.
    pub(crate) fn mounts(&self) -> Vec<String> {
        self.numbered_mounts().into_iter().map(|(_, path)| path).collect()
    }

    /// The same, each with the number that it got when it was made.
    pub(crate) fn numbered_mounts(&self) -> Vec<(String, String)> {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", self.first_process())).unwrap();
        let numbered = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            Some((words.next()?, words.nth(3)?))
        };
        table.lines().filter_map(numbered).collect()
    }

    /// The process that all others on it descend from.
    fn first_process(&self) -> u32 {
        children(self.holder.id())[0]
    }

    /// What enters it: the arguments of `nsenter`.
    fn entrance(&self) -> Vec<String> {
        vec![format!("--target={}", self.first_process()), "--mount".to_owned(), "--pid".to_owned(), "--".to_owned()]
    }

    /// Starts a program on it, with a log of its own.
    fn run(&self, program: &str, arguments: &[&str]) -> Program {
        let mut all = self.entrance();
        // A new root folder takes the working folder away.
        all.extend(["env", "-C", self.folder.to_str().unwrap()].map(str::to_owned));
        all.push(programs::find(program).to_str().unwrap().to_owned());
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        Program::run(&self.folder, &format!("{program}-{}", self.number), Path::new("nsenter"), &all)
    }

    /// Runs a program on it to its end, and gives its output.
    pub(crate) fn enter(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new("nsenter");
        let output = command.args(self.entrance()).arg(programs::find(program)).args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn write_files(&self) {
        let network = format!("network-{}", self.number);
        fs::create_dir_all(self.folder.join(&network)).unwrap();
        let write = |name: &str, text: &str| fs::write(self.folder.join(name), text).unwrap();
        write(&format!("{network}/pods.conflist"), &network_config(self.number).to_string());
        let folder = self.folder.join(network);
        write(&format!("containerd-{}.toml", self.number), &containerd_config(folder.to_str().unwrap()));
        write(&format!("kubelet-{}.json", self.number), &self.kubelet_config().to_string());
    }

    /// It evicts nothing, whatever this machine has left. A container that is killed again and again is back soon: by itself a kubelet would let
    /// it rest for minutes, and pods with it.
    fn kubelet_config(&self) -> Value {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": format!("unix://{CONTAINERD}"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}/{}", super::group(), self.number),
            "failCgroupV1": false,
            "failSwapOn": false,
            "address": self.name,
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "evictionHard": {"memory.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "volumePluginDir": "/var/lib/kubelet/flexvolume",
            "volumeStatsAggPeriod": "2s",
            "nodeStatusUpdateFrequency": "2s",
            "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
            "oomScoreAdj": 0,
            "healthzPort": 0,
            "resolvConf": "",
        })
    }
}

/// Starts what holds a node's mounts and processes, and waits until it does.
async fn hold(folder: &Path, root: &Path, number: usize) -> Program {
    let ready = root.with_extension("ready");
    let _ = fs::remove_file(&ready);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/machine.sh");
    let arguments: Vec<String> = ["--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        .iter()
        .map(|&argument| argument.to_owned())
        .chain([&script, root, &root.with_file_name("storage"), &ready].map(|path| path.to_str().unwrap().to_owned()))
        .chain([format!("{}/{number}", super::group())])
        .collect();
    let holder = Program::run(folder, &format!("node-{number}"), Path::new("unshare"), &arguments);
    eventually("the node's mounts are made", async || ready.exists().then_some(())).await;
    holder
}

fn containerd_config(network: &str) -> String {
    let plugins = programs::find("ptp").parent().unwrap().to_str().unwrap().to_owned();
    let runc = programs::find("runc");
    format!(
        r#"version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "{network}"
  use_internal_loopback = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "{runc}"
"#,
        pause = super::images::BUSYBOX,
        runc = runc.display(),
    )
}

/// A pair of interfaces for each pod, and a route to everything: all nodes are one machine.
fn network_config(number: usize) -> Value {
    let addresses = json!({
        "type": "host-local", "dataDir": "/run/cni",
        "ranges": [[{"subnet": format!("10.244.{number}.0/24")}]], "routes": [{"dst": "0.0.0.0/0"}]});
    json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": false, "ipam": addresses}]})
}

/// Kills a program that runs on a node: the one child of what has entered there.
fn kill(program: &Program) {
    let [process] = children(program.id())[..] else { panic!("it is one process") };
    signal("KILL", process);
}

/// Sends a process a signal.
pub(crate) fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args(["-s", name, &process.to_string()]).status().unwrap();
    assert!(sent.success(), "{name} {process}");
}

/// The children of a process.
fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}
