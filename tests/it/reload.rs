//! A configuration change while the daemon works: affected roles restart, and others are not affected.

use csi_control_plane::app::Plan;
use csi_control_plane::config::{self, File, Sources};
use csi_control_plane::roles;
use csi_control_plane::roles::csi_attacher;
use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::{Action, Fault, Method, Outcome};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::ground::Daemon;
use crate::objects;
use crate::rights::without;
use crate::world::leases::holder;
use crate::world::wait::asked;
use crate::world::{World, until_some};

/// Waits until the Lease of that name is held, and says by whom, since when and after how many hands.
async fn held(world: &World, name: &str) -> (String, Option<String>, Option<i32>) {
    let spec = world.lease_held(name).await.spec.unwrap();
    (spec.holder_identity.unwrap(), spec.acquire_time.map(|time| time.0.to_string()), spec.lease_transitions)
}

/// Gives the daemon its configuration with `overrides`, and waits until so many changes are in effect.
async fn configure(world: &World, daemon: &Daemon, overrides: Value, changes: u64) -> Value {
    daemon.configure(&objects::config_with(overrides).to_string());
    let shown = |status: &Value| status["configuration"]["changes"] == changes;
    world.shows(daemon, "the new configuration", shown).await
}

fn role<'a>(status: &'a Value, name: &str) -> &'a Value {
    status["roles"].as_array().unwrap().iter().find(|role| role["name"] == name).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn attaches_in_flight_while_their_role_begins_anew_are_neither_lost_nor_doubled() {
    const ATTACHES: usize = 24;
    let world = World::new().await;
    let few = |workers: u32| json!({"roles": {"attacher": {"workers": workers}}});
    let daemon = world.daemon(few(6)).await;
    let node = world.node("node").await;
    let lease = csi_attacher::lease(world.driver_name());
    let before = held(&world, &lease).await;
    // The first six calls are released only when the role has to stop.
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::Hold).times(6));
    let mut volumes = Vec::new();
    let mut attachments = Vec::new();
    for number in 0..ATTACHES {
        let volume = world.volume(&format!("pv-{number}")).await;
        attachments.push(world.attach(&volume, &node).await);
        volumes.push(volume);
    }
    let begun = || volumes.iter().filter(|volume| !world.publishes(volume).is_empty()).count();
    world.driver_until("six in flight", |_| begun() == 6).await;
    let started = configure(&world, &daemon, few(7), 1).await;
    assert_eq!(started["configuration"]["lastChanged"], json!(["roles.attacher.workers"]));
    // The next change comes while the first still waits for what is in flight.
    configure(&world, &daemon, few(8), 2).await;
    assert_eq!(begun(), 6, "nothing new is begun by who leaves, nor by a second one beside it");
    world.driver().release();
    for attachment in &attachments {
        world.attached(attachment).await;
    }
    configure(&world, &daemon, few(9), 3).await;
    world.serving(&daemon).await;
    for (volume, attachment) in volumes.iter().zip(&attachments) {
        let outcomes: Vec<Outcome> = world.publishes(volume).into_iter().map(|call| call.outcome.clone()).collect();
        assert_eq!(outcomes, [Outcome::Ok], "{volume}");
        world.detached(attachment).await;
        assert_eq!(world.unpublishes(volume).len(), 1, "{volume}");
    }
    assert_eq!(held(&world, &lease).await, before, "the term went on");
    assert_eq!(role(&world.status(&daemon).await, "attacher")["restarts"], 0, "a change is no failure");
    world.balanced().await;
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn a_role_that_is_taken_out_ends_its_work_and_hands_its_lease_back_and_the_other_goes_on() {
    let world = World::new().await;
    let both = json!({"roles": {"provisioner": {}}});
    let one = json!({"roles": {"provisioner": {}, "attacher": null, "reconciler": null}});
    let daemon = world.daemon(both.clone()).await;
    let node = world.node("node").await;
    world.serving(&daemon).await;
    let (attacher, provisioner) = (csi_attacher::lease(world.driver_name()), names::lease(world.driver_name()));
    let other = held(&world, &provisioner).await;
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::Hold).once());
    let volume = world.volume("pv").await;
    let attachment = world.attach(&volume, &node).await;
    world.driver_until("a publish in flight", |_| !world.publishes(&volume).is_empty()).await;

    let status = configure(&world, &daemon, one, 1).await;
    assert_eq!(role(&status, "attacher"), &Value::Null, "it is shown no more");
    held(&world, &attacher).await;
    world.driver().release();
    until_some(world.leases(), &attacher, "handed back", |it: Option<&Lease>| {
        it.is_some_and(|it| holder(it).is_none())
    })
    .await;
    world.attached(&attachment).await;
    assert_eq!(world.publishes(&volume).len(), 1);
    // The kinds that only the attacher reads are read no more; the others are.
    let kinds = |status: &Value| -> Vec<String> {
        let caches = status["caches"].as_array().unwrap();
        caches.iter().map(|cache| cache["kind"].as_str().unwrap().to_owned()).collect()
    };
    let alone = world.shows(&daemon, "the provisioner alone", |status| {
        status["roles"].as_array().unwrap().len() == 1 && role(status, "provisioner")["state"] == "serving"
    });
    assert!(kinds(&alone.await).contains(&"PersistentVolumeClaim".to_owned()));

    // No process leads it here, and none should: 0 would be an alarm.
    let figure = format!("leader_election_master_status{{name=\"{attacher}\"}} NaN");
    let retired = async || world.metrics(&daemon).await.contains(&figure).then_some(());
    asked("a figure that says nothing", retired).await;

    let next = world.volume("next").await;
    let waiting = world.attach(&next, &node).await;
    configure(&world, &daemon, both, 2).await;
    world.attached(&waiting).await;
    assert_eq!(held(&world, &provisioner).await, other, "its Lease never changed hands");
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn the_deadline_of_calls_changes_at_once_and_no_role_begins_anew() {
    let (world, daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    world.serving(&daemon).await;
    let status = configure(&world, &daemon, json!({"csi": {"timeout": "2s"}}), 1).await;
    assert_eq!(role(&status, "attacher")["state"], "serving");
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::Hang).once());
    let volume = world.volume("pv").await;
    world.failed(&world.attach(&volume, &node).await, "deadline exceeded").await;
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn another_lease_timing_hands_the_lease_back_and_runs_for_it_anew() {
    let (world, daemon) = World::with_daemon(json!({})).await;
    let lease = csi_attacher::lease(world.driver_name());
    held(&world, &lease).await;
    let status = configure(
        &world,
        &daemon,
        json!({"leaderElection": {"labels": {"team": "storage"}, "leaseDuration": "17s"}}),
        1,
    );
    assert_eq!(status.await["configuration"]["refused"], Value::Null);
    let lease = until_some(world.leases(), &lease, "held anew", |it: Option<&Lease>| {
        it.is_some_and(|it| {
            let labelled = it.metadata.labels.as_ref().is_some_and(|labels| labels["team"] == "storage");
            labelled && holder(it).is_some() && it.spec.as_ref().unwrap().lease_duration_seconds == Some(17)
        })
    });
    lease.await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment: VolumeAttachment = world.attached(&world.attach(&volume, &node).await).await;
    assert_eq!(attachment.spec.attacher, world.driver_name());
    // And without any: at once.
    configure(&world, &daemon, json!({"leaderElection": {"enabled": false}}), 2).await;
    world.serving(&daemon).await;
    let next = world.volume("next").await;
    world.attached(&world.attach(&next, &node).await).await;
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn a_role_that_comes_without_its_rights_says_so_and_the_others_go_on() {
    let world = World::new().await;
    let host = world.name("daemon");
    let daemon = world.daemon(json!({})).await;
    let node = world.node("node").await;
    let text = objects::config().to_string();
    let sources = Sources { file: Some(File { name: "rights.yaml".to_owned(), text }), ..Sources::default() };
    let plan = Plan::of(&config::load(&sources, &roles::sections()).unwrap(), world.driver_name(), None).unwrap();
    world.ground().grant(&host, &without(&plan, None)).await;
    configure(&world, &daemon, json!({"roles": {"provisioner": {}}}), 1).await;
    let is_told = |status: &Value| {
        let caches = status["caches"].as_array().unwrap();
        let claims = caches.iter().find(|cache| cache["kind"] == "PersistentVolumeClaim");
        claims.is_some_and(|cache| cache["lastError"].as_str().is_some_and(|error| error.contains("forbidden")))
    };
    world.shows(&daemon, "the rights that are missing", is_told).await;
    let volume = world.volume("pv").await;
    world.attached(&world.attach(&volume, &node).await).await;
    // Taken out again, it leaves no trouble behind.
    configure(&world, &daemon, json!({}), 2).await;
    let well = world.shows(&daemon, "a healthy daemon", |status| status["overall"] == "healthy").await;
    assert!(!well["caches"].to_string().contains("PersistentVolumeClaim"));
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn a_volume_that_was_asked_for_keeps_its_name_when_names_are_made_in_another_way() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.daemon(crate::supplier::supplier(json!({}))).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(crate::supplier::unanswered());
    let claim = world.claim("claim", &class, json!({})).await;
    let before = world.asked(&claim, 1).await.len();
    let other = json!({"volumeNamePrefix": "other", "volumeNameUuidLength": 20});
    configure(&world, &daemon, crate::supplier::supplier(other), 1).await;
    world.asked(&claim, before + 1).await;
    world.driver().clear_faults();
    let volume = world.supplied_with(&claim).await;
    assert_eq!(volume.name_any(), world.volume_name(&claim).await);
    let later = world.claim("later", &class, json!({})).await;
    let uid = world.claim_uid(&later).await.replace('-', "");
    assert_eq!(world.supplied_with(&later).await.name_any(), format!("other-{}", &uid[..20]));
    world.assert_nothing_leaked().await;
    // And back, with one on its way that has a short name.
    world.driver().inject(crate::supplier::unanswered());
    let last = world.claim("last", &class, json!({})).await;
    let short = format!("other-{}", &world.claim_uid(&last).await.replace('-', "")[..20]);
    world.driver_until("asked for", |it| !it.creates_of(&short).is_empty()).await;
    configure(&world, &daemon, crate::supplier::supplier(json!({})), 2).await;
    // It is deleted before the new term has got an answer: what was made is found under its own name.
    world.delete_claim(&last).await;
    world.driver().clear_faults();
    world.claim_gone(&last).await;
    world.assert_nothing_leaked().await;
}
