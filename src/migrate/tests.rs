//! Manifests with the shape and flags of public drivers' controllers, and manifests with faults.

use std::collections::BTreeSet;

use serde_json::json;
use serde_yaml::Value;

use super::document::string;
use super::report::{FlagFate, Report};
use super::*;
use crate::app::Plan;
use crate::config::flags::Takes;
use crate::config::sidecar::all;
use crate::config::{self, File, Sources};
use crate::roles::sidecars::hosted;
use crate::roles::{ROLES, sections};

pub(super) fn wanted(text: &str) -> Wanted {
    let manifests = vec![Manifest { name: "d.yaml".to_owned(), text: text.to_owned() }];
    Wanted { manifests, driver: Some("disk.example.com".to_owned()), ..Wanted::default() }
}

fn names(text: &str) -> BTreeSet<String> {
    let documents = document::read(text).unwrap();
    let workloads = document::workloads(&documents);
    let containers = workloads.iter().flat_map(document::Workload::containers);
    containers.map(|container| string(container, "name").unwrap().to_owned()).collect()
}

/// What holds for every migration; then a snapshot of all that people read.
pub(super) fn fixture(name: &str, text: &str, change: impl Fn(&mut Wanted)) {
    let mut wanted = wanted(text);
    wanted.image = Some("registry.example/csi-control-plane:v1".to_owned());
    wanted.folder = Some("moved".to_owned());
    wanted.driver = None;
    change(&mut wanted);
    let Outcome { report, files } = migrate(&wanted);
    let files = files.unwrap_or_else(|| panic!("{name}: {}", report.faults_text()));

    let file = File { name: "config.yaml".to_owned(), text: files.config.clone() };
    let loaded = config::load(&Sources { file: Some(file), ..Sources::default() }, &sections()).unwrap();
    let driver = &report.driver.as_ref().unwrap().name;
    let documents = document::read(text).unwrap();
    let workloads = document::workloads(&documents);
    let chosen = workloads.iter().find(|workload| Some(workload.title()) == report.workload).unwrap();
    let own = chosen.namespace.as_deref().or(wanted.namespace.as_deref());
    // Of pods that serve another cluster, the rights are for the namespace there.
    let there = loaded.config.kubernetes.kubeconfig.as_ref().and(loaded.config.leader_election.namespace.as_deref());
    let plan = Plan::of(&loaded, driver, there.or(own)).unwrap();
    assert_eq!(files.rbac, plan.manifests, "{name}");
    let own = document::read(&files.original).unwrap();
    assert_eq!(document::workloads(&own).len(), 1, "{name}");
    assert_eq!(own.len(), 1, "{name}: the workload alone");
    for line in files.original.lines() {
        assert!(text.contains(line.trim()), "{name}: {line}");
    }
    let replaced: BTreeSet<&'static str> = report.containers.iter().flat_map(|one| one.roles.clone()).collect();
    assert_eq!(loaded.roles.keys().copied().collect::<BTreeSet<_>>(), replaced, "{name}");

    let map: serde_json::Value = serde_yaml::from_str(&files.config_map).unwrap();
    assert_eq!(map["data"]["config.yaml"], files.config, "{name}");
    let gone: BTreeSet<String> =
        report.containers.iter().filter(|one| one.kept.is_none()).map(|one| one.name.clone()).collect();
    let mut expected: BTreeSet<String> = names(&files.original).difference(&gone).cloned().collect();
    expected.insert(replaced::numbered(replaced::CONTAINER, replaced::daemons(chosen.containers()) + 1));
    assert_eq!(names(&files.workload), expected, "{name}");
    let least = if files.rbac.is_empty() { 2 } else { 4 };
    assert!(document::read(&files.stream()).unwrap().len() >= least, "{name}");

    let Files { config, bindings, workload, .. } = &files;
    let told =
        format!("{report}\n=== config.yaml\n{config}\n=== bindings.yaml\n{bindings}\n=== workload.yaml\n{workload}");
    let told = told.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    insta::with_settings!({ snapshot_path => "../../tests/migrate/snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, told);
    });
}

