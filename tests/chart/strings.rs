//! Numbers and switches where Kubernetes wants texts: YAML reads `value: 4096` as a number, and an API server refuses the object.

use serde_json::{Value, json};

use crate::chart::helm;
use crate::chart::node;

/// Puts numbers and switches into every kind of place for a text, and numbers where numbers belong.
fn put(values: &mut Value) {
    let container = |values: &mut Value| {
        values["args"] = json!(["--endpoint=unix:///csi/csi.sock", 7, true]);
        values["command"] = json!(["/driver", 7]);
        values["env"] =
            json!([{"name": "A", "value": 4096}, {"name": "B", "value": false}, {"name": "C", "value": 1_000_000}]);
        values["livenessProbe"] = json!({
            "httpGet": {"path": "/healthz", "port": 9808, "httpHeaders": [{"name": "X", "value": 1}]}, "periodSeconds": 10,
        });
        values["resources"] = json!({"limits": {"memory": 1_073_741_824, "cpu": 2}});
        values["securityContext"] = json!({"runAsUser": 1_000_700_000, "seLinuxOptions": {"level": 5}});
    };
    container(&mut values["driver"]["containers"][0]);
    container(&mut values["node"]["driver"]["containers"][0]);
    values["driver"]["volumes"] = json!([
        {"name": "a", "csi": {"driver": "x", "readOnly": true, "volumeAttributes": {"size": 5}}},
        {"name": "b", "emptyDir": {"sizeLimit": 1_000_000_000}},
        {"name": "c", "configMap": {"name": 1, "items": [{"key": 2, "path": 3, "mode": 256}], "defaultMode": 256}},
    ]);
    let free = json!({
        "extraEnv": [{"name": "A", "value": 4096}, {"name": "B", "value": false}, {"name": "C", "value": 1_000_000}],
        "podLabels": {"five": 5, "on": true, "gone": null},
        "podAnnotations": {"prometheus.io/port": 8080, "prometheus.io/scrape": true},
        "nodeSelector": {"gpu": true},
        "tolerations": [{"key": "a", "operator": "Equal", "value": true, "effect": "NoExecute", "tolerationSeconds": 300}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "In", "values": [1, true]}]}]}}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"a": 1}}}],
        "podSecurityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": 1024}], "fsGroup": 1_000_700_000},
    });
    for (key, value) in free.as_object().unwrap() {
        (values[key], values["node"][key]) = (value.clone(), value.clone());
    }
    values["commonLabels"] = json!({"build": 20_240_101});
    values["workloadAnnotations"] = json!({"a": 1});
    values["dnsConfig"] = json!({"nameservers": ["10.0.0.1"], "options": [{"name": "ndots", "value": 2}]});
    values["serviceAccount"] = json!({"annotations": {"account": 123_456_789_012_i64}});
    values["networkPolicy"] = json!({"enabled": true, "from": [{"podSelector": {"matchLabels": {"a": 1}}}],
        "egress": {"enabled": true, "extra": [{"ports": [{"port": 8443}]}]}});
    values["monitoring"] = json!({"podMonitor": {"enabled": true, "labels": {"a": 1}},
        "rules": {"enabled": true, "labels": {"a": true}, "alertLabels": {"team": 7}, "backlogSeconds": 1_000_000},
        "dashboard": {"enabled": true, "labels": {"grafana_dashboard": 1}, "annotations": {"folder": 5}}});
    values["podDisruptionBudget"] = json!({"maxUnavailable": 1_000_000});
    values["revisionHistoryLimit"] = json!(1_000_000);
    values["extraObjects"] = json!([
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast", "labels": {"a": 1}},
            "provisioner": "x", "parameters": {"iops": 3000, "encrypted": true}},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p"}, "value": 1_000_000},
        {"apiVersion": "example.com/v1", "kind": "Other", "metadata": {"name": "o"}, "parameters": {"size": 5}},
    ]);
}

/// Keys whose values, or those below them, Kubernetes takes as texts only.
const TEXTS: [&str; 22] = [
    "value",
    "values",
    "args",
    "command",
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "volumeAttributes",
    "key",
    "path",
    "name",
    "level",
    "operator",
    "effect",
    "topologyKey",
    "nameservers",
    "image",
    "mountPath",
    "parameters",
    "driver",
    "cidr",
];

/// Numbers and switches below such a key.
fn bare(at: &Value, path: &str, is_text: bool, found: &mut Vec<String>) {
    match at {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            bare(value, &format!("{path}.{key}"), is_text || TEXTS.contains(&key.as_str()), found);
        }),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(at, item)| bare(item, &format!("{path}[{at}]"), is_text && !item.is_object(), found));
        }
        Value::Number(_) | Value::Bool(_) if is_text => found.push(format!("{path}: {at}")),
        _ => {}
    }
}

