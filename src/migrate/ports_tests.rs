use super::super::notes::Note;
use super::super::{Manifest, Outcome, Wanted, migrate};
use super::*;

/// A node's pod with these fields of its pod, and these arguments of livenessprobe; none: without it.
fn moved(pod: &str, liveness: Option<&str>, driver: &str) -> Outcome {
    let probe = liveness.map_or_else(String::new, |arguments| {
        format!("      - {{name: lp, image: x/livenessprobe:v2.19.0, args: [--csi-address=/csi/s{arguments}]}}\n")
    });
    let text = format!(
        "kind: DaemonSet\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  template:\n    spec:\n{pod}      containers:\n      \
         - {{name: driver, image: x/driver, ports: [{{containerPort: 9808, name: healthz}}]}}\n      - name: r\n        image: \
         x/csi-node-driver-registrar:v2.17.0\n        args: [--csi-address=/csi/s, --kubelet-registration-path=/p/s]\n{probe}"
    );
    let manifests = vec![Manifest { name: "d.yaml".to_owned(), text }];
    let outcome = migrate(&Wanted { manifests, driver: Some(driver.to_owned()), ..Wanted::default() });
    assert!(outcome.files.is_some(), "{}", outcome.report.faults_text());
    outcome
}

fn config(outcome: &Outcome) -> serde_json::Value {
    serde_yaml::from_str(&outcome.files.as_ref().unwrap().config).unwrap()
}

fn listen(outcome: &Outcome) -> Option<String> {
    config(outcome).pointer("/diagnostics/listen")?.as_str().map(str::to_owned)
}

const HOST_NETWORK: &str = "      hostNetwork: true\n";

#[test]
fn a_pod_on_the_hosts_network_shares_the_port_that_its_probe_had() {
    for (arguments, expected) in [
        ("", "[::]:9808"),
        (", --health-port=29603", "[::]:29603"),
        (", '--http-endpoint=127.0.0.1:29603'", "127.0.0.1:29603"),
    ] {
        let outcome = moved(HOST_NETWORK, Some(arguments), "disk.example.com");
        assert_eq!(listen(&outcome).as_deref(), Some(expected), "{arguments}");
        let note = format!("the daemon listens on {expected} of the node, together with roles.liveness.listen");
        assert!(outcome.report.notes.texts().any(|told| told.contains(&note)), "{:#?}", outcome.report.notes);
        let workload = outcome.files.unwrap().workload;
        assert!(workload.contains("path: /livez"), "{workload}");
        let port = format!("containerPort: {}", expected.rsplit(':').next().unwrap());
        assert_eq!(
            workload.matches(&port).count(),
            1,
            "the API refuses a pod that declares a port of the node twice: {workload}"
        );
        assert_eq!(workload.contains("127.0.0.1"), expected.starts_with("127"), "{workload}");
    }
}

fn origin(driver: &str, workload: [&str; 3]) -> Origin {
    Origin { driver: driver.to_owned(), workload: workload.map(str::to_owned) }
}

#[test]
fn a_default_port_follows_from_each_name_of_the_driver_and_of_the_workload() {
    let first = origin("a.b", ["n", "Deployment", "d"]);
    for other in [
        origin("a.c", ["n", "Deployment", "d"]),
        origin("a.b", ["m", "Deployment", "d"]),
        origin("a.b", ["n", "DaemonSet", "d"]),
        origin("a.b", ["n", "Deployment", "e"]),
        origin("a.bn", ["", "Deployment", "d"]),
    ] {
        let [one, two] = [&first, &other].map(|it| on_host(std::slice::from_ref(it), &BTreeSet::new()));
        assert_ne!(one, two, "{other:?}");
    }
    assert_eq!(on_host(&[first], &BTreeSet::new()), [18_115], "the same on each machine and in each version");
}

#[test]
fn workloads_whose_names_lead_to_one_port_get_two_in_whichever_order() {
    let named = |name: usize| origin("a.b", ["n", "Deployment", &format!("d{name}")]);
    let port = |it: &Origin| on_host(std::slice::from_ref(it), &BTreeSet::new())[0];
    let first = named(0);
    let twins = (1..).map(named).filter(|other| port(other) == port(&first)).take(2);
    let mut all = vec![first.clone()];
    all.extend(twins);
    let mut ports = on_host(&all, &BTreeSet::new());
    assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 3, "{ports:?}");
    all.reverse();
    ports.reverse();
    assert_eq!(on_host(&all, &BTreeSet::new()), ports);

    let taken = BTreeSet::from([port(&first), port(&first) + 1]);
    assert_eq!(on_host(&[first], &taken), [port(&all[2]) + 2], "what a pod of the manifests has is not given again");
}

