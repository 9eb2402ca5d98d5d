//! Two versions of the daemon replace each other under load, an upgrade and its way back: the leader is told to stop, or killed, and the
//! next one is of the other version. The older one is the last before a change of Lease, journal or objects: the file `older` names it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use csi_control_plane::sandbox::driver::Action;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::cluster::killed::{BOUND, ask, bound, leads};
use crate::cluster::replicas::replica_of;
use crate::load::Load;
use crate::objects::merge;
use crate::program::{Program, THIS};
use crate::programs::find;
use crate::supplier::{create, supplier};
use crate::world::wait::asked;
use crate::world::{World, settled};

/// How many claims are provisioned meanwhile.
const CLAIMS: usize = 200;
/// How many volumes are attached before each end, by the next leader at the latest.
const ATTACHED: usize = 4;

/// A version of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Older,
    Newer,
}
use Version::{Newer, Older};

impl Version {
    fn program(self) -> PathBuf {
        match self {
            Older => find("csi-control-plane-older"),
            Newer => Path::new(THIS).to_owned(),
        }
    }
}

/// Each leader in its turn, and the signal that ends it: each change of versions in both ways.
const LEADERS: [(Version, &str); 5] =
    [(Older, "TERM"), (Newer, "KILL"), (Older, "KILL"), (Newer, "TERM"), (Older, "TERM")];

/// A daemon that provisions and attaches, with its rights as its own `check` prints them.
async fn start(world: &World, version: Version, number: usize) -> Program {
    let mut config = supplier(json!({ "workers": 10 }));
    // A Lease that is free soon after its holder's death.
    let election = json!({ "leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms" });
    merge(&mut config, json!({ "leaderElection": election, "roles": { "attacher": {} } }));
    replica_of(&version.program(), world, &format!("replica-{number}"), &config).await
}

/// The volumes that the driver has made for claims.
fn made(world: &World, seeded: usize) -> usize {
    world.driver().state().volumes().len() - seeded
}

/// Ends each leader after its share of the claims, and returns the last one and the loads that were attached.
async fn replace(world: &World, node: &str) -> (Program, Vec<Load>) {
    let mut leader = start(world, LEADERS[0].0, 0).await;
    let mut loads: Vec<Load> = Vec::new();
    for (turn, (version, signal)) in LEADERS.into_iter().enumerate() {
        // Before there is another one that could take the Leases.
        asked("a leader", async || leads(&leader).await.then_some(())).await;
        let next = if version == Older { Newer } else { Older };
        let successor = start(world, next, turn + 1).await;
        let share = CLAIMS * (turn + 1) / (LEADERS.len() + 1);
        settled(&format!("{share} volumes at the driver"), BOUND, async || match made(world, ATTACHED * loads.len()) {
            many if many >= share => Ok(()),
            few => Err(format!("there are {few}, under {version:?}")),
        })
        .await;
        if let Some(last) = loads.last() {
            last.detach(world).await;
        }
        loads.push(Load::put(world, node, &format!("attached-{turn}"), ATTACHED).await);
        leader.signal(signal).await;
        assert_eq!(leader.exit().await, (signal == "TERM").then_some(0), "{}", leader.stderr());
        no_errors(&leader);
        leader = successor;
    }
    (leader, loads)
}

fn no_errors(program: &Program) {
    let errors: Vec<Value> = program.log().into_iter().filter(|line| line["level"] == "ERROR").collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[tokio::test]
async fn two_versions_replace_each_other_in_the_middle_of_claims_attachments_and_deletions() {
    let world = World::supplied_alone().await;
    let (class, node) = (world.class("class", json!({})).await, world.node("node").await);
    // A call takes some time, and is served although its caller is dead.
    world.driver().inject(create(Action::Late(Duration::from_millis(200))));
    let (claims, (leader, loads)) = tokio::join!(ask(&world, &class, CLAIMS), replace(&world, &node));
    settled("every claim is bound", BOUND, async || match bound(&world).await {
        all if all == CLAIMS => Ok(()),
        some => Err(format!("{some} of {CLAIMS} are bound; the journal holds {}", world.journal().await.len())),
    })
    .await;
    let (last, before) = loads.split_last().unwrap();
    last.attached(&world).await;
    for load in before {
        load.gone(&world).await;
    }
    world.assert_nothing_leaked().await;
    world.journal_is_empty().await;
    assert_eq!(made(&world, ATTACHED * loads.len()), CLAIMS);

    // The way back once more, while all of it goes.
    let older = start(&world, Older, LEADERS.len() + 1).await;
    last.detach(&world).await;
    join_all(claims.iter().map(|claim| world.delete_claim(claim))).await;
    let mut newer = leader;
    newer.signal("TERM").await;
    assert_eq!(newer.exit().await, Some(0), "{}", newer.stderr());
    no_errors(&newer);
    last.gone(&world).await;
    settled("every volume of a claim is deleted", BOUND, async || match made(&world, ATTACHED * loads.len()) {
        0 => Ok(()),
        some => Err(format!("{some} are left")),
    })
    .await;
    world.assert_nothing_leaked().await;
    no_errors(&older);
}
