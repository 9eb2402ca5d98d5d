//! The command `migrate` on a real API server: the API server accepts the written files, the real kubectl applies and
//! reverts them, the real scheduler finds nodes for their pods, and a daemon with the written configuration and rights takes over
//! from csi-attacher and hands back.

use std::path::{Path, PathBuf};

use csi_control_plane::roles::csi_attacher;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::accounts;
use crate::cluster::kubectl::Kubectl;
use crate::cluster::sidecar;
use crate::ground::cluster::NAMESPACE;
use crate::program::{Program, run};
use crate::world::{World, brief};

/// A workload of `tests/migrate`.
struct Fixture {
    file: &'static str,
    kind: &'static str,
    name: &'static str,
    namespace: &'static str,
    /// The parts that its manifest lacks.
    more: &'static [&'static str],
}

const FIXTURES: [Fixture; 7] = [
    // What the server prints is the workload alone, without the CSIDriver object that names the driver.
    Fixture {
        file: "aws-ebs",
        kind: "deployment",
        name: "ebs-csi-controller",
        namespace: "kube-system",
        more: &["--driver-name=ebs.csi.aws.com"],
    },
    Fixture {
        file: "azuredisk",
        kind: "deployment",
        name: "csi-azuredisk-controller",
        namespace: "kube-system",
        more: &["--driver-name=disk.csi.azure.com"],
    },
    Fixture {
        file: "ceph-rbd",
        kind: "deployment",
        name: "csi-rbdplugin-provisioner",
        namespace: "storage",
        more: &[],
    },
    Fixture {
        file: "cinder",
        kind: "statefulset",
        name: "csi-cinder-controllerplugin",
        namespace: "kube-system",
        more: &["--driver-name=cinder.csi.openstack.org"],
    },
    Fixture {
        file: "gcp-pd",
        kind: "deployment",
        name: "csi-gce-pd-controller",
        namespace: "gce-pd-csi-driver",
        more: &["--namespace=gce-pd-csi-driver", "--driver-name=pd.csi.storage.gke.io"],
    },
    Fixture {
        file: "hardened-node",
        kind: "daemonset",
        name: "hardened-node",
        namespace: "storage",
        more: &["--driver-name=hardened.csi.example.com"],
    },
    Fixture { file: "hostpath", kind: "statefulset", name: "csi-hostpathplugin", namespace: "default", more: &[] },
];

/// The files that are applied beside the workload.
const ADDED: [&str; 3] = ["configmap.yaml", "rbac.yaml", "bindings.yaml"];

impl Fixture {
    fn manifest(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/migrate/{}.yaml", self.file))
    }

    /// The workload as it is on the server.
    async fn live(&self, kubectl: &Kubectl<'_>) -> Value {
        kubectl.object(self.kind, self.namespace, self.name).await
    }
}

/// Those of them that hold an object: kubectl refuses an empty file, and a node plugin has no rights.
fn added(folder: &Path) -> Vec<&'static str> {
    let is_there = |file: &&str| !std::fs::read_to_string(folder.join(file)).unwrap().trim().is_empty();
    ADDED.into_iter().filter(is_there).collect()
}

/// Migrates a manifest into a folder, and returns the folder.
async fn migrated(from: &Path, into: PathBuf, more: &[&str]) -> PathBuf {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (from, out) = (text(from), text(&into));
    let arguments = [&["migrate", "--image=registry.example/daemon:v1", "-f", &from, "--out", &out], more].concat();
    let ended = run(&arguments, &[]).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    into
}

fn containers(object: &Value) -> Vec<&str> {
    let containers = object.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    containers.unwrap().iter().map(|container| container["name"].as_str().unwrap()).collect()
}

/// The workload in a file that was written.
fn written(folder: &Path, file: &str, name: &str) -> Value {
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let documents = serde_yaml::Deserializer::from_str(&text).map(|one| Value::deserialize(one).unwrap());
    let objects = documents.flat_map(|one| one["items"].as_array().cloned().unwrap_or_else(|| vec![one]));
    let is_it = |object: &Value| object["metadata"]["name"] == name && object.pointer("/spec/template").is_some();
    objects.into_iter().find(is_it).unwrap()
}

