//! The journal's requests: each fails once in every way, is delayed past its leader's end, or is refused for good.
//! Nothing is lost, and the driver gets no request that the API does not hold.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults::{Action, Fault, FaultId, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::api::pure::resources;
use csi_control_plane::sandbox::driver::{self, Method};
use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use serde_json::{Value, json};
use tonic::Code;

use super::faults::{WAITS, failures};
use super::{api, by_daemon};
use crate::objects::{config_with, merge};
use crate::provision_kept::LEFT_OVER;
use crate::supplier::{create, figure, supplier, unanswered};
use crate::world::World;
use crate::world::wait::asked;

const MADE: &str = "controller_persistentvolumeclaim_provision_total";
const FAILED: &str = "controller_persistentvolumeclaim_provision_failed_total";

/// Collects every `CreateVolume` that arrives without an entry in the journal.
fn unrecorded(world: &World) -> Arc<Mutex<Vec<String>>> {
    let (found, kind) = (Arc::new(Mutex::new(Vec::new())), resources::of_kind("v1", "ConfigMap").unwrap());
    let (api, of_hook) = (api(world).clone(), Arc::clone(&found));
    world.driver().on_call(move |call, _| {
        if call.method != Method::CreateVolume || call.applied.is_some() || call.ended.is_some() {
            return;
        }
        let name = call.name.clone().unwrap_or_default();
        let uid = name.strip_prefix("pvc-").unwrap_or(&name);
        let segments = api.objects(kind, "kube-system").unwrap();
        if !segments.iter().any(|it| it.pointer("/data").is_some_and(|data| data.get(uid).is_some())) {
            of_hook.lock().unwrap().push(name);
        }
    });
    found
}

/// A daemon of this section that waits for answers only so long.
fn impatient() -> Value {
    let mut config = supplier(json!({}));
    merge(&mut config, json!({ "kubernetes": { "requestTimeout": WAITS } }));
    config
}

/// Which of the journal's requests fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Struck {
    /// The write that creates the segment.
    First,
    /// A write to a segment that is there.
    Next,
    /// The write that removes what is done with.
    Tidying,
    /// One of the reads of a new leader.
    Read,
}

/// A claim comes and goes, once for each failure, and one of the journal's requests fails so.
async fn each_failure_is_got_over(struck: Struck) {
    let lives = failures("v1", "ConfigMap").into_iter().map(|(how, action)| live(struck, how, action));
    join_all(lives).await;
}

async fn live(struck: Struck, how: &str, action: Action) {
    let world = World::supplied(|_| {}).await;
    let unrecorded = unrecorded(&world);
    let class = world.class("class", json!({})).await;
    let strike = |verb: &str, nth: u64| -> FaultId {
        let on = by_daemon(&world).verb(verb).resource("configmaps");
        api(&world).faults().add(Fault::on(on, action.clone()).nth(nth))
    };
    let early = (struck == Struck::Read).then(|| strike("get", 3));
    let daemon = world.daemon(impatient()).await;
    let fault = match struck {
        Struck::Read => early.unwrap(),
        Struck::First => strike("create", 1),
        // The entry itself comes first.
        Struck::Tidying => strike("patch", 2),
        Struck::Next => {
            let before = world.claim("before", &class, json!({})).await;
            world.supplied_with(&before).await;
            world.journal_is_empty().await;
            strike("patch", 1)
        }
    };
    let claim = world.claim("claim", &class, json!({})).await;
    world.supplied_with(&claim).await;
    let is_struck = async || (api(&world).faults().hits(fault) == 1).then_some(());
    asked(&format!("{struck:?}, {how}: a request that fails"), is_struck).await;
    world.journal_is_empty().await;
    assert_eq!(world.asked(&claim, 1).await.len(), 1, "{struck:?}, {how}");
    if struck == Struck::Tidying {
        let metrics = world.metrics(&daemon).await;
        assert_eq!(figure(&metrics, MADE, &[&class]), Some(1.0), "{how}: {metrics}");
        assert_eq!(figure(&metrics, FAILED, &[&class]), None, "{how}: {metrics}");
    }
    for claim in [&claim, &world.name("before")] {
        if struck == Struck::Next || *claim != world.name("before") {
            world.delete_claim(claim).await;
            world.claim_gone(claim).await;
        }
    }
    world.assert_all_gone(&[]).await;
    assert_eq!(*unrecorded.lock().unwrap(), Vec::<String>::new(), "{struck:?}, {how}");
}

#[tokio::test]
async fn a_failure_to_create_a_segment_is_got_over() {
    each_failure_is_got_over(Struck::First).await;
}

#[tokio::test]
async fn a_failure_to_add_an_entry_is_got_over() {
    each_failure_is_got_over(Struck::Next).await;
}

