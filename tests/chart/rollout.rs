//! Which changes of the configuration replace the pods: exactly those that a running daemon would refuse, for each key
//! of the schema.

use csi_control_plane::app::needs_restart;
use csi_control_plane::config::Config;
use csi_control_plane::roles::sections;
use serde_json::{Value, json};

use crate::chart::helm::{self, Rendered};
use crate::chart::matrix;

/// Decide by the chart's mode, and not by a change: the chart refuses them in a Deployment.
pub(crate) const BY_MODE: [&str; 2] =
    ["roles.provisioner.nodeDeployment.enabled", "roles.snapshotter.nodeDeployment.enabled"];

/// Every key of the configuration that holds a value, and what its schema says.
fn leaves(schema: &Value, key: &str, found: &mut Vec<(String, Value)>) {
    let Some(properties) = schema["properties"].as_object() else {
        found.push((key.to_owned(), schema.clone()));
        return;
    };
    for (name, below) in properties {
        leaves(below, &if key.is_empty() { name.clone() } else { format!("{key}.{name}") }, found);
    }
}

/// The keys of the configuration with their schemas, but for those of the role that works beside the node plugin.
pub(crate) fn keys() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    leaves(&Config::schema(&sections()), "", &mut found);
    found.retain(|(key, _)| !key.starts_with("roles.registrar."));
    found
}

/// A value of a key that is not its default.
fn another(key: &str, schema: &Value) -> Value {
    let default = &schema["default"];
    let other_than_default = |choices: &[Value]| choices.iter().find(|it| *it != default).unwrap().clone();
    if let Some(choices) = schema["oneOf"].as_array() {
        let words: Vec<Value> = choices.iter().map(|it| it["const"].clone()).collect();
        return other_than_default(&words);
    }
    match (key, schema["format"].as_str(), default) {
        ("csi.endpoint", ..) => json!("unix:///other/csi.sock"),
        ("diagnostics.listen" | "roles.liveness.listen", ..) => json!("0.0.0.0:9090"),
        ("roles.liveness.path", ..) => json!("/driver"),
        ("telemetry.logs.level", ..) => json!("debug"),
        ("telemetry.traces.endpoint", ..) => json!("http://collector:4317"),
        // Each of these is shorter than the one before, and so are the defaults.
        ("leaderElection.renewDeadline", ..) => json!("11s"),
        ("leaderElection.retryPeriod", ..) => json!("4s"),
        ("roles.attachDetach.maxWaitForUnmount", ..) => json!("7m"),
        (_, Some("go-duration"), _) => json!("17s"),
        (_, Some("double"), _) => json!(0.5),
        (_, _, Value::Bool(default)) => json!(!default),
        (_, _, Value::Object(_)) => json!({"a": "b"}),
        (_, _, Value::Array(_)) => json!(["a"]),
        _ => match schema["minimum"].as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "a small whole number")]
            Some(least) => other_than_default(&[json!(least as i64), json!(least as i64 + 1)]),
            None => json!("other"),
        },
    }
}

/// The set of values `attacher` with every role and one replica, so that each key may be changed, with these keys set.
fn rendered(set: &[(String, Value)], rollout: &str) -> Rendered {
    let mut values = matrix::case("attacher").values;
    values["replicas"] = 1.into();
    values["rolloutOnConfigChange"] = rollout.into();
    values["config"]["roles"] = json!({"attacher": {}, "provisioner": {}, "reconciler": {}});
    for (key, value) in set {
        *key.split('.').fold(&mut values["config"], |at, part| &mut at[part]) = value.clone();
    }
    helm::with(&values, &[]).unwrap()
}

fn sum(rendered: &Rendered) -> Value {
    rendered.pod()["metadata"]["annotations"]["checksum/csi-control-plane"].clone()
}

#[test]
fn a_change_of_the_configuration_replaces_the_pods_where_a_daemon_would_not_follow_it() {
    let keys = keys();
    assert!(keys.len() > 50, "{keys:?}");
    assert!(BY_MODE.iter().all(|mode| keys.iter().any(|(key, _)| key == mode)));
    let is_by_mode = |key: &str| BY_MODE.contains(&key);
    let changes =
        keys.iter().filter(|(key, _)| !is_by_mode(key)).map(|(key, schema)| (key.clone(), another(key, schema)));
    let (fixed, followed): (Vec<_>, Vec<_>) = changes.partition(|(key, _)| needs_restart(key));
    assert!(fixed.len() > 8 && followed.len() > 30, "{fixed:?} {followed:?}");

    let before = sum(&rendered(&[], "whenNeeded"));
    assert!(before.as_str().is_some_and(|it| it.len() == 64));
    assert_eq!(sum(&rendered(&followed, "whenNeeded")), before, "all that a daemon follows, at once");
    for change in &fixed {
        let after = sum(&rendered(std::slice::from_ref(change), "whenNeeded"));
        assert_ne!(after, before, "{change:?} is read only when a process starts");
    }
}

#[test]
fn every_change_replaces_the_pods_or_none_does_where_that_is_asked_for() {
    let level = ("telemetry.logs.level".to_owned(), json!("debug"));
    let always = |set: &[(String, Value)]| sum(&rendered(set, "always"));
    assert_ne!(always(&[level]), always(&[]));
    let endpoint = ("csi.endpoint".to_owned(), json!("unix:///other/csi.sock"));
    assert!(sum(&rendered(&[endpoint], "never")).is_null());
}
