//! What depends on the versions of the sidecars, and on their leader election.

use super::tests::{attacher, wanted};
use super::*;
use crate::roles::sidecars::hosted;

#[test]
fn each_role_keeps_the_deadline_of_its_own_sidecar() {
    let container = |name: &str, time: &str| {
        format!("      - {{name: {name}, image: x/{name}:v5.0.0, args: [--timeout={time}]}}\n")
    };
    let text = format!(
        "kind: Deployment\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  template:\n    spec:\n      containers:\n{}{}{}{}{}",
        container("csi-attacher", "20s"),
        container("csi-provisioner", "10h"),
        container("csi-resizer", "1m50s"),
        container("csi-snapshotter", "5m"),
        container("csi-external-health-monitor-controller", "7s"),
    );
    let Outcome { report, files } = migrate(&wanted(&text));
    let config = files.unwrap_or_else(|| panic!("{}", report.faults_text())).config;
    let config: serde_json::Value = serde_yaml::from_str(&config).unwrap();
    for (pointer, time) in [
        ("/roles/attacher/timeout", Some("20s")),
        ("/roles/provisioner/timeout", Some("10h")),
        ("/roles/resizer/timeout", Some("1m50s")),
        ("/roles/snapshotter/callTimeout", Some("5m")),
        ("/roles/healthMonitor/timeout", Some("7s")),
        ("/roles/snapshotter/timeout", None),
        ("/csi/timeout", None),
    ] {
        assert_eq!(config.pointer(pointer).and_then(serde_json::Value::as_str), time, "{pointer}: {config}");
    }
    assert!(report.notes.texts().any(|note| note.starts_with("roles.provisioner.timeout is 10h and the pod's")));
}

/// The precedence of csi-resizer 2.3: resizer spec 1.3.
#[test]
fn an_expansion_and_a_modification_keep_the_deadline_that_counted() {
    let common = Some("--timeout was 10s; csi.timeout is 15s");
    for (arguments, timeout, resize, modify, overruled, is_long, default) in [
        ("", None, None, None, 0, false, common),
        (", --resize-timeout=300s, --modify-timeout=1800s", None, Some("5m"), Some("30m"), 0, true, common),
        (", --timeout=120s, --resize-timeout=300s, --modify-timeout=1800s", Some("2m"), None, None, 2, true, None),
        (", --timeout=10s, --resize-timeout=300s", Some("10s"), None, None, 1, false, None),
        (
            ", --resize-timeout=300s",
            None,
            Some("5m"),
            None,
            0,
            true,
            Some("--timeout and --modify-timeout were 10s; csi.timeout is 15s"),
        ),
        (
            ", --modify-timeout=30m",
            None,
            None,
            Some("30m"),
            0,
            true,
            Some("--timeout and --resize-timeout were 10s; csi.timeout is 15s"),
        ),
        (", -timeout, 1m50s", Some("1m50s"), None, None, 0, true, None),
    ] {
        let text = attacher(&format!("[--csi-address=/csi/s, --leader-election{arguments}]"));
        let Outcome { report, files } = migrate(&wanted(&text.replace("csi-attacher:v4", "csi-resizer:v2.3.0")));
        let config: serde_json::Value =
            serde_yaml::from_str(&files.unwrap_or_else(|| panic!("{}", report.faults_text())).config).unwrap();
        let section = &config["roles"]["resizer"];
        let found = ["timeout", "resizeTimeout", "modifyTimeout"].map(|key| section[key].as_str());
        assert_eq!(found, [timeout, resize, modify], "{arguments}");
        let notes = report.containers[0].flags.iter().map(|line| &*line.note);
        let without_effect = notes.filter(|note| *note == "without effect there: --timeout overrules it").count();
        assert_eq!(without_effect, overruled, "{arguments}: {report}");
        let is_told = report.notes.texts().any(|note| note.contains("terminationGracePeriodSeconds 30: raise it"));
        assert_eq!(is_told, is_long, "{arguments}: {report}");
        let told = report.containers[0].defaults.iter().find(|told| told.contains("csi.timeout"));
        assert_eq!(told.map(String::as_str), default, "{arguments}");
    }
}

