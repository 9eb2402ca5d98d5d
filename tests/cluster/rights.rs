//! The rights that `check` prints, on a real RBAC authorizer: the rights of each role are enough for the role alone,
//! and if one is missing, a user can see which.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_control_plane::app::Plan;
use csi_control_plane::config::{self, File, Sources};
use csi_control_plane::roles::csi_attacher;
use csi_control_plane::roles::health_monitor::names::ABNORMAL;
use csi_control_plane::roles::snapshotter::names;
use csi_control_plane::roles::{self, ROLES, Registration};
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, PersistentVolume};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tracing::field::Field;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use crate::cluster::claim_rights;
use crate::ground::Daemon;
use crate::ground::cluster::NAMESPACE;
use crate::monitoring::{DEGRADED, count};
use crate::rights::without;
use crate::snapshotting::snapshotter;
use crate::world::{World, until_some};
use crate::{logs, objects};

/// The pause between two looks at something that cannot be awaited.
const LOOK: Duration = Duration::from_millis(25);
/// Where a user sees it who reads the log, and nobody else.
const LOG_ALONE: &str = "the log alone";
/// The number of daemons that are tried at once.
const AT_ONCE: usize = 4;
/// An Event is counted up five minutes after it was written at the earliest; a capacity object is looked up only if it was made
/// and the watch has not shown it for as long as a poll takes; of what a pod may be of, ours is of a `ReplicaSet`.
/// The resizer and the health monitor read an object again only after a conflict, which nobody can cause here: `tests/process/rbac.rs` does. A cluster
/// that does not let the snapshotter read groups is one without groups; `tests/process/rbac_snapshots.rs` plays their rights.
/// What a watch has not shown is looked up only where it is missing: `tests/process/rbac.rs` plays that.
const NOT_SEEN_HERE: [(&str, &str, &str); 21] = [
    ("attacher", "get", "csinodes"),
    ("provisioner", "get", "csinodes"),
    ("provisioner", "get", "nodes"),
    ("provisioner", "get", "storageclasses"),
    ("snapshotter", "get", "volumegroupsnapshotclasses"),
    ("snapshotter", "get", "volumesnapshotclasses"),
    (ANY, "patch", "events"),
    (ANY, "get", "csistoragecapacities"),
    (ANY, "get", "daemonsets"),
    (ANY, "get", "statefulsets"),
    ("healthMonitor", "get", "persistentvolumeclaims"),
    ("resizer", "get", "persistentvolumeclaims"),
    ("resizer", "get", "persistentvolumes"),
    ("snapshotter", "list", "volumegroupsnapshotclasses"),
    ("snapshotter", "watch", "volumegroupsnapshotclasses"),
    ("snapshotter", "get", "volumegroupsnapshotcontents"),
    ("snapshotter", "list", "volumegroupsnapshotcontents"),
    ("snapshotter", "patch", "volumegroupsnapshotcontents"),
    ("snapshotter", "watch", "volumegroupsnapshotcontents"),
    ("snapshotter", "patch", "volumegroupsnapshotcontents/status"),
    ("snapshotter", "get", "volumesnapshots"),
];
const ANY: &str = "*";

/// Whether a run shows that the role lacks this right.
fn is_seen_here(role: &str, verb: &str, resource: &str) -> bool {
    let is_it = |of: &&(&str, &str, &str)| (of.0 == ANY || of.0 == role) && of.1 == verb && of.2 == resource;
    !NOT_SEEN_HERE.iter().any(|of| is_it(&of))
}

/// Keeps what is said as a warning or an error.
struct Keeper(Arc<Mutex<String>>);

impl<S: tracing::Subscriber> Layer<S> for Keeper {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() > tracing::Level::WARN {
            return;
        }
        event.record(&mut |field: &Field, value: &dyn Debug| {
            writeln!(self.0.lock().unwrap(), "{}: {value:?}", field.name()).unwrap();
        });
    }
}

/// Keeps what this test's daemons say so, as long as the guard lives.
fn warnings() -> (Arc<Mutex<String>>, DefaultGuard) {
    let kept = Arc::new(Mutex::new(String::new()));
    let keeper = Keeper(Arc::clone(&kept));
    (kept, logs::listen(tracing_subscriber::registry().with(keeper)))
}

