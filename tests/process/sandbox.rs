//! The `sandbox` verb, as a user runs it: the demo driver, somebody else's driver, and a driver that does not play along.

use csi_control_plane::sandbox::driver::Profile;

use crate::program::run;
use crate::theatre::Theatre;

#[tokio::test]
async fn the_story_with_the_demo_driver_comes_to_its_end() {
    let ended = run(&["sandbox"], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    for step in [
        "driver demo.csi.example.com discovered",
        "lease external-attacher-leader-demo-csi-example-com won by",
        "pv-orders attached to node-a",
        "pv-invoices attached to node-b",
        "detached from node-a behind Kubernetes' back",
        "is found and attached again",
        "attaching pv-archive failed, and its status says why: rpc error: code = ResourceExhausted",
        "event VolumeAttachRecovered on claim-pv-archive",
        "pv-archive detached from node-a",
        "the volumes are released and gone",
        "the daemon stopped cleanly and handed its lease back",
        "17 steps observed in",
    ] {
        assert!(ended.stdout.contains(step), "{step:?} in\n{}", ended.stdout);
    }
}

#[tokio::test]
async fn the_story_drives_the_users_own_driver_and_leaves_nothing_behind() {
    let theatre = Theatre::open_with(Profile::with_nodes(["my-node"])).await;
    let endpoint = format!("unix://{}", theatre.path("csi.sock").display());
    let ended = run(&["sandbox", "--csi-endpoint", &endpoint, "--node-id", "my-node"], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    assert!(ended.stdout.contains("attaching pv-archive failed, and its status says why: CSINode"), "{}", ended.stdout);
    assert!(ended.stdout.contains("17 steps observed in"), "{}", ended.stdout);
    assert!(theatre.driver().state().volumes().is_empty(), "{:?}", theatre.driver().state());
}

#[tokio::test]
async fn a_driver_with_a_node_service_is_asked_for_its_node() {
    let theatre = Theatre::open_with(Profile::with_nodes(["my-node"])).await;
    let endpoint = format!("unix://{}", theatre.path("csi.sock").display());
    let ended = run(&["sandbox", "--csi-endpoint", &endpoint], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    assert!(theatre.driver().state().volumes().is_empty(), "{:?}", theatre.driver().state());
}

#[tokio::test]
async fn a_driver_without_a_node_service_needs_a_node_by_name() {
    let profile = Profile { node_service: false, ..Profile::with_nodes(["my-node"]) };
    let theatre = Theatre::open_with(profile).await;
    let endpoint = format!("unix://{}", theatre.path("csi.sock").display());
    let ended = run(&["sandbox", "--csi-endpoint", &endpoint], &[]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("--node-id"), "{}", ended.stderr);
}
