//! The chart refuses the configurations that the daemon refuses, and only these. Where the schema does not refuse them,
//! files/checks.yaml does, in the words of `check`.

use std::collections::BTreeSet;

use csi_control_plane::config::{File, Sources, load};
use csi_control_plane::process::Fault;
use csi_control_plane::roles::{ROLES, sections};
use serde_json::{Map, Value, json};

use crate::chart::helm;
use crate::chart::matrix;
use crate::chart::rollout::{BY_MODE, keys};

/// A configuration with every role, in which one key has a value.
fn with(base: &Value, key: &str, value: &Value) -> Value {
    let mut config = base.clone();
    *key.split('.').fold(&mut config, |at, part| &mut at[part]) = value.clone();
    config
}

/// Every role that the chart hosts beside the controller. `node` has the one that works beside the node plugin.
fn every_role() -> Value {
    let hosted = ROLES.iter().filter(|role| role.name != "registrar");
    json!({"roles": hosted.map(|role| (role.name.to_owned(), json!({}))).collect::<Map<_, _>>()})
}

/// The daemon's verdict on a configuration.
pub(crate) fn faults(config: &Value) -> Vec<Fault> {
    let file = File { name: "config.yaml".to_owned(), text: config.to_string() };
    let loaded = load(&Sources { file: Some(file), ..Sources::default() }, &sections());
    loaded.map_or_else(|rejected| rejected.faults, |_| Vec::new())
}

/// Helm's verdict.
fn refusal(config: &Value) -> Option<String> {
    let mut values = matrix::case("attacher").values;
    values["replicas"] = 1.into();
    values["config"] = config.clone();
    helm::with(&values, &[]).err()
}

/// Values for a key, right ones and wrong ones.
fn candidates(key: &str, schema: &Value) -> Vec<Value> {
    let texts = |texts: &[&str]| texts.iter().map(|text| json!(text)).collect::<Vec<_>>();
    let long = "a".repeat(201);
    match (key, schema["format"].as_str(), schema["type"].as_str().or_else(|| schema["type"][0].as_str())) {
        ("diagnostics.listen" | "roles.liveness.listen", ..) => texts(&[
            ":8080",
            "localhost:8080",
            "0.0.0.0",
            "0.0.0.0:65536",
            "256.0.0.1:80",
            "::8080",
            "",
            "10.1.2.3:65535",
            "[::]:1",
            "[fd00::1:2]:8080",
        ]),
        ("telemetry.logs.level", ..) => texts(&[
            "loud",
            "",
            "info,",
            "csi=loud",
            "=info",
            "5",
            "a b",
            "WARN",
            "off",
            "info,csi_control_plane::csi=debug",
        ]),
        ("telemetry.traces.endpoint", ..) => texts(&[
            "collector:4317",
            "grpc://collector",
            "http://user:secret@collector:4317",
            "http://",
            "",
            " http://collector",
            "http://collector",
            "https://[fd00::1]:4317/v1/traces?a=b",
        ]),
        ("csi.endpoint", ..) => {
            let (just, beyond) = (format!("/{}", "x".repeat(106)), format!("unix:///{}", "x".repeat(107)));
            let wrong = [
                "",
                "run/x",
                "unix://run/x",
                "unix:socket",
                "tcp://10.0.0.1:10000",
                "/x/",
                "unix:///",
                beyond.as_str(),
            ];
            texts(&[&wrong[..], &["/x", "unix:/x", "unix:/run/y", "unix:///run/csi/socket", just.as_str()]].concat())
        }
        (_, Some("go-duration"), _) => {
            texts(&["15", "soon", "0s", "1ns", "9000h", "1.0000000001s", "7m", "1.5h", "20s"])
        }
        (_, _, Some("string")) => {
            texts(&["", " ", "a b", "-", "-a", "a-", "a.", "a.b", "Ab", "xfs", "0", "two-words", "a_b", long.as_str()])
        }
        (_, _, Some("integer")) => {
            vec![json!(-1), json!(0), json!(2), json!(99_999_999_999_i64), json!("2"), json!(1.5)]
        }
        (_, _, Some("number")) => vec![json!(-0.1), json!(0.5), json!(1.1)],
        (_, _, Some("array")) => vec![json!([""]), json!(["a"]), json!(["a", ""]), json!("a")],
        (_, _, Some("object")) => vec![
            json!({"a b": "c"}),
            json!({"a": "two words"}),
            json!({"a/b/c": "d"}),
            json!({"A.b/c": "d"}),
            json!({"a": long.as_str()}),
            json!({"a": 1}),
            json!({"a.b/c_d": "", "team": "x-1"}),
        ],
        (_, _, Some("boolean")) => vec![json!("yes"), json!(true), json!(false)],
        _ => vec![json!("other")],
    }
}

