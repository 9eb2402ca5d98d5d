//! Manifests as kubectl reads them: YAML 1.1, with anchors and merge keys.

use serde_yaml::Value;

use super::tests::{attacher, wanted};
use super::*;
use crate::process::yaml;

fn files(manifest: &str) -> Files {
    let Outcome { report, files } = migrate(&wanted(manifest));
    files.unwrap_or_else(|| panic!("{}", report.faults_text()))
}

/// The pod's containers, as kubectl reads them in the workload that is written.
fn containers(files: &Files) -> Vec<Value> {
    let workload = yaml::read(&files.workload).unwrap();
    workload["spec"]["template"]["spec"]["containers"].as_sequence().unwrap().clone()
}

const HEAD: &str = "kind: Deployment\nmetadata: {name: d, namespace: storage}\nspec:\n  template:\n    spec:\n";

#[test]
fn texts_and_numbers_of_the_old_container_are_the_same_in_the_new_one() {
    let manifest = format!(
        "{HEAD}      containers:\n      - name: csi-attacher\n        image: x/csi-attacher:v4\n        env:\n        \
         - {{name: A, value: \"y\"}}\n        - {{name: B, value: 'on'}}\n        - {{name: C, value: \"1_000\"}}\n        \
         - {{name: D, value: \"0400\"}}\n        - {{name: E, value: \"1:20\"}}\n        - {{name: F, value: \"2001-12-14\"}}\n        \
         volumeMounts:\n        - {{name: \"1234\", mountPath: /csi, readOnly: no}}\n        securityContext: {{runAsUser: 0400}}\n      \
         - name: driver\n"
    );
    for manifest in [manifest.clone(), flow(&manifest)] {
        let files = files(&manifest);
        let old = yaml::read(&files.original).unwrap()["spec"]["template"]["spec"]["containers"][0].clone();
        let new = containers(&files).remove(0);
        let values = |container: &Value| container["env"].as_sequence().unwrap()[..6].to_vec();
        assert_eq!(values(&new), values(&old));
        assert!(values(&new).iter().all(|entry| entry["value"].is_string()), "{new:?}");
        assert_eq!(new["volumeMounts"][0], old["volumeMounts"][0]);
        assert_eq!(new["volumeMounts"][0]["readOnly"], false);
        assert_eq!(new["securityContext"]["runAsUser"], 256);
    }
}

/// The same as JSON, which is written anew as a whole.
fn flow(manifest: &str) -> String {
    serde_json::to_string(&yaml::read(manifest).unwrap()).unwrap()
}

/// As dumpers and people of public drivers write them.
#[test]
fn a_manifest_in_a_style_of_yaml_1_1_is_moved() {
    let comments = "      # about the containers\n".repeat(99);
    let manifest = format!(
        "kind: Deployment\nmetadata:\n  name: d\n  namespace: storage\n  annotations:\n    text: 'in column\nzero, it''s'\n    other: \"in the key's\n    \
         column, it\\'s\"#c\nspec:\n  template:\n    spec:\n      containers:\n{comments}      - name: csi-attacher\n        image: \
         'x/csi-attacher:v4.12.0'#c\n        args: [\n\t--csi-address=/csi/s,\n\t--leader-election\n        ]\n      - name: driver\n        args: \
         [-]\n        command: [one]\n        command: [two]\n"
    );
    let Outcome { report, files } = migrate(&wanted(&manifest));
    let files = files.unwrap_or_else(|| panic!("{}", report.faults_text()));
    let workload = yaml::read(&files.workload).unwrap();
    assert_eq!(workload["metadata"]["annotations"]["text"], "in column zero, it's");
    assert_eq!(workload["metadata"]["annotations"]["other"], "in the key's column, it's");
    assert_eq!(yaml::read(&files.original), yaml::read(&manifest));
    let driver = containers(&files).remove(1);
    assert_eq!(driver["args"][0], "-");
    assert_eq!(driver["command"], yaml::read("[two]").unwrap(), "as kubectl sends it");
    let told = "d.yaml:122: the key command stands twice in one mapping; kubectl takes the last one, and so does this";
    assert!(report.notes.texts().any(|note| note == told), "{report}");
}

#[test]
fn a_text_at_the_end_of_a_file_keeps_its_lack_of_a_line_end() {
    let manifest = format!(
        "{HEAD}      containers:\n      - name: csi-attacher\n        image: x/csi-attacher:v4\n      - name: driver\n        args:\n        - |\n          exec driver"
    );
    for (manifest, text) in [(manifest.clone(), "exec driver"), (manifest + "\n", "exec driver\n")] {
        let files = files(&manifest);
        assert_eq!(containers(&files)[1]["args"][0], text);
        assert_eq!(yaml::read(&files.original), yaml::read(&manifest));
    }
}

#[test]
fn what_a_merge_key_brings_is_seen_and_reported() {
    let manifest = format!(
        "{HEAD}      containers:\n      - &sidecar\n        name: csi-attacher\n        image: x/csi-attacher:v4\n        args: [--v=5, \
         --csi-address=/csi/a.sock]\n        env: [{{name: HOME, value: /root}}]\n        volumeMounts: [{{name: s, mountPath: /csi}}]\n      \
         - <<: *sidecar\n        name: csi-resizer\n        image: x/csi-resizer:v2\n      - name: driver\n      volumes:\n      \
         - {{name: s, emptyDir: {{}}}}\n"
    );
    let Outcome { report, files } = migrate(&wanted(&manifest));
    let files = files.unwrap_or_else(|| panic!("{}", report.faults_text()));
    let given: Vec<usize> = report.containers.iter().map(|container| container.flags.len()).collect();
    assert_eq!(given, [2, 2], "both have both flags: {report}");
    let containers = containers(&files);
    assert_eq!(containers.len(), 2);
    assert_eq!(containers[0]["volumeMounts"][0]["mountPath"], "/csi");
    assert_eq!(containers[0]["env"][0]["name"], "HOME");
    assert!(files.config.contains("endpoint: /csi/a.sock"), "{}", files.config);
    assert!(files.config.contains("attacher:") && files.config.contains("resizer:"), "{}", files.config);
}

