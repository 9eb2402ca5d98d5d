use super::report::Fault;
use super::{Manifest, Outcome, Wanted, migrate};
use crate::app::UNKNOWN_DRIVER;

const CONTROLLER: &str = "kind: Deployment\nmetadata: {name: d, namespace: ns}\nspec:\n  template:\n    spec:\n      containers:\n      \
    - {name: a, image: \"x/csi-attacher:v4.12.0\", args: [--csi-address=/csi/s, --leader-election]}\n";

fn driver_container(fields: &str) -> String {
    format!("{CONTROLLER}      - {{name: driver, image: x/driver, {fields}}}\n")
}

/// A node plugin with this folder of its socket.
fn node(namespace: &str, image: &str, folder: &str) -> String {
    let path = format!("/var/lib/kubelet/plugins/{folder}/csi.sock");
    format!(
        "kind: DaemonSet\nmetadata: {{name: node, namespace: {namespace}}}\nspec:\n  template:\n    spec:\n      containers:\n      - {{name: \
         driver, image: {image:?}}}\n      - {{name: r, image: x/csi-node-driver-registrar, env: [{{name: REG, value: {path}}}], args: \
         [--csi-address=/csi/s, --kubelet-registration-path=$(REG)]}}\n"
    )
}

fn moved(parts: &[String]) -> Outcome {
    let manifests = vec![Manifest { name: "d.yaml".to_owned(), text: parts.join("---\n") }];
    migrate(&Wanted { manifests, workload: Some("deployment/d".to_owned()), ..Wanted::default() })
}

#[test]
fn a_name_from_the_user_that_the_manifest_contradicts_is_used_and_told() {
    let part = driver_container("args: [--drivername=d.example.com]");
    for (name, is_told) in [("d.example.com", false), ("other.example.com", true)] {
        let manifests = vec![Manifest { name: "d.yaml".to_owned(), text: part.clone() }];
        let outcome = migrate(&Wanted { manifests, driver: Some(name.to_owned()), ..Wanted::default() });
        assert_eq!(outcome.report.driver.unwrap().name, name);
        let told = "--driver-name other.example.com is used, and the manifest says d.example.com (from an argument of container driver)";
        assert_eq!(
            outcome.report.notes.texts().any(|note| note.starts_with(told)),
            is_told,
            "{:#?}",
            outcome.report.notes
        );
    }
}

#[test]
fn a_name_that_is_this_drivers_is_found_wherever_the_manifests_have_it() {
    let controller = || CONTROLLER.to_owned();
    let object = |kind: &str, fields: &str| format!("kind: {kind}\nmetadata: {{name: o.example.com}}\n{fields}\n");
    let plain = "kind: CSIDriver\nmetadata: {name: plain}\n".to_owned();
    for (parts, name, from) in [
        (
            vec![driver_container("args: [--drivername=d.example.com]")],
            "d.example.com",
            "an argument of container driver",
        ),
        (vec![driver_container("args: [-driver-name, d.example.com]")], "d.example.com", "an argument of"),
        (
            vec![driver_container("args: [\"--drivername=$(NAME)\"], env: [{name: NAME, value: d.example.com}]")],
            "d.example.com",
            "an argument of",
        ),
        (
            vec![driver_container("env: [{name: DRIVER_NAME, value: d.example.com}]")],
            "d.example.com",
            "the variable DRIVER_NAME of container driver",
        ),
        (
            vec![
                driver_container("args: [--kubelet-registration-path=/k/plugins/o.example.com/csi.sock]"),
                node("far", "x/driver", "a.example.com"),
                object("CSIDriver", "spec: {}"),
            ],
            "o.example.com",
            "the CSIDriver object",
        ),
        (
            vec![driver_container("args: [x]"), node("ns", "y/driver:v2", "o.example.com"), object("CSIDriver", "")],
            "o.example.com",
            "the CSIDriver object",
        ),
        (
            vec![driver_container("args: [--drivername=plain]"), plain.clone()],
            "plain",
            "an argument of container driver",
        ),
        (
            vec![
                controller(),
                "kind: Deployment\nmetadata: {name: w}\nspec: {template: {spec: {containers: [{name: w}]}}}\n"
                    .to_owned(),
                object("CSIDriver", ""),
            ],
            "o.example.com",
            "the CSIDriver object",
        ),
        (
            vec![
                driver_container("args: [--drivername=d.example.com]"),
                node("ns", "x/driver", "o.example.com"),
                object("CSIDriver", ""),
            ],
            "d.example.com",
            "an argument of container driver",
        ),
        (vec![controller(), object("CSIDriver", "spec: {}")], "o.example.com", "the CSIDriver object"),
        (
            vec![driver_container("args: [--drivername=o.example.com]"), object("CSIDriver", "spec: {}")],
            "o.example.com",
            "an argument of",
        ),
    ] {
        let Outcome { report, files } = moved(&parts);
        assert!(files.is_some(), "{parts:?}: {}", report.faults_text());
        let driver = report.driver.unwrap();
        assert_eq!(driver.name, name, "{parts:?}");
        assert!(driver.from.starts_with(&format!("from {from}")), "{}", driver.from);
        let rbac = files.unwrap().rbac;
        assert!(rbac.contains(&format!("csi-control-plane:{name}:attacher")), "unique to the driver: {rbac}");
    }
}