/// Whether it is the schema that refused this key: in Helm's words, not ours.
fn is_of_the_schema(told: &str, key: &str) -> bool {
    told.contains("schema") && told.contains(&format!("/config/{}", key.replace('.', "/")))
}

#[test]
fn what_the_daemon_refuses_the_chart_refuses_in_the_same_words() {
    let keys = keys();
    let mut refused = Vec::new();
    for (key, schema) in keys.iter().filter(|(key, _)| !BY_MODE.contains(&key.as_str())) {
        for value in candidates(key, schema) {
            let config = with(&every_role(), key, &value);
            let faults = faults(&config);
            if !faults.is_empty() {
                refused.push((key.as_str(), value, config, faults));
            }
        }
    }
    assert!(refused.len() > 150, "{}", refused.len());
    let answer = |(key, value, config, faults): &(&str, Value, Value, Vec<Fault>)| {
        let told =
            refusal(config).unwrap_or_else(|| panic!("{key}: {value} is refused by the daemon alone: {faults:?}"));
        if is_of_the_schema(&told, key) {
            return None;
        }
        for Fault { key, found, allowed, .. } in faults {
            let words = format!("config.{key}\n    found:   {found}\n    allowed: {allowed}");
            assert!(told.contains(&words), "{words}\nand not\n{told}");
        }
        assert!(!told.contains("secret"), "{told}");
        Some(faults.iter().map(|fault| fault.key.clone()).collect::<Vec<_>>())
    };
    let half = refused.len() / 2;
    let in_words: BTreeSet<String> = std::thread::scope(|scope| {
        let parts = [&refused[..half], &refused[half..]];
        let runs = parts.map(|part| scope.spawn(move || part.iter().filter_map(answer).flatten().collect::<Vec<_>>()));
        runs.into_iter().flat_map(|run| run.join().unwrap()).collect()
    });
    // Nothing in the table is left that no value of this test has broken.
    let text = std::fs::read_to_string(helm::chart().join("files/checks.yaml")).unwrap();
    let table: Value = serde_yaml::from_str(&text).unwrap();
    let is_key = |key: &&String| keys.iter().any(|(known, _)| known == *key);
    for kind in ["durations", "texts", "lists", "numbers"] {
        for key in table[kind].as_object().unwrap().keys().filter(is_key) {
            assert!(in_words.contains(key), "{kind}: {key} was never refused in words");
        }
    }
    assert!(in_words.contains("leaderElection.labels"));
}

#[test]
fn what_the_daemon_accepts_the_chart_accepts() {
    let keys = keys();
    // As few renderings as will do: as many keys at once as the daemon accepts together.
    let mut rounds: Vec<(BTreeSet<String>, Value)> = Vec::new();
    let mut accepted = 0;
    for (key, schema) in keys.iter().filter(|(key, _)| !BY_MODE.contains(&key.as_str())) {
        for value in candidates(key, schema) {
            if !faults(&with(&every_role(), key, &value)).is_empty() {
                continue;
            }
            accepted += 1;
            let fits = |(set, config): &&mut (BTreeSet<String>, Value)| {
                !set.contains(key) && faults(&with(config, key, &value)).is_empty()
            };
            if let Some((set, config)) = rounds.iter_mut().find(fits) {
                set.insert(key.clone());
                *config = with(config, key, &value);
            } else {
                rounds.push((BTreeSet::from([key.clone()]), with(&every_role(), key, &value)));
            }
        }
    }
    assert!(accepted > 150 && rounds.len() < accepted / 5, "{accepted} in {}", rounds.len());
    for (_, config) in &rounds {
        assert_eq!(refusal(config), None, "{config:#}");
    }
}

#[test]
fn the_charts_defaults_of_durations_are_the_daemons() {
    let text = std::fs::read_to_string(helm::chart().join("files/checks.yaml")).unwrap();
    let table: Value = serde_yaml::from_str(&text).unwrap();
    let keys = keys();
    let durations: Vec<_> = keys.iter().filter(|(_, schema)| schema["format"] == "go-duration").collect();
    assert!(durations.len() > 20);
    for (key, schema) in durations {
        assert_eq!(table["durations"][key]["default"], schema["default"], "files/checks.yaml: {key}");
    }
}

#[test]
fn several_faults_are_told_at_once_and_those_of_a_role_that_is_off_are_not() {
    let config = json!({
        "csi": {"endpoint": "run/x"},
        "telemetry": {"logs": {"level": "loud"}},
        "leaderElection": {"leaseDuration": "8s"},
        "roles": {"attacher": {"retry": {"initial": "10m"}}},
    });
    let told = refusal(&config).unwrap();
    assert!(told.contains("the configuration has 4 faults"), "{told}");
    let one = refusal(&json!({"csi": {"endpoint": "run/x"}, "roles": {"attacher": {}}})).unwrap();
    assert!(one.contains("the configuration has 1 fault\n"), "{one}");
}
