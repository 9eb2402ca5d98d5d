//! What goes wrong while a pod writes all the time, and checks what it has written: it must notice nothing.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, future};
use tokio::time::timeout;

use super::lab::Lab;
use super::machine::signal;
use super::workloads::{BUSY, claim, pod};

/// A Lease of 15 s that is renewed every 5 s lasts for at least so long after the end of its holder.
const LEASE_LEFT: Duration = Duration::from_secs(9);

#[tokio::test]
async fn a_pod_writes_on_whatever_dies_around_it() {
    let mut lab = Lab::start().await;
    let [first, second] = [0, 1].map(|node| lab.machines[node].name.clone());
    lab.claim(&claim("busy", "Filesystem", "1Gi")).await;
    lab.start_pod(&pod("busy", "busy", &first, BUSY)).await;
    let volume = lab.volume_of("busy").await;
    let lives = lab.lives("busy").await;

    the_leader_is_killed(&lab, &second).await;
    lab.undisturbed(&volume, &lives).await;

    the_leader_is_evicted(&lab).await;
    lab.undisturbed(&volume, &lives).await;

    the_driver_hangs(&lab, &first).await;
    lab.undisturbed(&volume, &lives).await;

    the_kubelet_is_away(&mut lab, &first).await;
    lab.undisturbed(&volume, &lives).await;

    lab.machines[0].restart_containerd().await;
    // A kubelet dials again a moment later.
    lab.until("the kubelet has containerd again", async || lab.exec("busy", "true").ok()).await;
    lab.undisturbed(&volume, &lives).await;
    a_volume_is_used(&lab, "after-containerd", &first).await;

    lab.cluster.restart_api(|| {}).await;
    lab.cluster.compact().await;
    lab.undisturbed(&volume, &lives).await;
    a_volume_is_used(&lab, "after-the-api-server", &second).await;

    lab.remove("busy").await;
    lab.detached(&volume).await;
    every_number_is_there(&lab, "busy", &second).await;
    lab.discard("busy").await;
}

/// What a busy pod has written is complete: each number was written once. Another pod reads it.
pub(super) async fn every_number_is_there(lab: &Lab, claim: &str, node: &str) {
    let check =
        "n=0; while read -r line; do n=$((n + 1)); [ $line = $n ] || exit 1; done </data/numbers; echo complete";
    assert_eq!(lab.run(&pod("auditor", claim, node, check)).await, "complete\n");
}

/// A new claim gets a volume, a pod writes to it, and both go.
pub(super) async fn a_volume_is_used(lab: &Lab, name: &str, node: &str) {
    let begun = Instant::now();
    lab.claim(&claim(name, "Filesystem", "1Gi")).await;
    lab.run(&pod(name, name, node, "echo here >/data/file")).await;
    println!("{name}: a pod has run and is gone after {:.1} s", begun.elapsed().as_secs_f64());
    lab.discard(name).await;
}

/// SIGKILL for the process that leads: its container's next process or the standby works at once.
async fn the_leader_is_killed(lab: &Lab, node: &str) {
    let (pod_of_leader, process) = lab.leader("attacher").await;
    let killed = lab.holder("attacher").await.unwrap();
    let uid = pod_of_leader.metadata.uid.clone().unwrap();
    assert!(killed.contains(&format!("_{uid}_csi-control-plane_")), "the kubelet's mount says where it is: {killed}");
    let begun = Instant::now();
    signal("KILL", process);
    let next = async || lab.holder("attacher").await.filter(|holder| *holder != killed);
    let next = lab.until("another process leads", next).await;
    let took = begun.elapsed();
    println!("{next} leads {:.1} s after the end of {killed}", took.as_secs_f64());
    assert!(took < LEASE_LEFT, "nobody waited for the Lease to expire: {took:?}");
    a_volume_is_used(lab, "after-the-leader", node).await;
    // The kubelet starts the daemon's container again, and it is ready.
    let name = pod_of_leader.metadata.name.unwrap();
    lab.until("the killed daemon was started again", async || {
        (lab.restarts_of("csi-control-plane", &name) == 1).then_some(())
    })
    .await;
    let said = lab.last_words("csi-control-plane", &name).await.unwrap_or_default();
    assert!(
        said.contains(&format!("leader election identity: {killed}")),
        "the kubelet says whose end it was: {said:?}"
    );
    lab.controllers_are_ready().await;
}

/// The node of the daemon that leads is drained: another works as soon as the Lease is released.
async fn the_leader_is_evicted(lab: &Lab) {
    let leader = lab.leader("attacher").await.0;
    let (name, node) = (leader.metadata.name.unwrap(), leader.spec.unwrap().node_name.unwrap());
    let other = lab.machines.iter().map(|machine| &machine.name).find(|name| **name != node).unwrap();
    let of_the_controller = "--pod-selector=app.kubernetes.io/name=csi-control-plane";
    let holders = lab.holders("attacher").await;
    let begun = Instant::now();
    let drained = lab.kubectl(&["drain", &node, of_the_controller, "--delete-emptydir-data", "--timeout=60s"]);
    drained.unwrap_or_else(|told| panic!("{told}"));
    println!("the leader's pod is evicted after {:.1} s", begun.elapsed().as_secs_f64());
    let mut others = holders.skip_while(|holder| future::ready(holder.starts_with(&name)));
    let next = timeout(LEASE_LEFT, others.next()).await.expect("the Lease changes hands");
    assert_eq!(next.as_deref(), Some(""), "it is released, and taken by another then");
    a_volume_is_used(lab, "after-the-eviction", other).await;
    lab.kubectl(&["uncordon", &node]).unwrap();
    lab.controllers_are_ready().await;
}

/// The driver of a node answers no more: the kubelet asks our daemon, which says so, and replaces the driver's container.
async fn the_driver_hangs(lab: &Lab, node: &str) {
    let (plugin, process) = lab.plugin_on(node).await;
    signal("STOP", process);
    let name = plugin.metadata.name.unwrap();
    lab.until("the kubelet replaces the driver's container", async || {
        (lab.restarts_of("driver", &name) == 1).then_some(())
    })
    .await;
    assert_eq!(lab.restarts_of("csi-control-plane", &name), 0, "the daemon is well");
    a_volume_is_used(lab, "after-the-driver", node).await;
}

/// The kubelet is killed, a pod is deleted meanwhile, and it comes back: it takes that pod's volume down, and no other.
async fn the_kubelet_is_away(lab: &mut Lab, node: &str) {
    lab.claim(&claim("left", "Filesystem", "1Gi")).await;
    lab.start_pod(&pod("left", "left", node, "sleep 1000")).await;
    let volume = lab.volume_of("left").await;
    lab.machines[0].kill_kubelet();
    let deleted = lab.kubectl(&["delete", "pod", "left", "--wait=false", "--grace-period=1"]);
    assert!(deleted.is_ok(), "{deleted:?}");
    assert!(lab.attachments().await.contains_key(&volume), "nobody may detach what a node has mounted");
    lab.machines[0].start_kubelet();
    lab.detached(&volume).await;
    lab.discard("left").await;
}
