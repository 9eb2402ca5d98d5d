//! Moving over and back by the steps that `migrate` prints, word by word: a controller with csi-attacher, csi-provisioner and
//! csi-resizer, of an old version without leader election and of a new one with it. Volumes are made, attached, grown and deleted on
//! each side, some of them by the next; at the end nothing is left. The same in a `StatefulSet` whose pods only a user replaces, and in one
//! with a partition.
//!
//! A shell carries the steps out with the real kubectl against the real server, whose controllers replace the pods; [`crate::cluster::pods`]
//! plays the kubelet. The old versions' programs can't be built here: the newest ones run with the old defaults.

use std::time::Duration;

use csi_control_plane::proto::{CreateVolumeRequest, VolumeCapability};
use csi_control_plane::sandbox::driver::{Action, Fault, GIB, Method, Pool};
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::cluster::kubectl::Kubectl;
use crate::cluster::pods::Kubelet;
use crate::cluster::provisioners::zone_key;
use crate::ground::cluster::NAMESPACE;
use crate::objects::attachment_name;
use crate::shell::{Shell, commands};
use crate::supply::{handle_of, zoned};
use crate::world::{World, brief};

/// The images of a controller.
struct Versions {
    attacher: &'static str,
    provisioner: &'static str,
    resizer: &'static str,
    /// Whether the sidecars have `--leader-election`.
    elect: bool,
    /// What makes the pods.
    kind: &'static str,
    /// What replaces them, as a part of its specification.
    update: fn() -> Value,
}

/// csi-provisioner before v3.1, csi-attacher before v4, csi-resizer before v1.13: everything was off. One replica, no election.
const OLD: Versions = Versions {
    attacher: "v3.4.0",
    provisioner: "v3.0.0",
    resizer: "v1.9.4",
    elect: false,
    kind: "Deployment",
    update: || json!({}),
};
/// The defaults of today.
const NEW: Versions = Versions {
    attacher: "v4.13.0",
    provisioner: "v6.4.0",
    resizer: "v2.3.0",
    elect: true,
    kind: "Deployment",
    update: || json!({}),
};
/// The same in pods that only their user replaces.
const ON_DELETE: Versions = Versions {
    kind: "StatefulSet",
    update: || json!({"serviceName": "none", "updateStrategy": {"type": "OnDelete"}}),
    ..NEW
};

/// The same in pods that follow up to a partition alone.
const PARTITION: Versions = Versions {
    update: || json!({"serviceName": "none", "updateStrategy": {"rollingUpdate": {"partition": 1}}}),
    ..ON_DELETE
};

/// The controller's manifest, as a driver's project would publish it.
fn manifest(world: &World, name: &str, node: &str, versions: &Versions) -> String {
    let socket = world.real().socket();
    let folder = socket.parent().unwrap().display();
    let election = [
        format!("--leader-election-namespace={NAMESPACE}"),
        "--leader-election".to_owned(),
        "--leader-election-lease-duration=15s".to_owned(),
        "--leader-election-renew-deadline=10s".to_owned(),
        "--leader-election-retry-period=2s".to_owned(),
    ];
    let common = [format!("--csi-address={}", socket.display()), "--timeout=15s".to_owned()];
    let election = election.into_iter().filter(|_| versions.elect);
    let flags: Vec<String> = common.into_iter().chain(election).collect();
    let container = |name: &str, tag: &str| {
        json!({"name": name, "image": format!("registry.k8s.io/sig-storage/{name}:{tag}"), "args": flags,
            "volumeMounts": [{"name": "socket-dir", "mountPath": folder.to_string()}]})
    };
    let mut workload = json!({"apiVersion": "apps/v1", "kind": versions.kind, "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}}, "spec": {
            "serviceAccountName": name, "nodeName": node,
            "containers": [
                container("csi-attacher", versions.attacher),
                container("csi-provisioner", versions.provisioner),
                container("csi-resizer", versions.resizer),
                {"name": "driver", "image": "registry.example/driver:v1",
                    "volumeMounts": [{"name": "socket-dir", "mountPath": folder.to_string()}]},
            ],
            "volumes": [{"name": "socket-dir", "emptyDir": {}}]}}}});
    let spec = workload["spec"].as_object_mut().unwrap();
    spec.extend((versions.update)().as_object().unwrap().clone());
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": world.driver_name()}, "spec": {}});
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}});
    [account, driver, workload].map(|object| serde_yaml::to_string(&object).unwrap()).join("---\n")
}

