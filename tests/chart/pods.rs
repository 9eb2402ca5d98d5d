//! The rendered pods, and the objects around them.

use serde_json::{Value, json};

use crate::chart::helm::{self, Rendered};
use crate::chart::matrix;

fn rendered(name: &str) -> Rendered {
    matrix::case(name).rendered()
}

/// The set of this name, changed.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> Rendered {
    let mut values = matrix::case(name).values;
    change(&mut values);
    helm::with(&values, &[]).unwrap()
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let items = list.as_array().unwrap();
    items.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{name} in {list:#}"))
}

#[test]
fn lint_finds_nothing_in_any_set_of_values() {
    for case in matrix::known() {
        let values = case.path.to_str().unwrap();
        let chart = helm::chart();
        let output = helm::helm(&["lint", "--strict", chart.to_str().unwrap(), "--values", values]);
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && !told.contains("[WARNING]"), "{}: {told}", case.name);
    }
}

#[test]
fn everything_carries_the_release_and_its_namespace() {
    for case in matrix::all() {
        // The users' own objects say themselves what they carry.
        let is_of_the_chart = |object: &Value| object["kind"] != "StorageClass";
        for object in case.rendered().objects.into_iter().filter(is_of_the_chart) {
            let (kind, metadata) = (object["kind"].as_str().unwrap(), &object["metadata"]);
            let labels = &metadata["labels"];
            assert_eq!(labels["app.kubernetes.io/instance"], helm::RELEASE, "{kind} in {}", case.name);
            assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm", "{kind} in {}", case.name);
            assert_eq!(kind.starts_with("Cluster"), metadata["namespace"].is_null(), "{kind} in {}", case.name);
        }
    }
}

#[test]
fn the_daemons_container_is_restricted() {
    for case in matrix::all().into_iter().filter(|case| case.name != "sidecar" && case.name != "root-driver") {
        let rendered = case.rendered();
        let security = &rendered.container()["securityContext"];
        assert_eq!(security["runAsNonRoot"], true, "{}", case.name);
        assert_eq!(security["runAsUser"], 65532);
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
        assert_eq!(security["seccompProfile"], json!({"type": "RuntimeDefault"}));
        assert_eq!(rendered.pod()["spec"]["securityContext"]["runAsNonRoot"], true, "{}", case.name);
    }
    let rendered = rendered("root-driver");
    assert!(rendered.pod()["spec"]["securityContext"].is_null(), "the driver decides");
    let security = &rendered.container()["securityContext"];
    assert_eq!((&security["runAsUser"], &security["capabilities"]["drop"][0]), (&0.into(), &"ALL".into()));
}

#[test]
fn the_daemon_finds_its_configuration_and_the_socket() {
    let rendered = rendered("everything");
    let (container, volumes) = (rendered.container(), &rendered.pod()["spec"]["volumes"]);
    assert_eq!(container["args"], json!(["run", "--config", "/etc/csi-control-plane/config.yaml"]));
    assert_eq!(named(&container["volumeMounts"], "csi-control-plane-config")["mountPath"], "/etc/csi-control-plane");
    assert_eq!(named(&container["volumeMounts"], "csi-socket")["mountPath"], "/var/run/demo", "of its endpoint");
    assert_eq!(named(volumes, "csi-socket")["emptyDir"], json!({}));
    let map = named(volumes, "csi-control-plane-config")["configMap"]["name"].clone();
    let maps: Vec<&Value> = rendered.all("ConfigMap").filter(|it| !it["data"]["config.yaml"].is_null()).collect();
    assert_eq!((maps.len(), &maps[0]["metadata"]["name"]), (1, &map));
    let on_node = self::rendered("root-driver");
    assert_eq!(
        named(&on_node.pod()["spec"]["volumes"], "plugin-dir")["hostPath"],
        json!({"path": "/var/lib/kubelet/plugins/demo.csi.example.com", "type": "DirectoryOrCreate"})
    );
    assert_eq!(named(&on_node.container()["volumeMounts"], "plugin-dir")["mountPath"], "/run/csi");
}

