//! Volumes that are not healthy, on a server that stores the health of claims: Kubernetes 1.37 with the gate `CSIVolumeHealth`.

use csi_control_plane::roles::health_monitor::names;
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method, Profile};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, VolumeHealthStatus};
use kube::ResourceExt as _;
use serde_json::json;
use tonic::Code;

use crate::monitoring::{DEGRADED, TORN, monitor};
use crate::supplier::figure;
use crate::world::World;

const LIST: Method = Method::ControllerListVolumeHealth;
const GET: Method = Method::ControllerGetVolumeHealth;

/// A driver of CSI 1.13.
fn listing(profile: &mut Profile) {
    *profile = profile.clone().with_volume_health();
}

/// What the status of a claim says of its volume: status and reason of each condition.
fn health(claim: &PersistentVolumeClaim) -> Vec<(String, String)> {
    let conditions = stored(claim).and_then(|it| it.health_conditions.as_ref()).into_iter().flatten();
    conditions.map(|it| (it.status.clone(), it.reason.clone())).collect()
}

fn stored(claim: &PersistentVolumeClaim) -> Option<&VolumeHealthStatus> {
    claim.status.as_ref()?.health_status.as_ref()
}

impl World {
    /// Waits until the status of a claim says this of its volume, and returns the claim.
    async fn is_ill(&self, claim: &str, wrong: &[(&str, &str)]) -> PersistentVolumeClaim {
        let is_so = |it: &PersistentVolumeClaim| {
            health(it).iter().map(|(status, reason)| (status.as_str(), reason.as_str())).eq(wrong.iter().copied())
        };
        self.claim_until(claim, &format!("{wrong:?}"), is_so).await
    }

    /// Waits until this many more lists of the volumes that are not healthy have ended.
    async fn listed_again(&self, times: usize) {
        let ended = || self.driver().calls_of(LIST).iter().filter(|call| call.ended.is_some()).count();
        let target = ended() + times;
        self.driver_until("listed again", |_| ended() >= target).await;
    }
}

#[tokio::test]
async fn h16_a_server_that_keeps_the_field_has_what_is_wrong_in_the_status_and_no_events() {
    let world = World::keeping_health(listing).await;
    let ((claim, volume), (other, _)) = (world.monitored("claim").await, world.monitored("other").await);
    world.ails(&volume, &[DEGRADED, TORN]);
    let daemon = world.daemon(monitor(json!({}))).await;
    let ill = world.is_ill(&claim, &[("DataLoss", "Torn"), ("Degraded", "PathLost")]).await;
    let health = stored(&ill).unwrap();
    assert_eq!(health.health_conditions.as_ref().unwrap()[0].message.as_deref(), Some("block 7"));
    let since = health.last_transition_time.clone().unwrap();
    // Other words for the same.
    world.ails(&volume, &[DEGRADED, (3, "Torn", "blocks 7 and 8")]);
    let told = |it: &PersistentVolumeClaim| {
        let conditions = stored(it).and_then(|it| it.health_conditions.as_ref());
        conditions.is_some_and(|them| them[0].message.as_deref() == Some("blocks 7 and 8"))
    };
    let reworded = world.claim_until(&claim, "other words", told).await;
    assert_eq!(stored(&reworded).unwrap().last_transition_time, Some(since));
    world.listed_again(3).await;
    let steady = world.is_ill(&claim, &[("DataLoss", "Torn"), ("Degraded", "PathLost")]).await;
    assert_eq!(steady.resource_version(), reworded.resource_version(), "nothing changes, and nothing is written");
    let dropped = figure(&world.metrics(&daemon).await, "csi_volume_health_status_writes_dropped_total", &[]);
    assert!(dropped.is_none_or(|writes| writes == 0.0), "{dropped:?}");
    world.ails(&volume, &[]);
    world.is_ill(&claim, &[]).await;
    daemon.stop().await.unwrap();
    for claim in [&claim, &other] {
        assert_eq!(world.told_of(claim, "any", |_| true).await, []);
    }
    assert_eq!(world.driver().violations(), []);
}

#[tokio::test]
async fn h15_what_leaves_the_list_is_cleared_by_an_answer_alone() {
    let world = World::keeping_health(listing).await;
    let (claim, volume) = world.monitored("claim").await;
    world.ails(&volume, &[DEGRADED]);
    let _daemon = world.daemon(monitor(json!({}))).await;
    let ill = world.is_ill(&claim, &[("Degraded", "PathLost")]).await;
    // The list leaves it out, and the answer says that it is as ill as before.
    let omitted = Lie::OmitVolumes([world.handle(&volume)].into());
    world.driver().inject(Fault::on(LIST, Action::Lie(omitted)));
    world.asked_again(GET, &volume, 2).await;
    // There is no answer.
    world.driver().inject(Fault::on(GET, Action::fail(Code::Unavailable, "starting")));
    world.ails(&volume, &[]);
    world.asked_again(GET, &volume, 2).await;
    let still = world.is_ill(&claim, &[("Degraded", "PathLost")]).await;
    assert_eq!(still.resource_version(), ill.resource_version());
    world.driver().clear_faults();
    world.is_ill(&claim, &[]).await;
}

#[tokio::test]
async fn h2_h25_the_next_leader_clears_what_the_last_one_wrote_and_writes_nothing_twice() {
    let world = World::keeping_health(listing).await;
    let ((claim, volume), (other, ill)) = (world.monitored("claim").await, world.monitored("other").await);
    world.ails(&volume, &[DEGRADED]);
    world.ails(&ill, &[TORN]);
    let first = world.daemon_on("first", monitor(json!({}))).await;
    world.is_ill(&claim, &[("Degraded", "PathLost")]).await;
    let before = world.is_ill(&other, &[("DataLoss", "Torn")]).await;
    first.stop().await.unwrap();
    // It is repaired while nobody looks.
    world.ails(&volume, &[]);
    let _second = world.daemon_on("second", monitor(json!({}))).await;
    let lease = names::lease(world.driver_name());
    world.lease_held_by(&lease, "the second leads", |it| it.starts_with(&world.name("second"))).await;
    world.is_ill(&claim, &[]).await;
    world.listed_again(2).await;
    let after = world.is_ill(&other, &[("DataLoss", "Torn")]).await;
    assert_eq!(after.resource_version(), before.resource_version());
}

#[tokio::test]
async fn h17_the_server_takes_what_is_too_long_too_much_and_told_twice() {
    let world = World::keeping_health(listing).await;
    let (claim, volume) = world.monitored("claim").await;
    let reasons: Vec<String> = (0..20).map(|number| format!("{number}: ä reason {}", "x".repeat(300))).collect();
    let message = "ü".repeat(2_000);
    let wrong = reasons.iter().chain(&reasons[..3]).map(|reason| (1, reason.as_str(), message.as_str()));
    assert!(world.driver().set_health(&world.handle(&volume), wrong));
    let _daemon = world.daemon(monitor(json!({}))).await;
    let ill = world.claim_until(&claim, "16 conditions", |it| health(it).len() == 16).await;
    assert!(health(&ill).iter().all(|(status, reason)| status == "Degraded" && reason.len() == 256));
}
