//! What an administrator does with Helm while pods write: an upgrade, a way back, an end.

use super::lab::{CHART, Lab, NAME, NAMESPACE, RELEASE};
use super::workloads::{BUSY, claim, pod};

/// What the daemon has made itself, which the documentation tells to delete.
const OWN: [&[&str]; 2] = [
    &["delete", "leases", "--all"],
    &["delete", "configmaps", "--selector=csi-control-plane.io/journal=demo.csi.example.com"],
];

#[tokio::test]
async fn an_upgrade_and_its_way_back_are_not_noticed_and_an_uninstall_leaves_nothing() {
    let lab = Lab::start().await;
    let node = lab.machines[0].name.clone();
    lab.claim(&claim("busy", "Filesystem", "1Gi")).await;
    lab.start_pod(&pod("busy", "busy", &node, BUSY)).await;
    let (volume, lives) = (lab.volume_of("busy").await, lab.lives("busy").await);

    let (old, _) = lab.plugin_on(&node).await;
    let annotated = ["--reuse-values", "--set", "podAnnotations.try=one", "--set", "node.podAnnotations.try=one"];
    lab.helm(&[&["upgrade", RELEASE, CHART], &annotated[..]].concat()).unwrap();
    rolled_out(&lab);
    let (new, _) = lab.plugin_on(&node).await;
    assert_ne!(old.metadata.name, new.metadata.name, "the pod of the node was replaced");
    lab.undisturbed(&volume, &lives).await;
    lab.claim(&claim("after", "Filesystem", "1Gi")).await;
    lab.run(&pod("after", "after", &node, "touch /data/file")).await;
    lab.discard("after").await;

    lab.helm(&["rollback", RELEASE]).unwrap();
    rolled_out(&lab);
    lab.undisturbed(&volume, &lives).await;

    lab.remove("busy").await;
    lab.detached(&volume).await;
    lab.discard("busy").await;
    lab.helm(&["uninstall", RELEASE, "--wait"]).unwrap();
    for node in &lab.machines {
        let registered = ["get", "csinode", &node.name, "--output=jsonpath={.spec.drivers[*].name}"];
        lab.until("the kubelet forgets the driver", async || {
            (!lab.kubectl(&registered).unwrap().contains(NAME)).then_some(())
        })
        .await;
        let sockets = std::fs::read_dir(node.path("/var/lib/kubelet/plugins_registry")).unwrap().count();
        assert_eq!(sockets, 0, "{}", node.name);
    }
    for arguments in OWN {
        lab.kubectl(&[arguments, &["--namespace", NAMESPACE]].concat()).unwrap();
    }
    // Helm waits for the workloads that it deletes; their pods go after them.
    let pods = ["get", "pods", "--namespace", NAMESPACE, "--output=name"];
    lab.until("the pods are gone", async || lab.kubectl(&pods).unwrap().is_empty().then_some(())).await;
    assert_eq!(left_over(&lab), Vec::<String>::new());
}

/// Waits until both workloads are as they are wanted.
fn rolled_out(lab: &Lab) {
    for workload in ["deployment/demo-csi-control-plane", "daemonset/demo-csi-control-plane-node"] {
        let told = lab.kubectl(&["rollout", "status", workload, "--timeout=120s", "--namespace", NAMESPACE]);
        assert!(told.is_ok(), "{told:?}\n{}", lab.state());
    }
}

/// Every object of any kind that is the release's by its label or its name.
fn left_over(lab: &Lab) -> Vec<String> {
    let kinds = lab.kubectl(&["api-resources", "--verbs=list", "--output=name"]).unwrap();
    // Events are gone an hour later.
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
    let all = lab.kubectl(&[
        "get",
        &kinds.join(","),
        "--all-namespaces",
        "--show-labels",
        "--no-headers",
        "--ignore-not-found",
    ]);
    let all = all.unwrap_or_else(|told| panic!("{told}"));
    all.lines().filter(|line| line.contains("csi-control-plane")).map(str::to_owned).collect()
}
