//! Ports of the node: pods on its network get some that differ, all that names them follows, and a port that two pods want is
//! refused.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::chart::checked;
use crate::chart::helm::{self, Rendered};
use crate::chart::node;

type Change = fn(&mut Value);

/// A controller and a node plugin on the network of their node, both with the role `liveness` at the driver's usual probe.
pub(crate) fn values() -> Value {
    let mut values = node::values();
    values["config"]["roles"]["liveness"] = json!({});
    values["driver"]["containers"][0]["ports"] = json!([{"name": "healthz", "containerPort": 9808}]);
    values["driver"]["containers"][0]["livenessProbe"] = json!({"httpGet": {"path": "/healthz", "port": "healthz"}});
    (values["hostNetwork"], values["node"]["hostNetwork"]) = (true.into(), true.into());
    values
}

fn changed(change: impl FnOnce(&mut Value)) -> Result<Rendered, String> {
    let mut values = values();
    change(&mut values);
    helm::with(&values, &[])
}

/// The port that the daemon's container declares in the first workload.
pub(crate) fn diagnostics(rendered: &Rendered) -> u64 {
    rendered.container()["ports"][0]["containerPort"].as_u64().unwrap()
}

/// What names a port in the pod of this kind of workload: the daemon's container, its configuration, the driver's probe.
struct Named {
    declared: Value,
    config: Value,
    driver: Value,
}

