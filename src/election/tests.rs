//! Elections over HTTP, in paused time.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::process::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fake_api::{FakeApi, Faults, Site};
use super::*;
use crate::process::{Clock, Rng, Tasks};
use crate::telemetry::Meter;
use crate::testing::Warnings;

const NAME: &str = "external-attacher-leader-demo";
const LEASE: Duration = Duration::from_secs(15);
const S: Duration = Duration::from_secs(1);

/// One process that takes part.
struct Node {
    leadership: watch::Receiver<Leadership>,
    gate: Gate,
    view: ElectionView,
    meter: Meter,
    stop: CancellationToken,
    site: Site,
    frozen: Arc<AtomicBool>,
    result: watch::Receiver<Option<Result<(), String>>>,
    tasks: Option<Tasks>,
}

fn settings(identity: &str) -> LeaseSettings {
    LeaseSettings {
        namespace: "storage".into(),
        name: NAME.into(),
        identity: identity.into(),
        lease_duration: LEASE,
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(5),
        labels: BTreeMap::from([("app".to_owned(), "csi".to_owned())]),
        holder_pods: Some("storage".into()),
    }
}

fn clock(wall: &str) -> Clock {
    Clock::simulated(wall.parse().unwrap())
}

/// A holder that leads, and the API.
async fn led() -> (FakeApi, Node) {
    let api = FakeApi::start();
    let mut node = Node::join(&api, "a_1");
    node.leads().await;
    (api, node)
}

impl Node {
    fn join(api: &FakeApi, identity: &str) -> Self {
        Self::join_with(api, identity, clock("2026-01-01T00:00:00Z"), 1)
    }

    fn join_with(api: &FakeApi, identity: &str, clock: Clock, seed: u64) -> Self {
        let (site, meter, rng) = (Site::new(), Meter::new(), Rng::seeded(seed));
        let client = api.client(&site, &rng);
        let elector = Elector::new(client, settings(identity), clock, rng, meter.clone()).unwrap();
        let (stop, frozen) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let (leadership, view) = (elector.leadership(), elector.view());
        let (tasks, _ends) = Tasks::new(identity);
        let (done, result) = watch::channel(None);
        let running = freezable(elector.run(stop.clone()), Arc::clone(&frozen));
        tasks.spawn("elector", async move {
            done.send_replace(Some(running.await.map_err(|error| crate::process::error_chain(&error))));
        });
        let gate = Gate::new(leadership.clone());
        Self { leadership, gate, view, meter, stop, site, frozen, result, tasks: Some(tasks) }
    }

    fn term(&self) -> Option<Term> {
        match &*self.leadership.borrow() {
            Leadership::Leader(term) => Some(term.clone()),
            Leadership::Follower { .. } => None,
        }
    }

    fn may_write(&self) -> bool {
        self.term().is_some_and(|term| term.may_write())
    }

    /// Waits until it leads; says how long that took.
    async fn leads(&mut self) -> Duration {
        let begin = Instant::now();
        let leads =
            self.leadership.wait_for(|leadership| matches!(leadership, Leadership::Leader(term) if !term.is_over()));
        tokio::time::timeout(100 * S, leads).await.expect("never leads").unwrap();
        begin.elapsed()
    }

    async fn ended(&mut self) -> Result<(), String> {
        self.result.wait_for(Option::is_some).await.unwrap().clone().unwrap()
    }

    /// SIGKILL.
    fn crash(&mut self) {
        self.tasks = None;
        self.site.cut(true);
    }
}