#[test]
fn the_defaults_of_the_sidecars_version_are_kept() {
    let moved = |image: &str, arguments: &str| {
        let text = format!(
            "kind: Deployment\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  template:\n    spec:\n      containers:\n      \
             - {{name: p, image: \"{image}\", args: [--csi-address=/csi/s, --leader-election{arguments}]}}\n"
        );
        let Outcome { report, files } = migrate(&wanted(&text));
        let config: serde_json::Value = serde_yaml::from_str(&files.unwrap().config).unwrap();
        (config, report)
    };
    let topology = |image: &str, arguments: &str| {
        moved(image, arguments).0.pointer("/roles/provisioner/topology").and_then(serde_json::Value::as_bool)
    };
    for (image, arguments, expected) in [
        ("x/csi-provisioner:v4.0.1", "", Some(false)),
        ("x/csi-provisioner:v4.0.1", ", --feature-gates=Topology=true", Some(true)),
        ("x/csi-provisioner:v5.0.0", "", None),
        ("x/csi-provisioner:latest", "", None),
        ("quay.io/openshift/ose-csi-external-provisioner:v4.14", "", None),
    ] {
        assert_eq!(topology(image, arguments), expected, "{image}{arguments}");
        let report = moved(image, arguments).1;
        let is_unsure = report.notes.texts().any(|note| note.contains("the version is not known"));
        assert_eq!(is_unsure, image.contains("latest") || image.contains("ose-"), "{image}: {:?}", report.notes);
    }
}

#[test]
fn gates_that_no_version_has_are_told_and_groups_of_gates_undecided() {
    let attacher = hosted().into_iter().find(|sidecar| sidecar.name == "csi-attacher").unwrap();
    for (gate, fate, note) in [
        ("AllAlpha=true", report::FlagFate::Undecided, "the gates that you want, by their names"),
        ("AllBeta=false", report::FlagFate::Undecided, "the gates that you want, by their names"),
        (
            "Topology=true",
            report::FlagFate::Dropped,
            "no gate of csi-attacher: it has no effect there, or the sidecar does not start",
        ),
        ("ReleaseLeaderElectionOnExit=true", report::FlagFate::Dropped, "always on"),
    ] {
        let argument = format!("--feature-gates={gate}");
        let read = map::read("p", "c", attacher, &[argument], &expand::Variables::default(), &|_| true);
        assert_eq!(read.faults.len(), usize::from(fate == report::FlagFate::Undecided), "{gate}");
        assert_eq!(read.lines[0].fate, fate, "{gate}");
        assert!(read.lines[0].note.contains(note), "{gate}: {}", read.lines[0].note);
    }
}