#[tokio::test]
async fn what_is_written_for_public_drivers_replaces_their_sidecars_on_a_real_server_and_back() {
    let cluster = crate::shared::api().await;
    let folder = tempfile::tempdir().unwrap();
    let kubectl = Kubectl::new(&cluster, folder.path());
    for fixture in &FIXTURES {
        let Fixture { file, kind, name, namespace, more } = fixture;
        accounts::namespace(&cluster.client().await, namespace).await;
        let place = ["--namespace", namespace];
        // A manifest that names no namespace goes into that of its user.
        let all = if more.iter().any(|flag| flag.starts_with("--namespace")) { &place[..] } else { &[] };
        let of = |folder: &Path, file: &str| folder.join(file).to_str().unwrap().to_owned();

        // From the file that a user has. Nothing of what is written has a field that the server does not know.
        let from_file = migrated(&fixture.manifest(), folder.path().join(file), more).await;
        for written in added(&from_file).iter().chain(&["workload.yaml", "original.yaml"]) {
            let path = of(&from_file, written);
            let strictly = ["apply", "--dry-run=server", "--validate=strict", "-f", &path];
            let all = if ADDED.contains(written) { &[] } else { all };
            kubectl.done(&[&strictly[..], all].concat()).await;
        }

        // There without `kubectl apply`, as operators and Helm do it; then asked for, as one who has no file does it.
        let manifest = fixture.manifest().to_str().unwrap().to_owned();
        kubectl.done(&[&["create", "-f", &manifest][..], all].concat()).await;
        let before = fixture.live(&kubectl).await;
        let printed =
            kubectl.done(&[&["get", kind, name, "--output=yaml", "--show-managed-fields"][..], &place].concat()).await;
        let live = folder.path().join(format!("{file}-live.yaml"));
        std::fs::write(&live, &printed).unwrap();
        let from_server = migrated(&live, folder.path().join(format!("{file}-moved")), more).await;
        // Another user changes it meanwhile: the saved output cannot be written back as it is.
        kubectl.done(&[&["annotate", kind, name, "touched=yes"][..], &place].concat()).await;
        let told = kubectl.refused(&["replace", "-f", live.to_str().unwrap()]).await;
        assert!(told.contains("the object has been modified"), "{told}");

        for (from, all) in [(&from_server, &[][..]), (&from_file, all)] {
            for added in added(from) {
                kubectl.done(&["apply", "-f", &of(from, added)]).await;
            }
            kubectl.done(&[&["replace", "-f", &of(from, "workload.yaml")][..], all].concat()).await;
            let moved = fixture.live(&kubectl).await;
            let wanted = written(from, "workload.yaml", name);
            assert_eq!(containers(&moved), containers(&wanted), "{file}");
            assert!(containers(&moved).contains(&"csi-control-plane"), "{file}");
            let gone = ["csi-attacher", "csi-provisioner"];
            assert!(!containers(&moved).iter().any(|container| gone.contains(container)), "{file}: {moved:#}");
            kubectl.done(&[&["replace", "-f", &of(from, "original.yaml")][..], all].concat()).await;
            let after = fixture.live(&kubectl).await;
            assert_eq!(after["spec"], before["spec"], "{file}: as it was");
            for added in added(from) {
                kubectl.done(&["delete", "-f", &of(from, added)]).await;
            }
        }
        kubectl.done(&[&["delete", "-f", &manifest][..], all].concat()).await;
    }
}

#[tokio::test]
async fn kubectl_apply_leaves_sidecars_that_it_did_not_put_there_and_replace_does_not() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let kubectl = Kubectl::new(world.real().cluster(), folder.path());
    let name = world.name("controller");
    let manifest = folder.path().join("controller.yaml");
    std::fs::write(&manifest, workload(&name, &["--csi-address=/csi/csi.sock".to_owned()])).unwrap();
    let moved = migrated(&manifest, folder.path().join("moved"), &["--driver-name", world.driver_name()]).await;
    let path = |file: &str| moved.join(file).to_str().unwrap().to_owned();
    let (new, old) = (path("workload.yaml"), path("original.yaml"));
    let now = async || {
        let live = kubectl.object("deployment", NAMESPACE, &name).await;
        containers(&live).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let (ours, theirs) = (["csi-control-plane", "driver"], ["csi-attacher", "driver"]);

    // `apply` takes out what an `apply` has put in, and nothing else.
    kubectl.done(&["create", "-f", &old]).await;
    kubectl.done(&["apply", "-f", &new]).await;
    let mut both = now().await;
    both.sort();
    assert_eq!(both, ["csi-attacher", "csi-control-plane", "driver"], "both compete for the Lease in each pod");
    kubectl.done(&["replace", "-f", &new]).await;
    assert_eq!(now().await, ours);
    kubectl.done(&["replace", "-f", &old]).await;
    assert_eq!(now().await, theirs);

    // With `--save-config`, as migrate says it, whoever goes on with `apply` can.
    kubectl.done(&["replace", "--save-config", "-f", &new]).await;
    kubectl.done(&["apply", "-f", &old]).await;
    assert_eq!(now().await, theirs);
    kubectl.done(&["apply", "-f", &new]).await;
    assert_eq!(now().await, ours);
    kubectl.done(&["replace", "--save-config", "-f", &old]).await;
    assert_eq!(now().await, theirs);
    kubectl.done(&["delete", "-f", &old]).await;
}

