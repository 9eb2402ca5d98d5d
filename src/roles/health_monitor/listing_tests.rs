//! The health of volumes from the passes over `ListVolumes` that all roles of a process share, under paused time.

use futures::FutureExt as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::cluster::Caches;
use crate::csi::ControllerRpc::{GetVolume, ListVolumesPublishedNodes};
use crate::csi::PublishedOn;
use crate::process::Tasks;
use crate::roles::kit::served::Served;
use crate::roles::{Wiring, reconciler};
use crate::sandbox::driver::{Action, Fault, Lie, Method, Profile};

use super::tests::{ROUND, SECOND, SLOW, calls, events, scene, status, writes};
use super::*;

const LIST: Method = Method::ListVolumes;
const GET: Method = Method::ControllerGetVolume;

/// A driver of CSI 1.12 that tells conditions in its list alone.
fn lists() -> Profile {
    Profile::default().without(GetVolume)
}

#[tokio::test(start_paused = true)]
async fn h10_h11_h22_a_driver_that_lists_no_nodes_has_passes_for_health_alone() {
    let profile = Profile { page_limit: 1, ..lists().without(ListVolumesPublishedNodes) };
    let world = scene(profile, json!({}), 3).await;
    let driver = &world.testbed.driver;
    driver.set_health("v2", [SLOW]);
    driver.inject(Fault::on(LIST, Action::Lie(Lie::EntryWithoutVolume)).once());
    world.lead();
    world.until("an Event tells it", |world| events(world) == ["VolumeConditionAbnormal c2"]).await;
    assert_eq!(calls(&world, LIST), 3, "a page for each");
    driver.set_health("v2", []);
    world.until("its end is told", |world| events(world).len() == 2).await;
    assert_eq!(events(&world)[1], "VolumeConditionNormal c2");
    let before = calls(&world, LIST);
    tokio::time::sleep(10 * ROUND).await;
    assert!(calls(&world, LIST) > before && events(&world).len() == 2 && writes(&world) == 0, "steady state");
    assert!(world.context.driver.listings.latest().is_none(), "no drift is judged");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn h14_neither_a_failed_pass_nor_an_entry_without_a_condition_nor_an_absence_clears_anything() {
    for (profile, asks) in [(lists(), false), (Profile::default(), true)] {
        let world = scene(profile, json!({}), 2).await;
        let driver = &world.testbed.driver;
        driver.set_health("v0", [SLOW]);
        world.lead();
        world.until("an Event tells it", |world| events(world) == ["VolumeConditionAbnormal c0"]).await;
        assert_eq!(calls(&world, GET), 0, "the list has all");
        for action in [
            Action::fail(Code::Aborted, "another token"),
            Action::Lie(Lie::TokenLoop),
            Action::Lie(Lie::EntryWithoutStatus),
            Action::Lie(Lie::OmitVolumes(["v0".to_owned()].into())),
        ] {
            let asked = calls(&world, GET);
            let is_said = matches!(&action, Action::Lie(Lie::EntryWithoutStatus | Lie::OmitVolumes(_)));
            driver.inject(Fault::on(LIST, action.clone()).times(2));
            tokio::time::sleep(2 * ROUND).await;
            assert_eq!(calls(&world, GET) > asked, asks && is_said, "{action:?}");
            assert_eq!(events(&world).len(), 1, "{action:?}");
            driver.clear_faults();
        }
        driver.set_health("v0", []);
        world.until("its end is told", |world| events(world).len() == 2).await;
        world.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_the_driver_does_not_implement_is_asked_for_once_and_each_volume_from_then_on() {
    let world = scene(Profile::default(), json!({}), 2).await;
    let driver = &world.testbed.driver;
    driver.set_health("v0", [SLOW]);
    driver.inject(Fault::on(LIST, Action::fail(Code::Unimplemented, "not here")));
    world.lead();
    world.until("an Event tells it", |world| events(world) == ["VolumeConditionAbnormal c0"]).await;
    tokio::time::sleep(3 * ROUND).await;
    assert_eq!((calls(&world, LIST), status(&world, "c0")), (1, vec![]));
    world.testbed.tear_down().await;
}

/// Serves the reconciler beside the health monitor until the token is cancelled.
fn reconcile(world: &Served, section: &Value) -> (CancellationToken, Tasks) {
    let registration = reconciler::REGISTRATION;
    let registration = registration.cluster().unwrap();
    let role = (registration.load)(section, &mut Wiring::new(&Caches::new())).unwrap();
    let (context, stop, (tasks, _)) =
        (world.context.of_role(registration), CancellationToken::new(), Tasks::new("beside"));
    let term = Term::permanent(&stop, context.clock);
    tasks.spawn("reconciler", async move { role.serve(&context, term).await.unwrap() });
    (stop, tasks)
}

#[tokio::test(start_paused = true)]
async fn h21_two_roles_make_one_pass_in_an_interval_and_either_goes_on_without_the_other() {
    let world = scene(lists(), json!({}), 1).await;
    let driver = &world.testbed.driver;
    world.lead();
    let (stop, _tasks) = reconcile(&world, &json!({ "interval": "10s" }));
    tokio::time::sleep(SECOND).await;
    let begun = calls(&world, LIST);
    tokio::time::sleep(100 * SECOND).await;
    assert!((9..=10).contains(&(calls(&world, LIST) - begun)), "{} passes", calls(&world, LIST) - begun);
    let latest = || world.context.driver.listings.latest().unwrap();
    assert_eq!(latest().volumes["v0"], PublishedOn::Nodes([].into()));
    // The term of one of them ends within a pass: whoever made it, the other has its own soon.
    driver.set_health("v0", [SLOW]);
    driver.inject(Fault::on(LIST, Action::Hold).once());
    let held = calls(&world, LIST);
    world.until("a pass has begun", |world| calls(world, LIST) > held).await;
    stop.cancel();
    world.until("an Event tells it", |world| events(world) == ["VolumeConditionAbnormal c0"]).await;
    // And the reverse.
    let (_stop, _tasks) = reconcile(&world, &json!({ "interval": "10s" }));
    world.kill();
    let before = latest();
    world.until("it lists alone", |_| latest().started > before.started + 2 * ROUND).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_walk_over_hundreds_of_volumes_leaves_others_their_turn() {
    use crate::sandbox::testbed::harness::RoleHarness;

    let harness = RoleHarness::with(lists()).await;
    let (volumes, claims) = (harness.caches.want(), harness.caches.want());
    for number in 0..300 {
        let name = format!("v{number}");
        let object = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": harness.context.driver.name, "volumeHandle": name } } });
        harness.testbed.api.create_value(object).unwrap();
    }
    harness.watch();
    volumes.synced().await;
    claims.synced().await;
    let (role, volumes, claims) = (&harness.context, Store::of(&volumes), Store::of(&claims));
    let term = Term::permanent(&CancellationToken::new(), role.clock);
    let scope = TermScope::with_timeout(role, &term, Some(SECOND));
    let cx = Context::new(scope, HealthMonitorSection::default(), volumes, claims);
    let mut walk = Box::pin(cx.handles());
    assert!(walk.as_mut().now_or_never().is_none(), "others have their turn");
    assert_eq!(walk.await.len(), 0, "none is bound");
    harness.testbed.tear_down().await;
}
