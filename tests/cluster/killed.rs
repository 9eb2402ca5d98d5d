//! Claims by the hundred, and five leaders that die by SIGKILL while they provision them: afterwards each claim is bound, and
//! the driver has exactly the volumes of the API.
//!
//! `KILLED_CLAIMS=5000 just cluster killed` plays it with more claims than the gate does.

use std::time::Duration;

use csi_control_plane::sandbox::driver::Action;
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::cluster::replicas::replica;
use crate::objects::merge;
use crate::program::Program;
use crate::supplier::{create, supplier};
use crate::supply::phase;
use crate::world::wait::asked;
use crate::world::{World, settled};

/// The default number of claims.
const CLAIMS: usize = 400;
/// How many leaders die.
const DEATHS: usize = 5;
/// How many claims are created at a time.
const AT_ONCE: usize = 64;
/// How long the claims may take in all: kube-controller-manager binds some dozen claims in a second.
pub(super) const BOUND: Duration = Duration::from_secs(1200);
/// A Lease that is free soon after its holder's death.
const LEASE: &str = "3s";

/// Starts a replica that provisions at a pace that leaves time for the deaths.
async fn start(world: &World, number: usize) -> Program {
    let mut config = supplier(json!({ "workers": 20 }));
    let election = json!({ "leaseDuration": LEASE, "renewDeadline": "2s", "retryPeriod": "500ms" });
    merge(&mut config, json!({ "leaderElection": election, "roles": { "attacher": null, "reconciler": null } }));
    replica(world, &format!("replica-{number}"), &config).await
}

/// Whether it leads.
pub(super) async fn leads(replica: &Program) -> bool {
    let status = replica.status().await;
    let mut roles = status["roles"].as_array().into_iter().flatten();
    roles.any(|role| role["name"] == "provisioner" && role["state"] == "serving")
}

/// Takes the one that leads out of the replicas, as soon as one does.
async fn leader_of(replicas: &mut Vec<Program>) -> Program {
    let at = asked("a leader", async || {
        for (at, replica) in replicas.iter().enumerate() {
            if leads(replica).await {
                return Some(at);
            }
        }
        None
    });
    let at = at.await;
    replicas.swap_remove(at)
}

/// Creates the claims, some at a time, and returns their names.
pub(super) async fn ask(world: &World, class: &str, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("claim-{number}")).collect();
    let created = names.iter().map(|name| world.claim(name, class, json!({})));
    futures::stream::iter(created).buffer_unordered(AT_ONCE).collect().await
}

/// The number of claims.
#[expect(clippy::disallowed_methods, reason = "whoever runs the test may ask for more")]
fn wanted_claims() -> usize {
    std::env::var("KILLED_CLAIMS").map_or(CLAIMS, |text| text.parse().unwrap())
}

/// How many volumes the driver has.
fn volumes(world: &World) -> usize {
    world.driver().state().volumes().len()
}

/// How many claims of this world are bound.
pub(super) async fn bound(world: &World) -> usize {
    world.claims().await.iter().filter(|claim| phase(claim) == "Bound").count()
}

/// Kills each leader as soon as the driver has its share of the volumes, and returns how many requests each left unanswered in
/// the journal.
async fn kill_the_leaders(world: &World, replicas: &mut Vec<Program>, count: usize) -> Vec<usize> {
    let mut left = Vec::new();
    for death in 1..=DEATHS {
        let mut leader = leader_of(replicas).await;
        let share = count * death / (DEATHS + 1);
        settled(&format!("{share} volumes at the driver"), BOUND, async || match volumes(world) {
            many if many >= share => Ok(()),
            few => Err(format!("there are {few}")),
        })
        .await;
        leader.signal("KILL").await;
        assert_eq!(leader.exit().await, None);
        left.push(world.journal().await.len());
    }
    left
}

#[tokio::test]
async fn every_claim_is_bound_and_no_volume_leaks_although_five_leaders_are_killed_in_the_burst() {
    let count = wanted_claims();
    let world = World::supplied_alone().await;
    let class = world.class("class", json!({})).await;
    // A call takes some time, and is served although its caller is dead.
    world.driver().inject(create(Action::Late(Duration::from_millis(200))));
    let mut replicas = Vec::new();
    for number in 0..=DEATHS {
        replicas.push(start(&world, number).await);
    }
    let (claims, left) = tokio::join!(ask(&world, &class, count), kill_the_leaders(&world, &mut replicas, count));
    settled("every claim is bound", BOUND, async || match bound(&world).await {
        all if all == claims.len() => Ok(()),
        some => Err(format!("{some} of {count} are bound; the journal holds {}", world.journal().await.len())),
    })
    .await;
    assert!(left.iter().sum::<usize>() > 0, "no leader died in the middle of a request: {left:?}");
    world.assert_nothing_leaked().await;
    world.journal_is_empty().await;
    assert_eq!(volumes(&world), count);
    let last = leader_of(&mut replicas).await;
    let errors: Vec<Value> = last.log().into_iter().filter(|line| line["level"] == "ERROR").collect();
    assert!(errors.is_empty(), "{errors:#?}");
    println!("{count} claims are bound; the leaders left {left:?} requests without an answer in the journal");
}
