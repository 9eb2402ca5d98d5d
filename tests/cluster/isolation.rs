//! A control plane of the tests is reachable only from this machine and only with TLS, shares nothing with another
//! control plane, and leaves nothing behind.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use csi_control_plane::cluster::{ClientOptions, Clients, ClusterAccess};
use csi_control_plane::process::error_chain;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::accounts;
use crate::control_plane::{ControlPlane, Extent};
use crate::world::bounded;
use crate::world::wait::asked;

/// `TCP_LISTEN` in the columns of `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// An address of `/proc/net/tcp`: words of 32 bits in the machine's order, and a port.
fn address(text: &str) -> SocketAddr {
    let (words, port) = text.split_once(':').unwrap();
    let words = words.as_bytes().chunks(8).map(|word| std::str::from_utf8(word).unwrap());
    let bytes: Vec<u8> = words.flat_map(|word| u32::from_str_radix(word, 16).unwrap().to_ne_bytes()).collect();
    let ip = match <[u8; 4]>::try_from(&*bytes) {
        Ok(four) => IpAddr::from(four),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap()).to_canonical(),
    };
    SocketAddr::new(ip, u16::from_str_radix(port, 16).unwrap())
}

/// Where a process listens.
fn listens(process: u32) -> Vec<SocketAddr> {
    let folder = Path::new("/proc").join(process.to_string());
    let files = std::fs::read_dir(folder.join("fd")).unwrap();
    // One may be closed meanwhile.
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let socket = |link: PathBuf| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    let sockets: BTreeSet<String> = links.filter_map(socket).collect();
    let mut found = Vec::new();
    for table in ["net/tcp", "net/tcp6"] {
        let table = std::fs::read_to_string(folder.join(table)).unwrap_or_default();
        for line in table.lines().skip(1) {
            // sl, local address, remote address, state, queues, timer, retransmits, uid, timeout, inode.
            let columns: Vec<&str> = line.split_whitespace().collect();
            if columns[3] == LISTENS && sockets.contains(columns[9]) {
                found.push(address(columns[1]));
            }
        }
    }
    found
}

/// The answer to a client that speaks plain HTTP.
async fn plainly(address: SocketAddr) -> String {
    let mut answer = Vec::new();
    let talk = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        stream.read_to_end(&mut answer).await
    };
    // A connection that is closed on us is an answer, too.
    let _ = bounded("the end of the connection", talk).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn every_program_listens_on_loopback_alone_and_has_nothing_to_say_without_tls() {
    let control_plane = crate::shared::with_controllers().await;
    let processes = control_plane.processes().await;
    assert_eq!(processes.len(), 4);
    let found: Vec<SocketAddr> = processes.into_iter().flat_map(listens).collect();
    // etcd has one for its clients and one for its peers; the controllers have none.
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.contains(&control_plane.address()), "{found:?}");
    for address in found {
        assert!(address.ip().is_loopback(), "{address}");
        let said = plainly(address).await;
        assert!(said.is_empty() || said.starts_with("HTTP/1.0 400 ") || said.starts_with("HTTP/1.1 400 "), "{said}");
    }
}

/// The answers that the daemon's clients get with this kubeconfig.
async fn asked_with(kubeconfig: PathBuf) -> kube::Error {
    let clients = Clients::connect(&ClusterAccess::Kubeconfig(kubeconfig), &ClientOptions::default()).await.unwrap();
    let request = http::Request::get("/api/v1/namespaces").body(Vec::new()).unwrap();
    clients.work.request_text(request).await.unwrap_err()
}

#[tokio::test]
async fn two_side_by_side_share_nothing_and_leave_nothing() {
    let (one, other) = tokio::join!(ControlPlane::start(Extent::Api), ControlPlane::start(Extent::Api));
    accounts::namespace(&one.client().await, "here").await;
    let there: Api<Namespace> = Api::all(other.client().await);
    assert!(there.get_opt("here").await.unwrap().is_none());

    // Whoever is sent to the wrong one says so before there is a request, and so a token.
    let stray = one.through(&one.admin_kubeconfig(), other.address());
    let refused = error_chain(&asked_with(stray).await);
    assert!(refused.contains("is not accepted: none of the trusted authorities has signed it"), "{refused}");
    // And a token is worth something only where it was issued.
    let reader = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"},
        "rules": [{"apiGroups": ["storage.k8s.io"], "resources": ["csinodes"], "verbs": ["list"]}]});
    let token = accounts::token(&one.client().await, "here", "account", &reader.to_string()).await;
    let refused = asked_with(other.kubeconfig("account-of-another", &token)).await;
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 401), "{refused}");
    let known = asked_with(one.kubeconfig("account", &token)).await;
    assert!(matches!(&known, kube::Error::Api(status) if status.code == 403), "{known}");

    let processes = [one.processes().await, other.processes().await].concat();
    let folders = [one.folder.clone(), other.folder.clone()];
    drop((one, other));
    let left = || {
        let running = processes.iter().map(|process| Path::new("/proc").join(process.to_string()));
        let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|it| it.unwrap().path());
        let files = files.filter(|file| file.extension().is_none_or(|it| it != "log"));
        running.filter(|it| it.exists()).chain(files).collect::<Vec<_>>()
    };
    assert_eq!(processes.len(), 4);
    asked("the end of all but the logs", async || left().is_empty().then_some(())).await;
}