/// The configuration of one role alone.
fn alone(role: &str) -> Value {
    let mut config = objects::config();
    let section = config["roles"].get(role).cloned().unwrap_or_else(|| json!({}));
    let section = if role == "provisioner" { claim_rights::section() } else { section };
    config["roles"] = json!({ role: section });
    // The right of a standby: `tests/it/taking_over.rs` shows what is without it.
    config["leaderElection"]["watchHolderPod"] = false.into();
    config
}

/// The plan that `check` prints for one role alone.
fn plan(role: &str, driver: &str) -> Plan {
    let file = File { name: format!("{role}.yaml"), text: alone(role).to_string() };
    let loaded = config::load(&Sources { file: Some(file), ..Sources::default() }, &roles::sections()).unwrap();
    Plan::of(&loaded, driver, None).unwrap()
}

/// The answer to a forbidden request.
fn forbidden(world: &World, verb: &str, resource: &str) -> String {
    let host = world.name("daemon");
    format!("User \"system:serviceaccount:{NAMESPACE}:{host}\" cannot {verb} resource \"{resource}\"")
}

/// Where a user who looks would read `text`, quoted in whatever way.
async fn told(world: &World, daemon: &Daemon, log: &Mutex<String>, text: &str) -> Option<&'static str> {
    let says = |page: &str| page.replace('\\', "").contains(text);
    let attachments = world.all::<VolumeAttachment>().list(&kube::api::ListParams::default()).await.unwrap().items;
    if attachments.iter().any(|it| says(&serde_json::to_string(&it.status).unwrap())) {
        return Some("an attachment's status");
    }
    for page in ["/readyz", "/status.json"] {
        if says(&crate::http::get(&daemon.diagnostics_dial().unwrap(), page).await) {
            return Some(page);
        }
    }
    let events = world.namespaced::<Event>().list(&kube::api::ListParams::default()).await.unwrap().items;
    if events.iter().any(|it| says(it.message.as_deref().unwrap_or_default())) {
        return Some("an Event");
    }
    says(&log.lock().unwrap()).then_some(LOG_ALONE)
}

/// What a daemon needs all of its rights for: work that another one has begun, a volume that has been attached before, a volume
/// with a secret whose first publish fails, and no Lease yet.
struct TestBed {
    begun: String,
    widely_used: String,
    other: String,
    guarded: String,
}

impl TestBed {
    /// Has a daemon with all rights do the first half.
    async fn set_up(world: &World) -> Self {
        let (node, other, secret) = (world.node("node").await, world.node("other").await, world.name("secret"));
        world.secret(&secret, &[("password", b"hunter2")]).await;
        let reference = json!({ "csi": { "controllerPublishSecretRef": { "name": secret, "namespace": "default" } } });
        let guarded = world.volume_with("guarded", reference).await;
        let widely_used = world.volume_with("wide", json!({ "accessModes": ["ReadWriteMany"] })).await;
        let predecessor = world.daemon_on("predecessor", json!({})).await;
        let begun = world.attach(&widely_used, &node).await;
        world.attached(&begun).await;
        predecessor.stop().await.unwrap();
        let leases = world.leases();
        let lease = csi_attacher::lease(world.driver_name());
        leases.delete(&lease, &DeleteParams::default()).await.unwrap();
        until_some(leases, &lease, "gone", |lease: Option<&Lease>| lease.is_none()).await;
        let no_luck = Action::fail(tonic::Code::Internal, "no luck");
        world.driver().inject(Fault::on(Method::ControllerPublishVolume, no_luck).once());
        Self { begun, widely_used, other, guarded }
    }

    /// Asks for the second half, and returns what is to be attached.
    async fn ask(&self, world: &World) -> [String; 2] {
        let asked =
            [world.attach(&self.guarded, &self.other).await, world.attach(&self.widely_used, &self.other).await];
        world.detach(&self.begun).await;
        asked
    }
}

/// Starts a role alone with its rights, or with all but one.
async fn start(world: &World, role: &str, missing: Option<&(String, String)>) -> Daemon {
    let plan = plan(role, world.driver_name());
    let missing = missing.map(|(verb, resource)| (verb.as_str(), resource.as_str()));
    world.real().start_with(&world.name("daemon"), &alone(role).to_string(), &without(&plan, missing)).await
}

