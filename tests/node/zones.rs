//! A set of six pods whose volumes are in two zones, one of them small: the scheduler reads what is free from our capacity objects.
//! Its pods come back to their volumes; a volume grows, one cannot, one gets another class; all are in one group of snapshots.

use std::collections::BTreeMap;

use csi_control_plane::proto::plugin_capability::service;
use csi_control_plane::sandbox::driver::{Profile, Volume};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimStatus, Pod};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::images::BUSYBOX;
use super::lab::{Lab, NAME, Plan, values_of_the_chart};
use super::workloads::{NAMESPACE, claim, custom, pod};

/// The key of the driver's topology.
const ZONE: &str = "topology.demo.csi.example.com/zone";
/// The zones, and what each has room for, in GiB: of six volumes, two are in the first.
const ZONES: [(&str, u64); 2] = [("a", 2), ("b", 20)];
/// The set, the label of its pods and claims, and how many there are.
const SET: &str = "six";
const COUNT: usize = 6;
/// The class that a volume is changed to.
const FASTER: &str = "faster";
/// Each pod notes each of its starts.
const NOTE: &str = "hostname >>/data/starts && sync /data/starts && exec sleep 100000";

#[tokio::test]
async fn a_set_of_six_is_spread_over_two_zones_and_its_volumes_grow_change_and_are_cut_together() {
    let lab = Lab::start_as(plan).await;
    lab.create::<StatefulSet>(Some(NAMESPACE), &set()).await;
    ready(&lab, COUNT).await;
    let placed = volumes_by_claim(&lab).await;
    let zones: Vec<&str> = placed.values().map(|volume| volume.segments[ZONE].as_str()).collect();
    assert_eq!(zones.iter().filter(|zone| **zone == "a").count(), 2, "{zones:?}");
    each_volume_is_where_the_scheduler_wanted_it(&lab, &placed).await;
    each_pod_is_in_the_zone_of_its_volume(&lab, &placed).await;

    scale(&lab, 0).await;
    for volume in placed.values() {
        lab.detached(&volume.name).await;
    }
    scale(&lab, COUNT).await;
    each_pod_is_in_the_zone_of_its_volume(&lab, &placed).await;
    for number in 0..COUNT {
        let name = format!("{SET}-{number}");
        assert_eq!(lab.exec(&name, "cat /data/starts").unwrap(), format!("{name}\n{name}\n"), "its own volume, again");
    }

    let claim = placed.iter().find(|(_, volume)| volume.segments[ZONE] == "b").map(|(claim, _)| claim.as_str());
    let claim = claim.expect("a volume in the large zone");
    no_size_is_too_large_to_be_taken_back(&lab, claim).await;
    a_volume_gets_another_class(&lab, claim).await;
    all_are_cut_together(&lab, claim).await;

    scale(&lab, 0).await;
    for claim in placed.keys() {
        lab.discard(claim).await;
    }
    lab.nothing_is_left().await;
}

/// A cluster of two nodes in two zones.
fn plan(folder: &std::path::Path) -> Plan {
    let zone = |name: &str| json!({ZONE: name});
    let nodes =
        ZONES.iter().zip(1..).map(|((name, _), number)| (format!("10.1.0.{number}"), json!({"segments": zone(name)})));
    let pools = ZONES.iter().map(|(name, room)| json!({"segments": zone(name), "capacity": room << 30}));
    let mut services = Profile::default().services;
    services.insert(service::Type::VolumeAccessibilityConstraints as i32);
    let profile = json!({
        "services": services, "nodes": nodes.collect::<serde_json::Map<_, _>>(), "pools": pools.collect::<Vec<_>>()});
    let roles = json!({
        "attacher": {}, "resizer": {}, "reconciler": {}, "snapshotter": {}, "liveness": {},
        "provisioner": {"capacity": {"enabled": true}},
    });
    Plan {
        has_snapshots: true,
        driver: json!({
            "attachRequired": true, "podInfoOnMount": false, "fsGroupPolicy": "File", "storageCapacity": true}),
        profile: Some(profile),
        values: Some(values_of_the_chart(&roles, &[])),
        ..Plan::usual(folder)
    }
}

