//! Claims and pods, and waiting for them.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ApiResource, DeleteParams, GroupVersionKind};
use serde_json::{Value, json};

use super::images::BUSYBOX;
use super::lab::{self, CLASS, Lab};

/// The namespace of the claims and their pods.
pub(crate) const NAMESPACE: &str = "default";

/// Writes and reads all the time, and ends as soon as it does not read what it wrote. It counts in the file `count`, and keeps each
/// number in `numbers`.
pub(crate) const BUSY: &str = r#"
n=0
while :; do
    n=$((n + 1))
    echo $n >/data/count && sync /data/count && read -r found </data/count && [ "$found" = $n ] || { echo "no $n in /data/count: $found"; exit 1; }
    echo $n >>/data/numbers || exit 1
    sleep 0.05
done"#;

/// A claim.
pub(crate) fn claim(name: &str, mode: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"storageClassName": CLASS, "accessModes": ["ReadWriteOnce"], "volumeMode": mode,
            "resources": {"requests": {"storage": size}}}})
}

/// A pod that runs a script, with the claim of this name at /data, on the node of this name.
pub(crate) fn pod(name: &str, claim: &str, node: &str, script: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": node},
            // It asks no API server.
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "shell", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
}

/// The same with the claim's volume as the device /dev/data.
pub(crate) fn pod_with_device(name: &str, claim: &str, node: &str, script: &str) -> Value {
    let mut pod = pod(name, claim, node, script);
    let container = &mut pod["spec"]["containers"][0];
    container["volumeMounts"] = json!([]);
    container["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/data"}]);
    pod
}

/// A kind of a `CustomResourceDefinition`.
pub(super) fn custom(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

impl Lab {
    /// Makes a claim.
    pub(crate) async fn claim(&self, claim: &Value) {
        self.create::<PersistentVolumeClaim>(Some(NAMESPACE), claim).await;
    }

    pub(crate) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// The PersistentVolume of a claim.
    pub(crate) async fn volume_of(&self, claim: &str) -> String {
        let claim = self.claims().get(claim).await.unwrap();
        claim.spec.unwrap().volume_name.expect("a bound claim")
    }

    /// Runs a pod to its end and removes it. What it printed.
    pub(crate) async fn run(&self, pod: &Value) -> String {
        let name = pod["metadata"]["name"].as_str().unwrap();
        self.create::<Pod>(Some(NAMESPACE), pod).await;
        let phase = self
            .until("the pod ends", async || {
                let phase = self.pods().get(name).await.unwrap().status?.phase?;
                ["Succeeded", "Failed"].contains(&phase.as_str()).then_some(phase)
            })
            .await;
        let told = self.kubectl(&["logs", name]).unwrap_or_else(|error| error);
        assert_eq!(phase, "Succeeded", "{name}: {told}\n{}", self.state());
        self.remove(name).await;
        told
    }

    /// Makes a pod, and waits until it runs.
    pub(crate) async fn start_pod(&self, pod: &Value) -> Pod {
        self.create::<Pod>(Some(NAMESPACE), pod).await;
        self.running(pod["metadata"]["name"].as_str().unwrap()).await
    }

    /// Waits until a pod runs.
    pub(crate) async fn running(&self, name: &str) -> Pod {
        self.until(&format!("{name} runs"), async || {
            let pod = self.pods().get(name).await.unwrap();
            (pod.status.as_ref()?.phase.as_deref() == Some("Running")).then_some(pod)
        })
        .await
    }

    /// Deletes a pod and waits until it is gone.
    pub(crate) async fn remove(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
        self.until(&format!("{name} is gone"), async || {
            self.pods().get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// Runs a command in a pod. What it printed.
    pub(crate) fn exec(&self, pod: &str, script: &str) -> Result<String, String> {
        self.kubectl(&["exec", pod, "--", "sh", "-c", script])
    }

    /// The nodes that a volume is published to, at the driver.
    pub(crate) fn published(&self, volume: &str) -> Vec<String> {
        let storage = self.storage();
        let at_the_driver = storage.volumes().values().find(|it| it.name == volume).expect("the driver's volume");
        at_the_driver.published.keys().cloned().collect()
    }

    /// Waits until a volume is attached nowhere, at the cluster and at the driver.
    pub(crate) async fn detached(&self, volume: &str) {
        self.until("the volume is detached", async || {
            let nowhere =
                self.storage().volumes().values().filter(|it| it.name == volume).all(|it| it.published.is_empty());
            (nowhere && !self.attachments().await.contains_key(volume)).then_some(())
        })
        .await;
    }

    /// Deletes a claim and waits until its volume is gone, at the cluster and at the driver.
    pub(crate) async fn discard(&self, claim: &str) {
        let volume = self.volume_of(claim).await;
        self.claims().delete(claim, &DeleteParams::default()).await.unwrap();
        self.until("the volume is gone", async || {
            let there = self.storage().volumes().values().any(|it| it.name == volume);
            let object = self.kubectl(&["get", "pv", &volume, "--ignore-not-found", "--output=name"]).unwrap();
            (!there && object.is_empty()).then_some(())
        })
        .await;
    }

    /// The restarts of a pod's containers, and their IDs.
    pub(crate) async fn lives(&self, name: &str) -> Vec<(i32, String)> {
        let status = self.pods().get(name).await.unwrap().status.unwrap();
        let containers = status.container_statuses.unwrap_or_default().into_iter();
        containers.map(|it| (it.restart_count, it.container_id.unwrap_or_default())).collect()
    }

    /// How often a container of the release's pod was started again.
    pub(crate) fn restarts_of(&self, container: &str, pod: &str) -> u64 {
        let counts =
            format!("--output=jsonpath={{.status.containerStatuses[?(@.name==\"{container}\")].restartCount}}");
        self.kubectl(&["get", "pod", pod, "--namespace", lab::NAMESPACE, &counts]).unwrap().parse().unwrap()
    }

    /// The busy pod's container is the same, its volume is attached where it runs, for the driver too, and it counts on.
    pub(crate) async fn undisturbed(&self, volume: &str, lives: &[(i32, String)]) {
        let before = self.count("busy");
        self.until("the busy pod counts on", async || (self.count("busy") > before).then_some(())).await;
        assert_eq!(self.lives("busy").await, lives);
        assert_eq!(self.attachments().await.get(volume), Some(&self.machines[0].name));
        assert_eq!(self.published(volume), [self.machines[0].name.as_str()], "at the driver");
    }

    /// The number that a busy pod has come to.
    pub(crate) fn count(&self, pod: &str) -> u64 {
        let told = self.exec(pod, "tail -n 1 /data/numbers").unwrap_or_else(|told| panic!("{told}\n{}", self.state()));
        told.trim().parse().unwrap()
    }
}
