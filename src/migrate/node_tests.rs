//! The `DaemonSet` of a driver's node plugin.

use super::report::FlagFate;
use super::*;

const NODE: &str = r"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: demo-node, namespace: storage}
spec:
  template:
    spec:
      containers:
        - name: driver
          image: example.com/demo-driver:v1
          livenessProbe: {httpGet: {path: /healthz, port: 9898}}
        - name: node-driver-registrar
          image: registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.17.0
          args:
            - --csi-address=/csi/csi.sock
            - --kubelet-registration-path=/var/lib/kubelet/plugins/demo/csi.sock
            - --mode=registration
          livenessProbe:
            exec:
              command:
                - /csi-node-driver-registrar
                - --kubelet-registration-path=/var/lib/kubelet/plugins/demo/csi.sock
                - --mode=kubelet-registration-probe
          volumeMounts:
            - {name: socket, mountPath: /csi}
            - {name: registry, mountPath: /registration}
        - name: liveness-probe
          image: registry.k8s.io/sig-storage/livenessprobe:v2.19.0
          args: [--csi-address=/csi/csi.sock, --health-port=9898, --probe-timeout=10s]
          volumeMounts:
            - {name: socket, mountPath: /csi}
      volumes:
        - {name: socket, hostPath: {path: /var/lib/kubelet/plugins/demo}}
        - {name: registry, hostPath: {path: /var/lib/kubelet/plugins_registry}}
";

fn outcome() -> Outcome {
    let driver = Some("demo.csi".to_owned());
    migrate(&Wanted {
        manifests: vec![Manifest { name: "node.yaml".to_owned(), text: NODE.to_owned() }],
        driver,
        ..Wanted::default()
    })
}

#[test]
fn both_sidecars_of_a_node_become_roles_with_their_flags_and_without_rights() {
    let Outcome { report, files } = outcome();
    let files = files.unwrap_or_else(|| panic!("{}", report.faults_text()));
    let config: serde_json::Value = serde_yaml::from_str(&files.config).unwrap();
    assert_eq!(config["roles"]["liveness"], json!({ "listen": "[::]:9898", "probeTimeout": "10s" }));
    let path = "/var/lib/kubelet/plugins/demo/csi.sock";
    assert_eq!(config["roles"]["registrar"], json!({ "kubeletRegistrationPath": path }));
    assert_eq!(config["csi"]["endpoint"], "/csi/csi.sock");
    assert_eq!(files.rbac, "", "no rights");
    let notes = report.notes.join("\n");
    assert!(!notes.contains("leader election") && notes.contains("probeTimeout is 10s"), "{notes}");
    assert!(files.workload.contains("mountPath: /registration") && !files.workload.contains("liveness-probe"));
}

#[test]
fn n10_an_exec_probe_of_the_registrar_goes_with_it_and_the_flag_says_so() {
    let Outcome { report, files } = outcome();
    let workload = files.unwrap().workload;
    assert!(!workload.contains("kubelet-registration-probe") && workload.contains("path: /livez"), "{workload}");
    let note = |note: &&String| note.starts_with("livenessProbe of node-driver-registrar");
    assert!(report.notes.iter().find(note).unwrap().contains("goes with it"));
    let mut lines = report.containers.iter().flat_map(|container| &container.flags);
    let mode = lines.find(|line| line.given == "--mode=registration").unwrap();
    assert_eq!(mode.fate, FlagFate::Dropped);
    assert!(mode.note.contains("always succeeds"), "{}", mode.note);
}
