//! A whole role in one file, made by CONTRIBUTING's guide: it puts a finalizer on each volume that the driver says it has.
//!
//! It shows what a role needs beside the kit: a memory, a lock, a warning. Its tests prove that this is enough, wherever the daemon dies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume as Stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::{info_span, warn};

use crate::cluster::rbac::Rule;
use crate::cluster::{Cache, EventTarget, PersistentVolume, patch};
use crate::config::RoleSection;
use crate::csi::volume::capability;
use crate::election::Term;
use crate::process::{Faults, Section};
use crate::proto::ValidateVolumeCapabilitiesRequest;
use crate::queue::{Activation, Cause, RetrySection};
use crate::roles::kit::cuts::assert_the_same_end;
use crate::roles::kit::drive::Next;
use crate::roles::kit::report::log_failure;
use crate::roles::kit::served::Served;
use crate::roles::kit::{
    Controllers, End, Io, Memory, NoReason, Op, Part, Reconcile, Remembered, Run, Start, Stop, Store, Telling,
    TermScope, queues,
};
use crate::roles::{ClusterRole, Kind, LeasePolicy, Registration, Role, RoleContext, RoleError, Serve, Wiring};
use crate::sandbox::api::PatchBody;
use crate::sandbox::driver::{Action, Fault, Method, Profile};

const NAME: &str = "example";
const FINALIZER: &str = "example.csi-control-plane.io/confirmed";
const PROTECT: Op = Op("cannot protect the volume");

/// The line in `ROLES`.
const REGISTRATION: Registration = Registration {
    name: NAME,
    section: RoleSection::of::<ExampleSection>(NAME),
    sidecar: None,
    restart_keys: &[],
    metrics: &[],
    foreign_metrics: &[],
    kind: Kind::Cluster(ClusterRole {
        needs_driver: true,
        lease: |_| LeasePolicy::Sidecar(|driver| format!("example-{driver}")),
        event_source: |driver| format!("example {driver}"),
        sandbox: |_| Some(json!({})),
        load,
    }),
};

/// `roles.example:` in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ExampleSection {}

impl Section for ExampleSection {
    fn check(&self, _: &mut Faults) {}
}

/// Declares caches and rights. No I/O.
fn load(section: &Value, wiring: &mut Wiring<'_>) -> Result<Box<dyn Role>, serde_json::Error> {
    let _: ExampleSection = RoleSection::read(section)?;
    wiring.needs(Rule::cluster("", "persistentvolumes", &["get", "patch"], "protect the volumes that the driver has"));
    Ok(Box::new(Example { volumes: wiring.cache() }))
}

struct Example {
    volumes: Cache<PersistentVolume>,
}

/// One term: a store of each cache, what is remembered, queues, and what wakes their keys.
impl Serve for Example {
    async fn serve_term(&self, role: &RoleContext, term: Term) -> Result<(), RoleError> {
        if term.unless_over(self.volumes.synced()).await.is_err() {
            return Ok(());
        }
        let scope = Arc::new(TermScope::new(role, &term));
        let mut controllers = Controllers::new(NAME, &role.board, &scope);
        let volumes = Store::of(&self.volumes);
        controllers.follow(&volumes);
        let span = |volume: &String| info_span!(parent: None, "volume", role = NAME, persistent_volume = %volume);
        let queue = queues::make(role, NAME, &[("confirm", 4)], <RetrySection>::default().backoff(), span);
        controllers.on_store(&volumes, {
            let queue = queue.clone();
            move |change| {
                let Some(volume) = &change.new else { return };
                queue.add(volume.metadata.name.to_string(), Activation::of(Cause::Changed));
            }
        });
        let confirmer = Confirmer { driver: scope.driver_name.clone(), volumes, memory: Memory::default() };
        controllers.drive(&queue, "Volumes to confirm", |_| None, confirmer);
        controllers.serve().await
    }
}

struct Confirmer {
    driver: String,
    volumes: Store<PersistentVolume>,
    memory: Memory<Asked>,
}

/// What the term remembers of a volume. If it is lost, the driver is asked once more.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    /// The driver has said that it does not have the volume.
    is_denied: bool,
}

impl Remembered for Asked {}

/// What one decision is made from.
struct View {
    volume: Arc<PersistentVolume>,
    driver: String,
    is_denied: bool,
}

#[derive(Debug, PartialEq)]
enum Step {
    /// Ask the driver, while nobody changes the volume.
    Ask { handle: String },
    /// Put the finalizer on it.
    Protect,
}

enum Answer {
    /// Whether the driver has the volume, or else why not.
    Asked(Result<(), String>),
    /// The next view shows it.
    Written,
}

/// What one attempt has done so far.
#[derive(Debug, Default, PartialEq)]
struct Progress {
    is_confirmed: bool,
    denial: Option<String>,
}

/// The policy.
fn next_step(view: &View, progress: &Progress) -> Next<Step> {
    let metadata = &view.volume.metadata;
    let ours = view.volume.spec.csi.as_ref().filter(|csi| csi.driver == view.driver);
    match ours {
        Some(csi) if !metadata.has_finalizer(FINALIZER) && metadata.deletion_timestamp.is_none() && !view.is_denied => {
            let handle = csi.volume_handle.clone();
            Next::Do(if progress.is_confirmed { Step::Protect } else { Step::Ask { handle } })
        }
        _ => Next::Done,
    }
}

impl Reconcile for Confirmer {
    type Key = String;
    type View = View;
    type Memory = Asked;
    type Progress = Progress;
    type Step = Step;
    type Answer = Answer;
    type Reason = NoReason;

    fn memory(&self) -> &Memory<Asked> {
        &self.memory
    }

