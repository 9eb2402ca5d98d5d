//! Runs Helm and parses its output.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::programs;

/// The name and namespace of every release.
pub(crate) const RELEASE: &str = "demo";
pub(crate) const NAMESPACE: &str = "storage";

/// Where the daemon looks for the driver's socket, unless the values say otherwise.
pub(crate) const ENDPOINT: &str = "unix:///run/csi/csi.sock";

/// The chart's folder.
pub(crate) fn chart() -> PathBuf {
    root().join("charts/csi-control-plane")
}

/// The repository's folder.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Runs helm without the environment of the test's caller.
pub(crate) fn helm(arguments: &[&str]) -> Output {
    run("helm", arguments)
}

/// Runs a version of helm, by its program's name.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    let home = TempDir::new().unwrap();
    let mut command = Command::new(programs::find(program));
    command.args(arguments).env_clear().env("HOME", home.path()).current_dir(root());
    command.output().unwrap()
}

/// Objects, and the text that they were rendered as.
pub(crate) struct Rendered {
    /// As Helm wrote it.
    pub(crate) text: String,
    /// One for each document.
    pub(crate) objects: Vec<Value>,
}

impl Rendered {
    /// Reads documents.
    pub(crate) fn of(text: String) -> Self {
        let documents = serde_yaml::Deserializer::from_str(&text).map(|it| Value::deserialize(it).unwrap());
        let objects = documents.filter(|it| !it.is_null()).collect();
        Self { text, objects }
    }

    /// Every object of a kind.
    pub(crate) fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |it| it["kind"] == kind)
    }

    /// The one object of a kind.
    pub(crate) fn one<'a>(&'a self, kind: &'a str) -> &'a Value {
        let found: Vec<&Value> = self.all(kind).collect();
        assert_eq!(found.len(), 1, "{kind} in\n{}", self.text);
        found[0]
    }

    /// The daemon's configuration file.
    pub(crate) fn config(&self) -> &str {
        let map = self.all("ConfigMap").find(|it| !it["data"]["config.yaml"].is_null()).expect("a configuration");
        map["data"]["config.yaml"].as_str().unwrap()
    }

    /// The template of the one workload's pods.
    pub(crate) fn pod(&self) -> &Value {
        let workload = |it: &&Value| !it["spec"]["template"].is_null();
        &self.objects.iter().find(workload).expect("a workload")["spec"]["template"]
    }

    /// The daemon's container.
    pub(crate) fn container(&self) -> &Value {
        let containers = self.pod()["spec"]["containers"].as_array().unwrap();
        containers.iter().find(|it| it["name"] == "csi-control-plane").expect("the daemon")
    }
}

/// Renders a chart with a file of values, and `more` arguments.
pub(crate) fn render(chart: &Path, values: Option<&Path>, more: &[&str]) -> Result<Rendered, String> {
    render_by("helm", chart, values, more)
}

/// The same by a version of helm.
pub(crate) fn render_by(program: &str, chart: &Path, values: Option<&Path>, more: &[&str]) -> Result<Rendered, String> {
    let chart = chart.to_str().unwrap();
    let name: &[&str] = if more.contains(&"--name-template") { &[] } else { &[RELEASE] };
    let mut arguments = [&["template"], name, &[chart, "--kube-version", "1.36.0"]].concat();
    if !more.contains(&"--namespace") {
        arguments.extend(["--namespace", NAMESPACE]);
    }
    if let Some(values) = values {
        arguments.extend(["--values", values.to_str().unwrap()]);
    }
    arguments.extend(more);
    let output = run(program, &arguments);
    if output.status.success() {
        Ok(Rendered::of(String::from_utf8(output.stdout).unwrap()))
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

/// Renders another chart, that has ours in its pod: `parent`.
pub(crate) fn parent(more: &[&str]) -> Rendered {
    parent_with(None, more).unwrap()
}

/// The same with values of its own for our chart, instead of those in its values.yaml.
pub(crate) fn parent_with(own: Option<&Value>, more: &[&str]) -> Result<Rendered, String> {
    let folder = TempDir::new().unwrap();
    let parent = folder.path().join("parent");
    let copy = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        let copied = Command::new("cp").arg("-r").args([from, to]).status().unwrap();
        assert!(copied.success());
    };
    copy(&root().join("tests/chart/parent"), &parent);
    copy(&chart(), &parent.join("charts/csi-control-plane"));
    if let Some(own) = own {
        let values = serde_json::json!({"csi-control-plane": own});
        std::fs::write(parent.join("values.yaml"), values.to_string()).unwrap();
    }
    render(&parent, None, more)
}

/// Renders our chart with these values.
pub(crate) fn with(values: &Value, more: &[&str]) -> Result<Rendered, String> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("values.yaml");
    std::fs::write(&file, values.to_string()).unwrap();
    render(&chart(), Some(&file), more)
}

/// The notes that Helm prints for an installation with these values.
pub(crate) fn notes(values: &Value) -> String {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("values.yaml");
    std::fs::write(&file, values.to_string()).unwrap();
    let chart = chart();
    let arguments = ["install", RELEASE, chart.to_str().unwrap(), "--values", file.to_str().unwrap()];
    let output = helm(&[&arguments[..], &["--dry-run=client", "--namespace", NAMESPACE]].concat());
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (_, notes) = told.split_once("\nNOTES:\n").unwrap_or_else(|| panic!("no notes in {told}"));
    notes.to_owned()
}
