//! Claims in numbers: some come while others go. After each failure, [`came_and_went`]: nothing is lost, nothing is there twice,
//! and nothing is left behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use csi_control_plane::proto::CreateVolumeRequest;
use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method, Outcome};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use serde_json::json;

use crate::world::{World, brief};

/// How many come, and how many go.
const EACH: usize = 6;

/// Claims of one class.
pub(crate) struct Burst {
    claims: Vec<String>,
    /// The names of their volumes, at the driver and in the API.
    volumes: Vec<String>,
}

impl Burst {
    /// Asks for this many volumes.
    pub(crate) async fn ask(world: &World, class: &str, name: &str, count: usize) -> Self {
        let mut burst = Self { claims: Vec::new(), volumes: Vec::new() };
        for number in 0..count {
            let claim = world.claim(&format!("{name}-{number}"), class, json!({})).await;
            burst.volumes.push(world.volume_name(&claim).await);
            burst.claims.push(claim);
        }
        burst
    }

    /// The same, and waits for them.
    pub(crate) async fn there(world: &World, class: &str, name: &str, count: usize) -> Self {
        let burst = Self::ask(world, class, name, count).await;
        burst.provisioned(world).await;
        burst
    }

    /// Waits until each claim has its own volume, and nothing of ours on it.
    pub(crate) async fn provisioned(&self, world: &World) {
        for (claim, volume) in self.claims.iter().zip(&self.volumes) {
            assert_eq!(world.supplied_with(claim).await.name_any(), *volume);
        }
    }

    /// Deletes the claims.
    pub(crate) async fn delete(&self, world: &World) {
        for claim in &self.claims {
            world.delete_claim(claim).await;
        }
    }

    /// Waits until claims and volumes are gone.
    pub(crate) async fn gone(&self, world: &World) {
        for (claim, volume) in self.claims.iter().zip(&self.volumes) {
            world.claim_gone(claim).await;
            world.gone::<PersistentVolume>(volume).await;
        }
    }

    /// How often the driver was asked for these volumes, each.
    pub(crate) fn asked(&self, world: &World) -> Vec<usize> {
        self.volumes.iter().map(|volume| world.driver().creates_of(volume).len()).collect()
    }
}

/// Some volumes are there and go while others come: returns the claims that come and those that go. The driver was asked for
/// all of them, and answers when it is released: what comes before that comes in the middle of the work.
pub(crate) async fn coming_and_going(world: &World, class: &str) -> (Burst, Burst) {
    let going = Burst::there(world, class, "going", EACH).await;
    for method in [Method::CreateVolume, Method::DeleteVolume] {
        world.driver().inject(Fault::on(method, Action::Hold).times(u32::try_from(EACH).unwrap()));
    }
    let coming = Burst::ask(world, class, "coming", EACH).await;
    going.delete(world).await;
    world.driver_until("work in flight", |_| world.supplies_in_flight() == 2 * EACH).await;
    (coming, going)
}

/// Everything comes and goes, each volume is asked for at most this often in each direction since these calls, and in the end
/// the driver, the API and the claims agree.
pub(crate) async fn came_and_went(world: &World, (coming, going): &(Burst, Burst), times: usize, since: &[Arc<Call>]) {
    coming.provisioned(world).await;
    going.gone(world).await;
    world.assert_each_claim_has_one_volume().await;
    world.assert_supplied_at_most(times, since);
}

/// The object that a call creates or deletes.
fn subject(call: &Call) -> &str {
    call.name.as_deref().or(call.volume.as_deref()).unwrap_or_default()
}

impl World {
    /// The calls that were to make a volume or to delete one, so far.
    pub(crate) fn supplies(&self) -> Vec<Arc<Call>> {
        let mut calls = self.driver().calls();
        calls.retain(|call| matches!(call.method, Method::CreateVolume | Method::DeleteVolume));
        calls
    }

    /// How many of them the driver has yet to answer.
    pub(crate) fn supplies_in_flight(&self) -> usize {
        self.supplies().iter().filter(|call| call.outcome == Outcome::Running).count()
    }

    /// Asserts how often at most the driver was asked for each volume, and to delete each, since these calls; and that whoever
    /// asked again for a volume has asked for the same.
    fn assert_supplied_at_most(&self, times: usize, since: &[Arc<Call>]) {
        let calls = self.supplies();
        let mut counts: BTreeMap<(Method, &str), usize> = BTreeMap::new();
        for call in &calls[since.len()..] {
            *counts.entry((call.method, subject(call))).or_default() += 1;
        }
        counts.retain(|_, count| *count > times);
        assert!(counts.is_empty(), "more than {times} times: {counts:#?}; calls: {:#?}", brief(&calls));
        let mut wanted: BTreeMap<&str, &CreateVolumeRequest> = BTreeMap::new();
        for call in &calls {
            if let Some(request) = call.create.as_deref() {
                assert_eq!(*wanted.entry(subject(call)).or_insert(request), request, "asked again for something else");
            }
        }
    }

    /// Asserts that every claim has exactly one volume and nothing of ours on it, that no volume is without a claim, that the
    /// driver comes to have just these volumes, and that the journal comes to hold no entry.
    async fn assert_each_claim_has_one_volume(&self) {
        self.assert_nothing_leaked().await;
        let claims = self.claims().await;
        let mut wanted: Vec<Option<String>> = claims.iter().map(kube::ResourceExt::uid).collect();
        let owner = |volume: PersistentVolume| volume.spec?.claim_ref?.uid;
        let mut owners: Vec<Option<String>> = self.volumes().await.into_iter().map(owner).collect();
        wanted.sort();
        owners.sort();
        assert_eq!(owners, wanted, "the claims of the volumes, and the claims");
        self.journal_is_empty().await;
    }
}
