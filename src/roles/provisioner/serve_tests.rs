//! A term ends by its deadline during a call to the driver, before its elector runs: the claim counts no failure, and
//! the journal keeps the entry. Also: what a term forgets once it no longer matters.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::*;
use crate::cluster::ObjectName;
use crate::csi::CsiOptions;
use crate::diagnostics::Board;
use crate::process::Tasks;
use crate::roles::kit::fixtures::change;
use crate::roles::provisioner::sources::protection::{SourceKey, SourceKind};
use crate::roles::provisioner::{REGISTRATION, provisioner};
use crate::roles::{Wired, Wiring};
use crate::sandbox::driver::{Action, Fault, Lie, Method, Pool, Profile};
use crate::sandbox::testbed::TestBed;
use crate::sandbox::testbed::harness::RoleHarness;
use crate::telemetry::Meter;

/// The namespace and the name of the claim.
const CLAIM: (&str, &str) = ("default", "claim");

/// A cluster with a claim, a driver, and one term of the role, which is shorter than a call to the driver may take.
struct World {
    testbed: TestBed,
    board: Board,
    meter: Meter,
    _tasks: Tasks,
}

/// Makes the claim, and its class.
fn claim(testbed: &TestBed, driver: &str) {
    let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "gold" },
        "provisioner": driver });
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "namespace": CLAIM.0, "name": CLAIM.1 },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "gold",
            "resources": { "requests": { "storage": "1Gi" } } } });
    for object in [class, claim] {
        testbed.api.create_value(object).unwrap();
    }
}

impl World {
    async fn with(faults: impl IntoIterator<Item = Fault>) -> Self {
        let harness = RoleHarness::with(Profile::default()).await;
        let mut wiring = Wiring::new(&harness.caches);
        let role = (REGISTRATION.cluster().unwrap().load)(&json!({}), &mut wiring).unwrap();
        let wired = wiring.into_wired();
        harness.watch();
        let RoleHarness { testbed, context, tasks, .. } = harness;
        testbed.start_actors();
        faults.into_iter().for_each(|fault| testbed.driver.inject(fault));
        claim(&testbed, &context.driver.name);
        let (board, meter) = (context.board.clone(), context.meter.clone());
        let term = Term::unattended(context.clock, CsiOptions::default().timeout / 2);
        tasks.spawn("role", async move {
            let _wired = wired;
            role.serve(&context, term).await.unwrap();
        });
        Self { testbed, board, meter, _tasks: tasks }
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        until(what, &self.testbed, || holds(self)).await;
    }

    /// Waits until the daemon has made a call and given it up, which it does at the end of the term.
    async fn outlast(&self, method: Method) {
        self.until("a call", |world| !world.testbed.driver.calls_of(method).is_empty()).await;
        tokio::time::sleep(CsiOptions::default().timeout + Duration::from_secs(1)).await;
        assert_eq!(self.testbed.driver.calls_of(method).len(), 1);
    }

    /// The failures that metrics and status page show.
    fn told(&self) -> Vec<String> {
        let figures = self.meter.render();
        let is_failure = |line: &&str| line.starts_with("controller_") && line.contains("_failed_total");
        let failures = figures.lines().filter(is_failure).map(str::to_owned);
        failures.chain(self.board.report().work.into_iter().filter_map(|work| work.last_error)).collect()
    }

    /// Whether the journal holds the request to the driver.
    fn is_recorded(&self) -> bool {
        let segments: Vec<ConfigMap> = self.testbed.api.list("").unwrap();
        segments.iter().any(|segment| segment.data.as_ref().is_some_and(|data| !data.is_empty()))
    }

    fn volumes(&self) -> (usize, usize) {
        let objects: Vec<PersistentVolume> = self.testbed.api.list("").unwrap();
        (self.testbed.driver.state().volumes().len(), objects.len())
    }
}

async fn until(what: &str, testbed: &TestBed, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}; {:#?}", testbed.driver.calls());
}