#[test]
fn a_daemon_for_all_drivers_has_no_socket_and_no_container_beside_it() {
    let rendered = rendered("cluster");
    let pod = &rendered.one("Deployment")["spec"]["template"]["spec"];
    let names = |list: &Value| -> Vec<Value> { list.as_array().unwrap().iter().map(|it| it["name"].clone()).collect() };
    assert_eq!(names(&pod["containers"]), ["csi-control-plane"]);
    assert_eq!(names(&pod["volumes"]), ["csi-control-plane-config"]);
    assert_eq!(names(&rendered.container()["volumeMounts"]), ["csi-control-plane-config"]);
    assert!(!rendered.config().contains("csi:"), "{}", rendered.config());
    let leases = rendered
        .all("Role")
        .flat_map(|it| it["rules"].as_array().unwrap())
        .find_map(|it| it["resourceNames"].as_array());
    assert_eq!(leases.unwrap(), &["attach-detach-controller"]);
    assert_eq!(rendered.all("PodDisruptionBudget").count(), 1);
    let text = rendered.one("PrometheusRule").to_string();
    assert!(text.contains("CsiControlPlaneForcedDetach") && !text.contains("CsiControlPlaneDriverDown"), "{text}");
}

#[test]
fn probes_ask_the_paths_and_the_port_that_the_daemon_serves() {
    for (name, port) in [("attacher", 8080), ("everything", 9090)] {
        let rendered = rendered(name);
        let container = rendered.container();
        assert_eq!(named(&container["ports"], "diagnostics")["containerPort"], port, "{name}");
        assert_eq!(container["livenessProbe"]["httpGet"], json!({"path": "/livez", "port": "diagnostics"}));
        assert_eq!(container["readinessProbe"]["httpGet"], json!({"path": "/readyz", "port": "diagnostics"}));
    }
    let silent = rendered("alone");
    for absent in ["ports", "livenessProbe", "readinessProbe"] {
        assert!(silent.container()[absent].is_null(), "{absent} without diagnostics");
    }
    let server = std::fs::read_to_string(helm::root().join("src/diagnostics/server.rs")).unwrap();
    for path in ["\"/livez\"", "\"/readyz\"", "\"/metrics\""] {
        assert!(server.contains(path), "{path}");
    }
}