macro_rules! manifest {
    ($name:literal) => {
        include_str!(concat!("../../tests/migrate/", $name, ".yaml"))
    };
}

#[test]
fn aws_ebs_with_its_csi_driver_object() {
    fixture("aws-ebs", manifest!("aws-ebs"), |_| ());
}

#[test]
fn ceph_rbd_with_a_port_for_each_sidecar() {
    fixture("ceph-rbd", manifest!("ceph-rbd"), |_| ());
}

#[test]
fn azuredisk_with_single_dashes_on_the_hosts_network() {
    fixture("azuredisk", manifest!("azuredisk"), |wanted| wanted.driver = Some("disk.csi.azure.com".to_owned()));
}

#[test]
fn gcp_pd_without_a_namespace() {
    fixture("gcp-pd", manifest!("gcp-pd"), |wanted| {
        wanted.namespace = Some("gce-pd-csi-driver".to_owned());
        wanted.driver = Some("pd.csi.storage.gke.io".to_owned());
    });
}

#[test]
fn cinder_in_a_list_without_leader_election() {
    fixture("cinder", manifest!("cinder"), |wanted| wanted.driver = Some("cinder.csi.openstack.org".to_owned()));
}

#[test]
fn hostpath_with_every_sidecar_in_one_pod() {
    fixture("hostpath", manifest!("hostpath"), |_| ());
}

/// A Deployment with one attacher and these arguments.
pub(super) fn attacher(arguments: &str) -> String {
    format!(
        "kind: Deployment\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  template:\n    spec:\n      containers:\n      \
         - name: csi-attacher\n        image: x/csi-attacher:v4\n        args: {arguments}\n      - name: driver\n"
    )
}

fn faults(report: &Report) -> Vec<(&str, &str, bool)> {
    report.faults.iter().map(|fault| (fault.place.as_str(), fault.found.as_str(), fault.leave_out.is_some())).collect()
}

#[test]
fn every_fault_is_told_at_once_with_its_container_and_flag() {
    let text = attacher(
        "[--timeout=soon, --leader-electoin, --worker-threads=many, --feature-gates=X, --csi-address=$(NONE)]",
    );
    let Outcome { report, files } = migrate(&wanted(&text));
    assert_eq!(files, None);
    let place = "Deployment n/d, container csi-attacher, ";
    assert_eq!(
        faults(&report),
        [
            (&*format!("{place}--csi-address"), "$(NONE), which is no variable of the container", true),
            (&*format!("{place}--timeout"), "\"soon\"", true),
            (&*format!("{place}--leader-electoin"), "an unknown flag: did you mean --leader-election?", true),
            (&*format!("{place}--worker-threads"), "\"many\"", true),
            (&*format!("{place}--feature-gates"), "\"X\"", true),
        ]
    );
    let told = Outcome { report, files }.faults_text();
    assert!(told.starts_with("nothing was written: the workload has 5 faults\n"), "{told}");
}

#[test]
fn what_is_unknown_is_left_out_only_on_demand_and_still_told() {
    let text = attacher("[--csi-address=/csi/s, --speed=9]");
    assert_eq!(migrate(&wanted(&text)).files, None);
    let (everything, named) = (Lenient::Everything, |name: &str| Lenient::Named(vec![name.to_owned()]));
    assert!(migrate(&Wanted { lenient: named("--speed"), ..wanted(&text) }).files.is_some());
    for lenient in [named("sped"), Lenient::Named(vec!["speed".to_owned(), "timeout".to_owned()])] {
        let Outcome { report, files } = migrate(&Wanted { lenient, ..wanted(&text) });
        assert_eq!(files, None);
        let unknown = report.faults.iter().find(|fault| fault.place == "--lenient").unwrap();
        assert_eq!(unknown.expected, "names of speed");
    }
    let Outcome { report, files } = migrate(&Wanted { lenient: everything, ..wanted(&text) });
    assert!(files.is_some());
    let left_out = "left out, as --lenient says: Deployment n/d, container csi-attacher, --speed: an unknown flag";
    assert!(report.notes.of(report::Weight::Check).any(|note| note == left_out), "{report}");
    let undecided: Vec<_> = report.containers[0]
        .flags
        .iter()
        .filter(|line| line.fate == FlagFate::Undecided)
        .map(|line| &line.given)
        .collect();
    assert_eq!(undecided, ["--speed=9"]);
    assert_eq!(Outcome { report, files }.faults_text(), "", "a success does not end with faults");
}

