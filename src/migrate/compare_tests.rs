//! The written workload differs from the original in what the report names, and in nothing else: for every shape of `tests/migrate`, written
//! as block YAML, as flow YAML and as JSON, and read by a reader of YAML 1.1 (kubectl's) and by one of YAML 1.2.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::report::Report;
use super::tests::wanted;
use super::*;
use crate::process::yaml;

/// A reader of one version of YAML.
type Reader = fn(&str) -> Json;
/// A way to write a manifest.
type Writer = fn(&str) -> String;

const READERS: [(&str, Reader); 2] = [
    ("YAML 1.1", |text| serde_json::to_value(yaml::read(text).unwrap()).unwrap()),
    ("YAML 1.2", |text| serde_yaml::from_str(text).unwrap()),
];

/// The ways to write a manifest.
const FORMS: [(&str, Writer); 3] = [("block", str::to_owned), ("flow", flow), ("JSON", listed)];

/// The objects of all documents, also of those that are lists.
fn objects(text: &str) -> Vec<Json> {
    let documents = document::read(text).unwrap();
    document::objects(&documents).map(|object| serde_json::to_value(object).unwrap()).collect()
}

/// Each document on one line, in YAML's flow style.
fn flow(text: &str) -> String {
    objects(text).iter().map(|object| inline(object) + "\n").collect::<Vec<_>>().join("---\n")
}

fn inline(value: &Json) -> String {
    match value {
        Json::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{}: {}", inline(&json!(key)), inline(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Json::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Json::String(text) if text.chars().any(char::is_control) => value.to_string(),
        Json::String(text) => format!("'{}'", text.replace('\'', "''")),
        value => value.to_string(),
    }
}

/// All objects as a `List` of JSON.
fn listed(text: &str) -> String {
    format!("{:#}\n", json!({"apiVersion": "v1", "kind": "List", "items": objects(text)}))
}

fn list<'a>(value: &'a Json, key: &str) -> &'a [Json] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn names(items: &[Json]) -> Vec<&str> {
    items.iter().map(|item| item["name"].as_str().unwrap()).collect()
}

/// What is compared, and where it comes from.
struct Comparison<'a> {
    what: String,
    report: &'a Report,
    original: Json,
    written: Json,
}

