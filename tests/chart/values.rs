//! The values that the chart refuses, and the schema that it uses.

use csi_control_plane::config::Config;
use csi_control_plane::roles::{ROLES, sections};
use serde_json::{Value, json};

use crate::chart::helm;
use crate::chart::kept;
use crate::chart::matrix;

type Change = fn(&mut Value);

/// Why the values of a set, changed, are refused.
fn refusal(of: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut values = matrix::case(of).values;
    change(&mut values);
    helm::with(&values, &[]).err().unwrap_or_else(|| panic!("accepted: {values:#}"))
}

#[test]
fn what_could_not_work_is_refused_with_the_reason() {
    let refused: [(&str, Change); 20] = [
        ("driver.name is required", |it| it["driver"]["name"] = "".into()),
        ("driver.containers is empty", |it| it["driver"]["containers"] = json!([])),
        ("no container mounts the volume \"csi-socket\"", |it| {
            it["driver"]["containers"][0]["volumeMounts"] = json!([]);
        }),
        ("has to listen on /csi/x.sock", |it| {
            it["config"]["csi"]["endpoint"] = "/run/csi/x.sock".into();
            it["socket"]["volume"] = "another".into();
        }),
        ("commonLabels.app.kubernetes.io/name", |it| it["commonLabels"] = json!({"app.kubernetes.io/name": "x"})),
        ("the liveness probe would fail", |it| it["config"]["diagnostics"]["listen"] = "127.0.0.1:8080".into()),
        ("the liveness probe would fail", |it| it["config"]["diagnostics"]["listen"] = "[::1]:8080".into()),
        ("port 0", |it| it["config"]["diagnostics"]["listen"] = "0.0.0.0:0".into()),
        ("dnsPolicy", |it| it["dnsPolicy"] = "clusterFirst".into()),
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
        let told = refusal("attacher", change);
        assert!(told.contains(reason), "{reason}: {told}");
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once_also_of_the_node_plugin() {
    let told = helm::render(&helm::chart(), None, &[]).err().expect("no chart works without values");
    assert!(told.contains("the values have 3 faults"), "{told}");
    for reason in ["driver.name is required", "config.roles is empty", "driver.containers is empty"] {
        assert_eq!(told.matches(reason).count(), 1, "{reason}: {told}");
    }
    let told = refusal("attacher", |it| {
        it["driver"]["containers"] = json!([]);
        it["config"]["csi"] = json!({"timeout": "9000h"});
        it["config"]["leaderElection"] = json!({"leaseDuration": "1s"});
        it["config"]["diagnostics"] = json!({"listen": null});
        it["monitoring"] = json!({"podMonitor": {"enabled": true}});
        it["networkPolicy"] = json!({"enabled": true, "egress": {"enabled": true, "apiPorts": []}});
        it["node"] =
            json!({"enabled": true, "config": {"csi": {"timeout": "9001h"}, "diagnostics": {"listen": "127.0.0.1:1"}}});
    });
    assert!(told.contains("the values have 7 faults"), "{told}");
    for reason in [
        "\ndriver.containers is empty",
        "the configuration has 2 faults\n\n  config.csi.timeout\n    found:   \"9000h\"",
        "  config.leaderElection.renewDeadline\n",
        "nothing to scrape",
        "networkPolicy.egress.apiPorts is empty",
        "node.driver.containers is empty",
        "the configuration has 1 fault\n\n  node.config.csi.timeout\n    found:   \"9001h\"",
        "node.config.diagnostics.listen is 127.0.0.1:1: kubelet connects to the pod's own address",
    ] {
        assert_eq!(told.matches(reason).count(), 1, "{reason}: {told}");
    }
}

#[test]
fn a_name_that_a_pod_would_have_twice_is_refused_and_one_that_no_object_may_have() {
    let twice = |what: &str| format!("{what}: Kubernetes takes no pod with one name twice");
    let of_the_socket = "is \"csi-socket\", and that name is the chart's own, for the socket";
    let refused: [(String, Change); 7] = [
        (twice(&format!("driver.volumes[0].name {of_the_socket} (socket.volume)")), |it| {
            it["driver"]["volumes"] = json!([{"name": "csi-socket", "emptyDir": {}}]);
        }),
        (twice(&format!("extraVolumes[0].name {of_the_socket} (socket.volume)")), |it| {
            it["extraVolumes"] = json!([{"name": "csi-socket", "emptyDir": {}}]);
        }),
        (twice("driver.volumes[0].name is \"a\", and that name is that of extraVolumes[0].name"), |it| {
            it["extraVolumes"] = json!([{"name": "a", "emptyDir": {}}]);
            it["driver"]["volumes"] = it["extraVolumes"].clone();
        }),
        (twice("driver.initContainers[0].name is \"csi-control-plane\", and that name is the daemon's"), |it| {
            it["driver"]["initContainers"] = json!([{"name": "csi-control-plane", "image": "i"}]);
        }),
        (twice(&format!("node.driver.volumes[0].name {of_the_socket} (node.socket.volume)")), |it| {
            let containers = it["driver"]["containers"].clone();
            let volumes = json!([{"name": "csi-socket", "emptyDir": {}}]);
            it["node"] = json!({"enabled": true, "driver": {"containers": containers, "volumes": volumes}});
        }),
        ("/fullnameOverride".to_owned(), |it| it["fullnameOverride"] = "Foo_Bar".into()),
        ("/nameOverride".to_owned(), |it| it["nameOverride"] = "csi_driver".into()),
    ];
    for (reason, change) in refused {
        let told = refusal("attacher", change);
        assert!(told.contains(&reason), "{reason}: {told}");
    }
    let mut values = matrix::case("attacher").values;
    values["socket"] = json!({"volume": "another"});
    values["driver"]["volumes"] = json!([{"name": "csi-socket", "emptyDir": {}}]);
    values["driver"]["containers"][0]["volumeMounts"][0]["name"] = "another".into();
    values["fullnameOverride"] = "my-driver.controller".into();
    assert!(helm::with(&values, &[]).is_ok(), "the name is free");
}

#[test]
fn a_daemon_on_each_node_is_refused_where_it_would_do_the_work_of_others() {
    let per_node = "config.roles.provisioner.nodeDeployment.enabled must be true";
    let refused: [(&str, Change); 7] = [
        ("would wait for the old pod's port", |it| {
            it["hostNetwork"] = true.into();
            it["updateStrategy"] = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
        }),
        (per_node, |it| it["config"]["roles"]["provisioner"] = json!({})),
        (per_node, |it| it["config"]["roles"]["provisioner"]["nodeDeployment"]["enabled"] = false.into()),
        (per_node, |it| {
            it["mode"] = "sidecar".into();
            it["sidecar"] = json!({"daemonset": true});
            it["config"]["roles"]["provisioner"] = json!({"nodeDeployment": {"immediateBinding": false}});
        }),
        ("socket.hostPath is required", |it| it["socket"]["hostPath"] = "".into()),
        ("there is no leader election", |it| it["config"]["leaderElection"] = json!({"enabled": true})),
        // Its pods would not know their node, and provision nothing.
        ("needs a daemon on each node", |it| it["mode"] = "deployment".into()),
    ];
    for (reason, change) in refused {
        let told = refusal("daemonset", change);
        assert!(told.contains(reason), "{reason}: {told}");
    }
}

#[test]
fn a_release_for_all_drivers_has_no_driver_and_no_other_role() {
    let refused: [(&str, Change); 6] = [
        ("has none beside it", |it| it["driver"] = json!({"name": "demo.csi.example.com"})),
        ("has none beside it", |it| it["driver"] = json!({"containers": [{"name": "driver", "image": "i"}]})),
        ("node.enabled: a node plugin belongs to", |it| it["node"] = json!({"enabled": true})),
        ("config.roles.attacher: mode: cluster has no driver", |it| {
            it["config"]["roles"]["attacher"] = json!({});
        }),
        ("config.roles is empty", |it| it["config"]["roles"] = json!({})),
        ("replicas is 2", |it| it["config"]["leaderElection"] = json!({"enabled": false})),
    ];
    for (reason, change) in refused {
        let told = refusal("cluster", change);
        assert!(told.contains(reason), "{reason}: {told}");
    }
    let told = refusal("daemonset", |it| it["config"]["roles"]["attachDetach"] = json!({}));
    assert!(told.contains("config.roles.attachDetach works for the whole cluster"), "{told}");
}

#[test]
fn a_volume_that_is_detached_by_force_waits_for_a_minute_at_least() {
    let told = refusal("cluster", |it| {
        it["config"]["roles"]["attachDetach"] = json!({"maxWaitForUnmount": "30s"});
    });
    assert!(
        told.contains("config.roles.attachDetach.maxWaitForUnmount\n    found:   30s\n    allowed: at least 1m"),
        "{told}"
    );
    assert_eq!(
        matrix::case("everything").at("/config/roles/attachDetach/maxWaitForUnmount"),
        "30s",
        "nothing is forced"
    );
}

#[test]
fn replicas_without_an_election_are_refused() {
    let refused: [(&str, Change); 4] = [
        ("replicas is 2", |it| it["replicas"] = 2.into()),
        ("replicas is 3", |it| it["replicaCount"] = 3.into()),
        ("replicas is 2", |it| drop(it.as_object_mut().unwrap().remove("replicas"))),
        ("strategy.type must be Recreate", |it| it["strategy"] = json!({"type": "RollingUpdate"})),
    ];
    for (reason, change) in refused {
        let told = refusal("alone", change);
        assert!(told.contains(reason), "{reason}: {told}");
    }
    let alone = matrix::case("alone").rendered();
    assert_eq!(alone.one("Deployment")["spec"]["strategy"], json!({"type": "Recreate"}));
    let elected = matrix::case("attacher").rendered();
    assert!(elected.one("Deployment")["spec"]["strategy"].is_null(), "Kubernetes' own");
}

#[test]
fn the_schema_of_config_is_the_daemons_own() {
    let file = helm::chart().join("values.schema.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    let mut own = Config::schema(&sections());
    own.as_object_mut().unwrap().remove("$schema");
    // The chart's own default, for editors: the name that most drivers give their socket.
    let csi = &mut own["properties"]["csi"];
    csi["default"]["endpoint"] = helm::ENDPOINT.into();
    csi["properties"]["endpoint"]["default"] = helm::ENDPOINT.into();
    schema["properties"]["config"] = own;
    kept::keep(&file, &format!("{schema:#}\n"));
}

#[test]
fn every_role_of_the_daemon_is_in_the_charts_table() {
    let text = std::fs::read_to_string(helm::chart().join("files/rbac.yaml")).unwrap();
    let table: Value = serde_yaml::from_str(&text).unwrap();
    for role in ROLES.iter().filter(|role| role.name != "registrar") {
        assert!(table["roles"][role.name]["rules"].is_array(), "files/rbac.yaml has no {}", role.name);
    }
}

#[test]
fn the_chart_says_where_it_comes_from() {
    let read = |file: &str| std::fs::read_to_string(helm::root().join(file)).unwrap();
    let chart: Value = serde_yaml::from_str(&read("charts/csi-control-plane/Chart.yaml")).unwrap();
    let home = chart["home"].as_str().unwrap();
    assert_eq!(chart["sources"][0], home);
    let file = |url: &Value| url.as_str().unwrap().rsplit_once("/main/").unwrap().1.to_owned();
    let icon = file(&chart["icon"]);
    assert!(read(&icon).starts_with("<svg"), "{icon}");
    let annotations = chart["annotations"].as_object().unwrap();
    assert!(annotations.iter().all(|(key, value)| key.starts_with("artifacthub.io/") && value.is_string()));
    let listed =
        |annotation: &str| -> Vec<Value> { serde_yaml::from_str(annotations[annotation].as_str().unwrap()).unwrap() };
    // Artifact Hub knows the link of this name: it is no document.
    let (support, documents): (Vec<_>, Vec<_>) =
        listed("artifacthub.io/links").into_iter().partition(|link| link["name"] == "support");
    assert_eq!(support.iter().map(|link| &link["url"]).collect::<Vec<_>>(), [&format!("{home}/issues")]);
    for link in documents.iter().chain(&listed("artifacthub.io/screenshots")) {
        assert!(link["url"].as_str().unwrap().contains("csi-control-plane/csi-control-plane/"), "{link}");
        let path = file(&link["url"]);
        assert!(helm::root().join(&path).exists(), "{path}");
    }
}

#[test]
fn the_chart_is_of_the_daemons_version() {
    let text = std::fs::read_to_string(helm::chart().join("Chart.yaml")).unwrap();
    let chart: Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
}
