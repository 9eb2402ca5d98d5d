use super::super::{Outcome, Wanted, migrate};

/// A workload of this kind with a csi-provisioner that has these arguments besides.
fn report(kind: &str, arguments: &str) -> super::super::Report {
    let text = format!(
        "kind: {kind}\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  replicas: 1\n  template:\n    spec:\n      containers:\n      \
         - name: csi-provisioner\n        image: x/csi-provisioner:v6\n        args: [--csi-address=/csi/s{arguments}]\n"
    );
    let manifests = vec![crate::migrate::Manifest { name: "d.yaml".to_owned(), text }];
    let wanted = Wanted { manifests, driver: Some("disk.example.com".to_owned()), ..Wanted::default() };
    let (printed, told) = (migrate(&wanted), migrate(&Wanted { folder: Some("m".to_owned()), ..wanted }));
    assert!(told.files.is_some(), "{}", told.report.faults_text());
    assert_eq!(printed.report.notes, told.report.notes, "with files and without");
    told.report
}

/// The steps on the way back of a csi-provisioner of this image.
fn back(image: &str, arguments: &str) -> Vec<String> {
    let text = format!(
        "kind: Deployment\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  replicas: 1\n  template:\n    spec:\n      containers:\n      \
         - name: p\n        image: \"x/{image}\"\n        args: [--csi-address=/csi/s{arguments}]\n"
    );
    let manifests = vec![crate::migrate::Manifest { name: "d.yaml".to_owned(), text }];
    let driver = Some("disk.example.com".to_owned());
    let Outcome { report, files } =
        migrate(&Wanted { manifests, driver, folder: Some("m".to_owned()), ..Wanted::default() });
    assert!(files.is_some(), "{}", report.faults_text());
    let begins = report.next.iter().position(|step| step.starts_with("to go back")).unwrap();
    report.next[begins + 1..].iter().map(|step| step.trim().to_owned()).collect()
}

#[test]
fn the_way_back_waits_for_the_journal_and_deletes_its_objects_of_roles_that_have_one() {
    let steps = back("csi-provisioner:v5.0.0", ", --leader-election");
    let expected = [
        "# until the journal is empty: csi-provisioner does not read it, and the volume that the driver is creating for a deleted \
         claim would be leaked",
        "until kubectl get configmap -n n -l csi-control-plane.io/journal=disk.example.com -o json | jq -e '([.items[].data // {} | \
         length] | add // 0) == 0'; do sleep 5; done",
        "kubectl replace --save-config -f m/original.yaml",
        "kubectl rollout status -n n deployment/d",
        "# until no pod of the daemon is left: one that ends needs its rights and its journal",
        "until kubectl get pods -n n -o json | jq -e 'any(.items[] | select(.status.phase != \"Succeeded\" and .status.phase != \"Failed\").spec.volumes[]?; .configMap.name == \"d-csi-control-plane\") | not'; \
         do sleep 5; done",
        "kubectl delete -f m/configmap.yaml -f m/bindings.yaml -f m/rbac.yaml",
        "kubectl get configmap -n n -l csi-control-plane.io/journal=disk.example.com -o json | jq '.items |= map(select((.data // {}) == \
         {}))' | kubectl delete -f - # one with entries stays: move over again, and back later",
    ];
    assert_eq!(steps, expected);
    let label = crate::cluster::names::LABEL_JOURNAL;
    assert!(steps[1].contains(&format!(" {label}=")), "{label}");
    for image in ["csi-attacher:v4.12.0", "csi-resizer:v2.0.0", "csi-snapshotter:v8.7.0"] {
        let steps = back(image, ", --leader-election");
        assert_eq!(steps, expected.map(str::to_owned)[2..7], "{image}");
    }
}