/// A term that works on claims and not on volumes.
async fn claims_alone(profile: Profile) -> (RoleHarness, Arc<Triggers>, Wired) {
    let harness = RoleHarness::with(profile).await;
    let mut wiring = Wiring::new(&harness.caches);
    let role = provisioner(&json!({}), &mut wiring).unwrap();
    let wired = wiring.into_wired();
    harness.watch();
    role.caches.synced(true).await;
    let context = &harness.context;
    let term = Term::unattended(context.clock, Duration::from_secs(3600));
    let central = Deployment::central(role.caches.nodes.clone(), &context.driver.name, &role.section);
    let journal = journal::open(context, &term, None, role.backoff()).await.map(|(journal, _)| journal);
    let queues = role.queues(context);
    let triggers = Arc::new(role.triggers(context, &term, central, CapacityInvalidation::off(), queues, journal));
    let mut controllers = Controllers::new(NAME, &context.board, &triggers.shared.scope);
    controllers.follow(&triggers.shared.stores.claims);
    controllers.follow(&triggers.shared.stores.snapshots);
    let claims = Claims(Arc::clone(&triggers.claims));
    controllers.drive(&triggers.queues.claims, "Claims", |_| None, claims);
    let lost = LostJournals::new(&triggers.shared, context);
    Provisioner::run_journal(context, &triggers, lost.into(), &mut controllers);
    triggers.follow(&mut controllers);
    harness.tasks.spawn("claims", async move { controllers.serve().await.unwrap() });
    (harness, triggers, wired)
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_has_waited_for_any_node_is_forgotten_when_it_is_deleted() {
    let (harness, triggers, _wired) =
        claims_alone(Profile::default().in_pools([Pool::at([("zone", "z1")], 1 << 40)])).await;
    let testbed = &harness.testbed;
    let waiting = || triggers.claims.memory.collect(|it| (!it.waits.is_empty()).then_some(())).len();
    testbed.start_actors();
    claim(testbed, &harness.context.driver.name);
    until("it waits", testbed, || waiting() == 1).await;
    testbed.api.delete::<PersistentVolumeClaim>(CLAIM.0, CLAIM.1).unwrap();
    until("nothing is remembered", testbed, || triggers.claims.memory.len() == 0).await;
    harness.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_object_whose_name_another_has_taken_is_forgotten() {
    let (harness, triggers, _wired) = claims_alone(Profile::default()).await;
    triggers.deletion.memory.change("u1", |it| it.is_deleted = true);
    let [old, new] = ["u1", "u2"].map(|uid| json!({ "metadata": { "name": "pv-1", "uid": uid } }));
    triggers.volume_changed(&change(Some(&old), Some(&new)));
    assert_eq!(triggers.deletion.memory.len(), 0);
    harness.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_create_that_outlasts_the_term_is_no_failure_and_what_it_may_have_made_can_be_found() {
    let world = World::with([Fault::on(Method::CreateVolume, Action::DoneButHang)]).await;
    world.outlast(Method::CreateVolume).await;
    assert_eq!(world.told(), Vec::<String>::new());
    assert!(world.is_recorded());
    assert_eq!(world.volumes(), (1, 0));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_outlasts_the_term_is_no_failure_and_leaves_the_object() {
    let world = World::with([Fault::on(Method::DeleteVolume, Action::Hang)]).await;
    let is_bound = |world: &World| {
        let claim: PersistentVolumeClaim = world.testbed.api.get(CLAIM.0, CLAIM.1).unwrap();
        claim.status.is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    };
    world.until("bound", is_bound).await;
    world.testbed.api.delete::<PersistentVolumeClaim>(CLAIM.0, CLAIM.1).unwrap();
    world.outlast(Method::DeleteVolume).await;
    assert_eq!(world.told(), Vec::<String>::new());
    assert_eq!(world.volumes(), (1, 1));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_cannot_be_used_and_whose_deletion_outlasts_the_term_is_no_failure_and_can_be_found() {
    let small = Fault::on(Method::CreateVolume, Action::Lie(Lie::Size(5)));
    let world = World::with([small, Fault::on(Method::DeleteVolume, Action::Hang)]).await;
    world.outlast(Method::DeleteVolume).await;
    assert_eq!(world.told(), Vec::<String>::new());
    assert!(world.is_recorded());
    assert_eq!(world.volumes(), (1, 0));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn that_a_claim_was_admitted_is_forgotten_when_the_claim_is_gone_although_the_driver_owes_an_answer() {
    let (harness, triggers, _wired) = claims_alone(Profile::default()).await;
    let (testbed, memory) = (&harness.testbed, &triggers.claims.memory);
    testbed.driver.inject(Fault::on(Method::CreateVolume, Action::Hang));
    testbed.start_actors();
    claim(testbed, &harness.context.driver.name);
    until("a call", testbed, || !testbed.driver.calls_of(Method::CreateVolume).is_empty()).await;
    let made: PersistentVolumeClaim = testbed.api.get(CLAIM.0, CLAIM.1).unwrap();
    let uid = made.metadata.uid.unwrap();
    let source = SourceKey { kind: SourceKind::Claim, name: ObjectName::namespaced("far", "source") };
    memory.change(&uid, |it| it.admitted = Some(source));
    testbed.api.delete::<PersistentVolumeClaim>(CLAIM.0, CLAIM.1).unwrap();
    until("forgotten", testbed, || memory.read(&uid, |it| it.admitted.is_none())).await;
    harness.testbed.tear_down().await;
}
