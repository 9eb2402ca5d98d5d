//! The rights that `check` prints, on a real RBAC authorizer: each role alone has enough with its own, and every one of them is
//! missed, where a user can see which.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use csi_control_plane::app::Plan;
use csi_control_plane::cluster::names;
use csi_control_plane::config::{self, File, Sources};
use csi_control_plane::roles::{self, ROLES};
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use futures::{StreamExt as _, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolume, Secret};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use serde_json::{Value, json};
use tracing::field::Field;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use crate::ground::{Daemon, NAMESPACE};
use crate::scenarios::failures::without;
use crate::world::{World, until_some};
use crate::{logs, objects};

/// How many daemons are tried at once.
const AT_ONCE: usize = 4;
/// An Event is counted up five minutes after it was written at the earliest.
const NOT_SEEN_HERE: (&str, &str) = ("patch", "events");

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
    config["roles"] = json!({ role: section });
    config
}

/// The plan that `check` prints for one role alone.
fn plan(role: &str, driver: &str) -> Plan {
    let file = File { name: format!("{role}.yaml"), text: alone(role).to_string() };
    let loaded = config::load(&Sources { file: Some(file), ..Sources::default() }, &roles::sections()).unwrap();
    Plan::of(&loaded, driver).unwrap()
}

/// What a forbidden request is answered with.
fn forbidden(world: &World, verb: &str, resource: &str) -> String {
    let host = world.name("daemon");
    format!("User \"system:serviceaccount:{NAMESPACE}:{host}\" cannot {verb} resource \"{resource}\"")
}

/// Where a user who looks would read `text`, quoted in whatever way.
async fn told(world: &World, daemon: &Daemon, log: &Mutex<String>, text: &str) -> Option<&'static str> {
    let says = |where_: &str| where_.replace('\\', "").contains(text);
    let attachments = world.all::<VolumeAttachment>().list(&kube::api::ListParams::default()).await.unwrap().items;
    if attachments.iter().any(|it| says(&serde_json::to_string(&it.status).unwrap())) {
        return Some("an attachment's status");
    }
    for page in ["/readyz", "/status.json"] {
        if says(&crate::http::get(daemon.diagnostics.unwrap(), page).await) {
            return Some(page);
        }
    }
    says(&log.lock().unwrap()).then_some("the log alone")
}

/// What a daemon needs all of its rights for: work that another one has begun, a volume that has been attached before, a volume
/// with a secret whose first publish fails, and no Lease yet.
struct Stage {
    begun: String,
    widely_used: String,
    other: String,
    guarded: String,
}

impl Stage {
    /// Has a daemon with all rights do the first half.
    async fn set(world: &World) -> Self {
        let (node, other, secret) = (world.node("node").await, world.node("other").await, world.name("secret"));
        let metadata = ObjectMeta { name: Some(secret.clone()), ..ObjectMeta::default() };
        let data = Some([("password".to_owned(), ByteString(b"hunter2".to_vec()))].into());
        let object = Secret { metadata, data, ..Secret::default() };
        world.namespaced::<Secret>().create(&PostParams::default(), &object).await.unwrap();
        let reference = json!({ "csi": { "controllerPublishSecretRef": { "name": secret, "namespace": "default" } } });
        let guarded = world.volume_with("guarded", reference).await;
        let widely_used = world.volume_with("wide", json!({ "accessModes": ["ReadWriteMany"] })).await;
        let predecessor = world.daemon_on("predecessor", json!({})).await;
        let begun = world.attach(&widely_used, &node).await;
        world.attached(&begun).await;
        predecessor.stop().await.unwrap();
        let leases: Api<Lease> = Api::namespaced(world.client(), NAMESPACE);
        let lease = names::attacher_lease(world.driver_name());
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

/// Plays one role alone with its rights, or with all but one; says where the missing one is told.
async fn play(role: &str, missing: Option<(String, String)>, log: Arc<Mutex<String>>) -> Option<&'static str> {
    let world = World::new().await;
    let stage = Stage::set(&world).await;
    let plan = plan(role, world.driver_name());
    let (host, config) = (world.name("daemon"), alone(role).to_string());
    let missing = missing.as_ref().map(|(verb, resource)| (verb.as_str(), resource.as_str()));
    let daemon = world.ground().start_with(&host, &config, &without(&plan, missing)).await;
    let asked = stage.ask(&world).await;
    if let Some((verb, resource)) = missing {
        let text = forbidden(&world, verb, resource);
        let looks = async {
            loop {
                if let Some(place) = told(&world, &daemon, &log, &text).await {
                    return place;
                }
            }
        };
        let found = tokio::time::timeout(crate::world::PATIENCE, looks).await;
        return Some(found.unwrap_or_else(|_| panic!("{role}: nothing tells of {text}")));
    }
    if role == "attacher" {
        for attachment in &asked {
            world.attached(attachment).await;
        }
        world.gone::<VolumeAttachment>(&stage.begun).await;
        world.balanced().await;
        world.delete_volume(&stage.guarded).await;
        world.detached(&asked[0]).await;
        world.gone::<PersistentVolume>(&stage.guarded).await;
    }
    world.serving(&daemon).await;
    if role == "reconciler" {
        let listed = world.driver().calls_of(Method::ListVolumes).len();
        world.driver_until("listings", |it| it.calls_of(Method::ListVolumes).len() > listed + 1).await;
    }
    let user = format!("User \"system:serviceaccount:{NAMESPACE}:{host}\" cannot");
    assert_eq!(told(&world, &daemon, &log, &user).await, None, "{role}: {}", log.lock().unwrap());
    None
}

#[tokio::test]
async fn each_role_alone_has_enough_with_its_own_rights() {
    let (log, _guard) = warnings();
    for role in ROLES {
        play(role.name, None, Arc::clone(&log)).await;
    }
}

#[tokio::test]
async fn every_right_of_every_role_is_missed_where_a_user_sees_which() {
    let (log, _guard) = warnings();
    let mut rights = BTreeSet::new();
    for role in ROLES {
        for rule in plan(role.name, "any.csi.example.com").rules {
            let verbs = rule.verbs.into_iter().map(|verb| (role.name, (verb, rule.resource.clone())));
            rights.extend(verbs.filter(|(_, (verb, resource))| (verb.as_str(), resource.as_str()) != NOT_SEEN_HERE));
        }
    }
    assert!(rights.len() > 20, "{rights:?}");
    let tries = rights.into_iter().map(|(role, (verb, resource))| {
        let log = Arc::clone(&log);
        async move {
            let place = play(role, Some((verb.clone(), resource.clone())), log).await.unwrap();
            // Events are the one thing that no status is about.
            assert!(place != "the log alone" || resource == "events", "{role}: {verb} {resource} in {place}");
            format!("{role}: {verb} {resource} in {place}")
        }
    });
    let told: Vec<String> = stream::iter(tries).buffer_unordered(AT_ONCE).collect().await;
    println!("{}", told.join("\n"));
}