fn named(rendered: &Rendered, kind: &str) -> Named {
    let spec = &rendered.one(kind)["spec"]["template"]["spec"];
    let container = |name: &str| {
        spec["containers"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    let volume =
        spec["volumes"].as_array().unwrap().iter().find(|it| it["name"] == "csi-control-plane-config").unwrap();
    let map = rendered.all("ConfigMap").find(|it| it["metadata"]["name"] == volume["configMap"]["name"]).unwrap();
    let config: Value = serde_yaml::from_str(map["data"]["config.yaml"].as_str().unwrap()).unwrap();
    assert!(checked::faults(&config).is_empty(), "{config:#}");
    Named { declared: container("csi-control-plane")["ports"][0].clone(), config, driver: container("driver").clone() }
}

#[test]
fn controller_and_node_plugin_have_two_ports_of_the_node_and_all_that_names_them_follows() {
    let rendered =
        changed(|it| it["monitoring"] = json!({"serviceMonitor": {"enabled": true}, "podMonitor": {"enabled": true}}))
            .unwrap();
    let mut ports = BTreeSet::new();
    for kind in ["Deployment", "DaemonSet"] {
        let Named { declared, config, driver } = named(&rendered, kind);
        let port = declared["hostPort"].as_u64().unwrap();
        assert!((28000..29000).contains(&port) && declared["containerPort"] == port, "{kind}: {declared}");
        // A Prometheus is to reach both.
        let address = format!("[::]:{port}");
        assert_eq!(
            (&config["diagnostics"]["listen"], &config["roles"]["liveness"]["listen"]),
            (&json!(address), &json!(address))
        );
        assert_eq!(driver["livenessProbe"]["httpGet"], json!({"path": "/healthz", "port": port}), "{kind}");
        assert!(driver["ports"].as_array().is_none_or(Vec::is_empty), "the daemon declares it: {driver}");
        if kind == "Deployment" {
            assert_eq!(rendered.one("Service")["spec"]["ports"][0]["port"], port);
        }
        ports.insert(port);
    }
    assert_eq!(ports.len(), 2, "no node could run both pods");
    let mut open = values();
    open["monitoring"] = json!({"podMonitor": {"enabled": true}});
    let told = helm::notes(&open);
    assert!(
        ports.iter().all(
            |port| told.contains(&format!("[::]:{port} of ")) || told.contains(&format!("port {port} of its node"))
        ),
        "{told}"
    );
}

#[test]
fn a_node_plugin_opens_no_port_of_its_node_to_others_and_its_probes_name_the_host() {
    let rendered = changed(|_| {}).unwrap();
    for (kind, address, host) in [("Deployment", "[::]", None), ("DaemonSet", "127.0.0.1", Some("127.0.0.1"))] {
        let Named { declared, config, driver } = named(&rendered, kind);
        let port = declared["hostPort"].as_u64().unwrap();
        let listen = format!("{address}:{port}");
        assert_eq!(config["diagnostics"]["listen"], listen, "{kind}");
        assert_eq!(config["roles"]["liveness"]["listen"], listen, "{kind}");
        let host = host.map_or(Value::Null, Value::from);
        assert_eq!(driver["livenessProbe"]["httpGet"]["host"], host, "{kind}");
        let spec = &rendered.one(kind)["spec"]["template"]["spec"];
        let daemon =
            spec["containers"].as_array().unwrap().iter().find(|it| it["name"] == "csi-control-plane").unwrap();
        for probe in ["livenessProbe", "readinessProbe"] {
            assert_eq!(daemon[probe]["httpGet"]["host"], host, "{kind} {probe}");
        }
    }
    let wide = changed(|it| it["node"]["config"] = json!({"diagnostics": {"listen": "0.0.0.0:9000"}})).unwrap();
    let Named { config, driver, .. } = named(&wide, "DaemonSet");
    assert_eq!(config["roles"]["liveness"]["listen"], "0.0.0.0:9000");
    assert_eq!(driver["livenessProbe"]["httpGet"]["host"], Value::Null, "as the values say");
    // With a network of its own, a pod's loopback is out of the kubelet's reach.
    let refused = changed(|it| {
        it["node"]["hostNetwork"] = false.into();
        it["node"]["config"] = json!({"diagnostics": {"listen": "127.0.0.1:9000"}});
    });
    assert!(refused.err().unwrap().contains("the liveness probe would fail"));
}

#[test]
fn releases_that_share_a_node_have_other_ports() {
    let of = |change: Change, more: &[&str]| {
        let mut values = values();
        change(&mut values);
        let rendered = helm::with(&values, more).unwrap();
        ["Deployment", "DaemonSet"].map(|kind| named(&rendered, kind).declared["hostPort"].as_u64().unwrap())
    };
    let all = [
        of(|_| {}, &[]),
        of(|it| it["driver"]["name"] = "second.csi.example.com".into(), &[]),
        of(|_| {}, &["--name-template", "another"]),
        of(|_| {}, &["--namespace", "elsewhere"]),
        of(|it| it["fullnameOverride"] = "driver".into(), &[]),
    ];
    assert_eq!(all.as_flattened().iter().collect::<BTreeSet<_>>().len(), 10, "{all:?}");
    assert_eq!(of(|_| {}, &[]), all[0], "and keep theirs");
}

#[test]
fn a_port_that_the_values_name_is_kept_and_so_are_probes_of_other_ports() {
    let rendered = changed(|it| {
        it["config"]["diagnostics"] = json!({"listen": "0.0.0.0:9000"});
        it["node"]["config"] = json!({"roles": {"liveness": {"listen": "[::]:9808"}}});
        it["driver"]["containers"][0]["readinessProbe"] = json!({"httpGet": {"path": "/ready", "port": 9909}});
    })
    .unwrap();
    let controller = named(&rendered, "Deployment");
    assert_eq!(controller.declared["hostPort"], 9000);
    assert_eq!(controller.config["roles"]["liveness"]["listen"], "0.0.0.0:9000");
    assert_eq!(controller.driver["livenessProbe"]["httpGet"]["port"], 9000);
    assert_eq!(controller.driver["readinessProbe"]["httpGet"]["port"], 9909);
    let node = named(&rendered, "DaemonSet");
    assert_eq!(node.driver["livenessProbe"]["httpGet"]["port"], 9808, "the values say where it answers");
    assert_ne!(node.declared["hostPort"], 9808);

    let silent = changed(|it| it["config"]["diagnostics"] = json!({"listen": null})).unwrap();
    let controller = named(&silent, "Deployment");
    let port = controller.driver["livenessProbe"]["httpGet"]["port"].as_u64().unwrap();
    assert_eq!(controller.config["roles"]["liveness"]["listen"], format!("[::]:{port}"));

    let usual = changed(|it| (it["hostNetwork"], it["node"]["hostNetwork"]) = (false.into(), false.into())).unwrap();
    for kind in ["Deployment", "DaemonSet"] {
        let Named { declared, driver, .. } = named(&usual, kind);
        assert_eq!((&declared["containerPort"], &declared["hostPort"]), (&json!(8080), &Value::Null));
        assert!(
            ["healthz", "9808"].contains(&driver["livenessProbe"]["httpGet"]["port"].to_string().trim_matches('"'))
        );
    }
}

#[test]
fn a_port_that_two_pods_want_is_refused_and_both_keys_are_named() {
    let refused: [(&str, Change); 5] = [
        ("config.diagnostics.listen and node.config.diagnostics.listen both take port 9000/TCP of a node", |it| {
            it["config"]["diagnostics"] = json!({"listen": "0.0.0.0:9000"});
            it["node"]["config"] = json!({"diagnostics": {"listen": "[::]:9000"}});
        }),
        ("config.roles.liveness.listen and node.config.roles.liveness.listen both take port 9808/TCP", |it| {
            it["config"]["roles"]["liveness"] = json!({"listen": "[::]:9808"});
            it["node"]["config"] = json!({"roles": {"liveness": {"listen": "[::]:9808"}}});
        }),
        ("driver.containers[0].ports[0] and node.driver.containers[0].ports[0] both take port 9909/TCP", |it| {
            it["driver"]["containers"][0]["ports"] = json!([{"containerPort": 9909}]);
            it["node"]["driver"]["containers"][0]["ports"] = json!([{"containerPort": 9909}]);
        }),
        ("config.diagnostics.listen and node.driver.containers[0].ports[0] both take port 9909/TCP", |it| {
            it["config"]["diagnostics"] = json!({"listen": "0.0.0.0:9909"});
            it["node"]["driver"]["containers"][0]["ports"] = json!([{"containerPort": 9909}]);
        }),
        ("driver.containers[0].ports[0] is port 9000 of the node, and config.diagnostics.listen has it, too", |it| {
            it["node"]["enabled"] = false.into();
            it["config"]["diagnostics"] = json!({"listen": "0.0.0.0:9000"});
            it["driver"]["containers"][0]["ports"] = json!([{"containerPort": 9000}]);
        }),
    ];
    for (reason, change) in refused {
        let told = changed(change).err().unwrap_or_else(|| panic!("accepted: {reason}"));
        assert!(told.contains(reason), "{reason}: {told}");
    }
    let accepted: [Change; 3] = [
        |it| {
            it["node"]["hostNetwork"] = false.into();
            it["config"]["diagnostics"] = json!({"listen": "0.0.0.0:9000"});
            it["node"]["config"] = json!({"diagnostics": {"listen": "[::]:9000"}});
        },
        |it| {
            it["driver"]["containers"][0]["ports"] = json!([{"containerPort": 9909}]);
            it["node"]["driver"]["containers"][0]["ports"] = json!([{"containerPort": 9909, "protocol": "UDP"}]);
        },
        |it| it["driver"]["containers"][0]["ports"] = json!([{"containerPort": 9909}]),
    ];
    for change in accepted {
        assert_eq!(changed(change).err(), None);
    }
}
