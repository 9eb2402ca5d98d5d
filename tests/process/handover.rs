//! A change of the leader: in order, at once, and never two leaders.

use csi_control_plane::sandbox::driver::Outcome;

use super::commits::Commit;
use super::theatre::{AT_ONCE, LEASE, Theatre};

#[tokio::test]
async fn a_terminated_leader_ends_what_is_in_flight_then_releases_and_the_standby_attaches_at_once() {
    let (theatre, mut old) = Theatre::serving("daemon-old").await;
    let mut new = theatre.daemon("daemon-new");
    new.is("standby").await;
    theatre.holds("in-flight").await;

    old.signal("TERM").await;
    old.logged("stopping: waiting for work in flight, then releasing the leases").await;
    theatre.attach("next");
    theatre.driver().release();
    let next = theatre.attached("next").await;
    assert_eq!(old.exit().await, Some(0), "{}", old.stderr());

    let release = theatre.commits.first(Commit::is_release).expect("the lease was released");
    assert_eq!(release.user, "daemon-old");
    let recorded = theatre.attached("in-flight").await;
    assert_eq!(recorded.user, "daemon-old", "whoever began it records it");
    assert!(recorded.at <= release.at, "recorded at {:?}, released at {:?}", recorded.at, release.at);
    let calls = theatre.publishes("in-flight");
    assert_eq!(calls.iter().map(|call| &call.outcome).collect::<Vec<_>>(), [&Outcome::Ok]);
    assert!(calls[0].ended.unwrap() <= release.at);
    assert_eq!(next.user, "daemon-new", "nothing new is begun after SIGTERM");
    assert!(theatre.publishes("next")[0].started >= release.at);
    let took = next.at.checked_sub(release.at).expect("after the release");
    println!("hand-over: attached {took:?} after the release");
    assert!(took < AT_ONCE, "attached {took:?} after the release");
    theatre.commits.assert_one_leader(LEASE);
    assert_eq!(theatre.driver().violations(), []);
    assert!(new.is_alive());
}

#[tokio::test]
async fn a_killed_leader_is_succeeded_when_its_lease_has_expired_and_not_before() {
    let (theatre, mut old) = Theatre::serving("daemon-old").await;
    // The successor runs in this process: the same code, and one of each kind.
    let config = theatre.config("daemon-new").to_string();
    let new = theatre.testbed.start("daemon-new", &config).await.unwrap();
    theatre.attach("before");
    assert_eq!(theatre.attached("before").await.user, "daemon-old");

    old.signal("KILL").await;
    assert_eq!(old.exit().await, None);
    let killed = theatre.driver().age();
    theatre.attach("after");
    let after = theatre.attached("after").await;

    assert_eq!(after.user, "daemon-new");
    let took = after.at.saturating_sub(killed);
    println!("take-over: attached {took:?} after the kill");
    assert!(took < LEASE + AT_ONCE, "attached {took:?} after the kill");
    let is_take_over = |commit: &Commit| commit.plural == "leases" && commit.user == "daemon-new";
    let take_over = theatre.commits.first(is_take_over).unwrap();
    let mut leases = theatre.commits.all().into_iter().filter(|commit| commit.plural == "leases");
    let renewed = leases.rfind(|commit| commit.user == "daemon-old").unwrap();
    assert!(take_over.at >= renewed.at + LEASE, "renewed at {:?}, taken at {:?}", renewed.at, take_over.at);
    theatre.commits.assert_one_leader(LEASE);
    new.stop().await.unwrap();
}

#[tokio::test]
async fn a_standby_leaves_at_once_and_touches_nothing() {
    let (theatre, _leader) = Theatre::serving("daemon-leader").await;
    let mut standby = theatre.daemon("daemon-standby");
    standby.is("standby").await;
    assert_eq!(standby.get("/readyz").await.code, 200, "a standby is ready");

    let asked = theatre.driver().age();
    standby.signal("TERM").await;
    assert_eq!(standby.exit().await, Some(0), "{}", standby.stderr());

    assert!(theatre.driver().age().saturating_sub(asked) < AT_ONCE);
    assert!(theatre.commits.all().iter().all(|commit| commit.user != "daemon-standby"));
    theatre.attach("still-served");
    assert_eq!(theatre.attached("still-served").await.user, "daemon-leader");
}

#[tokio::test]
async fn two_starters_make_one_leader_and_a_standby_that_knows_it() {
    let theatre = Theatre::open().await;
    let daemons = [theatre.daemon("daemon-a"), theatre.daemon("daemon-b")];
    theatre.attach("volume");
    let leader = theatre.attached("volume").await.user;
    let (leading, following) = if leader == "daemon-a" { (0, 1) } else { (1, 0) };
    let first = daemons[leading].is("serving").await;
    let second = daemons[following].is("standby").await;
    let holder = |status: &serde_json::Value| super::program::role(status, "attacher")["leader"].clone();
    assert_eq!(holder(&first), holder(&second));
    theatre.commits.assert_one_leader(LEASE);
}
