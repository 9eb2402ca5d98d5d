//! What people read: the weight of each note, nothing twice, and no alarm that is none.

use super::report::{Report, Weight};
use super::tests::{attacher, wanted};
use super::*;

/// A pod with these containers.
fn workload(kind: &str, name: &str, containers: &[&str]) -> String {
    let containers: Vec<String> = containers.iter().map(|one| format!("      - {{{one}}}\n")).collect();
    let containers = containers.concat();
    format!(
        "kind: {kind}\nmetadata: {{name: {name}, namespace: 'n'}}\nspec:\n  template:\n    spec:\n      containers:\n{containers}"
    )
}

const ATTACHER: &str = "name: a, image: 'x/csi-attacher:v4.12.0', args: [--csi-address=/csi/s, --leader-election]";
const RESIZER: &str = "name: r, image: 'x/csi-resizer:v2.3.0', args: [--csi-address=/csi/s, --leader-election]";
const REGISTRAR: &str = "name: reg, image: 'x/csi-node-driver-registrar:v2.17.0', args: [--csi-address=/csi/s]";

fn report(text: &str, change: impl Fn(&mut Wanted)) -> Report {
    let mut wanted = Wanted { folder: Some("m".to_owned()), ..wanted(text) };
    change(&mut wanted);
    let Outcome { report, files } = migrate(&wanted);
    assert!(files.is_some(), "{}", report.faults_text());
    report
}

