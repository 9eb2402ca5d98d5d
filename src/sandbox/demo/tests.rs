//! Demos that cannot finish, in simulated time: each reports the step at which it stopped. And one that has to end beside another daemon.

use std::io;

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;
use tokio::time::Instant;

use super::narrator::STEP_TIMEOUT;
use super::{Backend, DAEMON, Daemon, Demo, Narrator, PatchBody};
use crate::process::{Clock, Rng, error_chain};
use crate::roles::SandboxDriver;
use crate::sandbox::actors::SnapshotHabits;
use crate::sandbox::network::Network;
use crate::sandbox::testbed::{ADMIN_TOKEN, TestBed, Transport};
use crate::sandbox::verb;

/// A demo with this overlay, played in this way.
async fn demo_with<T>(overlay: &str, play: impl AsyncFnOnce(&mut Demo<'_>, Daemon) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overlay.yaml");
    std::fs::write(&path, overlay).unwrap();
    let (clock, rng) = (Clock::system(), Rng::seeded(1));
    let testbed = TestBed::set_up(Transport::Network(Network::new()), verb::demo_profile(), clock, rng).await.unwrap();
    let backend = Backend::Demo(testbed.driver.clone());
    let (has_topology, tells_room) = (backend.has_topology(), backend.tells_room());
    let driver = SandboxDriver { has_topology, tells_room, shows_attempts: false };
    let yaml = verb::configuration("unix:///csi.sock", driver, None, Some(&path)).unwrap();
    testbed.install_snapshots();
    testbed.install_groups();
    testbed.api.keep_volume_health();
    let _habits = testbed.start_actors_with_snapshots(SnapshotHabits::default());
    let dial = testbed.driver_dial(DAEMON);
    Demo::announce(&testbed.api, &backend).unwrap();
    let daemon = testbed.start_as(DAEMON, &yaml, ADMIN_TOKEN.to_owned(), dial).await.unwrap();
    let mut narrator = Narrator::new(Box::new(io::sink()), STEP_TIMEOUT, clock.now());
    let mut demo = Demo::new(&testbed.api, &backend, &mut narrator);
    demo.furnish().unwrap();
    let played = play(&mut demo, daemon).await;
    testbed.tear_down().await;
    played
}

/// The last message of a demo with this overlay.
async fn end_of_demo_with(overlay: &str) -> String {
    demo_with(overlay, async |demo, daemon| {
        let begun = Instant::now();
        let error = demo.play().await.unwrap_err();
        assert!(begun.elapsed() < 2 * STEP_TIMEOUT, "after {:?}: {error}", begun.elapsed());
        daemon.kill();
        error_chain(&error)
    })
    .await
}

/// Whether a text has these parts in this order.
fn says(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is not in its place in {text}"));
        rest = &rest[at + part.len()..];
    }
}

#[tokio::test(start_paused = true)]
async fn a_story_whose_volumes_are_made_anywhere_ends_in_time_and_says_where() {
    let said = end_of_demo_with("roles: { provisioner: { topology: false } }").await;
    let parts = [
        "step 12 was not observed within 60s: invoices is attached to node-b; last seen: rpc error: code = FailedPrecondition",
        "in the cluster: claim invoices is Bound; claim orders is Bound; volume pvc-",
        "pod invoices is on node-b; pod orders is on node-a; pvc-",
        "on node-a is attached; pvc-",
        "on node-b fails: rpc error: code = FailedPrecondition",
        "event VolumeAttachFailed on claim invoices",
    ];
    says(&said, &parts);
}

#[tokio::test(start_paused = true)]
async fn a_story_whose_attacher_waits_for_an_hour_ends_in_time_and_says_where() {
    let said = end_of_demo_with("roles: { attacher: { retry: { initial: 1h, max: 1h } } }").await;
    let parts = [
        "step 28 was not observed within 60s: archive is attached to node-b; last seen: rpc error: code = ResourceExhausted",
        "in the cluster: claim archive is Bound; claim invoices is Bound",
        "event VolumeAttachFailed on claim archive",
    ];
    says(&said, &parts);
}

#[tokio::test(start_paused = true)]
async fn a_story_whose_leases_are_elsewhere_ends_in_time_and_says_where() {
    let said = end_of_demo_with("leaderElection: { namespace: elsewhere }").await;
    let expected = "step 2 was not observed within 60s: lease external-attacher-leader-demo-csi-example-com is taken; \
        last seen: there is none in kube-system; the cluster has no claim, volume, pod or attachment";
    assert_eq!(said, expected);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_daemon_has_taken_does_not_delay_the_end() {
    demo_with("{}", async |demo, daemon| {
        demo.see_leaders().await.unwrap();
        let lease = demo.leases().remove(0);
        let taken =
            PatchBody::Merge(json!({ "spec": { "holderIdentity": "another_0001", "leaseDurationSeconds": 3600 } }));
        demo.api.patch::<Lease>("kube-system", &lease, taken).unwrap();
        demo.stop(daemon).await.unwrap();
        let spec = demo.api.get::<Lease>("kube-system", &lease).unwrap().spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("another_0001"));
    })
    .await;
}
