//! Signals at difficult times.

use std::time::Duration;

use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use serde_json::Value;

use super::commits::Commit;
use super::theatre::{AT_ONCE, Theatre};

#[tokio::test]
async fn a_second_sigterm_ends_it_at_once_with_exit_code_1_and_leaves_the_lease_to_expire() {
    let (theatre, mut daemon) = Theatre::serving("daemon-stuck").await;
    theatre.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::Hang));
    theatre.attach("hanging");
    theatre.publishing("hanging").await;

    daemon.signal("TERM").await;
    daemon.logged("stopping: waiting for work in flight, then releasing the leases").await;
    assert!(daemon.is_alive(), "it waits for the call in flight");
    let asked = theatre.driver().age();
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(1), "{}", daemon.stderr());

    assert!(theatre.driver().age().saturating_sub(asked) < AT_ONCE);
    assert!(daemon.stderr().contains("stopped at once by a second signal"), "{}", daemon.stderr());
    assert!(theatre.commits.first(Commit::is_release).is_none(), "the call may still be running");
}

#[tokio::test]
async fn sigint_stops_it_in_order_too() {
    let (theatre, mut daemon) = Theatre::serving("daemon-interrupted").await;
    let says_ready = |line: &&Value| {
        line["message"].as_str().is_some_and(|it| it.ends_with("driver ready") || it.ends_with("driver is ready"))
    };
    assert_eq!(daemon.log().iter().filter(says_ready).count(), 1, "{}", daemon.stderr());
    daemon.signal("INT").await;
    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());
    assert!(theatre.commits.first(Commit::is_release).is_some());
}

#[tokio::test]
async fn sigterm_ends_it_while_it_still_waits_for_the_driver() {
    let theatre = Theatre::open().await;
    let mut daemon = theatre.daemon_with("daemon-early", |config| {
        config["csi"]["endpoint"] = format!("unix://{}", theatre.path("nothing-here.sock").display()).into();
    });
    daemon.logged("waiting for the driver").await;
    let asked = theatre.driver().age();
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());
    assert!(theatre.driver().age().saturating_sub(asked) < AT_ONCE);
}

#[tokio::test]
async fn sigterm_ends_it_in_order_while_the_driver_is_gone() {
    let (theatre, mut daemon) = Theatre::serving("daemon-alone").await;
    theatre.testbed.server.restart(Duration::from_secs(600)).await;
    daemon.shows("the driver is lost", |status| status["driver"]["state"] == "lost").await;
    let asked = theatre.driver().age();
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());
    assert!(theatre.driver().age().saturating_sub(asked) < AT_ONCE);
    assert!(theatre.commits.first(Commit::is_release).is_some());
}
