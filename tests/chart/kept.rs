//! Generated files in the repository, for people to read and apply: `just chart-update` writes them.

use std::path::Path;

use serde_json::Value;

use crate::chart::helm;

/// Asks for the files to be written instead of compared.
const UPDATE: &str = "CHART_UPDATE";

/// Compares a file with what it should be, or writes it.
pub(crate) fn keep(file: &Path, wanted: &str) {
    #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
    if std::env::var_os(UPDATE).is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, wanted).unwrap();
    }
    let found = std::fs::read_to_string(file).unwrap_or_default();
    if found == wanted {
        return;
    }
    let differs = wanted.lines().zip(found.lines().chain(std::iter::repeat("(nothing)"))).find(|(a, b)| a != b);
    panic!("{} is not up to date, `just chart-update` writes it; first difference: {differs:#?}", file.display());
}

/// Each folder of deploy/ with a values.yaml, and the namespace of its manifests.
pub(crate) const DEPLOYED: [(&str, &str); 5] = [
    ("controller", "csi-driver"),
    ("attacher", "csi-driver"),
    ("csi-driver-host-path", "csi-hostpath"),
    ("examples/node-plugin", "csi-driver"),
    ("examples/replicas", "csi-driver"),
];

#[test]
fn the_plain_manifests_are_what_the_chart_renders() {
    for (name, namespace) in DEPLOYED {
        let folder = helm::root().join("deploy").join(name);
        let values = folder.join("values.yaml");
        let (up, release) = name.rsplit_once('/').map_or(("..", name), |(_, release)| ("../..", release));
        let arguments = ["--namespace", namespace, "--name-template", release, "--no-hooks"];
        let rendered = render(&values, &arguments);
        let head = format!(
            "# Rendered from values.yaml by `just chart-update`; a test keeps it so. No registry has the image yet: {up}/README.md \
             says\n# how to build it, and how to apply this.\n{rendered}"
        );
        keep(&folder.join("manifests.yaml"), &head);
        let space = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {namespace}\n");
        let found = std::fs::read_to_string(folder.join("namespace.yaml")).unwrap_or_default();
        if name == "csi-driver-host-path" {
            assert!(found.starts_with(&space), "{found}");
        } else {
            keep(&folder.join("namespace.yaml"), &space);
        }
    }
}

/// A template cannot read values.yaml, and has to know the defaults of a section that a user has emptied.
#[test]
fn the_chart_knows_its_own_defaults() {
    let text = std::fs::read_to_string(helm::chart().join("values.yaml")).unwrap();
    let values: Value = serde_yaml::from_str(&text).unwrap();
    let head = "# values.yaml, for sections that are null: `just chart-update` writes it, and a test keeps it so.\n";
    keep(&helm::chart().join("files/defaults.yaml"), &format!("{head}{}", serde_yaml::to_string(&values).unwrap()));
}

fn render(values: &Path, arguments: &[&str]) -> String {
    let chart = helm::chart();
    let fixed = ["template", chart.to_str().unwrap(), "--kube-version", "1.36.0", "--values", values.to_str().unwrap()];
    let output = helm::helm(&[&fixed, arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // Helm is not there when they are applied.
    let of_helm = |line: &&str| !line.contains("app.kubernetes.io/managed-by:") && !line.contains("helm.sh/chart:");
    text.lines().filter(of_helm).collect::<Vec<_>>().join("\n") + "\n"
}
