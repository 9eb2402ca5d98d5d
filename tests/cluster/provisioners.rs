//! The daemon and csi-provisioner: each deletes volumes that the other created, both send the driver the same requests,
//! and create the same objects from its answers. Also: what a common process with the attacher saves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use csi_control_plane::proto::CreateVolumeRequest;
use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::{Action, Call, Fault, GIB, Method, Pool};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::cluster::sidecar;
use crate::ground::cluster::NAMESPACE;
use crate::objects;
use crate::programs::Program;
use crate::supply::{handle_of, zoned};
use crate::world::wait::asked;
use crate::world::{World, brief};

/// Starts csi-provisioner beside our daemons, with the Lease timing of the scenarios.
pub(crate) fn csi_provisioner(world: &World, more: &[&str]) -> Program {
    csi_provisioner_in(world, "", more)
}

/// The same in this pod.
pub(crate) fn csi_provisioner_in(world: &World, pod: &str, more: &[&str]) -> Program {
    let its_own = [
        "--retry-interval-start=50ms",
        "--kube-api-qps=100",
        "--kube-api-burst=100",
        "--extra-create-metadata",
        "--default-fstype=ext4",
    ];
    let its_own = its_own.iter().chain(more).map(|&flag| flag.to_owned());
    let flags: Vec<String> = sidecar::flags(world).into_iter().chain(its_own).collect();
    sidecar::start_in(world, pod, "csi-provisioner", &flags)
}

/// The same of ours. Without the attacher, whose finalizer is on our volumes and not on theirs.
async fn ours(world: &World) -> crate::ground::Daemon {
    let like_them = json!({ "extraCreateMetadata": true, "defaultFsType": "ext4" });
    world.provisioner_with(json!({ "attacher": null, "reconciler": null }), like_them).await
}

/// Waits until the provisioner's Lease is held by someone of whom `holds` is true.
async fn until_held(world: &World, what: &str, holds: impl Fn(&str) -> bool) {
    world.lease_held_by(&names::lease(world.driver_name()), what, holds).await;
}

/// Deletes a claim, waits until its volume is gone, and returns the calls that deleted it at the driver.
async fn given_up(world: &World, claim: &str) -> Vec<Arc<Call>> {
    let volume = world.bound(claim).await;
    let (_, handle) = handle_of(&volume).unwrap();
    world.delete_claim(claim).await;
    world.claim_gone(claim).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    let mut calls = world.driver().calls_of(Method::DeleteVolume);
    calls.retain(|call| call.volume.as_deref() == Some(&handle));
    calls
}

/// The connection that made the volume of a claim: who made it, that is. It was asked for once.
async fn maker(world: &World, claim: &str) -> u64 {
    let calls = world.driver().creates_of(&world.bound(claim).await.name_any());
    assert_eq!(calls.len(), 1, "{:#?}", brief(&calls));
    calls[0].connection
}

#[tokio::test]
async fn the_daemon_takes_over_from_csi_provisioner_and_hands_back() {
    let world = World::supplied(|_| {}).await;
    let daemon_host = world.name("daemon");
    let of_daemon = |holder: &str| holder.starts_with(&daemon_host);
    let class = world.class("class", json!({})).await;
    let claim = |name: &'static str| world.claim(name, &class, json!({}));

    // It provisions, and the daemon beside it waits for the same Lease.
    let theirs = csi_provisioner(&world, &[]);
    let (first, stays) = (claim("first").await, claim("stays").await);
    let them = maker(&world, &first).await;
    assert_eq!(maker(&world, &stays).await, them);
    until_held(&world, "held by csi-provisioner", |holder| !of_daemon(holder)).await;
    let daemon = ours(&world).await;
    world
        .shows(&daemon, "a daemon that stands by", |status| {
            status["roles"].as_array().is_some_and(|roles| roles.iter().any(|role| role["state"] == "standby"))
        })
        .await;
    let second = claim("second").await;
    assert_eq!(maker(&world, &second).await, them);

    // It stops. A claim that comes while nobody leads is the daemon's, and so is the deletion of what the other made.
    theirs.stop().await;
    let between = claim("between").await;
    until_held(&world, "held by the daemon", of_daemon).await;
    world.provisioned(&between).await;
    let us = maker(&world, &between).await;
    assert_ne!(us, them);
    let deleted = Box::pin(given_up(&world, &first)).await;
    assert_eq!(deleted.iter().map(|call| call.connection).collect::<Vec<_>>(), [us], "{:#?}", brief(&deleted));
    // The volumes that they had provisioned were not requested again.
    assert_eq!((maker(&world, &stays).await, maker(&world, &second).await), (them, them));

    // And back.
    daemon.stop().await.unwrap();
    let theirs = csi_provisioner(&world, &[]);
    until_held(&world, "held by csi-provisioner again", |holder| !of_daemon(holder)).await;
    let deleted = Box::pin(given_up(&world, &between)).await;
    // It may ask twice by itself.
    let again: BTreeSet<u64> = deleted.iter().map(|call| call.connection).collect();
    assert_eq!(again.len(), 1, "{:#?}", brief(&deleted));
    assert!(!again.contains(&us));
    Box::pin(given_up(&world, &stays)).await;
    Box::pin(given_up(&world, &second)).await;
    world.assert_nothing_leaked().await;
    theirs.stop().await;
}

