//! Helm 3, which many still use, renders the same objects from the chart as the current version.

use serde_json::Value;

use crate::chart::helm;
use crate::chart::matrix;
use crate::chart::ports;

const PROGRAM: &str = "helm3";

#[test]
fn helm_3_is_helm_3_and_finds_nothing_to_complain_of() {
    let version = String::from_utf8(helm::run(PROGRAM, &["version", "--short"]).stdout).unwrap();
    assert!(version.starts_with("v3."), "{version}");
    for case in matrix::known() {
        let (chart, values) = (helm::chart(), case.path.to_str().unwrap());
        let output = helm::run(PROGRAM, &["lint", "--strict", chart.to_str().unwrap(), "--values", values]);
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && !told.contains("[WARNING]"), "{}: {told}", case.name);
    }
}

#[test]
fn helm_3_renders_what_helm_4_renders() {
    let sorted = |mut objects: Vec<Value>| {
        objects.sort_by_key(|it| format!("{}/{}", it["kind"], it["metadata"]));
        objects
    };
    for case in matrix::known() {
        let rendered = helm::render_by(PROGRAM, &helm::chart(), Some(&case.path), &[]);
        let rendered = rendered.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        assert_eq!(sorted(rendered.objects), sorted(case.rendered().objects), "{}", case.name);
    }
}

#[test]
fn helm_3_chooses_the_same_ports_of_the_node() {
    let values = ports::values().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    std::fs::write(&file, values).unwrap();
    let by = |program: &str| helm::render_by(program, &helm::chart(), Some(&file), &[]).unwrap().objects;
    let find = |objects: Vec<Value>, kind: &str| objects.into_iter().find(|it| it["kind"] == kind).unwrap();
    for kind in ["Deployment", "DaemonSet"] {
        assert_eq!(find(by(PROGRAM), kind), find(by("helm"), kind));
    }
}

#[test]
fn helm_3_refuses_what_helm_4_refuses() {
    let refused =
        helm::render_by(PROGRAM, &helm::chart(), Some(&matrix::case("attacher").path), &["--set", "replica=3"]);
    let told = refused.err().expect("accepted");
    assert!(told.contains("replica"), "{told}");
}