/// A controller with csi-attacher and a driver.
fn workload(name: &str, flags: &[String]) -> String {
    let arguments: Vec<String> = flags.iter().map(|flag| format!("        - {flag}\n")).collect();
    let arguments = arguments.concat();
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  namespace: {NAMESPACE}\nspec:\n  replicas: 2\n  \
         selector:\n    matchLabels: {{app: {name}}}\n  template:\n    metadata:\n      labels: {{app: {name}}}\n    spec:\n      \
         serviceAccountName: {name}\n      containers:\n      - name: csi-attacher\n        \
         image: registry.k8s.io/sig-storage/csi-attacher:v4.12.0\n        args:\n{arguments}      - name: driver\n        \
         image: registry.example/driver:v1\n"
    )
}

/// A workload of a driver on the network of its node, with one sidecar.
fn on_the_nodes_network(kind: &str, name: &str, node: &str, (sidecar, flags): (&str, &[&str])) -> Value {
    let labels = json!({"app": name});
    let arguments = [&["--csi-address=/csi/csi.sock"], flags].concat();
    let containers = json!([
        {"name": "driver", "image": "registry.example/driver:v1"},
        {"name": "sidecar", "image": format!("registry.k8s.io/sig-storage/{sidecar}"), "args": arguments},
    ]);
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": {
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "hostNetwork": true, "nodeSelector": {"kubernetes.io/hostname": node}, "containers": containers}}}})
}