#[test]
fn replicas_keep_apart_and_one_at_a_time_is_disrupted() {
    let rendered = rendered("attacher");
    let labels = json!({"app.kubernetes.io/name": "csi-control-plane", "app.kubernetes.io/instance": "demo"});
    let apart = &rendered.pod()["spec"]["affinity"]["podAntiAffinity"];
    let term = &apart["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"];
    assert_eq!(term["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(term["labelSelector"]["matchLabels"], labels);
    let budget = &rendered.one("PodDisruptionBudget")["spec"];
    assert_eq!((&budget["maxUnavailable"], &budget["selector"]["matchLabels"]), (&1.into(), &labels));
    assert_eq!(rendered.one("Deployment")["spec"]["selector"]["matchLabels"], labels);

    let all = self::rendered("everything");
    let affinity = &all.pod()["spec"]["affinity"];
    assert!(affinity["nodeAffinity"].is_object() && affinity["podAntiAffinity"].is_object());
    assert!(affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].is_array());
    let alone = self::rendered("alone");
    assert_eq!(alone.all("PodDisruptionBudget").count(), 0, "a budget would only block a drain");
}

#[test]
fn a_daemon_on_each_node_leads_nobody_and_knows_its_node() {
    let rendered = rendered("daemonset");
    let set = rendered.one("DaemonSet");
    assert_eq!(set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], "10%");
    assert_eq!(rendered.all("Deployment").chain(rendered.all("PodDisruptionBudget")).count(), 0);
    let node = named(&rendered.container()["env"], "NODE_NAME");
    assert_eq!(node["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
    let config: Value = serde_yaml::from_str(rendered.config()).unwrap();
    assert_eq!(config["leaderElection"]["enabled"], false);
    assert!(rendered.pod()["spec"]["affinity"].is_null());
    let deployed = self::rendered("attacher");
    let priority = |rendered: &Rendered| rendered.pod()["spec"]["priorityClassName"].clone();
    assert_eq!(
        (priority(&rendered), priority(&deployed)),
        ("system-node-critical".into(), "system-cluster-critical".into())
    );
    for (given, expected) in [("", Value::Null), ("mine", "mine".into())] {
        assert_eq!(priority(&changed("daemonset", |it| it["priorityClassName"] = given.into())), expected);
    }
    assert!(!deployed.container()["env"].as_array().unwrap().iter().any(|it| it["name"] == "NODE_NAME"));
}

#[test]
fn the_drivers_own_containers_and_volumes_are_in_the_pod() {
    let rendered = rendered("everything");
    let spec = &rendered.pod()["spec"];
    assert_eq!(named(&spec["containers"], "driver")["image"], "example.com/demo-driver:1.2.3");
    assert_eq!(named(&spec["initContainers"], "prepare")["image"], "example.com/prepare:1");
    assert_eq!(named(&spec["volumes"], "scratch")["emptyDir"], json!({}));
    let image = rendered.container()["image"].as_str().unwrap();
    assert!(image.starts_with("registry.example.com/storage/daemon@sha256:0123"), "{image}");
    assert_eq!(named(&rendered.container()["env"], "OTEL_RESOURCE_ATTRIBUTES")["value"], "deployment.environment=test");
}

/// It names no registry of other people, where anybody may take the name. `NOTES.txt` and docs/security.md say why it needs one.
#[test]
fn an_image_that_nobody_has_named_is_called_as_migrate_calls_it() {
    let image = format!("{}:{}", csi_control_plane::migrate::IMAGE, env!("CARGO_PKG_VERSION"));
    assert_eq!(rendered("attacher").container()["image"], image.as_str());
    assert!(!image.contains('/'), "{image}");
}

/// The ports that a `NetworkPolicy` lets out, in its order.
fn outgoing(rendered: &Rendered) -> Vec<i64> {
    let rules = rendered.one("NetworkPolicy")["spec"]["egress"].as_array().unwrap();
    let ports = rules.iter().flat_map(|rule| rule["ports"].as_array().unwrap());
    ports.map(|port| port["port"].as_i64().unwrap()).collect()
}

#[test]
fn the_network_policy_lets_spans_out_to_the_collectors_own_port() {
    for (endpoint, port) in [
        ("http://collector.observability:4318", 4318),
        ("http://collector:4317/", 4317),
        ("https://collector:14317/v1/traces", 14317),
        ("http://[fd00::10]:4317", 4317),
        // As the daemon's connection: the scheme's port, and never a digit of the name.
        ("http://collector1", 80),
        ("https://collector1/", 443),
        ("http://10.0.0.5", 80),
        ("https://[fd00::10]", 443),
    ] {
        let rendered = changed("everything", |it| it["config"]["telemetry"]["traces"]["endpoint"] = endpoint.into());
        let expected = [53, 53, 443, 6443, port, 8443];
        assert_eq!(outgoing(&rendered), expected, "{endpoint:?}");
    }
    let none = changed("everything", |it| it["config"]["telemetry"]["traces"] = json!({"endpoint": null}));
    assert_eq!(outgoing(&none), [53, 53, 443, 6443, 8443]);
}

/// What the notes say of the attacher's values, changed like this.
fn notes(change: &dyn Fn(&mut Value)) -> String {
    let mut values = matrix::case("attacher").values;
    change(&mut values);
    helm::notes(&values)
}

#[test]
fn a_pod_has_the_time_to_let_a_call_end_and_the_notes_say_where_it_has_not() {
    for (timeout, seconds) in [("15s", 45), ("2m", 150), ("1m30s", 120), ("1.5h", 5430), ("15500ms", 46), ("1s", 45)] {
        let rendered = changed("attacher", |it| it["config"]["csi"]["timeout"] = timeout.into());
        assert_eq!(rendered.pod()["spec"]["terminationGracePeriodSeconds"], seconds, "{timeout}");
        assert!(
            !notes(&|it| it["config"]["csi"]["timeout"] = timeout.into()).contains("terminationGracePeriodSeconds"),
            "{timeout}"
        );
    }
    let snapshots = |timeout: &str| {
        let change = |it: &mut Value| it["config"]["roles"]["snapshotter"] = json!({"callTimeout": timeout});
        changed("attacher", change).pod()["spec"]["terminationGracePeriodSeconds"].clone()
    };
    assert_eq!((snapshots("1m"), snapshots("5m")), (90.into(), 330.into()), "a call of one role may take longer");
    let resizes = |key: &str| {
        let change = |it: &mut Value| it["config"]["roles"]["resizer"] = json!({key: "4m"});
        changed("attacher", change).pod()["spec"]["terminationGracePeriodSeconds"].clone()
    };
    assert_eq!((resizes("resizeTimeout"), resizes("modifyTimeout")), (270.into(), 270.into()));
    let by_default = changed("attacher", |it| it["config"]["roles"]["snapshotter"] = json!({}));
    assert_eq!(by_default.pod()["spec"]["terminationGracePeriodSeconds"], 90);
    let of_role = changed("attacher", |it| it["config"]["roles"]["attacher"]["timeout"] = "2m".into());
    assert_eq!(of_role.pod()["spec"]["terminationGracePeriodSeconds"], 150, "a role's own deadline counts");
    let short = |it: &mut Value| {
        it["config"]["csi"]["timeout"] = "1m1s".into();
        it["terminationGracePeriodSeconds"] = 60.into();
    };
    assert_eq!(changed("attacher", short).pod()["spec"]["terminationGracePeriodSeconds"], 60);
    let told = notes(&short);
    assert!(told.contains("WARNING: terminationGracePeriodSeconds is 60") && told.contains("may take 61s"), "{told}");
    let of_another = helm::notes(&matrix::case("sidecar").values);
    assert!(of_another.contains("set terminationGracePeriodSeconds of your pod to 45 or more"), "{of_another}");
}

#[test]
fn the_network_policy_lets_in_who_scrapes_and_out_what_the_daemon_asks() {
    let rendered = rendered("everything");
    let spec = &rendered.one("NetworkPolicy")["spec"];
    assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(spec["ingress"][0]["ports"][0]["port"], 9090);
    assert!(spec["ingress"][0]["from"][0]["namespaceSelector"].is_object());
    assert_eq!(outgoing(&rendered), [53, 53, 443, 6443, 4317, 8443]);
    let sidecar = self::rendered("sidecar");
    let spec = &sidecar.one("NetworkPolicy")["spec"];
    assert_eq!(spec["podSelector"]["matchLabels"], json!({"app": "parent"}));
    assert_eq!(spec["policyTypes"], json!(["Ingress"]), "what the driver asks is not ours to forbid");
}

#[test]
fn monitors_find_the_pods_by_their_port() {
    let rendered = rendered("everything");
    let pods = &rendered.one("PodMonitor")["spec"];
    assert_eq!(
        (&pods["podMetricsEndpoints"][0]["port"], &pods["podMetricsEndpoints"][0]["path"]),
        (&"diagnostics".into(), &"/metrics".into())
    );
    let service = rendered.one("Service");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], "diagnostics");
    let selected = rendered.one("ServiceMonitor")["spec"]["selector"]["matchLabels"].as_object().unwrap().clone();
    for (label, value) in selected {
        assert_eq!(service["metadata"]["labels"][&label], value);
    }
}