impl Comparison<'_> {
    fn is_told(&self, parts: &[&str]) -> bool {
        self.report.notes.texts().any(|note| parts.iter().all(|part| note.contains(part)))
    }

    fn holds(&self, is: bool, told: &str) {
        assert!(is, "{}: {told} is not named in\n{}\n{:#}", self.what, self.report, self.written);
    }

    fn check(&self) {
        let [old, new] = [&self.original, &self.written].map(|it| it.pointer("/spec/template").unwrap());
        let workload = self.report.workload.as_deref();
        let gone: BTreeSet<&str> = self
            .report
            .containers
            .iter()
            .filter(|one| one.kept.is_none() && Some(&*one.workload) == workload)
            .map(|one| one.name.as_str())
            .collect();
        let (before, after) = (list(&old["spec"], "containers"), list(&new["spec"], "containers"));
        let come: Vec<&Json> =
            after.iter().filter(|one| !names(before).contains(&one["name"].as_str().unwrap())).collect();
        let [daemon] = come.as_slice() else { panic!("{}: {:?} beside {:?}", self.what, names(after), names(before)) };
        let stays: Vec<&Json> = before.iter().filter(|one| !gone.contains(one["name"].as_str().unwrap())).collect();
        let others: Vec<&Json> = after.iter().filter(|one| one["name"] != daemon["name"]).collect();
        assert_eq!(stays, others, "{}", self.what);
        let replaced: Vec<&Json> = before.iter().filter(|one| gone.contains(one["name"].as_str().unwrap())).collect();
        assert_eq!(replaced.len(), gone.len(), "{}", self.what);
        self.annotations(&old["metadata"]["annotations"], &new["metadata"]["annotations"]);
        self.daemon(&replaced, daemon, &others);

        let mut rest = self.written.clone();
        let pod = rest.pointer_mut("/spec/template").unwrap();
        pod["spec"]["containers"] = json!(before);
        let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
        let config = volumes.pop().unwrap();
        assert!(config["name"].as_str().unwrap().starts_with("csi-control-plane-config"), "{}", self.what);
        if volumes.is_empty() && old["spec"].get("volumes").is_none() {
            pod["spec"].as_object_mut().unwrap().remove("volumes");
        }
        if let Some(annotations) = old["metadata"].get("annotations") {
            pod["metadata"]["annotations"] = annotations.clone();
        }
        assert_eq!(rest, self.original, "{}: nothing else", self.what);
    }

    fn annotations(&self, old: &Json, new: &Json) {
        let keys =
            |it: &Json| it.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect::<BTreeSet<_>>();
        for key in keys(old).union(&keys(new)).filter(|key| old[key.as_str()] != new[key.as_str()]) {
            let prefix = key.rsplit_once('/').map_or(key.as_str(), |(prefix, _)| prefix);
            self.holds(self.is_told(&["annotation", prefix]), key);
        }
    }

    /// Each field of the containers that go, and each of the one that comes.
    fn daemon(&self, replaced: &[&Json], daemon: &Json, others: &[&Json]) {
        for old in replaced {
            let name = old["name"].as_str().unwrap();
            for (field, value) in old.as_object().unwrap().iter().filter(|(_, value)| !value.is_null()) {
                self.field(name, field, value, daemon, others);
            }
        }
        for (list_name, key, own) in [
            ("env", "name", &["POD_NAME", "POD_NAMESPACE"][..]),
            ("volumeMounts", "mountPath", &["/etc/csi-control-plane"]),
        ] {
            for entry in list(daemon, list_name) {
                let is_old = replaced.iter().any(|old| list(old, list_name).contains(entry));
                let is_own = own.iter().any(|own| entry[key] == *own);
                self.holds(is_old || is_own, &format!("{list_name} {entry}"));
            }
        }
        for key in daemon["securityContext"].as_object().into_iter().flatten().map(|(key, _)| key) {
            let is_old = replaced.iter().any(|old| old["securityContext"].get(key).is_some());
            self.holds(is_old || self.is_told(&["securityContext", key]), key);
        }
        let known = [
            "name",
            "image",
            "args",
            "env",
            "envFrom",
            "ports",
            "resources",
            "volumeMounts",
            "securityContext",
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
        ];
        for field in daemon.as_object().unwrap().keys().filter(|field| !known.contains(&field.as_str())) {
            self.holds(replaced.iter().any(|old| old.get(field).is_some()), field);
        }
    }

    fn field(&self, name: &str, field: &str, value: &Json, daemon: &Json, others: &[&Json]) {
        let entries = value.as_array().map_or(&[][..], Vec::as_slice);
        match field {
            // The last three are off, or of no use to a daemon.
            "name" | "image" | "stdin" | "stdinOnce" | "tty" => {}
            "command" | "args" => {
                let told = self.report.containers.iter().find(|one| one.name == name).unwrap();
                for argument in entries.iter().filter_map(Json::as_str).filter(|it| it.starts_with('-')) {
                    let flag = argument.split('=').next().unwrap();
                    self.holds(told.flags.iter().any(|line| line.given.starts_with(flag)), argument);
                }
            }
            "env" | "envFrom" | "volumeMounts" | "volumeDevices" | "resizePolicy" => {
                let key = if field == "volumeMounts" { "mountPath" } else { "name" };
                let bare = |path: &Json| path.as_str().map(|path| path.trim_end_matches('/').to_owned());
                for entry in entries {
                    let same = list(daemon, field).iter().find(|one| bare(&one[key]) == bare(&entry[key]));
                    let label = entry[key].as_str().unwrap_or_default();
                    let is_unread = field == "env" && same.is_some() && !self.is_told(&["env", "differs"]);
                    let is = same == Some(entry) || is_unread || self.is_told(&[field, label]);
                    self.holds(
                        is || (field == "volumeMounts" && same.is_some()),
                        &format!("{field} {entry} of {name}"),
                    );
                }
            }
            "ports" => {
                for entry in entries {
                    let port = &entry["containerPort"];
                    let is_there = |one: &Json| list(one, "ports").iter().any(|it| it["containerPort"] == *port);
                    let is = is_there(daemon) || others.iter().any(|one| is_there(one));
                    self.holds(is || self.is_told(&["port", &port.to_string()]), &format!("port {entry} of {name}"));
                }
            }
            "resources" => {
                for resource in value["requests"].as_object().into_iter().flatten().map(|(resource, _)| resource) {
                    self.holds(daemon["resources"]["requests"].get(resource).is_some(), resource);
                }
            }
            "securityContext" => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    let is = daemon["securityContext"].get(key) == Some(value) || value.is_null();
                    self.holds(is || self.is_told(&["securityContext", key]), &format!("{key} of {name}"));
                }
            }
            "lifecycle" => {
                for (hook, handler) in value.as_object().into_iter().flatten().filter(|(_, handler)| !handler.is_null())
                {
                    self.holds(self.is_told(&[&format!("lifecycle.{hook} of {name}")]), &format!("{hook}: {handler}"));
                }
            }
            "livenessProbe" | "readinessProbe" | "startupProbe" => {
                self.holds(self.is_told(&[&format!("{field} of {name}")]), field);
            }
            "imagePullPolicy" | "terminationMessagePath" | "terminationMessagePolicy" => {
                self.holds(daemon[field] == *value || self.is_told(&[&format!("{field}: {name}")]), field);
            }
            _ => self.holds(self.is_told(&[&format!("{field} of {name} is dropped")]), field),
        }
    }
}

