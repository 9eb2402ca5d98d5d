//! Claims and volumes: the exact requests, which only the sandbox shows.

use std::time::Duration;

use csi_control_plane::cluster::names;
use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::api::faults;
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};
use tonic::Code;

use super::{api, by_daemon, user, written};
use crate::objects::merge;
use crate::supplier::{create, says, slow, supplier, unanswered};
use crate::world::{PATIENCE, World, settled};

const CLAIM: &str = "PersistentVolumeClaim";

/// A world and a class in it.
async fn shop(class: Value) -> (World, String) {
    let world = World::supplied(|_| {}).await;
    let class = world.class("gold", class).await;
    (world, class)
}

/// The daemon's writes, without Events.
fn provisioned(world: &World) -> Vec<String> {
    let mut written = written(world);
    written.retain(|it| !it.contains(" events "));
    written
}

#[tokio::test]
async fn a_lone_claim_becomes_a_volume_by_two_writes_and_one_that_tidies_and_goes_with_it_by_two() {
    let (world, class) = shop(json!({})).await;
    let _daemon = world.supplier(json!({})).await;
    // The first claim of all has the journal's object created.
    let first = world.claim("first", &class, json!({})).await;
    world.supplied_with(&first).await;
    world.journal_is_empty().await;
    assert_eq!(provisioned(&world)[..2], ["create configmaps 201", "patch configmaps 200"]);
    world.delete_claim(&first).await;
    world.assert_all_gone(&[&first]).await;
    api(&world).audit().clear();
    let claim = world.claim("data", &class, json!({})).await;
    let (uid, name) = (world.claim_uid(&claim).await, world.volume_name(&claim).await);
    let volume = world.supplied_with(&claim).await;
    assert_eq!(volume.name_any(), name);
    assert_eq!(provisioned(&world), ["patch configmaps 200", "create persistentvolumes 201"]);
    world.journal_is_empty().await;
    assert_eq!(provisioned(&world)[2..], ["patch configmaps 200"]);
    assert_eq!(world.driver().creates_of(&name).len(), 1);
    let finalizers = volume.finalizers();
    assert!(finalizers.iter().any(|it| it == names::FINALIZER_PROVISIONER), "{finalizers:?}");
    assert!(finalizers.contains(&world.finalizer()), "the attacher beside us need not put it on: {finalizers:?}");
    assert_eq!(volume.annotations()[names::ANNOTATION_PROVISIONED_BY], world.driver_name());
    let spec = volume.spec.unwrap();
    assert_eq!(spec.claim_ref.unwrap().uid, Some(uid));
    assert_eq!(spec.storage_class_name, Some(class));

    api(&world).audit().clear();
    world.delete_claim(&claim).await;
    world.gone::<PersistentVolume>(&name).await;
    let ours: Vec<_> = provisioned(&world).into_iter().filter(|it| !it.contains("volumeattachments")).collect();
    let (deletes, mut patches): (Vec<_>, Vec<_>) = ours.iter().partition(|it| it.starts_with("delete"));
    // Both roles take their finalizers off at the same time: who comes second looks again.
    patches.retain(|it| !it.ends_with(" 422"));
    assert_eq!(deletes, ["delete persistentvolumes 200"]);
    assert!(patches.len() <= 2, "one of ours, one of the attacher's: {patches:?}");
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 2, "exactly one DeleteVolume each");
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_source_is_let_go_of_once_its_last_clone_is_made() {
    let (world, class) = shop(json!({})).await;
    let _daemon = world.supplier(json!({})).await;
    let source = world.claim("source", &class, json!({})).await;
    world.supplied_with(&source).await;
    let one = world.claim_from("one", &class, CLAIM, &source).await;
    let two = world.claim_from("two", &class, CLAIM, &source).await;
    world.supplied_with(&one).await;
    world.supplied_with(&two).await;
    let is_protected = |it: &PersistentVolumeClaim| it.finalizers().iter().any(|it| it == names::FINALIZER_CLONING);
    world.claim_until(&source, "let go of", |it| !is_protected(it)).await;
    let protections = api(&world).audit().matching(|it| {
        it.verb == "patch" && it.body.as_ref().is_some_and(|body| body.to_string().contains(names::FINALIZER_CLONING))
    });
    assert!(protections.len() >= 2, "put on, and taken off");
}