/// Two pods of one driver declare two ports of their node, so that the real scheduler finds room for both. With one port it does not.
#[tokio::test]
async fn a_controller_and_a_node_plugin_on_the_network_of_one_node_both_find_their_place_on_it() {
    let world = World::supplied(|_| {}).await;
    let node = world.place("node", &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let kubectl = Kubectl::new(world.real().cluster(), folder.path());
    let [plugin, controller, other] = ["plugin", "controller", "other"].map(|short| world.name(short));
    let registrar = ["--kubelet-registration-path=/var/lib/kubelet/plugins/p/csi.sock"];
    let both = [
        on_the_nodes_network("DaemonSet", &plugin, &node, ("csi-node-driver-registrar:v2.17.0", &registrar)),
        on_the_nodes_network("Deployment", &controller, &node, ("csi-attacher:v4.12.0", &["--leader-election"])),
    ];
    let manifest = folder.path().join("driver.yaml");
    std::fs::write(&manifest, both.map(|object| serde_yaml::to_string(&object).unwrap()).join("---\n")).unwrap();
    let pods: Api<Pod> = world.namespaced();
    let pod_of = async |name: &str| {
        let ours = ListParams::default().labels(&format!("app={name}"));
        let found = async || pods.list(&ours).await.unwrap().items.into_iter().next();
        crate::world::wait::asked("a pod", found).await
    };
    for name in [&plugin, &controller] {
        let more = ["--workload", name, "--driver-name", world.driver_name()];
        let moved = migrated(&manifest, folder.path().join(name), &more).await;
        kubectl.done(&["apply", "-f", moved.join("workload.yaml").to_str().unwrap()]).await;
        assert_eq!(world.scheduled(&pod_of(name).await.name_any()).await, node);
    }

    // Another one with the controller's port.
    let moved = std::fs::read_to_string(folder.path().join(&controller).join("workload.yaml")).unwrap();
    let copy = folder.path().join("other.yaml");
    std::fs::write(&copy, moved.replace(&controller, &other)).unwrap();
    kubectl.done(&["apply", "-f", copy.to_str().unwrap()]).await;
    let uid = pod_of(&other).await.uid().unwrap();
    let refused = |events: &[Event]| {
        events.iter().any(|event| event.message.as_ref().is_some_and(|text| text.contains("free ports")))
    };
    world.events_until(&uid, "a scheduler that finds no port", refused).await;

    let kinds = [("daemonset", &plugin), ("deployment", &controller), ("deployment", &other)];
    for (kind, name) in kinds {
        kubectl.done(&["delete", kind, name, "--namespace", "default", "--cascade=orphan"]).await;
        kubectl
            .done(&["delete", "replicasets,pods", "--namespace", "default", "-l", &format!("app={name}"), "--force"])
            .await;
    }
}

/// Gives the workload's account what was written for it, and returns a kubeconfig that has nothing else.
async fn granted(world: &World, kubectl: &Kubectl<'_>, moved: &Path, account: &str) -> PathBuf {
    kubectl.done(&["create", "serviceaccount", account, "--namespace", NAMESPACE]).await;
    for file in ADDED {
        kubectl.done(&["apply", "-f", moved.join(file).to_str().unwrap()]).await;
    }
    let rights = std::fs::read_to_string(moved.join("rbac.yaml")).unwrap();
    let roles: Vec<Value> =
        serde_yaml::Deserializer::from_str(&rights).map(|one| Value::deserialize(one).unwrap()).collect();
    accounts::until_enforced(&world.client(), NAMESPACE, account, &roles).await;
    let token = accounts::issue(&world.client(), NAMESPACE, account).await;
    world.real().cluster().kubeconfig(account, &token)
}

#[tokio::test]
async fn the_migrated_daemon_takes_over_from_csi_attacher_with_the_rights_that_were_written_and_hands_back() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let kubectl = Kubectl::new(world.real().cluster(), folder.path());
    let account = world.name("controller");
    let flags = [sidecar::flags(&world), vec!["--worker-threads=4".to_owned()]].concat();
    let manifest = folder.path().join("controller.yaml");
    std::fs::write(&manifest, workload(&account, &flags)).unwrap();
    let moved = migrated(&manifest, folder.path().join("moved"), &["--driver-name", world.driver_name()]).await;
    let kubeconfig = granted(&world, &kubectl, &moved, &account).await;

    let node = world.node("node").await;
    let (first, second) = (world.volume("first").await, world.volume("second").await);
    let third = world.volume("third").await;

    // csi-attacher attaches with these flags; the daemon with what came of them waits for the same Lease.
    let attacher = sidecar::start(&world, "csi-attacher", &flags);
    let by_them = world.attach(&first, &node).await;
    world.attached(&by_them).await;
    let config = moved.join("config.yaml");
    // Where a pod has a kubeconfig of its own and a port that nobody else wants.
    let variables = [
        ("CSI_CONTROL_PLANE_KUBERNETES__KUBECONFIG", kubeconfig.to_str().unwrap()),
        ("CSI_CONTROL_PLANE_DIAGNOSTICS__LISTEN", "127.0.0.1:0"),
    ];
    let mut daemon = Program::start(&["run", "--config", config.to_str().unwrap()], &variables);
    let status = daemon.is("standby").await;
    let role = crate::program::role(&status, "attacher");
    assert_eq!(role["lease"], format!("{NAMESPACE}/{}", csi_attacher::lease(world.driver_name())), "{role:#}");
    let by_them_too = world.attach(&second, &node).await;
    world.attached(&by_them_too).await;
    let caller = |volume: &str| world.publishes(volume).first().map(|call| call.connection);
    assert_eq!(caller(&second), caller(&first), "whoever holds the Lease attaches");

    // It stops: the daemon detaches what it attached, and asks for nothing again.
    attacher.stop().await;
    daemon.is("serving").await;
    world.detached(&by_them).await;
    assert!(!world.is_published(&first, &node));
    assert_ne!(world.unpublishes(&first)[0].connection, caller(&first).unwrap());
    let by_us = world.attach(&third, &node).await;
    world.attached(&by_us).await;
    assert_eq!(world.publishes(&third).len(), 1, "{:#?}", brief(&world.driver().calls()));

    // And back.
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());
    let told = daemon.stderr();
    assert!(!told.contains("forbidden"), "{told}");
    let attacher = sidecar::start(&world, "csi-attacher", &flags);
    world.detached(&by_us).await;
    world.detached(&by_them_too).await;
    assert!(!world.is_published(&third, &node) && !world.is_published(&second, &node));
    assert_eq!(world.publishes(&third).len(), 1, "{:#?}", brief(&world.driver().calls()));
    attacher.stop().await;
    for volume in [&first, &second, &third] {
        world.delete_volume(volume).await;
    }
    for file in ADDED {
        kubectl.done(&["delete", "-f", moved.join(file).to_str().unwrap()]).await;
    }
    let left = kubectl.done(&["get", "clusterroles,clusterrolebindings", "--output=name"]).await;
    assert!(!left.contains(world.driver_name()), "{left}");
}