#[test]
fn what_the_loader_refuses_names_the_flag_and_leniency_does_not_help() {
    let text = attacher("[--csi-address=csi.sock, --worker-threads=0]");
    let Outcome { report, files } = migrate(&Wanted { lenient: Lenient::Everything, ..wanted(&text) });
    assert_eq!(files, None);
    let places: Vec<_> = faults(&report).into_iter().map(|(place, _, lenient)| (place, lenient)).collect();
    assert_eq!(
        places,
        [
            ("csi.endpoint (csi-attacher --csi-address=csi.sock)", false),
            ("roles.attacher.workers (csi-attacher --worker-threads=0)", false),
        ]
    );
}

#[test]
fn a_manifest_without_anything_to_do_is_a_fault() {
    for (text, found) in [
        ("", "no Deployment, StatefulSet or DaemonSet"),
        ("kind: Service\n", "no Deployment, StatefulSet or DaemonSet"),
        (&attacher("[]").replace("csi-attacher", "csi-other"), "no sidecar that can be replaced"),
        (&format!("{}---\n{}", attacher("[]"), attacher("[]")), "2 workloads: Deployment n/d, Deployment n/d"),
    ] {
        let Outcome { report, files } = migrate(&wanted(text));
        assert_eq!(files, None);
        assert_eq!(faults(&report), [(MANIFEST, found, false)], "{text}");
    }
    let Outcome { report, .. } = migrate(&wanted("a: [\n"));
    assert!(report.faults[0].place.starts_with("d.yaml:"), "{:?}", report.faults);
}

#[test]
fn a_workload_is_chosen_by_kind_and_name() {
    let text = format!("{}---\n{}", attacher("[]"), attacher("[]").replace("name: d,", "name: e,"));
    let chosen = |name: &str| {
        let outcome = migrate(&Wanted { workload: Some(name.to_owned()), ..wanted(&text) });
        outcome.files.and(outcome.report.workload)
    };
    assert_eq!(chosen("e").as_deref(), Some("Deployment n/e"));
    assert_eq!(chosen("deployment/d").as_deref(), Some("Deployment n/d"));
    assert_eq!(chosen("statefulset/d"), None);
    let outcome = migrate(&Wanted { workload: Some("e".to_owned()), ..wanted(&text) });
    assert_eq!(outcome.report.containers[0].kept.as_deref(), Some("its workload was not chosen"));
    assert_eq!(names(&outcome.files.unwrap().workload).len(), 2, "the other workload is not written");
}

/// What `kubectl get -o yaml` adds to a workload.
const SERVERS: &str = "  annotations:\n    deployment.kubernetes.io/revision: \"4\"\n    kubectl.kubernetes.io/last-applied-configuration: \
    |\n      {\"spec\":{\"containers\":[{\"name\":\"csi-attacher\"}]}}\n  creationTimestamp: \"2026-01-01T00:00:00Z\"\n  generation: 4\n  \
    resourceVersion: \"4711\"\n  uid: 11111111-2222-3333-4444-555555555555\n";

