//! The driver's node plugin beside the controller: one file of values installs a whole driver (node-and-health spec B6).

use serde_json::{Value, json};

use crate::chart::checked;
use crate::chart::helm::{self, Rendered};
use crate::chart::kept;
use crate::chart::matrix;

/// The attacher's set of values, and a node plugin.
pub(crate) fn values() -> Value {
    let mut values = matrix::case("attacher").values;
    let container = json!({
        "name": "driver", "image": "example.com/driver:1.2.3", "securityContext": {"privileged": true},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 9808}},
        "volumeMounts": [
            {"name": "csi-socket", "mountPath": "/csi"},
            {"name": "kubelet", "mountPath": "/var/lib/kubelet", "mountPropagation": "Bidirectional"},
        ],
    });
    let kubelet = json!({"name": "kubelet", "hostPath": {"path": "/var/lib/kubelet", "type": "Directory"}});
    values["node"] = json!({"enabled": true, "driver": {"containers": [container], "volumes": [kubelet]}});
    values
}

fn changed(change: impl FnOnce(&mut Value)) -> Result<Rendered, String> {
    let mut values = values();
    change(&mut values);
    helm::with(&values, &[])
}

/// The part of a rendering that is the node plugin's.
fn on_node(rendered: &Rendered) -> Rendered {
    let is_nodes = |it: &&Value| it["metadata"]["labels"]["app.kubernetes.io/name"] == "csi-control-plane-node";
    Rendered { text: rendered.text.clone(), objects: rendered.objects.iter().filter(is_nodes).cloned().collect() }
}

#[test]
fn one_file_of_values_installs_controller_and_node_plugin_which_share_nothing() {
    let whole = changed(|_| {}).unwrap();
    let node = on_node(&whole);
    assert_eq!(node.objects.len(), 2, "a configuration and a DaemonSet: {}", node.text);
    let mut others = whole.objects.clone();
    others.retain(|it| !node.objects.contains(it));
    assert_eq!(others, matrix::case("attacher").rendered().objects, "the controller's part is as it is without");

    let (controller, plugin) = (whole.one("Deployment"), node.one("DaemonSet"));
    let selects = |workload: &Value, pods: &Value| {
        let (labels, wanted) =
            (&pods["spec"]["template"]["metadata"]["labels"], &workload["spec"]["selector"]["matchLabels"]);
        wanted.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value)
    };
    assert!(selects(controller, controller) && selects(plugin, plugin));
    assert!(!selects(controller, plugin) && !selects(plugin, controller));
    let config: Value = serde_yaml::from_str(node.config()).unwrap();
    let path = "/var/lib/kubelet/plugins/demo.csi.example.com/csi.sock";
    assert_eq!(config["roles"], json!({"liveness": {}, "registrar": {"kubeletRegistrationPath": path}}));
    assert!(checked::faults(&config).is_empty());
}

#[test]
fn the_sidecar_of_the_node_plugin_is_root_without_power_and_has_no_token() {
    let node = on_node(&changed(|_| {}).unwrap());
    let (spec, container) = (&node.pod()["spec"], node.container());
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(spec["priorityClassName"], "system-node-critical");
    let security = &container["securityContext"];
    assert_eq!((&security["runAsUser"], &security["privileged"]), (&json!(0), &json!(false)));
    assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
    // It sees both folders of the node where its configuration says.
    let folder = |path: &str| {
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|it| it["mountPath"] == path).unwrap_or_else(|| panic!("{path}: {mounts:?}"));
        let volumes = spec["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|it| it["name"] == mount["name"]).unwrap();
        volume["hostPath"]["path"].as_str().unwrap().to_owned()
    };
    assert_eq!(folder("/run/csi"), "/var/lib/kubelet/plugins/demo.csi.example.com");
    assert_eq!(folder("/registration"), "/var/lib/kubelet/plugins_registry");
    let names: Vec<_> = spec["volumes"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"kubelet"), "the driver's own: {names:?}");
    assert!(container["livenessProbe"]["httpGet"]["path"] == "/livez");
}

#[test]
fn another_root_directory_of_the_kubelet_moves_every_folder() {
    let node = on_node(&changed(|it| it["node"]["kubeletPath"] = "/data/kubelet/".into()).unwrap());
    let text = serde_json::to_string(&node.objects).unwrap();
    for path in ["/data/kubelet/plugins/demo.csi.example.com/csi.sock", "/data/kubelet/plugins_registry"] {
        assert!(text.contains(path), "{path}: {text}");
    }
}