#[tokio::test]
async fn without_durable_intent_a_claim_costs_one_write_and_a_deletion_mid_way_still_leaves_nothing() {
    let (world, class) = shop(json!({})).await;
    let _daemon = world.supplier(json!({ "durableIntent": false })).await;
    let claim = world.claim("data", &class, json!({})).await;
    world.supplied_with(&claim).await;
    assert_eq!(provisioned(&world), ["create persistentvolumes 201"]);
    let busy = Action::DoneButFail { code: Code::Unavailable, message: "busy".into() };
    world.driver().inject(create(busy).times(3));
    let other = world.claim("other", &class, json!({})).await;
    let name = world.volume_name(&other).await;
    world.asked(&other, 1).await;
    world.delete_claim(&other).await;
    world.driver_until("asked to the end", |driver| driver.volume_named(&name).is_none()).await;
    world.delete_claim(&claim).await;
    world.assert_all_gone(&[&claim, &other]).await;
}

#[tokio::test]
async fn a_secret_that_the_api_does_not_hand_out_just_now_is_waited_for_where_a_missing_one_is_not() {
    let secret = json!({ "parameters": { "csi.storage.k8s.io/provisioner-secret-name": "${pvc.name}",
        "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}" } });
    let (world, class) = shop(secret).await;
    world.secret(&world.name("data"), &[("password", b"swordfish")]).await;
    let _daemon = world.supplier(json!({ "deleteWithoutSecret": true })).await;
    world.driver().inject(create(Action::Hold));
    let claim = world.claim("data", &class, json!({})).await;
    world.asked(&claim, 1).await;
    world.delete_claim(&claim).await;
    // The next attempt has to read the secret again.
    world.driver().inject(Fault::on(Method::DeleteVolume, Action::fail(Code::Unavailable, "not now")).once());
    world.daemon_has_seen("later").await;
    let busy = faults::Action::Refuse(Rejection::too_many_requests(1));
    let reads = by_daemon(&world).verb("get").resource("secrets");
    let fault = api(&world).faults().add(faults::Fault::on(reads, busy).nth(1));
    world.driver().release();
    world.assert_all_gone(&[&claim]).await;
    assert_eq!(api(&world).faults().hits(fault), 1);
    let deletes = world.driver().calls_of(Method::DeleteVolume);
    assert_eq!(deletes.iter().map(|call| call.secrets).collect::<Vec<_>>(), [true, true]);
}

/// A later leader, which does not have the secret of the first request, may not read it for a while.
#[tokio::test]
async fn a_secret_that_may_not_be_read_is_waited_for_to_end_what_an_earlier_leader_has_begun() {
    let secret = json!({ "parameters": { "csi.storage.k8s.io/provisioner-secret-name": "${pvc.name}",
        "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}" } });
    let (world, class) = shop(secret).await;
    world.secret(&world.name("data"), &[("password", b"swordfish")]).await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    world.driver().inject(unanswered());
    let claim = world.claim("data", &class, json!({})).await;
    world.asked(&claim, 1).await;
    first.stop().await.unwrap();
    world.delete_claim(&claim).await;
    world.driver().clear_faults();
    let before = world.driver().calls_of(Method::CreateVolume).len();
    let forbidden = faults::Action::Refuse(Rejection::forbidden("", "secrets", "data", "no"));
    let reads = faults::Matching::any().user(world.name("second")).verb("get").resource("secrets");
    let fault = api(&world).faults().add(faults::Fault::on(reads, forbidden));
    let _second = world.daemon_on("second", supplier(json!({ "deleteWithoutSecret": true }))).await;
    settled("forbidden twice", PATIENCE, async || {
        let hits = api(&world).faults().hits(fault);
        if hits >= 2 { Ok(()) } else { Err(format!("{hits} times")) }
    })
    .await;
    assert_eq!(world.driver().calls_of(Method::CreateVolume).len(), before, "nothing is asked without it");
    api(&world).faults().remove(fault);
    world.assert_all_gone(&[&claim]).await;
    assert!(world.driver().calls().iter().filter(|call| call.method == Method::DeleteVolume).all(|call| call.secrets));
}