/// Two volumes: one that a pod uses, and a raw device, which grows without a kubelet.
struct Volumes {
    used: String,
    device: String,
    objects: [String; 2],
    pod: Option<String>,
    attachment: String,
    /// What the driver was asked for, without what names the volume.
    asked: CreateVolumeRequest,
    /// Who made them: the number of a connection to the driver.
    maker: u64,
}

/// Where volumes are made.
struct Place<'a> {
    world: &'a World,
    class: String,
    node: String,
}

impl Place<'_> {
    /// Two volumes that nobody uses.
    async fn made(&self, name: &str) -> Volumes {
        let world = self.world;
        let used = world.claim(name, &self.class, json!({})).await;
        let block = json!({"spec": {"volumeMode": "Block"}});
        let device = world.claim(&format!("{name}-device"), &self.class, block).await;
        let (first, second) = (world.bound(&used).await, world.bound(&device).await);
        let (_, handle) = handle_of(&first).unwrap();
        let calls = world.driver().creates_of(&first.name_any());
        assert_eq!(calls.len(), 1, "{:#?}", brief(&calls));
        Volumes {
            used,
            device,
            attachment: attachment_name(&handle, world.driver_name(), &self.node),
            objects: [first.name_any(), second.name_any()],
            pod: None,
            asked: CreateVolumeRequest { name: String::new(), ..*calls[0].create.clone().unwrap() },
            maker: calls[0].connection,
        }
    }

    /// Lets a pod use one of them.
    async fn use_them(&self, volumes: &mut Volumes) {
        let pod = format!("{}-pod", volumes.used);
        let pod = pod.strip_prefix(&self.world.name("")).unwrap();
        volumes.pod = Some(self.world.pod(pod, &[&volumes.used], Some(&self.node)).await);
    }

    /// Waits until it is attached, and returns the kind of use that the driver was told.
    async fn attached(&self, volumes: &Volumes) -> VolumeCapability {
        self.world.attached(&volumes.attachment).await;
        let volume = self.world.all::<PersistentVolume>().get(&volumes.objects[0]).await.unwrap();
        let (_, handle) = handle_of(&volume).unwrap();
        let calls = self.world.driver().calls_of(Method::ControllerPublishVolume);
        let call = calls.iter().find(|call| call.volume.as_ref() == Some(&handle)).unwrap();
        call.publish.clone().unwrap().volume_capability.unwrap()
    }

    /// Detaches, grows and deletes them.
    async fn ended(&self, volumes: Volumes) {
        let world = self.world;
        world.delete_pod(&volumes.pod.unwrap()).await;
        world.gone::<VolumeAttachment>(&volumes.attachment).await;
        world.ask_for(&volumes.device, "2Gi").await;
        world.sized(&volumes.device, "2Gi").await;
        for (claim, volume) in [&volumes.used, &volumes.device].into_iter().zip(&volumes.objects) {
            world.delete_claim(claim).await;
            world.claim_gone(claim).await;
            world.gone::<PersistentVolume>(volume).await;
        }
    }

    /// All of it on one side: what the side before has left, and volumes of its own. What the driver is asked must be what it was
    /// asked before. Returns volumes for the next side.
    async fn side(&self, name: &str, left: Option<Volumes>, before: &mut Option<Side>) -> Volumes {
        let mut own = self.made(name).await;
        self.use_them(&mut own).await;
        let side = Side { asked: own.asked.clone(), told: self.attached(&own).await, maker: own.maker };
        if let Some(before) = before.as_ref() {
            assert_eq!((&side.asked, &side.told), (&before.asked, &before.told), "{name}: as on the other side");
            assert_ne!(side.maker, before.maker, "{name}: by the other side");
        }
        *before = Some(side);
        for volumes in left.into_iter().chain([own]) {
            self.ended(volumes).await;
        }
        self.made(&format!("{name}-left")).await
    }
}

