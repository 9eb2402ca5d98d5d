//! `check --kubeconfig` and certificates that kubectl takes: used, or refused with an error that names them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use super::program::{Ended, run};

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cluster/tests/certificates/", $name))
    };
}

/// Without an election the server is asked for its version alone.
const CONFIG: &str =
    "csi: {endpoint: 'unix:///csi/csi.sock'}\nleaderElection: {enabled: false}\nroles: {attacher: {}}\n";

/// An API server with this certificate that tells its version.
fn server(certificate: &str, key: &str) -> SocketAddr {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = BufReader::new(rustls::StreamOwned::new(tls, stream.unwrap()));
            let mut head = String::new();
            while let Ok(1..) = stream.read_line(&mut head) {
                if head.ends_with("\r\n\r\n") {
                    let body = json!({ "major": "1", "minor": "34", "gitVersion": "v1.34.0", "gitCommit": "", "platform": "",
                        "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "" });
                    let (body, kind) = (body.to_string(), "content-type: application/json");
                    let answer = format!("HTTP/1.1 200 OK\r\n{kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    let _ = stream.get_mut().write_all(answer.as_bytes());
                    head.clear();
                }
            }
        }
    });
    address
}

/// What `check` says of this server, its authority and this user.
async fn checked(server: SocketAddr, authority: &str, user: Value) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let cluster =
        json!({ "server": format!("https://{server}"), "certificate-authority-data": STANDARD.encode(authority) });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": cluster }], "users": [{ "name": "u", "user": user }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    });
    let (config, path) = (directory.path().join("config.yaml"), directory.path().join("kubeconfig"));
    std::fs::write(&config, CONFIG).unwrap();
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let (config, path) = (config.to_str().unwrap(), path.to_str().unwrap());
    run(&["check", "--config", config, "--kubeconfig", path], &[]).await
}

fn user(certificate: &str, key: &str) -> Value {
    json!({ "client-certificate-data": STANDARD.encode(certificate), "client-key-data": STANDARD.encode(key) })
}

/// What `check` says of a server that it has reached.
const REACHED: Option<&str> = Some("server   reached, version v1.34.0");

#[tokio::test]
async fn check_names_the_servers_certificate_that_it_cannot_verify_and_takes_it_where_it_is_trusted_by_itself() {
    let (certificate, token) = (file!("server-of-rsa1024.pem"), json!({ "token": "t" }));
    let server = server(certificate, file!("server-of-rsa1024.key"));
    let refused = checked(server, file!("authority-rsa1024.pem"), token.clone()).await;
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    let expected = "the authority \"CN=authority-rsa1024\" (self-signed), the key is RSA with 1024 bits";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    assert!(refused.stderr.ends_with("have it issued anew with one of these\n"), "{}", refused.stderr);
    let trusted = checked(server, certificate, token).await;
    assert_eq!(trusted.stdout.lines().last(), REACHED, "{}", trusted.stderr);
}

#[tokio::test]
async fn check_reaches_a_server_whose_certificate_is_signed_with_sha512_or_has_a_key_of_p521() {
    for (certificate, key) in
        [(file!("server-sha512.pem"), file!("server-sha512.key")), (file!("server-p521.pem"), file!("server-p521.key"))]
    {
        let reached = checked(server(certificate, key), file!("authority-p256.pem"), json!({ "token": "t" })).await;
        assert_eq!(reached.stdout.lines().last(), REACHED, "{}", reached.stderr);
    }
}

#[tokio::test]
async fn check_names_the_users_certificate_that_it_cannot_use_and_takes_one_of_version_1() {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let server = server(&certificate, &key);
    let refused = checked(server, &certificate, user(file!("client-rsa1024.pem"), file!("client-rsa1024.key"))).await;
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    let expected = "the client certificate \"CN=client-rsa1024\" (issued by \"CN=authority-p256\") has a key that cannot be used: RSA with 1024 bits";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    let taken = checked(server, &certificate, user(file!("client-v1.pem"), file!("client-v1.key"))).await;
    assert_eq!(taken.stdout.lines().last(), REACHED, "{}", taken.stderr);
}