/// Both pods of a driver may stand on one node, and a name that is not known is one for all drivers.
#[test]
fn controllers_and_nodes_on_the_hosts_network_get_ports_of_their_own() {
    let pod = |kind: &str, name: &str, container: &str| {
        format!(
            "kind: {kind}\nmetadata: {{name: {name}, namespace: 'n'}}\nspec:\n  template:\n    spec:\n      hostNetwork: true\n      \
             containers:\n      - {container}\n"
        )
    };
    let registrar = "{name: r, image: \"x/csi-node-driver-registrar:v2.17.0\", args: [--csi-address=/csi/s, \
                     --kubelet-registration-path=/p/s]}";
    let attacher = "{name: a, image: \"x/csi-attacher:v4.12.0\", args: [--csi-address=/csi/s, --leader-election]}";
    let parts = [pod("Deployment", "controller", attacher), pod("DaemonSet", "node", registrar)];
    let listen = |parts: &[String], workload: &str, driver: Option<&str>| {
        let manifests = vec![Manifest { name: "d.yaml".to_owned(), text: parts.join("---\n") }];
        let (workload, driver) = (Some(workload.to_owned()), driver.map(str::to_owned));
        let outcome = migrate(&Wanted { manifests, driver, workload, ..Wanted::default() });
        let address = listen(&outcome).unwrap_or_else(|| panic!("{}", outcome.faults_text()));
        let told = format!("the daemon listens on {address} of the node");
        assert!(outcome.report.notes.texts().any(|note| note.contains(&told)), "{:#?}", outcome.report.notes);
        let declared = format!("containerPort: {}", address.strip_prefix("127.0.0.1:").unwrap());
        let workload = outcome.files.unwrap().workload;
        assert!(workload.contains(&declared), "{address}");
        assert_eq!(workload.matches("host: '127.0.0.1'").count(), 2, "the probes name the host: {workload}");
        address
    };
    let turned = [parts[1].clone(), parts[0].clone()];
    for driver in ["a.b", "disk.example.com"] {
        let controller = listen(&parts, "controller", Some(driver));
        let node = listen(&parts, "node", Some(driver));
        assert_ne!(controller, node, "{driver}");
        assert_eq!([controller, node], ["controller", "node"].map(|name| listen(&turned, name, Some(driver))));
    }
    let others = parts[1].replace("namespace: 'n'", "namespace: 'm'");
    let nameless = [&parts[1], &others].map(|one| listen(std::slice::from_ref(one), "node", None));
    assert_ne!(nameless[0], nameless[1], "two drivers without a name in two runs");
}

#[test]
fn two_drivers_on_the_hosts_network_get_two_ports_and_neither_is_8080() {
    let ports: Vec<_> = ["disk.example.com", "file.example.com", "disk.example.com"]
        .map(|driver| listen(&moved(HOST_NETWORK, None, driver)).unwrap())
        .into();
    assert_ne!(ports[0], ports[1]);
    assert_eq!(ports[0], ports[2], "the same each time");
    for address in &ports {
        let port: u16 = address.strip_prefix("127.0.0.1:").unwrap().parse().unwrap();
        assert!((18000..19000).contains(&port), "{address}");
    }
}

/// A Deployment with these fields of its pod and of its driver's container, and a proxy of the attacher's metrics.
fn controller(pod: &str, driver: &str) -> Outcome {
    let text = format!(
        "kind: Deployment\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  replicas: 2\n  template:\n    spec:\n{pod}      \
         containers:\n      - {{name: driver, image: x/driver{driver}}}\n      - {{name: p, image: \"x/csi-provisioner:v5.0.0\", args: \
         [--csi-address=/csi/s, --leader-election, '--http-endpoint=127.0.0.1:8090']}}\n      - {{name: a, image: \
         \"x/csi-attacher:v4.12.0\", args: [--csi-address=/csi/s, --leader-election, '--http-endpoint=127.0.0.1:8091']}}\n      - \
         {{name: proxy, image: x/kube-rbac-proxy, args: ['--secure-listen-address=0.0.0.0:9203', \
         '--upstream=http://127.0.0.1:8091/']}}\n"
    );
    let manifests = vec![Manifest { name: "d.yaml".to_owned(), text }];
    migrate(&Wanted { manifests, driver: Some("disk.example.com".to_owned()), ..Wanted::default() })
}