/// What a shape needs besides a driver's name.
fn asked(file: &str, kind_and_name: &str, wanted: &mut Wanted) {
    wanted.workload = Some(kind_and_name.to_owned());
    wanted.namespace = Some("storage".to_owned());
    wanted.lenient = Lenient::Everything;
    if file == "two-drivers" {
        wanted.socket = Some("/socketDir/csi.sock".to_owned());
    }
}

#[test]
fn what_is_written_differs_in_what_the_report_names_and_in_nothing_else() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/migrate");
    let mut compared = BTreeSet::new();
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.extension().is_some_and(|it| it == "yaml")) {
        let file = path.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let Ok(documents) = document::read(&text) else { continue };
        for workload in document::workloads(&documents) {
            let name = format!("{}/{}", workload.kind, workload.name);
            for (form, write) in FORMS {
                let mut wanted = wanted(&write(&text));
                asked(file, &name, &mut wanted);
                let Outcome { report, files } = migrate(&wanted);
                let Some(files) = files else { continue };
                compared.insert((file.to_owned(), form));
                for (version, read) in READERS {
                    let what = format!("{file}, {name} as {form} by {version}");
                    let (original, written) = (read(&files.original), read(&files.workload));
                    assert_eq!(original["metadata"]["name"], workload.name.as_str(), "{what}");
                    let pod = serde_json::to_value(&workload.pod).unwrap();
                    assert_eq!(original.pointer("/spec/template/spec"), Some(&pod), "{what}: as the user wrote it");
                    Comparison { what, report: &report, original, written }.check();
                }
            }
        }
    }
    // All but those that are refused: a template, an operator's own file, pods of Windows.
    let shapes: BTreeSet<&str> = compared.iter().map(|(file, _)| file.as_str()).collect();
    assert!(shapes.len() >= 26, "{shapes:?}");
    assert_eq!(compared.len(), shapes.len() * FORMS.len(), "each in each form: {compared:?}");
}