/// kubectl sends an alias of an object that goes as what it stood for: what stays keeps it.
#[test]
fn what_stays_keeps_what_it_took_from_a_container_that_goes() {
    let manifest = format!(
        "{HEAD}      containers:\n      - name: csi-attacher\n        image: x/csi-attacher:v4\n        env: &env [{{name: HOME, value: \"on\"}}]\n      \
         - name: driver\n        env: *env\n"
    );
    let containers = containers(&files(&manifest));
    assert_eq!(containers[1]["name"], "driver");
    assert_eq!(containers[1]["env"][0]["value"], "on");
}

#[test]
fn names_that_look_like_numbers_or_switches_are_texts_in_every_file() {
    for odd in ["1234", "yes", "on", "0x1f", "1e3", "null", "n"] {
        let manifest = format!(
            "kind: Deployment\nmetadata: {{name: \"{odd}\", namespace: \"{odd}\"}}\nspec:\n  template:\n    spec:\n      \
             serviceAccountName: \"{odd}\"\n      containers:\n      - name: csi-attacher\n        image: x/csi-attacher:v4\n        \
             args: [\"--leader-election-namespace={odd}\"]\n      - name: driver\n"
        );
        let mut wanted = wanted(&manifest);
        wanted.secrets = vec![(odd.to_owned(), odd.to_owned())];
        wanted.driver = Some(odd.to_owned());
        let Outcome { report, files } = migrate(&wanted);
        let files = files.unwrap_or_else(|| panic!("{}", report.faults_text()));
        for (name, text) in files.named().into_iter().filter(|(name, _)| *name != "config.yaml") {
            for document in document::read(text).unwrap() {
                names_are_texts(&document.value, name, odd);
            }
        }
        assert!(files.config.contains(&format!("namespace: \"{odd}\"")), "{}", files.config);
    }
}

/// Every name in an object is a text, and the odd one is still among them.
fn names_are_texts(object: &Value, file: &str, odd: &str) {
    let texts = ["name", "namespace", "serviceAccountName"];
    let mut stack = vec![object];
    while let Some(value) = stack.pop() {
        for (key, value) in value.as_mapping().into_iter().flatten() {
            if texts.contains(&key.as_str().unwrap()) {
                assert!(value.is_string(), "{file}, {odd}: {key:?} is {value:?}");
            }
            if key == "resourceNames" {
                assert!(value.as_sequence().unwrap().iter().all(Value::is_string), "{file}, {odd}: {value:?}");
            }
            stack.push(value);
        }
        stack.extend(value.as_sequence().into_iter().flatten());
    }
    let namespace = &object["metadata"]["namespace"];
    assert!(
        namespace == odd || object["kind"] == "ClusterRole" || object["kind"] == "ClusterRoleBinding",
        "{file}: {object:?}"
    );
}

#[test]
fn a_name_that_kubectl_reads_as_something_else_is_a_fault() {
    for (metadata, place, read) in [
        ("{name: d, namespace: no}", "metadata.namespace", "false"),
        ("{name: 0400, namespace: n1}", "metadata.name", "256"),
    ] {
        let manifest = attacher("[]").replace("{name: d, namespace: 'n'}", metadata);
        let report = migrate(&wanted(&manifest)).report;
        assert!(
            report
                .faults
                .iter()
                .any(|fault| fault.place.ends_with(place) && fault.found == read && fault.expected.contains("quotes")),
            "{}",
            report.faults_text()
        );
    }
}

#[test]
fn a_field_of_another_shape_is_a_fault_and_is_not_taken_for_an_empty_one() {
    const TEXTS: &str = "a list of texts, one for each argument";
    for (fields, found, expected) in [
        ("args: '--csi-address=/csi/csi.sock --leader-election'", "args is one text", TEXTS),
        ("args: {csi-address: /csi/csi.sock}", "args is a mapping", TEXTS),
        ("args: [[--csi-address=/csi/csi.sock]]", "args is a list with other entries", TEXTS),
        ("args: 5", "args is one value", TEXTS),
        ("command: /csi-attacher --leader-election", "command is one text", TEXTS),
        ("env: {ADDRESS: /csi/csi.sock}", "env is a mapping", "a list of variables, each with a name"),
        ("envFrom: [settings]", "envFrom is a list with other entries", "a list of sources"),
        ("ports: 8080", "ports is one value", "a list of ports"),
        ("volumeMounts: {name: socket}", "volumeMounts is a mapping", "a list of mounts"),
    ] {
        let text = attacher("[]").replace("args: []", fields);
        assert!(text.contains(fields), "{text}");
        let Outcome { report, files } = migrate(&wanted(&text));
        assert_eq!(files, None);
        let fault = report.faults.iter().find(|fault| fault.found == found);
        let fault = fault.unwrap_or_else(|| panic!("{fields}: {:#?}", report.faults));
        assert!(fault.place.ends_with("container csi-attacher") && fault.expected.starts_with(expected), "{fault:?}");
    }
}