#[test]
fn what_a_node_plugin_cannot_have_is_refused_with_the_reason() {
    type Change = fn(&mut Value);
    let refused: [(&str, Change); 13] = [
        ("Set node.enabled: true", |it| it["config"]["roles"]["registrar"] = json!({})),
        ("node.config.roles.attacher", |it| it["node"]["config"] = json!({"roles": {"attacher": {}}})),
        ("node.driver.containers is empty", |it| it["node"]["driver"]["containers"] = json!([])),
        ("node.driver.containers: no container mounts", |it| {
            it["node"]["driver"]["containers"][0]["volumeMounts"] = json!([]);
        }),
        ("maxSurge is 1", |it| it["node"]["updateStrategy"] = json!({"rollingUpdate": {"maxSurge": 1}})),
        ("node.config.roles.registrar.withdrawAfter", |it| {
            it["node"]["config"] = json!({"roles": {"registrar": {"withdrawAfter": "1s"}}});
        }),
        ("node.serviceAccountName", |it| {
            it["node"]["config"] = json!({"roles": {"registrar": {"csiNodeInterval": "2m"}}});
        }),
        ("node.config.roles.registrar.directory", |it| {
            it["node"]["config"] = json!({"roles": {"registrar": {"directory": "registration"}}});
        }),
        ("node.config.roles.registrar.kubeletRegistrationPath", |it| {
            it["node"]["config"] = json!({"roles": {"registrar": {"kubeletRegistrationPath": "/plugins/"}}});
        }),
        // As long as no unix socket's path can be (node-and-health N23).
        ("found:   a path of 110 bytes\n    allowed: a socket path of at most 107 bytes", |it| {
            it["node"]["socket"] = json!({"hostPath": format!("/{}", "x".repeat(100))});
        }),
        ("found:   a path of 97 bytes\n    allowed: a path of at most 96 bytes: <directory>/<driver>-reg.sock", |it| {
            it["node"]["config"] = json!({"roles": {"registrar": {"directory": format!("/{}", "x".repeat(96))}}});
        }),
        ("kubeletPath", |it| it["node"]["kubeletPath"] = "var/lib/kubelet".into()),
        ("replicas", |it| it["node"]["replicas"] = 3.into()),
    ];
    for (reason, change) in refused {
        let told = changed(change).err().unwrap_or_else(|| panic!("accepted: {reason}"));
        assert!(told.contains(reason), "{reason}: {told}");
    }
}

#[test]
fn the_alerts_of_the_controller_are_not_about_the_node_plugins_pods() {
    let monitored = changed(|it| {
        it["monitoring"] = json!({"rules": {"enabled": true}, "podMonitor": {"enabled": true}});
    })
    .unwrap();
    let rules = serde_json::to_string(monitored.one("PrometheusRule")).unwrap();
    assert!(rules.contains(r#"pod!~\"demo-csi-control-plane-node-.*\""#), "{rules}");
    let own =
        r#"csi_control_plane_registrar_registered{namespace=\"storage\",pod=~\"demo-csi-control-plane-node-.*\"} == 0"#;
    assert!(rules.contains(own), "{rules}");
    let without = changed(|it| {
        it["monitoring"] = json!({"rules": {"enabled": true}});
        it["node"]["config"] = json!({"roles": {"registrar": null}});
    });
    let rules = serde_json::to_string(without.unwrap().one("PrometheusRule")).unwrap();
    assert!(rules.contains("CsiControlPlaneDriverUnhealthy") && !rules.contains("DriverNotRegistered"), "{rules}");
    assert_eq!(monitored.all("PodMonitor").count(), 2, "each kind of pods has its own");
    assert_eq!(on_node(&monitored).all("PodMonitor").count(), 1);
}

#[test]
fn the_notes_say_how_to_see_the_driver_registered() {
    assert!(helm::notes(&values()).contains("kubectl get csinode"));
    assert!(!helm::notes(&matrix::case("attacher").values).contains("csinode"));
}

#[test]
fn the_schema_of_the_node_plugins_values_is_that_of_the_controllers() {
    let file = helm::chart().join("values.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let properties = &schema["properties"];
    let node = properties["node"]["properties"].as_object().unwrap();
    for (key, own) in node {
        if !["enabled", "kubeletPath", "serviceAccountName", "config", "driver"].contains(&key.as_str()) {
            assert_eq!(own, &properties[key], "node.{key}");
        }
    }
    assert_eq!(node["config"]["$ref"], "#/properties/config");
    kept::keep(&file, &format!("{schema:#}\n"));
}
