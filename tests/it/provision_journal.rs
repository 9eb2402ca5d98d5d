//! The journal of requests without a final answer: its content at each time, what a successor does with it, and all
//! that can happen to its objects.

use std::collections::BTreeMap;
use std::time::Duration;

use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::{Action, Driver, Method};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tonic::Code;

use super::provision_nodes::Local;
use crate::ground::Daemon;
use crate::journal::{LABEL, NODE, SEGMENTS, VERSION, entries};
use crate::objects::merge;
use crate::supplier::{create, figure, supplier, unanswered};
use crate::supply::{handle_of, has_ours};
use crate::world::World;

/// A secret's value.
const PASSWORD: &str = "hunter2-do-not-tell";
/// Far more than a new leader needs to ask for all that was begun, on a machine that has much else to do.
const GENEROUS: Duration = Duration::from_secs(30);

impl World {
    /// Claims of a class whose volumes the driver has made, [`unanswered`], as many as that.
    pub(crate) async fn begun(&self, class: &str, count: usize) -> Vec<String> {
        self.driver().inject(unanswered());
        let mut claims = Vec::new();
        for number in 0..count {
            claims.push(self.claim(&format!("claim-{number}"), class, json!({})).await);
        }
        for claim in &claims {
            self.asked(claim, 1).await;
        }
        claims
    }

    /// How often the driver was called for the volume of a claim.
    pub(crate) async fn times_asked(&self, claim: &str) -> usize {
        self.driver().creates_of(&self.volume_name(claim).await).len()
    }
}

