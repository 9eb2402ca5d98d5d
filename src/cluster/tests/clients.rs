//! The connections: separate, timed, with clear errors.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tokio::time::Instant;

use super::{Answer, Server, list, status};
use crate::cluster::api::{Api, ApiOptions};
use crate::cluster::error::ApiErrorKind;
use crate::cluster::names::ObjectName;
use crate::cluster::objects::VolumeAttachment;
use crate::cluster::{ClientOptions, Clients, ClusterAccess};
use crate::process::{Dial, error_chain};
use crate::telemetry::Meter;

async fn get_over(dial: Dial) -> crate::cluster::error::ApiError {
    let access = ClusterAccess::Endpoint { dial, token: None };
    let clients = Clients::connect(&access, &ClientOptions::default()).await.unwrap();
    let api = Api::new(clients.work, &ApiOptions::default(), Meter::new());
    api.get::<VolumeAttachment>(&ObjectName::cluster("a")).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn r30_r50_s0_work_watches_and_elections_have_their_own_connections() {
    let server = Server::new(|_| Answer::Json(200, list(1, &[])));
    let clients = server.clients().await;
    for client in [&clients.work, &clients.watch, &clients.election, &clients.work] {
        client.request_text(http::Request::get("/version").body(Vec::new()).unwrap()).await.unwrap();
    }
    let connections: Vec<usize> = server.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [1, 2, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_says_so() {
    let error = get_over(Dial::new(|| async { Err(io::Error::from(io::ErrorKind::ConnectionRefused)) })).await;
    assert_eq!(error.kind(), ApiErrorKind::Connection);
    assert!(error_chain(&error).ends_with("connection refused"), "{}", error_chain(&error));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_never_made_ends_in_time() {
    let start = Instant::now();
    let error = get_over(Dial::new(std::future::pending)).await;
    assert_eq!((error.kind(), start.elapsed()), (ApiErrorKind::Connection, Duration::from_secs(10)));
    assert!(error_chain(&error).ends_with("no answer within 10s"), "{}", error_chain(&error));
}

#[tokio::test(start_paused = true)]
async fn watches_of_one_kind_are_paced_and_nothing_else_is() {
    let server = Server::new(|_| Answer::Json(500, status(500, "InternalError", "no")));
    let clients = server.clients().await;
    let start = Instant::now();
    let ask = |path: &'static str| clients.watch.request_text(http::Request::get(path).body(Vec::new()).unwrap());
    for _ in 0..5 {
        let _ = ask("/a").await;
    }
    let _ = (ask("/a?watch=true").await, ask("/b?watch=true").await);
    assert!(start.elapsed() < Duration::from_millis(10));
    let _ = (ask("/a?x=y&watch=true").await, ask("/a?watch=true").await);
    assert!(start.elapsed() >= Duration::from_secs(2));
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_there_is_named() {
    let access = ClusterAccess::Kubeconfig("/nowhere/kubeconfig".into());
    let error = Clients::connect(&access, &ClientOptions::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot use the kubeconfig /nowhere/kubeconfig");
}

#[tokio::test]
async fn a_kubeconfig_gives_clients_and_its_namespace_counts_for_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let text = "{ apiVersion: v1, kind: Config, current-context: c, users: [{ name: u, user: { token: t } }], \
        clusters: [{ name: k, cluster: { server: 'https://127.0.0.1:6443' } }], \
        contexts: [{ name: c, context: { cluster: k, user: u, namespace: storage } }] }";
    std::fs::write(&path, text).unwrap();
    let access = ClusterAccess::Kubeconfig(path);
    let clients = Clients::connect(&access, &ClientOptions::default()).await.unwrap();
    assert_eq!(clients.work.default_namespace(), "default");
}

#[tokio::test]
async fn a_token_with_a_line_break_is_refused_and_not_shown() {
    let access = ClusterAccess::Endpoint { dial: Dial::new(std::future::pending), token: Some("hunter2\n".into()) };
    assert!(!format!("{access:?}").contains("hunter2"));
    let error = Clients::connect(&access, &ClientOptions::default()).await.unwrap_err();
    assert_eq!(error_chain(&error), "the bearer token is not fit for an HTTP header");
}

/// What a TLS server saw: how many connections came before, and what was agreed on.
type Handshake = (usize, Option<Vec<u8>>);

/// A server with HTTP/2 and HTTP/1.1 that serves one request of its first connection, never another of it, and each of the
/// others: as a load balancer does that has lost a flow. Only HTTP/1.1 is understood. Returns what connects to it.
fn forgetful() -> (ClusterAccess, tempfile::TempDir, Receiver<Handshake>) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let certificates = vec![made.cert.der().clone()];
    let mut config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut frozen = Vec::new();
        for (number, stream) in listener.incoming().enumerate() {
            let tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = BufReader::new(rustls::StreamOwned::new(tls, stream.unwrap()));
            // Shakes hands, too.
            let begun = stream.fill_buf().is_ok();
            let _ = tell.send((number, stream.get_ref().conn.alpn_protocol().map(<[u8]>::to_vec)));
            let mut lines = (&mut stream).lines();
            let ends = |line: &io::Result<String>| line.as_ref().is_ok_and(String::is_empty);
            if begun && lines.any(|line| ends(&line)) {
                let _ = stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            }
            frozen.push(stream);
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let authority = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, made.cert.pem());
    let text = serde_json::json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "users": [{ "name": "u", "user": { "token": "t" } }],
        "clusters": [{ "name": "k", "cluster": {
            "server": format!("https://{address}"), "certificate-authority-data": authority } }],
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }] });
    let path = directory.path().join("config");
    std::fs::write(&path, text.to_string()).unwrap();
    (ClusterAccess::Kubeconfig(path), directory, told)
}

async fn says_ok(client: &kube::Client, limit: Duration) -> bool {
    let request = http::Request::get("/version").body(Vec::new()).unwrap();
    let answer = tokio::time::timeout(limit, client.request_text(request)).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|text| text == "ok"))
}

#[tokio::test]
async fn a_renewal_after_one_that_got_no_answer_goes_over_a_new_connection() {
    let (access, _directory, told) = forgetful();
    let clients = Clients::connect(&access, &ClientOptions::default()).await.unwrap();
    let patience = Duration::from_secs(60);
    assert!(says_ok(&clients.election, patience).await, "not over HTTP/1.1");
    assert!(!says_ok(&clients.election, Duration::from_millis(200)).await, "the flow is lost");
    assert!(says_ok(&clients.election, patience).await, "the connection that is dead was kept");
    // What server and client prefer where nobody has said otherwise.
    assert!(!says_ok(&clients.work, Duration::from_secs(1)).await);
    let seen: Vec<Handshake> = told.try_iter().collect();
    assert_eq!(seen, [(0, None), (1, None), (2, Some(b"h2".to_vec()))]);
}
