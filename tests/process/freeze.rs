//! A leader that is frozen until after the end of its Lease, and then continues.

use std::time::Duration;

use csi_control_plane::sandbox::driver::Outcome;

use super::program::{eventually, role};
use super::theatre::{LEASE, Theatre};

/// How often a leader renews its Lease, as configured in the theatre.
const RETRY_PERIOD: Duration = Duration::from_millis(500);

#[tokio::test]
async fn r52_a_leader_frozen_past_its_lease_writes_nothing_after_waking_and_rejoins_as_a_standby() {
    let (theatre, frozen) = Theatre::serving("daemon-frozen").await;
    let mut awake = theatre.daemon("daemon-awake");
    awake.is("standby").await;
    theatre.holds("in-flight").await;

    // The answer to the publish arrives while it sleeps: on waking it lies there, and would be recorded by a naive leader.
    frozen.signal("STOP").await;
    eventually("the kernel says that it is stopped", async || frozen.is_stopped().then_some(())).await;
    theatre.driver().release();
    let taken = theatre.attached("in-flight").await;
    assert_eq!(taken.user, "daemon-awake");
    assert_eq!(theatre.publishes("in-flight")[0].outcome, Outcome::Ok, "answered into its sleep");
    theatre.detach("in-flight");
    theatre.gone("in-flight").await;
    let asked_before = asked(&theatre, "daemon-frozen");
    frozen.signal("CONT").await;

    let leader = role(&awake.is("serving").await, "attacher")["leader"].clone();
    frozen
        .shows("the old leader follows", |status| {
            role(status, "attacher")["state"] == "standby" && role(status, "attacher")["leader"] == leader
        })
        .await;
    assert_eq!(asked(&theatre, "daemon-frozen"), asked_before, "it asked for no write after waking");
    theatre.commits.assert_one_leader(LEASE);

    // A full member again: it leads when the other goes.
    awake.signal("TERM").await;
    assert_eq!(awake.exit().await, Some(0), "{}", awake.stderr());
    theatre.attach("later");
    assert_eq!(theatre.attached("later").await.user, "daemon-frozen");
    theatre.commits.assert_one_leader(LEASE);
}

/// Requests to change something that is not a Lease, whether they succeeded or not.
fn asked(theatre: &Theatre, user: &str) -> usize {
    let audit = theatre.testbed.api.audit();
    let is_write = |verb: &str| !matches!(verb, "get" | "list" | "watch");
    audit.matching(|entry| entry.user == user && is_write(entry.verb) && entry.resource != "leases").len()
}

#[tokio::test]
async fn a_leader_frozen_for_less_than_its_lease_goes_on_as_if_nothing_had_happened() {
    // Long enough that no busy machine makes the nap outlast it.
    const LONG: Duration = Duration::from_secs(60);
    let theatre = Theatre::open().await;
    let daemon = theatre.daemon_with("daemon-napping", |config| {
        config["leaderElection"]["leaseDuration"] = "60s".into();
        config["leaderElection"]["renewDeadline"] = "50s".into();
    });
    daemon.is("serving").await;
    let term = role(&daemon.status().await, "attacher")["term"].clone();
    daemon.signal("STOP").await;
    theatre.attach("meanwhile");
    let renewed_at = || {
        let last = theatre.commits.all().into_iter().rfind(|commit| commit.plural == "leases");
        last.unwrap().at
    };
    let is_missed = || theatre.driver().age().saturating_sub(renewed_at()) > 2 * RETRY_PERIOD;
    eventually("a renewal that is missed", async || is_missed().then_some(())).await;
    daemon.signal("CONT").await;
    assert_eq!(theatre.attached("meanwhile").await.user, "daemon-napping");
    assert_eq!(role(&daemon.status().await, "attacher")["term"], term);
    theatre.commits.assert_one_leader(LONG);
}
