//! The port of the daemon's diagnostics, which must be free in the pod, or on the node if the pod uses the host's network. Pure.

use std::net::{Ipv6Addr, SocketAddr};

use serde_json::json;

use crate::config::sidecar::ProbePort;

use super::container::uses_host_network;
use super::found::Found;
use super::settle::Chosen;

/// The key.
const KEY: &str = "diagnostics.listen";
/// The ports for pods on the host's network: below those that Linux and Kubernetes hand out (30000 and more), and few programs'.
const ON_HOST: std::ops::Range<u16> = 18000..19000;

/// The address of the diagnostics.
pub(super) fn diagnostics(
    chosen: &mut Vec<Chosen>,
    found: &Found,
    driver: &str,
    notes: &mut Vec<String>,
) -> SocketAddr {
    let probes = of_probes(chosen, found);
    let told = chosen.iter().find(|one| one.key == KEY).and_then(|one| one.value.as_str()?.parse().ok());
    let address = told.unwrap_or_else(|| {
        let (address, because) = free(&probes, found, driver);
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
fn free(probes: &[(&ProbePort, SocketAddr)], found: &Found, driver: &str) -> (SocketAddr, String) {
    let anywhere = |port: u16| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let mut taken = found.taken_ports();
    taken.extend(probes.iter().map(|(_, address)| address.port()));
    if !uses_host_network(&found.workload.pod) {
        let port = (8080..8180).find(|port| !taken.contains(port)).unwrap_or(0);
        return (anywhere(port), "port 8080 is in use in this pod".to_owned());
    }
    // A node has each port once, and another driver's pod may have 8080.
    if let Some((port, address)) = probes.iter().find(|(port, _)| port.is_shared) {
        return (*address, format!("together with {}: the node needs no further port", port.key));
    }
    let range = ON_HOST.end - ON_HOST.start;
    let first = fnv(driver) % u64::from(range);
    let in_turn = (0..range).map(|next| ON_HOST.start + (u16::try_from(first).unwrap_or_default() + next) % range);
    let port = in_turn.into_iter().find(|port| !taken.contains(port)).unwrap_or(0);
    let because = "a port that follows from the driver's name, so that two drivers on a node differ: nothing else on your nodes may \
                   have it";
    (anywhere(port), because.to_owned())
}

/// FNV-1a: the same number on each machine and in each version.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::super::{Manifest, Outcome, Wanted, migrate};

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

    const ON_HOST: &str = "      hostNetwork: true\n";

    #[test]
    fn a_pod_on_the_hosts_network_shares_the_port_that_its_probe_had() {
        for (arguments, expected) in [
            ("", "[::]:9808"),
            (", --health-port=29603", "[::]:29603"),
            (", '--http-endpoint=127.0.0.1:29603'", "127.0.0.1:29603"),
        ] {
            let outcome = moved(ON_HOST, Some(arguments), "disk.example.com");
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

    #[test]
    fn two_drivers_on_the_hosts_network_get_two_ports_and_neither_is_8080() {
        let ports: Vec<_> = ["disk.example.com", "file.example.com", "disk.example.com"]
            .map(|driver| listen(&moved(ON_HOST, None, driver)).unwrap())
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
        assert!(told(ON_HOST, ""));
        assert!(!told(ON_HOST, ", ports: [{containerPort: 9808}]"), "one pod a node, before as after");
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
