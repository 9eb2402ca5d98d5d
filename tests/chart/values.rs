//! What the chart refuses, and whose schema it refuses by.

use csi_control_plane::config::Config;
use csi_control_plane::roles::{ROLES, sections};
use serde_json::{Value, json};

use crate::helm;
use crate::kept;
use crate::matrix;

type Change = fn(&mut Value);

/// Why the values of `attacher`, changed, are refused.
fn refusal(change: impl FnOnce(&mut Value)) -> String {
    let mut values = matrix::case("attacher").values;
    change(&mut values);
    helm::with(&values, &[]).err().unwrap_or_else(|| panic!("accepted: {values:#}"))
}

#[test]
fn what_could_not_work_is_refused_with_the_reason() {
    let refused: [(&str, Change); 13] = [
        ("driver.name is required", |it| it["driver"]["name"] = "".into()),
        ("driver.containers is empty", |it| it["driver"]["containers"] = json!([])),
        ("config.roles is empty", |it| it["config"]["roles"] = json!({})),
        ("whole cluster", |it| {
            it["mode"] = "daemonset".into();
            it["socket"] = json!({"hostPath": "/x"});
        }),
        ("sidecar.podLabels is empty", |it| {
            it["mode"] = "sidecar".into();
            it["networkPolicy"]["enabled"] = true.into();
        }),
        ("monitoring.podPattern is empty", |it| {
            it["mode"] = "sidecar".into();
            it["monitoring"]["rules"]["enabled"] = true.into();
        }),
        ("replica", |it| it["replica"] = 3.into()),
        ("mode", |it| it["mode"] = "statefulset".into()),
        ("names", |it| it["rbac"]["secrets"]["named"] = json!([{"namespace": "storage"}])),
        ("names", |it| it["rbac"]["secrets"]["named"] = json!([{"namespace": "storage", "names": []}])),
        ("worker", |it| it["config"]["roles"]["attacher"]["worker"] = 3.into()),
        ("timeout", |it| it["config"]["csi"]["timeout"] = 15.into()),
        ("nothing to scrape", |it| {
            it["config"]["diagnostics"]["listen"] = Value::Null;
            it["monitoring"]["podMonitor"]["enabled"] = true.into();
        }),
    ];
    for (reason, change) in refused {
        let told = refusal(change);
        assert!(told.contains(reason), "{reason}: {told}");
    }
}

#[test]
fn the_schema_of_config_is_the_daemons_own() {
    let file = helm::chart().join("values.schema.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    let mut own = Config::schema(&sections());
    own.as_object_mut().unwrap().remove("$schema");
    schema["properties"]["config"] = own;
    kept::keep(&file, &format!("{schema:#}\n"));
}

#[test]
fn every_role_of_the_daemon_is_in_the_charts_table() {
    let text = std::fs::read_to_string(helm::chart().join("files/rbac.yaml")).unwrap();
    let table: Value = serde_yaml::from_str(&text).unwrap();
    for role in ROLES {
        assert!(table["roles"][role.name]["rules"].is_array(), "files/rbac.yaml has no {}", role.name);
    }
}

#[test]
fn the_chart_is_of_the_daemons_version() {
    let text = std::fs::read_to_string(helm::chart().join("Chart.yaml")).unwrap();
    let chart: Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
}