#[tokio::test]
async fn a_failure_to_remove_an_entry_is_got_over_and_no_failure_of_its_claim() {
    each_failure_is_got_over(Struck::Tidying).await;
}

#[tokio::test]
async fn a_failure_to_read_a_segment_is_got_over() {
    each_failure_is_got_over(Struck::Read).await;
}

#[tokio::test]
async fn a_final_error_is_heeded_although_the_entry_cannot_be_removed() {
    let (world, daemon) = World::with_supplier(json!({ "retry": { "infeasible": "300s" } })).await;
    let class = world.class("class", json!({})).await;
    let patches = by_daemon(&world).verb("patch").resource("configmaps");
    // Every write but the first one, which adds the entry.
    let refusal = Fault::on(patches, Action::Refuse(Rejection::internal("struck"))).nth(2).times(1_000_000);
    let fault = api(&world).faults().add(refusal);
    world.driver().inject(create(driver::Action::fail(Code::InvalidArgument, "no such colour")).once());
    let claim = world.claim("claim", &class, json!({})).await;
    world.claim_told(&claim, "ProvisioningFailed", "no such colour").await;
    let wait = |status: &Value| {
        let work = status["work"].as_array().cloned().unwrap_or_default();
        work.iter().find(|item| item["key"].as_str().is_some_and(|it| it.ends_with(&claim)))?["nextTrySeconds"].as_f64()
    };
    // With the jitter of a fifth.
    let waits = |status: &Value| wait(status).is_some_and(|wait| wait > 200.0);
    world.shows(&daemon, "it is not tried again soon", waits).await;
    let is_struck = async || (api(&world).faults().hits(fault) > 0).then_some(());
    asked("the journal cannot be tidied", is_struck).await;
    assert_eq!(world.asked(&claim, 1).await.len(), 1);
    world.delete_claim(&claim).await;
    api(&world).faults().remove(fault);
    world.forgotten(&claim).await;
    assert_eq!(world.asked(&claim, 1).await.len(), 1);
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_volume_whose_claim_was_bound_elsewhere_while_it_could_not_be_saved_is_deleted_in_the_end() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    // No answer: for all that the daemon knows the object is stored, so that the volume is for its life cycle alone to delete.
    let creates = by_daemon(&world).verb("create").resource("persistentvolumes");
    let fault = api(&world).faults().add(Fault::on(creates, Action::CutBefore));
    let claim = world.claim("claim", &class, json!({})).await;
    let failed = |least: f64| move |metrics: &str| figure(metrics, FAILED, &[]).is_some_and(|count| count >= least);
    world.metrics_until(&daemon, "an attempt to save it has failed", failed(1.0)).await;
    world.patch_claim(&claim, json!({ "spec": { "volumeName": world.name("another") } })).await;
    let before = figure(&world.metrics(&daemon).await, FAILED, &[]).unwrap();
    world.metrics_until(&daemon, "two more attempts", failed(before + 2.0)).await;
    api(&world).faults().remove(fault);
    world.driver_until("deleted", |driver| driver.state().volumes().is_empty()).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 1);
    world.delete_claim(&claim).await;
    world.assert_all_gone(&[&claim]).await;
}

/// How far the journal is when the first leader's write is held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    /// There is no segment yet.
    Create,
    /// There is one, to which the next leader writes, too.
    Conflict,
    /// There is one, to which the next leader writes nothing, because the claim is gone.
    Lands,
}

