//! What an installation may add or change: the network of the node, labels and annotations, the image's registry, objects of
//! its own; and what `helm test` runs.

use std::process::Command;

use serde_json::{Value, json};

use crate::chart::helm::{self, Rendered};
use crate::chart::matrix;
use crate::chart::ports;

/// The set of this name, changed.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> Rendered {
    let mut values = matrix::case(name).values;
    change(&mut values);
    helm::with(&values, &[]).unwrap()
}

/// The notes for the set of this name, changed.
fn notes(name: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut values = matrix::case(name).values;
    change(&mut values);
    helm::notes(&values)
}

fn config(rendered: &Rendered) -> Value {
    serde_yaml::from_str(rendered.config()).unwrap()
}

#[test]
fn on_the_network_of_the_node_the_daemon_has_a_port_of_the_node() {
    let rendered = matrix::case("host-network").rendered();
    let spec = &rendered.pod()["spec"];
    assert_eq!((&spec["hostNetwork"], &spec["dnsPolicy"]), (&true.into(), &"ClusterFirstWithHostNet".into()));
    let number = ports::diagnostics(&rendered);
    assert_eq!(config(&rendered)["diagnostics"]["listen"], format!("[::]:{number}"));
    let port = json!({"name": "diagnostics", "containerPort": number, "hostPort": number, "protocol": "TCP"});
    assert_eq!(rendered.container()["ports"], json!([port]));

    let chosen = changed("host-network", |it| {
        it["config"]["diagnostics"] = json!({"listen": "10.0.0.1:9000"});
        it["dnsPolicy"] = "None".into();
        it["dnsConfig"] = json!({"nameservers": ["10.0.0.53"]});
    });
    assert_eq!(chosen.container()["ports"][0]["hostPort"], 9000);
    let spec = &chosen.pod()["spec"];
    assert_eq!((&spec["dnsPolicy"], &spec["dnsConfig"]["nameservers"][0]), (&"None".into(), &"10.0.0.53".into()));

    let usual = matrix::case("attacher").rendered();
    assert!(["hostNetwork", "dnsPolicy", "dnsConfig"].iter().all(|key| usual.pod()["spec"][key].is_null()));
    assert!(usual.container()["ports"][0]["hostPort"].is_null());
    assert!(config(&usual)["diagnostics"].is_null(), "the daemon's default");
}

#[test]
fn an_upgrade_asks_for_no_pod_that_cannot_be_scheduled() {
    let strategy = |rendered: &Rendered| rendered.one("Deployment")["spec"]["strategy"].clone();
    let one_after_another = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
    assert_eq!(strategy(&matrix::case("host-network").rendered()), one_after_another);
    let apart = changed("attacher", |it| it["antiAffinity"] = "required".into());
    assert_eq!(strategy(&apart), one_after_another, "each node has a pod that keeps others away");

    let own = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    assert_eq!(strategy(&changed("host-network", |it| it["strategy"] = own.clone())), own, "there may be more nodes");
    let without_port = changed("host-network", |it| {
        it["config"]["diagnostics"] = json!({"listen": null});
        it["monitoring"] = json!({});
    });
    assert!(strategy(&without_port).is_null(), "no port, so two pods fit on a node");
}

#[test]
fn the_notes_name_the_port_of_the_node_and_who_may_reach_it() {
    let told = notes("host-network", |_| {});
    let port = ports::diagnostics(&matrix::case("host-network").rendered());
    assert!(told.contains(&format!("listens on port {port} of its node")) && !told.contains("NetworkPolicy"), "{told}");
    let told = notes("host-network", |it| it["networkPolicy"] = json!({"enabled": true}));
    assert!(told.contains("WARNING: most clusters apply no NetworkPolicy"), "{told}");
    assert!(!notes("attacher", |_| {}).contains("of its node"));
}

#[test]
fn the_driver_and_the_daemon_mean_the_same_socket_or_the_notes_say_so() {
    assert_eq!(config(&matrix::case("attacher").rendered())["csi"]["endpoint"], helm::ENDPOINT);
    assert_eq!(config(&matrix::case("empty").rendered())["csi"]["endpoint"], helm::ENDPOINT, "an empty section");
    assert!(!notes("attacher", |_| {}).contains("the same folder"));
    let other = |it: &mut Value| it["driver"]["containers"][0]["args"] = json!(["--endpoint=unix:///csi/socket"]);
    let told = notes("attacher", other);
    assert!(told.contains("WARNING: the driver's container names /csi/socket"), "{told}");
    assert!(told.contains("set config.csi.endpoint: unix:///run/csi/socket\n"), "{told}");
    let told = notes("attacher", |it| {
        other(it);
        it["config"]["csi"] = json!({"endpoint": "unix:///run/csi/socket"});
    });
    assert!(!told.contains("the same folder"), "{told}");
    let told = notes("attacher", |it| {
        it["driver"]["containers"][0]["args"] = json!(["--endpoint=$(ADDRESS)"]);
        it["driver"]["containers"][0]["env"] = json!([{"name": "ADDRESS", "value": "/csi/plugin.sock"}]);
    });
    assert!(told.contains("names /csi/plugin.sock"), "{told}");
}

#[test]
fn a_socket_on_the_node_may_be_reached_through_another_volume() {
    let through = |path: &str| {
        let mut values = matrix::case("root-driver").values;
        values["driver"]["containers"][0]["volumeMounts"] = json!([{"name": "kubelet", "mountPath": path}]);
        values["driver"]["volumes"] = json!([{"name": "kubelet", "hostPath": {"path": path}}]);
        helm::with(&values, &[]).err()
    };
    assert_eq!(through("/var/lib/kubelet/"), None);
    assert_eq!(through("/var/lib/kubelet/plugins/demo.csi.example.com"), None);
    assert!(through("/var/lib/kubelet/plug").unwrap().contains("no container mounts the volume"));
}