/// One pod after the other, as many in one zone as in the other: but that the small one is full, which only our capacity objects say.
fn set() -> Value {
    let labels = json!({"app": SET});
    let mut template = claim("data", "Filesystem", "1Gi");
    template["metadata"]["labels"] = labels.clone();
    json!({
        "metadata": {"name": SET},
        "spec": {
            "serviceName": SET, "replicas": COUNT, "selector": {"matchLabels": labels},
            "volumeClaimTemplates": [template],
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": false,
                    "topologySpreadConstraints": [{
                        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": labels}}],
                    "containers": [{
                        "name": "shell", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", NOTE],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}}}})
}

/// Waits until so many pods of the set are ready, and there are no more.
async fn ready(lab: &Lab, count: usize) {
    let sets: Api<StatefulSet> = Api::namespaced(lab.client.clone(), NAMESPACE);
    lab.until(&format!("{count} pods of the set are ready"), async || {
        let status = sets.get(SET).await.unwrap().status?;
        let are = |found: i32| usize::try_from(found) == Ok(count);
        (are(status.replicas) && are(status.ready_replicas.unwrap_or_default())).then_some(())
    })
    .await;
}

async fn scale(lab: &Lab, count: usize) {
    lab.kubectl(&["scale", "statefulset", SET, &format!("--replicas={count}")]).unwrap();
    ready(lab, count).await;
}

/// The driver's volumes, by the name of the claim.
async fn volumes_by_claim(lab: &Lab) -> BTreeMap<String, Volume> {
    let mut found = BTreeMap::new();
    for number in 0..COUNT {
        let claim = format!("data-{SET}-{number}");
        let name = lab.volume_of(&claim).await;
        let volume = lab.storage().volumes().values().find(|volume| volume.name == name).cloned();
        found.insert(claim, volume.expect("the driver's volume"));
    }
    found
}

/// The scheduler has chosen no zone that was full: the driver would have made the volume in the other one.
async fn each_volume_is_where_the_scheduler_wanted_it(lab: &Lab, placed: &BTreeMap<String, Volume>) {
    for (claim, volume) in placed {
        let zone = ZONES.iter().position(|(zone, _)| *zone == volume.segments[ZONE]).unwrap();
        let annotations = lab.claims().get(claim).await.unwrap().metadata.annotations.unwrap();
        assert_eq!(annotations["volume.kubernetes.io/selected-node"], lab.machines[zone].name, "{claim}");
    }
}

/// Each pod runs in the zone of its volume, and the kubelet has said which zone its node is in.
async fn each_pod_is_in_the_zone_of_its_volume(lab: &Lab, placed: &BTreeMap<String, Volume>) {
    let pods: Api<Pod> = Api::namespaced(lab.client.clone(), NAMESPACE);
    for (claim, volume) in placed {
        let pod = pods.get(claim.trim_start_matches("data-")).await.unwrap();
        let node = pod.spec.unwrap().node_name.unwrap();
        let label = format!("--output=jsonpath={{.metadata.labels['{}']}}", ZONE.replace('.', "\\."));
        assert_eq!(lab.kubectl(&["get", "node", &node, &label]).unwrap(), volume.segments[ZONE], "{claim} on {node}");
    }
}

/// A claim asks for more than the driver can ever give, says so, and asks for less: the pod runs on, and the volume grows.
async fn no_size_is_too_large_to_be_taken_back(lab: &Lab, claim: &str) {
    let pod = claim.trim_start_matches("data-");
    let lives = lab.lives(pod).await;
    let ask = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    patch(lab, claim, ask("5000Gi")).await;
    status(lab, claim, "is told that no such size is possible", |status| {
        let of_resize = status.allocated_resource_statuses.as_ref()?.get("storage")?;
        (of_resize == "ControllerResizeInfeasible").then_some(())
    })
    .await;
    patch(lab, claim, ask("2Gi")).await;
    status(lab, claim, "has 2 GiB", |status| {
        let is_over = status.allocated_resource_statuses.as_ref().is_none_or(|it| !it.contains_key("storage"));
        (is_over && status.capacity.as_ref()?.get("storage")?.0 == "2Gi").then_some(())
    })
    .await;
    let name = lab.volume_of(claim).await;
    let storage = lab.storage();
    assert_eq!(storage.volumes().values().find(|volume| volume.name == name).unwrap().capacity, 2 << 30);
    assert_eq!(lab.lives(pod).await, lives, "the pod has noticed nothing");
}

/// A claim that is in use names another class of attributes: the driver gets its parameters.
async fn a_volume_gets_another_class(lab: &Lab, claim: &str) {
    let class = json!({"metadata": {"name": FASTER}, "driverName": NAME, "parameters": {"iops": "2000"}});
    lab.create::<VolumeAttributesClass>(None, &class).await;
    patch(lab, claim, json!({"spec": {"volumeAttributesClassName": FASTER}})).await;
    status(lab, claim, "has the class", |status| {
        (status.current_volume_attributes_class_name.as_deref() == Some(FASTER)).then_some(())
    })
    .await;
    let name = lab.volume_of(claim).await;
    let storage = lab.storage();
    let volume = storage.volumes().values().find(|volume| volume.name == name).unwrap();
    assert_eq!(volume.mutable, BTreeMap::from([("iops".to_owned(), "2000".to_owned())]));
}

/// One group has a snapshot of each volume of the set, a new claim gets one's content, and all go with the group.
async fn all_are_cut_together(lab: &Lab, claim_of_one: &str) {
    let group = "groupsnapshot.storage.k8s.io";
    let classes = Api::all_with(lab.client.clone(), &custom(group, "VolumeGroupSnapshotClass"));
    let groups = Api::namespaced_with(lab.client.clone(), NAMESPACE, &custom(group, "VolumeGroupSnapshot"));
    let snapshots: Api<DynamicObject> =
        Api::namespaced_with(lab.client.clone(), NAMESPACE, &custom("snapshot.storage.k8s.io", "VolumeSnapshot"));
    let class = json!({"driver": NAME, "deletionPolicy": "Delete"});
    let class = DynamicObject::new(SET, &custom(group, "VolumeGroupSnapshotClass")).data(class);
    classes.create(&PostParams::default(), &class).await.unwrap();
    let spec = json!({"volumeGroupSnapshotClassName": SET, "source": {"selector": {"matchLabels": {"app": SET}}}});
    let wanted = DynamicObject::new(SET, &custom(group, "VolumeGroupSnapshot")).data(json!({ "spec": spec }));
    groups.create(&PostParams::default(), &wanted).await.unwrap();
    lab.until("the group is ready", async || {
        (groups.get(SET).await.unwrap().data["status"]["readyToUse"] == true).then_some(())
    })
    .await;
    let state = lab.storage();
    let sources: Vec<usize> = state.groups().values().map(|group| group.sources.len()).collect();
    assert_eq!(sources, [COUNT], "one group of all volumes");

    let members = snapshots.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(members.len(), COUNT);
    let is_of = |it: &&DynamicObject| it.data["spec"]["source"]["persistentVolumeClaimName"] == claim_of_one;
    let member = members.iter().find(is_of).and_then(|it| it.metadata.name.clone());
    let mut wanted = claim("restored", "Filesystem", "2Gi");
    wanted["spec"]["dataSource"] = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot",
        "name": member.unwrap_or_else(|| panic!("no member of {claim_of_one}: {members:#?}"))});
    lab.claim(&wanted).await;
    let owner = claim_of_one.trim_start_matches("data-");
    let read = lab.run(&pod("reader", "restored", &lab.machines[1].name, "cat /data/starts")).await;
    assert_eq!(read, format!("{owner}\n{owner}\n"), "what was there when the group was cut");
    lab.discard("restored").await;

    groups.delete(SET, &DeleteParams::default()).await.unwrap();
    lab.until("the group is gone with its members", async || {
        let is_gone = groups.get_opt(SET).await.unwrap().is_none();
        (is_gone && snapshots.list(&ListParams::default()).await.unwrap().items.is_empty()).then_some(())
    })
    .await;
}

/// A user changes a claim.
async fn patch(lab: &Lab, claim: &str, change: Value) {
    lab.claims().patch(claim, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

/// Waits until a claim's status is as it should be.
async fn status(lab: &Lab, claim: &str, what: &str, holds: impl Fn(&PersistentVolumeClaimStatus) -> Option<()>) {
    lab.until(&format!("{claim} {what}"), async || holds(&lab.claims().get(claim).await.unwrap().status?)).await;
}
