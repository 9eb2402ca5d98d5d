//! A term whose deadline passes while the driver is asked, before its elector has run: what comes of the call is told as nobody's
//! failure, and what was written down before it stays.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::*;
use crate::csi::CsiOptions;
use crate::diagnostics::Board;
use crate::roles::Wiring;
use crate::roles::provisioner::REGISTRATION;
use crate::sandbox::driver::{Action, Fault, Lie, Method, Profile};
use crate::sandbox::stage::Stage;
use crate::sandbox::stage::rehearsal::Rehearsal;
use crate::telemetry::Meter;

/// The namespace and the name of the claim.
const CLAIM: (&str, &str) = ("default", "claim");

/// A cluster with a claim, a driver, and one term of the role, which is shorter than a call to the driver may take.
struct World {
    stage: Stage,
    board: Board,
    meter: Meter,
    _tasks: Tasks,
}

impl World {
    async fn with(faults: impl IntoIterator<Item = Fault>) -> Self {
        let rehearsal = Rehearsal::with(Profile::default()).await;
        let mut wiring = Wiring::new(&rehearsal.caches);
        let role = (REGISTRATION.load)(&json!({}), &mut wiring).unwrap();
        let wired = wiring.into_wired();
        rehearsal.watch();
        let Rehearsal { stage, context: cx, tasks, .. } = rehearsal;
        stage.start_actors();
        faults.into_iter().for_each(|fault| stage.driver.inject(fault));
        stage
            .api
            .create_value(json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "gold" },
                "provisioner": cx.driver.name,
            }))
            .unwrap();
        stage
            .api
            .create_value(json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "namespace": CLAIM.0, "name": CLAIM.1 },
                "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "gold",
                    "resources": { "requests": { "storage": "1Gi" } } },
            }))
            .unwrap();
        let (board, meter) = (cx.board.clone(), cx.meter.clone());
        let term = Term::unattended(cx.clock, CsiOptions::default().timeout / 2);
        tasks.spawn("role", async move {
            let _wired = wired;
            role.serve(&cx, term).await.unwrap();
        });
        Self { stage, board, meter, _tasks: tasks }
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}; {:#?}", self.stage.driver.calls());
    }

    /// Waits until a call was made, and given up, which is when the term is over.
    async fn outlast(&self, method: Method) {
        self.until("a call", |world| !world.stage.driver.calls_of(method).is_empty()).await;
        tokio::time::sleep(CsiOptions::default().timeout + Duration::from_secs(1)).await;
        assert_eq!(self.stage.driver.calls_of(method).len(), 1);
    }

    /// The failures that figures and status page tell of.
    fn told(&self) -> Vec<String> {
        let figures = self.meter.render();
        let is_failure = |line: &&str| line.starts_with("controller_") && line.contains("_failed_total");
        let failures = figures.lines().filter(is_failure).map(str::to_owned);
        failures.chain(self.board.report().work.into_iter().filter_map(|work| work.last_error)).collect()
    }

    /// Whether what was asked of the driver still stands on the claim, with what keeps the claim from going.
    fn is_marked(&self) -> bool {
        let claim: PersistentVolumeClaim = self.stage.api.get(CLAIM.0, CLAIM.1).unwrap();
        let is_ours = |text: &String| text.contains("csi-control-plane");
        claim.metadata.finalizers.unwrap_or_default().iter().any(is_ours)
            && claim.metadata.annotations.unwrap_or_default().contains_key(names::ANNOTATION_PROVISIONING)
    }

    fn volumes(&self) -> (usize, usize) {
        let objects: Vec<PersistentVolume> = self.stage.api.list("").unwrap();
        (self.stage.driver.state().volumes().len(), objects.len())
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_that_outlasts_the_term_is_no_failure_and_what_it_may_have_made_can_be_found() {
    let world = World::with([Fault::on(Method::CreateVolume, Action::DoneButHang)]).await;
    world.outlast(Method::CreateVolume).await;
    assert_eq!(world.told(), Vec::<String>::new());
    assert!(world.is_marked());
    assert_eq!(world.volumes(), (1, 0));
    world.stage.strike().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_outlasts_the_term_is_no_failure_and_leaves_the_object() {
    let world = World::with([Fault::on(Method::DeleteVolume, Action::Hang)]).await;
    let is_bound = |world: &World| {
        let claim: PersistentVolumeClaim = world.stage.api.get(CLAIM.0, CLAIM.1).unwrap();
        claim.status.is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    };
    world.until("bound", is_bound).await;
    world.stage.api.delete::<PersistentVolumeClaim>(CLAIM.0, CLAIM.1).unwrap();
    world.outlast(Method::DeleteVolume).await;
    assert_eq!(world.told(), Vec::<String>::new());
    assert_eq!(world.volumes(), (1, 1));
    world.stage.strike().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_cannot_be_used_and_whose_deletion_outlasts_the_term_is_no_failure_and_can_be_found() {
    let small = Fault::on(Method::CreateVolume, Action::Lie(Lie::Size(5)));
    let world = World::with([small, Fault::on(Method::DeleteVolume, Action::Hang)]).await;
    world.outlast(Method::DeleteVolume).await;
    assert_eq!(world.told(), Vec::<String>::new());
    assert!(world.is_marked());
    assert_eq!(world.volumes(), (1, 0));
    world.stage.strike().await;
}
