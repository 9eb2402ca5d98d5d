//! Orphans among much else: whatever happens, in ten thousand volumes, and in a few where claims, requests and leaders come and go.

use std::collections::BTreeSet;

use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::driver::Method;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;
use tokio::time::sleep;

use super::api;
use super::orphans::{MINUTE, looking, orphan, orphans, patient};
use crate::ground::Daemon;
use crate::objects;
use crate::supplier::{short_times, unanswered};
use crate::world::World;

/// How often something happens in a play.
const STEPS: usize = 12;

/// The driver tells no names, so that a volume is known by its handle alone, or by doubt.
fn forget_names(world: &World) {
    world.driver().change_state(|state| {
        let ids: Vec<String> = state.volumes().keys().cloned().collect();
        for id in ids {
            state.seed(&id).context.clear();
        }
    });
}

/// A daemon whose Leases are nobody's: to renew them would take most of the time of a play.
async fn start(world: &World) -> Daemon {
    let mut provisioner = short_times();
    objects::merge(&mut provisioner, patient());
    let mut roles = looking();
    roles["provisioner"] = provisioner;
    world.daemon(json!({ "roles": roles, "leaderElection": { "enabled": false } })).await
}

async fn play(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let world = World::supplied(|_| {}).await;
    let class = world.class("class", json!({})).await;
    let mut daemon = start(&world).await;
    let (mut claims, mut behind) = (Vec::new(), BTreeSet::new());
    for step in 0..STEPS {
        match rng.random_range(0..9) {
            0..=2 => claims.push(world.claim(&format!("c{step}"), &class, json!({})).await),
            3 => world.driver().inject(unanswered()),
            4 | 5 => world.driver().clear_faults(),
            6 if !claims.is_empty() => {
                let claim = claims.swap_remove(rng.random_range(0..claims.len()));
                world.delete_claim(&claim).await;
            }
            7 => {
                daemon.kill();
                daemon = start(&world).await;
            }
            _ => {
                let handle = format!("behind-{step}");
                world.driver().seed([&*handle]);
                behind.insert(orphan("volume", &handle));
            }
        }
        // An answer that is on its way may bring a name yet.
        sleep(MINUTE).await;
        forget_names(&world);
        sleep(rng.random_range(1..25_u32) * MINUTE).await;
        let shown = orphans(&world, &daemon).await;
        // The journal, a claim or a PersistentVolume knows each other volume.
        assert!(shown.iter().all(|it| behind.contains(it)), "seed {seed}, step {step}: {shown:?}");
    }
    world.driver().clear_faults();
    sleep(90 * MINUTE).await;
    assert_eq!(orphans(&world, &daemon).await, behind.into_iter().collect::<Vec<_>>(), "seed {seed}");
    assert!(
        world
            .driver()
            .calls_of(Method::DeleteVolume)
            .iter()
            .all(|call| { call.volume.as_ref().is_none_or(|volume| !volume.starts_with("behind-")) })
    );
    daemon.kill();
}

#[tokio::test]
async fn whatever_happens_what_is_known_is_never_shown_and_in_the_end_all_else_is() {
    play(0).await;
}

#[tokio::test]
async fn ten_thousand_volumes_cost_their_listing_and_nothing_more_for_each() {
    const COUNT: usize = 10_000;
    const BEHIND: usize = 10;
    const PAGE: usize = 500;
    const PASSES: usize = 2;
    let world = World::new().await;
    let handles: Vec<String> = (0..COUNT).map(|number| format!("volume-{number:05}")).collect();
    world.driver().seed(handles.iter().map(String::as_str));
    for handle in &handles[BEHIND..] {
        api(&world).create_value(objects::volume(handle, world.driver_name(), handle)).unwrap();
    }
    let section = json!({ "interval": "30m", "orphans": true, "pageSize": PAGE });
    let daemon = world.daemon(json!({ "roles": { "reconciler": section } })).await;
    sleep(29 * MINUTE).await;
    api(&world).audit().clear();
    let calls = |method| world.driver().calls_of(method).len();
    let before = [Method::ListVolumes, Method::ListSnapshots].map(calls);
    assert_eq!(before, [COUNT / PAGE, 1], "the first pass");
    sleep(30 * MINUTE * u32::try_from(PASSES).unwrap()).await;
    let after = [Method::ListVolumes, Method::ListSnapshots].map(calls);
    assert_eq!(after, [(PASSES + 1) * COUNT / PAGE, PASSES + 1]);
    let user = super::user(&world);
    let of_the_journal = |it: &Entry| it.user == user && it.resource == "configmaps";
    // Its sixteen names, and those of the nodes.
    assert_eq!(api(&world).audit().matching(of_the_journal).len(), PASSES * 17);
    let expected: Vec<_> = handles[..BEHIND].iter().map(|handle| orphan("volume", handle)).collect();
    assert_eq!(orphans(&world, &daemon).await, expected);
}
