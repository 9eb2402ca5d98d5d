//! Attach-detach spec 3, row by row.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cluster::Fields;

use super::*;

/// What a cluster has, trimmed for another driver than that of the volumes.
#[derive(Default)]
struct World {
    claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    volumes: BTreeMap<String, Arc<PersistentVolume>>,
    unattached: Vec<&'static str>,
}

impl Facts for World {
    fn claim(&self, name: &ObjectName) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.get(&name.to_string()).cloned()
    }

    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.volumes.get(name).cloned()
    }

    fn is_attached(&self, driver: &str) -> bool {
        !self.unattached.contains(&driver)
    }
}

fn read<K: crate::cluster::Cached>(value: Value) -> Arc<K> {
    let mut object: K = serde_json::from_value(value).unwrap();
    object.trim("own", Fields::ATTACH);
    Arc::new(object)
}

fn claim(name: &str, uid: &str, volume: &Value, phase: &str, owner: Option<&str>) -> Arc<PersistentVolumeClaim> {
    let owners: Vec<Value> = owner
        .map(|uid| json!({ "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid, "controller": true }))
        .into_iter()
        .collect();
    read(json!({ "metadata": { "name": name, "namespace": "shop", "uid": uid, "ownerReferences": owners },
        "spec": { "volumeName": volume }, "status": { "phase": phase } }))
}

fn volume(name: &str, claim_uid: &str, source: Value) -> Arc<PersistentVolume> {
    let mut spec = source;
    spec["claimRef"] = json!({ "namespace": "shop", "name": "data", "uid": claim_uid });
    spec["accessModes"] = json!(["ReadWriteOnce"]);
    read(json!({ "metadata": { "name": name, "uid": name }, "spec": spec }))
}

fn csi(driver: &str, handle: &str) -> Value {
    json!({ "csi": { "driver": driver, "volumeHandle": handle } })
}

/// A world where the claim `data` is bound to a volume of `demo`.
fn bound() -> World {
    let mut world = World::default();
    world.claims.insert("shop/data".into(), claim("data", "cu", &json!("pv"), "Bound", None));
    world.volumes.insert("pv".into(), volume("pv", "cu", csi("demo", "v")));
    world
}

/// A pod with this node, these volumes, this status and perhaps a deletion.
fn pod(node: &str, volumes: &Value, status: &Value, deleted: bool) -> Arc<Pod> {
    let deletion = deleted.then_some("2026-01-02T00:00:00Z");
    read(json!({ "metadata": { "name": "web", "namespace": "shop", "uid": "pu", "deletionTimestamp": deletion },
        "spec": { "nodeName": node, "volumes": volumes }, "status": status }))
}

fn data() -> Value {
    json!([{ "name": "d", "persistentVolumeClaim": { "claimName": "data" } }])
}

fn wanted(wishes: &PodWishes) -> Vec<String> {
    wishes.wanted().map(|wish| wish.id.to_string()).collect()
}

fn of(pod: &Arc<Pod>, world: &World) -> Vec<String> {
    wanted(&wishes(pod, &PodWishes::default(), world))
}

#[test]
fn cases_1_to_5_and_d23_when_a_pod_wants_its_volumes() {
    let statuses = |state: Value| json!({ "phase": "Running", "containerStatuses": [{ "state": state }] });
    let none: &[&str] = &[];
    for (row, node, status, deleted, expected) in [
        ("3.1", "", json!({ "phase": "Pending" }), false, none),
        ("scheduled", "n1", json!({ "phase": "Pending" }), false, &["demo^v"]),
        ("3.3", "n1", json!({ "phase": "Succeeded" }), false, none),
        ("3.3", "n1", json!({ "phase": "Failed" }), false, none),
        ("3.4, no status", "n1", json!({ "phase": "Running" }), true, none),
        ("3.4", "n1", statuses(json!({ "terminated": {} })), true, none),
        ("3.4", "n1", statuses(json!({ "waiting": {} })), true, none),
        ("3.4, a status without state", "n1", statuses(json!({})), true, &["demo^v"]),
        ("3.5", "n1", statuses(json!({ "running": {} })), true, &["demo^v"]),
        ("not deleted", "n1", statuses(json!({ "terminated": {} })), false, &["demo^v"]),
    ] {
        assert_eq!(of(&pod(node, &data(), &status, deleted), &bound()), expected, "{row}");
    }
}

#[test]
fn cases_6_and_7_and_d1_a_claim_leads_to_its_volume_once_both_are_bound_to_each_other() {
    let running = pod("n1", &data(), &json!({ "phase": "Pending" }), false);
    let open = |change: &dyn Fn(&mut World)| {
        let mut world = bound();
        change(&mut world);
        let found = wishes(&running, &PodWishes::default(), &world);
        assert_eq!(found.marks(), []);
        found.open().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let set = |volume: Value, phase: &'static str| {
        move |world: &mut World| {
            world.claims.insert("shop/data".into(), claim("data", "cu", &volume, phase, None));
        }
    };
    assert_eq!(open(&|world| drop(world.claims.remove("shop/data"))), "claim data does not exist");
    assert_eq!(open(&set(json!(null), "Pending")), "claim data is not bound");
    assert_eq!(open(&set(json!("pv"), "Pending")), "claim data is not bound");
    assert_eq!(open(&|world| drop(world.volumes.remove("pv"))), "volume pv of claim data does not exist");
    let other = |world: &mut World| {
        world.volumes.insert("pv".into(), volume("pv", "another", csi("demo", "v")));
    };
    assert_eq!(open(&other), "volume pv is not bound to claim data");
    let found = wishes(&running, &PodWishes::default(), &bound());
    assert_eq!(found.marks(), [wants(&VolumeId::new("demo", "v"))]);
    assert_eq!(found.wanted().next().and_then(|wish| wish.volume.as_deref()), Some("pv"));
}

#[test]
fn d22_the_claim_of_an_ephemeral_volume_counts_only_if_the_pod_controls_it() {
    let scratch = pod("n1", &json!([{ "name": "scratch", "ephemeral": {} }]), &json!({}), false);
    for (owner, expected) in [(Some("pu"), &["demo^v"][..]), (Some("another"), &[]), (None, &[])] {
        let mut world = bound();
        let made = claim("web-scratch", "cu", &json!("pv"), "Bound", owner);
        world.claims.insert("shop/web-scratch".into(), made);
        assert_eq!(of(&scratch, &world), expected, "{owner:?}");
    }
}

#[test]
fn case_8_and_foreign_volumes_are_never_attached() {
    let world = bound();
    for volumes in
        [json!([{ "name": "i", "csi": { "driver": "demo" } }]), json!([{ "name": "e", "emptyDir": {} }]), json!([])]
    {
        assert_eq!(of(&pod("n1", &volumes.clone(), &json!({}), false), &world), Vec::<String>::new(), "{volumes}");
    }
    let mut local = bound();
    local.volumes.insert("pv".into(), volume("pv", "cu", json!({ "hostPath": { "path": "/x" } })));
    assert_eq!(wishes(&pod("n1", &data(), &json!({}), false), &PodWishes::default(), &local), PodWishes::default());
}

#[test]
fn case_9_and_d30_in_tree_volumes_are_wanted_by_their_csi_handles() {
    let inline = json!([{ "name": "old", "awsElasticBlockStore": { "volumeID": "vol-0123456789abcdef0" } }]);
    let found = wishes(&pod("n1", &inline.clone(), &json!({}), false), &PodWishes::default(), &bound());
    assert_eq!(wanted(&found), ["ebs.csi.aws.com^vol-0123456789abcdef0"]);
    assert_eq!(found.wanted().next().and_then(|wish| wish.volume.clone()), None, "it has no PersistentVolume");
    let mut world = bound();
    let source = json!({ "awsElasticBlockStore": { "volumeID": "vol-0123456789abcdef0" } });
    world.volumes.insert("pv".into(), volume("pv", "cu", source));
    assert_eq!(of(&pod("n1", &data(), &json!({}), false), &world), ["ebs.csi.aws.com^vol-0123456789abcdef0"]);
    world.unattached = vec!["ebs.csi.aws.com"];
    assert_eq!(of(&pod("n1", &inline, &json!({}), false), &world), Vec::<String>::new());
    let broken = json!([{ "name": "old", "gcePersistentDisk": { "pdName": "" } }]);
    let found = wishes(&pod("n1", &broken, &json!({}), false), &PodWishes::default(), &bound());
    assert!(found.wanted().count() + found.open().count() == 1, "it is told, or attached: {found:?}");
}

#[test]
fn case_10_and_d20_a_wish_stays_while_its_claim_or_volume_cannot_be_read() {
    let running = pod("n1", &data(), &json!({ "phase": "Running" }), false);
    let before = wishes(&running, &PodWishes::default(), &bound());
    let empty = World::default();
    assert_eq!(wanted(&wishes(&running, &before, &empty)), ["demo^v"]);
    let mut unbound = bound();
    unbound.claims.insert("shop/data".into(), claim("data", "cu2", &json!(null), "Pending", None));
    assert_eq!(wanted(&wishes(&running, &before, &unbound)), ["demo^v"]);
    // Another pod of the name has wishes of its own, and one that stops wants nothing.
    assert_eq!(of(&running, &empty), Vec::<String>::new());
    let stopped = pod("n1", &data(), &json!({ "phase": "Running" }), true);
    assert_eq!(wishes(&stopped, &before, &empty), PodWishes::default());
    // What is readable counts: the claim has another volume.
    let mut moved = bound();
    moved.volumes.insert("pv".into(), volume("pv", "cu", csi("demo", "v2")));
    assert_eq!(wanted(&wishes(&running, &before, &moved)), ["demo^v2"]);
}

#[test]
fn case_11_a_driver_whose_volumes_are_not_attached_ends_the_wishes() {
    let running = pod("n1", &data(), &json!({}), false);
    let before = wishes(&running, &PodWishes::default(), &bound());
    let world = World { unattached: vec!["demo"], ..bound() };
    assert_eq!(wishes(&running, &before, &world), PodWishes::default());
}