#[test]
fn a_proxy_of_a_port_that_closes_is_told() {
    let notes = controller("", "").report.notes;
    let told: Vec<_> = notes.texts().filter(|note| note.starts_with("proxy names port")).collect();
    assert_eq!(told.len(), 1, "{notes:#?}");
    assert!(
        told[0].contains(
            "port 8091 of a in `--upstream=http://127.0.0.1:8091/`, which is closed: let it name port 8090 instead"
        ),
        "{told:?}"
    );
}

#[test]
fn variables_and_probes_of_the_other_containers_take_ports() {
    let text = |driver: &str| {
        format!(
            "kind: Deployment\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  template:\n    spec:\n      containers:\n      - \
             {{name: driver, image: x/driver{driver}}}\n      - {{name: a, image: \"x/csi-attacher:v4.12.0\", args: \
             [--csi-address=/csi/s, --leader-election]}}\n"
        )
    };
    for (driver, expected) in [
        ("", None),
        (", env: [{name: PORT, value: '8080'}]", Some("[::]:8081")),
        (", env: [{name: PORT, value: ':8080'}, {name: B, value: '8081'}]", Some("[::]:8082")),
        (", livenessProbe: {httpGet: {port: 8080}}", Some("[::]:8081")),
        (", command: [driver, --port=8080]", Some("[::]:8081")),
    ] {
        let manifests = vec![Manifest { name: "d.yaml".to_owned(), text: text(driver) }];
        let outcome = migrate(&Wanted { manifests, driver: Some("a.b".to_owned()), ..Wanted::default() });
        assert_eq!(listen(&outcome).as_deref(), expected, "{driver}");
    }
}

#[test]
fn a_pod_that_begins_to_take_a_port_of_the_node_is_told_what_a_roll_out_needs() {
    let notes = |kind: &str, fields: &str, pod: &str, driver: &str| {
        let text = format!(
            "kind: {kind}\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  replicas: 2\n{fields}  template:\n    spec:\n{pod}      \
             containers:\n      - {{name: driver, image: x/driver{driver}}}\n      - {{name: a, image: \"x/csi-attacher:v4.12.0\", \
             args: [--csi-address=/csi/s, --leader-election]}}\n"
        );
        let manifests = vec![Manifest { name: "d.yaml".to_owned(), text }];
        let outcome = migrate(&Wanted { manifests, driver: Some("a.b".to_owned()), ..Wanted::default() });
        let is_it = |note: &&Note| note.text.contains("each node takes one pod of it");
        outcome.report.notes.iter().find(is_it).map(|note| note.weight)
    };
    let strategy = |name: &str, fields: &str| format!("  {name}: {{rollingUpdate: {{{fields}}}}}\n");
    for (kind, fields, pod, driver, expected) in [
        ("Deployment", String::new(), HOST_NETWORK, "", Some(Weight::Check)),
        ("Deployment", strategy("strategy", "maxSurge: 25%"), HOST_NETWORK, "", Some(Weight::Check)),
        ("Deployment", strategy("strategy", "maxSurge: 0, maxUnavailable: 1"), HOST_NETWORK, "", None),
        ("Deployment", "  strategy: {type: Recreate}\n".to_owned(), HOST_NETWORK, "", None),
        // One pod a node, before as after.
        ("Deployment", String::new(), HOST_NETWORK, ", ports: [{containerPort: 9808}]", None),
        ("Deployment", String::new(), "", "", None),
        ("DaemonSet", String::new(), HOST_NETWORK, "", None),
        (
            "DaemonSet",
            strategy("updateStrategy", "maxSurge: 10%, maxUnavailable: 0"),
            HOST_NETWORK,
            "",
            Some(Weight::MustDo),
        ),
        ("DaemonSet", strategy("updateStrategy", "maxSurge: 0%"), HOST_NETWORK, "", None),
        ("StatefulSet", String::new(), HOST_NETWORK, "", None),
    ] {
        assert_eq!(notes(kind, &fields, pod, driver), expected, "{kind} {fields} {pod}");
    }
}