/// A topology key that only this world's nodes have.
pub(crate) fn zone_key(world: &World) -> String {
    format!("{}/zone", world.driver_name())
}

/// The claims of the conversation: their names and what is special about them.
async fn kinds_of_claims(world: &World) -> Vec<(&'static str, String, Value)> {
    let secret = world.name("secret");
    world.secret(&secret, &[("password", b"hunter2")]).await;
    let gold = world.name("gold");
    let attributes = json!({ "metadata": { "name": gold }, "driverName": world.driver_name(),
        "parameters": { "iops": "3000" } });
    world.create::<VolumeAttributesClass>(attributes).await;
    let plain = world.class("plain", json!({})).await;
    let waiting = world.waiting_class("waiting", json!({})).await;
    let bound_by_zone = json!({ "allowedTopologies": [{ "matchLabelExpressions": [{ "key": zone_key(world), "values": ["z2", "z3"] }] }] });
    let zonal = world.class("zonal", bound_by_zone.clone()).await;
    let zonal_waiting = world.waiting_class("zonal-waiting", bound_by_zone).await;
    let mut parameters = json!({ "kind": "fast", "csi.storage.k8s.io/fstype": "xfs" });
    for role in ["provisioner", "controller-publish", "node-stage", "node-publish", "controller-expand", "node-expand"]
    {
        parameters[format!("csi.storage.k8s.io/{role}-secret-name")] = secret.as_str().into();
        parameters[format!("csi.storage.k8s.io/{role}-secret-namespace")] = "${pvc.namespace}".into();
    }
    let rich = world
        .class(
            "rich",
            json!({ "parameters": parameters, "mountOptions": ["noatime", "nodiratime"],
            "reclaimPolicy": "Retain" }),
        )
        .await;
    let of = |group: &str, kind: &str, name: &str| {
        let name = world.name(name);
        if group.is_empty() {
            json!({ "kind": kind, "name": name })
        } else {
            json!({ "apiGroup": group, "kind": kind, "name": name })
        }
    };
    let snapshot = of("snapshot.storage.k8s.io", "VolumeSnapshot", "snapshot");
    vec![
        ("plain", plain.clone(), json!({})),
        ("block", plain.clone(), json!({ "volumeMode": "Block" })),
        ("shared", plain.clone(), json!({ "accessModes": ["ReadWriteMany", "ReadOnlyMany"] })),
        ("single", plain.clone(), json!({ "accessModes": ["ReadWriteOncePod"] })),
        ("odd-size", plain.clone(), json!({ "resources": { "requests": { "storage": "1500000001" } } })),
        ("decimal", plain.clone(), json!({ "resources": { "requests": { "storage": "2G" } } })),
        ("attributes", plain.clone(), json!({ "volumeAttributesClassName": gold })),
        ("rich", rich, json!({})),
        ("zonal", zonal, json!({})),
        ("waiting", waiting, json!({})),
        ("zonal-waiting", zonal_waiting, json!({})),
        ("clone", plain.clone(), json!({ "dataSource": of("", "PersistentVolumeClaim", "source") })),
        ("restored", plain, json!({ "dataSourceRef": snapshot })),
    ]
}