#[test]
fn numbers_and_switches_become_texts_where_kubernetes_wants_texts_and_stay_elsewhere() {
    let mut values = node::values();
    put(&mut values);
    let rendered = helm::with(&values, &[]).unwrap();
    let mut found = Vec::new();
    for object in
        rendered.objects.iter().filter(|it| !["PriorityClass", "Other"].contains(&it["kind"].as_str().unwrap()))
    {
        bare(object, object["kind"].as_str().unwrap(), false, &mut found);
    }
    assert_eq!(found, Vec::<String>::new());
    assert!(!rendered.text.contains("e+0"), "a number is written in digits");

    for kind in ["Deployment", "DaemonSet"] {
        let pod = &rendered.one(kind)["spec"]["template"];
        let spec = &pod["spec"];
        let containers = spec["containers"].as_array().unwrap();
        let environment =
            json!([{"name": "A", "value": "4096"}, {"name": "B", "value": "false"}, {"name": "C", "value": "1000000"}]);
        let daemon = containers.iter().find(|it| it["name"] == "csi-control-plane").unwrap();
        let own = daemon["env"].as_array().unwrap();
        assert_eq!(json!(own[own.len() - 3..]), environment);
        let driver = containers.iter().find(|it| it["name"] == "driver").unwrap();
        assert_eq!(driver["env"], environment);
        assert_eq!(driver["args"], json!(["--endpoint=unix:///csi/csi.sock", "7", "true"]));
        assert_eq!(driver["resources"], json!({"limits": {"memory": 1_073_741_824, "cpu": 2}}));
        let security = json!({"runAsUser": 1_000_700_000, "seLinuxOptions": {"level": "5"}});
        assert_eq!(driver["securityContext"], security, "{kind}");
        let probe = &driver["livenessProbe"];
        assert_eq!((&probe["httpGet"]["port"], &probe["periodSeconds"]), (&json!(9808), &json!(10)));
        assert_eq!(spec["securityContext"]["fsGroup"], 1_000_700_000);
        assert_eq!(spec["tolerations"][0]["tolerationSeconds"], 300);
        assert_eq!(spec["dnsConfig"]["options"][0]["value"], "2");
        let labels = &pod["metadata"]["labels"];
        assert_eq!((&labels["five"], &labels["on"], &labels["gone"]), (&json!("5"), &json!("true"), &Value::Null));
        assert_eq!(labels["build"], "20240101");
    }
    assert_eq!(rendered.one("PodDisruptionBudget")["spec"]["maxUnavailable"], 1_000_000);
    assert_eq!(rendered.one("Deployment")["spec"]["revisionHistoryLimit"], 1_000_000);
    assert_eq!(rendered.one("PriorityClass")["value"], 1_000_000);
    assert_eq!(rendered.one("StorageClass")["parameters"], json!({"iops": "3000", "encrypted": "true"}));
    assert_eq!(rendered.one("Other")["parameters"]["size"], 5, "its kind is not known here");
    assert_eq!(rendered.one("ServiceAccount")["metadata"]["annotations"]["account"], "123456789012");
}

#[test]
fn the_numbers_of_another_charts_values_become_texts_as_well() {
    let own = json!({"mode": "sidecar", "driver": {"name": "parent.csi.example.com"}, "config": {"roles": {"attacher": {}}},
        "serviceAccount": {"name": "parent", "annotations": {"a": 1_000_000}}, "extraEnv": [{"name": "A", "value": 1_000_000}]});
    let rendered =
        helm::parent_with(Some(&own), &["--set", "csi-control-plane.serviceAccount.annotations.b=true"]).unwrap();
    assert_eq!(rendered.one("ServiceAccount")["metadata"]["annotations"], json!({"a": "1000000", "b": "true"}));
    let pods = &rendered.one("StatefulSet")["spec"]["template"]["spec"]["containers"][1];
    assert_eq!(pods["env"].as_array().unwrap().last(), Some(&json!({"name": "A", "value": "1000000"})));
}

#[test]
fn a_number_that_yaml_does_not_keep_as_it_was_written_is_refused_with_its_place() {
    type Change = fn(&mut Value);
    let refused: [(&str, Change); 7] = [
        ("extraEnv[0].value is the number 1.5", |it| it["extraEnv"] = json!([{"name": "A", "value": 1.5}])),
        ("podLabels.version is the number 1.1", |it| it["podLabels"] = json!({"version": 1.10})),
        ("node.extraEnv[0].value is the number", |it| {
            it["node"]["extraEnv"] = json!([{"name": "A", "value": 12_345_678_901_234_567_890_u64}]);
        }),
        ("driver.containers[0].args[1] is the number 0.5", |it| {
            it["driver"]["containers"][0]["args"] = json!(["a", 0.5]);
        }),
        ("node.driver.containers[0].args[0] is no text", |it| {
            it["node"]["driver"]["containers"][0]["args"] = json!([[1]]);
        }),
        ("tolerations[0].value is the number 1e+30", |it| it["tolerations"] = json!([{"key": "a", "value": 1e30}])),
        ("/image/tag", |it| it["image"] = json!({"tag": 1.2})),
    ];
    for (reason, change) in refused {
        let mut values = node::values();
        change(&mut values);
        let told = helm::with(&values, &[]).err().unwrap_or_else(|| panic!("accepted: {reason}"));
        assert!(told.contains(reason), "{reason}: {told}");
        assert!(told.contains("write it in quotes") || told.contains("want null or string"), "{told}");
    }
}