/// The places that name the missing right.
async fn place_of(
    world: &World,
    daemon: &Daemon,
    log: &Mutex<String>,
    (verb, resource): &(String, String),
) -> Result<&'static str, String> {
    let text = forbidden(world, verb, resource);
    let mut found = None;
    let looks = async {
        loop {
            found = told(world, daemon, log, &text).await.or(found);
            // A text that is only in the log may be on its way to a page.
            if found.is_some_and(|place| place != LOG_ALONE || resource == "events") {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let _ = tokio::time::timeout(crate::world::PATIENCE, looks).await;
    found.ok_or_else(|| format!("nothing tells of {text}"))
}

/// Asserts that nothing was forbidden.
async fn had_enough(world: &World, role: &str, daemon: &Daemon, log: &Mutex<String>) {
    let user = format!("User \"system:serviceaccount:{NAMESPACE}:{}\" cannot", world.name("daemon"));
    assert_eq!(told(world, daemon, log, &user).await, None, "{role}: {}", log.lock().unwrap());
}

/// Plays the provisioner as [`play`] does the others.
async fn play_provisioner(
    missing: Option<(String, String)>,
    log: Arc<Mutex<String>>,
) -> Option<Result<&'static str, String>> {
    let world = claim_rights::world().await;
    let testbed = claim_rights::TestBed::set_up(&world).await;
    if missing.as_ref().is_some_and(|(verb, resource)| verb == "create" && resource == "configmaps") {
        // A daemon adds to the segments that it finds, and makes one only where it finds none with room.
        world.delete_segment(&world.segment(0)).await;
    }
    let daemon = start(&world, "provisioner", missing.as_ref()).await;
    if let Some(missing) = missing {
        return Some(place_of(&world, &daemon, &log, &missing).await);
    }
    testbed.done(&world).await;
    world.serving(&daemon).await;
    had_enough(&world, "provisioner", &daemon, &log).await;
    None
}

/// Plays the resizer: one claim may grow at once, and another waits for the pod that uses its volume, and for its class.
async fn play_resizer(
    missing: Option<(String, String)>,
    log: Arc<Mutex<String>>,
) -> Option<Result<&'static str, String>> {
    let world = World::supplied(|_| {}).await;
    let secret = world.name("secret");
    world.secret(&secret, &[("password", b"hunter2")]).await;
    let reference = json!({ "name": secret, "namespace": "default" });
    let spec = json!({ "volumeMode": "Block", "csi": { "controllerExpandSecretRef": reference } });
    let ((free, _), (used, volume)) = (world.sizable("free", spec.clone()).await, world.sizable("used", spec).await);
    let pod = world.pod("pod", &[&used], None).await;
    let published = Action::fail(tonic::Code::FailedPrecondition, "published");
    let fault = Fault::on(Method::ControllerExpandVolume, published).volume(&world.handle(&volume));
    world.driver().inject(fault.once());
    for claim in [&free, &used] {
        world.ask_for(claim, "2Gi").await;
    }
    world.ask_for_class(&used, &world.name("fast")).await;
    let daemon = start(&world, "resizer", missing.as_ref()).await;
    if let Some(missing) = missing {
        return Some(place_of(&world, &daemon, &log, &missing).await);
    }
    world.claim_told(&used, "VolumeResizeFailed", "in-use").await;
    world.delete_pod(&pod).await;
    world.attributes("fast", "1").await;
    for claim in [&free, &used] {
        world.sized(claim, "2Gi").await;
    }
    world.classed(&used, &world.name("fast")).await;
    world.serving(&daemon).await;
    had_enough(&world, "resizer", &daemon, &log).await;
    None
}

