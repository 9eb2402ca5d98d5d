//! Credentials that are renewed while the clients run, over real TLS.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::AsyncBufReadExt as _;
use http::{Response, StatusCode};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use super::tls::Shown;
use super::wire::data;
use crate::cluster::access::ServiceAccount;
use crate::cluster::{ClientOptions, Clients, ClusterAccess};
use crate::process::Tasks;

/// Only a test that fails waits so long.
const LONG: Duration = Duration::from_secs(60);

/// A certificate and its key, in PEM.
struct Pair(String, String);

/// An authority, and what it has issued for a server and for a client.
struct Issued {
    authority: String,
    server: Pair,
    client: Pair,
}

fn issued(name: &str) -> Issued {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let issue = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        Pair(certificate.pem(), key.serialize_pem())
    };
    Issued { authority: issuer.pem(), server: issue(&["127.0.0.1"]), client: issue(&[]) }
}

/// Whom the server takes; anybody else gets 401.
#[derive(Clone)]
enum Takes {
    Token(&'static str),
    Certificate(String),
}

struct State {
    config: Arc<rustls::ServerConfig>,
    takes: Takes,
    open: Vec<TcpStream>,
}

/// An API server that can be restarted with other certificates at the same address.
struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

fn configured(pair: &Pair) -> Arc<rustls::ServerConfig> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let chain = vec![CertificateDer::from_pem_slice(pair.0.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(pair.1.as_bytes()).unwrap();
    let any = Arc::new(Shown::default());
    Arc::new(rustls::ServerConfig::builder().with_client_cert_verifier(any).with_single_cert(chain, key).unwrap())
}

impl Server {
    fn start(pair: &Pair, takes: Takes) -> Self {
        let state = Arc::new(Mutex::new(State { config: configured(pair), takes, open: Vec::new() }));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, shared) = (listener.local_addr().unwrap(), Arc::clone(&state));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&shared));
                state.lock().unwrap().open.push(stream.try_clone().unwrap());
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }

    /// Every connection ends.
    fn restart(&self, pair: &Pair, takes: Takes) {
        let mut state = self.state.lock().unwrap();
        (state.config, state.takes) = (configured(pair), takes);
        for stream in state.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn take(&self, takes: Takes) {
        self.state.lock().unwrap().takes = takes;
    }

    fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// A watch gets one line, and the rest never comes.
fn serve(stream: TcpStream, state: &Mutex<State>) {
    let config = Arc::clone(&state.lock().unwrap().config);
    let tls = rustls::ServerConnection::new(config).unwrap();
    let mut stream = BufReader::new(rustls::StreamOwned::new(tls, stream));
    let mut head = String::new();
    while let Ok(1..) = stream.read_line(&mut head) {
        if !head.ends_with("\r\n\r\n") {
            continue;
        }
        let is_taken = match &state.lock().unwrap().takes {
            Takes::Token(token) => head.contains(&format!("authorization: Bearer {token}\r\n")),
            Takes::Certificate(pem) => {
                let shown = stream.get_ref().conn.peer_certificates().and_then(|chain| chain.first());
                shown == Some(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
            }
        };
        let answer: &[u8] = if !is_taken {
            b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno"
        } else if head.contains("watch=true") {
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nok\n\r\n"
        } else {
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
        };
        let _ = stream.get_mut().write_all(answer).and_then(|()| stream.get_mut().flush());
        head.clear();
    }
}

/// A folder with a kubeconfig and its files.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn kubeconfig(&self, cluster: &Value, user: &Value) {
        self.write("config", &kubeconfig(cluster, user));
    }

    fn access(&self) -> ClusterAccess {
        ClusterAccess::Kubeconfig(self.path("config"))
    }

    fn certificates(&self, issued: &Issued) {
        self.write("ca.crt", &issued.authority);
        self.write("tls.crt", &issued.client.0);
        self.write("tls.key", &issued.client.1);
    }
}

fn kubeconfig(cluster: &Value, user: &Value) -> String {
    json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "users": [{ "name": "u", "user": user }], "clusters": [{ "name": "k", "cluster": cluster }],
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }] })
    .to_string()
}

