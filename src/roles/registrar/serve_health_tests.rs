//! `/healthz` of the registration, its port, and the self-checks.

use crate::roles::kit::fixtures::Warnings;
use crate::roles::registrar::serve::check_self_once;
use crate::roles::registrar::shown::Shown;

use super::*;

#[tokio::test]
async fn n4_health_asks_the_socket_itself() {
    let (node, _server) = Node::with_driver().await;
    let shown = Shown::default();
    let health = |shown: &Shown| {
        let routes = crate::roles::registrar::health::routes(shown.clone());
        async {
            use tower::ServiceExt as _;
            let request = axum::extract::Request::get("/healthz").body(axum::body::Body::empty()).unwrap();
            let answer = routes.oneshot(request).await.unwrap();
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), 1024).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        }
    };
    assert_eq!(health(&shown).await, (404, "registration socket does not exist".to_owned()));
    shown.change(|shown| shown.path = Some(node.socket()));
    assert_eq!(health(&shown).await.0, 404);
    drop(std::os::unix::net::UnixListener::bind(node.socket()).unwrap());
    let (status, body) = health(&shown).await;
    assert!(status == 500 && body.contains("Connection refused"), "{status} {body}");
    let _serving = node.registrar();
    until("the socket answers", async || health(&shown).await == (200, "ok".to_owned())).await;
    assert_eq!(node.beside.fact(NAME, "kubelet asked"), None, "our own question is not the kubelet's");
}

#[tokio::test]
async fn a_health_address_that_is_taken_is_shown_and_tried_again_beside_the_registration() {
    let (node, _server) = Node::with_driver().await;
    let bound = |address: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address.parse().unwrap()).unwrap();
        socket
    };
    // This socket has the port as well, and never listens. So only the registrar can get the port once the listener is gone.
    let kept = bound("127.0.0.1:0");
    let address = kept.local_addr().unwrap().to_string();
    let taken = bound(&address).listen(1).unwrap();
    let (_serving, kubelet) = (node.registrar_with(&json!({ "healthListen": address })), node.kubelet());
    registered(&kubelet).await;
    let fact = || node.beside.fact(NAME, "health port").unwrap_or_default();
    until("the reason is shown", async || fact().starts_with(&format!("cannot listen on {address}: "))).await;
    node.shows("registered").await;
    assert!(node.is_ready());
    drop(taken);
    node.answers_on_its_health_port().await;
    assert_eq!((node.announcements(), registrations(&kubelet)), (1, 1));
}

#[tokio::test]
async fn n7_health_is_answered_on_health_listen_alone() {
    let (node, _server) = Node::with_driver().await;
    let _serving = node.registrar_with(&json!({ "healthListen": "127.0.0.1:0" }));
    node.answers_on_its_health_port().await;
    // No page of the daemon's diagnostics is there.
    for other in ["/livez", "/readyz", "/metrics", "/"] {
        assert!(node.ask(other).await.unwrap().starts_with("HTTP/1.1 404"), "{other}");
    }
}

#[tokio::test]
async fn n9_self_checks_are_silent_but_for_the_first_that_fails() {
    let (node, _server) = Node::with_driver().await;
    let serving = node.registrar();
    until("it is announced", async || node.socket().exists()).await;
    let shown = Shown::default();
    shown.change(|shown| (shown.path, shown.is_ours) = (Some(node.socket()), true));
    let warnings = Warnings::begin();
    for _ in 0..50 {
        check_self_once(&shown).await;
    }
    assert_eq!((warnings.count(), shown.standing().deaf), (0, None));
    assert_eq!(node.beside.fact(NAME, "kubelet asked"), None, "our own question is not the kubelet's");
    // The file stays, and nobody listens.
    serving.kill();
    for _ in 0..50 {
        check_self_once(&shown).await;
    }
    assert_eq!(warnings.count(), 1, "{:?}", warnings.errors());
    assert!(shown.standing().deaf.is_some_and(|reason| reason.contains("cannot connect to the registration socket")));
    let _next = node.registrar();
    until("the next one listens", async || node.beside.fact(NAME, "announcements").as_deref() == Some("1")).await;
    check_self_once(&shown).await;
    assert_eq!((warnings.count(), shown.standing().deaf), (1, None));
}