#[test]
fn a_pod_with_a_network_of_its_own_keeps_8080_and_the_port_of_the_probe_is_not_closed() {
    let outcome = moved("", Some(""), "disk.example.com");
    assert_eq!(listen(&outcome), None, "the default");
    assert!(!outcome.report.notes.texts().any(|note| note.contains("is closed")), "{:#?}", outcome.report.notes);
    let outcome = moved("", Some(", --health-port=8080"), "disk.example.com");
    assert_eq!(listen(&outcome).as_deref(), Some("[::]:8081"), "a port is one role's");
}

/// A pod in which a sidecar's container declares what the driver serves, and closes a port that a proxy asks.
#[test]
fn a_port_of_another_program_stays_declared_and_nobody_is_sent_to_the_daemons() {
    let moved = |pod: &str, sidecar: &str, driver: &str| {
        let text = format!(
            "kind: Deployment\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  template:\n    spec:\n{pod}      containers:\n      - {{name: a, \
             image: \"x/csi-attacher:v4.12.0\", args: [--csi-address=/csi/s, --leader-election, '--http-endpoint=:8090'], {sidecar}}}\n      - \
             {{name: r, image: \"x/csi-resizer:v2.0.0\", args: [--csi-address=/csi/s, --leader-election, '--http-endpoint=:8091'], ports: \
             [{{name: of-r, containerPort: 8091}}]}}\n      - {{name: driver, image: x/driver, args: [{driver}]}}\n"
        );
        let manifests = vec![Manifest { name: "d.yaml".to_owned(), text }];
        let outcome = migrate(&Wanted { manifests, driver: Some("a.b".to_owned()), ..Wanted::default() });
        let files = outcome.files.unwrap_or_else(|| panic!("{}", outcome.report.faults_text()));
        let workload: serde_json::Value = serde_yaml::from_str(&files.workload).unwrap();
        (workload.pointer("/spec/template/spec/containers/0/ports").unwrap().clone(), outcome.report)
    };
    let served = "ports: [{name: healthz, containerPort: 9808}, {name: metrics, containerPort: 8090}, {name: dns, containerPort: 53, protocol: UDP}]";
    for (pod, driver) in [("", "--health-port=9808"), (HOST_NETWORK, "'--health=:9808'")] {
        let (ports, report) = moved(pod, served, driver);
        let expected = json!([
            { "name": "metrics", "containerPort": 8090 },
            { "name": "healthz", "containerPort": 9808 },
            { "name": "dns", "containerPort": 53, "protocol": "UDP" },
        ]);
        assert_eq!(ports, expected, "{report}");
        let told = "port 9808 is declared by a, and no flag lets a listen on it: the daemon's container declares it";
        assert!(report.notes.texts().any(|note| note.starts_with(told)), "{report}");
        assert!(
            report.notes.texts().any(
                |note| note.starts_with("port 8091 (of-r) of r is closed: the metrics of all are at port 8090 now")
            ),
            "{report}"
        );
        assert!(!report.notes.texts().any(|note| note.contains("driver names")), "{report}");
    }
    // A program that listens at its own address under the same number is not sent away, and one that asks is.
    for (driver, told) in [
        ("'--metrics-bind-address=10.0.0.1:8091'", None),
        (
            "--upstream=http://localhost:8091/",
            Some("driver names port 8091 of r in `--upstream=http://localhost:8091/`, which is closed: let it"),
        ),
        (
            "--metrics-port=8091",
            Some("driver names port 8091 of r in `--metrics-port=8091`, which is closed: if it asks r there, "),
        ),
    ] {
        let report = moved("", "", driver).1;
        let found: Vec<_> = report.notes.texts().filter(|note| note.starts_with("driver names")).collect();
        assert_eq!(found.len(), usize::from(told.is_some()), "{driver}: {found:?}");
        assert!(told.is_none_or(|told| found[0].starts_with(told)), "{driver}: {found:?}");
    }
}

#[test]
fn a_sidecar_that_listened_to_all_goes_on_doing_so_and_one_that_did_not_opens_nothing() {
    let host = |liveness: Option<&str>| {
        let outcome = moved(HOST_NETWORK, liveness, "disk.example.com");
        let text =
            outcome.report.notes.texts().find(|note| note.starts_with("the pod uses the host's network")).unwrap();
        (listen(&outcome).unwrap(), text.contains("nothing of the pod listens to other machines"))
    };
    assert_eq!(host(Some("")), ("[::]:9808".to_owned(), false));
    let (address, is_told) = host(None);
    assert!(address.starts_with("127.0.0.1:18") && is_told, "{address}");
}