/// How a side asks the driver.
struct Side {
    asked: CreateVolumeRequest,
    told: VolumeCapability,
    maker: u64,
}

/// Everything of this world that a cluster could have left, by kind and name. Users' own objects do not count.
async fn there(world: &World, kubectl: &Kubectl<'_>) -> Vec<String> {
    let kinds = "clusterroles,clusterrolebindings,roles,rolebindings,configmaps,leases,serviceaccounts,csistoragecapacities,\
                 deployments,statefulsets,pods,volumeattachments,persistentvolumes,persistentvolumeclaims";
    let listed = kubectl.done(&["get", kinds, "--all-namespaces", "--output=json"]).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let listed = listed["items"].as_array().unwrap();
    let is_ours = |object: &&Value| object.to_string().contains(&world.name("").replace('-', ""));
    let name = |object: &Value| {
        format!("{}/{}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
    };
    listed.iter().filter(is_ours).map(name).collect()
}

async fn moves_over_and_back(versions: &Versions) {
    let world = World::supplied(zoned([])).await;
    let key = zone_key(&world);
    world.driver().change_profile(|profile| profile.pools = vec![Pool::at([(key.as_str(), "z1")], 100 * GIB)]);
    let node = world.place("node", &[(&key, "z1")]).await;
    let class = world.class("class", json!({"allowVolumeExpansion": true})).await;
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell { folder: folder.path(), kubeconfig: world.real().admin_kubeconfig() };
    let kubectl = Kubectl::new(world.real().cluster(), folder.path());
    let name = world.name("controller");
    let mut kubelet = Kubelet::new(&world, &name);
    std::fs::write(folder.path().join("controller.yaml"), manifest(&world, &name, &node, versions)).unwrap();
    let place = Place { world: &world, class, node };
    let mut before = None;

    // The sidecars, and what they leave to the daemon.
    shell.done("kubectl apply -f controller.yaml").await;
    let kind = versions.kind.to_lowercase();
    let ready = format!(
        "until kubectl get -n {NAMESPACE} {kind}/{name} -o json | jq -e '(.status.readyReplicas // 0) == 1'; do sleep 1; done"
    );
    kubelet.meanwhile(shell.done(&ready)).await;
    let mut left = kubelet.meanwhile(place.side("theirs", None, &mut before)).await;
    kubelet.meanwhile(place.use_them(&mut left)).await;
    kubelet.meanwhile(place.attached(&left)).await;
    let of_theirs = kubectl.object(&kind, NAMESPACE, &name).await;
    let leases = leases_of(&world).await;

    let report = shell
        .done("csi-control-plane migrate -f controller.yaml --image registry.example/csi-control-plane:v1 --out moved")
        .await;
    let (forward, back) = commands(&report);
    for command in &forward {
        kubelet.meanwhile(shell.done(command)).await;
    }
    kubelet.until_none_ends().await;
    let mut left = kubelet.meanwhile(place.side("ours", Some(left), &mut before)).await;

    // One of its pods was evicted: such a pod stays, has ended, and is not waited for.
    let evicted = evicted_pod(&world, &format!("{name}-csi-control-plane")).await;

    // Back, while the driver takes its time with an attachment of ours.
    let slow = Action::Delay(Duration::from_secs(3));
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, slow).once());
    let ends_pods =
        |command: &&String| ["kubectl scale ", "kubectl replace "].iter().any(|verb| command.starts_with(verb));
    let first = back.iter().find(ends_pods).unwrap();
    for command in &back {
        if command == first {
            let asked = world.driver().calls_of(Method::ControllerPublishVolume).len();
            kubelet.meanwhile(place.use_them(&mut left)).await;
            let is_asked = world.driver_until("an attachment in progress", |driver| {
                driver.calls_of(Method::ControllerPublishVolume).len() > asked
            });
            kubelet.meanwhile(is_asked).await;
        }
        kubelet.meanwhile(shell.done(command)).await;
    }
    assert_eq!(kubectl.object(&kind, NAMESPACE, &name).await["spec"], of_theirs["spec"], "as it was");
    shell.done(&format!("kubectl delete pod -n {NAMESPACE} {evicted} --force --grace-period=0")).await;
    // Where there is no journal any more, too.
    let of_journal = back.iter().find(|command| command.contains("| kubectl delete -f -")).unwrap();
    assert!(shell.done(of_journal).await.contains("No resources found"));
    kubelet.meanwhile(place.attached(&left)).await;
    let mut last = kubelet.meanwhile(place.side("theirs-again", Some(left), &mut before)).await;
    kubelet.meanwhile(place.use_them(&mut last)).await;
    kubelet.meanwhile(place.attached(&last)).await;
    kubelet.meanwhile(place.ended(last)).await;

    // Topology and the file system's default are as the version has them.
    let Side { asked, told, .. } = before.unwrap();
    assert_eq!(asked.accessibility_requirements.is_some(), versions.elect, "{asked:#?}");
    assert_eq!(format!("{told:?}").contains("ext4"), !versions.elect, "{told:#?}");

    assert_eq!(leases_of(&world).await, leases, "those that the sidecars hold, and no others");
    shell.done("kubectl delete -f controller.yaml --wait=false").await;
    for said in kubelet.until_all_end().await {
        assert!(!said.contains("forbidden"), "{said}");
    }
    world.assert_nothing_leaked().await;
    assert!(world.driver().state().volumes().is_empty(), "{:#?}", world.driver().state());
    let leases: Vec<String> = leases.into_iter().map(|lease| format!("Lease/{lease}")).collect();
    assert_eq!(there(&world, &kubectl).await, leases);
}

