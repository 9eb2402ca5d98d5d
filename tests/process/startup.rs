//! Drivers that do not run yet, or give invalid answers: the daemon stays up, says why it is not ready, and retries.

use csi_control_plane::process::Tasks;
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Listen, Method, Server};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;

use super::program::{Answer, Program, eventually};
use super::theatre::{DRIVER, Theatre};

/// Waits until `/readyz` fails with this in its text.
async fn not_ready(daemon: &Program, reason: &str) -> Answer {
    eventually(&format!("/readyz fails with {reason:?}"), async || {
        Some(daemon.get("/readyz").await).filter(|answer| answer.code == 500 && answer.body.contains(reason))
    })
    .await
}

/// It is alive, it is not ready for this reason, and when `mend` has been done it attaches.
async fn recovers(theatre: &Theatre, mut daemon: Program, reason: &str, mend: impl AsyncFnOnce()) {
    let answer = not_ready(&daemon, reason).await;
    assert!(answer.body.starts_with("[-]driver failed: "), "{}", answer.body);
    assert_eq!(daemon.get("/livez").await.code, 200, "a bad driver is no reason to restart the daemon");
    let status = daemon.status().await;
    assert_eq!(status["driver"]["state"], "connecting");
    assert!(status["driver"]["lastError"].as_str().unwrap().contains(reason), "{status:#}");
    assert_ne!(status["overall"], "healthy");
    mend().await;
    theatre.attach("volume");
    theatre.attached("volume").await;
    assert_eq!(daemon.get("/readyz").await.body, "ok");
    assert!(daemon.is_alive());
    let told = daemon.log();
    let warned = |line: &Value| line["level"] == "WARN" && line["error"].as_str().is_some_and(|e| e.contains(reason));
    assert!(told.iter().any(warned), "{}", daemon.stderr());
}

#[tokio::test]
async fn without_a_socket_it_stays_up_says_so_and_connects_when_the_socket_appears() {
    let theatre = Theatre::open().await;
    let socket = theatre.path("late.sock");
    let daemon = theatre.daemon_with("daemon", |config| {
        config["csi"]["endpoint"] = format!("unix://{}", socket.display()).into();
    });
    let driver = theatre.driver().clone();
    let mut server = None;
    recovers(&theatre, daemon, "No such file or directory", async || {
        server = Some(Server::start(&driver, Listen::unix(socket.clone(), 0o600)).await.unwrap());
    })
    .await;
    drop(server);
}

#[tokio::test]
async fn a_driver_without_a_name_is_asked_again_until_it_has_one() {
    let theatre = Theatre::open().await;
    theatre.driver().inject(Fault::on(Method::GetPluginInfo, Action::Lie(Lie::EmptyName)));
    let daemon = theatre.daemon("daemon");
    recovers(&theatre, daemon, "the name is empty", async || theatre.driver().clear_faults()).await;
}

#[tokio::test]
async fn a_driver_with_an_impossible_name_is_asked_again_until_it_has_a_possible_one() {
    let theatre = Theatre::open().await;
    theatre.driver().change_profile(|profile| profile.name = "no such/name".to_owned());
    let daemon = theatre.daemon("daemon");
    recovers(&theatre, daemon, r#"the name "no such/name" contains ' '"#, async || {
        theatre.driver().change_profile(|profile| profile.name = DRIVER.to_owned());
    })
    .await;
}

#[tokio::test]
async fn a_driver_that_is_not_ready_yet_is_waited_for() {
    let theatre = Theatre::open().await;
    theatre.driver().inject(Fault::on(Method::Probe, Action::Lie(Lie::NotReady)));
    let daemon = theatre.daemon("daemon");
    recovers(&theatre, daemon, "the driver is not ready yet", async || theatre.driver().clear_faults()).await;
}

#[tokio::test]
async fn a_driver_whose_answer_is_too_large_is_asked_again() {
    let theatre = Theatre::open().await;
    theatre.driver().inject(Fault::on(Method::GetPluginInfo, Action::Lie(Lie::Huge(100_000))));
    let daemon = theatre.daemon_with("daemon", |config| config["csi"]["maxMessageBytes"] = 65_536.into());
    recovers(&theatre, daemon, "cannot get the driver's name", async || theatre.driver().clear_faults()).await;
}

#[tokio::test]
async fn capabilities_that_no_one_knows_do_no_harm() {
    let theatre = Theatre::open().await;
    for method in [Method::GetPluginCapabilities, Method::ControllerGetCapabilities] {
        theatre.driver().inject(Fault::on(method, Action::Lie(Lie::BogusCapabilities)));
    }
    let daemon = theatre.daemon("daemon");
    theatre.attach("volume");
    theatre.attached("volume").await;
    assert_eq!(daemon.get("/readyz").await.body, "ok");
}

#[tokio::test]
async fn a_socket_that_does_not_speak_grpc_is_dialled_again() {
    let theatre = Theatre::open().await;
    let socket = theatre.path("other.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (tasks, _) = Tasks::new("impostor");
    tasks.spawn("impostor", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // The client decides what it makes of it.
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
        }
    });
    let daemon = theatre.daemon_with("daemon", |config| {
        config["csi"]["endpoint"] = format!("unix://{}", socket.display()).into();
    });
    let answer = not_ready(&daemon, "cannot").await;
    assert!(answer.body.starts_with("[-]driver failed: cannot "), "{}", answer.body);
    assert_eq!(daemon.get("/livez").await.code, 200);
    drop(tasks);
    eventually("the impostor is gone", async || std::fs::remove_file(&socket).ok()).await;
    let server = Server::start(theatre.driver(), Listen::unix(socket, 0o600)).await.unwrap();
    theatre.attach("volume");
    theatre.attached("volume").await;
    server.stop().await;
    daemon.shows("the driver is missed", |status| status["driver"]["state"] == "lost").await;
}
