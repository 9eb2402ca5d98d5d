//! The loader as a whole, with a role made up for it.

use std::time::Duration;

use super::*;
use crate::process::duration;

mod texts;

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PainterSection {
    #[schemars(range(min = 1))]
    brushes: u32,
    #[serde(with = "duration::Text")]
    drying_time: Duration,
    colour: String,
    coats: Option<u32>,
}

impl Default for PainterSection {
    fn default() -> Self {
        Self { brushes: 3, drying_time: Duration::from_secs(60), colour: "red".to_owned(), coats: None }
    }
}

impl Section for PainterSection {
    fn check(&self, faults: &mut Faults) {
        if self.colour == "octarine" {
            faults.add("colour", "octarine", "a colour that people see");
        }
        if self.drying_time.is_zero() {
            faults.add("dryingTime", "0s", "longer than 0s");
        }
    }
}

const ROLES: &[RoleSection] = &[RoleSection::of::<PainterSection>("painter")];

fn sources(text: &str, variables: &[(&str, &str)]) -> Sources {
    Sources {
        base: None,
        file: Some(File { name: "config.yaml".to_owned(), text: text.to_owned() }),
        environment: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        flags: Vec::new(),
    }
}

fn loaded(text: &str, variables: &[(&str, &str)]) -> Loaded {
    load(&sources(text, variables), ROLES).unwrap_or_else(|rejected| panic!("{rejected}"))
}

/// `key: found -> allowed (origin)` of each fault.
fn faults(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let rejected = load(&sources(text, variables), ROLES).expect_err(text);
    let line = |f: Fault| format!("{}: {} -> {} ({})", f.key, f.found, f.allowed, f.origin.unwrap_or_default());
    rejected.faults.into_iter().map(line).collect()
}

#[test]
fn nothing_at_all_is_the_defaults() {
    for text in ["", "# nothing\n", "---\n", "csi:\nroles:\n", "{}"] {
        let loaded = loaded(text, &[]);
        assert_eq!(loaded.config, Config::default(), "{text:?}");
        assert!(loaded.roles.is_empty());
        assert!(loaded.warnings[0].contains("no role is enabled"), "{:?}", loaded.warnings);
    }
    let bare = load(&Sources::default(), ROLES).unwrap();
    assert_eq!(bare.config, Config::default());
}

#[test]
fn a_role_is_enabled_by_its_block_even_an_empty_one() {
    for (text, variables) in [
        ("roles:\n  painter:\n", &[][..]),
        ("roles: { painter: {} }", &[]),
        ("", &[("CSI_CONTROL_PLANE_ROLES__PAINTER", "")]),
        ("", &[("CSI_CONTROL_PLANE_ROLES__PAINTER__BRUSHES", "3")]),
    ] {
        let loaded = loaded(text, variables);
        let painter: PainterSection = RoleSection::read(&loaded.roles["painter"]).unwrap();
        assert_eq!(painter, PainterSection::default(), "{text:?}");
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    }
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
    let loaded = loaded(
        "csi: { timeout: 20s, maxLogLength: 1 }\nroles: { painter: { colour: blue, brushes: 7 } }",
        &[
            ("CSI_CONTROL_PLANE_CSI__TIMEOUT", "1m30s"),
            ("CSI_CONTROL_PLANE_ROLES__PAINTER__COLOUR", "123"),
            ("CSI_CONTROL_PLANE_LEADER_ELECTION__ENABLED", "false"),
            ("CSI_CONTROL_PLANE_LEADER_ELECTION__LABELS", "{team: storage}"),
            ("CSI_CONTROL_PLANE_LEADER_ELECTION__LABELS__TIER", "1"),
            ("CSI_CONTROL_PLANE_TELEMETRY__TRACES__SAMPLE_RATIO", "0.5"),
            ("CSI_CONTROL_PLANE_KUBERNETES__KUBECONFIG", ""),
            ("CSI_CONTROL_PLANE_DIAGNOSTICS__LISTEN", "null"),
            ("HOME", "/root"),
        ],
    );
    let config = &loaded.config;
    assert_eq!(config.csi.timeout, Duration::from_secs(90));
    assert_eq!(config.csi.max_log_length, Some(1));
    assert_eq!(config.csi.endpoint, "unix:///run/csi/socket");
    assert!(!config.leader_election.enabled);
    assert_eq!(json!(config.leader_election.labels), json!({"team": "storage", "tier": "1"}));
    assert!((config.telemetry.traces.sample_ratio - 0.5).abs() < f64::EPSILON);
    assert_eq!(config.kubernetes.kubeconfig, None);
    assert_eq!(config.diagnostics.listen, None);
    assert_eq!(loaded.roles["painter"]["colour"], "123");
    assert_eq!(loaded.roles["painter"]["brushes"], 7);
    assert_eq!(loaded.effective()["roles"]["painter"]["dryingTime"], "1m");
}

