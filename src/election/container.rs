//! The container that this process runs in, and its lock.
//!
//! The kubelet makes a file for each start of a container, and mounts it at `/dev/termination-log`
//! (`makeMounts` in its `kuberuntime_container.go`):
//!
//! ```text
//!   /var/lib/kubelet/pods/<pod uid>/containers/<container>/<random> -> /dev/termination-log
//! ```
//!
//! So `/proc/self/mountinfo` says which pod and container this is, in the kubelet's own words: no variable of the environment can be
//! wrong, or copied into another container. And the file is the same for all processes of one start of a container, and for no other.
//!
//! A process that holds the file's lock (`flock`) until it ends knows that every earlier holder of this container's lock has ended:
//!
//! - in this start of the container, because the kernel gives the lock to one process at a time;
//! - in an earlier start, because the kubelet starts a container only when the last one has ended, and kills one of whose state it
//!   is not sure ("to avoid having 2 running instances of the same container": `computePodActions` in `kuberuntime_manager.go`).
//!
//! A second daemon in the container, beside the first or by `kubectl exec`, gets no lock and so names no container. An ephemeral
//! container has a name of its own. Where the runtime shows other mounts (gVisor, Kata), or `terminationMessagePath` is changed, no
//! container is known, and only an expired Lease is taken over.
//!
//! A process that is restored from a checkpoint, or with its whole machine, believes to be the one that was saved. Kubernetes moves
//! no container in this way; who does must let the Lease expire first.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::identity::{ContainerProcess, termination_message};
use crate::process::Rng;

/// Where the kubelet mounts the file, unless `terminationMessagePath` says otherwise.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// The container whose lock this process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub(super) pod_uid: String,
    pub(super) name: String,
    /// Where the kubelet reads the container's last words. `None` in tests: they play the kubelet.
    log: Option<PathBuf>,
}

impl Container {
    /// The container of this process, whose lock it holds until its end. `None`: it is in none that a kubelet has started, or another
    /// process of the container has the lock.
    pub fn of_this_process() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let container = mounted(&mounts)?;
        let log = Path::new(TERMINATION_LOG);
        lock(log).then(|| Self { log: Some(log.to_owned()), ..container })
    }

    /// A container by name, for tests: the caller knows that no other process of it lives.
    pub fn named(pod_uid: &str, name: &str) -> Self {
        Self { pod_uid: pod_uid.to_owned(), name: name.to_owned(), log: None }
    }

    /// Leaves the identity of this process to the kubelet, which reports it when the container has ended: see `election/proof.rs`.
    pub fn announce(&self, identity: &str) {
        let Some(log) = &self.log else { return };
        // The lines of earlier processes of this start of the container stay, and one without an end gets one.
        let line = format!("\n{}\n", termination_message(identity));
        let written = OpenOptions::new().append(true).open(log).and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = written {
            tracing::debug!(log = %log.display(), %error, "a standby will wait for the lease to expire");
        }
    }
}

/// A unique identity for this process. `pod`: the name of its pod, if it is known. Two processes on one host's network share its
/// name, and so do a process and its predecessor in a pod: the token tells them apart.
pub fn identity(host: &str, pod: Option<&str>, container: Option<&Container>, rng: &Rng) -> String {
    let token = rng.suffix();
    if let Some(Container { pod_uid, name, .. }) = container {
        let identity = format!("{}_{pod_uid}_{name}_{token}", pod.unwrap_or(host));
        if ContainerProcess::parse(&identity).is_some() {
            return identity;
        }
    }
    let mut name: String = host.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    if name.is_empty() || name.ends_with('-') {
        name.push('X');
    }
    format!("{name}_{token}")
}

/// The container that the mounts of a process say.
fn mounted(mounts: &str) -> Option<Container> {
    let mut found = mounts.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        (fields.get(4) == Some(&TERMINATION_LOG)).then_some(fields)
    });
    // Two: another container's may have come over a shared `/dev`, and which is on top is hard to tell.
    let (mount, None) = (found.next()?, found.next()) else { return None };
    // Tags before the `-` say that the mount came from elsewhere, or goes elsewhere: the runtime makes it private.
    if mount.get(6) != Some(&"-") {
        return None;
    }
    let mut path = mount[3].rsplit('/');
    let (start, name, containers, pod_uid, pods) =
        (path.next()?, path.next()?, path.next()?, path.next()?, path.next()?);
    let is_one = (containers, pods) == ("containers", "pods") && [start, name, pod_uid].iter().all(|it| !it.is_empty());
    is_one.then(|| Container::named(pod_uid, name))
}

