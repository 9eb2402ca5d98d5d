//! Take-over by the word of the kubelet.

use serde_json::{Value, json};

use super::*;

const POD: &str = "pod-a";
const HOLDER: &str = "pod-a_u1_daemon_00000001";

/// The status of a pod whose container is in this state, after that one.
pub(super) fn status(state: &Value, last: &Value) -> Value {
    let container = json!({"name": "daemon", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": state, "lastState": last});
    json!({ "containerStatuses": [container] })
}

pub(super) fn running() -> Value {
    json!({ "running": {} })
}

/// The container has ended; this was its process.
pub(super) fn ended(identity: &str) -> Value {
    let message = crate::election::identity::termination_message(identity);
    json!({ "terminated": { "exitCode": 137, "message": message } })
}

/// A leader in a pod whose kubelet says that it runs, and a standby.
async fn led() -> (FakeApi, Node, Node) {
    let api = FakeApi::start();
    let mut a = Node::join(&api, HOLDER);
    api.report(POD, "u1", &status(&running(), &json!({})));
    a.leads().await;
    let b = Node::join(&api, "pod-b_u2_daemon_00000001");
    tokio::time::sleep(7 * S).await;
    (api, a, b)
}

#[tokio::test(start_paused = true)]
async fn a_standby_leads_as_soon_as_the_kubelet_reports_the_leaders_end() {
    for (state, last) in [
        (ended(HOLDER), json!({})),
        (json!({ "waiting": { "reason": "CrashLoopBackOff" } }), ended(HOLDER)),
        (running(), ended(HOLDER)),
    ] {
        let (api, mut a, mut b) = led().await;
        a.crash();
        tokio::time::sleep(S).await;
        assert!(b.term().is_none(), "nothing has been reported yet");
        api.report(POD, "u1", &status(&state, &last));
        let took = b.leads().await;
        assert!(took < S / 10, "{took:?}");
        tokio::time::sleep(30 * S).await;
        assert!(b.may_write() && b.term().unwrap().id() == 1);
        assert_eq!(api.requests().iter().filter(|verb| *verb == "WATCH pods").count(), 1, "a leader watches no pod");
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_standbys_that_see_the_end_one_leads() {
    let (api, mut a, mut b) = led().await;
    let mut c = Node::join(&api, "pod-c_u3_daemon_00000001");
    tokio::time::sleep(7 * S).await;
    a.crash();
    api.report(POD, "u1", &status(&ended(HOLDER), &json!({})));
    tokio::select! {
        took = b.leads() => assert!(took < S),
        took = c.leads() => assert!(took < S),
    }
    tokio::time::sleep(60 * S).await;
    assert!(b.may_write() != c.may_write());
    assert_eq!(api.lease(NAME).unwrap().spec.unwrap().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_proof_of_an_end_lets_the_lease_decide() {
    type Play = fn(&FakeApi);
    let cases: [(&str, Play); 5] = [
        ("the pod is deleted by force", |api| api.force_delete(POD)),
        ("another pod of its name", |api| {
            api.force_delete(POD);
            api.report(POD, "u9", &status(&ended("pod-a_u9_daemon_00000001"), &json!({})));
        }),
        ("an earlier process of the container", |api| {
            api.report(POD, "u1", &status(&running(), &ended("pod-a_u1_daemon_00000000")));
        }),
        ("a node that is lost", |api| {
            let mut lost = status(&running(), &json!({}));
            (lost["phase"], lost["reason"]) = ("Failed".into(), "NodeLost".into());
            api.report(POD, "u1", &lost);
        }),
        ("no right to watch pods", |api| {
            api.forbid_pods(true);
            api.report(POD, "u1", &status(&running(), &json!({})));
        }),
    ];
    for (case, play) in cases {
        let (api, mut a, mut b) = led().await;
        a.crash();
        play(&api);
        let took = b.leads().await;
        assert!(took > 9 * S && took <= LEASE + S, "{case}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_after_its_end_was_reported_is_proof() {
    let (api, mut a, mut b) = led().await;
    b.site.cut(true);
    a.crash();
    api.report(POD, "u1", &status(&ended(HOLDER), &json!({})));
    api.force_delete(POD);
    b.site.cut(false);
    let took = b.leads().await;
    assert!(took <= 6 * S, "{took:?}: within a retry period of the return of the network");
}

#[tokio::test(start_paused = true)]
async fn a_late_status_of_an_earlier_process_is_no_proof_against_its_successor() {
    let (api, mut a, b) = led().await;
    b.site.cut(true);
    a.crash();
    // The kubelet has reported the end, and nothing of the successor, which leads at once.
    api.report(POD, "u1", &status(&ended(HOLDER), &json!({})));
    let mut next = Node::join(&api, "pod-a_u1_daemon_00000002");
    assert!(next.leads().await < S / 10);
    b.site.cut(false);
    for _ in 0..600 {
        tokio::time::sleep(S / 10).await;
        assert!(next.may_write() && b.term().is_none());
    }
    assert!(api.requests().iter().any(|verb| verb == "WATCH pods"));
}

#[tokio::test(start_paused = true)]
async fn a_standby_without_the_right_says_so_once_and_sees_a_right_that_is_granted() {
    let (api, warnings) = (FakeApi::start(), Warnings::begin());
    api.forbid_pods(true);
    let mut a = Node::join(&api, HOLDER);
    a.leads().await;
    let mut b = Node::join(&api, "pod-b_u2_daemon_00000001");
    tokio::time::sleep(200 * S).await;
    assert_eq!(warnings.count(), 1);
    let said = b.view.status().last_error.unwrap();
    assert!(said.starts_with(&format!("cannot watch the holder's pod of lease \"{NAME}\": 403 Forbidden")), "{said}");
    let tries = api.requests().iter().filter(|verb| *verb == "WATCH pods").count();
    assert!((2..=5).contains(&tries), "{tries} tries");
    let series = "csi_control_plane_api_requests_total{verb=\"watch\",resource=\"pods\",outcome=\"forbidden\"}";
    assert!(b.meter.render().contains(series), "{}", b.meter.render());
    api.forbid_pods(false);
    api.report(POD, "u1", &status(&running(), &json!({})));
    tokio::time::sleep(70 * S).await;
    assert_eq!(b.view.status().last_error, None);
    a.crash();
    api.report(POD, "u1", &status(&ended(HOLDER), &json!({})));
    assert!(b.leads().await < S / 10);
}

#[tokio::test(start_paused = true)]
async fn a_holder_without_a_container_has_no_pod_to_watch() {
    let api = FakeApi::start();
    let (mut a, _b) = (Node::join(&api, "go-sidecar"), Node::join(&api, "pod-b_u2_daemon_00000001"));
    a.leads().await;
    tokio::time::sleep(30 * S).await;
    assert!(!api.requests().iter().any(|verb| verb == "WATCH pods"));
}