/// A future that makes no progress while frozen, as a process after SIGSTOP. It looks up every 50 ms.
async fn freezable<F: Future>(future: F, frozen: Arc<AtomicBool>) -> F::Output {
    let (mut future, mut tick) = (pin!(future), tokio::time::interval(Duration::from_millis(50)));
    poll_fn(|context| {
        while tick.poll_tick(context).is_ready() {}
        if frozen.load(Ordering::SeqCst) { Poll::Pending } else { future.as_mut().poll(context) }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_creates_the_lease_and_leads() {
    let api = FakeApi::start();
    let mut a = Node::join(&api, "a_1");
    assert!(a.leads().await < S);
    let lease = api.lease(NAME).unwrap();
    assert_eq!(lease.metadata.labels.unwrap().get("app").map(String::as_str), Some("csi"));
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some("a_1"));
    let status = a.view.status();
    assert_eq!(
        (status.term, status.leader.as_deref(), status.lease.as_str()),
        (Some(1), Some("a_1"), "storage/external-attacher-leader-demo")
    );
    assert!(a.meter.render().contains("leader_election_master_status{name=\"external-attacher-leader-demo\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_holder_renews_once_a_retry_period_and_keeps_its_term() {
    let (api, a) = led().await;
    tokio::time::sleep(S).await;
    let begin = api.requests().len();
    tokio::time::sleep(60 * S).await;
    let requests = api.requests().split_off(begin);
    assert_eq!(requests, ["PUT"; 12], "nothing but the renewals, the watch is open already");
    assert!(a.may_write() && a.term().unwrap().id() == 1);
    assert_eq!(api.lease(NAME).unwrap().spec.unwrap().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn r37_a_standby_leads_within_a_second_of_a_release() {
    let api = FakeApi::start();
    let (mut a, mut b) = (Node::join(&api, "a_1"), Node::join(&api, "b_2"));
    a.leads().await;
    tokio::time::sleep(12 * S).await;
    assert!(b.term().is_none());
    assert_eq!(b.view.status().leader.as_deref(), Some("a_1"));
    a.stop.cancel();
    let took = b.leads().await;
    assert!(took < S, "{took:?}");
    assert_eq!(a.ended().await, Ok(()));
    assert!(!a.may_write());
    assert_eq!(api.lease(NAME).unwrap().spec.unwrap().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_standby_leads_within_the_lease_duration_and_a_second_of_a_crash() {
    for after in [100, 2500, 4900, 5100, 7000] {
        let api = FakeApi::start();
        let (mut a, mut b) = (Node::join(&api, "a_1"), Node::join(&api, "b_2"));
        a.leads().await;
        tokio::time::sleep(Duration::from_millis(20_000 + after)).await;
        a.crash();
        let took = b.leads().await;
        assert!(took <= LEASE + S && took > 9 * S, "{took:?} after a crash at {after} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_container_leads_at_once_and_any_other_process_waits() {
    for (successor, is_proof) in
        [("pod_u1_daemon_2", true), ("pod_u1_driver_2", false), ("pod_u2_daemon_2", false), ("pod_2", false)]
    {
        let api = FakeApi::start();
        let mut a = Node::join(&api, "pod_u1_daemon_1");
        a.leads().await;
        tokio::time::sleep(7 * S).await;
        a.crash();
        let mut b = Node::join(&api, successor);
        let took = b.leads().await;
        assert_eq!(took < S / 10, is_proof, "{successor}: {took:?}");
        assert!(is_proof || took > 9 * S, "{successor}: {took:?}");
        assert_eq!(api.lease(NAME).unwrap().spec.unwrap().lease_transitions, Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_whose_watch_is_forbidden_polls_and_says_why() {
    let api = FakeApi::start();
    api.forbid_watch();
    let (mut a, mut b) = (Node::join(&api, "a_1"), Node::join(&api, "b_2"));
    a.leads().await;
    tokio::time::sleep(30 * S).await;
    let requests = api.requests();
    assert!(requests.iter().filter(|request| *request == "WATCH").count() < 20, "{requests:?}");
    assert!(
        b.view.status().last_error.unwrap().starts_with("cannot watch lease \"external-attacher-leader-demo\": 403")
    );
    let series = "csi_control_plane_api_requests_total{verb=\"watch\",resource=\"leases\",outcome=\"forbidden\"}";
    assert!(b.meter.render().contains(series), "{}", b.meter.render());
    a.stop.cancel();
    assert!(b.leads().await <= 6 * S);
}

/// The Lease's namespace is missing, as where the daemon runs outside of the cluster that it serves.
#[tokio::test(start_paused = true)]
async fn a_missing_namespace_is_said_and_asked_for_at_a_calm_pace() {
    let (api, warnings) = (FakeApi::start(), Warnings::begin());
    api.has_no_namespace(true);
    let mut a = Node::join(&api, "a_1");
    tokio::time::sleep(S / 2).await;
    assert_eq!(warnings.count(), 1);
    tokio::time::sleep(40 * S).await;
    assert!(api.requests().len() <= 14, "{:?}", api.requests());
    let names_it = |error: &str| error.contains("the cluster has no namespace \"storage\"");
    for _ in 0..260 {
        assert!(a.view.status().last_error.is_some_and(|error| names_it(&error)));
        assert!(a.term().is_none() && a.view.status().leader.is_none());
        tokio::time::sleep(S).await;
    }
    let (told, tries) = (warnings.errors(), api.requests().iter().filter(|verb| *verb == "POST").count());
    assert!(told.iter().all(|error| names_it(error)), "{told:?}");
    assert!((6..=9).contains(&told.len()) && told.len() < tries, "{} warnings of {tries} failures", told.len());
    let series = "csi_control_plane_api_requests_total{verb=\"create\",resource=\"leases\",outcome=\"not_found\"}";
    assert!(a.meter.render().contains(series), "{}", a.meter.render());
    api.has_no_namespace(false);
    assert!(a.leads().await <= 37 * S);
    assert_eq!(a.view.status().last_error, None);
}

#[tokio::test(start_paused = true)]
async fn a_standby_stops_at_once() {
    let api = FakeApi::start();
    let (mut a, mut b) = (Node::join(&api, "a_1"), Node::join(&api, "b_2"));
    a.leads().await;
    b.stop.cancel();
    let begin = Instant::now();
    assert_eq!(b.ended().await, Ok(()));
    assert!(begin.elapsed() < S && b.gate.next().await.is_none());
    assert_eq!(api.lease(NAME).unwrap().spec.unwrap().holder_identity.as_deref(), Some("a_1"));
}

#[tokio::test(start_paused = true)]
async fn a_holder_told_to_stop_renews_until_its_work_has_ended_then_releases() {
    let api = FakeApi::start();
    let (mut a, mut b) = (Node::join(&api, "a_1"), Node::join(&api, "b_2"));
    let guard = a.gate.next().await.unwrap();
    tokio::time::sleep(S).await;
    a.stop.cancel();
    guard.term().over().await;
    tokio::time::sleep(40 * S).await;
    assert!(guard.term().may_write() && b.term().is_none(), "work in flight is still covered");
    assert!(guard.term().enter().is_none());
    let term = guard.term().clone();
    drop(guard);
    assert!(b.leads().await < S);
    assert_eq!(a.ended().await, Ok(()));
    assert!(!term.may_write() && a.gate.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_partitioned_holder_gives_up_before_another_takes_over_and_rejoins_as_a_standby() {
    let api = FakeApi::start();
    let (mut a, mut b) = (Node::join(&api, "a_1"), Node::join(&api, "b_2"));
    a.leads().await;
    tokio::time::sleep(7 * S).await;
    let term = a.term().unwrap();
    let begin = Instant::now();
    a.site.cut(true);
    term.lost().await;
    assert!(begin.elapsed() <= 10 * S, "within the renew deadline");
    assert!(!b.may_write() && a.view.status().last_error.is_some());
    b.leads().await;
    assert!(begin.elapsed() <= LEASE + S);
    a.site.cut(false);
    tokio::time::sleep(10 * S).await;
    assert!(a.term().is_none() && a.view.status().leader.as_deref() == Some("b_2"));
    assert_eq!(a.view.health(), Ok(()));
    b.stop.cancel();
    assert!(a.leads().await < S);
    assert_eq!(a.term().unwrap().id(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_does_not_cost_the_term() {
    let (_api, a) = led().await;
    for _ in 0..5 {
        tokio::time::sleep(4 * S).await;
        a.site.cut(true);
        tokio::time::sleep(3 * S).await;
        a.site.cut(false);
    }
    assert!(a.may_write() && a.term().unwrap().id() == 1);
}

#[tokio::test(start_paused = true)]
async fn an_api_that_takes_seconds_to_answer_costs_no_term() {
    let api = FakeApi::start();
    let mut a = Node::join(&api, "a_1");
    a.site.faults(Faults { latency: Duration::from_millis(1400), lose: 0.0 });
    a.leads().await;
    for _ in 0..100 {
        tokio::time::sleep(S).await;
        assert!(a.may_write() && a.term().unwrap().id() == 1);
    }
}

#[tokio::test(start_paused = true)]
async fn r52_a_frozen_holder_wakes_without_the_right_to_write() {
    let api = FakeApi::start();
    let (mut a, mut b) = (Node::join(&api, "a_1"), Node::join(&api, "b_2"));
    a.leads().await;
    let term = a.term().unwrap();
    a.frozen.store(true, Ordering::SeqCst);
    b.leads().await;
    assert!(!term.may_write(), "nobody has told it, the clock has");
    a.frozen.store(false, Ordering::SeqCst);
    tokio::time::sleep(S).await;
    assert!(a.term().is_none() && b.may_write());
}

#[tokio::test(start_paused = true)]
async fn a_frozen_holder_is_unhealthy_once_its_lease_is_long_expired() {
    let (_api, a) = led().await;
    a.frozen.store(true, Ordering::SeqCst);
    tokio::time::sleep(34 * S).await;
    assert_eq!(a.view.health(), Ok(()));
    tokio::time::sleep(7 * S).await;
    assert!(a.view.health().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_by_hand_is_made_anew_by_its_holder_and_taken_by_nobody() {
    let api = FakeApi::start();
    let (mut a, b) = (Node::join(&api, "a_1"), Node::join(&api, "b_2"));
    a.leads().await;
    tokio::time::sleep(2 * S).await;
    api.delete(NAME);
    tokio::time::sleep(S).await;
    assert_eq!(api.lease(NAME).unwrap().spec.unwrap().holder_identity.as_deref(), Some("a_1"));
    assert!(a.may_write() && a.term().unwrap().id() == 1 && b.term().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_deleted_lease_of_a_dead_holder_is_created_when_it_would_have_expired() {
    let api = FakeApi::start();
    let (mut a, mut b) = (Node::join(&api, "a_1"), Node::join(&api, "b_2"));
    a.leads().await;
    tokio::time::sleep(S).await;
    a.crash();
    api.delete(NAME);
    let took = b.leads().await;
    assert!(took > 9 * S && took <= LEASE + S, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stolen_lease_ends_the_term_at_once() {
    let (api, mut a) = led().await;
    tokio::time::sleep(S).await;
    let term = a.term().unwrap();
    let begin = Instant::now();
    api.edit(NAME, |lease| lease["spec"]["holderIdentity"] = "go-sidecar".into());
    term.lost().await;
    assert!(begin.elapsed() < S);
    tokio::time::sleep(S).await;
    assert_eq!(a.view.status().leader.as_deref(), Some("go-sidecar"));
    assert!(a.leads().await <= LEASE, "it never renews");
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_something_else_costs_one_slow_renewal_and_no_term() {
    let (api, mut a) = led().await;
    a.frozen.store(true, Ordering::SeqCst);
    api.edit(NAME, |lease| lease["metadata"]["annotations"] = serde_json::json!({"x": "y"}));
    tokio::time::sleep(6 * S).await;
    a.frozen.store(false, Ordering::SeqCst);
    tokio::time::sleep(20 * S).await;
    assert_eq!(a.term().unwrap().id(), 1);
    assert_eq!(api.lease(NAME).unwrap().metadata.annotations.unwrap()["x"], "y");
    a.stop.cancel();
    assert_eq!(a.ended().await, Ok(()));
    assert_eq!(api.lease(NAME).unwrap().spec.unwrap().holder_identity.as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_cannot_be_written_is_an_error() {
    let (_api, mut a) = led().await;
    a.site.cut(true);
    a.stop.cancel();
    let error = a.ended().await.unwrap_err();
    assert!(
        error.starts_with("the lease was not released: cannot update lease \"external-attacher-leader-demo\": "),
        "{error}"
    );
}

#[path = "pod_tests.rs"]
mod pods;
#[path = "property_tests.rs"]
mod properties;