#[test]
fn another_chart_puts_the_daemon_into_its_own_pod() {
    let rendered = helm::parent(&[]);
    let pod = rendered.pod();
    assert_eq!(rendered.all("StatefulSet").count() + rendered.all("Deployment").count(), 1, "only the parent's");
    assert_eq!(pod["spec"]["containers"].as_array().unwrap().len(), 2);
    assert_eq!(rendered.container()["livenessProbe"]["httpGet"]["path"], "/livez");
    assert_eq!(named(&rendered.container()["volumeMounts"], "csi-socket")["mountPath"], "/run/csi");
    assert_eq!(named(&pod["spec"]["volumes"], "csi-socket")["emptyDir"], json!({}));
    assert_eq!(pod["spec"]["serviceAccountName"], "parent");
    assert_eq!(rendered.one("ServiceAccount")["metadata"]["name"], "parent");
    let map = &named(&pod["spec"]["volumes"], "csi-control-plane-config")["configMap"]["name"];
    assert_eq!(&rendered.one("ConfigMap")["metadata"]["name"], map);
    assert!(pod["metadata"]["annotations"]["checksum/csi-control-plane"].is_string());
    assert_eq!(rendered.all("ClusterRole").count(), 1);
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 45);
    let slow = helm::parent(&["--set", "csi-control-plane.config.csi.timeout=2m"]);
    assert_eq!(slow.pod()["spec"]["terminationGracePeriodSeconds"], 150, "a call in flight is let end");
}