#[test]
fn a_workload_from_a_running_cluster_is_migrated_without_what_the_server_owns() {
    let written = manifest!("aws-ebs");
    let live = written.replacen("metadata:\n", &format!("metadata:\n{SERVERS}"), 1);
    let live = live.replacen("---\n", "status:\n  readyReplicas: 2\n---\n", 1);
    let (from_file, from_server) = (migrate(&wanted(written)), migrate(&wanted(&live)));
    assert_eq!(from_server.files, from_file.files);
    let workload = written.split("---\n").next().unwrap();
    assert_eq!(from_file.files.unwrap().original, workload);
    let note = "from a running cluster, without the fields that the server sets: Deployment ebs-csi-controller: \
                metadata.annotations, metadata.creationTimestamp, metadata.generation, metadata.resourceVersion, metadata.uid, status";
    let (of_server, of_file): (Vec<_>, Vec<_>) =
        (from_server.report.notes.iter().collect(), from_file.report.notes.iter().collect());
    assert_eq!(of_server[0].text, note);
    assert_eq!(of_server[1..], of_file);
}

#[test]
fn secrets_that_are_named_are_granted_alone_and_bound() {
    let secrets = [("vault", "key"), ("n", "other"), ("n", "one")];
    let secrets = secrets.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).to_vec();
    let text = attacher("[--csi-address=/csi/s, --leader-election]");
    let Outcome { report, files } = migrate(&Wanted { secrets, ..wanted(&text) });
    let Files { rbac, bindings, .. } = files.unwrap();
    let rights = document::read(&rbac).unwrap();
    let about_secrets: Vec<_> =
        rights.iter().filter(|role| serde_yaml::to_string(&role.value).unwrap().contains("- secrets")).collect();
    let told = about_secrets.iter().map(|role| {
        let rule = &role.value["rules"][0];
        (
            role.value["kind"].as_str().unwrap(),
            role.value["metadata"]["namespace"].as_str().unwrap(),
            document::strings(rule, "resourceNames"),
        )
    });
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(told.collect::<Vec<_>>(), [("Role", "n", names(&["one", "other"])), ("Role", "vault", names(&["key"]))]);
    for namespace in ["n", "vault"] {
        let binding = format!(":secrets:n:default\n  namespace: {}\n", crate::process::yaml::text(namespace));
        assert!(bindings.contains(&binding), "{binding} in\n{bindings}");
    }
    assert!(
        report.notes.texts().any(|note| note.contains("vault/key, n/other, n/one and no others")),
        "{:?}",
        report.notes
    );
    let wide = migrate(&wanted(&text)).report;
    assert!(wide.notes.texts().any(|note| note.contains("every secret of the cluster")), "{:?}", wide.notes);
}

#[test]
fn rights_are_granted_where_they_are_used_also_with_the_leases_elsewhere() {
    let granted = |arguments: &str| {
        let text = attacher(&format!("[--csi-address=/csi/s, --leader-election, --enable-capacity{arguments}]"));
        let text = text.replace("csi-attacher", "csi-provisioner");
        let wanted = Wanted { driver: Some("disk.example.com".to_owned()), ..wanted(&text) };
        let Files { rbac, bindings, .. } = migrate(&wanted).files.unwrap();
        let read = |text: &str, kind: &str| {
            let documents = document::read(text).unwrap().into_iter().map(|document| document.value);
            documents.filter(|value| value["kind"] == *kind).collect::<Vec<_>>()
        };
        let place = |value: &Value| value["metadata"]["namespace"].as_str().unwrap().to_owned();
        let resources = |role: &Value| {
            let rules = role["rules"].as_sequence().unwrap();
            rules.iter().flat_map(|rule| document::strings(rule, "resources")).collect::<BTreeSet<_>>()
        };
        let bound = read(&bindings, "RoleBinding");
        assert!(bound.iter().all(|binding| binding["subjects"][0]["namespace"] == "n"), "{bindings}");
        let roles = read(&rbac, "Role");
        assert_eq!(bound.iter().map(place).collect::<Vec<_>>(), roles.iter().map(place).collect::<Vec<_>>());
        roles.iter().map(|role| (place(role), resources(role))).collect::<Vec<_>>()
    };
    let role = |namespace: &str, resources: &[&str]| {
        (namespace.to_owned(), resources.iter().map(|&resource| resource.to_owned()).collect::<BTreeSet<_>>())
    };
    assert_eq!(granted(""), [role("n", &["configmaps", "csistoragecapacities", "leases", "pods"])]);
    assert_eq!(
        granted(", --leader-election-namespace=elsewhere"),
        [role("n", &["configmaps", "csistoragecapacities", "pods"]), role("elsewhere", &["leases"])]
    );
}