#[test]
fn leases_that_no_sidecar_has_held_are_deleted_on_the_way_back() {
    let delete = "kubectl delete lease -n n --ignore-not-found";
    for (image, arguments, lease) in [
        ("csi-attacher:v4.12.0", "", Some("external-attacher-leader-disk-example-com")),
        ("csi-attacher:v4.12.0", ", --leader-election", None),
        ("csi-resizer:v2.0.0", "", Some("external-resizer-disk-example-com")),
        ("csi-provisioner:v5.0.0", "", Some("disk-example-com")),
        ("csi-provisioner:v1.6.0", ", --enable-leader-election", Some("disk-example-com")),
    ] {
        let steps = back(image, arguments);
        let found: Vec<&String> = steps.iter().filter(|step| step.starts_with("kubectl delete lease")).collect();
        let expected = lease.map(|lease| format!("{delete} {lease}"));
        assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{image}{arguments}: {steps:#?}");
    }
}

#[test]
fn a_finalizer_that_an_old_provisioner_would_leave_for_ever_is_removed_on_the_way_back() {
    let on = ", --feature-gates=HonorPVReclaimPolicy=true";
    for (tag, gate, expected) in [
        // Off, as it was by default there: the daemon puts none on.
        ("v1.6.0", "", false),
        ("v3.0.0", "", false),
        ("v3", "", false),
        ("v3.0.0", on, true),
        ("canary", "", true),
        ("canary", ", --feature-gates=HonorPVReclaimPolicy=false", false),
        ("v3.1.0", on, false),
        ("v4.0.1", on, false),
        ("v5.0.0", "", false),
    ] {
        let steps = back(&format!("csi-provisioner:{tag}"), &format!(", --leader-election{gate}"));
        let last = steps.last().unwrap();
        let finalizer = crate::cluster::names::FINALIZER_PROVISIONER;
        let removes = last.contains(&format!(".metadata.finalizers -= [\"{finalizer}\"]"));
        assert_eq!(removes, expected, "{tag}: {steps:#?}");
        if removes {
            assert!(last.contains("select((.spec.csi.driver == \"disk.example.com\" or "), "{last}");
            assert!(steps[steps.len() - 2].starts_with("# csi-provisioner before v3.1 never removes"), "{steps:#?}");
        }
    }
}

#[test]
fn what_is_served_elsewhere_gets_its_rights_there() {
    let text = "kind: Deployment\nmetadata: {name: d, namespace: hosting}\nspec:\n  replicas: 1\n  template:\n    spec:\n      \
                containers:\n      - name: p\n        image: \"x/csi-provisioner:v5.0.0\"\n        args: [--csi-address=/csi/s, \
                --leader-election, --kubeconfig=/etc/served/kubeconfig, --leader-election-namespace=drivers]\n        env: [{name: \
                KUBECONFIG, value: /other}, {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]\n";
    let moved = |text: &str| {
        let manifests = vec![crate::migrate::Manifest { name: "d.yaml".to_owned(), text: text.to_owned() }];
        let driver = Some("disk.example.com".to_owned());
        migrate(&Wanted { manifests, driver, folder: Some("m".to_owned()), ..Wanted::default() })
    };
    let Outcome { report, files } = moved(text);
    let files = files.unwrap_or_else(|| panic!("{}", report.faults_text()));
    assert!(files.config.contains("kubeconfig: /etc/served/kubeconfig"), "{}", files.config);
    assert!(files.config_map.contains("  namespace: hosting\n"), "{}", files.config_map);
    let workload: serde_json::Value = serde_yaml::from_str(&files.workload).unwrap();
    let env = workload.pointer("/spec/template/spec/containers/0/env").unwrap().as_array().unwrap();
    let variable = |name: &str| env.iter().find(|one| one["name"] == name);
    assert_eq!(variable("POD_NAMESPACE").unwrap()["value"], "drivers", "the journal is in the served cluster");
    assert_eq!(variable("KUBECONFIG"), None);
    assert!(!files.rbac.contains("hosting") && files.rbac.contains("namespace: drivers"), "{}", files.rbac);
    assert!(files.bindings.contains("kind: User\n    name: USER"), "{}", files.bindings);
    assert!(!files.bindings.contains("ServiceAccount"), "{}", files.bindings);
    let steps: Vec<&str> = report.next.iter().map(|step| step.trim()).collect();
    for expected in [
        "2. kubectl apply -f m/configmap.yaml",
        "# SERVED is a copy of the file that the pod has at /etc/served/kubeconfig",
        "kubectl --kubeconfig SERVED auth whoami",
        "kubectl --kubeconfig SERVED apply -f m/rbac.yaml -f m/bindings.yaml",
        "kubectl delete -f m/configmap.yaml",
        "kubectl --kubeconfig SERVED delete -f m/bindings.yaml -f m/rbac.yaml",
        "until kubectl get pods -n hosting -o json | jq -e 'any(.items[] | select(.status.phase != \"Succeeded\" and .status.phase != \"Failed\").spec.volumes[]?; .configMap.name == \"d-csi-control-plane\") \
         | not'; do sleep 5; done",
        "kubectl --kubeconfig SERVED get configmap -n drivers -l csi-control-plane.io/journal=disk.example.com -o json | jq '.items |= \
         map(select((.data // {}) == {}))' | kubectl --kubeconfig SERVED delete -f - # one with entries stays: move over again, and \
         back later",
    ] {
        assert!(steps.contains(&expected), "{expected} in {steps:#?}");
    }
    assert!(
        report.notes.texts().any(|note| note.contains("its namespace drivers, which must exist there")),
        "{report}"
    );

    let mixed = format!("{text}      - {{name: a, image: \"x/csi-attacher:v4.12.0\", args: [--leader-election]}}\n");
    let refused = moved(&mixed);
    assert_eq!(refused.files, None);
    let found = "p --kubeconfig=/etc/served/kubeconfig, and a works with the cluster of its pod";
    assert!(refused.report.faults.iter().any(|fault| fault.found == found), "{}", refused.report.faults_text());
    let masters = moved(&text.replace("--kubeconfig=/etc/served/kubeconfig", "--master=https://api:6443"));
    assert_eq!(masters.files, None, "another API server is never left out");
}

#[test]
fn a_provisioner_that_locks_no_lease_ends_first_whatever_its_tag_says() {
    for (image, arguments, expected) in [
        ("csi-provisioner:v1.6.0", "", true),
        ("csi-provisioner:v1.6.0", ", --leader-election-type=endpoints", true),
        ("csi-provisioner:canary", ", --leader-election-type=endpoints", true),
        ("csi-provisioner:canary", ", --leader-election-type, configmaps", true),
        ("csi-provisioner:v1.6.0", ", --leader-election-type=leases", false),
        ("csi-provisioner:v2.0.0", "", false),
    ] {
        let steps = back(image, &format!(", --enable-leader-election{arguments}"));
        let ends = steps.iter().any(|step| step.starts_with("kubectl scale"));
        assert_eq!(ends, expected, "{image}{arguments}: {steps:#?}");
    }
}

#[test]
fn capacity_objects_that_csi_provisioner_would_not_get_back_are_told_of() {
    let level = |level: &str| format!(", --enable-capacity, --capacity-ownerref-level={level}");
    let [nobody, pod, one, two] = ["-1", "0", "1", "2"].map(level);
    for (kind, arguments, expected) in [
        ("Deployment", ", --enable-capacity", true),
        ("Deployment", one.as_str(), true),
        ("Deployment", two.as_str(), false),
        ("Deployment", pod.as_str(), false),
        ("Deployment", nobody.as_str(), false),
        ("Deployment", ", --capacity-ownerref-level=1", false),
        ("Deployment", "", false),
        ("StatefulSet", one.as_str(), false),
        ("DaemonSet", one.as_str(), false),
    ] {
        let report = report(kind, arguments);
        let notes = report.notes.texts().filter(|note| note.contains("--capacity-ownerref-level")).count();
        assert_eq!(notes, usize::from(expected), "{kind}{arguments}: {:#?}", report.notes);
        let delete = "   kubectl delete csistoragecapacities -n n -l csi.storage.k8s.io/drivername=disk.example.com";
        let (last, before) = report.next.split_last().unwrap();
        assert_eq!(last == delete, expected, "{kind}{arguments}: {:#?}", report.next);
        assert!(!before.iter().any(|step| step.contains("csistoragecapacities")), "only at the very end");
    }
}
