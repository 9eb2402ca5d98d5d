use super::choice::NO_SIDECAR;
use super::report::Report;
use super::tests::{attacher, wanted};
use super::{Outcome, migrate};

/// The report on an attacher that is replaced, beside these lines of its pod.
fn beside(lines: &str) -> Report {
    let Outcome { report, files } =
        migrate(&wanted(&format!("{}{lines}", attacher("[--csi-address=/csi/s, --leader-election]"))));
    assert!(files.is_some(), "{}", report.faults_text());
    report
}

fn container(fields: &str) -> String {
    format!("      - {{name: odd, {fields}}}\n")
}

fn says_that_none_is_left(report: &Report) -> bool {
    report.notes.texts().any(|note| note == NO_SIDECAR)
}

#[test]
fn a_sidecar_in_whatever_wrapper_is_named_as_not_replaced() {
    for (fields, sidecar, why) in [
        (
            "image: x/tools, command: [/tools/wait-for-leader], args: [/csi-provisioner, --csi-address=/csi/s]",
            "csi-provisioner",
            "wait-for-leader starts it, and ",
        ),
        (
            "image: x/y, command: [dumb-init, --, /csi-resizer, --csi-address=/csi/s]",
            "csi-resizer",
            "dumb-init starts it, ",
        ),
        (
            "image: x/y, args: [tini, --, /csi-resizer, --csi-address=/csi/s]",
            "csi-resizer",
            "the image's own program starts it, ",
        ),
        (
            "image: x/y, command: [/bin/sh, -c], args: ['sleep 5; exec /csi-attacher --csi-address=/csi/s']",
            "csi-attacher",
            "a shell starts it, ",
        ),
        ("image: x/y, command: [sh, -c, 'BIN=/csi-snapshotter; $BIN --v=5']", "csi-snapshotter", "a shell starts it, "),
        ("image: x/y, command: [/run, --exec=/bin/csi-snapshotter]", "csi-snapshotter", "run starts it, "),
        ("image: x/y, command: [/bin/run-csi-resizer.sh]", "csi-resizer", "run-csi-resizer.sh starts it, "),
        (
            "image: 'r:5000/m/csi-resizer-rhel9@sha256:0a', command: [/wrap]",
            "csi-resizer",
            "its image is called as a sidecar's, and wrap ",
        ),
        (
            "image: registry/csi/attacher, command: [/wrap]",
            "csi-attacher",
            "its image is called as a sidecar's, and wrap ",
        ),
        (
            "image: 'x/livenessprobe:v2', command: [/wrap]",
            "livenessprobe",
            "its image is called as a sidecar's, and wrap ",
        ),
    ] {
        for (lines, expected) in [
            (container(fields), why),
            (
                format!("      initContainers:\n{}", container(fields).replace("odd,", "odd, restartPolicy: Always,")),
                "it is an init container",
            ),
        ] {
            let report = beside(&lines);
            let one =
                report.containers.iter().find(|one| one.name == "odd").unwrap_or_else(|| panic!("{lines}{report}"));
            assert_eq!((one.sidecar, one.roles.is_empty()), (sidecar, true), "{lines}");
            assert!(one.kept.as_ref().unwrap().starts_with(expected), "{lines}{:?}", one.kept);
            assert!(!says_that_none_is_left(&report), "{lines}");
        }
    }
}

