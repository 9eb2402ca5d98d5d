//! The `DaemonSet` of a driver's node plugin.

use serde_json::json;

use super::choice::NO_SIDECAR;
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
    outcome_of(NODE)
}

fn outcome_of(text: &str) -> Outcome {
    let driver = Some("demo.csi".to_owned());
    migrate(&Wanted {
        manifests: vec![Manifest { name: "node.yaml".to_owned(), text: text.to_owned() }],
        driver,
        ..Wanted::default()
    })
}

/// The manifest with one text in place of another.
fn with(old: &str, new: &str) -> String {
    assert!(NODE.contains(old), "{old}");
    NODE.replacen(old, new, 1)
}

fn config(outcome: &Outcome) -> serde_json::Value {
    let files = outcome.files.as_ref().unwrap_or_else(|| panic!("{}", outcome.report.faults_text()));
    serde_yaml::from_str(&files.config).unwrap()
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
    let notes = report.notes.texts().collect::<Vec<_>>().join("\n");
    assert!(!notes.contains("leader election") && notes.contains("probeTimeout is 10s"), "{notes}");
    assert!(files.workload.contains("mountPath: /registration") && !files.workload.contains("liveness-probe"));
}

#[test]
fn n10_an_exec_probe_of_the_registrar_goes_with_it_and_the_flag_says_so() {
    let Outcome { report, files } = outcome();
    let workload = files.unwrap().workload;
    assert!(!workload.contains("kubelet-registration-probe") && workload.contains("path: /livez"), "{workload}");
    let note = |note: &&str| note.starts_with("livenessProbe of node-driver-registrar");
    assert!(report.notes.texts().find(note).unwrap().contains("goes with it"));
    let mut lines = report.containers.iter().flat_map(|container| &container.flags);
    let mode = lines.find(|line| line.given == "--mode=registration").unwrap();
    assert_eq!(mode.fate, FlagFate::Dropped);
    assert!(mode.note.contains("always succeeds"), "{}", mode.note);
}

#[test]
fn a_hook_that_runs_a_program_goes_because_the_image_has_none_and_others_stay() {
    let image = "          image: registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.17.0\n";
    let hooked = |hooks: &str| outcome_of(&with(image, &format!("{image}          lifecycle: {hooks}\n")));
    let Outcome { report, files } = hooked(
        "{preStop: {exec: {command: [/bin/sh, -c, rm -rf /registration/demo-reg.sock /csi/csi.sock]}}, postStart: {exec: {command: \
         [touch, /x]}}}",
    );
    let workload = files.unwrap().workload;
    assert!(!workload.contains("lifecycle") && !workload.contains("rm -rf"), "{workload}");
    let notes = report.notes.texts().collect::<Vec<_>>().join("\n");
    for expected in [
        "lifecycle.preStop of node-driver-registrar is dropped: it runs `/bin/sh -c rm -rf /registration/demo-reg.sock /csi/csi.sock`",
        "the daemon removes its registration socket itself",
        "lifecycle.postStart of node-driver-registrar is dropped: it runs `touch /x`",
        "do it in another container",
    ] {
        assert!(notes.contains(expected), "{expected}: {notes}");
    }
    let Outcome { report, files } = hooked("{preStop: {sleep: {seconds: 5}}}");
    assert!(files.unwrap().workload.contains("seconds: 5"));
    assert!(report.notes.texts().any(|note| note == "lifecycle.preStop of node-driver-registrar is kept"));
}

#[test]
fn nothing_is_replaced_in_pods_of_windows_nodes_and_the_report_says_why() {
    let containers = "      containers:\n";
    let affinity = "      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: \
                    [{key: kubernetes.io/os, operator: In, values: [windows]}]}]}}}\n";
    for windows in [
        "      nodeSelector: {kubernetes.io/os: windows}\n",
        "      nodeSelector: {beta.kubernetes.io/os: windows}\n",
        "      os: {name: windows}\n",
        "      securityContext: {windowsOptions: {hostProcess: true}}\n",
        affinity,
    ] {
        let text = with(containers, &format!("{windows}{containers}"));
        let Outcome { report, files } = outcome_of(&text);
        assert!(files.is_none());
        let reason = "its pods run on Windows nodes, and the daemon runs on Linux only";
        assert!(
            report.faults_text().contains(&format!("DaemonSet storage/demo-node: {reason}")),
            "{}",
            report.faults_text()
        );
        assert!(report.containers.iter().all(|container| container.kept.as_deref() == Some(reason)), "{windows}");

        // Beside the Linux nodes' pods it is not the one to be chosen.
        let both = format!("{}---{NODE}", text.replace("demo-node", "demo-node-windows"));
        let Outcome { report, files } = outcome_of(&both);
        assert!(files.is_some(), "{}", report.faults_text());
        assert_eq!(report.workload.as_deref(), Some("DaemonSet storage/demo-node"));
    }
    let linux = with(containers, &format!("      nodeSelector: {{kubernetes.io/os: linux}}\n{containers}"));
    assert!(outcome_of(&linux).files.is_some());
}

#[test]
fn the_limit_of_an_old_livenessprobe_is_kept_and_a_probe_that_is_less_patient_is_told_of() {
    let limit = |version: &str, flag: &str| {
        let text =
            with("livenessprobe:v2.19.0", &format!("livenessprobe:{version}")).replace(", --probe-timeout=10s", flag);
        config(&outcome_of(&text))
            .pointer("/roles/liveness/probeTimeout")
            .and_then(serde_json::Value::as_str)
            .map(str::to_owned)
    };
    assert_eq!(limit("v2.16.0", "").as_deref(), Some("1s"), "as it was before v2.17");
    assert_eq!(limit("v2.17.0", ""), None, "the default");
    assert_eq!(limit("v2.9.0", ", --probe-timeout=5s").as_deref(), Some("5s"));

    let probe = "livenessProbe: {httpGet: {path: /healthz, port: 9898}}";
    let told = |new: &str| {
        let notes = outcome_of(&with(probe, new)).report.notes;
        notes.texts().find(|note| note.starts_with("the livenessProbe of driver has timeoutSeconds")).map(str::to_owned)
    };
    let note = told(probe).unwrap();
    assert!(note.contains("timeoutSeconds: 1 and roles.liveness.probeTimeout is 10s"), "{note}");
    let named = "ports: [{containerPort: 9898, name: healthz}]\n          \
                 livenessProbe: {timeoutSeconds: 10, httpGet: {path: /healthz, port: healthz}}";
    assert!(told(named).unwrap().contains("timeoutSeconds: 10 "), "a port by its name");
    assert_eq!(told("livenessProbe: {timeoutSeconds: 11, httpGet: {path: /healthz, port: 9898}}"), None);
    assert_eq!(told("livenessProbe: {httpGet: {path: /healthz, port: 80}}"), None, "another port is another program's");
}

#[test]
fn a_pod_without_go_sidecars_is_told_of_and_one_with_such_is_not() {
    let is_told = |text: &str| outcome_of(text).report.notes.texts().any(|note| note == NO_SIDECAR);
    assert!(is_told(NODE));
    let volumes = "      volumes:\n";
    let metadata = "        - {name: m, image: x/csi-snapshot-metadata:v0.1.0, args: [--csi-address=/csi/csi.sock]}\n";
    assert!(!is_told(&with(volumes, &format!("{metadata}{volumes}"))));
}
