//! Alerts and dashboard use only existing metrics and labels, and each alert fires when it should.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use csi_control_plane::roles::metrics;
use csi_control_plane::telemetry::names::Kind;
use csi_control_plane::telemetry::{Meter, exposition};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chart::helm::{self, Rendered};
use crate::chart::matrix;
use crate::chart::node;
use crate::chart::promql;
use crate::programs;

/// The labels that Prometheus adds to every series of a pod.
const TARGET: [&str; 5] = ["namespace", "pod", "container", "job", "instance"];

/// Every series that a scrape can have, and its labels.
fn catalogue() -> BTreeMap<String, BTreeSet<String>> {
    let mut series = BTreeMap::new();
    for metric in metrics::catalogue() {
        // A label of ours that the target has, too, gets another name.
        let own = |label: &&str| if TARGET.contains(label) { format!("exported_{label}") } else { (*label).to_owned() };
        let labels: BTreeSet<String> =
            metric.labels.iter().map(own).chain(TARGET.iter().map(|&it| it.to_owned())).collect();
        if let Kind::Histogram(_) = metric.kind {
            let mut with_bound = labels.clone();
            with_bound.insert("le".to_owned());
            series.insert(format!("{}_bucket", metric.name), with_bound);
            series.insert(format!("{}_sum", metric.name), labels.clone());
            series.insert(format!("{}_count", metric.name), labels);
        } else {
            series.insert(metric.name.to_owned(), labels);
        }
    }
    // The process's own figures are read, not recorded: they are in every exposition.
    let text = exposition(&Meter::new());
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE process_")?.split(' ').next()) {
        series.insert(format!("process_{name}"), TARGET.iter().map(|&it| it.to_owned()).collect());
    }
    series
}

/// The metrics of an expression that no scrape has.
fn faults(expression: &str) -> Vec<String> {
    let catalogue = catalogue();
    let uses = promql::read(expression);
    assert!(!uses.selectors.is_empty(), "no metric in {expression}");
    let mut faults = Vec::new();
    let mut known = BTreeSet::new();
    for selector in uses.selectors {
        let Some(labels) = catalogue.get(&selector.metric) else {
            faults.push(format!("{} is in no scrape: {expression}", selector.metric));
            continue;
        };
        faults.extend(selector.labels.difference(labels).map(|it| format!("{} has no {it}", selector.metric)));
        known.extend(labels.iter().cloned());
    }
    faults.extend(uses.grouped.difference(&known).map(|it| format!("no {it} to group by: {expression}")));
    faults
}

/// The labels of the series that an expression results in.
fn results(expression: &str) -> BTreeSet<String> {
    let (catalogue, uses) = (catalogue(), promql::read(expression));
    if uses.aggregates {
        return uses.grouped;
    }
    uses.selectors.iter().flat_map(|it| catalogue[&it.metric].clone()).collect()
}

/// Whatever can be switched on, and a node plugin.
fn everything() -> Rendered {
    let mut values = matrix::case("everything").values;
    values["node"] = node::values()["node"].take();
    helm::with(&values, &[]).unwrap()
}