#[test]
fn what_must_be_done_stands_first() {
    let report = report(&workload("Deployment", "d", &[ATTACHER, RESIZER]), |_| ());
    let told = report.to_string();
    let at = |text: &str| told.find(text).unwrap_or_else(|| panic!("{text} in\n{told}"));
    let order =
        ["Deployment n/d", "\nmust do\n", "\ncheck\n", "\ngood to know\n", "\ncontainer a of", "\nnext\n"].map(at);
    assert!(order.is_sorted(), "{told}");
    assert!(report.notes.of(Weight::MustDo).any(|note| note.starts_with("image: ")), "{told}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["notes"][0]["weight"], "goodToKnow");
}

#[test]
fn what_several_sidecars_have_in_common_is_told_once() {
    let text = workload("Deployment", "d", &[ATTACHER, RESIZER]);
    let told = report(&text, |_| ()).to_string();
    for text in
        ["--http-endpoint was off; diagnostics.listen is [::]:8080 (default of a, r)", "--max-grpc-log-length had no"]
    {
        assert_eq!(told.matches(text).count(), 1, "{text} in\n{told}");
    }
    assert!(
        told.contains("default    --timeout was 10s; csi.timeout is 15s"),
        "that of one sidecar stands with it: {told}"
    );
}

#[test]
fn only_variables_that_somebody_reads_raise_an_alarm() {
    let with = |container: &str, env: &str| format!("{container}, env: [{env}]");
    for (one, two, is_told) in [
        ("{name: ADDRESS, value: /csi/s}", "{name: ADDRESS, value: /run/s}", false),
        ("{name: MY_NAME, value: a}", "{name: MY_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}", false),
        ("{name: NO_PROXY, value: a}", "{name: NO_PROXY, value: b}", true),
        ("{name: NODE_NAME, value: a}", "{name: NODE_NAME, value: b}", true),
        // The daemon has POD_NAMESPACE.
        ("{name: NAMESPACE, value: a}", "{name: NAMESPACE, value: b}", false),
        ("{name: HOST, value: a}, {name: HTTPS_PROXY, value: 'http://$(HOST):1'}", "{name: HOST, value: b}", true),
    ] {
        let text = workload("Deployment", "d", &[&with(ATTACHER, one), &with(RESIZER, two)]);
        let report = report(&text, |_| ());
        assert_eq!(report.notes.of(Weight::Check).any(|note| note.starts_with("env: ")), is_told, "{one}: {report}");
    }
}

#[test]
fn pods_of_a_daemon_set_that_no_lease_kept_apart_go_on_side_by_side() {
    let without = |container: &str| container.replace(", --leader-election", "");
    let (attacher, resizer) = (without(ATTACHER), without(RESIZER));
    let provisioner = "name: p, image: 'x/csi-provisioner:v6.3.0', args: [--csi-address=/csi/s";
    let (one, each) =
        (format!("{provisioner}]"), format!("{provisioner}, --node-deployment], env: [{{name: NODE_NAME, value: a}}]"));
    for (kind, containers, is_kept) in [
        ("DaemonSet", vec![&*attacher, &resizer], true),
        ("DaemonSet", vec![&*resizer, &each], true),
        ("DaemonSet", vec![&*each], false),
        ("DaemonSet", vec![&*attacher, RESIZER], false),
        // A provisioner that is not one for each node is one for all.
        ("DaemonSet", vec![&*resizer, &one], false),
        ("Deployment", vec![&*attacher, &resizer], false),
        ("DaemonSet", vec![REGISTRAR], false),
    ] {
        let report = report(&workload(kind, "d", &containers), |_| ());
        let is_told = report.notes.of(Weight::Check).any(|note| note.contains("no leader election in a DaemonSet"));
        assert_eq!(is_told, is_kept, "{containers:?}: {report}");
        let says_on = report.to_string().contains("--leader-election was off; leaderElection.enabled is true");
        let leads = !is_kept && containers != [&*each] && !containers.contains(&RESIZER) && containers != [REGISTRAR];
        assert_eq!(says_on, leads, "{containers:?}: {report}");
        assert!(!is_kept || !report.next.iter().any(|step| step.contains("delete lease")), "{report}");
    }
}

#[test]
fn a_pod_without_leases_is_told_nothing_of_leases_and_names() {
    let registrar = format!("{REGISTRAR}, env: [{{name: DRIVER_NAME, value: other.example.com}}]");
    let text = workload("DaemonSet", "node", &[&registrar, "name: driver, image: x/driver"]);
    let text = text.replace("    spec:\n", "    spec:\n      terminationGracePeriodSeconds: 5\n");
    let report = report(&text, |_| ());
    let told = report.notes.texts().collect::<Vec<_>>().join("\n");
    assert!(told.contains("raise it above the timeout, so that a call in flight can end"), "{told}");
    assert!(!told.contains("Lease") && !told.contains("can lead"), "{told}");
    let nameless =
        self::report(&text.replace(", env: [{name: DRIVER_NAME, value: other.example.com}]", ""), |wanted| {
            wanted.driver = None;
        });
    assert_eq!(nameless.driver, None, "nothing there has the name");
    let controller = workload("Deployment", "d", &[ATTACHER]);
    let refused = migrate(&Wanted { driver: None, ..wanted(&controller) }).report;
    let driver = refused.driver.unwrap();
    assert!(driver.from.contains("-f csidriver.yaml"), "{}", driver.from);
}

#[test]
fn several_moves_of_one_pod_go_back_in_reverse_order() {
    let second = "name: r, image: 'x/csi-resizer:v2.3.0', args: [--csi-address=/other/s, --leader-election]";
    let text = workload("Deployment", "d", &[ATTACHER, second]);
    let first = Wanted { containers: vec!["a".to_owned()], folder: Some("m".to_owned()), ..wanted(&text) };
    let Outcome { report, files } = migrate(&first);
    assert!(report.notes.texts().any(|note| note.contains("The way back is in reverse order")), "{report}");
    assert!(!report.next.iter().any(|step| step.contains("reverse order")), "{report}");
    let again = self::report(&files.unwrap().workload, |wanted| wanted.containers = vec!["r".to_owned()]);
    let told = "   # this is daemon 2 of the pod: go back in the reverse order of the moves, this one first";
    assert!(again.next.iter().any(|step| step == told), "{again}");
}

#[test]
fn an_operators_file_is_recognised_by_its_settings() {
    let operator =
        workload("Deployment", "rook-ceph-operator", &["name: o, image: 'rook/ceph:v1.17.0', args: [ceph, operator]"]);
    let settings = "---\nkind: ConfigMap\nmetadata: {name: rook-ceph-operator-config}\ndata: {ROOK_LOG_LEVEL: INFO, \
                    CSI_PROVISIONER_PRIORITY_CLASSNAME: system-cluster-critical}\n";
    let report = migrate(&wanted(&format!("{operator}{settings}"))).report;
    let fault = &report.faults[0];
    let told =
        "; ConfigMap rook-ceph-operator-config has settings of sidecars, such as CSI_PROVISIONER_PRIORITY_CLASSNAME";
    assert!(fault.found.contains(told) && fault.expected.contains("the workload that it has made"), "{fault:?}");
}

#[test]
fn a_workload_that_is_asked_for_is_told_its_own_faults() {
    let odd = attacher("[--csi-address=/csi/s]").replace("args: [--csi-address=/csi/s]", "args: --csi-address=/csi/s");
    let bare = workload("Deployment", "bare", &["name: driver, image: x/driver"]);
    let asked = |name: &str| {
        let workload = Some(name.to_owned());
        migrate(&Wanted { workload, ..wanted(&format!("{odd}---\n{bare}")) }).report.faults
    };
    let faults = asked("bare");
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].found.starts_with("no sidecar that can be replaced"), "{faults:?}");
    assert!(asked("d").iter().any(|fault| fault.found == "args is one text"));
    let text = format!("{}---\n{bare}", workload("Deployment", "other", &[ATTACHER]));
    let told = migrate(&Wanted { workload: Some("bare".to_owned()), ..wanted(&text) }).report.to_string();
    assert!(!told.contains("replaced by"), "nothing of a workload that nobody asked for: {told}");
    let alike = workload("Deployment", "d", &[ATTACHER]);
    let fault = migrate(&Wanted { workload: Some("d".to_owned()), ..wanted(&format!("{alike}---\n{alike}")) }).report;
    assert_eq!(fault.faults[0].expected, "the file of one alone", "no name chooses one of two that have the same");
    let faults = asked("deployment/nobody");
    assert_eq!((faults.len(), &*faults[0].found), (1, "no workload deployment/nobody"));
    assert_eq!(faults[0].expected, "--workload with one of Deployment n/d, Deployment n/bare");
    let template = workload("Deployment", "t", &["name: a, image: 'x/csi-attacher:v4', args: ['--v=${LEVEL}']"]);
    let faults = migrate(&Wanted { workload: Some("bare".to_owned()), ..wanted(&format!("{template}---\n{bare}")) });
    assert!(faults.report.faults.iter().all(|fault| !fault.found.contains("LEVEL")), "{}", faults.report.faults_text());
}

#[test]
fn what_no_role_replaces_is_named_wherever_it_stands() {
    let controller = "name: sc, image: 'x/snapshot-controller:v8.2.0', args: [--leader-election]";
    let metadata = "name: m, image: 'x/csi-snapshot-metadata:v0.1.0', args: [--csi-address=/csi/s]";
    let others = workload("Deployment", "snapshot-controller", &[controller]);
    let text = format!("{}---\n{others}", workload("Deployment", "d", &[ATTACHER, metadata]));
    let report = report(&text, |_| ());
    let told = report.to_string();
    for text in [
        "container sc of Deployment n/snapshot-controller: stays: it serves all drivers of the cluster",
        "container m of Deployment n/d: external-snapshot-metadata by its image, kept: no role does its work",
    ] {
        assert!(told.contains(text), "{text} in\n{told}");
    }
    // The same where nothing else is there.
    for (name, container, why) in
        [("sc", controller, "it serves all drivers"), ("m", metadata, "no role does its work")]
    {
        let fault = migrate(&wanted(&workload("Deployment", "d", &[container]))).report.faults.remove(0);
        assert!(fault.found.contains(&format!("; container {name} of Deployment n/d: {why}")), "{fault:?}");
    }
}
