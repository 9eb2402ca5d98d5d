//! A Kubernetes API that is invalid, unreachable or forbids requests: permanent errors end the process, and the daemon
//! visibly waits for the end of temporary ones.

use csi_control_plane::sandbox::api::{Identity, kubeconfig};
use csi_control_plane::sandbox::testbed::TestBed;
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket};

use super::program::{Program, eventually, role};
use super::theatre::Theatre;

/// It ends with exit code 1 and all of this in the last line of its log, which is as much JSON as the others.
async fn fails(mut daemon: Program, says: &[&str]) {
    assert_eq!(daemon.exit().await, Some(1), "{}", daemon.stderr());
    let stderr = daemon.stderr();
    let last: Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap_or_else(|_| panic!("{stderr}"));
    assert_eq!(last["level"], "ERROR", "{stderr}");
    for text in says {
        let found = last["error"].as_str().unwrap().matches(text).count();
        assert_eq!(found, 1, "{text:?} in {last}");
    }
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_there_ends_it_and_is_named() {
    let theatre = Theatre::open().await;
    let daemon = theatre.daemon_with("daemon", |config| config["kubernetes"]["kubeconfig"] = "/no/such/file".into());
    fails(daemon, &["the kubeconfig /no/such/file", "No such file or directory"]).await;
}

#[tokio::test]
async fn a_kubeconfig_that_makes_no_sense_ends_it_and_is_named() {
    let theatre = Theatre::open().await;
    for (name, text) in [
        ("not-yaml", "clusters: [\n"),
        ("not-a-kubeconfig", "just a text\n"),
        ("no-context", "apiVersion: v1\nkind: Config\ncurrent-context: production\n"),
        ("empty", ""),
    ] {
        let path = theatre.file(name, text);
        let says = format!("the kubeconfig {path}");
        let daemon = theatre.daemon_with("daemon", |config| config["kubernetes"]["kubeconfig"] = path.into());
        fails(daemon, &[&says]).await;
    }
}

#[tokio::test]
async fn without_any_credentials_it_ends_and_says_where_it_looked() {
    let theatre = Theatre::open().await;
    let daemon = theatre.daemon_with("daemon", |config| config["kubernetes"]["kubeconfig"] = Value::Null);
    fails(daemon, &["neither a kubeconfig nor a pod's service account"]).await;
}

#[tokio::test]
async fn a_port_in_use_ends_it_and_names_the_key() {
    let theatre = Theatre::open().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let daemon = theatre.daemon_with("daemon", |config| config["diagnostics"]["listen"] = address.clone().into());
    fails(daemon, &[&address, "diagnostics.listen", "in use"]).await;
}

/// Not ready, alive, and the reason on every channel.
async fn is_visible(daemon: &Program, reason: &str) {
    let answer = eventually(&format!("/readyz fails with {reason:?}"), async || {
        Some(daemon.get("/readyz").await).filter(|answer| answer.code == 500 && answer.body.contains(reason))
    })
    .await;
    assert!(answer.body.contains("[-]caches failed: "), "{}", answer.body);
    assert_eq!(daemon.get("/livez").await.code, 200);
    let says = |value: &Value| value.as_str().is_some_and(|text| text.contains(reason));
    let status = daemon
        .shows("the reason on the status page", |status| {
            let caches = status["caches"].as_array().unwrap();
            caches.len() == 4 && caches.iter().all(|cache| says(&cache["lastError"]))
        })
        .await;
    assert_ne!(status["overall"], "healthy");
    daemon.shows("the lease's trouble", |status| says(&role(status, "attacher")["lastError"])).await;
    let warned = |line: &Value| line["level"] == "WARN" && says(&line["error"]);
    assert!(daemon.log().iter().any(warned), "{}", daemon.stderr());
}

#[tokio::test]
async fn an_api_that_cannot_be_reached_is_waited_for() {
    let theatre = Theatre::open().await;
    // Bound for as long as the test lasts, without a listener, so that no other process takes the port.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = closed.local_addr().unwrap();
    let path = theatre.path("unreachable.kubeconfig");
    kubeconfig::write(&path, &format!("http://{address}"), None).unwrap();
    let mut daemon = theatre.daemon_with("daemon", |config| {
        config["kubernetes"]["kubeconfig"] = path.to_str().unwrap().into();
    });
    is_visible(&daemon, "Connection refused").await;
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());
}

#[tokio::test]
async fn an_api_that_forbids_everything_is_shown_and_served_as_soon_as_it_allows() {
    let theatre = Theatre::open().await;
    let token = TestBed::token("daemon-stranger");
    theatre.testbed.api.admit(token.as_str(), Identity::limited("daemon-stranger", Vec::new()));
    let mut daemon = theatre.program("daemon-stranger", |_| {});
    theatre.attach("volume");
    is_visible(&daemon, "is forbidden: User \"daemon-stranger\" cannot").await;
    theatre.testbed.api.admit(token, Identity::admin("daemon-stranger"));
    theatre.attached("volume").await;
    let status = daemon.is("serving").await;
    assert_eq!(role(&status, "attacher")["lastError"], Value::Null);
    assert_eq!(daemon.get("/readyz").await.body, "ok");
    assert!(daemon.is_alive());
}

#[tokio::test]
async fn an_api_that_knows_the_token_no_more_is_shown() {
    let theatre = Theatre::open().await;
    let daemon = theatre.program("daemon-unknown", |_| {});
    is_visible(&daemon, "Unauthorized").await;
}

#[tokio::test]
async fn proxy_variables_beside_a_kubeconfig_are_heeded_as_kubectl_heeds_them() {
    let theatre = Theatre::open().await;
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = format!("http://me:secret@{}", closed.local_addr().unwrap());
    let variables = [("HTTPS_PROXY", &*proxy), ("HTTP_PROXY", &proxy), ("NO_PROXY", "127.0.0.1")];
    // No process listens there, and the daemon reaches the API all the same.
    let mut daemon = theatre.daemon_under("daemon", &variables, |_| {});
    theatre.attach("pv-1");
    theatre.attached("pv-1").await;
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());

    let path = theatre.path("elsewhere.kubeconfig");
    kubeconfig::write(&path, "http://api.example.test:8080", None).unwrap();
    let mut daemon = theatre.daemon_under("other", &variables, |config| {
        config["kubernetes"]["kubeconfig"] = path.to_str().unwrap().into();
    });
    let address = closed.local_addr().unwrap();
    is_visible(&daemon, &format!("cannot connect to the proxy http://{address} (HTTP_PROXY)")).await;
    assert!(!daemon.stderr().contains("secret"), "{}", daemon.stderr());
    daemon.signal("TERM").await;
    daemon.exit().await;
}