/// A write to the journal that its leader has sent arrives when another one leads.
async fn a_late_commit_loses_nothing(late: Late) {
    let world = World::supplied(|_| {}).await;
    let unrecorded = unrecorded(&world);
    let first = world.daemon_on("first", supplier(json!({}))).await;
    let class = world.class("class", json!({})).await;
    if late != Late::Create {
        let before = world.claim("before", &class, json!({})).await;
        world.supplied_with(&before).await;
        world.journal_is_empty().await;
    }
    let verb = if late == Late::Create { "create" } else { "patch" };
    let on = Matching::any().user(world.name("first")).verb(verb).resource("configmaps");
    let held = api(&world).faults().add(Fault::on(on, Action::Hold).times(1));
    let claim = world.claim("claim", &class, json!({})).await;
    let begun = async || (api(&world).faults().hits(held) == 1).then_some(());
    asked("a write that does not arrive", begun).await;
    first.kill();
    if late == Late::Lands {
        world.delete_claim_and_wait(&claim).await;
    }
    let second = world.daemon_on("second", supplier(json!({}))).await;
    world.serving(&second).await;
    if late != Late::Lands {
        world.supplied_with(&claim).await;
    }
    api(&world).faults().remove(held);
    if late == Late::Lands {
        assert!(!world.recorded(&claim).await.is_null(), "it has arrived after all");
    }
    // The next write meets it.
    let next = world.claim("next", &class, json!({})).await;
    world.supplied_with(&next).await;
    world.journal_is_empty().await;
    assert_eq!(*unrecorded.lock().unwrap(), Vec::<String>::new());
    for call in world.driver().calls_of(Method::CreateVolume) {
        assert_eq!(world.driver().creates_of(&call.name.clone().unwrap()).len(), 1);
    }
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_segment_that_a_leader_creates_too_late_is_met_by_the_next_one() {
    a_late_commit_loses_nothing(Late::Create).await;
}

#[tokio::test]
async fn an_entry_that_arrives_late_is_refused_where_the_next_leader_has_written() {
    a_late_commit_loses_nothing(Late::Conflict).await;
}

#[tokio::test]
async fn an_entry_that_arrives_late_and_lands_is_adopted_by_the_next_leader() {
    a_late_commit_loses_nothing(Late::Lands).await;
}

#[tokio::test]
async fn a_claim_that_is_in_background_is_asked_for_while_another_cannot_be_recorded() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, begun) = world.unanswered_claim(json!({})).await;
    let full = Rejection { code: 403, reason: "Forbidden", ..Rejection::internal("exceeded quota: configmaps") };
    let faults = ["create", "patch"].map(|verb| {
        let on = by_daemon(&world).verb(verb).resource("configmaps");
        api(&world).faults().add(Fault::on(on, Action::Refuse(full.clone())))
    });
    world.driver().clear_faults();
    world.driver().inject(unanswered().volume(&world.volume_name(&begun).await));
    let next = world.claim("next", &class, json!({})).await;
    world.claim_told(&next, "ProvisioningFailed", "exceeded quota").await;
    let before = world.asked(&begun, 1).await.len();
    world.asked(&begun, before + 2).await;
    assert_eq!(world.driver().creates_of(&world.volume_name(&next).await).len(), 0);
    world.driver().clear_faults();
    world.supplied_with(&begun).await;
    for fault in faults {
        api(&world).faults().remove(fault);
    }
    world.supplied_with(&next).await;
    world.journal_is_empty().await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn claims_wait_with_an_event_while_the_daemons_namespace_is_deleted_and_a_daemon_elsewhere_finishes_them() {
    let world = World::supplied(|_| {}).await;
    let (api, space) = (api(&world), world.name("space"));
    let named = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": space } });
    api.create_value(named).unwrap();
    let config = config_with(supplier(json!({}))).to_string();
    let daemon = world.sandbox().testbed.start_in(&world.name("daemon"), &space, &config).await.unwrap();
    let (_, begun) = world.unanswered_claim(json!({})).await;
    // The Lease is held by something else, so that the daemon still leads while the rest of the namespace goes.
    let held = PatchBody::Merge(json!({ "metadata": { "finalizers": ["example.com/held"] } }));
    let lease = names::lease(world.driver_name());
    api.patch::<Lease>(&space, &lease, held).unwrap();
    assert!(!api.delete::<Namespace>("", &space).unwrap());
    assert_eq!(api.list::<ConfigMap>(&space).unwrap(), []);
    let class = world.class("other", json!({})).await;
    let next = world.claim("next", &class, json!({})).await;
    world.claim_told(&next, "ProvisioningFailed", "being terminated").await;
    let is_named = |status: &Value| status.to_string().contains("being terminated");
    world.shows(&daemon, "why nothing is provisioned", is_named).await;
    assert_eq!(world.driver().creates_of(&world.volume_name(&next).await).len(), 0);
    daemon.stop().await.unwrap();
    world.driver().clear_faults();
    let _elsewhere = world.daemon_on("elsewhere", supplier(json!({}))).await;
    world.supplied_with(&begun).await;
    world.supplied_with(&next).await;
    world.journal_is_empty().await;
    world.assert_nothing_leaked().await;
}

/// After the first two minutes of a term nobody else can have written.
#[tokio::test]
async fn j9_an_entry_that_appears_later_in_a_term_is_reported_and_never_acted_on() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let made = world.made_and_saved("claim", "Delete").await;
    world.keep(&made).await;
    world.forgotten(&made.claim).await;
    tokio::time::sleep(Duration::from_secs(130)).await;
    world.put_back(&made).await;
    // The next write to the segment finds it.
    world.works("next").await;
    world.counts(&daemon, LEFT_OVER, 1.0).await;
    world.page_names(&daemon, &[&made.volume, "it has appeared in the journal, and no daemon has written it"]).await;
    world.works("last").await;
    world.is_kept(&made).await;
    assert!(world.is_recorded(&made.claim).await, "it stays until a person deletes it");
}