#[tokio::test]
async fn a_request_is_recorded_before_the_driver_gets_it_and_forgotten_once_its_volume_is_stored() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let secret = world.name("secret");
    world.secret(&secret, &[("password", PASSWORD.as_bytes())]).await;
    let parameters = json!({ "kind": "fast", "csi.storage.k8s.io/provisioner-secret-name": secret,
        "csi.storage.k8s.io/provisioner-secret-namespace": "default" });
    let class = world.class("class", json!({ "parameters": parameters })).await;
    world.driver().inject(create(Action::Hold).once());
    let claim = world.claim("claim", &class, json!({})).await;
    let asked = world.asked(&claim, 1).await;
    assert!(asked[0].secrets);
    let (segments, uid) = (world.segments().await, world.claim_uid(&claim).await);
    let [segment] = &segments[..] else { panic!("a lone claim is in one segment: {segments:#?}") };
    assert_eq!(segment.name_any(), world.segment(0));
    assert_eq!(
        (segment.labels().get(LABEL), segment.annotations()[VERSION].as_str()),
        (Some(&world.driver_name().to_owned()), "1")
    );
    assert_eq!(segment.annotations().get(NODE), None);
    let text = &segment.data.as_ref().unwrap()[&uid];
    assert!(!text.contains('\n') && !text.contains(PASSWORD), "{text}");
    let entry: Value = serde_json::from_str(text).unwrap();
    let volume = &entry["request"]["persistentVolume"];
    assert_eq!(volume["driver"], world.driver_name());
    let owner = json!([volume["claim"]["namespace"], volume["claim"]["name"], volume["claim"]["uid"]]);
    assert_eq!(owner, json!(["default", claim, uid]));
    assert_eq!(entry["request"]["volumeName"], world.volume_name(&claim).await);
    assert_eq!(entry["request"]["parameters"], json!({ "kind": "fast" }));
    assert!(entry["at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{entry}");
    assert!(!has_ours(&world.claim_now(&claim).await));
    world.driver().release();
    world.supplied_with(&claim).await;
    world.forgotten(&claim).await;
    assert_eq!(world.asked(&claim, 1).await.len(), 1);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_successor_asks_the_same_for_all_that_was_begun_and_the_volumes_are_those_of_the_api() {
    let world = World::two_zones().await;
    let node = world.node_in("n1", "z1").await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    let class = world.class("class", json!({ "parameters": { "kind": "fast" } })).await;
    let claims = world.begun(&class, 10).await;
    first.kill();
    assert_eq!(world.journal().await.len(), claims.len());
    // None of the objects exists any more from which the requests were built.
    world.all::<StorageClass>().delete(&class, &DeleteParams::default()).await.unwrap();
    world.all::<k8s_openapi::api::core::v1::Node>().delete(&node, &DeleteParams::default()).await.unwrap();
    let (gone, kept) = claims.split_at(3);
    for claim in gone {
        world.delete_claim(claim).await;
        world.claim_gone(claim).await;
    }
    // A call that was on its way when the first was killed has arrived by now.
    let before: Vec<_> = world.driver().calls_of(Method::CreateVolume);
    world.driver().clear_faults();
    let _second = world.daemon_on("second", supplier(json!({ "volumeNamePrefix": "other" }))).await;
    for claim in kept {
        assert_eq!(world.supplied_with(claim).await.name_any(), world.volume_name(claim).await);
    }
    world.journal_is_empty().await;
    for claim in &claims {
        let name = world.volume_name(claim).await;
        let (first, last) =
            (before.iter().find(|it| it.name.as_ref() == Some(&name)), world.driver().creates_of(&name));
        let again = last.len() - before.iter().filter(|it| it.name.as_ref() == Some(&name)).count();
        assert_eq!(again, 1, "{claim} is asked for once more");
        assert_eq!(last.last().unwrap().create, first.unwrap().create);
    }
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), gone.len());
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_successor_asks_for_nothing_whose_volume_is_stored() {
    let (world, first) = World::with_supplier_on("first").await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::Hold).times(3));
    let mut claims = Vec::new();
    for short in ["stays", "goes", "changes-hands"] {
        claims.push(world.claim(short, &class, json!({})).await);
    }
    for claim in &claims {
        world.asked(claim, 1).await;
    }
    let journal = world.journal().await;
    world.driver().release();
    for claim in &claims {
        world.supplied_with(claim).await;
    }
    first.stop().await.unwrap();
    // As if the daemon had died between storing the volumes and removing the entries.
    world.write_entries(&world.segment(0), &journal).await;
    world.delete_claim(&claims[1]).await;
    world.claim_gone(&claims[1]).await;
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.journal_is_empty().await;
    world.gone::<PersistentVolume>(&world.volume_name(&claims[1]).await).await;
    for claim in &claims {
        assert_eq!(world.times_asked(claim).await, 1);
    }
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 1);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_claim_that_is_deleted_during_the_call_is_gone_at_once_and_its_volume_is_deleted_or_kept() {
    for policy in ["Delete", "Retain"] {
        let (world, daemon) = World::with_supplier_on("first").await;
        let class = world.class("class", json!({ "reclaimPolicy": policy })).await;
        for is_killed in [false, true] {
            world.driver().inject(create(Action::Hold).once());
            let claim = world.claim(&format!("claim-{is_killed}"), &class, json!({})).await;
            world.asked(&claim, 1).await;
            world.delete_claim_and_wait(&claim).await;
            if is_killed {
                break;
            }
            world.driver().release();
            world.forgotten(&claim).await;
        }
        daemon.kill();
        world.driver().clear_faults();
        world.driver().release();
        let _second = world.daemon_on("second", supplier(json!({}))).await;
        world.journal_is_empty().await;
        world.assert_nothing_leaked().await;
        let left = world.volumes().await;
        assert_eq!(left.len(), if policy == "Retain" { 2 } else { 0 }, "{policy}: {left:#?}");
        assert!(left.iter().all(|it| it.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some())));
    }
}

#[tokio::test]
async fn a_segment_or_an_entry_that_somebody_deletes_is_written_again_and_nothing_leaks() {
    // Both at once: the journal looks for that twice a minute.
    futures::join!(somebody_deletes(true), somebody_deletes(false));
}

async fn somebody_deletes(is_whole: bool) {
    let (world, first) = World::with_supplier_on("first").await;
    let class = world.class("class", json!({})).await;
    let mut claims = world.begun(&class, 1).await;
    let recorded = world.recorded(&claims[0]).await;
    let uid = world.claim_uid(&claims[0]).await;
    if is_whole {
        world.delete_segment(&world.segment(0)).await;
    } else {
        world.patch_segment(&world.segment(0), json!({ "data": { &uid: null } })).await;
    }
    claims.push(world.claim("next", &class, json!({})).await);
    world.asked(&claims[1], 1).await;
    let mut again = world.recorded(&claims[0]).await;
    assert_eq!(again["in"] != recorded["in"], is_whole, "it names the object that it is on");
    again["in"] = recorded["in"].clone();
    assert_eq!(again, recorded);
    let rewritten = "csi_control_plane_journal_entries_rewritten_total";
    let is_counted = |metrics: &str| figure(metrics, rewritten, &[world.driver_name()]) == Some(1.0);
    world.metrics_until(&first, "an entry that was written again", is_counted).await;
    first.kill();
    for claim in &claims {
        world.delete_claim(claim).await;
    }
    world.driver().clear_faults();
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.journal_is_empty().await;
    world.assert_all_gone(&[&claims[0], &claims[1]]).await;
}