#[test]
fn files_of_the_users_are_mounted_into_the_daemons_container_and_no_other() {
    let mounted = |rendered: &Rendered| {
        let mount = named(&rendered.container()["volumeMounts"], "collector-tls").clone();
        assert_eq!(mount, json!({"name": "collector-tls", "mountPath": "/etc/collector-tls", "readOnly": true}));
        let volume = named(&rendered.pod()["spec"]["volumes"], "collector-tls").clone();
        assert_eq!(volume["secret"], json!({"secretName": "collector-tls"}));
        let driver = named(&rendered.pod()["spec"]["containers"], "driver");
        assert!(!driver["volumeMounts"].to_string().contains("collector-tls"));
    };
    mounted(&rendered("everything"));
    let values = matrix::case("everything").values;
    let volumes = format!("csi-control-plane.extraVolumes={}", values["extraVolumes"]);
    let mounts = format!("csi-control-plane.extraVolumeMounts={}", values["extraVolumeMounts"]);
    mounted(&helm::parent(&["--set-json", &volumes, "--set-json", &mounts]));
}

#[test]
fn an_empty_section_means_what_its_absence_means() {
    let set = |section: Option<&str>| {
        changed("attacher", |it| {
            it["rolloutOnConfigChange"] = "never".into();
            it["networkPolicy"] = json!({"enabled": true, "egress": {"enabled": true}});
            it["monitoring"] = json!({"podMonitor": {"enabled": true}, "rules": {"enabled": true}});
            if let Some(section) = section {
                *section.split('.').fold(&mut it["config"], |at, part| &mut at[part]) = Value::Null;
            }
        })
    };
    let without_file = |rendered: Rendered| -> Vec<Value> {
        rendered.objects.into_iter().filter(|it| it["kind"] != "ConfigMap").collect()
    };
    let absent = without_file(set(None));
    let sections =
        ["csi", "kubernetes", "leaderElection", "diagnostics", "telemetry", "telemetry.logs", "telemetry.traces"];
    for section in sections.into_iter().chain(["runtime", "roles.attacher", "roles.attacher.retry"]) {
        assert_eq!(without_file(set(Some(section))), absent, "{section}");
    }
}

#[test]
fn the_notes_say_what_the_values_leave_to_be_done() {
    let usual = notes(&|_| {});
    assert!(usual.contains("port-forward deployment/demo-csi-control-plane 8080\n"), "{usual}");
    assert!(usual.contains("may read no secret"), "{usual}");
    let silent = notes(&|it| it["config"]["diagnostics"]["listen"] = Value::Null);
    assert!(!silent.contains("port-forward") && silent.contains("there is no status page"), "{silent}");
    let without = notes(&|it| it["rbac"]["create"] = false.into());
    assert!(!without.contains("may read no secret"), "{without}");
    assert!(without.contains("`csi-control-plane check --driver-name demo.csi.example.com` prints"), "{without}");
}

#[test]
fn the_notes_warn_of_a_daemon_that_is_not_root_beside_a_folder_of_roots() {
    let root = json!({"runAsNonRoot": false, "runAsUser": 0, "runAsGroup": 0});
    let told = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut values = matrix::case(name).values;
        change(&mut values);
        helm::notes(&values)
            .contains("WARNING: the daemon runs as user 65532, and socket.hostPath is a folder of the node")
    };
    assert!(told("daemonset", &|_| ()));
    assert!(told("sidecar", &|it| it["socket"] = json!({"hostPath": "/var/lib/x"})));
    assert!(told("root-driver", &|it| it["securityContext"] = Value::Null));
    assert!(!told("root-driver", &|_| ()));
    assert!(!told("attacher", &|_| ()));
    assert!(!told("daemonset", &|it| it["securityContext"] = root.clone()));
}