/// Locks a file until the end of the process: the kernel closes it when no thread runs any more.
fn lock(path: &Path) -> bool {
    let Ok(file) = OpenOptions::new().append(true).open(path) else { return false };
    let is_locked = file.try_lock().is_ok();
    if is_locked {
        std::mem::forget(file);
    }
    is_locked
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const UID: &str = "0b5c0f9e-5a3d-4a6a-9a71-5b3e9e7c1f10";
    const PATH: &str = "/var/lib/kubelet/pods/0b5c-1f10/containers/csi-control-plane/3fa4c6d2";

    fn mount(root: &str, point: &str, tags: &str) -> String {
        format!("2037 2028 254:1 {root} {point} rw,relatime{tags} - ext4 /dev/vda1 rw\n")
    }

    fn own(root: &str) -> String {
        mount(root, TERMINATION_LOG, "")
    }

    #[test]
    fn r31_identities_are_sanitised_and_differ_on_one_host() {
        let rng = Rng::seeded(1);
        let of = |host| identity(host, None, None, &rng);
        let (a, b) = (of("node_1.example."), of("node_1.example."));
        assert!(a.starts_with("node-1-example-X_") && a.len() == "node-1-example-X_".len() + 8, "{a}");
        assert_ne!(a, b);
        assert!(of("").starts_with("X_"));
    }

    #[test]
    fn a_process_in_a_container_names_pod_and_container() {
        let (rng, container) = (Rng::seeded(1), Container::named(UID, "csi-control-plane"));
        let named = |host, pod| identity(host, pod, Some(&container), &rng);
        let whole = named("node", Some("csi-controller-7d.x"));
        assert!(whole.starts_with(&format!("csi-controller-7d.x_{UID}_csi-control-plane_")), "{whole}");
        let process = ContainerProcess::parse(&whole).unwrap();
        assert_eq!(
            (process.pod, process.pod_uid, process.container),
            ("csi-controller-7d.x", UID, "csi-control-plane")
        );
        assert!(
            named("csi-controller-0", None).starts_with(&format!("csi-controller-0_{UID}_")),
            "the host is the pod"
        );
        let odd = named("host", Some("two_words"));
        assert!(odd.starts_with("host_") && ContainerProcess::parse(&odd).is_none(), "{odd}");
    }

    #[test]
    fn the_kubelets_mount_says_pod_and_container_and_what_is_not_clearly_its_own_says_nothing() {
        let others = mount("/", "/", " master:1") + &mount("/var/lib/kubelet/pods/u/etc-hosts", "/etc/hosts", "");
        let this = Some(Container::named("0b5c-1f10", "csi-control-plane"));
        let cases: [(String, &Option<Container>); 12] = [
            (own(PATH), &this),
            // `/var/lib/kubelet` may be a file system of its own, or elsewhere.
            (own("/pods/0b5c-1f10/containers/csi-control-plane/3fa4c6d2"), &this),
            (own("/_data/lib/kubelet/pods/0b5c-1f10/containers/csi-control-plane/3fa4c6d2"), &this),
            (others.clone() + &own(PATH), &this),
            (String::new(), &None),
            (others, &None),
            // gVisor; Kata.
            (own("/"), &None),
            (own("/d41d8cd98f00b204-termination-log"), &None),
            (own("/pods/0b5c-1f10/containers//3fa4c6d2"), &None),
            (own("/pods/0b5c-1f10/volumes/csi-control-plane/3fa4c6d2"), &None),
            // From the `/dev` of the host, where another container has shared its own.
            (mount(PATH, TERMINATION_LOG, " master:7"), &None),
            (own(PATH) + &own(PATH), &None),
        ];
        for (mounts, expected) in cases {
            assert_eq!(mounted(&mounts), *expected, "{mounts}");
        }
        assert_eq!(mounted("garbage\n\n36 35\n"), None);
    }

    #[test]
    fn the_identity_is_a_line_of_its_own_in_the_termination_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("termination-log");
        std::fs::write(&log, "the wrapper begins").unwrap();
        let container = Container { log: Some(log.clone()), ..Container::named("u1", "daemon") };
        container.announce("pod_u1_daemon_1");
        container.announce("pod_u1_daemon_2");
        let said = std::fs::read_to_string(log).unwrap();
        for process in ["pod_u1_daemon_1", "pod_u1_daemon_2"] {
            assert!(said.lines().any(|line| line == termination_message(process)), "{said}");
        }
        Container { log: Some(folder.path().to_owned()), ..container }.announce("what cannot be written costs nothing");
    }

    #[test]
    fn one_process_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("termination-log");
        assert!(!lock(&path), "a file that the kubelet has not made is none");
        File::create(&path).unwrap();
        assert!(lock(&path));
        assert!(!lock(&path), "the first has it until the end of the process");
        File::create(folder.path().join("next")).unwrap();
        assert!(lock(&folder.path().join("next")), "the file of the container's next start");
    }
}