#[tokio::test]
async fn two_daemons_that_both_lead_lose_nothing() {
    let world = World::supplied(|_| {}).await;
    let mut config = supplier(json!({}));
    merge(&mut config, json!({ "leaderElection": { "enabled": false } }));
    let first = world.daemon_on("first", config.clone()).await;
    let _second = world.daemon_on("second", config).await;
    let class = world.class("class", json!({})).await;
    let claims = world.begun(&class, 12).await;
    // The other one knows the work that the first had begun, or finds it.
    first.kill();
    for claim in &claims[..4] {
        world.delete_claim(claim).await;
    }
    world.driver().clear_faults();
    for claim in &claims[4..] {
        world.supplied_with(claim).await;
    }
    world.journal_is_empty().await;
    world.assert_nothing_leaked().await;
    assert_eq!(world.volumes().await.len(), claims.len() - 4);
}

#[tokio::test]
async fn each_node_has_segments_of_its_own_and_finds_there_what_it_had_begun() {
    let (world, locals) = Local::each(["n1", "n2"]).await;
    let class = world.waiting_class("class", json!({})).await;
    let (mut daemons, mut claims) = (Vec::new(), Vec::new());
    for local in &locals {
        local.driver.inject(unanswered());
        daemons.push(local.daemon(&world, json!({})).await);
        let claim = world.claim(&format!("of-{}", claims.len()), &class, json!({})).await;
        world.select(&claim, Some(&local.node)).await;
        local.driver_until("asked", |it| !it.calls_of(Method::CreateVolume).is_empty()).await;
        claims.push(claim);
    }
    for (local, claim) in locals.iter().zip(&claims) {
        let segments = world.segments_of(&local.node).await;
        assert_eq!(entries(&segments).into_keys().collect::<Vec<_>>(), [world.claim_uid(claim).await]);
        assert!(segments.iter().all(|it| it.labels()[LABEL] == world.driver_name()), "{segments:#?}");
    }
    daemons.into_iter().for_each(Daemon::kill);
    world.delete_claim(&claims[0]).await;
    world.claim_gone(&claims[0]).await;
    let before = locals.each_ref().map(|local| local.changes().len());
    for local in &locals {
        local.driver.clear_faults();
    }
    let _back = [locals[0].daemon(&world, json!({})).await, locals[1].daemon(&world, json!({})).await];
    world.on_node(&claims[1], &locals[1]).await;
    world.journal_is_empty().await;
    locals[0].driver_until("nothing is left", |it| it.state().volumes().is_empty()).await;
    // The same once more, and the deletion of the unwanted volume.
    assert_eq!(locals[0].changes().len(), before[0] + 2);
    assert_eq!(locals[1].changes().len(), before[1] + 1);
}