fn flag(flag: &str, key: &str, value: Value) -> FlagSetting {
    FlagSetting { flag: flag.to_owned(), key: key.to_owned(), value }
}

#[test]
fn a_flag_wins_over_the_environment_and_a_role_of_the_file_keeps_its_keys() {
    let mut sources = sources(
        "csi: {timeout: 20s, endpoint: /file}\nroles: {painter: {brushes: 7}}",
        &[("CSI_CONTROL_PLANE_CSI__TIMEOUT", "30s")],
    );
    sources.flags =
        vec![flag("--timeout=40s", "csi.timeout", json!("40s")), flag("--role=painter", "roles.painter", json!({}))];
    let loaded = load(&sources, ROLES).unwrap();
    assert_eq!(loaded.config.csi.timeout, Duration::from_secs(40));
    assert_eq!(loaded.config.csi.endpoint, "/file");
    assert_eq!(loaded.roles["painter"]["brushes"], 7);
    sources.file = None;
    assert_eq!(load(&sources, ROLES).unwrap().roles["painter"]["brushes"], 3);
}

#[test]
fn what_is_wrong_with_a_flag_is_told_like_a_keys_fault() {
    let flags = vec![
        flag("--timeout=5", "csi.timeout", json!("5")),
        flag("--csi-address=tcp://x", "csi.endpoint", json!("tcp://x")),
        flag("--role=painters", "roles.painters", json!({})),
    ];
    let rejected = load(&Sources { flags, ..Sources::default() }, ROLES).unwrap_err();
    let told: Vec<(&str, &str)> =
        rejected.faults.iter().map(|fault| (fault.origin.as_deref().unwrap(), fault.allowed.as_str())).collect();
    let expected = [
        ("--csi-address=tcp://x", "a unix socket: unix:///absolute/path or /absolute/path"),
        ("--timeout=5", duration::ALLOWED),
        ("--role=painters", "did you mean `painter`?"),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_key_that_is_meant_is_suggested() {
    for (text, variables, allowed) in [
        ("painter: {}", &[][..], "did you mean `roles.painter`?"),
        ("painter: {enabled: true}", &[], "did you mean `roles.painter`?"),
        ("roles: {painter: {enabled: true}}", &[], "nothing: the block itself enables the role"),
        ("roles: {painter: {enabled: false}}", &[], "nothing: the block itself enables the role"),
        ("roles: {paintr: {}}", &[], "did you mean `painter`?"),
        ("role: {painter: {}}", &[], "did you mean `roles`?"),
        ("roles: {painter: {drying-time: 1s}}", &[], "did you mean `dryingTime`?"),
        ("logs: {level: debug}", &[], "did you mean `telemetry.logs`?"),
        ("csi: {timout: 1s}", &[], "did you mean `timeout`?"),
        ("", &[("CSI_CONTROL_PLANE_CSI_TIMEOUT", "1s")], "did you mean the variable CSI_CONTROL_PLANE_CSI__TIMEOUT?"),
        (
            "",
            &[("CSI_CONTROL_PLANE_ROLES_PAINTER_DRYING_TIME", "1s")],
            "did you mean the variable CSI_CONTROL_PLANE_ROLES__PAINTER__DRYING_TIME?",
        ),
        (
            "",
            &[("CSI_CONTROL_PLANE_LEADER_ELECTION_ENABLED", "false")],
            "did you mean the variable CSI_CONTROL_PLANE_LEADER_ELECTION__ENABLED?",
        ),
    ] {
        let rejected = load(&sources(text, variables), ROLES).unwrap_err();
        let told: Vec<&str> = rejected.faults.iter().map(|fault| fault.allowed.as_str()).collect();
        assert_eq!(told, [allowed], "{text} {variables:?}");
    }
}

#[test]
fn every_kind_of_bad_input_is_told_with_key_and_place() {
    let duration = duration::ALLOWED;
    for (text, expected) in [
        // Types.
        ("csi:\n  timeout: 15\n", format!("csi.timeout: 15 -> {duration} (config.yaml:2)")),
        ("csi: {timeout: soon}", format!("csi.timeout: \"soon\" -> {duration} (config.yaml:1)")),
        ("csi: {timeout: }", format!("csi.timeout: nothing (null) -> {duration} (config.yaml:1)")),
        ("csi: {timeout: [1s]}", format!("csi.timeout: a list -> {duration} (config.yaml:1)")),
        ("leaderElection:\n\n  enabled: yes\n", "leaderElection.enabled: \"yes\" -> true or false (config.yaml:3)".to_owned()),
        ("csi: {endpoint: 5}", "csi.endpoint: 5 -> a text (config.yaml:1)".to_owned()),
        ("csi: {endpoint: {a: b}}", "csi.endpoint: a mapping -> a text (config.yaml:1)".to_owned()),
        ("kubernetes: {kubeconfig: 5}", "kubernetes.kubeconfig: 5 -> a text, or null (config.yaml:1)".to_owned()),
        ("roles: [painter]", "roles: a list -> a mapping with painter (config.yaml:1)".to_owned()),
        ("roles: {painter: true}", "roles.painter: true -> a mapping with brushes, coats, colour, dryingTime (config.yaml:1)".to_owned()),
        ("leaderElection: {labels: {a: 1}}", "leaderElection.labels.a: 1 -> a text (config.yaml:1)".to_owned()),
        // Ranges and choices.
        ("roles: {painter: {brushes: 0}}", "roles.painter.brushes: 0 -> a whole number from 1 to 4294967295 (config.yaml:1)".to_owned()),
        ("roles: {painter: {brushes: 1.5}}", "roles.painter.brushes: 1.5 -> a whole number from 1 to 4294967295 (config.yaml:1)".to_owned()),
        ("roles: {painter: {coats: -1}}", "roles.painter.coats: -1 -> a whole number from 0 to 4294967295, or null (config.yaml:1)".to_owned()),
        ("roles: {painter: {brushes: 99999999999}}", "roles.painter.brushes: 99999999999 -> a whole number from 1 to 4294967295 (config.yaml:1)".to_owned()),
        ("kubernetes: {maxInFlight: 0}", "kubernetes.maxInFlight: 0 -> a whole number from 1 to 10000 (config.yaml:1)".to_owned()),
        ("telemetry: {traces: {sampleRatio: 2}}", "telemetry.traces.sampleRatio: 2 -> a number from 0 to 1 (config.yaml:1)".to_owned()),
        ("telemetry: {traces: {sampleRatio: .nan}}", "telemetry.traces.sampleRatio: \"NaN\" -> a number from 0 to 1 (config.yaml:1)".to_owned()),
        ("telemetry: {logs: {format: xml}}", "telemetry.logs.format: \"xml\" -> json or text (config.yaml:1)".to_owned()),
        ("runtime: {workerThreads: 1}", "runtime.workerThreads: 1 -> a whole number from 2 to 256, or null (config.yaml:1)".to_owned()),
        ("diagnostics: {listen: ':8080'}", "diagnostics.listen: \":8080\" -> an IP address and a port, such as 0.0.0.0:8080 or [::]:8080, or null (config.yaml:1)".to_owned()),
        // Unknown keys.
        ("csi: {timout: 1s}", "csi.timout: an unknown key -> did you mean `timeout`? (config.yaml:1)".to_owned()),
        ("leader_election: {}", "leader_election: an unknown key -> did you mean `leaderElection`? (config.yaml:1)".to_owned()),
        ("brushes: 5", "brushes: an unknown key -> did you mean `roles.painter.brushes`? (config.yaml:1)".to_owned()),
        ("runtime: {sausage: 5}", "runtime.sausage: an unknown key -> one of workerThreads (config.yaml:1)".to_owned()),
        ("roles: {plumber: {}}", "roles.plumber: an unknown key -> one of painter (config.yaml:1)".to_owned()),
        ("roles: {painter: {enabled: true}}", "roles.painter.enabled: an unknown key -> nothing: the block itself enables the role (config.yaml:1)".to_owned()),
        ("1: x", "1: an unknown key -> one of csi, diagnostics, kubernetes, leaderElection, roles, runtime, telemetry (config.yaml:1)".to_owned()),
        // Sense.
        ("csi: {endpoint: 'tcp://x'}", "csi.endpoint: \"tcp://x\" -> a unix socket: unix:///absolute/path or /absolute/path (config.yaml:1)".to_owned()),
        ("leaderElection: {leaseDuration: 8s}", "leaderElection.renewDeadline: 10s -> shorter than leaseDuration, which is 8s (default)".to_owned()),
        ("roles:\n  painter:\n    colour: octarine\n", "roles.painter.colour: octarine -> a colour that people see (config.yaml:3)".to_owned()),
        ("leaderElection:\n  labels:\n    a b: c\n", "leaderElection.labels: \"a b\": \"c\" -> Kubernetes labels: [prefix/]name and value of at most 63 of A-Z, a-z, 0-9, -, _ and . (config.yaml:2)".to_owned()),
        // Text.
        ("csi:\n  timeout: 1s\ncsi: {}\n", "csi: the same key again (first on line 1) -> each key once (config.yaml:3)".to_owned()),
        ("hello", ": \"hello\" -> a mapping with csi, diagnostics, kubernetes, leaderElection, roles, runtime, telemetry (config.yaml)".to_owned()),
    ] {
        assert_eq!(faults(text, &[]), [expected], "{text}");
    }
}

#[test]
fn a_manifest_in_the_place_of_the_configuration_is_one_fault() {
    let map =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d, namespace: ns}\ndata:\n  config.yaml: |\n    roles: {}\n";
    let itself = "the configuration itself";
    let printed = "of an applied ConfigMap this prints it: kubectl get configmap";
    for (text, allowed) in [
        (
            map.to_owned(),
            format!(
                "{itself}, which is the text of its data key `config.yaml`; {printed} d -n ns -o jsonpath='{{.data.config\\.yaml}}'"
            ),
        ),
        (
            format!("{map}  other: x\n").replace(", namespace: ns", ""),
            format!(
                "{itself}, which is the text of one of its data keys `config.yaml`, `other`; {printed} d -n NAMESPACE -o \
                 jsonpath='{{.data.KEY}}'"
            ),
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\n".to_owned(),
            format!("{itself}, which is the text of a data key, and this ConfigMap has none"),
        ),
    ] {
        let expected = format!(": a ConfigMap manifest, not the configuration -> {allowed} (config.yaml:2)");
        assert_eq!(faults(&text, &[]), [expected], "{text}");
    }
    let expected = format!(": a Deployment manifest, not the configuration -> {itself} (config.yaml:2)");
    assert_eq!(faults(&map.replace("ConfigMap", "Deployment"), &[]), [expected]);
}

#[test]
fn faults_of_the_environment_name_the_variable() {
    let table = [
        (("CSI_CONTROL_PLANE_CSI__TIMOUT", "1s"), "csi.timout: an unknown key -> did you mean `timeout`?".to_owned()),
        (
            ("CSI_CONTROL_PLANE_CSI_TIMEOUT", "1s"),
            "csiTimeout: an unknown key -> did you mean the variable CSI_CONTROL_PLANE_CSI__TIMEOUT?".to_owned(),
        ),
        (
            ("CSI_CONTROL_PLANE_LEADER_ELECTION_LEASE_DURATION", "1s"),
            "leaderElectionLeaseDuration: an unknown key -> did you mean the variable \
             CSI_CONTROL_PLANE_LEADER_ELECTION__LEASE_DURATION?"
                .to_owned(),
        ),
        (("CSI_CONTROL_PLANE_DIAGNOSTICS__PORT", "80"), "diagnostics.port: an unknown key -> one of listen".to_owned()),
        (("CSI_CONTROL_PLANE_CSI__TIMEOUT", "15"), format!("csi.timeout: \"15\" -> {}", duration::ALLOWED)),
        (
            ("CSI_CONTROL_PLANE_LEADER_ELECTION__RENEW_DEADLINE", "20s"),
            "leaderElection.renewDeadline: 20s -> shorter than leaseDuration, which is 15s".to_owned(),
        ),
        (
            ("CSI_CONTROL_PLANE_ROLES__PAINTER__BRUSHES", "many"),
            "roles.painter.brushes: \"many\" -> a whole number from 1 to 4294967295".to_owned(),
        ),
        (
            ("CSI_CONTROL_PLANE_LEADER_ELECTION__ENABLED", "{"),
            "leaderElection.enabled: \"{\" -> true or false".to_owned(),
        ),
        (("CSI_CONTROL_PLANE_ROLES", "{foo: {}}"), "roles.foo: an unknown key -> one of painter".to_owned()),
        (
            ("CSI_CONTROL_PLANE_ROLES", "{painter: {brushs: 5}}"),
            "roles.painter.brushs: an unknown key -> did you mean `brushes`?".to_owned(),
        ),
        (("CSI_CONTROL_PLANE_CSI", "{timout: 5s}"), "csi.timout: an unknown key -> did you mean `timeout`?".to_owned()),
        (
            ("CSI_CONTROL_PLANE_ROLES__PAINTER", "{brushes: 1, brushes: 2}"),
            "roles.painter.brushes: the same key again -> each key once".to_owned(),
        ),
        (
            ("CSI_CONTROL_PLANE_CSI", "x"),
            "csi: \"x\" -> a mapping with concurrency, endpoint, maxLogLength, maxMessageBytes, timeout".to_owned(),
        ),
    ];
    for (variable, expected) in table {
        let expected = format!("{expected} (environment variable {})", variable.0);
        assert_eq!(faults("", &[variable]), [expected], "{variable:?}");
    }
    assert_eq!(faults("", &[("CSI_CONTROL_PLANE_", "x")]).len(), 1);
}

#[test]
fn a_fault_in_the_file_is_found_even_where_a_variable_hides_it() {
    let found = faults("csi: { timeout: never }", &[("CSI_CONTROL_PLANE_CSI__TIMEOUT", "5s")]);
    assert_eq!(found, [format!("csi.timeout: \"never\" -> {} (config.yaml:1)", duration::ALLOWED)]);
}

#[test]
fn a_password_in_an_address_is_not_told_with_the_fault() {
    for text in [
        "telemetry: {traces: {endpoint: 'http://user:hunter2@collector:4317'}}",
        "telemetry: {traces: {endpoint: {a: 'http://user:hunter2@collector'}}}",
        "telemetry:\n  traces:\n    endpoint: http://user:hunter2@collector\n   x: 1\n",
        "telemetry:\n  traces: {endpoint: \"http://user:hunter2@collector\n",
        "csi: {timeout: 'http://user:hunter2@collector/a b@c'}",
    ] {
        let told = faults(text, &[]).join("\n");
        assert!(!told.contains("hunter2"), "{told}");
    }
    assert_eq!(without_credentials("see http://a:b@c/d@e, ftp://x and y@z"), "see http://c/d@e, ftp://x and y@z");
}

#[test]
fn all_faults_are_reported_at_once() {
    let text = "\
csi:
  endpoint: tcp://10.0.0.1:10000
  timeout: 15
  timeout: 20s
leaderElection:
  leaseDuration: 10s
  retryPeriode: 2s
telemetry:
  logs: { level: loud, format: xml }
roles:
  painter:
    brushes: 0
    dryingTime: 0s
  plumber: {}
";
    let variables = [("CSI_CONTROL_PLANE_KUBERNETES__MAX_IN_FLIGHT", "lots"), ("CSI_CONTROL_PLANE_SPEED", "11")];
    let rejected = load(&sources(text, &variables), ROLES).unwrap_err();
    insta::assert_snapshot!(rejected);
    assert_eq!(rejected.to_json().as_array().map(Vec::len), Some(rejected.faults.len()));
}

#[test]
fn of_thousands_of_faults_people_see_twenty_and_a_count() {
    let lines: Vec<String> = (0..3000).map(|n| format!("key{n}: 1")).collect();
    let text = lines.join("\n");
    let rejected = load(&sources(&text, &[]), ROLES).unwrap_err();
    let shown = rejected.to_string();
    assert_eq!((rejected.faults.len(), shown.matches("found:").count()), (3000, 20));
    assert!(
        shown.starts_with("the configuration has 3000 faults") && shown.ends_with("\n\n  and 2980 more"),
        "{shown}"
    );
}

#[test]
fn a_file_without_a_role_is_refused_where_that_is_asked() {
    for text in ["", "roles: {}\n", "csi: {timeout: 1s}\n"] {
        let rejected = loaded(text, &[]).with_a_role("config.yaml", ROLES).unwrap_err();
        let told = "a block for at least one of painter; --allow-empty if you mean none";
        assert_eq!((rejected.faults.len(), rejected.faults[0].allowed.as_str()), (1, told), "{text}");
    }
    assert!(loaded("roles: {painter: }", &[]).with_a_role("config.yaml", ROLES).is_ok());
}

#[test]
fn the_schema_allows_what_the_loader_allows() {
    let schema = Config::schema(ROLES);
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["roles"]["properties"]["painter"]["type"], json!(["object", "null"]));
    assert_eq!(schema["properties"]["roles"]["properties"]["painter"]["properties"]["brushes"]["minimum"], 1);
    assert_eq!(schema["properties"]["csi"]["properties"]["timeout"]["default"], "15s");
    assert!(!schema.to_string().contains("$ref"), "references would blind the shape check");
}

#[test]
fn what_is_in_effect_loads_as_itself() {
    let first = loaded("roles: { painter: { colour: blue } }\nleaderElection: { labels: { a.b/c: d } }", &[]);
    let text = serde_yaml::to_string(&first.effective()).unwrap();
    let second = loaded(&text, &[]);
    assert_eq!(second.config, first.config);
    assert_eq!(second.roles, first.roles);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(128))]
    #[test]
    fn no_text_makes_the_loader_panic(text in "[a-z:{}\\[\\]\\- \n\t'\"#&*!|>%@0-9]{0,60}", value in ".{0,12}") {
        let _ = load(&sources(&text, &[("CSI_CONTROL_PLANE_LEADER_ELECTION", &value)]), ROLES);
    }
}
