//! A control plane gets another authority, and all certificates are issued anew: a daemon that runs goes on.

use std::time::{Duration, Instant};

use csi_control_plane::process::Clock;
use csi_control_plane::sandbox::driver::{Driver, Listen, Profile, Server};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use kube::api::{Api, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, Extent};
use crate::program::{Program, eventually, role};

const DRIVER: &str = "renewed.csi.example.com";

async fn create<K>(client: &kube::Client, object: Value)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>,
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).unwrap();
    Api::<K>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
}

/// Asks for a volume on the node, and waits until it is there.
async fn attach(client: &kube::Client, name: &str) {
    let volume = json!({ "metadata": { "name": name }, "spec": { "capacity": { "storage": "1Gi" },
        "accessModes": ["ReadWriteOnce"], "csi": { "driver": DRIVER, "volumeHandle": name } } });
    create::<PersistentVolume>(client, volume).await;
    let attachment = json!({ "metadata": { "name": name },
        "spec": { "attacher": DRIVER, "nodeName": "node", "source": { "persistentVolumeName": name } } });
    create::<VolumeAttachment>(client, attachment).await;
    let attachments: Api<VolumeAttachment> = Api::all(client.clone());
    eventually("the volume is attached", async || {
        let status = attachments.get(name).await.ok()?.status?;
        status.attached.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_daemon_attaches_within_a_minute_after_the_authority_and_all_certificates_were_renewed() {
    let mut control_plane = ControlPlane::start(Extent::Api).await;
    let socket = control_plane.folder.join("csi.sock");
    let nodes = Profile::with_nodes(["id-of-node"]);
    let profile = Profile { name: DRIVER.to_owned(), accept_unknown_volumes: true, ..nodes };
    let driver = Driver::new(profile, Clock::system());
    let _server = Server::start(&driver, Listen::unix(socket.clone(), 0o600)).await.unwrap();
    let config = json!({
        "csi": { "endpoint": format!("unix://{}", socket.display()) },
        "kubernetes": { "kubeconfig": control_plane.kubeconfig_of_files("daemon") },
        // No term ends while the API server restarts.
        "leaderElection": { "leaseDuration": "2m", "renewDeadline": "100s" },
        "diagnostics": { "listen": "127.0.0.1:0" },
        "roles": { "attacher": {} },
    });
    let path = control_plane.folder.join("daemon.yaml");
    std::fs::write(&path, config.to_string()).unwrap();
    let daemon = Program::start(&["run", "--config", path.to_str().unwrap()], &[("POD_NAMESPACE", "kube-system")]);
    let client = control_plane.client().await;
    let node = json!({ "metadata": { "name": "node" }, "spec": { "drivers": [{ "name": DRIVER, "nodeID": "id-of-node", "topologyKeys": [] }] } });
    create::<CSINode>(&client, node).await;
    attach(&client, "before").await;
    let before = daemon.is("serving").await;

    control_plane.renew().await;
    let client = control_plane.client().await;
    control_plane.kubeconfig_of_files("daemon");
    let renewed = Instant::now();
    attach(&client, "after").await;
    assert!(renewed.elapsed() < Duration::from_secs(60), "{:?}", renewed.elapsed());
    let after = daemon.is("serving").await;
    for field in ["leader", "term"] {
        assert_eq!(role(&after, "attacher")[field], role(&before, "attacher")[field], "{field}");
    }
    assert_eq!(daemon.get("/livez").await.code, 200);
}