fn alerts(rules: &Value) -> Vec<&Value> {
    let groups = rules["spec"]["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect()
}

/// The dashboard's expressions.
pub(crate) fn shown() -> Vec<String> {
    let text = std::fs::read_to_string(helm::chart().join("files/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_name_or_a_label_that_is_not_there_is_found() {
    assert!(faults("sum by (driver_name) (csi_control_plane_driver_ready{pod=\"x\"})").is_empty());
    assert_eq!(faults("csi_control_plane_driver_readi").len(), 1);
    assert_eq!(faults("csi_control_plane_driver_ready{driver=\"x\"}").len(), 1);
    assert_eq!(faults("sum by (le) (csi_control_plane_driver_ready)").len(), 1);
    assert_eq!(faults("csi_control_plane_reconcile_duration_seconds").len(), 1, "a histogram has no bare series");
}

#[test]
fn alerts_and_what_they_say_are_made_of_what_a_scrape_has() {
    let mut seen = 0;
    for case in matrix::known() {
        for rules in case.rendered().all("PrometheusRule") {
            for alert in alerts(rules) {
                let (name, expression) = (&alert["alert"], alert["expr"].as_str().unwrap());
                let found = faults(expression);
                assert!(found.is_empty(), "{name} in {}: {found:#?}", case.name);
                let told = alert["annotations"].to_string();
                let labels = results(expression);
                for label in told.split("$labels.").skip(1) {
                    let end = label.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap();
                    assert!(labels.contains(&label[..end]), "{name} tells of {}", &label[..end]);
                }
                seen += 1;
            }
        }
    }
    assert!(seen >= 20, "{seen}");
}

#[test]
fn entries_of_the_journal_are_watched_where_there_is_a_journal() {
    let is_watched = |case: &str| {
        let rendered = matrix::case(case).rendered();
        alerts(rendered.one("PrometheusRule")).iter().any(|alert| alert["alert"] == "CsiControlPlaneVolumeMayLeak")
    };
    assert!(is_watched("provisioner"));
    assert!(!is_watched("capacity"), "its durableIntent is off");
    assert!(!is_watched("sidecar"), "it has no provisioner");
}

#[test]
fn the_dashboard_shows_what_a_scrape_has() {
    let expressions = shown();
    assert!(expressions.len() > 25);
    let found: Vec<String> = expressions.iter().flat_map(|expression| faults(expression)).collect();
    assert!(found.is_empty(), "{found:#?}");
    let rendered = matrix::case("everything").rendered();
    let map = rendered.all("ConfigMap").find(|it| !it["data"]["csi-control-plane.json"].is_null()).unwrap();
    let text = map["data"]["csi-control-plane.json"].as_str().unwrap();
    serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
}

/// What is neither in a panel nor in an alert, and why.
const UNSEEN: [(&str, &str); 2] = [
    (
        "workqueue_unfinished_work_seconds",
        "the run that takes longest, in \"Time in a worker\", says it better than the sum",
    ),
    (
        "leader_election_slowpath_total",
        "who renews too slowly loses the Lease, and CsiControlPlaneNoLeader tells of that",
    ),
];

#[test]
fn every_metric_is_in_a_panel_or_an_alert_or_has_a_reason_not_to_be() {
    let rendered = everything();
    let alerts: Vec<String> =
        alerts(rendered.one("PrometheusRule")).iter().map(|it| it["expr"].as_str().unwrap().to_owned()).collect();
    let expressions = shown().into_iter().chain(alerts);
    let seen: BTreeSet<String> =
        expressions.flat_map(|it| promql::read(&it).selectors).map(|selector| selector.metric).collect();
    let is_seen =
        |name: &str| ["", "_bucket", "_sum", "_count"].iter().any(|end| seen.contains(&format!("{name}{end}")));
    let unseen: Vec<&str> = metrics::catalogue().map(|it| it.name).filter(|name| !is_seen(name)).collect();
    assert_eq!(
        unseen.into_iter().collect::<BTreeSet<_>>(),
        UNSEEN.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>(),
        "found in no panel and no alert, and those that have a reason"
    );
}

#[test]
fn the_panels_of_the_dashboard_do_not_overlap() {
    let text = std::fs::read_to_string(helm::chart().join("files/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut taken = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{} reaches beyond the edge", panel["title"]);
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{} has the id of another", panel["title"]);
        for place in (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y))) {
            let other = taken.insert(place, panel["title"].clone());
            assert!(other.is_none(), "{} lies on {}", panel["title"], other.unwrap());
        }
    }
}

/// Where nobody leads, no other alert tells of a lost API: what the driver's node does for itself stands still.
#[test]
fn a_lost_api_is_told_with_and_without_leader_election() {
    for case in ["everything", "daemonset"] {
        let mut values = matrix::case(case).values;
        values["monitoring"] = json!({"rules": {"enabled": true}});
        let rendered = helm::with(&values, &[]).unwrap();
        let names: Vec<&str> =
            alerts(rendered.one("PrometheusRule")).iter().map(|it| it["alert"].as_str().unwrap()).collect();
        assert!(names.contains(&"CsiControlPlaneApiLost"), "{case}: {names:?}");
    }
}

fn promtool(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(programs::find("promtool")).args(arguments).env_clear().output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(told).unwrap())
}

