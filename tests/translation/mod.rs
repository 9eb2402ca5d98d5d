//! The translation of in-tree volumes against `k8s.io/csi-translation-lib` itself, over thousands of generated objects: `just
//! translation`. Where ours differs on purpose, the difference is stated here, and nothing else may differ.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use csi_control_plane::cluster::{Cached as _, Fields, InTree, InTreeSource, PersistentVolume, StorageClass};
use csi_control_plane::translation::{
    class_to_csi, pod_volume_to_csi, repair_handle, volume_to_csi, volume_to_in_tree,
};
use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

mod objects;
mod yaml;

/// The library's program, where `build.sh` put it.
fn program() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
    let path = std::env::var_os("CLUSTER_PROGRAMS")
        .expect("CLUSTER_PROGRAMS is what tests/cluster/build.sh prints: run `just translation`");
    let found = std::env::split_paths(&path).map(|folder| folder.join("translate-in-tree")).find(|file| file.is_file());
    found.expect("translate-in-tree is nowhere in CLUSTER_PROGRAMS")
}

/// How many objects of each kind.
fn count() -> usize {
    #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
    let given = std::env::var("TRANSLATIONS").ok();
    given.map_or(2_000, |count| count.parse().unwrap())
}

/// The answers of the library and of ours to many questions.
fn compare(
    questions: impl Strategy<Value = Value>,
    ours: impl Fn(&Value) -> Result<Value, String>,
    adjust: impl Fn(&Value, &mut Value, &mut Result<Value, String>),
) {
    let mut runner = TestRunner::deterministic();
    let questions: Vec<Value> = (0..count()).map(|_| questions.new_tree(&mut runner).unwrap().current()).collect();
    let (mut answered, mut refused) = (0, 0);
    for (question, mut theirs) in questions.iter().zip(library(&questions)) {
        let mut ours = ours(question);
        adjust(question, &mut theirs, &mut ours);
        match ours {
            Ok(ours) => {
                answered += 1;
                assert_eq!(plain(&ours), plain(&theirs["answer"]), "of {question}, theirs is {theirs}");
            }
            Err(ours) => {
                refused += 1;
                let theirs = theirs["error"].as_str().unwrap_or_else(|| panic!("{question}: {theirs}, not {ours}"));
                // What follows is Go's own: a URL's or a number's fault, a set of regions, and a text with escapes.
                let theirs = theirs.split(": \"").next().unwrap();
                let common = theirs.split(": parse ").next().unwrap().split("got: map[").next().unwrap();
                let common = common.split(": strconv.").next().unwrap().to_ascii_lowercase();
                assert!(
                    ours.to_ascii_lowercase().starts_with(&common),
                    "of {question}, theirs is {theirs}, ours {ours}"
                );
            }
        }
    }
    println!("{answered} translated, {refused} refused");
    assert!(answered > count() / 4, "the objects are too odd: {answered} of {} are translated", count());
}

/// The library's answers.
fn library(questions: &[Value]) -> Vec<Value> {
    let mut program = Command::new(program()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = std::io::BufWriter::new(program.stdin.take().unwrap());
    let lines = questions.to_vec();
    let writer = std::thread::spawn(move || lines.iter().for_each(|question| writeln!(input, "{question}").unwrap()));
    let output = program.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    let answers: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), questions.len());
    answers
}

/// Without what is not there: null, objects and lists of nothing, and names that are empty, which Go leaves out.
fn plain(value: &Value) -> Value {
    let is_there = |value: &Value| {
        !(value.is_null()
            || value.as_object().is_some_and(serde_json::Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty))
    };
    match value {
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| (key.clone(), plain(value)));
            let is_named = |key: &str, value: &Value| !(value == "" && matches!(key, "name" | "namespace"));
            Value::Object(members.filter(|(key, value)| is_there(value) && is_named(key, value)).collect())
        }
        Value::Array(items) => items.iter().map(plain).filter(is_there).collect(),
        other => other.clone(),
    }
}

fn kind_of(source: &Value) -> InTree {
    InTree::ALL.into_iter().find(|kind| !source[kind.field()].is_null()).unwrap()
}

/// Portworx: the library forgets that a volume may only be read.
fn keep_read_only(kind: InTree, source: &Value, csi: &mut Value) {
    if kind == InTree::PortworxVolume && source["readOnly"] == true && csi.is_object() {
        csi["readOnly"] = json!(true);
    }
}

#[test]
fn volumes_become_what_the_library_makes_of_them() {
    let parts = |spec: &Value| json!({ "csi": spec["csi"], "accessModes": spec["accessModes"], "nodeAffinity": spec["nodeAffinity"] });
    compare(
        objects::volumes(),
        |question| {
            let mut volume: PersistentVolume = serde_json::from_value(question["object"].clone()).unwrap();
            volume.trim(kind_of(&question["object"]["spec"]).successor(), Fields::MIGRATION);
            volume_to_csi(&volume).map(|volume| volume.to_spec()).map_err(|error| error.to_string())
        },
        |question, theirs, _| {
            let kind = kind_of(&question["object"]["spec"]);
            if theirs["answer"].is_object() {
                let mut spec = parts(&theirs["answer"]["spec"]);
                keep_read_only(kind, &question["object"]["spec"][kind.field()], &mut spec["csi"]);
                theirs["answer"] = spec;
            }
        },
    );
}