/// A Deployment with one sidecar.
fn one(image: &str, arguments: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  template:\n    spec:\n      containers:\n      \
         - {{name: p, image: \"{image}\", args: [--csi-address=/csi/s, --leader-election{arguments}]}}\n"
    )
}

#[test]
fn the_user_may_say_the_version() {
    let digest = format!("registry.example/csi-provisioner@sha256:{}", "0a".repeat(32));
    let moved = |image: &str, assumed: &[(&str, &str)]| {
        let assumed = assumed.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect();
        let Outcome { report, files } = migrate(&Wanted { assumed, ..wanted(&one(image, "")) });
        let config = files.map(|files| serde_yaml::from_str::<serde_json::Value>(&files.config).unwrap());
        (config, report)
    };
    for (image, assumed, topology) in [
        (&*digest, &[][..], None),
        (&digest, &[("csi-provisioner", "4.0.1")], Some(false)),
        (&digest, &[("p", "v4")], Some(false)),
        (&digest, &[("csi-provisioner", "5.0"), ("p", "4.0")], Some(false)),
        (&digest, &[("csi-provisioner", "5.0")], None),
        ("x/csi-provisioner:v5.0.0", &[("csi-provisioner", "4.0.1")], Some(false)),
    ] {
        let (config, report) = moved(image, assumed);
        let config = config.unwrap_or_else(|| panic!("{}", report.faults_text()));
        let found = config.pointer("/roles/provisioner/topology").and_then(serde_json::Value::as_bool);
        assert_eq!(found, topology, "{image} {assumed:?}");
        let is_unsure = report.notes.texts().any(|note| note.contains("the version is not known"));
        assert_eq!(is_unsure, assumed.is_empty(), "{:?}", report.notes);
        let is_told = report.notes.texts().any(|note| note.contains("as --assume says, whatever the image's tag is"));
        assert_eq!(is_told, !assumed.is_empty(), "{:?}", report.notes);
    }
    let (config, report) = moved(&digest, &[("csi-atacher", "4.0")]);
    assert_eq!((config, report.faults.len()), (None, 1));
    assert_eq!(report.faults[0].found, "--assume csi-atacher=4.0, and no sidecar that is replaced has this name");
    assert_eq!(report.faults[0].expected, "one of csi-provisioner, p");
}

#[test]
fn flags_that_a_version_does_not_know_are_told() {
    for (image, arguments, told) in [
        (
            "csi-attacher:v3.4.0",
            ", --default-fstype=ext4",
            Some("v3.4.0 does not know --default-fstype (it came with 3.5),"),
        ),
        ("csi-attacher:v3.5.0", ", --default-fstype=ext4", None),
        ("csi-attacher:v3", ", --default-fstype=ext4", None),
        ("csi-attacher:latest", ", --default-fstype=ext4", None),
        (
            "csi-attacher:v4.9.0",
            ", --feature-gates=MutableCSINodeAllocatableCount=true",
            Some("--feature-gates (it came with 4.10), the gate MutableCSINodeAllocatableCount (it came with 4.10),"),
        ),
        ("csi-attacher:v4.10.0", ", --feature-gates=MutableCSINodeAllocatableCount=true", None),
        ("csi-attacher:v4.6.0", ", --logtostderr, -v=5", Some("--logtostderr (it went with 4.6),")),
        ("csi-attacher:v4.5.0", ", --logtostderr, -v=5", None),
        ("csi-provisioner:v2.1.0", ", --enable-leader-election", Some("--enable-leader-election (it went with 2.0),")),
        (
            "csi-provisioner:v6.2.0",
            ", --feature-gates=HonorPVReclaimPolicy=true",
            Some("HonorPVReclaimPolicy (it went with 6.2),"),
        ),
        ("csi-provisioner:v6.1.0", ", --feature-gates=HonorPVReclaimPolicy=true", None),
        ("csi-resizer:v2.2.0", ", --resize-timeout=5m", Some("--resize-timeout (it came with 2.3),")),
        ("csi-resizer:v2.3.0", ", --resize-timeout=5m", None),
        (
            "csi-resizer:v2.3.0",
            ", --feature-gates=RecoverVolumeExpansionFailure=true",
            Some("the gate RecoverVolumeExpansionFailure (it went with 2.3), and does not start with it"),
        ),
        ("csi-resizer:v2.2.1", ", --feature-gates=RecoverVolumeExpansionFailure=true", None),
        ("csi-resizer:v2.3.0", ", --feature-gates=AuthorizeWithSelectors=true", Some("(it went with 2.3),")),
        ("csi-attacher:v4.13.0", ", --feature-gates=BtreeWatchCache=false", Some("(it went with 4.13),")),
        ("csi-attacher:v4.12.0", ", --feature-gates=BtreeWatchCache=false", None),
        ("csi-provisioner:v5.0.0", ", --feature-gates=CSINodeExpandSecret=true", Some("(no version has it),")),
        // Its module takes the libraries of Kubernetes 1.36.
        ("csi-provisioner:v6.4.0", ", --feature-gates=RetryGenerateName=true", None),
        ("csi-snapshotter:v8.7.0", ", --feature-gates=APIServerTracing=true", Some("(it went with 8.7),")),
        ("csi-snapshotter:v8.2.0", ", --enable-volume-group-snapshots", Some("(it went with 8.2),")),
        (
            "csi-external-health-monitor-controller:v0.19.0",
            ", --enable-node-watcher",
            Some("--enable-node-watcher (it went with 0.19),"),
        ),
        ("csi-external-health-monitor-controller:v0.18.0", ", --enable-node-watcher", None),
        (
            "csi-external-health-monitor-controller:v0.16.0",
            ", --kube-api-qps=50",
            Some("--kube-api-qps (it came with 0.17),"),
        ),
        ("csi-provisioner:v2.0.4", ", --capacity-controller-deployment-mode=central", None),
        (
            "csi-provisioner:v6.4.0",
            ", --capacity-controller-deployment-mode=central",
            Some("--capacity-controller-deployment-mode (it went with 2.1),"),
        ),
    ] {
        let Outcome { report, files } = migrate(&wanted(&one(&format!("x/{image}"), arguments)));
        assert!(files.is_some(), "{image}{arguments}: {}", report.faults_text());
        let notes: Vec<&str> = report.notes.texts().filter(|note| note.contains("does not know")).collect();
        assert_eq!(notes.len(), usize::from(told.is_some()), "{image}{arguments}: {notes:?}");
        assert!(told.is_none_or(|told| notes[0].contains(told)), "{image}{arguments}: {notes:?}");
    }
}

#[test]
fn the_health_monitor_of_either_generation_is_the_role() {
    for version in ["v0.18.0", "v0.19.0"] {
        let image = format!("x/csi-external-health-monitor-controller:{version}");
        let arguments = ", --monitor-interval=2m, --list-volumes-interval=10m, --metrics-address=:8081";
        let Outcome { report, files } = migrate(&wanted(&one(&image, arguments)));
        let files = files.unwrap_or_else(|| panic!("{version}: {}", report.faults_text()));
        let config: serde_json::Value = serde_yaml::from_str(&files.config).unwrap();
        let expected = serde_json::json!({ "healthMonitor": { "interval": "2m", "listInterval": "10m" } });
        assert_eq!(config["roles"], expected, "{version}");
        assert_eq!(config["diagnostics"]["listen"], "[::]:8081", "{version}");
        assert!(files.rbac.contains("persistentvolumeclaims/status"), "{version}: {}", files.rbac);
    }
}

#[test]
fn groups_of_snapshots_stay_on_or_off_whichever_version_said_so() {
    let groups = |version: &str, arguments: &str| {
        let text = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d, namespace: ns}}\nspec:\n  template:\n    spec:\n      containers:\n      \
             - {{name: s, image: \"x/csi-snapshotter:{version}\", args: [--csi-address=/csi/s, --leader-election{arguments}]}}\n"
        );
        let Outcome { report, files } = migrate(&wanted(&text));
        let config: serde_json::Value =
            serde_yaml::from_str(&files.unwrap_or_else(|| panic!("{report:?}")).config).unwrap();
        config.pointer("/roles/snapshotter/groupSnapshots").and_then(serde_json::Value::as_bool)
    };
    let gate = |on: bool| format!(", --feature-gates=CSIVolumeGroupSnapshot={on}");
    for (version, arguments, expected) in [
        ("v6.2.0", String::new(), false),
        ("v7.0.0", String::new(), false),
        ("v7.0.0", ", --enable-volume-group-snapshots=true".to_owned(), true),
        ("v7.0.0", ", --enable-volume-group-snapshots".to_owned(), true),
        ("v7.0.0", ", --enable-volume-group-snapshots=false".to_owned(), false),
        ("v8.2.0", String::new(), false),
        ("v8.6.0", gate(true), true),
        ("v8.6.0", gate(false), false),
        ("v8.7.0", String::new(), true),
        ("v8.7.0", gate(true), true),
        ("v8.7.0", gate(false), false),
    ] {
        // What is not written is the default of the daemon.
        assert_eq!(groups(version, &arguments).unwrap_or(true), expected, "{version}{arguments}");
    }
}