/// What the claims of the conversation came to: the requests and the volume objects, by the claim's name.
async fn come_to(
    world: &World,
    claims: &[(&'static str, String, Value)],
) -> BTreeMap<&'static str, (CreateVolumeRequest, Value)> {
    for (name, class, spec) in claims {
        world.claim(name, class, json!({ "spec": spec })).await;
    }
    let waiting: Vec<_> =
        claims.iter().filter(|(name, ..)| name.contains("waiting")).map(|it| world.name(it.0)).collect();
    let pod = world.pod("pod", &waiting.iter().map(String::as_str).collect::<Vec<_>>(), Some(&world.name("n2"))).await;
    let mut came = BTreeMap::new();
    for (name, ..) in claims {
        let claim = world.name(name);
        let volume = world.bound(&claim).await;
        let uid = world.claim_until(&claim, "there", |_| true).await.uid().unwrap();
        let calls = world.driver().creates_of(&volume.name_any());
        assert_eq!(calls.len(), 1, "{name}: {:#?}", brief(&calls));
        // The secrets were taken out by the log; that there were some is in it.
        let mut asked = *calls[0].create.clone().unwrap();
        assert_eq!(asked.name, format!("pvc-{uid}"));
        asked.name = asked.name.replace(&uid, "UID");
        for value in asked.parameters.values_mut() {
            *value = value.replace(&uid, "UID");
        }
        assert_eq!(calls[0].secrets, *name == "rich", "{name}");
        // As it was made: status and phase are others' work.
        let mut object = serde_json::to_value(&volume).unwrap();
        object.as_object_mut().unwrap().remove("status");
        for key in ["managedFields", "creationTimestamp", "resourceVersion", "uid"] {
            object["metadata"].as_object_mut().unwrap().remove(key);
        }
        // The attacher puts its own on whenever it comes to it.
        let finalizers = object["metadata"]["finalizers"].as_array_mut().unwrap();
        finalizers.retain(|it| !it.as_str().unwrap().starts_with("external-attacher/"));
        came.insert(*name, (asked, object));
    }
    // Attached and detached again, so that no volume is still in use when its claim goes.
    for claim in &waiting {
        let (_, handle) = handle_of(&world.bound(claim).await).unwrap();
        let node = world.name("n2");
        world.attached(&objects::attachment_name(&handle, world.driver_name(), &node)).await;
    }
    world.delete_pod(&pod).await;
    Box::pin(world.all_detached()).await;
    for (name, ..) in claims {
        let claim = world.name(name);
        let volume = world.bound(&claim).await.name_any();
        world.delete_claim_and_wait(&claim).await;
        if *name == "rich" {
            let delete = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });
            world.merge_patch::<PersistentVolume>(&volume, delete).await;
        }
        world.gone::<PersistentVolume>(&volume).await;
    }
    came
}

/// Where two values are not the same.
fn differences(at: &str, one: &Value, other: &Value, into: &mut BTreeSet<String>) {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()) {
                let below = format!("{at}/{key}");
                differences(&below, &one[key.as_str()], &other[key.as_str()], into);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{at}/{i}"), a, b, into);
            }
        }
        _ if one == other => {}
        _ => {
            into.insert(at.to_owned());
        }
    }
}

/// Whose the volume is and which claim's, and nothing else. The attribute `name` is what the driver tells of each.
const IDENTITY: [&str; 6] = [
    "/metadata/name",
    "/spec/claimRef/resourceVersion",
    "/spec/claimRef/uid",
    "/spec/csi/volumeAttributes/name",
    "/spec/csi/volumeAttributes/storage.kubernetes.io/csiProvisionerIdentity",
    "/spec/csi/volumeHandle",
];

