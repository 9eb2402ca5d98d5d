//! The commands that need no cluster: `check`, `schema`, `version`, and invalid command lines.

use csi_control_plane::build::COMMIT;
use serde_json::Value;

use super::program::run;
use super::schema;

const REFERENCE: &str = "config/reference.yaml";
const MINIMAL: &str = "config/minimal.yaml";

#[tokio::test]
async fn check_prints_every_role_lease_watch_and_right() {
    let ended = run(&["check", "--config", MINIMAL, "--driver-name", "demo.csi.example.com"], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let words: Vec<Vec<&str>> = ended.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let lease = "external-attacher-leader-demo-csi-example-com";
    for expected in [
        &["driver", "demo.csi.example.com"][..],
        &["role", "attacher", "lease", lease],
        &["role", "provisioner", "lease", "demo-csi-example-com"],
        &["role", "reconciler", "lease", lease],
        &["role", "resizer", "lease", "external-resizer-demo-csi-example-com"],
        &["watch", "VolumeAttachment"],
        &["watch", "PersistentVolume"],
        &["watch", "PersistentVolumeClaim"],
        &["watch", "CSINode"],
        &["watch", "CSIDriver"],
        &["right", "events", "create", "patch"],
        &["right", "persistentvolumes", "create", "delete", "get", "list", "patch", "watch"],
        &["right", "persistentvolumeclaims", "get", "list", "patch", "watch"],
        &["right", "secrets", "get"],
        &["right", "csinodes.storage.k8s.io", "get", "list", "watch"],
        &["right", "csidrivers.storage.k8s.io", "list", "watch"],
        &["right", "volumeattachments.storage.k8s.io", "get", "list", "patch", "watch"],
        &["right", "volumeattachments/status.storage.k8s.io", "patch"],
        &["right", "volumesnapshotcontents.snapshot.storage.k8s.io", "get", "list", "patch", "watch"],
        &["right", "volumesnapshotcontents/status.snapshot.storage.k8s.io", "patch"],
        &["right", "volumesnapshotclasses.snapshot.storage.k8s.io", "get", "list", "watch"],
        &["right", "volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io", "get", "list", "patch", "watch"],
        &["right", "volumegroupsnapshotcontents/status.groupsnapshot.storage.k8s.io", "patch"],
        &["right", "volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io", "get", "list", "watch"],
        &["right", "configmaps", "create"],
        &["right", "configmaps", "get", "patch"],
        &["right", "leases.coordination.k8s.io", "create"],
        &["right", "leases.coordination.k8s.io", "get", "update", "watch"],
        &["right", "pods", "watch"],
    ] {
        assert!(words.iter().any(|line| line.starts_with(expected)), "{expected:?} in\n{}", ended.stdout);
    }
    assert!(ended.stdout.starts_with(&format!("{MINIMAL}: valid\n")), "{}", ended.stdout);
    assert_eq!(words.iter().filter(|line| line.first() == Some(&"right")).count(), 25);
    let named = format!(
        "    resourceNames: [\"demo-csi-example-com\", \"{lease}\", \"external-resizer-demo-csi-example-com\", \"external-snapshotter-leader-demo-csi-example-com\"]\n    verbs: [\"get\", \"update\", \"watch\"]"
    );
    assert!(ended.stdout.contains(&named), "{}", ended.stdout);
    let of_any = run(&["check", "--config", MINIMAL], &[]).await.stdout;
    assert!(of_any.contains("verbs: [\"create\", \"get\", \"update\", \"watch\"]"), "{of_any}");
    assert!(of_any.contains("resources: [\"configmaps\"]\n    verbs: [\"create\", \"get\", \"patch\"]"), "{of_any}");
    let journal = ended.stdout.lines().find(|line| line.contains("demo-csi-example-com-journal-0")).unwrap();
    assert!(journal.contains("\"demo-csi-example-com-journal-15\""), "{journal}");
}

#[tokio::test]
async fn roles_on_the_command_line_are_a_configuration_and_check_says_what_they_set() {
    let flags = ["--role=attacher", "--csi-address=/csi/csi.sock", "--timeout=1m", "--v=4"];
    let ended = run(&[&["check"], &flags[..]].concat(), &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let shown = "the command line: valid\n\n\
        flag     --role=attacher              sets roles.attacher: {}\n\
        flag     --csi-address=/csi/csi.sock  sets csi.endpoint: /csi/csi.sock\n\
        flag     --timeout=1m                 sets csi.timeout: 1m\n\
        flag     --v=4                        sets telemetry.logs.level: info,csi_control_plane=debug\n\n\
        driver   not known: give --driver-name NAME. driver.example.com stands for it, and the rights are on\n\
        \x20        all Leases and journals of the namespace\n\
        role     attacher     lease ";
    assert!(ended.stdout.starts_with(shown), "{}", ended.stdout);
    let json = run(&[&["check", MINIMAL, "--output=json"], &flags[..]].concat(), &[]).await;
    let document: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(document["configuration"]["csi"]["timeout"], "1m");
    let expected = serde_json::json!({"flag": "--timeout=1m", "key": "csi.timeout", "value": "1m"});
    assert_eq!(document["flags"][2], expected);
    let wrong = run(&["run", "--role=atacher", "--timeout=5"], &[]).await;
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(78), ""));
    for told in ["roles.atacher  (--role=atacher)", "did you mean `attacher`?", "csi.timeout  (--timeout=5)"] {
        assert!(wrong.stderr.contains(told), "{told} in\n{}", wrong.stderr);
    }
}

