//! Node `DaemonSet`s with the shape and the flags of public drivers: what becomes of their sidecars, and what a person must know.

use serde_json::{Value as Json, json};

use super::choice::NO_SIDECAR;
use super::*;
use crate::config::{self, File, Sources};
use crate::roles::sections;

/// A node's pod: what its sidecars are told, and what comes out.
struct Shape {
    driver: &'static str,
    /// Fields of the pod besides its containers.
    pod: &'static str,
    /// The driver's container, but for its name and image.
    container: &'static str,
    /// Image's name and tag, flags, and further fields of node-driver-registrar.
    registrar: (&'static str, &'static [&'static str], &'static str),
    /// The same of livenessprobe, if there is one.
    liveness: Option<(&'static str, &'static [&'static str], &'static str)>,
    /// The roles, but for an empty `liveness`.
    roles: fn() -> Json,
    /// `diagnostics.listen`, if it is not the default.
    listen: Option<&'static str>,
    /// Parts of notes.
    notes: &'static [&'static str],
}

const HOST: &str = "hostNetwork: true";
const LINUX: &str = "nodeSelector: {kubernetes.io/os: linux}";
const PROBE: &str = "lifecycle: null, livenessProbe: {exec: {command: [/csi-node-driver-registrar, --mode=kubelet-registration-probe]}}";
const EXEC: &str = "livenessProbe of registrar: it runs a program of the sidecar's image";
const NEEDLESS: &str = "the daemon removes its registration socket itself";

/// The registrar's section with this path.
fn path(path: &str) -> Json {
    json!({ "registrar": { "kubeletRegistrationPath": path } })
}

/// The same, and livenessprobe's.
fn both(registration: &str, liveness: Json) -> Json {
    let mut roles = path(registration);
    roles["liveness"] = liveness;
    roles
}

const SHAPES: &[Shape] = &[
    Shape {
        driver: "ebs.csi.aws.com",
        pod: LINUX,
        container: "ports: [{name: healthz, containerPort: 9808}], livenessProbe: {timeoutSeconds: 3, httpGet: {path: /healthz, port: healthz}}",
        registrar: (
            "csi-node-driver-registrar:v2.14.0-eksbuild.4",
            &["--csi-address=$(ADDRESS)", "--kubelet-registration-path=$(REG)", "--v=2"],
            "env: [{name: ADDRESS, value: /csi/csi.sock}, {name: REG, value: /var/lib/kubelet/plugins/ebs.csi.aws.com/csi.sock}], \
             livenessProbe: {exec: {command: [/csi-node-driver-registrar, --mode=kubelet-registration-probe]}}",
        ),
        liveness: Some(("livenessprobe:v2.16.0-eksbuild.4", &["--csi-address=/csi/csi.sock"], "")),
        roles: || both("/var/lib/kubelet/plugins/ebs.csi.aws.com/csi.sock", json!({ "probeTimeout": "1s" })),
        listen: None,
        notes: &[EXEC, NO_SIDECAR],
    },
    Shape {
        driver: "efs.csi.aws.com",
        pod: HOST,
        container: "ports: [{name: healthz, containerPort: 9809}], livenessProbe: {timeoutSeconds: 3, httpGet: {path: /healthz, port: healthz}}",
        registrar: (
            "node-driver-registrar:v2.5.1-eks-1-22-8",
            &[
                "--csi-address=/csi/csi.sock",
                "--kubelet-registration-path=/var/lib/kubelet/plugins/efs.csi.aws.com/csi.sock",
            ],
            "",
        ),
        liveness: Some(("livenessprobe:v2.7.0-eks-1-22-8", &["--csi-address=/csi/csi.sock", "--health-port=9809"], "")),
        roles: || {
            let liveness = json!({ "listen": "[::]:9809", "probeTimeout": "1s" });
            both("/var/lib/kubelet/plugins/efs.csi.aws.com/csi.sock", liveness)
        },
        listen: Some("[::]:9809"),
        notes: &["together with roles.liveness.listen"],
    },
    Shape {
        driver: "disk.csi.azure.com",
        pod: HOST,
        container: "ports: [{name: healthz, containerPort: 29603}, {name: metrics, containerPort: 29605}]",
        registrar: (
            "csi-node-driver-registrar:v2.2.0",
            &[
                "--csi-address=/csi/csi.sock",
                "--kubelet-registration-path=/var/lib/kubelet/plugins/disk.csi.azure.com/csi.sock",
            ],
            "lifecycle: {preStop: {exec: {command: [/bin/sh, -c, rm -rf /registration/disk.csi.azure.com-reg.sock /csi/csi.sock]}}}",
        ),
        liveness: Some((
            "livenessprobe:v2.3.0",
            &["--csi-address=/csi/csi.sock", "--probe-timeout=3s", "--health-port=29603", "--v=2"],
            "",
        )),
        roles: || {
            let liveness = json!({ "listen": "[::]:29603", "probeTimeout": "3s" });
            both("/var/lib/kubelet/plugins/disk.csi.azure.com/csi.sock", liveness)
        },
        listen: Some("[::]:29603"),
        notes: &[NEEDLESS, "rm -rf /registration/disk.csi.azure.com-reg.sock /csi/csi.sock"],
    },
    Shape {
        driver: "file.csi.azure.com",
        pod: HOST,
        container: "ports: [{name: healthz, containerPort: 29613}]",
        registrar: (
            "csi-node-driver-registrar:v2.10.1",
            &[
                "--csi-address=/csi/csi.sock",
                "--kubelet-registration-path=/var/lib/kubelet/plugins/file.csi.azure.com/csi.sock",
            ],
            PROBE,
        ),
        liveness: Some((
            "livenessprobe:v2.12.0",
            &["--csi-address=/csi/csi.sock", "--probe-timeout=10s", "--health-port=29613"],
            "",
        )),
        roles: || {
            let liveness = json!({ "listen": "[::]:29613", "probeTimeout": "10s" });
            both("/var/lib/kubelet/plugins/file.csi.azure.com/csi.sock", liveness)
        },
        listen: Some("[::]:29613"),
        notes: &[EXEC, "roles.liveness.probeTimeout is 10s"],
    },
    Shape {
        driver: "nfs.csi.k8s.io",
        pod: HOST,
        container: "livenessProbe: {timeoutSeconds: 10, httpGet: {host: localhost, path: /healthz, port: 29653}}",
        registrar: (
            "csi-node-driver-registrar:v2.11.0",
            &[
                "--v=2",
                "--csi-address=/csi/csi.sock",
                "--kubelet-registration-path=/var/lib/kubelet/plugins/csi-nfsplugin/csi.sock",
            ],
            PROBE,
        ),
        liveness: Some((
            "livenessprobe:v2.13.0",
            &["--csi-address=/csi/csi.sock", "--probe-timeout=3s", "--http-endpoint=localhost:29653"],
            "",
        )),
        roles: || {
            let liveness = json!({ "listen": "127.0.0.1:29653", "probeTimeout": "3s" });
            both("/var/lib/kubelet/plugins/csi-nfsplugin/csi.sock", liveness)
        },
        listen: Some("127.0.0.1:29653"),
        notes: &["together with roles.liveness.listen", NO_SIDECAR],
    },
    Shape {
        driver: "smb.csi.k8s.io",
        pod: LINUX,
        container: "ports: [{name: healthz, containerPort: 29642}]",
        registrar: (
            "csi-node-driver-registrar:v2.5.1",
            &[
                "--csi-address=/csi/csi.sock",
                "--kubelet-registration-path=/var/lib/kubelet/plugins/smb.csi.k8s.io/csi.sock",
            ],
            PROBE,
        ),
        liveness: Some((
            "livenessprobe:v2.7.0",
            &["--csi-address=/csi/csi.sock", "--probe-timeout=3s", "--health-port=29642"],
            "",
        )),
        roles: || {
            let liveness = json!({ "listen": "[::]:29642", "probeTimeout": "3s" });
            both("/var/lib/kubelet/plugins/smb.csi.k8s.io/csi.sock", liveness)
        },
        listen: None,
        notes: &[EXEC],
    },
    Shape {
        driver: "pd.csi.storage.gke.io",
        pod: HOST,
        container: "securityContext: {privileged: true}",
        registrar: (
            "csi-node-driver-registrar",
            &[
                "--v=5",
                "--csi-address=/csi/csi.sock",
                "--kubelet-registration-path=/var/lib/kubelet/plugins/pd.csi.storage.gke.io/csi.sock",
            ],
            "",
        ),
        liveness: None,
        roles: || path("/var/lib/kubelet/plugins/pd.csi.storage.gke.io/csi.sock"),
        listen: Some("127.0.0.1:18"),
        notes: &["a port that follows from the names of the driver", NO_SIDECAR],
    },
    Shape {
        driver: "cinder.csi.openstack.org",
        pod: HOST,
        container: "securityContext: {privileged: true}",
        registrar: (
            "csi-node-driver-registrar:v1.1.0",
            &[
                "--v=5",
                "--csi-address=/csi/csi.sock",
                "--kubelet-registration-path=/var/lib/kubelet/plugins/cinder.csi.openstack.org/csi.sock",
            ],
            "lifecycle: {preStop: {exec: {command: [/bin/sh, -c, rm -rf /registration/cinder.csi.openstack.org-reg.sock]}}}",
        ),
        liveness: None,
        roles: || path("/var/lib/kubelet/plugins/cinder.csi.openstack.org/csi.sock"),
        listen: Some("127.0.0.1:18"),
        notes: &[NEEDLESS],
    },
    Shape {
        driver: "rbd.csi.ceph.com",
        pod: HOST,
        container: "ports: [{containerPort: 8680}]",
        registrar: (
            "csi-node-driver-registrar:v2.11.1",
            &[
                "--v=1",
                "--csi-address=/csi/csi.sock",
                "--kubelet-registration-path=/var/lib/kubelet/plugins/rbd.csi.ceph.com/csi.sock",
            ],
            "securityContext: {privileged: true, allowPrivilegeEscalation: true}",
        ),
        liveness: None,
        roles: || path("/var/lib/kubelet/plugins/rbd.csi.ceph.com/csi.sock"),
        listen: Some("127.0.0.1:18"),
        notes: &["the sidecars ran as the user of their images, root"],
    },
    Shape {
        driver: "secrets-store.csi.k8s.io",
        pod: LINUX,
        container: "ports: [{name: healthz, containerPort: 9808}, {name: metrics, containerPort: 8095}]",
        registrar: (
            "csi-node-driver-registrar:v2.3.0",
            &[
                "--csi-address=/csi/csi.sock",
                "--kubelet-registration-path=/var/lib/kubelet/plugins/csi-secrets-store/csi.sock",
            ],
            PROBE,
        ),
        liveness: Some((
            "livenessprobe:v2.4.0",
            &["--csi-address=/csi/csi.sock", "--probe-timeout=3s", "--http-endpoint=0.0.0.0:9808", "-v=2"],
            "",
        )),
        roles: || {
            let liveness = json!({ "listen": "[::]:9808", "probeTimeout": "3s" });
            both("/var/lib/kubelet/plugins/csi-secrets-store/csi.sock", liveness)
        },
        listen: None,
        notes: &[EXEC],
    },
    Shape {
        driver: "csi.vsphere.vmware.com",
        pod: HOST,
        container: "ports: [{name: healthz, containerPort: 9808}], livenessProbe: {timeoutSeconds: 5, httpGet: {path: /healthz, port: healthz}}",
        registrar: (
            "csi-node-driver-registrar:v2.3.0",
            &[
                "--csi-address=/csi/csi.sock",
                "--kubelet-registration-path=/var/lib/kubelet/plugins/csi.vsphere.vmware.com/csi.sock",
            ],
            PROBE,
        ),
        liveness: Some(("livenessprobe:v2.4.0", &["--v=4", "--csi-address=/csi/csi.sock"], "")),
        roles: || both("/var/lib/kubelet/plugins/csi.vsphere.vmware.com/csi.sock", json!({ "probeTimeout": "1s" })),
        listen: Some("[::]:9808"),
        notes: &["together with roles.liveness.listen"],
    },
    Shape {
        driver: "csi.hetzner.cloud",
        pod: "tolerations: [{operator: Exists}]",
        container: "ports: [{name: healthz, containerPort: 9808}], livenessProbe: {timeoutSeconds: 3, httpGet: {path: /healthz, port: healthz}}",
        registrar: (
            "csi-node-driver-registrar:v2.15.0",
            &["--kubelet-registration-path=/var/lib/kubelet/plugins/csi.hetzner.cloud/socket"],
            "resources: {limits: {}, requests: {}}",
        ),
        liveness: Some(("livenessprobe:v2.17.0", &[], "")),
        roles: || path("/var/lib/kubelet/plugins/csi.hetzner.cloud/socket"),
        listen: None,
        notes: &["the kubelet hangs up after 3s"],
    },
    Shape {
        driver: "dobs.csi.digitalocean.com",
        pod: HOST,
        container: "securityContext: {privileged: true}",
        registrar: (
            "csi-node-driver-registrar:v2.8.0",
            &["--v=5", "--csi-address=$(ADDRESS)", "--kubelet-registration-path=$(REG)"],
            "env: [{name: ADDRESS, value: /csi/csi.sock}, {name: REG, value: /var/lib/kubelet/plugins/dobs.csi.digitalocean.com/csi.sock}]",
        ),
        liveness: None,
        roles: || path("/var/lib/kubelet/plugins/dobs.csi.digitalocean.com/csi.sock"),
        listen: Some("127.0.0.1:18"),
        notes: &[NO_SIDECAR],
    },
    Shape {
        driver: "driver.longhorn.io",
        pod: LINUX,
        container: "livenessProbe: {timeoutSeconds: 4, httpGet: {path: /healthz, port: 9808}}",
        registrar: (
            "csi-node-driver-registrar:v2.13.0",
            &[
                "--v=2",
                "--csi-address=/csi/csi.sock",
                "--kubelet-registration-path=/var/lib/kubelet/plugins/driver.longhorn.io/csi.sock",
            ],
            "",
        ),
        liveness: Some(("livenessprobe:v2.15.0", &["--v=4", "--csi-address=/csi/csi.sock", "--probe-timeout=4s"], "")),
        roles: || both("/var/lib/kubelet/plugins/driver.longhorn.io/csi.sock", json!({ "probeTimeout": "4s" })),
        listen: None,
        notes: &["timeoutSeconds: 4 and roles.liveness.probeTimeout is 4s"],
    },
    Shape {
        driver: "zfs.csi.openebs.io",
        pod: HOST,
        container: "securityContext: {privileged: true}",
        registrar: (
            "csi-node-driver-registrar:v2.13.0",
            &[
                "--v=5",
                "--csi-address=/plugin/csi.sock",
                "--kubelet-registration-path=/var/lib/kubelet/plugins/zfs-localpv/csi.sock",
            ],
            "",
        ),
        liveness: None,
        roles: || path("/var/lib/kubelet/plugins/zfs-localpv/csi.sock"),
        listen: Some("127.0.0.1:18"),
        notes: &[NO_SIDECAR],
    },
    Shape {
        driver: "hostpath.csi.k8s.io",
        pod: LINUX,
        container: "ports: [{name: healthz, containerPort: 9898}], livenessProbe: {timeoutSeconds: 3, httpGet: {path: /healthz, port: healthz}}",
        registrar: (
            "csi-node-driver-registrar:v2.13.0",
            &[
                "--csi-address=/csi/csi.sock",
                "--kubelet-registration-path=/data/kubelet/plugins/csi-hostpath/csi.sock",
                "--plugin-registration-path=/registry",
                "--http-endpoint=:9809",
                "--timeout=10s",
                "--enable-pprof=false",
            ],
            "",
        ),
        liveness: Some(("livenessprobe:v2.15.0", &["--csi-address=/csi/csi.sock", "--health-port=9898"], "")),
        roles: || {
            json!({
                "registrar": {
                    "kubeletRegistrationPath": "/data/kubelet/plugins/csi-hostpath/csi.sock",
                    "directory": "/registry", "healthListen": "[::]:9809",
                },
                "liveness": { "listen": "[::]:9898", "probeTimeout": "1s" },
            })
        },
        listen: None,
        notes: &[NO_SIDECAR],
    },
];

impl Shape {
    fn manifest(&self) -> String {
        let Self { driver, pod, container, .. } = self;
        let sidecar = |name: &str, (image, flags, fields): &(&str, &[&str], &str)| {
            let flags = json!(flags);
            let comma = if fields.is_empty() { "" } else { ", " };
            format!(
                "      - {{name: {name}, image: \"x.example/{image}\", args: {flags}{comma}{fields}, volumeMounts: [{{name: socket, mountPath: \
                 /csi}}]}}\n"
            )
        };
        let registrar = sidecar("registrar", &self.registrar);
        let liveness = self.liveness.as_ref().map(|liveness| sidecar("liveness", liveness)).unwrap_or_default();
        format!(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: node, namespace: storage}}\nspec:\n  template:\n    spec:\n      \
             {pod}\n      containers:\n      - {{name: driver, image: x.example/{driver}:v1, {container}}}\n{registrar}{liveness}      \
             volumes:\n      - {{name: socket, hostPath: {{path: /p}}}}\n"
        )
    }

    fn moved(&self, manifest: String) -> Outcome {
        let manifests = vec![Manifest { name: "node.yaml".to_owned(), text: manifest }];
        migrate(&Wanted { manifests, driver: Some(self.driver.to_owned()), ..Wanted::default() })
    }
}