#[tokio::test]
async fn both_ask_the_driver_the_same_and_make_the_same_of_its_answer() {
    let world = World::supplied(zoned([])).await;
    world.install_snapshots().await;
    // All nodes with the key count, and others have nodes, too: a key that only this world has.
    let key = zone_key(&world);
    let zones = [("n1", "z1"), ("n2", "z2"), ("n3", "z3")];
    let pools = zones.map(|(_, zone)| Pool::at([(key.as_str(), zone)], 100 * GIB));
    world.driver().change_profile(|profile| profile.pools = pools.into());
    for (node, zone) in zones {
        world.place(node, &[(&key, zone)]).await;
    }
    let claims = kinds_of_claims(&world).await;

    let theirs = csi_provisioner(&world, &[]);
    let source = world.claim("source", &claims[0].1.clone(), json!({})).await;
    world.snapshot("snapshot", &source).await;
    // Whoever attaches for the pod: it waits for nobody, and leaves no attachment behind.
    let attacher = world.daemon_on("attacher", json!({ "roles": { "reconciler": null } })).await;
    let by_them = Box::pin(come_to(&world, &claims)).await;
    theirs.stop().await;
    let daemon = ours(&world).await;
    let by_us = Box::pin(come_to(&world, &claims)).await;

    for (name, ..) in &claims {
        let (theirs, ours) = (&by_them[name], &by_us[name]);
        assert_eq!(ours.0, theirs.0, "{name}: what the driver is asked");
        let mut differ = BTreeSet::new();
        differences("", &theirs.1, &ours.1, &mut differ);
        let expected: BTreeSet<String> = IDENTITY.map(str::to_owned).into();
        assert_eq!(differ, expected, "{name}: theirs {:#}, ours {:#}", theirs.1, ours.1);
    }
    daemon.stop().await.unwrap();
    attacher.stop().await.unwrap();
    world.assert_nothing_leaked().await;
}

/// What attaching a new claim's volume costs the daemon in writes, from the attachment's creation until it is attached.
async fn writes_of_an_attach(world: &World, account: &str, claim: &str, node: &str) -> Vec<String> {
    let volume = world.provisioned(claim).await.name_any();
    let log = || world.real().cluster().writes_of(NAMESPACE, account);
    let before = log().len();
    let attachment = world.attach(&volume, node).await;
    world.attached(&attachment).await;
    // The last of them may be seen before it is logged.
    let is_logged = || log()[before..].iter().any(|write| write.contains("volumeattachments/status"));
    asked("the write that says that it is attached", async || is_logged().then_some(())).await;
    let mut writes = log().split_off(before);
    for write in &mut writes {
        *write = write.replace(&attachment, "ATTACHMENT").replace(&volume, "VOLUME");
    }
    world.detached(&attachment).await;
    // Finalizers on the volume and on the attachment have no order.
    writes.sort();
    writes
}

#[tokio::test]
async fn the_attacher_in_the_same_process_saves_one_write_of_each_first_attach() {
    let world = World::supplied(|_| {}).await;
    let class = world.class("class", json!({})).await;
    let (node, account) = (world.node("node").await, world.name("daemon"));
    let no_reconciler = json!({ "reconciler": null });

    let both = world.provisioner_with(no_reconciler.clone(), json!({})).await;
    let claim = world.claim("together", &class, json!({})).await;
    let volume = world.provisioned(&claim).await;
    assert!(volume.finalizers().contains(&world.finalizer()) && volume.finalizers().len() >= 2, "{volume:#?}");
    let log = || world.real().cluster().writes_of(NAMESPACE, &account);
    let provision = asked("the write that tidies the journal", async || Some(log()).filter(|log| log.len() >= 4)).await;
    // The first claim's segment is created empty, because its entries name its uid.
    let expected = [
        format!("create configmaps {} 201", world.segment(0)),
        format!("patch configmaps {} 200", world.segment(0)),
        format!("create persistentvolumes {} 201", volume.name_any()),
        format!("patch configmaps {} 200", world.segment(0)),
    ];
    assert_eq!(provision, expected, "the writes of a claim");
    let together = writes_of_an_attach(&world, &account, &claim, &node).await;
    both.stop().await.unwrap();

    let provisioner = ours(&world).await;
    let claim = world.claim("apart", &class, json!({})).await;
    let volume = world.provisioned(&claim).await;
    assert!(!volume.finalizers().contains(&world.finalizer()));
    provisioner.stop().await.unwrap();
    let attacher = world.daemon(json!({ "roles": { "reconciler": null } })).await;
    let apart = writes_of_an_attach(&world, &account, &claim, &node).await;
    attacher.stop().await.unwrap();

    let marked = ["patch volumeattachments ATTACHMENT 200", "patch volumeattachments/status ATTACHMENT 200"];
    assert_eq!(together, marked);
    assert_eq!(apart, [&["patch persistentvolumes VOLUME 200"][..], &marked].concat());
}