#[tokio::test]
async fn check_for_programs_is_one_json_document_with_the_same_plan() {
    let ended = run(&["check", "--config", REFERENCE, "--output", "json"], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    let roles = document["plan"]["roles"].as_array().unwrap();
    assert!(roles.iter().any(|role| role["name"] == "attacher"), "{roles:?}");
    assert_eq!(document["plan"]["watches"].as_array().unwrap().len(), 15);
    assert_eq!(document["plan"]["rules"].as_array().unwrap().len(), 25);
    assert_eq!(document["configuration"]["leaderElection"]["leaseDuration"], "15s");
    assert_eq!(document["warnings"], serde_json::json!([]));
}

#[tokio::test]
async fn the_schema_accepts_the_reference_and_refuses_what_check_refuses() {
    let ended = run(&["schema"], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let schema: Value = serde_json::from_str(&ended.stdout).unwrap();
    for file in [REFERENCE, MINIMAL] {
        let document: Value = serde_yaml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(schema::faults(&schema, &document), Vec::<String>::new(), "{file}");
    }
    let wrong = serde_json::json!({
        "csi": {"timeout": 15, "maxMessageBytes": 1, "socket": "/x"},
        "telemetry": {"logs": {"format": "xml"}},
        "roles": {"attacher": {"workers": 0}, "painter": {}},
    });
    let faults = schema::faults(&schema, &wrong);
    let keys = [
        "csi.maxMessageBytes",
        "csi.socket",
        "csi.timeout",
        "roles.attacher.workers",
        "roles.painter",
        "telemetry.logs.format",
    ];
    assert_eq!(faults, keys);
}

#[tokio::test]
async fn completions_are_printed_and_manual_pages_written_over_older_ones() {
    let ended = run(&["completions", "bash"], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("-o default csi-control-plane\n"), "{}", ended.stdout);
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("man1");
    let page = folder.join("csi-control-plane-check.1");
    for _ in 0..2 {
        let ended = run(&["man", folder.to_str().unwrap()], &[]).await;
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
        assert!(std::fs::read_to_string(&page).unwrap().contains("allow\\-empty"));
        std::fs::write(&page, "of another version").unwrap();
    }
    let ended = run(&["man", page.to_str().unwrap()], &[]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains(&format!("cannot make {}", page.display())), "{}", ended.stderr);
}

#[tokio::test]
async fn version_and_help_go_to_standard_output() {
    let version = run(&["version"], &[]).await;
    let expected = format!("csi-control-plane {} (commit {COMMIT})\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((version.code, &version.stdout, version.stderr.as_str()), (Some(0), &expected, ""));
    let flag = run(&["--version"], &[]).await;
    assert_eq!((flag.code, &flag.stdout, flag.stderr.as_str()), (Some(0), &expected, ""));
    let help = run(&["--help"], &[]).await;
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for verb in ["run", "check", "schema", "version", "registration-probe", "migrate", "sandbox", "demo-driver"] {
        assert!(help.stdout.contains(&format!("  {verb} ")), "{}", help.stdout);
    }
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure_and_a_reader_that_went_away_is_none() {
    for (to, expected) in [
        ("> /dev/full", "error: cannot write the output: No space left on device (os error 28)\n1\n"),
        ("| true", "0\n"),
    ] {
        let script = format!("{{ \"$0\" schema; echo $? >&2; }} {to}");
        let mut shell = std::process::Command::new("sh");
        let ended = shell.args(["-c", &script, env!("CARGO_BIN_EXE_csi-control-plane")]).output().unwrap();
        assert_eq!(String::from_utf8(ended.stderr).unwrap(), expected, "{to}");
    }
}

#[tokio::test]
async fn a_command_line_that_makes_no_sense_is_exit_code_64_and_says_what_would() {
    for (arguments, says) in [
        (&[][..], "Usage:"),
        (&["fly"], "unrecognized subcommand 'fly'"),
        (&["run"], "--config"),
        (&["run", "--config"], "--config"),
        (&["run", "--config", "x", "--speed", "9"], "--speed"),
        (&["run", "--config", "x", "--http-endpoint", ":8080"], "diagnostics.listen"),
        (&["check", "--config", "x", "--output", "xml"], "text, json"),
        (&["runn", "--config", "x"], "'run'"),
        (&["version", "extra"], "extra"),
    ] {
        let ended = run(arguments, &[]).await;
        assert_eq!(ended.code, Some(64), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
}

const WORKLOAD: &str = "tests/migrate/ceph-rbd.yaml";

#[tokio::test]
async fn migrate_writes_files_that_check_accepts_and_never_over_others() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("moved");
    let out = out.to_str().unwrap();
    let ended = run(&["migrate", "-f", WORKLOAD, "--out", out], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.starts_with("Deployment storage/csi-rbdplugin-provisioner, driver rbd.csi.ceph.com"));
    let config = format!("{out}/config.yaml");
    let check = ["check", "--config", &config, "--driver-name", "rbd.csi.ceph.com"];
    // The journal is where the pod is.
    let checked = run(&check, &[("POD_NAMESPACE", "storage")]).await;
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""));
    let rbac = std::fs::read_to_string(format!("{out}/rbac.yaml")).unwrap();
    assert!(checked.stdout.ends_with(&rbac), "{}", checked.stdout);
    let again = run(&["migrate", "-f", WORKLOAD, "--out", out], &[]).await;
    assert_eq!((again.code, again.stdout.as_str()), (Some(1), ""));
    assert!(again.stderr.contains("is there already"), "{}", again.stderr);
}

#[tokio::test]
async fn migrate_prints_documents_alone_or_one_json_and_refuses_with_every_fault() {
    let ended = run(&["migrate", "-f", WORKLOAD], &[]).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("csi-attacher by its image, replaced by"), "{}", ended.stderr);
    let documents: Vec<Value> = serde_yaml::Deserializer::from_str(&ended.stdout)
        .map(|one| serde::Deserialize::deserialize(one).unwrap())
        .collect();
    let kinds: Vec<&str> = documents.iter().filter_map(|one| one["kind"].as_str()).collect();
    let expected = ["ConfigMap", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "Deployment"];
    assert_eq!(kinds, expected);

    let json = run(&["migrate", "-f", WORKLOAD, "--output", "json"], &[]).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["report"]["faults"], serde_json::json!([]));
    assert!(json["files"]["config.yaml"].as_str().unwrap().contains("endpoint: "), "{json}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.yaml");
    let text = std::fs::read_to_string(WORKLOAD).unwrap().replace("\"--default-fstype=ext4\"", "--fast, --timeout=1");
    std::fs::write(&path, text.replace("- --fast, --timeout=1", "- --fast\n            - --timeout=1")).unwrap();
    let path = path.to_str().unwrap();
    let refused = run(&["migrate", "-f", path], &[]).await;
    assert_eq!(refused.code, Some(78), "{}", refused.stderr);
    for says in ["container csi-attacher, --fast", "container csi-attacher, --timeout", "a duration with its unit"] {
        assert!(refused.stderr.contains(says), "{says} in\n{}", refused.stderr);
    }
    assert_eq!(run(&["migrate", "-f", path, "--lenient"], &[]).await.code, Some(0));
    assert_eq!(run(&["migrate", "-f", "/nowhere"], &[]).await.code, Some(78));
}

#[tokio::test]
async fn migrate_reads_several_files_and_folders_and_says_which_one_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let all = std::fs::read_to_string(WORKLOAD).unwrap();
    write("b-workload.yaml", &all);
    write("a-driver.yml", "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: rbd.csi.ceph.com}\n");
    write("readme.txt", "no manifest: {");
    let path = folder.path().to_str().unwrap();
    let whole = run(&["migrate", "-f", path], &[]).await;
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    assert!(whole.stderr.contains("driver rbd.csi.ceph.com (from an argument"), "{}", whole.stderr);
    let (driver, workload) = (format!("{path}/a-driver.yml"), format!("{path}/b-workload.yaml"));
    let named = run(&["migrate", "-f", &driver, "-f", &workload], &[]).await;
    assert_eq!((named.code, &named.stdout), (Some(0), &whole.stdout), "in the same order, the same");

    write("a-driver.yml", "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: other.example.com}\n");
    let unsure = run(&["migrate", "-f", path], &[]).await;
    assert_eq!(unsure.code, Some(78));
    assert!(unsure.stderr.contains("other.example.com (from the CSIDriver object)"), "{}", unsure.stderr);
    write("c-odd.yaml", "one: 1\ntwo: {\n");
    let refused = run(&["migrate", "-f", path], &[]).await;
    assert_eq!(refused.code, Some(78));
    assert!(refused.stderr.contains("c-odd.yaml:"), "{}", refused.stderr);
    let empty = tempfile::tempdir().unwrap();
    let refused = run(&["migrate", "-f", empty.path().to_str().unwrap()], &[]).await;
    assert!(refused.stderr.contains("expected files that end with .yaml"), "{}", refused.stderr);
}

