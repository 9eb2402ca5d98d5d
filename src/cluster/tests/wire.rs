//! Servers on loopback for the clients: an API server with TLS, and proxies.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// The name of the API server in its certificate. No resolver knows it.
pub(super) const NAME: &str = "api.example.test";

/// Reads the head of a request; empty at the end of the stream.
fn head(stream: &mut impl io::BufRead) -> String {
    let mut head = String::new();
    while let Ok(1..) = stream.read_line(&mut head) {
        if head.ends_with("\r\n\r\n") {
            return head;
        }
    }
    String::new()
}

fn accept(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

/// Answers each request with `ok`, and passes its head on.
fn answer(stream: impl Read + Write, heads: &Sender<String>) {
    let mut stream = BufReader::new(stream);
    loop {
        let head = head(&mut stream);
        if head.is_empty() || heads.send(head).is_err() {
            return;
        }
        let _ = stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    }
}

/// An API server with TLS. Also returns the heads of its requests.
pub(super) fn api_server(config: rustls::ServerConfig) -> (SocketAddr, Receiver<String>) {
    let (sender, heads) = channel();
    let config = Arc::new(config);
    let serve = move |stream| {
        let tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        answer(rustls::StreamOwned::new(tls, stream), &sender);
    };
    (accept(serve), heads)
}

/// What a proxy does with a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Does {
    /// Connects to this address, whatever the client asks for.
    Connect(SocketAddr),
    /// Answers with this, and goes.
    Say(&'static str),
    /// Answers the requests to an `http://` server itself.
    Serve,
    /// Nothing.
    Wait,
}

/// An HTTP proxy. Also returns the heads of its requests.
pub(super) fn http_proxy(does: Does) -> (SocketAddr, Receiver<String>) {
    let (sender, heads) = channel();
    let serve = move |stream: TcpStream| {
        if let Does::Serve = does {
            return answer(stream, &sender);
        }
        let mut reader = BufReader::new(stream);
        let _ = sender.send(head(&mut reader));
        match does {
            Does::Connect(server) => {
                let _ = reader.get_mut().write_all(b"HTTP/1.0 200 Connection established\r\n\r\n");
                join(&reader.into_inner(), server);
            }
            Does::Say(text) => drop(reader.get_mut().write_all(text.as_bytes())),
            Does::Serve | Does::Wait => std::thread::sleep(Duration::from_secs(30)),
        }
    };
    (accept(serve), heads)
}

/// The same over TLS. It connects to nothing.
pub(super) fn https_proxy(config: rustls::ServerConfig, says: &'static str) -> (SocketAddr, Receiver<String>) {
    let (sender, heads) = channel();
    let config = Arc::new(config);
    let serve = move |stream| {
        let tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut reader = BufReader::new(rustls::StreamOwned::new(tls, stream));
        let _ = sender.send(head(&mut reader));
        let _ = reader.get_mut().write_all(says.as_bytes());
    };
    (accept(serve), heads)
}

/// A SOCKS 5 proxy that chooses this method: 0 for nothing, 2 for a user and a password. Also returns what it was told: the offered
/// methods, the user and password, the name and port.
pub(super) fn socks_proxy(server: SocketAddr, chosen: u8) -> (SocketAddr, Receiver<String>) {
    let (sender, told) = channel();
    let serve = move |stream: TcpStream| {
        let read = |length: u8| {
            let mut bytes = vec![0; usize::from(length)];
            (&stream).read_exact(&mut bytes).unwrap();
            bytes
        };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let methods = read(read(2)[1]);
        sender.send(format!("{methods:?}")).unwrap();
        (&stream).write_all(&[5, if methods.contains(&chosen) { chosen } else { 0xff }]).unwrap();
        if !methods.contains(&chosen) {
            return;
        }
        if chosen == 2 {
            let user = text(read(read(2)[1]));
            let password = text(read(read(1)[0]));
            sender.send(format!("{user}:{password}")).unwrap();
            (&stream).write_all(&[1, u8::from(password != "s@cret")]).unwrap();
            if password != "s@cret" {
                return;
            }
        }
        let name = text(read(read(5)[4]));
        let port = read(2);
        sender.send(format!("{name}:{}", u16::from_be_bytes([port[0], port[1]]))).unwrap();
        (&stream).write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        join(&stream, server);
    };
    (accept(serve), told)
}

fn join(client: &TcpStream, server: SocketAddr) {
    let server = TcpStream::connect(server).unwrap();
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let _ = io::copy(&mut &server, &mut &*client);
    let _ = client.shutdown(Shutdown::Both);
}

/// A certificate of its own for [`NAME`] and loopback, and a server with it.
pub(super) fn self_signed() -> (String, rustls::ServerConfig) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let certificates = vec![made.cert.der().clone()];
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key).unwrap();
    (made.cert.pem(), config)
}

/// Writes a program. Another process does: a file that is open for writing in a fork of ours cannot be run.
pub(super) fn program(path: &Path, script: &str) {
    let arguments = ["-c", "printf '%s\n' \"$2\" > \"$1\" && chmod 755 \"$1\"", "sh", path.to_str().unwrap(), script];
    assert!(Command::new("sh").args(arguments).status().unwrap().success());
}

/// Text as a kubeconfig's `…-data`.
pub(super) fn data(text: &str) -> String {
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text)
}

/// Writes a kubeconfig with this cluster and user.
pub(super) fn kubeconfig(cluster: &Value, user: &Value) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let text = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "users": [{ "name": "u", "user": user }], "clusters": [{ "name": "k", "cluster": cluster }],
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }] });
    std::fs::write(&path, text.to_string()).unwrap();
    (directory, path)
}
