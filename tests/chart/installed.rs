//! The daemon works with exactly the account and the rights that the chart renders: no right is missing.
//!
//! ```text
//! helm template ──> applied to a real API server ──> the pod that its controllers make of the workload
//!                                                        └─ the daemon: its file, its account's token, its pod, its node
//! ```

use csi_control_plane::roles::Instance;
use csi_control_plane::sandbox::driver::Secrets;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::accounts;
use crate::chart::cluster::apply;
use crate::chart::helm::{self, Rendered};
use crate::chart::matrix;
use crate::ground::Daemon;
use crate::objects;
use crate::supply::{SELECTED_NODE, ZONE, handle_of, pool, zoned};
use crate::world::{World, bounded};

/// The pause between two looks at something that cannot be awaited.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// A release in a namespace of its own.
struct Release<'a> {
    world: &'a World,
    namespace: String,
    rendered: Rendered,
    token: String,
}

impl<'a> Release<'a> {
    /// Applies what the chart renders for a set of values, changed, and the world's driver.
    async fn install(world: &'a World, case: &str, change: impl FnOnce(&mut Value, &str)) -> Self {
        let namespace = world.name("release");
        let mut values = matrix::case(case).values;
        values["driver"]["name"] = world.driver_name().into();
        change(&mut values, &namespace);
        let rendered = helm::with(&values, &["--namespace", &namespace]).unwrap();
        let client = world.client();
        accounts::namespace(&client, &namespace).await;
        let is_test = |object: &&Value| !object["metadata"]["annotations"]["helm.sh/hook"].is_null();
        for object in rendered.objects.iter().filter(|object| !is_test(object)) {
            apply(&client, object, false).await.unwrap();
        }
        let account = rendered.pod()["spec"]["serviceAccountName"].as_str().unwrap();
        let roles: Vec<Value> = rendered.objects.iter().filter(|it| it["rules"].is_array()).cloned().collect();
        accounts::until_enforced(&client, &namespace, account, &roles).await;
        let token = accounts::issue(&client, &namespace, account).await;
        Self { world, namespace, rendered, token }
    }

    /// The API of a kind in the release's namespace.
    fn own<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.world.client(), &self.namespace)
    }

    /// A pod of the workload, as soon as `holds` is true of one.
    async fn pod(&self, what: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
        let pods: Api<Pod> = self.own();
        let mut looks = tokio::time::interval(LOOK);
        let made = async {
            loop {
                looks.tick().await;
                let found = pods.list(&ListParams::default()).await.unwrap().items.into_iter().find(&holds);
                if let Some(pod) = found {
                    return pod;
                }
            }
        };
        bounded(what, made).await
    }

    /// Starts the daemon as this pod would.
    async fn start(&self, pod: &str, node: Option<&str>) -> Daemon {
        let instance = Instance {
            host: pod.to_owned(),
            namespace: Some(self.namespace.clone()),
            pod: Some(pod.to_owned()),
            node: node.map(str::to_owned),
            ..Instance::default()
        };
        self.world.real().start_in(instance, self.rendered.config(), &self.token).await
    }

    /// Makes a secret in the release's namespace.
    async fn secret(&self, name: &str) {
        let secret = json!({"metadata": {"name": name}, "stringData": {"password": PASSWORD}});
        self.own::<Secret>().create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    /// Waits until the scheduler can know of so much room, and returns what kind of object owns what it is told.
    async fn room(&self, segments: usize) -> Vec<String> {
        let mut looks = tokio::time::interval(LOOK);
        let told = async {
            loop {
                looks.tick().await;
                let told = self.own::<CSIStorageCapacity>().list(&ListParams::default()).await.unwrap().items;
                if told.len() == segments {
                    return told;
                }
            }
        };
        let told = bounded("a scheduler that is told of the room", told).await;
        told.iter().map(|it| it.owner_references()[0].kind.clone()).collect()
    }
}

const PASSWORD: &str = "correct-horse-battery";

/// The requests that were refused for want of a right.
fn forbidden(metrics: &str) -> Vec<&str> {
    metrics.lines().filter(|line| line.contains("outcome=\"forbidden\"")).collect()
}