#[tokio::test]
async fn check_with_a_kubeconfig_holds_the_drivers_object_against_the_configuration() {
    use csi_control_plane::sandbox::api::{Grant, Identity};
    let theatre = super::theatre::Theatre::open().await;
    theatre.config("daemon");
    let (api, token) = (&theatre.testbed.api, csi_control_plane::sandbox::testbed::TestBed::token("daemon"));
    api.admit(token.clone(), Identity::admin("daemon"));
    let path = theatre.path("daemon.kubeconfig");
    let check = async |config: &str| {
        let arguments = ["check", "--config", config, "--driver-name", "a.csi", "--kubeconfig", path.to_str().unwrap()];
        let ended = run(&arguments, &[]).await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let fits = ended.stdout.ends_with("; Leases can be created in namespace default; the CSIDriver object fits\n");
        let warnings: Vec<String> = ended.stderr.lines().map(str::to_owned).collect();
        assert_eq!(warnings.is_empty(), fits, "{}{}", ended.stdout, ended.stderr);
        warnings
    };
    let told = |warnings: &[String], begin: &str| {
        let expected = format!("warning: CSIDriver a.csi: {begin}");
        assert!(warnings.len() == 1 && warnings[0].starts_with(&expected), "{begin}: {warnings:#?}");
    };
    let object = |name: &str, spec: Value| {
        let metadata = serde_json::json!({"name": name});
        serde_json::json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": metadata, "spec": spec})
    };
    api.create_value(object("of-another.csi", serde_json::json!({}))).unwrap();
    told(&check(MINIMAL).await, "the object does not exist: ");
    api.create_value(object("a.csi", serde_json::json!({"attachRequired": false}))).unwrap();
    assert_eq!(check(MINIMAL).await, [""; 0], "the driver may attach nothing: nobody asks it");
    api.delete::<k8s_openapi::api::storage::v1::CSIDriver>("", "a.csi").unwrap();
    api.create_value(object("a.csi", serde_json::json!({"storageCapacity": true}))).unwrap();
    told(&check(MINIMAL).await, "storageCapacity is true, but roles.provisioner.capacity.enabled is false: ");
    let only = "csi: {endpoint: 'unix:///csi/csi.sock'}\nroles: {attacher: {}}\n";
    assert_eq!(check(&theatre.file("only.yaml", only)).await, [""; 0], "another daemon may provision");
    let none = theatre.file("none.yaml", "csi: {endpoint: 'unix:///csi/csi.sock'}\nroles: {resizer: {}}\n");
    let arguments = ["check", "--config", &none, "--driver-name", "a.csi", "--kubeconfig", path.to_str().unwrap()];
    assert!(!run(&arguments, &[]).await.stdout.contains("CSIDriver"), "neither a right nor a word");

    let leases =
        serde_json::json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]});
    let role = serde_json::json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [leases]});
    api.admit(token, Identity::limited("daemon", Grant::of_role(&role).unwrap()));
    let refused = check(MINIMAL).await;
    told(&refused, "not read: cannot list csidrivers");
    assert!(refused[0].contains("forbidden"), "{refused:?}");
}