fn pod_source(volume: &Value) -> InTreeSource {
    let kind = kind_of(volume);
    let source = volume[kind.field()].clone();
    match kind {
        InTree::GcePersistentDisk => serde_json::from_value(source).map(InTreeSource::GcePersistentDisk),
        InTree::AwsElasticBlockStore => serde_json::from_value(source).map(InTreeSource::AwsElasticBlockStore),
        InTree::AzureDisk => serde_json::from_value(source).map(InTreeSource::AzureDisk),
        InTree::AzureFile => serde_json::from_value(source).map(InTreeSource::AzureFile),
        InTree::Cinder => serde_json::from_value(source).map(InTreeSource::Cinder),
        InTree::VsphereVolume => serde_json::from_value(source).map(InTreeSource::VsphereVolume),
        InTree::PortworxVolume => serde_json::from_value(source).map(InTreeSource::PortworxVolume),
    }
    .unwrap()
}

#[test]
fn volumes_of_pods_become_what_the_library_makes_of_them() {
    compare(
        objects::pod_volumes(),
        |question| {
            let source = pod_source(&question["object"]);
            let name = question["object"]["name"].as_str().unwrap();
            let volume = pod_volume_to_csi(&source, name, question["namespace"].as_str());
            volume
                .map(|volume| json!({ "metadata": { "name": volume.name }, "spec": volume.to_spec() }))
                .map_err(|error| error.to_string())
        },
        |question, theirs, ours| {
            let kind = kind_of(&question["object"]);
            let source = &question["object"][kind.field()];
            if theirs["panic"].is_string() {
                // M19: the library crashes.
                let has_policy = source["storagePolicyName"].as_str().is_some_and(|policy| !policy.is_empty());
                assert!(kind == InTree::VsphereVolume && has_policy, "{question}: {theirs}");
                let ours = ours.as_ref().unwrap();
                assert_eq!(ours["spec"]["csi"]["volumeAttributes"]["storagepolicyname"], source["storagePolicyName"]);
                theirs["answer"] = ours.clone();
            } else if theirs["answer"].is_object() {
                theirs["answer"]["status"] = Value::Null;
                keep_read_only(kind, source, &mut theirs["answer"]["spec"]["csi"]);
            }
        },
    );
}

#[test]
fn volumes_of_drivers_become_what_the_library_makes_of_them() {
    let annotation = "kubernetes.io/azure-file-resource-group";
    compare(
        objects::driver_volumes(),
        |question| volume_to_in_tree(&question["object"]).map_err(|error| error.to_string()),
        |question, theirs, ours| {
            let csi = &question["object"]["spec"]["csi"];
            let error = theirs["error"].as_str().unwrap_or_default();
            if error.contains("Failed to handle region topology") {
                // The library refuses a volume that exists, because a region is missing.
                theirs["answer"] = ours.clone().unwrap();
            } else if csi["driver"] == "csi.vsphere.vmware.com"
                && csi["volumeAttributes"]["initialvolumefilepath"].is_null()
            {
                // M27: the library stores a volume that is nowhere.
                assert!(theirs["answer"]["spec"]["vsphereVolume"]["volumePath"] == "", "{theirs}");
                assert!(ours.as_ref().is_err_and(|error| error.contains("initialvolumefilepath")));
                theirs["answer"] = Value::Null;
                theirs["error"] = json!(ours.clone().unwrap_err());
            } else if theirs["answer"].is_object() {
                theirs["answer"]["status"] = Value::Null;
                // The library loses the group if it need not take the handle apart.
                if theirs["answer"]["metadata"]["annotations"][annotation].is_null()
                    && csi["driver"] == "file.csi.azure.com"
                {
                    let ours = ours.as_mut().unwrap();
                    let held = ours["metadata"]["annotations"].as_object_mut().and_then(|held| held.remove(annotation));
                    let group = csi["volumeHandle"].as_str().unwrap().split('#').next().unwrap();
                    assert!(held.is_none_or(|held| held == group));
                }
            }
        },
    );
}

#[test]
fn classes_become_what_the_library_makes_of_them() {
    compare(
        objects::classes(),
        |question| {
            let class: StorageClass = serde_json::from_value(question["object"].clone()).unwrap();
            let class = class_to_csi(&class).map_err(|error| error.to_string())?;
            let expressions = |term: &csi_control_plane::cluster::TopologySelectorTerm| {
                let all = term.match_label_expressions.iter();
                json!({ "matchLabelExpressions": all.map(|it| json!({ "key": it.key, "values": it.values })).collect::<Vec<_>>() })
            };
            let places: Vec<Value> = class.allowed_topologies.iter().map(expressions).collect();
            Ok(json!({ "metadata": { "name": class.metadata.name.as_ref() }, "provisioner": class.provisioner,
                "parameters": class.parameters, "allowedTopologies": places }))
        },
        |_, _, _| {},
    );
}

#[test]
fn handles_are_repaired_as_the_library_does() {
    compare(
        objects::handles(),
        |question| {
            let of = |member: &str| question[member].as_str().unwrap();
            repair_handle(of("name"), of("handle"), of("node")).map(Value::from).map_err(|error| error.to_string())
        },
        |_, theirs, _| {
            if theirs.as_object().unwrap().is_empty() {
                theirs["answer"] = json!("");
            }
        },
    );
}

#[test]
fn the_library_is_the_one_that_is_asked() {
    let asked = json!({ "ask": "classToCSI", "name": "demo", "object": {} });
    let error = "could not find in-tree storage class parameter translation logic for \"demo\"";
    assert_eq!(library(&[asked]), [json!({ "error": error })]);
}