#[test]
fn what_a_replacement_would_change_besides_is_told() {
    let says = |text: &str| {
        let notes = migrate(&Wanted { folder: Some("m".to_owned()), ..wanted(text) }).report.notes;
        notes.texts().any(|note| note.contains("spec.replicas"))
    };
    let text = attacher("[--csi-address=/csi/s]");
    assert!(says(&text));
    assert!(!says(&text.replace("Deployment", "DaemonSet")));
    assert!(!says(&text.replace("spec:\n  template", "spec:\n  replicas: 2\n  template")));
}

#[test]
fn a_migrated_workload_is_not_migrated_again() {
    let files = migrate(&wanted(&attacher("[--csi-address=/csi/s]"))).files.unwrap();
    let Outcome { report, files } = migrate(&wanted(&files.workload));
    assert_eq!(files, None);
    assert_eq!(report.faults[0].found, "a container of that name");
}

#[test]
fn a_sidecar_in_a_shell_or_among_the_init_containers_is_not_touched() {
    let shell = attacher("[-c, csi-attacher --v=5]").replace("args:", "command: [/bin/sh]\n        args:");
    let report = migrate(&wanted(&shell)).report;
    assert_eq!(report.containers[0].kept.as_deref(), Some("it is started by a shell"));
    assert!(report.faults.iter().any(|fault| fault.found.contains("shell")));
    let text = format!("{}      initContainers: [{{name: i, image: csi-attacher}}]\n", attacher("[]"));
    let outcome = migrate(&wanted(&text));
    assert!(outcome.files.unwrap().workload.contains("initContainers: [{name: i, image: csi-attacher}]\n"));
    assert!(outcome.report.containers[1].kept.as_deref().unwrap().contains("init container"));
}

/// A value of each kind that its flag accepts.
fn sample(name: &str, takes: Takes) -> &'static str {
    match (name, takes) {
        ("csi-address", _) => "/csi/csi.sock",
        ("master", _) => "",
        ("http-endpoint" | "metrics-address", _) => ":8081",
        ("leader-election-labels", _) => "a:b",
        ("logging-format", _) => "json",
        ("capacity-controller-deployment-mode", _) => "central",
        ("feature-gates", _) => "Topology=true,MutableCSINodeAllocatableCount=true",
        (_, Takes::Switch) => "true",
        (_, Takes::Time) => "20s",
        (_, Takes::Count) => "3",
        (_, Takes::Text) => "text",
    }
}

#[test]
fn every_flag_of_the_table_has_a_fate() {
    for sidecar in hosted() {
        let known: Vec<_> =
            all(&hosted()).filter(|flag| sidecar.flag(flag.name).is_some_and(|own| std::ptr::eq(own, *flag))).collect();
        let arguments: Vec<String> =
            known.iter().map(|flag| format!("--{}={}", flag.name, sample(flag.name, flag.takes))).collect();
        let read = map::read("p", "c", sidecar, &arguments, &expand::Variables::default(), &|_| true);
        assert_eq!(read.faults, vec![], "{}", sidecar.name);
        assert!(read.lines.len() >= known.len(), "{}", sidecar.name);
        for line in &read.lines {
            assert_ne!(line.fate, FlagFate::Undecided, "{}: {}", sidecar.name, line.given);
            assert!(line.fate != FlagFate::Dropped || !line.note.is_empty(), "{}: no reason", line.given);
        }
    }
}

