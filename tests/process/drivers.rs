//! Drivers that restart, change and die under a daemon that serves them.

use std::time::Duration;

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use serde_json::Value;

use super::commits::Commit;
use super::program::{Program, role};
use super::theatre::{LEASE, Theatre};

const DOWN: Duration = Duration::from_millis(200);

fn served(daemon: &Program) -> usize {
    daemon.log().iter().filter(|line| line["message"] == "serving" && line["role"] == "attacher").count()
}

async fn ready(daemon: &Program, connections: u64) -> Value {
    daemon
        .shows("the driver is back", |status| {
            status["driver"]["state"] == "ready" && status["driver"]["connections"] == connections
        })
        .await
}

#[tokio::test]
async fn a_driver_that_comes_back_unchanged_is_served_on_in_the_same_term() {
    let theatre = Theatre::open().await;
    let mut daemon = theatre.daemon("daemon");
    theatre.attach("before");
    theatre.attached("before").await;
    let before = role(&daemon.status().await, "attacher")["term"].clone();

    theatre.testbed.server.restart(DOWN).await;
    theatre.attach("while-away");
    theatre.attached("while-away").await;

    let status = ready(&daemon, 2).await;
    assert_eq!(status["driver"]["generation"], 1);
    let attacher = role(&status, "attacher");
    assert_eq!((&attacher["state"], &attacher["term"]), (&"serving".into(), &before));
    assert_eq!(attacher["restarts"], 0);
    assert_eq!(served(&daemon), 1, "{}", daemon.stderr());
    assert!(theatre.commits.first(Commit::is_release).is_none());
    assert!(daemon.is_alive());
    assert_eq!(theatre.publishes("before").len(), 1, "what is attached is left alone");
}

#[tokio::test]
async fn a_driver_that_comes_back_with_other_capabilities_is_served_anew() {
    let (theatre, mut daemon) = Theatre::serving("daemon").await;
    theatre.driver().change_profile(|profile| *profile = profile.clone().without(Rpc::PublishReadonly));
    theatre.testbed.server.restart(DOWN).await;

    let status = ready(&daemon, 2).await;
    assert_eq!(status["driver"]["generation"], 2);
    theatre.attach("after");
    theatre.attached("after").await;
    daemon.is("serving").await;
    assert_eq!(served(&daemon), 2, "{}", daemon.stderr());
    assert!(theatre.commits.first(Commit::is_release).is_some(), "a standby had its chance");
    let told = daemon.logged("the driver is back with other capabilities").await;
    assert!(told["lost"].as_str().unwrap().contains("PUBLISH_READONLY"), "{told}");
    theatre.commits.assert_one_leader(LEASE);
    assert!(daemon.is_alive());
}

#[tokio::test]
async fn a_driver_that_comes_back_under_another_name_ends_the_daemon_which_says_both_names() {
    let (theatre, mut daemon) = Theatre::serving("daemon").await;
    theatre.driver().change_profile(|profile| profile.name = "other.csi.example.com".to_owned());
    theatre.testbed.server.restart(Duration::ZERO).await;
    assert_eq!(daemon.exit().await, Some(1), "{}", daemon.stderr());
    let last = daemon.stderr().lines().last().unwrap().to_owned();
    assert!(last.contains("demo.csi.example.com") && last.contains("other.csi.example.com"), "{last}");
    let errors = daemon.log().iter().filter(|line| line["level"] == "ERROR").count();
    assert_eq!(errors, 1, "told once: {}", daemon.stderr());
    assert!(theatre.commits.first(Commit::is_release).is_some(), "the lease is handed back");
}

#[tokio::test]
async fn a_driver_that_dies_in_the_middle_of_calls_loses_none_of_them() {
    let (theatre, mut daemon) = Theatre::serving("daemon").await;
    let (publish, unpublish) = (Method::ControllerPublishVolume, Method::ControllerUnpublishVolume);
    theatre.driver().inject(Fault::on(publish, Action::Crash { down: DOWN }).volume("killed").once());
    theatre.driver().inject(Fault::on(publish, Action::DoneButCrash { down: DOWN }).volume("unheard").once());
    theatre.driver().inject(Fault::on(unpublish, Action::DoneButCrash { down: DOWN }).once());
    for volume in ["killed", "unheard"] {
        theatre.attach(volume);
        theatre.attached(volume).await;
        theatre.detach(volume);
        theatre.gone(volume).await;
        assert!(theatre.driver().published(volume).is_empty());
    }
    assert_eq!(theatre.driver().restarts(), 3);
    assert_eq!(role(&daemon.status().await, "attacher")["restarts"], 0);
    assert_eq!(theatre.driver().violations(), []);
    assert!(daemon.is_alive());
}