#[tokio::test]
async fn check_with_a_kubeconfig_reaches_the_server_or_says_why_not() {
    let theatre = super::theatre::Theatre::open().await;
    theatre.config("daemon");
    theatre.testbed.api.admit(
        csi_control_plane::sandbox::testbed::TestBed::token("daemon"),
        csi_control_plane::sandbox::api::Identity::admin("daemon"),
    );
    let path = theatre.path("daemon.kubeconfig");
    let ended = run(&["check", "--config", MINIMAL, "--kubeconfig", path.to_str().unwrap()], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let said = ended.stdout.lines().last().unwrap();
    assert!(said.starts_with("server   reached, version v1."), "{}", ended.stdout);
    assert!(said.ends_with("; Leases can be created in namespace default"), "{}", ended.stdout);

    // The namespace of the configuration, and that of the pod. Nothing is stored.
    let odd =
        "csi: {endpoint: 'unix:///csi/csi.sock'}\nleaderElection: {namespace: clusters-abc}\nroles: {attacher: {}}\n";
    let odd = theatre.file("odd.yaml", odd);
    let cases: [(&str, &[(&str, &str)]); 2] = [(&odd, &[]), (MINIMAL, &[("POD_NAMESPACE", "clusters-abc")])];
    for (config, variables) in cases {
        let ended = run(&["check", "--config", config, "--kubeconfig", path.to_str().unwrap()], variables).await;
        assert_eq!(ended.code, Some(1), "{}", ended.stdout);
        let expected = "error: nobody could lead in namespace \"clusters-abc\": cannot create lease \"csi-control-plane-check\": the \
            cluster has no namespace \"clusters-abc\": create it, or name another one in leaderElection.namespace\n";
        assert_eq!(ended.stderr, expected);
    }
    let leases = theatre.testbed.api.list::<k8s_openapi::api::coordination::v1::Lease>("").unwrap();
    assert_eq!(leases.len(), 0, "{leases:?}");
    // Without an election no Lease is needed.
    let alone = "csi: {endpoint: 'unix:///csi/csi.sock'}\nleaderElection: {enabled: false, namespace: clusters-abc}\nroles: {attacher: {}}\n";
    let alone = theatre.file("alone.yaml", alone);
    let ended = run(&["check", "--config", &alone, "--kubeconfig", path.to_str().unwrap()], &[]).await;
    assert_eq!(
        (ended.code, ended.stdout.lines().last().unwrap().contains("Leases")),
        (Some(0), false),
        "{}",
        ended.stderr
    );

    // The file of a user whose certificate is not what it says.
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("token:"), "{text}");
    let bad = theatre.file("bad.kubeconfig", &text.replace("token:", "client-certificate:"));
    let ended = run(&["check", "--config", MINIMAL, "--kubeconfig", &bad], &[]).await;
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.starts_with("error: cannot read client-certificate of the kubeconfig's user: "),
        "{}",
        ended.stderr
    );
}