/// All rules as a rule file, in this folder.
pub(crate) fn rule_file(folder: &TempDir) -> String {
    let rendered = everything();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, json!({"groups": rendered.one("PrometheusRule")["spec"]["groups"]}).to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn promtool_has_nothing_to_say_against_rules_and_dashboard() {
    let folder = TempDir::new().unwrap();
    let (is_fine, told) = promtool(&["check", "rules", "--lint=all", "--lint-fatal", &rule_file(&folder)]);
    assert!(is_fine, "{told}");
    let rules: Vec<Value> = shown()
        .iter()
        .enumerate()
        .map(|(number, it)| json!({"record": format!("panel:{number}"), "expr": it.replace("$__rate_interval", "5m")}))
        .collect();
    let file = folder.path().join("dashboard.yaml");
    std::fs::write(&file, json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string()).unwrap();
    let (is_fine, told) = promtool(&["check", "rules", "--lint=none", file.to_str().unwrap()]);
    assert!(is_fine, "{told}");
}

/// Two pods that are well, for three hours: one leads, and what happened long ago is forgotten. And a pod of the node plugin.
const WELL: [(&str, &str); 30] = [
    ("csi_control_plane_build_info{version=\"1\",POD0}", "1+0x180"),
    ("csi_control_plane_build_info{version=\"1\",POD1}", "1+0x180"),
    ("leader_election_master_status{name=\"lease\",POD0}", "1+0x180"),
    ("leader_election_master_status{name=\"lease\",POD1}", "0+0x180"),
    ("csi_control_plane_driver_ready{driver_name=\"d\",POD0}", "1+0x180"),
    ("csi_control_plane_driver_ready{driver_name=\"d\",POD1}", "1+0x180"),
    ("csi_control_plane_workqueue_oldest_age_seconds{name=\"csi-attacher-va\",POD0}", "30+0x180"),
    ("csi_control_plane_attachments_failing{driver_name=\"d\",operation=\"attach\",POD0}", "0+0x180"),
    ("csi_control_plane_reconcile_passes_total{driver_name=\"d\",result=\"ok\",POD0}", "0+1x180"),
    ("csi_control_plane_drift_total{driver_name=\"d\",direction=\"attach\",POD0}", "3+0x180"),
    ("csi_control_plane_role_restarts_total{role=\"attacher\",POD0}", "0+0x75 1+0x105"),
    ("csi_control_plane_unsaved_volumes{driver_name=\"d\",POD0}", "0+0x180"),
    ("csi_control_plane_claims_oldest_pending_age_seconds{driver_name=\"d\",POD0}", "30+0x180"),
    ("csi_control_plane_task_failures_total{task=\"attacher.drift\",POD0}", "2+0x180"),
    ("csi_control_plane_claims_waiting{driver_name=\"d\",reason=\"backoff\",POD0}", "0+0x180"),
    ("csi_control_plane_journal_oldest_entry_age_seconds{driver_name=\"d\",POD0}", "30+0x180"),
    ("csi_control_plane_snapshots_failing{driver_name=\"d\",operation=\"create\",POD0}", "0+0x180"),
    ("csi_control_plane_snapshots_unanswered{driver_name=\"d\",POD0}", "0+0x180"),
    ("csi_control_plane_journal_unreadable{driver_name=\"d\",POD0}", "0+0x180"),
    ("csi_control_plane_journal_left_over{driver_name=\"d\",POD0}", "0+0x180"),
    ("csi_control_plane_journal_foreign_entries{driver_name=\"d\",POD0}", "0+0x180"),
    ("csi_control_plane_journal_lost_node_entries{driver_name=\"d\",POD0}", "0+0x180"),
    // The pods of a node plugin serve other roles, and have no driver of their own.
    ("csi_control_plane_build_info{version=\"1\",NODE}", "1+0x180"),
    ("csi_control_plane_driver_healthy{NODE}", "1+0x180"),
    ("csi_control_plane_driver_healthy{POD0}", "1+0x180"),
    ("csi_control_plane_registrar_registered{NODE}", "1+0x180"),
    // What costs something fires nothing.
    (
        "csi_control_plane_driver_object_misfit{driver_name=\"d\",misfit=\"attach_not_needed\",severity=\"hint\",POD0}",
        "1+0x180",
    ),
    (
        "csi_control_plane_driver_object_misfit{driver_name=\"d\",misfit=\"object_missing\",severity=\"fault\",POD0}",
        "0+0x180",
    ),
    (
        "csi_controller_volume_health_status{exported_namespace=\"n\",persistentvolumeclaim=\"c\",status=\"Degraded\",POD0}",
        "0+0x180",
    ),
    ("attach_detach_controller_attachdetach_controller_forced_detaches{reason=\"timeout\",POD0}", "3+0x180"),
];

/// What happens instead, from the 76th minute on, and the one alert that fires in the end.
const TROUBLE: [(&str, &[(&str, &str)]); 36] = [
    (
        "CsiControlPlaneDown",
        &[(WELL[0].0, "1+0x75"), (WELL[1].0, "1+0x75"), (WELL[2].0, "1+0x75"), (WELL[3].0, "0+0x75")],
    ),
    ("CsiControlPlaneNoLeader", &[(WELL[2].0, "1+0x75 0+0x105")]),
    ("CsiControlPlaneTwoLeaders", &[(WELL[3].0, "0+0x75 1+0x105")]),
    // A controller's pod, and one without leader election.
    ("CsiControlPlaneApiLost", &[("csi_control_plane_api_lost{POD1}", "0+0x75 1+0x105")]),
    ("CsiControlPlaneApiLost", &[("csi_control_plane_api_lost{NODE}", "0+0x75 1+0x105")]),
    ("CsiControlPlaneDriverDown", &[(WELL[5].0, "1+0x75 0+0x105")]),
    // It was never met.
    ("CsiControlPlaneDriverDown", &[(WELL[5].0, "_x180")]),
    ("CsiControlPlaneDriverUnhealthy", &[(WELL[23].0, "1+0x75 0+0x105")]),
    ("CsiControlPlaneDriverNotRegistered", &[(WELL[25].0, "1+0x75 0+0x105")]),
    ("CsiControlPlaneDriverObjectMisfit", &[(WELL[27].0, "0+0x75 1+0x105")]),
    ("CsiControlPlaneBacklog", &[(WELL[6].0, "30+0x75 1000+60x105")]),
    ("CsiControlPlaneAttachFailing", &[(WELL[7].0, "0+0x75 2+0x105")]),
    (
        "CsiControlPlaneLeakRisk",
        &[("csi_control_plane_attachments_failing{driver_name=\"d\",operation=\"detach\",POD0}", "0+0x75 1+0x105")],
    ),
    // Within the hour; the first count of all, and one more.
    (
        "CsiControlPlaneDrift",
        &[("csi_control_plane_drift_total{driver_name=\"d\",direction=\"detach\",POD0}", "_x105 1+0x75")],
    ),
    ("CsiControlPlaneDrift", &[(WELL[9].0, "3+0x105 4+0x75")]),
    (
        "CsiControlPlaneDriftUnseen",
        &[
            (WELL[8].0, "0+1x75 60+0x105"),
            (
                "csi_control_plane_reconcile_passes_total{driver_name=\"d\",result=\"unavailable\",POD0}",
                "0+0x75 0+1x105",
            ),
        ],
    ),
    // Within the hour; the first of all, and one more.
    (
        "CsiControlPlaneForcedDetach",
        &[(
            "attach_detach_controller_attachdetach_controller_forced_detaches{reason=\"out-of-service\",POD0}",
            "_x105 1+0x75",
        )],
    ),
    ("CsiControlPlaneForcedDetach", &[(WELL[29].0, "3+0x105 4+0x75")]),
    ("CsiControlPlaneVolumeUnhealthy", &[(WELL[28].0, "0+0x75 1+0x105")]),
    ("CsiControlPlaneVolumeLeakRisk", &[(WELL[11].0, "0+0x75 1+0x105")]),
    ("CsiControlPlaneVolumeMayLeak", &[(WELL[15].0, "30+0x75 60+60x105")]),
    ("CsiControlPlaneVolumeLeftOver", &[(WELL[19].0, "0+0x75 1+0x105")]),
    ("CsiControlPlaneVolumeLeftOver", &[(WELL[20].0, "0+0x75 1+0x105")]),
    ("CsiControlPlaneVolumeLeftOver", &[(WELL[21].0, "0+0x75 1+0x105")]),
    ("CsiControlPlaneJournalUnreadable", &[(WELL[18].0, "0+0x75 1+0x105")]),
    ("CsiControlPlaneClaimsPending", &[(WELL[12].0, "30+0x75 1000+60x105")]),
    ("CsiControlPlaneChangesFailing", &[(WELL[14].0, "0+0x75 2+0x105")]),
    ("CsiControlPlaneSnapshotsFailing", &[(WELL[16].0, "0+0x75 2+0x105")]),
    ("CsiControlPlaneSnapshotMayLeak", &[(WELL[17].0, "0+0x75 1+0x105")]),
    (
        "CsiControlPlaneRightMissing",
        &[(
            "csi_control_plane_api_requests_total{verb=\"get\",resource=\"secrets\",outcome=\"forbidden\",POD0}",
            "_x150 1+0x30",
        )],
    ),
    ("CsiControlPlaneConfigRefused", &[("csi_control_plane_config_last_reload_successful{POD0}", "1+0x75 0+0x105")]),
    ("CsiControlPlaneRoleRestarting", &[(WELL[10].0, "0+0x75 0+1x105")]),
    // A role of the node plugin, whose port is taken.
    (
        "CsiControlPlaneRoleRestarting",
        &[("csi_control_plane_role_restarts_total{role=\"liveness\",NODE}", "0+0x75 0+1x105")],
    ),
    // The controller's driver, which hangs with its socket open.
    ("CsiControlPlaneDriverUnhealthy", &[(WELL[24].0, "1+0x75 0+0x105")]),
    // The first count of all, within the hour; and one more.
    ("CsiControlPlaneTaskFailed", &[("csi_control_plane_task_failures_total{task=\"app.csi\",POD0}", "_x105 1+0x75")]),
    ("CsiControlPlaneTaskFailed", &[(WELL[13].0, "2+0x105 3+0x75")]),
];

/// A story for `promtool test rules`: the alerts that fire in it are these.
fn story(instead: &[(&str, &str)], firing: &[&str]) -> Value {
    let mut series: BTreeMap<&str, &str> = WELL.into_iter().collect();
    series.extend(instead.iter().copied());
    let pod = |text: &str| {
        let labels = |number| format!("namespace=\"storage\",pod=\"storage-daemon-{number}\"");
        let of_node = "namespace=\"storage\",pod=\"storage-daemon-node-x7k2p\"";
        text.replace("POD0", &labels(0)).replace("POD1", &labels(1)).replace("NODE", of_node)
    };
    let input: Vec<Value> =
        series.iter().map(|(name, values)| json!({"series": pod(name), "values": values})).collect();
    let expression = "count by (alertname) (ALERTS{alertstate=\"firing\"}) > 0";
    let samples: Vec<Value> =
        firing.iter().map(|it| json!({"labels": format!("{{alertname={it:?}}}"), "value": 1})).collect();
    json!({
        "interval": "1m", "input_series": input,
        "promql_expr_test": [
            {"expr": expression, "eval_time": "70m", "exp_samples": []},
            {"expr": expression, "eval_time": "160m", "exp_samples": samples},
        ],
    })
}

#[test]
fn each_alert_fires_in_its_trouble_and_in_no_other() {
    let folder = TempDir::new().unwrap();
    let rules = rule_file(&folder);
    let mut stories = vec![story(&[], &[])];
    for (alert, instead) in TROUBLE {
        let mut told = story(instead, &[alert]);
        if instead.iter().any(|(_, values)| *values == "_x180") {
            told["promql_expr_test"].as_array_mut().unwrap().remove(0);
        }
        stories.push(told);
    }
    let file = folder.path().join("stories.yaml");
    std::fs::write(&file, json!({"rule_files": [rules], "evaluation_interval": "1m", "tests": stories}).to_string())
        .unwrap();
    let (is_fine, told) = promtool(&["test", "rules", file.to_str().unwrap()]);
    assert!(is_fine, "{told}");
    let played: BTreeSet<&str> = TROUBLE.iter().map(|(alert, _)| *alert).collect();
    let rendered = everything();
    let all: BTreeSet<&str> =
        alerts(rendered.one("PrometheusRule")).iter().map(|it| it["alert"].as_str().unwrap()).collect();
    assert_eq!(all, played, "every alert is played, and nothing else");
}