#[test]
fn a_role_that_needs_the_name_is_refused_without_one() {
    let controller = || CONTROLLER.to_owned();
    let in_tree = "kind: StorageClass\nmetadata: {name: s}\nprovisioner: kubernetes.io/aws-ebs\n".to_owned();
    for parts in [
        vec![controller()],
        vec![driver_container("args: [--drivername=plain]")],
        vec![driver_container("args: [\"--drivername=$(GONE)\"]")],
        vec![controller(), node("ns", "x/driver", "csi-nfsplugin")],
        vec![controller(), node("far", "x/driver", "a.example.com")],
        vec![controller(), node("far", "x/driver", "a.example.com"), csi_driver("a.example.com")],
        vec![controller(), in_tree],
    ] {
        let fault = refusal(&parts);
        assert_eq!(fault.found, "no driver name", "{parts:?}");
        assert!(fault.expected.starts_with("--driver-name NAME, "), "{}", fault.expected);
    }
}

/// The only fault of manifests from which nothing is made.
fn refusal(parts: &[String]) -> Fault {
    let Outcome { report, files } = moved(parts);
    assert_eq!((files, &report.next), (None, &vec![]), "{parts:?}");
    let [fault] = report.faults.as_slice() else { panic!("{parts:?}: {}", report.faults_text()) };
    assert!(fault.leave_out.is_none() && fault.expected.contains("-f csidriver.yaml"), "{}", fault.expected);
    fault.clone()
}

fn csi_driver(name: &str) -> String {
    format!("kind: CSIDriver\nmetadata: {{name: {name}}}\n")
}

const FOLDER: &str = "from the folder in --kubelet-registration-path of container";

/// A name that another driver's objects may have brought: the report says it, and the user decides.
#[test]
fn a_guess_is_told_and_not_used() {
    let controller = || CONTROLLER.to_owned();
    let near = || node("ns", "x/driver", "o.example.com");
    let second = CONTROLLER.replace("name: d,", "name: e,");
    let object = "from the CSIDriver object";
    let class = |fields: &str| format!("metadata: {{name: c}}\n{fields}\n");
    for (parts, from) in [
        // The folder of a socket.
        (vec![controller(), near()], format!("{FOLDER} r of DaemonSet ns/node")),
        (
            vec![driver_container("args: [--kubelet-registration-path=/k/plugins/o.example.com/csi.sock]")],
            format!("{FOLDER} driver"),
        ),
        // The object of whichever workload.
        (vec![controller(), second.clone(), csi_driver("o.example.com")], object.to_owned()),
        (vec![controller(), node("ns", "x/driver", "plugin"), csi_driver("o.example.com")], object.to_owned()),
        (vec![controller(), node("far", "x/driver", "plugin"), csi_driver("o.example.com")], object.to_owned()),
        // A node plugin with another image, or a second controller beside it.
        (
            vec![driver_container("args: [x]"), node("ns", "x/other", "o.example.com"), csi_driver("o.example.com")],
            object.to_owned(),
        ),
        (vec![driver_container("args: [x]"), near(), second, csi_driver("o.example.com")], object.to_owned()),
        // A class.
        (
            vec![controller(), class("kind: StorageClass\nprovisioner: o.example.com")],
            "from the StorageClass".to_owned(),
        ),
        (
            vec![controller(), class("kind: VolumeSnapshotClass\ndriver: o.example.com")],
            "from the VolumeSnapshotClass".to_owned(),
        ),
    ] {
        let fault = refusal(&parts);
        assert_eq!(fault.found, format!("a guess, and no sign that is certain: o.example.com ({from})"), "{parts:?}");
        assert!(fault.expected.starts_with("--driver-name o.example.com if this is the name"), "{}", fault.expected);
    }
}

#[test]
fn names_that_contradict_each_other_are_refused_with_their_places() {
    let controller = || CONTROLLER.to_owned();
    let (a, b) = (csi_driver("a.example.com"), csi_driver("b.example.com"));
    let object = |name: &str| format!("{name}.example.com (from the CSIDriver object)");
    let argument = "a.example.com (from an argument of container driver)";
    for (parts, told) in [
        (vec![controller(), a.clone(), b.clone()], format!("{}, {}", object("a"), object("b"))),
        (
            vec![controller(), a, node("ns", "x/driver", "b.example.com")],
            format!("{}, b.example.com ({FOLDER} r of DaemonSet ns/node)", object("a")),
        ),
        (
            vec![driver_container("args: [--drivername=a.example.com]"), b.clone()],
            format!("{argument}, {}", object("b")),
        ),
        (
            vec![driver_container(
                "args: [--drivername=a.example.com, --kubelet-registration-path=/k/b.example.com/s]",
            )],
            format!("{argument}, b.example.com ({FOLDER} driver)"),
        ),
        (
            vec![driver_container(
                "args: [--drivername=a.example.com], env: [{name: DRIVER_NAME, value: b.example.com}]",
            )],
            format!("{argument}, b.example.com (from the variable DRIVER_NAME of container driver)"),
        ),
        (
            vec![driver_container("args: [--kubelet-registration-path=/k/a.example.com/s]"), b],
            format!("a.example.com ({FOLDER} driver), {}", object("b")),
        ),
    ] {
        let fault = refusal(&parts);
        assert_eq!(fault.found, format!("several driver names: {told}"), "{parts:?}");
        assert!(fault.expected.starts_with("--driver-name NAME, "), "{}", fault.expected);
    }
}

#[test]
fn roles_without_leases_and_rights_need_no_name() {
    let text = CONTROLLER.replace("csi-attacher:v4.12.0", "livenessprobe:v2.17.0").replace(", --leader-election", "");
    let manifests = vec![Manifest { name: "d.yaml".to_owned(), text }];
    let Outcome { report, files } = migrate(&Wanted { manifests, folder: Some("m".to_owned()), ..Wanted::default() });
    assert_eq!(files.expect("no fault").rbac, "");
    assert!(report.next.iter().all(|step| !step.contains(UNKNOWN_DRIVER)), "{:?}", report.next);
    assert!(
        report.next.iter().all(|step| !step.contains("rbac.yaml")),
        "kubectl refuses an empty file: {:?}",
        report.next
    );
}
