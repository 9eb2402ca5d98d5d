//! The Go sidecars: those that the roles replace, and those that `migrate` recognises and keeps.

use super::ROLES;
use crate::config::sidecar::{Sidecar, Signs, Unhosted};

/// The sidecars that the roles replace.
pub fn hosted() -> Vec<&'static Sidecar> {
    ROLES.iter().filter_map(|role| role.sidecar).collect()
}

/// Whether a sidecar takes part in leader election: some of its roles work with the cluster.
pub fn leads(sidecar: &Sidecar) -> bool {
    ROLES.iter().any(|role| role.cluster().is_some() && sidecar.roles.contains(&role.name))
}

/// Why those stay that Kubernetes needs no more.
const OF_OLD: &str =
    "it is of Kubernetes before 1.14: a CSIDriver object and node-driver-registrar do its work since then";

/// The sidecars that stay. The snapshot-controller is not a sidecar, although it is in the csi-snapshotter's
/// repository.
pub const UNHOSTED: &[Unhosted] = &[
    Unhosted {
        name: "csi-sidecars",
        signs: Signs { words: &["csi-sidecars"], flags: &["controllers"] },
        why: "it is upstream's sidecars in one program (KEP-4958), and its flags are not read: write a container for each sidecar, then \
              migrate",
        does: Some("controllers"),
    },
    Unhosted {
        name: "external-health-monitor-agent",
        signs: Signs { words: &["external-health-monitor-agent"], flags: &[] },
        why: "upstream ended it with v0.3: since Kubernetes 1.21 the kubelet does its work, and the container can go",
        does: None,
    },
    Unhosted {
        name: "external-snapshot-metadata",
        signs: Signs { words: &["csi-snapshot-metadata", "external-snapshot-metadata"], flags: &[] },
        why: "no role does its work yet",
        does: None,
    },
    Unhosted {
        name: "cluster-driver-registrar",
        signs: Signs { words: &["cluster-driver-registrar"], flags: &["driver-requires-attachment"] },
        why: OF_OLD,
        does: None,
    },
    // The name of a sidecar that is replaced ends so: it is found before this one.
    Unhosted {
        name: "driver-registrar",
        signs: Signs { words: &["driver-registrar"], flags: &[] },
        why: OF_OLD,
        does: None,
    },
];

#[cfg(test)]
mod tests {
    use crate::config::{File, Sources, load};
    use crate::roles::sections;

    /// `key: what is allowed` of each fault.
    fn told(text: &str) -> Vec<String> {
        let file = File { name: "config.yaml".to_owned(), text: text.to_owned() };
        let rejected = load(&Sources { file: Some(file), ..Sources::default() }, &sections()).unwrap_err();
        rejected.faults.into_iter().map(|fault| format!("{}: {}", fault.key, fault.allowed)).collect()
    }

    #[test]
    fn the_name_of_a_flag_in_the_file_is_answered_with_its_key() {
        let text = "\
worker-threads: 5
--csi-address: /csi/csi.sock
timeout: 5s
leader-election: true
v: 5
kube-api-qps: 5
kube-api-burst: 10
feature-gates: Topology=true
kubernetes: {leader-election-namespace: a}
roles:
  provisioner: {capacity: {capacity-poll-interval: 1m}, feature-gates: Topology=true}
  reconciler: {reconcile-sync: 1m}
  resizer: {worker-threads: 5}
  snapshotter: {worker-threads: 5, --retry-interval-start: 1s, workerThreads: 5, kube-api-qps: 5}
  liveness: {timeout: 1s}
  default-fstype: ext4
";
        insta::assert_snapshot!(told(text).join("\n"));
    }

    #[test]
    fn a_block_is_no_flag_and_a_key_of_the_file_is_none_either() {
        for (text, expected) in [
            ("leader-election: {enabled: true}", "leader-election: did you mean `leaderElection`?"),
            ("provisioner:", "provisioner: did you mean `roles.provisioner`?"),
            ("provisioner: true", "provisioner: did you mean `roles.provisioner`?"),
            ("workerThreads: 4", "workerThreads: did you mean `runtime.workerThreads`?"),
        ] {
            assert_eq!(told(text), [expected]);
        }
    }
}
