//! A control plane gets another authority, and all certificates are issued anew: a daemon that runs goes on. And what a kubeconfig
//! says of a namespace.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use csi_control_plane::process::Clock;
use csi_control_plane::roles::csi_attacher;
use csi_control_plane::sandbox::driver::{Driver, Listen, Profile, Server};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, Extent};
use crate::program::{Program, eventually, role};
use crate::programs;

const DRIVER: &str = "renewed.csi.example.com";

async fn create<K>(client: &kube::Client, object: Value)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>,
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).unwrap();
    Api::<K>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
}

/// A driver that knows the node and takes any volume, and the configuration of its attacher under this kubeconfig.
async fn driver(control_plane: &ControlPlane, kubeconfig: &Path) -> (Server, Value) {
    let socket = control_plane.folder.join("csi.sock");
    let nodes = Profile::with_nodes(["id-of-node"]);
    let profile = Profile { name: DRIVER.to_owned(), accept_unknown_volumes: true, ..nodes };
    let driver = Driver::new(profile, Clock::system());
    let server = Server::start(&driver, Listen::unix(socket.clone(), 0o600)).await.unwrap();
    let config = json!({
        "csi": { "endpoint": format!("unix://{}", socket.display()) },
        "kubernetes": { "kubeconfig": kubeconfig },
        "diagnostics": { "listen": "127.0.0.1:0" },
        "roles": { "attacher": {} },
    });
    (server, config)
}

/// Starts a daemon with this configuration.
fn daemon(control_plane: &ControlPlane, config: &Value, variables: &[(&str, &str)]) -> Program {
    let path = control_plane.folder.join("daemon.yaml");
    std::fs::write(&path, config.to_string()).unwrap();
    Program::start(&["run", "--config", path.to_str().unwrap()], variables)
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
    let (_server, mut config) = driver(&control_plane, &control_plane.kubeconfig_of_files("daemon")).await;
    // No term ends while the API server restarts.
    config["leaderElection"] = json!({ "leaseDuration": "2m", "renewDeadline": "100s" });
    let daemon = daemon(&control_plane, &config, &[("POD_NAMESPACE", "kube-system")]);
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

/// The administrator's kubeconfig, whose context names this namespace.
fn kubeconfig_of_context(control_plane: &ControlPlane, namespace: &str) -> PathBuf {
    let text = std::fs::read_to_string(control_plane.admin_kubeconfig()).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    file["contexts"][0]["context"]["namespace"] = namespace.into();
    let path = control_plane.folder.join(format!("of-{namespace}.kubeconfig"));
    std::fs::write(&path, file.to_string()).unwrap();
    path
}

/// The attacher's Leases in all namespaces, and who holds each.
async fn leases(client: &kube::Client) -> Vec<(String, String)> {
    let named = ListParams::default().fields(&format!("metadata.name={}", csi_attacher::lease(DRIVER)));
    let found = Api::<Lease>::all(client.clone()).list(&named).await.unwrap();
    let shown = |lease: Lease| {
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        (lease.metadata.namespace.unwrap_or_default(), holder.unwrap_or_default())
    };
    found.into_iter().map(shown).collect()
}

/// Starts csi-attacher on a machine that is no pod, or in a pod of this namespace.
fn attacher(control_plane: &ControlPlane, kubeconfig: &Path, pod: Option<&str>) -> programs::Program {
    let mut told = vec!["-u".to_owned(), "POD_NAMESPACE".to_owned()];
    told.extend(pod.map(|namespace| format!("POD_NAMESPACE={namespace}")));
    told.push(programs::find("csi-attacher").display().to_string());
    told.push(format!("--csi-address={}", control_plane.folder.join("csi.sock").display()));
    told.push(format!("--kubeconfig={}", kubeconfig.display()));
    told.extend(["--leader-election".to_owned(), "--leader-election-retry-period=1s".to_owned()]);
    programs::Program::run(&control_plane.folder, "csi-attacher", Path::new("env"), &told)
}

#[tokio::test]
async fn the_lease_is_csi_attachers_under_a_kubeconfig_whose_context_names_another_namespace() {
    let control_plane = ControlPlane::start(Extent::Api).await;
    let client = control_plane.client().await;
    crate::accounts::namespace(&client, "storage").await;
    let kubeconfig = kubeconfig_of_context(&control_plane, "kube-system");
    let (_server, config) = driver(&control_plane, &kubeconfig).await;
    for (pod, expected) in [(None, "default"), (Some("storage"), "storage")] {
        let variables: Vec<(&str, &str)> = pod.map(|namespace| ("POD_NAMESPACE", namespace)).into_iter().collect();
        let mut daemon = daemon(&control_plane, &config, &variables);
        let status = daemon.is("serving").await;
        let shown = role(&status, "attacher");
        let lease = format!("{expected}/{}", csi_attacher::lease(DRIVER));
        assert_eq!(shown["lease"], lease);
        let ours = vec![(expected.to_owned(), shown["leader"].as_str().unwrap().to_owned())];
        assert_eq!(leases(&client).await, ours, "{status}");

        // csi-attacher waits for it, and has it once the daemon is gone.
        let attacher = attacher(&control_plane, &kubeconfig, pod);
        let log = control_plane.folder.join("csi-attacher.log");
        eventually("csi-attacher looks for the Lease", async || {
            std::fs::read_to_string(&log).ok().filter(|log| log.contains(&lease))
        })
        .await;
        assert_eq!(leases(&client).await, ours);
        daemon.signal("TERM").await;
        assert_eq!(daemon.exit().await, Some(0));
        let theirs = eventually("csi-attacher has the Lease", async || {
            let found = leases(&client).await;
            found.iter().any(|(_, holder)| !holder.is_empty() && *holder != ours[0].1).then_some(found)
        })
        .await;
        assert!(matches!(&theirs[..], [(namespace, _)] if namespace == expected), "{theirs:?}");
        attacher.stop().await;
        let leases = Api::<Lease>::namespaced(client.clone(), expected);
        leases.delete(&csi_attacher::lease(DRIVER), &DeleteParams::default()).await.unwrap();
    }
}