/// No request was refused, and each of these was made: an unused right would prove nothing.
fn assert_allowed(metrics: &str, used: &[(&str, &str)]) {
    assert_eq!(forbidden(metrics), Vec::<&str>::new());
    for (verb, resource) in used {
        let line =
            format!("csi_control_plane_api_requests_total{{verb=\"{verb}\",resource=\"{resource}\",outcome=\"ok\"}}");
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
}

#[tokio::test]
async fn the_daemon_attaches_and_detaches_under_exactly_the_rendered_account() {
    let world = World::new().await;
    let release = Release::install(&world, "attacher", |values, namespace| {
        objects::merge(&mut values["config"], objects::config());
        values["rbac"]["secrets"]["named"] = json!([{"namespace": namespace, "names": ["named"]}]);
    })
    .await;
    let daemon = release.start(&world.name("pod"), None).await;
    for name in ["named", "unnamed"] {
        release.secret(name).await;
    }
    let with_secret =
        |name: &str| json!({"csi": {"controllerPublishSecretRef": {"name": name, "namespace": release.namespace}}});
    let node = world.node("node").await;
    let plain = world.volume("plain").await;
    let secret = world.volume_with("secret", with_secret("named")).await;
    for volume in [&plain, &secret] {
        let attachment = world.attach(volume, &node).await;
        world.attached(&attachment).await;
        assert!(world.is_published(volume, &node));
        world.detached(&attachment).await;
        assert!(!world.is_published(volume, &node));
    }
    let metrics = world.metrics(&daemon).await;
    assert_allowed(&metrics, &[("get", "secrets"), ("patch", "volumeattachments")]);
    assert!(metrics.contains("resource=\"leases\",outcome=\"ok\""), "{metrics}");

    let other = world.volume_with("other", with_secret("unnamed")).await;
    let attachment = world.attach(&other, &node).await;
    world.failed(&attachment, "forbidden").await;
    assert!(!forbidden(&world.metrics(&daemon).await).is_empty(), "what the alert RightMissing looks at");
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn a_claim_lives_from_its_volume_to_its_end_under_exactly_the_rendered_account() {
    let world = World::supplied(|profile| {
        zoned([pool("z1", 10), pool("z2", 10)])(profile);
        let asked = Secrets([("password".to_owned(), PASSWORD.to_owned())].into());
        (profile.provision_secrets, profile.required_secrets) = (asked.clone(), asked);
    })
    .await;
    let release = Release::install(&world, "attacher", |values, namespace| {
        values["replicas"] = 1.into();
        objects::merge(&mut values["config"], objects::config());
        // Up from the pod over its ReplicaSet to the Deployment.
        let capacity = json!({"enabled": true, "pollInterval": "1s", "ownerLevel": 2});
        values["config"]["roles"]["provisioner"] = json!({"resync": "0s", "capacity": capacity});
        values["rbac"]["secrets"]["named"] = json!([
            {"namespace": namespace, "names": ["provision"]}, {"namespace": namespace, "names": ["publish"]}]);
    })
    .await;
    let pod = release.pod("a pod of the Deployment", |_| true).await.name_any();
    for name in ["provision", "publish"] {
        release.secret(name).await;
    }
    let (_first, node) = (world.node_in("n1", "z1").await, world.node_in("n2", "z2").await);
    let daemon = release.start(&pod, None).await;
    let class = world
        .waiting_class(
            "class",
            json!({"parameters": {
                "csi.storage.k8s.io/provisioner-secret-name": "provision",
                "csi.storage.k8s.io/provisioner-secret-namespace": release.namespace,
                "csi.storage.k8s.io/controller-publish-secret-name": "publish",
                "csi.storage.k8s.io/controller-publish-secret-namespace": release.namespace,
            }}),
        )
        .await;
    assert_eq!(release.room(2).await, ["Deployment", "Deployment"]);

    let claim = world.claim("claim", &class, json!({})).await;
    let consumer = world.pod("user", &[&claim], Some(&node)).await;
    let volume = world.bound(&claim).await;
    let ((_, handle), node_id) = (handle_of(&volume).unwrap(), world.node_id(&node));
    world.driver_until("attached", |driver| driver.published(&handle).contains(&node_id)).await;
    world.delete_pod(&consumer).await;
    world.deleted_with_its_volume(&claim, &volume).await;
    world.assert_nothing_leaked().await;
    let metrics = world.metrics(&daemon).await;
    let used = [
        ("get", "secrets"),
        ("create", "configmaps"),
        ("create", "persistentvolumes"),
        ("delete", "persistentvolumes"),
        ("patch", "volumeattachments/status"),
        ("create", "csistoragecapacities"),
        ("get", "pods"),
        ("get", "replicasets"),
    ];
    assert_allowed(&metrics, &used);
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn a_daemon_on_its_node_provisions_there_under_exactly_the_rendered_account() {
    let world = World::supplied(|_| {}).await;
    // A volume that is already on its node is not attached.
    let spec = json!({"attachRequired": false});
    world.create::<CSIDriver>(json!({"metadata": {"name": world.driver_name()}, "spec": spec})).await;
    let here = world.name("here");
    world.driver().change_profile(|profile| {
        profile.nodes.clear();
        *profile = profile.clone().in_pools([pool(&here, 10)]);
    });
    let node = world.place("node", &[(ZONE, &here)]).await;
    let release = Release::install(&world, "daemonset", |values, _| {
        values["nodeSelector"] = json!({"kubernetes.io/os": null, "kubernetes.io/hostname": node});
        let per_node = json!({"enabled": true, "baseDelay": "300ms", "maxDelay": "600ms"});
        let capacity = json!({"enabled": true, "pollInterval": "1s"});
        values["config"]["roles"]["provisioner"] =
            json!({"resync": "0s", "nodeDeployment": per_node, "capacity": capacity});
    })
    .await;
    let placed = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let pod = release.pod("a pod of the DaemonSet on the node", placed).await;
    // Kubelet's value of NODE_NAME.
    let told = serde_json::to_value(&pod).unwrap();
    let containers = told["spec"]["containers"].as_array().unwrap();
    let daemon = containers.iter().find(|it| it["name"] == "csi-control-plane").unwrap();
    let variable = daemon["env"].as_array().unwrap().iter().find(|it| it["name"] == "NODE_NAME").unwrap();
    assert_eq!(variable["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
    let its_node = told["spec"]["nodeName"].as_str().unwrap();
    assert_eq!(its_node, node);
    let daemon = release.start(&pod.name_any(), Some(its_node)).await;

    let waiting = world.waiting_class("waiting", json!({})).await;
    let immediate = world.class("immediate", json!({})).await;
    assert_eq!(release.room(1).await, ["DaemonSet"]);
    let chosen = world.claim("chosen", &waiting, json!({})).await;
    let consumer = world.pod("user", &[&chosen], Some(&node)).await;
    let taken = world.claim("taken", &immediate, json!({})).await;
    let volumes = [world.bound(&chosen).await, world.bound(&taken).await];
    let claims: Api<PersistentVolumeClaim> = world.namespaced();
    assert_eq!(claims.get(&taken).await.unwrap().annotations()[SELECTED_NODE], node, "the node took it for itself");
    world.delete_pod(&consumer).await;
    for (claim, volume) in [&chosen, &taken].into_iter().zip(&volumes) {
        world.delete_claim(claim).await;
        world.claim_gone(claim).await;
        world.gone::<PersistentVolume>(&volume.name_any()).await;
    }
    world.assert_nothing_leaked().await;
    let leases: Api<Lease> = release.own();
    assert_eq!(leases.list(&ListParams::default()).await.unwrap().items, [], "it leads nobody");
    let metrics = world.metrics(&daemon).await;
    let used = [
        ("create", "persistentvolumes"),
        ("delete", "persistentvolumes"),
        ("create", "csistoragecapacities"),
        ("get", "pods"),
    ];
    assert_allowed(&metrics, &used);
    daemon.stop().await.unwrap();
}