/// Plays the snapshotter: a snapshot with a secret is refused once, and a content waits for its deletion.
async fn play_snapshotter(
    missing: Option<(String, String)>,
    log: Arc<Mutex<String>>,
) -> Option<Result<&'static str, String>> {
    let world = World::snapshotting(|_| {}).await;
    let predecessor = world.daemon_on("predecessor", snapshotter(json!({}))).await;
    let going = world.cut_anew("going").await;
    world.ready(&going).await;
    predecessor.stop().await.unwrap();
    let (leases, lease) = (world.leases(), names::lease(world.driver_name()));
    leases.delete(&lease, &DeleteParams::default()).await.unwrap();
    until_some(leases, &lease, "gone", |lease: Option<&Lease>| lease.is_none()).await;
    world.delete_snapshot_and_see(&going).await;
    let secret = world.name("secret");
    world.secret(&secret, &[("password", b"hunter2")]).await;
    let keys = ["name", "namespace"].map(|part| format!("csi.storage.k8s.io/snapshotter-secret-{part}"));
    let parameters = json!({ &keys[0]: secret, &keys[1]: "default" });
    let class = world.snapshot_class("class", json!({ "parameters": parameters })).await;
    let source = world.source("source").await;
    let no_luck = Action::fail(tonic::Code::Internal, "no luck");
    world.driver().inject(Fault::on(Method::CreateSnapshot, no_luck).once());
    let cut = world.cut("cut", &source, &class).await;
    let daemon = start(&world, "snapshotter", missing.as_ref()).await;
    if let Some(missing) = missing {
        return Some(place_of(&world, &daemon, &log, &missing).await);
    }
    world.cut_gone(&going).await;
    world.ready(&cut).await;
    world.serving(&daemon).await;
    had_enough(&world, "snapshotter", &daemon, &log).await;
    None
}

/// Plays the health monitor: a volume is not healthy, which the server does not store.
async fn play_health_monitor(
    missing: Option<(String, String)>,
    log: Arc<Mutex<String>>,
) -> Option<Result<&'static str, String>> {
    let world = World::with(|profile| *profile = profile.clone().with_volume_health()).await;
    let (claim, volume) = world.monitored("claim").await;
    world.ails(&volume, &[DEGRADED]);
    let daemon = start(&world, "healthMonitor", missing.as_ref()).await;
    if let Some(missing) = missing {
        return Some(place_of(&world, &daemon, &log, &missing).await);
    }
    world.told_of(&claim, "something is wrong", |events| count(events, ABNORMAL) == 1).await;
    world.serving(&daemon).await;
    had_enough(&world, "healthMonitor", &daemon, &log).await;
    None
}

/// The roles that are played on a cluster which they share with other tests. A role for all drivers would meddle with these:
/// `tests/it/attach_detach.rs` has a cluster of its own for it, and the rights that `check` prints; `tests/process/rbac.rs` plays it without
/// each of them.
fn played() -> impl Iterator<Item = &'static Registration> {
    ROLES.iter().filter(|role| role.cluster().is_some_and(|role| role.needs_driver))
}

/// Plays one role alone with its rights, or with all but one; says where the missing one is told.
async fn play(
    role: &str,
    missing: Option<(String, String)>,
    log: Arc<Mutex<String>>,
) -> Option<Result<&'static str, String>> {
    if role == "provisioner" {
        return play_provisioner(missing, log).await;
    }
    if role == "resizer" {
        return play_resizer(missing, log).await;
    }
    if role == "snapshotter" {
        return play_snapshotter(missing, log).await;
    }
    if role == "healthMonitor" {
        return play_health_monitor(missing, log).await;
    }
    let world = World::new().await;
    let testbed = TestBed::set_up(&world).await;
    let daemon = start(&world, role, missing.as_ref()).await;
    let asked = testbed.ask(&world).await;
    if let Some(missing) = missing {
        return Some(place_of(&world, &daemon, &log, &missing).await);
    }
    if role == "attacher" {
        for attachment in &asked {
            world.attached(attachment).await;
        }
        world.gone::<VolumeAttachment>(&testbed.begun).await;
        world.balanced().await;
        world.delete_volume(&testbed.guarded).await;
        world.detached(&asked[0]).await;
        world.gone::<PersistentVolume>(&testbed.guarded).await;
    }
    world.serving(&daemon).await;
    if role == "reconciler" {
        let listed = world.driver().calls_of(Method::ListVolumes).len();
        world.driver_until("listings", |it| it.calls_of(Method::ListVolumes).len() > listed + 1).await;
    }
    had_enough(&world, role, &daemon, &log).await;
    None
}