#[test]
fn labels_and_annotations_are_where_the_values_put_them() {
    let rendered = matrix::case("host-network").rendered();
    let mut labelled = 0;
    for object in rendered.objects.iter().filter(|it| it["kind"] != "StorageClass") {
        assert_eq!(object["metadata"]["labels"]["example.com/team"], "storage", "{}", object["kind"]);
        labelled += 1;
    }
    assert!(labelled > 6, "{labelled}");
    let deployment = rendered.one("Deployment");
    assert_eq!(deployment["metadata"]["labels"]["release"], "common");
    assert_eq!(rendered.one("PodMonitor")["metadata"]["labels"]["release"], "prometheus", "its own is nearer");
    let pod = &rendered.pod()["metadata"]["labels"];
    assert_eq!((&pod["example.com/team"], &pod["release"]), (&"storage".into(), &"pods".into()));
    let selector = deployment["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert!(selector.keys().eq(["app.kubernetes.io/instance", "app.kubernetes.io/name"]), "{selector:?}");
    assert_eq!(deployment["metadata"]["annotations"], json!({"reloader.example.com/auto": "true"}));
    assert!(rendered.pod()["metadata"]["annotations"]["reloader.example.com/auto"].is_null());
    let daemonset = changed("daemonset", |it| {
        it["workloadAnnotations"] = json!({"a": "b"});
        it["revisionHistoryLimit"] = 2.into();
    });
    let daemonset = daemonset.one("DaemonSet");
    assert_eq!(daemonset["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(daemonset["spec"]["revisionHistoryLimit"], 2);
}

#[test]
fn replicas_have_two_spellings_and_old_replica_sets_a_limit() {
    let spec = |change: &dyn Fn(&mut Value)| changed("attacher", change).one("Deployment")["spec"].clone();
    assert_eq!(spec(&|_| {})["replicas"], 2);
    assert_eq!(spec(&|it| it["replicas"] = 3.into())["replicas"], 3);
    assert_eq!(spec(&|it| it["replicaCount"] = 3.into())["replicas"], 3);
    assert_eq!(spec(&|it| it["replicas"] = Value::Null)["replicas"], 2, "not none");
    let none = spec(&|it| it["replicaCount"] = 0.into());
    assert_eq!((&none["replicas"], &none["revisionHistoryLimit"]), (&0.into(), &Value::Null));
    assert_eq!(spec(&|it| it["revisionHistoryLimit"] = 0.into())["revisionHistoryLimit"], 0);
    let one = changed("attacher", |it| it["replicaCount"] = 1.into());
    assert_eq!(one.all("PodDisruptionBudget").count(), 0, "a budget would only block a drain");
}

#[test]
fn an_image_without_a_registry_is_warned_of() {
    let image = |registry: &str, repository: &str| {
        let change = |it: &mut Value| it["image"] = json!({"registry": registry, "repository": repository});
        let image = changed("attacher", change).container()["image"].as_str().unwrap().to_owned();
        (image, notes("attacher", change).contains("WARNING: the image is"))
    };
    let version = env!("CARGO_PKG_VERSION");
    for (registry, repository, expected, is_warned_of) in [
        ("", "csi-control-plane", "csi-control-plane", true),
        ("", "storage/csi-control-plane", "storage/csi-control-plane", true),
        ("", "registry.example.com/daemon", "registry.example.com/daemon", false),
        ("", "localhost/daemon", "localhost/daemon", false),
        ("registry:5000", "daemon", "registry:5000/daemon", false),
        ("registry.example.com/storage/", "daemon", "registry.example.com/storage/daemon", false),
    ] {
        assert_eq!(image(registry, repository), (format!("{expected}:{version}"), is_warned_of));
    }
}

#[test]
fn objects_of_the_users_are_templates() {
    let rendered = matrix::case("host-network").rendered();
    let classes: Vec<_> = rendered.all("StorageClass").collect();
    assert_eq!(classes.len(), 2);
    for (class, name) in classes.iter().zip(["fast", "slow"]) {
        assert_eq!((&class["metadata"]["name"], &class["provisioner"]), (&name.into(), &"demo.csi.example.com".into()));
    }
    assert_eq!(classes[0]["metadata"]["labels"]["app.kubernetes.io/instance"], helm::RELEASE);
}

#[test]
fn helm_test_checks_the_configuration_with_the_releases_own_image() {
    for case in matrix::known() {
        let rendered = case.rendered();
        let pod = rendered.one("Pod");
        assert_eq!(pod["metadata"]["annotations"]["helm.sh/hook"], "test");
        let container = &pod["spec"]["containers"][0];
        if case.name != "sidecar" {
            assert_eq!(container["image"], rendered.container()["image"], "{}", case.name);
            let selector = rendered.objects.iter().find(|it| !it["spec"]["template"].is_null()).unwrap();
            let selector = selector["spec"]["selector"]["matchLabels"].as_object().unwrap();
            let labels = &pod["metadata"]["labels"];
            assert!(
                selector.iter().any(|(key, value)| labels[key] != *value),
                "{}: it would be one of its pods",
                case.name
            );
        }
        // Its command, with the file where this machine has it.
        let mounted = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.yaml"), rendered.config()).unwrap();
        let here = |argument: &Value| argument.as_str().unwrap().replace(mounted, folder.path().to_str().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_csi-control-plane"));
        command.args(container["args"].as_array().unwrap().iter().map(here)).env_clear();
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}: {}", case.name, String::from_utf8_lossy(&output.stderr));
    }
}
