//! The port of the daemon's diagnostics, which must be free in the pod, or on the node if the pod uses the host's network. Pure.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr};

use serde_json::json;

use crate::config::sidecar::ProbePort;

use super::container::uses_host_network;
use super::document::Workload;
use super::found::Found;
use super::settle::Chosen;

/// The key.
const KEY: &str = "diagnostics.listen";
/// The ports for pods on the host's network: below those that Linux and Kubernetes hand out (30000 and more), and few programs'.
const ON_HOST: std::ops::Range<u16> = 18000..19000;

/// Where the default port of a workload comes from: its driver, and its namespace, kind and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    driver: String,
    workload: [String; 3],
}

impl Origin {
    /// That of a workload; `namespace` is the one of workloads that name none.
    pub(super) fn of(driver: &str, found: &Found, namespace: Option<&str>) -> Self {
        let Workload { namespace: own, kind, name, .. } = &found.workload;
        let namespace = own.as_deref().or(namespace).unwrap_or_default().to_owned();
        Self { driver: driver.to_owned(), workload: [namespace, kind.clone(), name.clone()] }
    }

    /// FNV-1a of all: the same number on each machine and in each version.
    fn number(&self) -> u64 {
        let texts = std::iter::once(&self.driver).chain(&self.workload);
        // No name has a byte 255, so that `a` in `bc` is not `ab` in `c`.
        let bytes = texts.flat_map(|text| text.bytes().chain([u8::MAX]));
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }
}

/// A default port for each workload of the manifests, in their order: no two are equal, none is `taken`, and the order of the documents
/// does not matter, so that the next run with these manifests sees the same.
pub(super) fn on_host(origins: &[Origin], taken: &BTreeSet<u16>) -> Vec<u16> {
    let mut order: Vec<usize> = (0..origins.len()).collect();
    order.sort_by_key(|index| &origins[*index]);
    let (mut taken, mut ports) = (taken.clone(), vec![0; origins.len()]);
    let range = ON_HOST.end - ON_HOST.start;
    for index in order {
        let first = u16::try_from(origins[index].number() % u64::from(range)).unwrap_or_default();
        let mut in_turn = (0..range).map(|next| ON_HOST.start + (first + next) % range);
        // None is left: the system gives any.
        ports[index] = in_turn.find(|port| taken.insert(*port)).unwrap_or(0);
    }
    ports
}

/// The address of the diagnostics; `default` is the port on the host's network where nothing else says one.
pub(super) fn diagnostics(
    chosen: &mut Vec<Chosen>,
    found: &Found,
    default: u16,
    notes: &mut Vec<String>,
) -> SocketAddr {
    let probes = of_probes(chosen, found);
    let told = chosen.iter().find(|one| one.key == KEY).and_then(|one| one.value.as_str()?.parse().ok());
    let address = told.unwrap_or_else(|| {
        let (address, because) = free(&probes, found, default);
        if address.port() != 8080 {
            chosen.push(Chosen { key: KEY.to_owned(), value: json!(address.to_string()), because: because.clone() });
        }
        if uses_host_network(&found.workload.pod) {
            notes.extend(crowding(found));
            notes.push(format!(
                "the pod uses the host's network: the daemon listens on {address} of the node, {because}"
            ));
        }
        address
    });
    let mut closed = found.ports();
    closed.retain(|(_, port)| *port != address.port() && !probes.iter().any(|(_, at)| at.port() == *port));
    for (container, port) in closed {
        for other in found.naming(port) {
            notes.push(format!(
                "{other} names port {port} of {container}, which is closed: let it name port {} instead, as in kube-rbac-proxy's \
                 --upstream=http://127.0.0.1:{}/",
                address.port(),
                address.port()
            ));
        }
        notes.push(format!(
            "port {port} of {container} is closed: its metrics are at port {} now, for the Services, ServiceMonitors and \
             NetworkPolicies that name it",
            address.port()
        ));
    }
    address
}

/// A declared port is the node's on the host's network, so that a node takes one such pod. Where the pod had no port before, a
/// roll-out that starts the new pod beside the old one may find no node.
fn crowding(found: &Found) -> Option<String> {
    let workload = &found.workload;
    let is_new = found.workload.containers().iter().all(|container| container.get("ports").is_none());
    (is_new && workload.kind == "Deployment" && !workload.ends_before_it_begins).then(|| {
        "the pod declared no port of the node before: from now on each node takes one pod of it, so a roll-out needs a node that has \
         none, or spec.strategy.rollingUpdate with maxSurge: 0 and maxUnavailable: 1"
            .to_owned()
    })
}

