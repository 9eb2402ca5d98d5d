//! More manifests after those of public drivers: versions before and after each default that changed, hosted control planes, several drivers
//! in one pod, and what cannot be moved. Each with all that people read.

use super::tests::{fixture, wanted};
use super::*;

macro_rules! manifest {
    ($name:literal) => {
        include_str!(concat!("../../tests/migrate/", $name, ".yaml"))
    };
}

/// A manifest that is refused, with all that people read.
fn refused(name: &str, text: &str, change: impl Fn(&mut Wanted)) {
    let mut wanted = Wanted { folder: Some("moved".to_owned()), driver: None, ..wanted(text) };
    change(&mut wanted);
    let outcome = migrate(&wanted);
    assert_eq!(outcome.files, None, "{name}");
    assert_eq!(outcome.report.next, Vec::<String>::new(), "{name}: no step without files");
    let told = format!("{}\n{}", outcome.faults_text(), outcome.report);
    insta::with_settings!({ snapshot_path => "../../tests/migrate/snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, told);
    });
}

#[test]
fn synology_from_before_the_finalizer_and_without_leader_election() {
    fixture("synology", manifest!("synology"), |_| ());
}

#[test]
fn oci_on_the_hosts_network_where_no_port_was_declared() {
    fixture("oci", manifest!("oci"), |wanted| wanted.driver = Some("blockvolume.csi.oraclecloud.com".to_owned()));
}

#[test]
fn nfs_with_the_port_of_its_probe_and_long_deadlines() {
    fixture("nfs", manifest!("nfs"), |_| ());
}

#[test]
fn juicefs_with_the_flags_of_a_provisioner_that_locks_an_endpoints_object() {
    fixture("juicefs", manifest!("juicefs"), |wanted| {
        wanted.workload = Some("deployment/juicefs-csi-controller".to_owned());
        wanted.driver = Some("csi.juicefs.com".to_owned());
    });
}

#[test]
fn hcloud_with_the_socket_of_the_sidecars_default() {
    fixture("hcloud", manifest!("hcloud"), |_| ());
}

#[test]
fn ebs_of_a_hosted_control_plane() {
    fixture("hosted-ebs", manifest!("hosted-ebs"), |wanted| wanted.driver = Some("ebs.csi.aws.com".to_owned()));
}

#[test]
fn longhorn_as_a_running_cluster_prints_it() {
    fixture("longhorn", manifest!("longhorn"), |wanted| wanted.driver = Some("driver.longhorn.io".to_owned()));
}

#[test]
fn health_monitor_with_its_node_watcher_and_the_agent_that_upstream_has_ended() {
    fixture("health-monitor", manifest!("health-monitor"), |wanted| {
        wanted.driver = Some("io.kubernetes.storage.mock".to_owned());
    });
}

#[test]
fn linstor_with_the_newest_sidecars_and_their_deadlines() {
    fixture("resizer-deadlines", manifest!("resizer-deadlines"), |_| ());
}

#[test]
fn linode_with_the_newest_sidecars_in_a_statefulset() {
    fixture("linode", manifest!("linode"), |_| ());
}

#[test]
fn cinder_with_versions_that_know_gates_which_are_not_on_yet() {
    fixture("cinder-current", manifest!("cinder-current"), |wanted| {
        wanted.driver = Some("cinder.csi.openstack.org".to_owned());
    });
}

#[test]
fn cephfs_as_its_operator_makes_it_with_gates_and_groups() {
    fixture("cephfs-ctrlplugin", manifest!("cephfs-ctrlplugin"), |_| ());
}

#[test]
fn the_first_ebs_with_the_oldest_sidecars_of_each_kind() {
    fixture("aws-ebs-first", manifest!("aws-ebs-first"), |_| ());
}

#[test]
fn nfs_with_the_newest_sidecars_of_each_kind() {
    fixture("nfs-current", manifest!("nfs-current"), |_| ());
}

#[test]
fn digitalocean_in_one_file_with_all_objects_of_the_driver() {
    fixture("digitalocean", manifest!("digitalocean"), |_| ());
}

#[test]
fn vsphere_beside_the_node_plugins_of_linux_and_of_windows() {
    fixture("vsphere", manifest!("vsphere"), |wanted| {
        wanted.workload = Some("deployment/vsphere-csi-controller".to_owned());
        wanted.driver = Some("csi.vsphere.vmware.com".to_owned());
    });
}

#[test]
fn efs_by_digests_with_the_versions_that_the_user_says_and_without() {
    fixture("efs", manifest!("efs"), |_| ());
    fixture("efs-assumed", manifest!("efs"), |wanted| {
        let assumed = [("csi-provisioner", "3.6.0"), ("liveness-probe", "2.11.0")];
        wanted.assumed = assumed.map(|(name, version)| (name.to_owned(), version.to_owned())).into();
    });
}

#[test]
fn openebs_lvm_with_capacity_and_the_snapshot_controller_in_the_pod() {
    fixture("openebs-lvm", manifest!("openebs-lvm"), |_| ());
}

#[test]
fn trident_that_an_operator_keeps_without_leader_election() {
    fixture("trident", manifest!("trident"), |wanted| wanted.driver = Some("csi.trident.netapp.io".to_owned()));
}

#[test]
fn hostpath_with_a_provisioner_on_each_node() {
    fixture("hostpath-distributed", manifest!("hostpath-distributed"), |_| ());
}

#[test]
fn the_first_of_two_drivers_of_a_pod_by_its_socket() {
    fixture("two-drivers", manifest!("two-drivers"), |wanted| {
        wanted.driver = Some("diskplugin.csi.example.com".to_owned());
        wanted.socket = Some("/socketDir/csi.sock".to_owned());
    });
}

#[test]
fn the_second_of_two_drivers_is_moved_after_the_first() {
    let first = Wanted {
        driver: Some("diskplugin.csi.example.com".to_owned()),
        socket: Some("unix:///socketDir/csi.sock".to_owned()),
        ..wanted(manifest!("two-drivers"))
    };
    let left = migrate(&first).files.unwrap().workload;
    fixture("two-drivers-second", &left, |wanted| {
        wanted.driver = Some("nasplugin.csi.example.com".to_owned());
        wanted.containers = vec!["external-nas-provisioner".to_owned()];
    });
}

#[test]
fn a_hardened_node_plugin_whose_sidecars_have_contexts_and_annotations_of_their_own() {
    fixture("hardened-node", manifest!("hardened-node"), |wanted| {
        wanted.driver = Some("hardened.csi.example.com".to_owned());
    });
}

#[test]
fn what_cannot_be_moved_is_refused_with_the_reason() {
    let driver = |wanted: &mut Wanted| wanted.driver = Some("disk.example.com".to_owned());
    refused("two-drivers-together", manifest!("two-drivers"), driver);
    refused("two-drivers-unknown-container", manifest!("two-drivers"), |wanted| {
        driver(wanted);
        wanted.containers = vec!["external-disk-provisioner".to_owned(), "external-oss-provisioner".to_owned()];
    });
    refused("longhorn-deployer", manifest!("longhorn-deployer"), driver);
    refused("not-rendered", manifest!("not-rendered"), driver);
    refused("substituted", manifest!("substituted"), driver);
    refused("gates-off", manifest!("gates-off"), driver);
    refused("windows-node", manifest!("windows-node"), driver);
    refused("oci-without-a-name", manifest!("oci"), |_| ());
}