#[test]
fn sidecars_that_no_role_replaces_are_named_with_what_they_do() {
    for (fields, sidecar, why) in [
        (
            "image: x/csi-sidecars, args: ['--csi-address=/csi/s', '--controllers=resizer,attacher,provisioner']",
            "csi-sidecars",
            "it does the work of resizer,attacher,provisioner; it is upstream's sidecars in one program",
        ),
        (
            "image: x/y, command: [csi-sidecars, --controllers, attacher, --csi-address=/csi/s]",
            "csi-sidecars",
            "it does the work of attacher; ",
        ),
        (
            "image: x/y, args: ['--controllers=resizer', '--csi-address=/csi/s', '--strict-topology']",
            "csi-sidecars",
            "it does the work of resizer; ",
        ),
        (
            "image: 'quay.io/k8scsi/csi-cluster-driver-registrar:v1.0.1'",
            "cluster-driver-registrar",
            "it is of Kubernetes before 1.14",
        ),
        ("image: 'quay.io/k8scsi/driver-registrar:v0.4.2'", "driver-registrar", "it is of Kubernetes before 1.14"),
        (
            "image: 'gcr.io/k8s-staging-sig-storage/csi-external-health-monitor-agent:v0.2.0'",
            "external-health-monitor-agent",
            "upstream ended it with v0.3: since Kubernetes 1.21 the kubelet does its work",
        ),
        ("image: 'x/csi-snapshot-metadata:v0.1.0'", "external-snapshot-metadata", "no role does its work yet"),
    ] {
        let report = beside(&container(fields));
        let one =
            report.containers.iter().find(|one| one.name == "odd").unwrap_or_else(|| panic!("{fields}: {report}"));
        assert_eq!(one.sidecar, sidecar, "{fields}");
        assert!(one.kept.as_ref().unwrap().starts_with(why), "{fields}: {:?}", one.kept);
        assert!(!says_that_none_is_left(&report), "{fields}");
    }
    let report =
        beside(&container("image: x/driver, args: ['--csi-address=/csi/s', '--kubelet-registration-path=/p/s']"));
    let one = report.containers.iter().find(|one| one.name == "odd").unwrap();
    assert!(one.kept.is_none() && one.sidecar == "node-driver-registrar", "{report}");
}

#[test]
fn a_container_that_calls_the_driver_may_be_a_sidecar() {
    let unknown = "image: x/y, args: ['--csi-address=/csi/s', '--speed=9']";
    for lines in [container(unknown), format!("      initContainers:\n{}", container(unknown))] {
        let report = beside(&lines);
        let why = &report.beside.iter().find(|one| one.name == "odd").unwrap_or_else(|| panic!("{report}")).why;
        assert!(why.starts_with("it has --csi-address and is no sidecar that is known"), "{why}");
        assert!(!says_that_none_is_left(&report), "{report}");
    }
}

#[test]
fn programs_with_other_names_and_paths_are_no_sidecars() {
    for fields in [
        "image: x/driver, args: ['--endpoint=/csi/csi.sock', '--lock=csi-attacher-lock', --enable-livenessprobe]",
        "image: x/driver, command: [/driver], args: [/run/csi-attacher.sock, /var/lib/csi-attacher/data]",
        "image: csi-attacher.example.com/driver, command: [driver]",
        "image: x/csi-attacher/driver",
        "image: x/driver, command: [manager, --csi-attacher-image, 'x/csi-attacher:v4']",
    ] {
        let report = beside(&container(fields));
        assert!(report.beside.iter().any(|one| one.name == "odd"), "{fields}: {report}");
        assert!(says_that_none_is_left(&report), "{fields}: {report}");
    }
}

/// Both workloads may use one service account.
#[test]
fn the_rbac_stays_while_another_workload_of_the_files_has_sidecars() {
    let chosen = attacher("[--csi-address=/csi/s, --leader-election]");
    let node = |container: &str| {
        format!(
            "---\nkind: DaemonSet\nmetadata: {{name: node, namespace: 'n'}}\nspec:\n  template:\n    spec:\n      containers:\n      - {container}\n"
        )
    };
    for (container, stays) in [
        ("{name: r, image: 'x/csi-node-driver-registrar:v2.17.0', args: [--csi-address=/csi/s]}", true),
        ("{name: r, image: x/y, command: [dumb-init, --, /csi-node-driver-registrar]}", true),
        ("{name: r, image: x/y, args: [--csi-address=/csi/s]}", true),
        ("{name: driver, image: x/driver}", false),
    ] {
        let mut wanted = wanted(&format!("{chosen}{}", node(container)));
        wanted.workload = Some("deployment/d".to_owned());
        let report = migrate(&wanted).report;
        let told = "sidecars stay in DaemonSet n/node: keep the RBAC that they use";
        assert_eq!(report.notes.texts().any(|one| one == told), stays, "{container}: {report}");
        assert_eq!(says_that_none_is_left(&report), !stays, "{container}: {report}");
    }
}