/// A pod that mounts this ConfigMap and was evicted. Returns its name.
async fn evicted_pod(world: &World, config_map: &str) -> String {
    let name = world.name("evicted");
    let pod = json!({"metadata": {"name": name}, "spec": {
        "containers": [{"name": "daemon", "image": "registry.example/csi-control-plane:v1"}],
        "volumes": [{"name": "config", "configMap": {"name": config_map}}]}});
    let pods: Api<Pod> = Api::namespaced(world.client(), NAMESPACE);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let ended = Patch::Merge(json!({"status": {"phase": "Failed", "reason": "Evicted"}}));
    pods.patch_status(&name, &PatchParams::default(), &ended).await.unwrap();
    name
}

/// The names of the driver's Leases.
async fn leases_of(world: &World) -> Vec<String> {
    let list = world.leases().list(&kube::api::ListParams::default()).await.unwrap();
    let names = list.items.into_iter().map(|lease| lease.name_any());
    let id = world.name("");
    names.filter(|name| name.contains(id.trim_end_matches('-'))).collect()
}

#[tokio::test]
async fn old_sidecars_without_an_election_move_over_and_back_by_the_printed_steps_and_leave_nothing() {
    Box::pin(moves_over_and_back(&OLD)).await;
}

#[tokio::test]
async fn sidecars_whose_pods_only_a_user_replaces_move_over_and_back_by_the_printed_steps_and_leave_nothing() {
    Box::pin(moves_over_and_back(&ON_DELETE)).await;
}

#[tokio::test]
async fn sidecars_whose_pods_a_partition_holds_back_move_over_and_back_by_the_printed_steps_and_leave_nothing() {
    Box::pin(moves_over_and_back(&PARTITION)).await;
}

#[tokio::test]
async fn new_sidecars_move_over_and_back_by_the_printed_steps_and_leave_nothing() {
    Box::pin(moves_over_and_back(&NEW)).await;
}