/// Where the roles answer probes.
fn of_probes(chosen: &[Chosen], found: &Found) -> Vec<(&'static ProbePort, SocketAddr)> {
    let ports = found.sources.iter().flat_map(|source| source.sidecar.probes);
    let address = |port: &ProbePort| {
        let told = chosen.iter().find(|one| one.key == port.key).and_then(|one| one.value.as_str()?.parse().ok());
        told.or_else(|| Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port.usual?))))
    };
    ports.filter_map(|port| Some((port, address(port)?))).collect()
}

/// A port that nothing else has, and why this one.
fn free(probes: &[(&ProbePort, SocketAddr)], found: &Found, default: u16) -> (SocketAddr, String) {
    let anywhere = |port: u16| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    if !uses_host_network(&found.workload.pod) {
        let mut taken = found.taken_ports();
        taken.extend(probes.iter().map(|(_, address)| address.port()));
        let port = (8080..8180).find(|port| !taken.contains(port)).unwrap_or(0);
        return (anywhere(port), "port 8080 is in use in this pod".to_owned());
    }
    // A node has each port once, and another driver's pod may have 8080.
    if let Some((port, address)) = probes.iter().find(|(port, _)| port.is_shared) {
        return (*address, format!("together with {}: the node needs no further port", port.key));
    }
    let because = "a port that follows from the names of the driver and of the workload, so that two pods on a node differ: nothing else \
                   on your nodes may have it";
    (anywhere(default), because.to_owned())
}

#[cfg(test)]
mod tests {
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
            assert!(outcome.report.notes.iter().any(|told| told.contains(&note)), "{:#?}", outcome.report.notes);
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
        assert_eq!(
            on_host(&[first], &taken),
            [port(&all[2]) + 2],
            "what a pod of the manifests has is not given again"
        );
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
            assert!(outcome.report.notes.iter().any(|note| note.contains(&told)), "{:#?}", outcome.report.notes);
            let declared = format!("containerPort: {}", address.strip_prefix("[::]:").unwrap());
            assert!(outcome.files.unwrap().workload.contains(&declared), "{address}");
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
            let port: u16 = address.strip_prefix("[::]:").unwrap().parse().unwrap();
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
        let told: Vec<_> = notes.iter().filter(|note| note.starts_with("proxy names port")).collect();
        assert_eq!(told.len(), 1, "{notes:#?}");
        assert!(told[0].contains("port 8091 of a, which is closed: let it name port 8090 instead"), "{told:?}");
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
        let told = |pod: &str, driver: &str| {
            let text = format!(
                "kind: Deployment\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  replicas: 2\n  template:\n    spec:\n{pod}      \
                 containers:\n      - {{name: driver, image: x/driver{driver}}}\n      - {{name: a, image: \"x/csi-attacher:v4.12.0\", \
                 args: [--csi-address=/csi/s, --leader-election]}}\n"
            );
            let manifests = vec![Manifest { name: "d.yaml".to_owned(), text }];
            let outcome = migrate(&Wanted { manifests, driver: Some("a.b".to_owned()), ..Wanted::default() });
            outcome.report.notes.iter().any(|note| note.contains("each node takes one pod of it"))
        };
        assert!(told(HOST_NETWORK, ""));
        assert!(!told(HOST_NETWORK, ", ports: [{containerPort: 9808}]"), "one pod a node, before as after");
        assert!(!told("", ""));
    }

    #[test]
    fn a_pod_with_a_network_of_its_own_keeps_8080_and_the_port_of_the_probe_is_not_closed() {
        let outcome = moved("", Some(""), "disk.example.com");
        assert_eq!(listen(&outcome), None, "the default");
        assert!(!outcome.report.notes.iter().any(|note| note.contains("is closed")), "{:#?}", outcome.report.notes);
        let outcome = moved("", Some(", --health-port=8080"), "disk.example.com");
        assert_eq!(listen(&outcome).as_deref(), Some("[::]:8081"), "a port is one role's");
    }
}
