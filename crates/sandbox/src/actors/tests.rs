use std::time::Duration;

use tokio::time::sleep;

use super::*;
use crate::api::ApiOptions;
use base::process::{Clock, Rng};

struct Scene {
    api: Api,
    actors: Actors,
}

const DRIVER: &str = "demo.csi.example.com";

impl Scene {
    fn new() -> Self {
        let api = Api::new(ApiOptions::new(Clock::system(), Rng::seeded(1)));
        Self { actors: Actors::of(api.clone()), api }
    }

    fn make(&mut self, object: Value) -> Arc<Value> {
        let made = self.api.create_value(object).unwrap();
        self.actors.settle();
        made
    }

    fn class(&mut self, mode: &str) {
        self.make(json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "class"},
            "provisioner": DRIVER, "volumeBindingMode": mode}));
    }

    fn claim(&mut self, name: &str) -> Arc<Value> {
        self.make(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "class"}}))
    }

    fn quota(&mut self, hard: &Value) {
        self.make(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"},
            "spec": {"hard": hard}}));
    }

    fn node(&mut self, name: &str) {
        self.make(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"host": name}}}));
        let seen = self.actors.cluster.one(NODES, "", name).unwrap();
        assert!(self.actors.cluster.change(NODES, &seen, json!({"spec": {"taints": null}})));
        self.actors.settle();
    }

    fn pod(&mut self, name: &str, claim: &str) {
        self.make(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}}));
    }

    /// The provisioner's write for a claim that cannot get a volume on the selected node.
    fn send_back(&mut self, claim: &str) {
        let seen = self.look(CLAIMS, claim);
        let back = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}});
        assert!(self.actors.cluster.change(CLAIMS, &seen, back));
        self.actors.settle();
    }

    /// The provisioner's work for a claim.
    fn provision(&mut self, name: &str, claim: &Value, host: Option<&str>) {
        let mut volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}, "storageClassName": "class",
            "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": DRIVER, "volumeHandle": name},
            "claimRef": {"namespace": "default", "name": place(claim).1, "uid": uid(claim)}}});
        if let Some(host) = host {
            volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "host", "operator": "In", "values": [host]}]}]}});
        }
        self.make(volume);
    }

    fn look(&self, kind: Kind, name: &str) -> Arc<Value> {
        let namespace = if [CLAIMS, PODS, QUOTAS].contains(&kind) { "default" } else { "" };
        self.actors.cluster.one(kind, namespace, name).unwrap_or_else(|| Arc::new(Value::Null))
    }

    fn delete(&mut self, kind: Kind, name: &str) {
        let seen = self.look(kind, name);
        self.actors.cluster.delete(kind, &seen);
        self.actors.settle();
    }
}

#[test]
fn a_claim_of_a_class_that_does_not_exist_has_one_event_and_is_provisioned_once_the_class_is_there() {
    let mut scene = Scene::new();
    let claim = scene.claim("a");
    scene.claim("b");
    let told: Vec<_> = scene.actors.cluster.all(EVENTS);
    let of_a: Vec<_> = told.iter().filter(|event| text(event, "/involvedObject/uid") == uid(&claim)).collect();
    assert_eq!((told.len(), of_a.len()), (2, 1), "{told:?}");
    let words = ["/type", "/reason", "/message", "/source/component"].map(|at| text(of_a[0], at));
    let message = "storageclass.storage.k8s.io \"class\" not found";
    assert_eq!(words, ["Warning", "ProvisioningFailed", message, "persistentvolume-controller"]);
    scene.class("Immediate");
    let claim = scene.look(CLAIMS, "a");
    assert_eq!(annotation(&claim, "volume.kubernetes.io/storage-provisioner"), Some(DRIVER));
    assert_eq!(scene.actors.cluster.all(EVENTS).len(), 2);
}

#[test]
fn a_claim_is_provisioned_bound_and_released() {
    let mut scene = Scene::new();
    scene.class("Immediate");
    let claim = scene.claim("a");
    let seen = scene.look(CLAIMS, "a");
    for key in ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"] {
        assert_eq!(annotation(&seen, key), Some(DRIVER));
    }
    scene.provision("pv", &claim, None);
    let seen = scene.look(CLAIMS, "a");
    assert_eq!((text(&seen, "/spec/volumeName"), text(&seen, "/status/phase")), ("pv", "Bound"));
    assert_eq!(text(&seen, "/status/capacity/storage"), "2Gi");
    for key in ["pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"] {
        assert_eq!(annotation(&seen, key), Some("yes"));
    }
    assert_eq!(text(&scene.look(VOLUMES, "pv"), "/status/phase"), "Bound");
    scene.delete(CLAIMS, "a");
    assert!(scene.look(CLAIMS, "a").is_null());
    assert_eq!(text(&scene.look(VOLUMES, "pv"), "/status/phase"), "Released");
    scene.delete(VOLUMES, "pv");
    assert!(scene.look(VOLUMES, "pv").is_null());
}