#[test]
fn the_node_plugins_of_public_drivers_move_with_their_flags_and_notes() {
    assert!(SHAPES.len() >= 15);
    for shape in SHAPES {
        let Outcome { report, files } = shape.moved(shape.manifest());
        let driver = shape.driver;
        let files = files.unwrap_or_else(|| panic!("{driver}: {}\n{}", report.faults_text(), shape.manifest()));
        let config: Json = serde_yaml::from_str(&files.config).unwrap();
        let mut roles = config["roles"].clone();
        if roles["liveness"].as_object().is_none_or(serde_json::Map::is_empty) {
            roles.as_object_mut().unwrap().remove("liveness");
        }
        assert_eq!(roles, (shape.roles)(), "{driver}");
        let listen = config.pointer("/diagnostics/listen").and_then(Json::as_str);
        let is_expected = match (listen, shape.listen) {
            (Some(found), Some(expected)) => found.starts_with(expected),
            (found, expected) => found == expected,
        };
        assert!(is_expected, "{driver}: {listen:?}");
        for part in shape.notes {
            assert!(report.notes.texts().any(|note| note.contains(part)), "{driver}: {part}: {:#?}", report.notes);
        }
        assert_eq!(files.rbac, "", "{driver}: no rights");
        let loaded = config::load(
            &Sources { file: Some(File { name: "c".to_owned(), text: files.config }), ..Sources::default() },
            &sections(),
        );
        assert!(loaded.is_ok(), "{driver}");
        let pod: serde_yaml::Value = serde_yaml::from_str(&files.workload).unwrap();
        let containers = pod["spec"]["template"]["spec"]["containers"].as_sequence().unwrap();
        let names: Vec<_> = containers.iter().map(|container| container["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["driver", "csi-control-plane"], "{driver}");
    }
}

#[test]
fn two_drivers_in_one_pod_are_two_daemons_work() {
    let [one, two] = [&SHAPES[0], &SHAPES[2]];
    let (_, second) =
        two.manifest().split_once("      - {name: registrar").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let second = second
        .lines()
        .next()
        .unwrap()
        .replace("/csi/csi.sock", "/other/csi.sock")
        .replace("mountPath: /csi", "mountPath: /other");
    let second = second.replace("name: socket, mountPath", "name: other, mountPath");
    let manifest =
        one.manifest().replace("      volumes:\n", &format!("      - {{name: registrar-2{second}\n      volumes:\n"));
    let Outcome { report, files } = one.moved(manifest);
    assert!(files.is_none());
    let told = report.faults_text();
    assert!(told.contains("csi.endpoint") && told.contains("one socket: a daemon serves one driver"), "{told}");
}
