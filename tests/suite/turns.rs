//! The controllers take turns while specs run: the daemon is killed twice, then the Go sidecars stand in its place, then the daemon again.

use std::time::Duration;

use super::setting::{ACCOUNT, Driver};
use crate::node::lab::{CHART, Lab, NAMESPACE, RELEASE};
use crate::node::machine::signal;

/// How long each change is left to work.
const TURN: Duration = Duration::from_secs(25);

/// What happens next.
#[derive(Debug, Clone, Copy)]
enum Turn {
    LeaderKilled,
    Sidecars,
    Daemon,
}

const TURNS: [Turn; 4] = [Turn::LeaderKilled, Turn::LeaderKilled, Turn::Sidecars, Turn::Daemon];

/// Waits for specs, and lets the controllers take turns meanwhile. At the end the daemon works.
pub(super) async fn during<T>(lab: &Lab, driver: &Driver, specs: impl Future<Output = T>) -> T {
    let mut count = 0;
    let turns = async {
        for turn in TURNS.iter().cycle() {
            tokio::time::sleep(TURN).await;
            take(lab, driver, *turn).await;
            count += 1;
        }
    };
    let done = tokio::select! {
        done = specs => done,
        () = turns => unreachable!("they have no end"),
    };
    take(lab, driver, Turn::Daemon).await;
    println!("{count} turns: {TURNS:?}, and again");
    assert!(
        count >= TURNS.len(),
        "the specs were over after {count} turns of {TURN:?}, before each had come: choose more of them"
    );
    done
}

async fn take(lab: &Lab, driver: &Driver, turn: Turn) {
    match turn {
        Turn::LeaderKilled => signal("KILL", lab.leader("attacher").await.1),
        Turn::Sidecars | Turn::Daemon => {
            let values = lab.cluster.folder.join("turn.json");
            std::fs::write(&values, driver.values(matches!(turn, Turn::Sidecars)).to_string()).unwrap();
            let upgraded = lab.helm(&["upgrade", RELEASE, CHART, "--values", values.to_str().unwrap()]);
            upgraded.unwrap_or_else(|told| panic!("{told}"));
            let deployment = format!("deployment/{ACCOUNT}");
            let rollout = ["rollout", "status", "--timeout=2m", "--namespace", NAMESPACE, &deployment];
            lab.kubectl(&rollout).unwrap_or_else(|told| panic!("{told}"));
        }
    }
    lab.pods_are_ready().await;
}