async fn connect(access: &ClusterAccess) -> Clients {
    Clients::connect(access, &ClientOptions::default()).await.unwrap()
}

/// Whether each client is taken.
async fn asked(clients: &Clients) -> [bool; 3] {
    let mut taken = [false; 3];
    for (taken, client) in taken.iter_mut().zip([&clients.work, &clients.watch, &clients.election]) {
        let request = http::Request::get("/version").body(Vec::new()).unwrap();
        *taken = client.request_text(request).await.is_ok_and(|text| text == "ok");
    }
    taken
}

const ALL: [bool; 3] = [true; 3];
const NONE: [bool; 3] = [false; 3];

fn told(clients: &Clients) -> String {
    clients.credentials.told(Instant::now()).unwrap_or_default()
}

/// A form, the user before and after, and what the server takes before and after.
type Users = (&'static str, Value, Value, Takes, Takes);

#[tokio::test]
async fn every_form_of_credentials_is_renewed_by_its_files() {
    let (old, new) = (issued("old"), issued("new"));
    let inline = |issued: &Issued| json!({ "client-certificate-data": data(&issued.client.0), "client-key-data": data(&issued.client.1) });
    let named = json!({ "client-certificate": "tls.crt", "client-key": "tls.key" });
    let certificate = |issued: &Issued| Takes::Certificate(issued.client.0.clone());
    let forms: [Users; 4] = [
        ("inline certificate", inline(&old), inline(&new), certificate(&old), certificate(&new)),
        ("certificate", named.clone(), named, certificate(&old), certificate(&new)),
        ("token", json!({ "token": "one" }), json!({ "token": "two" }), Takes::Token("one"), Takes::Token("two")),
        (
            "tokenFile",
            json!({ "tokenFile": "token" }),
            json!({ "tokenFile": "token" }),
            Takes::Token("one"),
            Takes::Token("two"),
        ),
    ];
    for (form, before, after, takes, takes_then) in forms {
        for is_inline in [true, false] {
            let server = Server::start(&old.server, takes.clone());
            let cluster = |issued: &Issued| {
                if is_inline {
                    json!({ "server": server.url(), "certificate-authority-data": data(&issued.authority) })
                } else {
                    json!({ "server": server.url(), "certificate-authority": "ca.crt" })
                }
            };
            let files = Files::new();
            files.certificates(&old);
            files.write("token", "one\n");
            files.kubeconfig(&cluster(&old), &before);
            let clients = connect(&files.access()).await;
            assert_eq!(asked(&clients).await, ALL, "{form}");

            // The server comes back with another authority, and takes another user.
            server.restart(&new.server, takes_then.clone());
            clients.credentials.look().await;
            assert_eq!(asked(&clients).await, NONE, "{form}: no file has changed");
            files.certificates(&new);
            files.write("token", "two\n");
            files.kubeconfig(&cluster(&new), &after);
            clients.credentials.look().await;
            assert_eq!(asked(&clients).await, ALL, "{form}: {}", told(&clients));
            assert_eq!(told(&clients), "", "{form}");
        }
    }
}

#[tokio::test]
async fn the_service_account_of_a_pod_is_renewed_as_the_kubelet_does_it() {
    let (old, new) = (issued("old"), issued("new"));
    let server = Server::start(&old.server, Takes::Token("one"));
    let files = Files::new();
    let folder = |name: &str, issued: &Issued, token: &str| {
        fs::create_dir(files.path(name)).unwrap();
        files.write(&format!("{name}/ca.crt"), &issued.authority);
        files.write(&format!("{name}/token"), token);
    };
    let link = |to: &str| {
        std::os::unix::fs::symlink(to, files.path("next")).unwrap();
        fs::rename(files.path("next"), files.path("account")).unwrap();
    };
    folder("1", &old, "one");
    link("1");
    let account = ServiceAccount { server: server.url(), folder: files.path("account") };
    let access = ClusterAccess::Inferred { kubeconfigs: vec![files.path("none")], account: Some(account) };
    let clients = connect(&access).await;
    assert_eq!(asked(&clients).await, ALL);
    server.restart(&new.server, Takes::Token("two"));
    folder("2", &new, "two");
    link("2");
    clients.credentials.look().await;
    assert_eq!(asked(&clients).await, ALL, "{}", told(&clients));
}

#[tokio::test]
async fn old_credentials_stay_in_use_while_they_hold_and_the_new_ones_do_not() {
    let (old, new) = (issued("old"), issued("new"));
    let certificate = |issued: &Issued| Takes::Certificate(issued.client.0.clone());
    let server = Server::start(&old.server, certificate(&old));
    let cluster = json!({ "server": server.url(), "certificate-authority": "ca.crt" });
    let user = json!({ "client-certificate": "tls.crt", "client-key": "tls.key" });
    let files = Files::new();
    files.certificates(&old);
    files.kubeconfig(&cluster, &user);
    let clients = connect(&files.access()).await;

    let whole = kubeconfig(&cluster, &user);
    let nobody = json!({ "apiVersion": "v1", "clusters": [{ "name": "k", "cluster": cluster }], "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }] });
    let mut certificates = new.authority.clone();
    certificates.truncate(200);
    for (name, text, says) in [
        (
            "config",
            &whole[..whole.len() / 2],
            "config changed, but the credentials cannot be used: cannot use the kubeconfig",
        ),
        ("config", &*nobody.to_string(), "they name no user any more"),
        ("ca.crt", &*certificates, "ca.crt changed, but the credentials cannot be used"),
        ("tls.crt", &*new.client.0, "tls.crt changed, but the credentials cannot be used: the client certificate"),
        ("tls.key", "", "tls.key changed, but the credentials cannot be used"),
        // Renewed before the server has the new authority.
        ("ca.crt", &*new.authority, "does not accept them: "),
    ] {
        let before = fs::read(files.path(name)).unwrap();
        files.write(name, text);
        clients.credentials.look().await;
        assert!(told(&clients).contains(says), "{name}: {}", told(&clients));
        assert_eq!(asked(&clients).await, ALL, "{name}");
        fs::write(files.path(name), before).unwrap();
        clients.credentials.look().await;
        assert_eq!((told(&clients).as_str(), asked(&clients).await), ("", ALL), "{name}");
    }
    // The new files are whole, and the server does not know the new user yet.
    files.write("tls.crt", &new.client.0);
    files.write("tls.key", &new.client.1);
    clients.credentials.look().await;
    assert!(told(&clients).ends_with("the API server does not accept them: 401 Unauthorized"), "{}", told(&clients));
    assert_eq!(asked(&clients).await, ALL);
    server.take(certificate(&new));
    clients.credentials.look().await;
    assert_eq!((told(&clients).as_str(), asked(&clients).await), ("", ALL));
}

/// Waits for the next line of a watch. `None`: it has ended.
async fn line(watch: impl futures::AsyncBufRead + Unpin) -> Option<String> {
    let mut lines = watch.lines();
    timeout(LONG, futures::StreamExt::next(&mut lines)).await.unwrap().map(Result::unwrap)
}

#[tokio::test]
async fn a_refusal_is_a_reason_to_look_and_watches_begin_anew_with_the_new_credentials() {
    let old = issued("old");
    let server = Server::start(&old.server, Takes::Token("one"));
    let cluster = json!({ "server": server.url(), "certificate-authority-data": data(&old.authority) });
    let files = Files::new();
    files.kubeconfig(&cluster, &json!({ "token": "one" }));
    let clients = connect(&files.access()).await;
    let request = http::Request::get("/x?watch=true").body(Vec::new()).unwrap();
    let mut watch = clients.watch.request_stream(request).await.unwrap();
    assert_eq!(line(&mut watch).await.as_deref(), Some("ok"));

    let begun = Instant::now();
    let (tasks, _ends) = Tasks::new("test");
    tasks.spawn("credentials", clients.credentials.clone().renew());
    server.take(Takes::Token("two"));
    files.kubeconfig(&cluster, &json!({ "token": "two" }));
    assert_eq!(asked(&clients).await, NONE);
    assert!(told(&clients).starts_with("The Kubernetes API refuses the credentials for 0 s: GET /version: 401"));
    // Its connection would go on for ever: the server takes no notice of a token that is not sent again.
    assert_eq!(line(&mut watch).await, None);
    assert_eq!(asked(&clients).await, ALL);
    assert!(begun.elapsed() < Duration::from_secs(9), "that was the next look, and not one for the refusal");
}

fn refused() -> Response<()> {
    Response::builder().status(StatusCode::UNAUTHORIZED).body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_asked_for_where_files_have_changed_and_the_api_refuses_for_three_minutes() {
    let old = issued("old");
    let cluster = json!({ "server": "https://127.0.0.1:1", "certificate-authority-data": data(&old.authority) });
    let files = Files::new();
    files.kubeconfig(&cluster, &json!({ "token": "one" }));
    let clients = connect(&files.access()).await;
    let (credentials, minute) = (clients.credentials, Duration::from_secs(60));
    credentials.heard("GET /x", &Ok(refused()));
    tokio::time::advance(60 * minute).await;
    credentials.look().await;
    assert_eq!(credentials.health(Instant::now()), Ok(()), "no file has changed: a restart would read the same");

    files.write("config", "{ half");
    credentials.look().await;
    let said = credentials.health(Instant::now()).unwrap_err();
    let begin = "The Kubernetes API refuses the credentials for 3600 s: GET /x: 401 Unauthorized. ";
    assert!(said.starts_with(begin) && said.contains("cannot use the kubeconfig"), "{said}");

    // The old ones hold again.
    credentials.heard("GET /x", &Ok(Response::new(())));
    assert_eq!(credentials.health(Instant::now()), Ok(()));
    credentials.heard("GET /x", &Ok(refused()));
    tokio::time::advance(Duration::from_secs(179)).await;
    assert_eq!(credentials.health(Instant::now()), Ok(()));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(credentials.health(Instant::now()).is_err());
}

/// A program that prints the credentials that stand in a file, and counts its runs.
fn program(files: &Files) -> Value {
    let script = "#!/bin/sh\ncd \"$(dirname \"$0\")\"\necho run >> runs\ncat credential";
    super::wire::program(&files.path("program"), script);
    json!({ "exec": { "apiVersion": "client.authentication.k8s.io/v1", "command": "./program" } })
}

fn runs(folder: &Path) -> usize {
    fs::read_to_string(folder.join("runs")).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn the_certificate_of_a_program_is_replaced_before_it_expires() {
    let (old, new) = (issued("old"), issued("new"));
    let certificate = |issued: &Issued| Takes::Certificate(issued.client.0.clone());
    let server = Server::start(&old.server, certificate(&old));
    let files = Files::new();
    let credential = |issued: &Issued, seconds: i64| {
        let expires = crate::process::Clock::system().wall() + jiff::SignedDuration::from_secs(seconds);
        json!({ "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {
            "clientCertificateData": issued.client.0, "clientKeyData": issued.client.1,
            "expirationTimestamp": expires.to_string() } })
        .to_string()
    };
    files.write("credential", &credential(&old, 10));
    let cluster = json!({ "server": server.url(), "certificate-authority-data": data(&old.authority) });
    files.kubeconfig(&cluster, &program(&files));
    let clients = connect(&files.access()).await;
    assert_eq!((asked(&clients).await, runs(files.0.path())), (ALL, 1), "once for all clients");
    files.write("credential", &credential(&new, 3600));
    clients.credentials.look().await;
    assert_eq!(runs(files.0.path()), 1, "the first ones are valid");

    let (tasks, _ends) = Tasks::new("test");
    tasks.spawn("credentials", clients.credentials.clone().renew());
    server.take(certificate(&new));
    let renewed = async {
        while asked(&clients).await != ALL {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, renewed).await.unwrap();
    assert_eq!(runs(files.0.path()), 2);
}
