//! What a pod writes, another pod reads: claims and pods on two nodes, as an administrator has installed driver and daemon by Helm.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::lab::Lab;
use super::workloads::{BUSY, NAMESPACE, claim, pod, pod_with_device};

#[tokio::test]
async fn pods_read_on_one_node_what_pods_have_written_on_another() {
    let lab = Lab::start().await;
    let [first, second] = [0, 1].map(|node| lab.machines[node].name.clone());
    data_follows_its_claim(&lab, &first, &second).await;
    a_device_is_as_large_as_its_claim_and_keeps_its_bytes(&lab, &first, &second).await;
    a_group_owns_the_volume_of_its_pod(&lab, &first).await;
    an_ephemeral_volume_ends_with_its_pod(&lab, &second).await;
    a_volume_grows_under_a_running_pod(&lab, &first).await;
    lab.nothing_is_left().await;
}

pub(super) async fn data_follows_its_claim(lab: &Lab, first: &str, second: &str) {
    lab.claim(&claim("files", "Filesystem", "1Gi")).await;
    lab.run(&pod("writer", "files", first, "echo precious >/data/file && sync")).await;
    let volume = lab.volume_of("files").await;
    lab.detached(&volume).await;
    let mounts = lab.machines[0].mounts();
    assert!(!mounts.iter().any(|path| path.contains(&volume)), "{mounts:#?}");
    // While the reader runs, the volume is attached where it runs and nowhere else.
    lab.start_pod(&pod("reader", "files", second, "cat /data/file; sleep 1000")).await;
    assert_eq!(lab.attachments().await.get(&volume).map(String::as_str), Some(second));
    assert_eq!(lab.published(&volume), [second]);
    assert_eq!(lab.exec("reader", "cat /data/file").unwrap(), "precious\n");
    let mounts = lab.machines[1].mounts();
    assert!(mounts.iter().any(|path| path.contains("/pods/") && path.contains(&volume)), "{mounts:#?}");
    lab.remove("reader").await;
    lab.detached(&volume).await;
    lab.discard("files").await;
}

pub(super) async fn a_device_is_as_large_as_its_claim_and_keeps_its_bytes(lab: &Lab, first: &str, second: &str) {
    lab.claim(&claim("device", "Block", "16Mi")).await;
    let write =
        "blockdev --getsize64 /dev/data && echo precious | dd of=/dev/data bs=512 seek=100 conv=sync,fsync 2>/dev/null";
    assert_eq!(lab.run(&pod_with_device("device-writer", "device", first, write)).await, "16777216\n");
    lab.detached(&lab.volume_of("device").await).await;
    let read = "dd if=/dev/data bs=512 skip=100 count=1 2>/dev/null | head -n 1";
    assert_eq!(lab.run(&pod_with_device("device-reader", "device", second, read)).await, "precious\n");
    lab.detached(&lab.volume_of("device").await).await;
    lab.discard("device").await;
}

async fn a_group_owns_the_volume_of_its_pod(lab: &Lab, node: &str) {
    lab.claim(&claim("shared", "Filesystem", "1Gi")).await;
    let mut wanted = pod("grouped", "shared", node, "touch /data/file && stat -c %g /data /data/file");
    wanted["spec"]["securityContext"] = json!({"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000});
    assert_eq!(lab.run(&wanted).await, "2000\n2000\n");
    lab.discard("shared").await;
}

pub(super) async fn an_ephemeral_volume_ends_with_its_pod(lab: &Lab, node: &str) {
    let mut wanted = pod("passing", "none", node, "echo here >/data/file; sleep 1000");
    let template = claim("none", "Filesystem", "1Gi")["spec"].clone();
    wanted["spec"]["volumes"] = json!([{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": template}}}]);
    lab.start_pod(&wanted).await;
    let volume = lab.volume_of("passing-data").await;
    assert_eq!(lab.exec("passing", "cat /data/file").unwrap(), "here\n");
    lab.remove("passing").await;
    lab.until("the volume ends with its pod", async || {
        let there = lab.storage().volumes().values().any(|it| it.name == volume);
        (!there).then_some(())
    })
    .await;
}

pub(super) async fn a_volume_grows_under_a_running_pod(lab: &Lab, node: &str) {
    lab.claim(&claim("growing", "Filesystem", "1Gi")).await;
    let before = lab.start_pod(&pod("grower", "growing", node, BUSY)).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    claims.patch("growing", &PatchParams::default(), &Patch::Merge(larger)).await.unwrap();
    lab.until("the claim has grown", async || {
        let status = claims.get("growing").await.unwrap().status?;
        let has_grown = status.capacity?.get("storage")?.0 == "2Gi";
        // The node's part is over, too.
        // Kubernetes 1.37 says of each claim whether a pod uses it.
        let is_growing = status.conditions.unwrap_or_default().iter().any(|it| it.type_ != "Unused");
        (has_grown && !is_growing).then_some(())
    })
    .await;
    let volume = lab.volume_of("growing").await;
    let storage = lab.storage();
    let (id, at_the_driver) = storage.volumes().iter().find(|(_, it)| it.name == volume).unwrap();
    assert_eq!(at_the_driver.capacity, 2 << 30);
    let is_of_node = |line: &str| line.contains("\"NodeExpandVolume\"") && line.contains(id.as_str());
    assert!(lab.calls(0).lines().any(is_of_node), "the node has made its file system larger");
    // The kubelet's own figure, which it asks the driver for.
    let figure = format!(
        "kubelet_volume_stats_capacity_bytes{{namespace=\"default\",persistentvolumeclaim=\"growing\"}} {:e}",
        2_147_483_648_f64
    );
    lab.until("the kubelet tells the new size", async || {
        let told = lab.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/metrics")]).ok()?;
        told.lines().any(|line| line.replace("e+09", "e9") == figure).then_some(())
    })
    .await;
    let pods: Api<Pod> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let after = pods.get("grower").await.unwrap();
    assert_eq!((after.metadata.uid, lab.lives("grower").await[0].0), (before.metadata.uid, 0), "the same pod");
    assert!(lab.count("grower") > 0);
    lab.remove("grower").await;
    lab.discard("growing").await;
}