#[test]
fn a_claim_whose_volume_goes_is_lost_and_a_bound_volume_is_held() {
    let mut scene = Scene::new();
    scene.class("Immediate");
    let claim = scene.claim("a");
    scene.provision("pv", &claim, None);
    scene.delete(VOLUMES, "pv");
    let held = scene.look(VOLUMES, "pv");
    assert!(is_deleting(&held), "a bound volume stays");
    scene.actors.cluster.let_go(VOLUMES, &held, "kubernetes.io/pv-protection");
    scene.actors.settle();
    assert_eq!(text(&scene.look(CLAIMS, "a"), "/status/phase"), "Lost");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_comes_back_from_every_node_goes_round_ever_more_slowly() {
    let mut scene = Scene::new();
    scene.class("WaitForFirstConsumer");
    scene.claim("a");
    scene.node("n1");
    scene.pod("pod", "a");
    for wait in [1, 2, 4, 8, 10, 10] {
        assert_eq!(annotation(&scene.look(CLAIMS, "a"), "volume.kubernetes.io/selected-node"), Some("n1"));
        scene.send_back("a");
        let now = Instant::now();
        let next = scene.actors.scheduler.next(now).unwrap();
        assert_eq!(next - now, Duration::from_secs(wait));
        sleep_until(next - Duration::from_millis(1)).await;
        scene.actors.settle();
        assert_eq!(annotation(&scene.look(CLAIMS, "a"), "volume.kubernetes.io/selected-node"), None);
        sleep_until(next).await;
        scene.actors.settle();
    }
}

#[test]
fn a_volume_of_an_earlier_namesake_is_released() {
    let mut scene = Scene::new();
    scene.class("Immediate");
    let old = scene.claim("a");
    scene.delete(CLAIMS, "a");
    scene.claim("a");
    scene.provision("pv", &old, None);
    assert_eq!(text(&scene.look(VOLUMES, "pv"), "/status/phase"), "Released");
    assert_eq!(text(&scene.look(CLAIMS, "a"), "/status/phase"), "Pending");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_claim_gets_a_node_and_its_pod_follows_and_is_attached() {
    let mut scene = Scene::new();
    scene.class("WaitForFirstConsumer");
    let claim = scene.claim("a");
    assert_eq!(annotation(&scene.look(CLAIMS, "a"), "volume.kubernetes.io/storage-provisioner"), None);
    scene.node("n1");
    scene.node("n2");
    scene.pod("pod", "a");
    let seen = scene.look(CLAIMS, "a");
    assert_eq!(annotation(&seen, "volume.kubernetes.io/selected-node"), Some("n1"));
    assert_eq!(annotation(&seen, "volume.kubernetes.io/storage-provisioner"), Some(DRIVER));
    // It came back without a volume: the next node is tried, after a rest.
    scene.send_back("a");
    assert_eq!(annotation(&scene.look(CLAIMS, "a"), "volume.kubernetes.io/selected-node"), None);
    sleep(Duration::from_secs(1)).await;
    scene.actors.settle();
    assert_eq!(annotation(&scene.look(CLAIMS, "a"), "volume.kubernetes.io/selected-node"), Some("n2"));
    assert_eq!(text(&scene.look(PODS, "pod"), "/spec/nodeName"), "");
    scene.provision("pv", &claim, Some("n2"));
    assert_eq!(text(&scene.look(PODS, "pod"), "/spec/nodeName"), "n2");
    let attachments = scene.actors.cluster.all(ATTACHMENTS);
    assert_eq!(attachments.len(), 1);
    assert_eq!(text(&attachments[0], "/spec/source/persistentVolumeName"), "pv");
    // It runs once its volume is attached, and not before.
    assert_eq!(text(&scene.look(PODS, "pod"), "/status/phase"), "Pending");
    scene.actors.cluster.change_status(ATTACHMENTS, &attachments[0], &json!({"attached": true}));
    scene.actors.settle();
    let pod = scene.look(PODS, "pod");
    let conditions: Vec<&str> = list(&pod, "/status/conditions").iter().map(|it| text(it, "/type")).collect();
    assert_eq!((text(&pod, "/status/phase"), conditions.len()), ("Running", 5), "{conditions:?}");
    assert_eq!(pod.pointer("/status/containerStatuses/0/ready"), Some(&Value::Bool(true)));
    // A claim in use is held, and its end is the pod's.
    scene.delete(CLAIMS, "a");
    assert!(is_deleting(&scene.look(CLAIMS, "a")));
    scene.delete(PODS, "pod");
    assert!(scene.look(CLAIMS, "a").is_null());
    assert_eq!(scene.actors.cluster.all(ATTACHMENTS).len(), 0);
}

#[test]
fn a_pod_goes_only_where_its_volume_is() {
    let mut scene = Scene::new();
    scene.class("Immediate");
    let claim = scene.claim("a");
    scene.node("n1");
    scene.pod("pod", "a");
    scene.provision("pv", &claim, Some("n2"));
    assert_eq!(text(&scene.look(PODS, "pod"), "/spec/nodeName"), "");
    scene.node("n2");
    assert_eq!(text(&scene.look(PODS, "pod"), "/spec/nodeName"), "n2");
}

#[test]
fn attachments_of_others_are_left_alone() {
    let mut scene = Scene::new();
    scene.make(json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "theirs"},
        "spec": {"attacher": DRIVER, "nodeName": "n", "source": {"persistentVolumeName": "pv"}}}));
    assert_eq!(scene.actors.cluster.all(ATTACHMENTS).len(), 1);
}