#[tokio::test]
async fn each_role_alone_has_enough_with_its_own_rights() {
    let (log, _guard) = warnings();
    for role in played() {
        Box::pin(play(role.name, None, Arc::clone(&log))).await;
    }
}

/// A right that no run misses could also be missing in the plan, so the plan is compared with the expected one.
#[test]
fn the_rights_that_no_run_misses_are_planned_with_all_that_belongs_to_them_and_for_nobody_else() {
    let is_about = |role: &str, rule: &str| {
        NOT_SEEN_HERE.iter().any(|(of, _, resource)| (*of == ANY || *of == role) && *resource == rule)
    };
    let mut planned = BTreeSet::new();
    for role in played() {
        for rule in plan(role.name, "any.csi.example.com").rules {
            if is_about(role.name, &rule.resource) {
                let verbs: BTreeSet<String> = rule.verbs.into_iter().collect();
                planned.insert(format!("{} {} {verbs:?}", role.name, rule.resource));
            }
        }
    }
    let expected = [
        "attacher csinodes {\"get\", \"list\", \"watch\"}",
        "attacher events {\"create\", \"patch\"}",
        "healthMonitor events {\"create\", \"list\", \"patch\"}",
        "healthMonitor persistentvolumeclaims {\"get\", \"list\", \"watch\"}",
        "provisioner csinodes {\"get\", \"list\", \"watch\"}",
        "provisioner csistoragecapacities {\"create\", \"delete\", \"get\", \"list\", \"patch\", \"watch\"}",
        "provisioner daemonsets {\"get\"}",
        "provisioner events {\"create\", \"patch\"}",
        "provisioner nodes {\"get\", \"list\", \"watch\"}",
        "provisioner statefulsets {\"get\"}",
        "provisioner storageclasses {\"get\", \"list\", \"watch\"}",
        "resizer events {\"create\", \"patch\"}",
        "resizer persistentvolumeclaims {\"get\", \"list\", \"watch\"}",
        "resizer persistentvolumes {\"get\", \"list\", \"patch\", \"watch\"}",
        "snapshotter events {\"create\", \"patch\"}",
        "snapshotter volumegroupsnapshotclasses {\"get\", \"list\", \"watch\"}",
        "snapshotter volumegroupsnapshotcontents {\"get\", \"list\", \"patch\", \"watch\"}",
        "snapshotter volumegroupsnapshotcontents/status {\"patch\"}",
        "snapshotter volumesnapshotclasses {\"get\", \"list\", \"watch\"}",
        "snapshotter volumesnapshots {\"get\"}",
    ];
    assert_eq!(planned, expected.map(str::to_owned).into());
}

#[tokio::test]
async fn every_right_of_every_role_is_missed_where_a_user_sees_which() {
    let (log, _guard) = warnings();
    let mut rights = BTreeSet::new();
    for role in played() {
        for rule in plan(role.name, "any.csi.example.com").rules {
            let verbs = rule.verbs.into_iter().map(|verb| (role.name, (verb, rule.resource.clone())));
            rights.extend(verbs.filter(|(role, (verb, resource))| is_seen_here(role, verb, resource)));
        }
    }
    assert!(rights.len() > 20, "{rights:?}");
    let tries = rights.into_iter().map(|(role, (verb, resource))| {
        let log = Arc::clone(&log);
        async move {
            let place = Box::pin(play(role, Some((verb.clone(), resource.clone())), log)).await.unwrap();
            // Events are the one thing that no status is about.
            let is_seen = place.as_ref().is_ok_and(|place| *place != LOG_ALONE || resource == "events");
            let line = format!("{role}: {verb} {resource}: {}", place.map_or_else(|trouble| trouble, str::to_owned));
            if is_seen { Ok(line) } else { Err(line) }
        }
    });
    let told: Vec<Result<String, String>> = stream::iter(tries).buffer_unordered(AT_ONCE).collect().await;
    let (seen, unseen): (Vec<_>, Vec<_>) = told.into_iter().partition(Result::is_ok);
    println!("{seen:#?}");
    assert!(unseen.is_empty(), "{unseen:#?}");
}