#[test]
fn values_are_translated_where_the_key_is_written_otherwise() {
    for (sidecar, argument, key, value) in [
        ("csi-attacher", "-v=5", "telemetry.logs.level", json!("info,csi_control_plane=trace")),
        ("csi-attacher", "--http-endpoint=localhost:8080", "diagnostics.listen", json!("127.0.0.1:8080")),
        ("csi-attacher", "--metrics-address=:http", "diagnostics.listen", json!("[::]:80")),
        ("csi-attacher", "--resync=0", "roles.attacher.resync", json!("0s")),
        ("csi-attacher", "--max-grpc-log-length=-1", "csi.maxLogLength", json!(null)),
        ("csi-attacher", "--max-grpc-log-length=0", "csi.maxLogLength", json!(null)),
        ("csi-attacher", "--max-grpc-log-length=-7", "csi.maxLogLength", json!(null)),
        ("csi-attacher", "--leader-election-labels=a:b,c:d", "leaderElection.labels", json!({"a": "b", "c": "d"})),
        (
            "csi-attacher",
            "--feature-gates=MutableCSINodeAllocatableCount=false",
            "roles.attacher.errorCodes",
            json!(false),
        ),
        ("csi-provisioner", "--worker-threads=7", "roles.provisioner.workers", json!(7)),
        ("csi-provisioner", "--volume-name-uuid-length=-1", "roles.provisioner.volumeNameUuidLength", json!(null)),
        ("csi-provisioner", "--feature-gates=Topology=false", "roles.provisioner.topology", json!(false)),
        (
            "csi-provisioner",
            "--feature-gates=VolumeAttributesClass=false",
            "roles.provisioner.attributesClasses",
            json!(false),
        ),
        (
            "csi-provisioner",
            "--feature-gates=HonorPVReclaimPolicy=false",
            "roles.provisioner.honorReclaimPolicy",
            json!(false),
        ),
        ("csi-provisioner", "--enable-capacity", "roles.provisioner.capacity.enabled", json!(true)),
        ("csi-resizer", "--handle-volume-inuse-error=false", "roles.resizer.inUseCheck", json!(false)),
        ("csi-resizer", "--feature-gates=AnnotateFsResize=false", "roles.resizer.annotatePreResize", json!(false)),
    ] {
        let sidecar = hosted().into_iter().find(|known| known.name == sidecar).unwrap();
        let read = map::read("p", "c", sidecar, &[argument.to_owned()], &expand::Variables::default(), &|_| true);
        let settings: Vec<_> = read.settings.into_iter().map(|setting| (setting.key, setting.value)).collect();
        assert_eq!(settings, [(key.to_owned(), value)], "{argument}");
    }
}

#[test]
fn only_hosted_sidecars_are_replaced() {
    let outcome = migrate(&wanted(manifest!("aws-ebs")));
    for container in &outcome.report.containers {
        let sidecar = hosted().into_iter().find(|sidecar| sidecar.name == container.sidecar);
        let is_hosted =
            sidecar.is_some_and(|sidecar| sidecar.roles.iter().all(|name| ROLES.iter().any(|role| role.name == *name)));
        assert_eq!(container.kept.is_none(), is_hosted, "{}", container.name);
    }
}

#[test]
fn whatever_comes_without_files_says_why() {
    let text = manifest!("aws-ebs");
    let lines: Vec<&str> = text.lines().collect();
    for end in 0..lines.len() {
        let Outcome { report, files } = migrate(&wanted(&lines[..end].join("\n")));
        assert_eq!(files.is_none(), !report.is_clean(&Lenient::Nothing), "after {end} lines: {}", report.faults_text());
    }
    // A text that the documents are not from: what must not come up.
    let (documents, other) = (document::read(text).unwrap(), wanted(""));
    let mut report = Report::default();
    let mut found = found::look(document::workloads(&documents), &other, &mut report);
    let chosen = choice::choose(&found, &documents, &other, &mut report).unwrap();
    let identity = driver::identify(&other, &documents, &[], &found[chosen].workload);
    assert!(report.is_clean(&Lenient::Nothing));
    assert_eq!(write::files(&other, "", &documents, &mut found[chosen], &identity, 0, &mut report), None);
    assert_eq!(report.faults.len(), 1, "{}", report.faults_text());
}