#[tokio::test]
async fn a_leader_that_finds_a_thousand_entries_asks_for_all_of_them_soon_without_their_claims() {
    const ENTRIES: usize = 1_000;
    let (world, first) = World::with_supplier_on("first").await;
    let class = world.class("class", json!({})).await;
    let begun = world.begun(&class, 1).await.remove(0);
    first.kill();
    world.driver().clear_faults();
    let (uid, entry) = (world.claim_uid(&begun).await, world.recorded(&begun).await.to_string());
    let segment = world.config_maps().get(&world.segment(0)).await.unwrap();
    let uids: Vec<String> = (0..ENTRIES).map(|at| format!("{at:08}-1111-4222-8333-444444444444")).collect();
    for number in 0..SEGMENTS {
        let mine = uids.iter().skip(number).step_by(SEGMENTS);
        let data: BTreeMap<String, String> = mine.map(|it| (it.clone(), entry.replace(&uid, it))).collect();
        if number == 0 {
            world.patch_segment(&world.segment(0), json!({ "data": data })).await;
            continue;
        }
        let mut copy: ConfigMap = segment.clone();
        copy.metadata.name = Some(world.segment(number));
        copy.data = None;
        world.restore_segment(&copy).await;
        let made = world.config_maps().get(&world.segment(number)).await.unwrap();
        let (theirs, its) = (segment.metadata.uid.as_deref().unwrap(), made.metadata.uid.unwrap());
        let data: BTreeMap<String, String> =
            data.into_iter().map(|(uid, text)| (uid, text.replace(theirs, &its))).collect();
        world.patch_segment(&world.segment(number), json!({ "data": data })).await;
    }
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    let host = world.name("second");
    world
        .lease_held_by(&names::lease(world.driver_name()), "the successor's", |holder| holder.starts_with(&host))
        .await;
    let started = world.ground().clock().now();
    let asked = |driver: &Driver| driver.calls_of(Method::CreateVolume).len();
    let before = asked(world.driver());
    world.driver_until("asked for the first of them", |driver| asked(driver) > before).await;
    assert!(started.elapsed() < GENEROUS, "{:?}", started.elapsed());
    world.driver_until("asked for all", |driver| asked(driver) > ENTRIES).await;
    world.supplied_with(&begun).await;
    world.journal_is_empty().await;
    // No other volume has a claim.
    world.driver_until("one volume", |driver| driver.state().volumes().len() == 1).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn the_status_page_and_the_metrics_show_what_is_in_the_journal() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    let claims = world.begun(&class, 3).await;
    let (name, uid) = (world.volume_name(&claims[0]).await, world.claim_uid(&claims[0]).await);
    world.page_names(&daemon, &[&format!("default/{}", claims[0]), &name, "too slow"]).await;
    let labels = [world.driver_name()];
    let counted = |metrics: &str| {
        figure(metrics, "csi_control_plane_journal_entries{", &labels) == Some(3.0)
            && figure(metrics, "csi_control_plane_journal_bytes", &labels).is_some_and(|bytes| bytes > 500.0)
            && figure(metrics, "csi_control_plane_journal_oldest_entry_age_seconds", &labels)
                .is_some_and(|age| age > 0.5)
            && figure(metrics, "csi_control_plane_journal_commits_total", &["result=\"ok\""])
                .is_some_and(|it| it >= 1.0)
            && figure(metrics, "csi_control_plane_journal_commit_entries_count", &labels).is_some_and(|it| it >= 1.0)
    };
    world.metrics_until(&daemon, "the journal in figures", counted).await;
    world.driver().clear_faults();
    for claim in &claims {
        world.supplied_with(claim).await;
    }
    world.journal_until("nothing is left of it", |it| !it.contains_key(&uid)).await;
    let empty = |metrics: &str| {
        figure(metrics, "csi_control_plane_journal_entries{", &labels) == Some(0.0)
            && figure(metrics, "csi_control_plane_journal_oldest_entry_age_seconds", &labels) == Some(0.0)
    };
    world.metrics_until(&daemon, "an empty journal in figures", empty).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn an_entry_whose_volume_another_object_names_ends_and_the_volume_stays() {
    let (world, first) = World::with_supplier_on("first").await;
    let class = world.class("class", json!({})).await;
    let begun = world.begun(&class, 1).await.remove(0);
    first.kill();
    // A user finds the volume in the storage and rescues it, and the claim is deleted.
    let handle = world.driver().state().volumes().keys().next().unwrap().clone();
    let rescue = world.rescue("manual", &handle, json!({ "storageClassName": class })).await;
    world.delete_claim_and_wait(&begun).await;
    world.driver().clear_faults();
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.journal_is_empty().await;
    assert!(world.driver().state().volumes().contains_key(&handle));
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 0);
    let kept = world.all::<PersistentVolume>().get(&rescue).await.unwrap();
    assert_eq!(handle_of(&kept).unwrap().1, handle);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_final_no_to_a_successor_ends_what_was_begun_without_a_volume() {
    let (world, first) = World::with_supplier_on("first").await;
    let (_, claim) = world.asked_claim(create(Action::fail(Code::DeadlineExceeded, "slow"))).await;
    first.kill();
    world.delete_claim(&claim).await;
    world.driver().clear_faults();
    world.driver().inject(create(Action::fail(Code::InvalidArgument, "no such colour")));
    let before = world.times_asked(&claim).await;
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.journal_is_empty().await;
    assert_eq!(world.times_asked(&claim).await, before + 1);
    world.assert_all_gone(&[&claim]).await;
}