#[test]
fn a_sidecar_without_an_address_keeps_the_socket_of_its_default() {
    let endpoint = |arguments: &str| {
        let files = migrate(&wanted(&attacher(arguments))).files.unwrap();
        let config: serde_json::Value = serde_yaml::from_str(&files.config).unwrap();
        config["csi"]["endpoint"].as_str().unwrap().to_owned()
    };
    assert_eq!(endpoint("[--leader-election]"), "/run/csi/socket");
    assert_eq!(endpoint("[--csi-address=/csi/s]"), "/csi/s");
}

#[test]
fn the_documents_table_of_defaults_is_the_one_in_the_code() {
    let document = include_str!("../../docs/compatibility.md");
    for sidecar in hosted() {
        for row in crate::config::defaults::rows(sidecar.name, sidecar.defaults) {
            assert!(document.lines().any(|line| line == row), "docs/compatibility.md must hold this row:\n{row}");
        }
    }
}

#[test]
fn pods_without_a_lease_end_before_the_daemon_begins() {
    let next = |text: &str| {
        let wanted = Wanted { folder: Some("m".to_owned()), ..wanted(text) };
        migrate(&wanted).report.next.join("\n")
    };
    let text = attacher("[--csi-address=/csi/s]");
    assert_eq!(next(&text).matches("kubectl scale -n n deployment/d --replicas=0").count(), 2, "there and back");
    let led = attacher("[--csi-address=/csi/s, --leader-election]");
    assert!(!next(&led).contains("kubectl scale"));
    assert!(
        next(&led.replace("csi-attacher:v4", "csi-attacher:v1.2.1")).contains("kubectl scale"),
        "it holds a ConfigMap"
    );
    let recreated = text.replace("spec:\n  template", "spec:\n  strategy: {type: Recreate}\n  template");
    assert!(!next(&recreated).contains("kubectl scale"));
    let set =
        text.replace("Deployment", "StatefulSet").replace("spec:\n  template", "spec:\n  replicas: 1\n  template");
    assert!(!next(&set).contains("kubectl scale"));
    assert!(next(&set.replace("replicas: 1", "replicas: 2")).contains("kubectl scale -n n statefulset/d"));
    let refused = migrate(&Wanted { folder: Some("m".to_owned()), ..wanted(&attacher("[--speed=9]")) });
    assert_eq!((refused.files, refused.report.next), (None, vec![]));
}

#[test]
fn what_the_kubelet_does_with_the_container_is_kept_and_a_proxy_is_told() {
    let text = attacher("[--csi-address=/csi/s]").replace(
        "image: x/csi-attacher:v4",
        "image: x/csi-attacher:v4\n        imagePullPolicy: Always\n        terminationMessagePolicy: FallbackToLogsOnError\n        \
         lifecycle: {preStop: {sleep: {seconds: 5}}}\n        env: [{name: HTTPS_PROXY, value: proxy}, {name: no_proxy, value: .svc}]",
    );
    let Outcome { report, files } = migrate(&wanted(&text));
    let workload = files.unwrap().workload;
    for kept in [
        "HTTPS_PROXY",
        "no_proxy",
        "imagePullPolicy: Always",
        "terminationMessagePolicy: FallbackToLogsOnError",
        "seconds: 5",
    ] {
        assert!(workload.contains(kept), "{kept} in\n{workload}");
    }
    assert!(
        report.notes.texts().any(|note| note.starts_with("env: HTTPS_PROXY is copied: as the sidecars")),
        "{:?}",
        report.notes
    );
}