#[test]
fn a_volume_for_one_node_is_asked_for_on_the_next_when_it_has_left_the_last() {
    const HOLD: &str = "example.com/detaches";
    let mut scene = Scene::new();
    scene.class("Immediate");
    let claim = scene.claim("a");
    scene.provision("pv", &claim, None);
    let pod = |name: &str, node: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "nodeName": node, "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}]}})
    };
    let nodes = |scene: &Scene| -> Vec<String> {
        let all = scene.actors.cluster.all(ATTACHMENTS);
        all.iter().map(|it| text(it, "/spec/nodeName").to_owned()).collect()
    };
    scene.make(pod("here", "n1"));
    scene.make(pod("there", "n2"));
    assert_eq!(nodes(&scene), ["n1"]);
    let first = scene.actors.cluster.all(ATTACHMENTS)[0].clone();
    assert!(scene.actors.cluster.change(ATTACHMENTS, &first, json!({"metadata": {"finalizers": [HOLD]}})));
    scene.delete(PODS, "here");
    let going = scene.actors.cluster.all(ATTACHMENTS)[0].clone();
    assert!(is_deleting(&going));
    assert_eq!(nodes(&scene), ["n1"], "it is not off the node yet");
    scene.actors.cluster.let_go(ATTACHMENTS, &going, HOLD);
    scene.actors.settle();
    assert_eq!(nodes(&scene), ["n2"]);
    // One for many need not wait.
    let volume = scene.look(VOLUMES, "pv");
    assert!(scene.actors.cluster.change(VOLUMES, &volume, json!({"spec": {"accessModes": ["ReadWriteMany"]}})));
    scene.make(pod("back", "n1"));
    let mut both = nodes(&scene);
    both.sort();
    assert_eq!(both, ["n1", "n2"]);
}

#[test]
fn a_quota_tells_what_its_claims_count_and_lets_no_more_be_asked_for() {
    let mut scene = Scene::new();
    scene.class("Immediate");
    scene.claim("a");
    scene.quota(&json!({"requests.storage": "3Gi", "persistentvolumeclaims": "2", "pods": "5"}));
    let counted = |scene: &Scene| scene.look(QUOTAS, "quota")["status"].clone();
    let hard = json!({"requests.storage": "3Gi", "persistentvolumeclaims": "2", "pods": "5"});
    let used = |size: &str, claims: &str| json!({"requests.storage": size, "persistentvolumeclaims": claims});
    assert_eq!(counted(&scene), json!({"hard": hard, "used": used("1Gi", "1")}));
    scene.claim("b");
    assert_eq!(counted(&scene)["used"], used("2Gi", "2"));
    let third = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let refused = scene.api.create_value(third.clone()).unwrap_err();
    assert!(refused.to_string().contains("exceeded quota: quota"), "{refused}");
    assert_eq!(refused.code(), Some(403));
    let first = scene.look(CLAIMS, "a");
    assert!(scene.actors.cluster.change_status(CLAIMS, &first, &json!({"allocatedResources": {"storage": "2Gi"}})));
    scene.actors.settle();
    assert_eq!(counted(&scene)["used"], used("3Gi", "2"), "what was begun counts");
    scene.actors.cluster.delete(CLAIMS, &scene.look(CLAIMS, "b"));
    scene.actors.settle();
    assert_eq!(counted(&scene)["used"], used("2Gi", "1"));
    assert!(scene.api.create_value(third).is_ok());
}