/// What an attempt has read of the source is older than the change that wakes the claim meanwhile.
#[tokio::test]
async fn a_source_that_is_bound_while_the_answer_that_it_is_not_is_on_its_way_wakes_its_clone() {
    let (world, class) = shop(json!({})).await;
    let source = world.name("source");
    // This test does not wait for a back-off of five minutes.
    let _daemon = world.supplier(slow()).await;
    let clone = world.claim_from("clone", &class, "PersistentVolumeClaim", &source).await;
    world.claim_told(&clone, "ProvisioningFailed", &source).await;
    let reads = by_daemon(&world).verb("get").resource("persistentvolumeclaims").name(&source);
    let late = faults::Action::DelayAfter(Duration::from_secs(1));
    let fault = api(&world).faults().add(faults::Fault::on(reads, late).times(1));
    assert_eq!(world.claim("source", &class, json!({})).await, source);
    world.supplied_with(&source).await;
    world.supplied_with(&clone).await;
    assert_eq!(api(&world).faults().hits(fault), 1);
}

#[tokio::test]
async fn many_claims_at_once_share_their_writes() {
    const CLAIMS: usize = 200;
    let (world, class) = shop(json!({})).await;
    let mut claims = Vec::new();
    for number in 0..CLAIMS {
        claims.push(world.claim(&format!("data-{number}"), &class, json!({})).await);
    }
    // A daemon that loses its Lease on a busy machine asks for all that it had begun once more.
    let mut config = supplier(json!({}));
    merge(&mut config, json!({ "leaderElection": { "leaseDuration": "10m", "renewDeadline": "9m" } }));
    let _daemon = world.daemon(config).await;
    for claim in &claims {
        world.supplied_with(claim).await;
        assert_eq!(world.asked(claim, 1).await.len(), 1);
    }
    world.journal_is_empty().await;
    let of_claims = |it: &Entry| !["list", "watch"].contains(&it.verb) && !["leases", "events"].contains(&it.resource);
    let requests = api(&world).audit().matching(|it| it.user == user(&world) && of_claims(it));
    let is_commit = |it: &&Entry| it.resource == "configmaps" && it.verb != "get";
    let commits: Vec<&Entry> = requests.iter().filter(is_commit).collect();
    assert!(commits.len() < CLAIMS / 4, "{} writes to the journal for {CLAIMS} claims", commits.len());
    // But for the reads at the beginning (journal J5).
    let all = requests.len() - requests.iter().filter(|it| it.resource == "configmaps" && it.verb == "get").count();
    assert!(all * 10 <= CLAIMS * 13, "{all} requests for {CLAIMS} claims");
    // At least a third of the written bytes are entries (journal J6).
    let written: usize = commits.iter().map(|it| it.body.as_ref().unwrap().to_string().len()).sum();
    let data = commits.iter().filter_map(|it| it.body.as_ref()?["data"].as_object());
    let entries: usize = data.flatten().filter_map(|(_, entry)| Some(entry.as_str()?.len())).sum();
    assert!(written <= 3 * entries, "{written} bytes for {entries} bytes of entries");
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn in_a_burst_the_events_of_success_are_dropped_and_no_event_of_a_failure() {
    const CLAIMS: usize = 150;
    let (world, class) = shop(json!({})).await;
    let daemon = world.supplier(json!({})).await;
    world.serving(&daemon).await;
    // No Event is written before all claims have their volumes.
    let events = by_daemon(&world).verb("create").resource("events");
    let held = api(&world).faults().add(faults::Fault::on(events, faults::Action::Hold));
    let mut claims = Vec::new();
    for number in 0..CLAIMS {
        claims.push(world.claim(&format!("data-{number}"), &class, json!({})).await);
    }
    for claim in &claims {
        world.supplied_with(claim).await;
    }
    world.driver().inject(create(Action::fail(Code::InvalidArgument, "no such colour")).once());
    let failed = world.claim("failed", &class, json!({})).await;
    world.asked(&failed, 1).await;
    api(&world).faults().remove(held);
    world.claim_told(&failed, "ProvisioningFailed", "no such colour").await;
    let all = world.namespaced::<Event>().list(&ListParams::default()).await.unwrap().items;
    let told = all.iter().filter(|it| says(it, "ProvisioningSucceeded", "")).count();
    assert!(told < CLAIMS / 2, "{told} Events of success for {CLAIMS} claims");
    world.supplied_with(&failed).await;
    world.assert_nothing_leaked().await;
}