/// The volume is made, and the answer never comes: nobody knows that it is there.
fn answers_get_lost(world: &World) {
    let lost = Action::DoneButFail { code: tonic::Code::DeadlineExceeded, message: "slow".to_owned() };
    world.driver().inject(Fault::on(Method::CreateVolume, lost));
}

/// The calls for a claim by each of the driver's connections, one line per connection.
fn asked_by(world: &World, volume: &str) -> BTreeMap<u64, BTreeSet<String>> {
    let mut asked: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for call in world.driver().creates_of(volume) {
        // A map has no order; the request as it was sent has none either.
        asked.entry(call.connection).or_default().insert(sorted(&call.create.clone().unwrap()));
    }
    asked
}

fn sorted(request: &CreateVolumeRequest) -> String {
    let parameters: BTreeMap<_, _> = request.parameters.iter().collect();
    let rest = CreateVolumeRequest { parameters: [].into(), ..request.clone() };
    format!("{parameters:?} {rest:?}")
}

#[tokio::test]
async fn a_claim_that_the_daemon_has_begun_is_finished_by_csi_provisioner_and_its_entry_is_removed_when_the_daemon_is_back()
 {
    let world = World::supplied(|_| {}).await;
    let class = world.class("class", json!({ "parameters": { "kind": "fast" } })).await;
    let daemon = ours(&world).await;
    answers_get_lost(&world);
    let claim = world.claim("claim", &class, json!({})).await;
    let uid = world.claim_until(&claim, "there", |_| true).await.uid().unwrap();
    let volume = format!("pvc-{uid}");
    world.driver_until("a lost answer", |driver| !driver.creates_of(&volume).is_empty()).await;
    daemon.stop().await.unwrap();
    world.driver().clear_faults();

    let theirs = csi_provisioner(&world, &[]);
    assert_eq!(world.bound(&claim).await.name_any(), volume);
    let asked = asked_by(&world, &volume);
    assert_eq!(asked.len(), 2, "{:#?}", brief(&world.driver().calls()));
    assert_eq!(asked.values().collect::<BTreeSet<_>>().len(), 1, "both ask the same: {asked:#?}");
    theirs.stop().await;

    // Our journal is unknown to the other: the entry stays until we are back, and holds nothing up.
    world.delete_claim_and_wait(&claim).await;
    assert!(world.is_recorded(&claim).await);
    let creates = world.driver().creates_of(&volume).len();
    let _daemon = ours(&world).await;
    world.journal_is_empty().await;
    world.gone::<PersistentVolume>(&volume).await;
    assert_eq!(world.driver().creates_of(&volume).len(), creates, "its volume object was there");
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_claim_that_csi_provisioner_has_begun_is_finished_by_the_daemon() {
    let world = World::supplied(|_| {}).await;
    let class = world.class("class", json!({ "parameters": { "kind": "fast" } })).await;
    let theirs = csi_provisioner(&world, &[]);
    answers_get_lost(&world);
    let claim = world.claim("claim", &class, json!({})).await;
    let uid = world.claim_until(&claim, "there", |_| true).await.uid().unwrap();
    let volume = format!("pvc-{uid}");
    world.driver_until("a lost answer", |driver| !driver.creates_of(&volume).is_empty()).await;
    theirs.stop().await;
    world.driver().clear_faults();
    let _daemon = ours(&world).await;
    assert_eq!(world.provisioned(&claim).await.name_any(), volume);
    let asked = asked_by(&world, &volume);
    assert_eq!(asked.len(), 2, "{:#?}", brief(&world.driver().calls()));
    assert_eq!(asked.values().collect::<BTreeSet<_>>().len(), 1, "both ask the same: {asked:#?}");
    world.assert_nothing_leaked().await;
}