    fn is_there(&self, name: &String, uid: &str) -> bool {
        self.volumes.has(name, uid)
    }

    fn view(&self, name: &String) -> Option<View> {
        let volume = self.volumes.named(name)?;
        let is_denied = self.memory.read(&volume.metadata.uid, |asked| asked.is_denied);
        Some(View { volume, driver: self.driver.clone(), is_denied })
    }

    fn uid(view: &View) -> &str {
        &view.volume.metadata.uid
    }

    fn begin(_: &View, _: Start) -> Progress {
        Progress::default()
    }

    fn next_step(view: &View, progress: &Progress) -> Next<Step> {
        next_step(view, progress)
    }

    fn lock<'a>(_: &'a View, step: &'a Step) -> Option<(&'a str, &'a str)> {
        if let Step::Ask { handle } = step { Some((handle, handle)) } else { None }
    }

    async fn perform(
        &self,
        step: Step,
        view: &View,
        _: &Progress,
        io: &Io<'_, String>,
    ) -> Result<Answer, Stop<NoReason>> {
        match step {
            Step::Ask { handle: volume_id } => {
                let capability = capability(&["ReadWriteOnce"], false, "", &[""; 0], false).unwrap();
                let request = ValidateVolumeCapabilitiesRequest {
                    volume_id,
                    volume_capabilities: vec![capability],
                    ..ValidateVolumeCapabilitiesRequest::default()
                };
                let answer = io.call(async move |driver| driver.validate_volume_capabilities(request).await).await?;
                Ok(Answer::Asked(answer.confirmed.map(drop).ok_or(answer.message)))
            }
            Step::Protect => {
                let patch = patch::add_finalizer(&view.volume.metadata, FINALIZER, &BTreeMap::new()).unwrap();
                io.write(&self.volumes, view.volume.as_ref(), (Part::Object, &patch), PROTECT).await?;
                Ok(Answer::Written)
            }
        }
    }

    fn apply(asked: &mut Asked, progress: &mut Progress, answer: Answer) {
        match answer {
            Answer::Asked(Ok(())) => progress.is_confirmed = true,
            Answer::Asked(Err(why)) => (asked.is_denied, progress.denial) = (true, Some(why)),
            Answer::Written => {}
        }
    }

    fn tell(first: &View, progress: &Progress, end: &End<'_, NoReason>, run: &Run<'_>) -> Vec<Telling> {
        match (end, &progress.denial) {
            (End::Settled, None) => vec![Telling::Did("confirmed", None)],
            (End::Settled, Some(why)) => {
                warn!(why, "the driver does not have the volume");
                let on = EventTarget::of(first.volume.as_ref());
                let note = format!("the driver does not have the volume: {why}");
                vec![Telling::warning(on, "VolumeNotConfirmed", note)]
            }
            (End::Failed(error), _) => {
                log_failure!(run, error, {}, "cannot confirm the volume");
                Vec::new()
            }
        }
    }
}

/// A volume of ours that is mounted, one that is a raw device, and one of another driver.
async fn scene() -> Served {
    let world = Served::new(&REGISTRATION, &json!({}), Profile::default()).await;
    let ours = world.context.driver.name.clone();
    world.testbed.driver.seed(["mounted", "raw"]);
    let raw = vec![capability(&["ReadWriteOnce"], true, "", &[""; 0], false).unwrap()];
    world.testbed.driver.change_state(|state| state.seed("raw").capabilities = raw);
    for (name, driver) in [("mounted", &*ours), ("raw", &*ours), ("foreign", "other.example.com")] {
        let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": driver, "volumeHandle": name } } });
        world.testbed.api.create_value(volume).unwrap();
    }
    world
}

fn is_protected(world: &Served, name: &str) -> bool {
    let volume: Stored = world.testbed.api.get("", name).unwrap();
    volume.metadata.finalizers.is_some_and(|all| all.iter().any(|it| it == FINALIZER))
}

#[tokio::test(start_paused = true)]
async fn a_role_made_by_the_guide_works_its_queue_and_warns_once() {
    let world = scene().await;
    let down = Action::fail(tonic::Code::Unavailable, "down");
    world.testbed.driver.inject(Fault::on(Method::ValidateVolumeCapabilities, down).times(1));
    world.lead();
    world.write_events();
    let told = |world: &Served| world.testbed.api.audit().count("create", "events") == 1;
    world.until("what is there is protected", |world| is_protected(world, "mounted") && told(world)).await;
    world.rest().await;
    // A change brings the volume back, and what the driver said is remembered.
    let label = PatchBody::Merge(json!({ "metadata": { "labels": { "touched": "yes" } } }));
    world.testbed.api.patch::<Stored>("", "raw", label).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(told(&world) && !is_protected(&world, "raw") && !is_protected(&world, "foreign"));
    assert_eq!(world.testbed.api.audit().count("patch", "persistentvolumes"), 1, "one write");
    assert_eq!(world.testbed.driver.calls_of(Method::ValidateVolumeCapabilities).len(), 3, "one failed");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_the_lock_of_a_volume_that_another_role_changes() {
    let world = scene().await;
    let lock = world.context.driver.operations.try_acquire("mounted").unwrap();
    world.lead();
    let calls = |world: &Served| world.testbed.driver.calls_of(Method::ValidateVolumeCapabilities).len();
    world.until("the other volume is asked about", |world| calls(world) == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(calls(&world), 1);
    drop(lock);
    world.until("what is there is protected", |world| is_protected(world, "mounted")).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn wherever_it_is_cut_the_next_leader_comes_to_the_same_end() {
    assert_the_same_end(scene, |world| is_protected(world, "mounted").then(|| is_protected(world, "raw"))).await;
}
